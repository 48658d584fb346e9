"""Datasets and comparisons for the tests of `Loader`; worker processes import them as well."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage
from processes import skip_without_shared_memory
from torch.utils.data import Dataset

import fastdecode
from fastdecode.native._augment import Erasure, draw_in_core, erase
from fastdecode.testing import encode
from fastdecode.torch._loader.order import sample_seed
from fastdecode.torch._loader.transfer import Transfer
from fastdecode.torch._user_code import seed_global_generators
from fastdecode.torch.dataset import DecodeDataset
from fastdecode.torch.loader import Loader
from fastdecode.torch.prefetcher import DevicePrefetcher
from fastdecode.torch.transforms import IMAGENET_STD, RandomResizedCropFlipNormalize

COUNT = 23
"""Number of images: a prime, so that no batch size divides it."""

PROCESS_WARNINGS = (
    "ignore:This DataLoader will create:UserWarning",  # on a machine with one core
    "ignore:.*use of fork.*:DeprecationWarning",  # torch's own DataLoader forks as well
)

NEEDS_GLOO = pytest.mark.skipif(
    not (torch.distributed.is_available() and torch.distributed.is_gloo_available()),
    reason="this PyTorch has no gloo",
)


@cache
def encoded() -> tuple[bytes, ...]:
    """Cut a photo into small JPEGs that all differ."""
    photo = Path(fastdecode.__file__).parent / "samples" / "casa-mila.jpg"
    with PillowImage.open(photo) as image:
        image.thumbnail((400, 400))
        return tuple(encode(image.crop((n, 2 * n, n + 64, 2 * n + 48))) for n in range(COUNT))


CROP = RandomResizedCropFlipNormalize(40, quality="fast")
EXACT = RandomResizedCropFlipNormalize(24)

LEVEL = 1.01 / (255 * min(IMAGENET_STD))
"""Tolerance for floats whose bytes differ by 1, because two resizers round differently."""


class SeededLoader(Loader):
    """A `Loader` whose seed is 0 by default, so that two of them give the same batches."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        if options.get("generator") is None:
            options.setdefault("seed", 0)
        super().__init__(*arguments, **options)


class Sources(DecodeDataset):
    """Encoded images or paths with their indices as targets; `reads` lists the indices read."""

    thread_safe = True

    def __init__(self, *sources: Any, transform: Any = CROP, **options: Any) -> None:
        super().__init__(transform, **options)
        self.sources = sources
        self.reads: list[int] = []

    def __len__(self) -> int:
        return len(self.sources)

    def read(self, index: int) -> tuple[Any, Any]:
        self.reads.append(index)
        return self.sources[index], index


class Images(DecodeDataset):
    """Small JPEGs with their index as the target; some may be truncated, or raise when read."""

    thread_safe = True

    def __init__(
        self,
        transform: Callable[..., Any] | None = None,
        *,
        count: int = COUNT,
        damaged: tuple[int, ...] = (),
        wrong: dict[int, BaseException] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(
            RandomResizedCropFlipNormalize(24) if transform is None else transform, **options
        )
        self.count = count
        self.damaged = damaged
        self.wrong = wrong or {}

    def __len__(self) -> int:
        return self.count

    def read(self, index: int) -> tuple[Any, Any]:
        if index in self.wrong:
            raise type(self.wrong[index])(*self.wrong[index].args)
        data = encoded()[index % COUNT]
        # The header is good, and there is an end marker: only decoding shows the damage.
        cut = data[: len(data) // 2] + b"\xff\xd9"
        return cut if index in self.damaged else data, index


def add_random(image: Any) -> torch.Tensor:
    """Add random numbers from all three generators that a user's own transform may use."""
    pixels = torch.from_numpy(np.array(image.resize((8, 6)))).permute(2, 0, 1).float()
    return pixels + torch.rand(3, 6, 8) + random.random() + float(np.random.random())  # noqa: NPY002


class Plain:
    """A dataset that does not use this package."""

    def __init__(self, make: Callable[[int], Any], count: int = COUNT) -> None:
        self.make = make
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


class Seeded(Dataset[Any]):
    """What a `Loader` gives of a dataset, in PyTorch's DataLoader."""

    def __init__(self, dataset: Any, seed: int, epoch: int = 0) -> None:
        self.dataset, self.seed, self.epoch = dataset, seed, epoch

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        seed_global_generators(sample_seed(self.seed, self.epoch, index))
        return self.dataset[index]


def same(first: Any, second: Any) -> bool:
    """Return whether nested batches are equal; tensors must be bit-identical."""
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and torch.equal(first, second)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def copies(batches: Any) -> list[Any]:
    """Clone the tensors of batches, because a loader may reuse their memory."""
    return [[part.clone() for part in batch] for batch in batches]


def targets(batches: Any) -> list[list[int]]:
    return [batch[1].tolist() for batch in batches]


def indices(batches: Any) -> list[int]:
    """List the targets of all batches, which are the indices."""
    return [index for batch in targets(batches) for index in batch]


def generator_states() -> list[Any]:
    """Return the states of the global random generators of torch, Python and NumPy."""
    numpy = np.random.get_state()[1].tolist()  # noqa: NPY002
    return [torch.get_rng_state(), random.getstate(), numpy]


def epoch(dataset: Any, batch_size: int = 4, **options: Any) -> list[Any]:
    """Return the batches of the first epoch."""
    with SeededLoader(dataset, batch_size, **options) as loader:
        return copies(loader)


def epochs(count: int, dataset: Any, batch_size: int = 4, **options: Any) -> list[list[Any]]:
    """Return the batches of `count` epochs."""
    with SeededLoader(dataset, batch_size, **options) as loader:
        return [copies(loader) for _ in range(count)]


def device_loader(
    dataset: Any, batch_size: int = 4, shuffle: bool = False, **options: Any
) -> Loader:
    """Make a loader that leaves normalising to the device; the CPU takes the part of the device."""
    options |= {"device": "meta", "normalize_on": "device"}
    loader = SeededLoader(dataset, batch_size, shuffle, **options)
    loader._delivery = None
    return loader


def threaded(loader: Any, depth: int = 2, transfer: Transfer | None = None) -> DevicePrefetcher:
    """Return a prefetcher for the host's memory that works as for any device."""
    prefetcher = DevicePrefetcher(loader, "cpu", depth=depth)
    prefetcher._transfer = transfer or Transfer(torch.device("cpu"))
    return prefetcher


def targets_and_errors(loader: Any) -> list[Any]:
    """Draw all batches; return the targets of each, or its error."""
    batches, seen = iter(loader), []
    while True:
        try:
            seen.append(next(batches)[1].tolist())
        except StopIteration:
            return seen
        except Exception as error:
            seen.append(error)


def pool_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("fastdecode-")]


GOLDEN = 0x9E3779B97F4A7C15
"""How far a number moves the state of a sample's generator."""
_NOISE = erase(Erasure((0.01, 0.02), (0.9, 1.1), "pixel"))


def next_number(state: int) -> int:
    """Return the 64 bits that the core draws first after a state: as the seed of an erasure."""
    # That is the fifth number that an erasure draws.
    before = (state - 4 * GOLDEN) % (1 << 64)
    operations = draw_in_core(_NOISE, before, 900, 900).operations
    return int(operations[0].seed)


def next_share(state: int) -> float:
    """Return that number as one from 0 to 1."""
    return (next_number(state) >> 11) * 2.0**-53


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until another thread or process has made the condition true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        if gc.isenabled():
            gc.collect()
        time.sleep(0.005)


def script(code: str) -> subprocess.Popen[str]:
    """Start a process that runs the code after importing this module and the loader."""
    skip_without_shared_memory()
    paths = [str(Path(__file__).parent), str(Path(fastdecode.__file__).parents[1])]
    begin = f"""
import sys
sys.path[:0] = {paths!r}
import threading, time
import loading
from fastdecode.torch.loader import Loader
"""
    return subprocess.Popen(
        [sys.executable, "-c", begin + code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
