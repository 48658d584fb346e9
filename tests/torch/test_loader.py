"""`Loader`: what its batches hold, how many are made ahead, errors, and leaving an epoch early."""

from __future__ import annotations

import os
import signal
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from loading import PROCESS_WARNINGS, Images, Plain, script, targets_and_errors
from loading import SeededLoader as Loader
from same import assert_same
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, Subset
from torch.utils.data._utils.collate import default_collate_fn_map

from fastdecode.torch.transforms import Resize, ResizeCenterCropNormalize


@pytest.mark.filterwarnings(*PROCESS_WARNINGS)
@pytest.mark.parametrize("how", [{"threads": 0}, {"threads": 2}, {"workers": 1}], ids=str)
def test_channels_last_without_a_known_shape(how: dict[str, int]) -> None:
    """Collated images get the memory layout, too, with targets or without."""
    for dataset in (Images(Resize(20)), Plain(lambda index: torch.full((3, 4, 5), index))):
        made = list(Loader(dataset, 4, channels_last=True, **how))
        assert_same(made, list(Loader(dataset, 4, threads=1)), dataset)
        images = made[0][0] if isinstance(made[0], list) else made[0]
        assert images.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("prefetch", [1, 2, 7])
def test_prefetch_is_the_number_of_batches_made_ahead(prefetch: int) -> None:
    """When a batch is handed out, exactly `prefetch` more have been begun, and none beyond.

    The only thread comes to another iterator's batch when it has done with those of the first.
    """
    read: list[int] = []

    def make(index: int) -> int:
        read.append(index)
        return index

    with Loader(Plain(make, 40), 2, threads=1, prefetch=prefetch) as loader:
        batches = iter(loader)
        next(batches)
        next(iter(loader))
        ahead = 2 * (prefetch + 1)

        assert read[:ahead] == list(range(ahead))
        assert read[ahead : ahead + 2] == [0, 1]  # of the other one


WRONG: dict[str, tuple[Any, ...]] = {
    "batch_size": (0, 2.0),
    "threads": (-1, "many"),
    "workers": (True,),
    "prefetch": (0,),
    "seed": ("a",),
    "timeout": (-1, "a", True),
    "normalize_on": ("gpu", None, True),
    "num_workers": (-1, "8"),
    "prefetch_factor": (0,),
    "in_order": (False, "yes"),
    "pin_memory_device": ("cuda", 0),
    "dataset": (iter([1, 2]), "train", b"train", bytearray(3), Path("train")),
    "batchsize": (4,),
    "colate_fn": (len,),
    **dict.fromkeys(("collate_fn", "worker_init_fn", "multiprocessing_context"), (3,)),
    **dict.fromkeys(("sampler", "batch_sampler", "generator"), (5,)),
    "shuffle": ([0, 1], "no"),
    "drop_last": (BatchSampler(range(9), 3, False), 4),
    "channels_last": (2,),
    "device": (1.5, ["cpu"]),
    "decode": (None, 3),
    "pin_memory": ("cuda",),
    "persistent_workers": (2,),
}
TOGETHER: list[dict[str, Any]] = [
    {"shuffle": True, "sampler": [1]},
    {"threads": 1, "workers": 1},
    {"rank": 1},
    {"world_size": 1},
    *({"rank": rank, "world_size": 2} for rank in (2, -1, "0")),
    {"rank": 0, "world_size": 0},
    *({"batch_sampler": [[1]], **one} for one in ({"batch_size": 4}, {"shuffle": True})),
    {"batch_sampler": [[1]], "drop_last": True},
    *({"num_workers": 2, one: 2} for one in ("threads", "workers")),
    {"prefetch_factor": 3, "prefetch": 4},
    {"generator": torch.Generator(), "seed": 3},
]


def test_wrong_arguments_are_refused_by_name() -> None:
    """The error names each of the arguments, before anything is started."""
    for options in [*({name: one} for name in WRONG for one in WRONG[name]), *TOGETHER]:
        with pytest.raises((TypeError, ValueError)) as caught:
            Loader(**{"dataset": Images(), **options})
        assert [name for name in options if name not in str(caught.value)] == [], options


@pytest.mark.parametrize("place", range(1, 5))
@pytest.mark.parametrize("given", ["no", 2.5, [[1]], len, {"a": 1}])
def test_arguments_in_the_wrong_place_are_refused(place: int, given: Any) -> None:
    """Each positional argument has its type, as with torch's other order; the error tells which."""
    arguments: list[Any] = [Images(), 1, False, None, False]
    arguments[place] = given
    name = ("batch_size", "shuffle", "sampler", "drop_last")[place - 1]
    if name == "sampler" and isinstance(given, (str, list, dict)):
        return  # it can be iterated over
    where = f"{name} " if name == "batch_size" else rf"{name} \(argument {place + 1}\) "
    with pytest.raises((TypeError, ValueError), match=where):
        Loader(*arguments)


# Errors, and leaving an epoch early


def test_first_error_of_a_batch_is_the_one_that_is_raised() -> None:
    """The first error in the order of the batch is raised, whichever thread was faster."""
    second = threading.Event()

    def make(index: int) -> int:
        if index == 2:
            second.set()
        elif not (index == 1 and second.wait(30)):
            return index
        raise TypeError(f"mistake {index}")

    dataset: Any = Plain(make, 8)
    dataset.thread_safe = True
    with Loader(dataset, 8, threads=3) as loader:
        assert [str(error) for error in targets_and_errors(loader)] == ["mistake 1"]


def test_interpreter_ends_although_a_read_hangs() -> None:
    """A hanging thread does not keep the process from ending."""
    process = script("""
dataset = loading.Plain(lambda index: threading.Event().wait())
try:
    next(iter(Loader(dataset, 4, threads=3, timeout=0.5)))
except TimeoutError as error:
    print(error)
""")
    out, _ = process.communicate(timeout=60)

    assert "still missing are items [0, 1, 2, 3]" in out
    assert process.returncode == 0


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGINT for one process")
def test_ctrl_c_ends_a_training() -> None:
    """SIGINT while waiting for batches raises KeyboardInterrupt, and the process ends."""
    process = script("""
def make(index):
    print("begun", flush=True)
    return threading.Event().wait()
try:
    next(iter(Loader(loading.Plain(make), 4, threads=1)))
except KeyboardInterrupt:
    print("interrupted")
    raise
""")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, error = process.communicate(timeout=60)

    assert out == "interrupted\n"
    assert process.returncode == -signal.SIGINT
    assert error.count("Traceback") == 1


@pytest.mark.parametrize("how", [{"threads": 2}, {"workers": 1, "persistent_workers": True}])
def test_what_replaces_a_dataset_inside_is_read_from_the_next_epoch_on(how: Any) -> None:
    """As by torch's DataLoader: a dataset in a Subset or ConcatDataset, and the chosen indices."""
    joined = ConcatDataset([Images(), Images()])
    subset = Subset(joined, [0, 1, 2])
    with Loader(subset, 3, **how) as loader:
        first = iter(loader)
        if "threads" in how:
            joined.datasets[0] = Images()  # within an epoch
        assert [batch[1].tolist() for batch in first] == [[0, 1, 2]]
        joined.datasets[0] = Images()
        joined.datasets[0].target_transform = (1000).__add__
        assert [batch[1].tolist() for batch in loader] == [[1000, 1001, 1002]]
        subset.indices = [5, 4, 3]
        assert [batch[1].tolist() for batch in loader] == [[1005, 1004, 1003]]


class Sample(NamedTuple):
    image: Any
    label: Any


class Pair(tuple):  # noqa: SLOT001 - as users write it
    """A tuple of the user's own kind."""


class Own(Images):
    """A dataset of this package whose samples are of another kind."""

    def __init__(self, make: Any) -> None:
        super().__init__(ResizeCenterCropNormalize(16, 16), count=4)
        self.make = make

    def __getitem__(self, index: int) -> Any:
        return self.make(*super().__getitem__(index))


IMAGE = torch.arange(48, dtype=torch.uint8).view(3, 4, 4)
SAMPLES: dict[str, Any] = {
    "named": Sample,
    "own tuple": lambda image, n: Pair((image, n)),
    "list": lambda image, n: [image, n],
    "dict": lambda image, n: OrderedDict(image=image, n=n),
    "three": lambda image, n: (image, n, float(n)),
    "lengths": lambda image, n: (image, *[n] * (n % 2)),
    "mixed": lambda image, n: [image, n] if n % 2 else (image, n),
    "empty": lambda _image, _n: (),
    "image": lambda image, _n: image,
    "half": lambda image, n: (image.half(), n),
    "boolean": lambda image, n: (image > 3, n),
    "sparse": lambda image, n: (image.to_sparse(), n),
    "grad": lambda image, n: (image.float().requires_grad_(), n),
    "views": lambda image, n: ([image, image], n),
    "view of views": lambda image, n: ([[image], image], n),
    "targets": lambda image, n: (image, {"a": n > 1, "b": str(n), "c": [np.float32(n), b"x"]}),
    "numbers": lambda image, n: (image, np.uint8(n), torch.tensor(n, dtype=torch.int16)),
    "large": lambda image, _n: (image, 2**64),
    "none": lambda image, _n: (image, None),
    "number first": lambda image, n: (n, image),
    "arrays": lambda _image, n: (np.full((2, 2), n, np.uint8), float(n), str(n)),
}


def _batch_or_error(load: Any, *arguments: Any, **how: Any) -> Any:
    try:
        return next(iter(load(*arguments, **how)))
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("registered", [None, torch.Tensor, int, tuple, list])
@pytest.mark.parametrize("kind", SAMPLES)
def test_batches_are_those_of_default_collate(
    kind: str, registered: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each kind of sample: containers, types, values and errors, and what is registered."""
    if registered is not None:
        made = lambda batch, **_: ("registered", len(batch))  # noqa: E731
        monkeypatch.setitem(default_collate_fn_map, registered, made)
    make = SAMPLES[kind]
    plain = Plain(lambda index: make(IMAGE + index, index), 4)
    plain.thread_safe = True  # type: ignore[attr-defined]
    for dataset in (plain, Own(make)) if kind != "sparse" else (plain,):
        right = _batch_or_error(DataLoader, plain if dataset is plain else dataset, 4)
        for threads in (0, 2):
            ours = _batch_or_error(Loader, dataset, 4, threads=threads)
            assert repr(ours) == repr(right)
            assert type(ours) is type(right)
