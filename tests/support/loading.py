"""Datasets and comparisons for the tests of `Loader`; worker processes import them, too."""

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

import fastdecode
from fastdecode.testing import encode
from fastdecode.torch.dataset import DecodeDataset
from fastdecode.torch.loader import Loader
from fastdecode.torch.transforms import IMAGENET_STD, RandomResizedCropFlipNormalize

COUNT = 23
"""How many images there are: a prime number, so that no batch size fits."""

PROCESSES = (
    "ignore:This DataLoader will create:UserWarning",  # on a machine with one core
    "ignore:.*use of fork.*:DeprecationWarning",  # torch's own DataLoader forks, too
)

GLOO = pytest.mark.skipif(
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


CROP = RandomResizedCropFlipNormalize(40)
EXACT = RandomResizedCropFlipNormalize(24, quality="exact")

LEVEL = 1.01 / (255 * min(IMAGENET_STD))
"""How far floats may be apart where bytes are 1 apart: two ways of rounding a resize."""


class Sources(DecodeDataset):
    """Encoded images or their paths, with their numbers as targets; it lists its reads."""

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
    """Small JPEGs with their index as the target; some may be damaged or of a wrong type."""

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
        return data[: len(data) // 3] if index in self.damaged else data, index


def drawing(image: Any) -> torch.Tensor:
    """Add numbers from all three generators that a user's own transform may draw from."""
    pixels = torch.from_numpy(np.array(image.resize((8, 6)))).permute(2, 0, 1).float()
    return pixels + torch.rand(3, 6, 8) + random.random() + float(np.random.random())  # noqa: NPY002


class Plain:
    """A plain dataset that does not use this package."""

    def __init__(self, make: Callable[[int], Any], count: int = COUNT) -> None:
        self.make = make
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def same(first: Any, second: Any) -> bool:
    """Return whether lists of batches are bit-identical."""
    if isinstance(first, torch.Tensor):
        return isinstance(second, torch.Tensor) and torch.equal(first, second)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(same, first, second))
    return bool(first == second)


def near(first: list[Any], second: list[Any]) -> bool:
    """Return whether images differ by at most one level, and all else is equal."""
    return len(first) == len(second) and all(
        one[0].shape == two[0].shape
        and one[0].dtype == two[0].dtype
        and float((one[0] - two[0]).abs().max()) <= LEVEL
        and same(one[1:], two[1:])
        for one, two in zip(first, second, strict=True)
    )


def copies(batches: Any) -> list[Any]:
    """Copy batches, because a loader reuses their memory."""
    return [[part.clone() for part in batch] for batch in batches]


def targets(batches: Any) -> list[list[int]]:
    return [batch[1].tolist() for batch in batches]


def indices(batches: Any) -> list[int]:
    """Return the targets of all batches, which are the indices, in one list."""
    return [index for batch in targets(batches) for index in batch]


def generators() -> list[Any]:
    """Return the states of the global random generators."""
    numpy = np.random.get_state()[1].tolist()  # noqa: NPY002
    return [torch.get_rng_state(), random.getstate(), numpy]


def epoch(dataset: Any, batch_size: int = 4, **options: Any) -> list[Any]:
    """Return the batches of the first epoch."""
    with Loader(dataset, batch_size, **options) as loader:
        return copies(loader)


def epochs(count: int, dataset: Any, batch_size: int = 4, **options: Any) -> list[list[Any]]:
    """Return the batches of this number of epochs."""
    with Loader(dataset, batch_size, **options) as loader:
        return [copies(loader) for _ in range(count)]


def later(dataset: Any, batch_size: int = 4, shuffle: bool = False, **options: Any) -> Loader:
    """Return a loader that makes floats on the device, with the CPU as the device."""
    loader = Loader(dataset, batch_size, shuffle, device="meta", normalize_on="device", **options)
    loader._delivery = None
    return loader


def taken(loader: Any) -> list[Any]:
    """Return all batches of an epoch, with errors in the places of their batches."""
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


def eventually(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait until a condition is true that another thread or process fulfils."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        if gc.isenabled():
            gc.collect()
        time.sleep(0.005)


def script(code: str) -> subprocess.Popen[str]:
    """Start a process that has imported this module and the loader."""
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
