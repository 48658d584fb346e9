"""The user's own code in a `Loader`: one thread at a time, and the same draws in every run."""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from loading import (
    COUNT,
    EXACT,
    PROCESS_WARNINGS,
    Images,
    Plain,
    copies,
    encoded,
    same,
)
from loading import SeededLoader as Loader
from torch.utils.data import ConcatDataset, DataLoader, get_worker_info
from torch_reference import PHOTOS

from fastdecode.stores.base import Store
from fastdecode.torch import DecodeDataset, ImageList, StoreDataset
from fastdecode.torch._loader import samples
from fastdecode.torch._user_code import is_thread_safe, may_draw
from fastdecode.torch.transforms import ResizeCenterCropNormalize

pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS)
CROP = ResizeCenterCropNormalize(28, 24)


class Cursor:
    """What a file is to all that share it: it reads from where anybody has put it last."""

    def __init__(self) -> None:
        self.at = 0

    def read(self, index: int) -> bytes:
        self.at = index
        time.sleep(0.0005)  # another thread may run
        return encoded()[self.at]


class Records(DecodeDataset):
    """Images that are read with a cursor."""

    def __init__(self, cursor: Cursor, indices: Any = range(COUNT), **options: Any) -> None:
        super().__init__(**options)
        self.cursor, self.indices = cursor, indices

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, index: int) -> tuple[Any, Any]:
        return self.cursor.read(self.indices[index]), self.indices[index]


class Rows(Store):
    """A user's store, which reads with a cursor."""

    def __init__(self, cursor: Cursor) -> None:
        super().__init__("rows")
        self.cursor = cursor

    def __len__(self) -> int:
        return COUNT

    def key(self, index: int) -> str:
        return str(index)

    def target(self, index: int) -> int:
        return index

    def _open(self) -> Cursor:
        return self.cursor

    def _read(self, opened: Cursor, index: int) -> bytes:
        return opened.read(index)


def in_parts(cursor: Cursor) -> Any:
    halves = range(12), range(12, COUNT)
    return ConcatDataset([Records(cursor, half, transform=CROP) for half in halves])


def own_transform(image: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(image.resize((8, 6))))


def plain(cursor: Cursor) -> Any:
    return Plain(lambda index: (CROP(cursor.read(index)), index))


class ImageTargets(Images):
    """The target is what a function reads."""

    def __init__(self, cursor: Cursor) -> None:
        super().__init__(CROP, target_transform=lambda index: len(cursor.read(index)))


READERS: dict[str, Callable[[Cursor], Any]] = {
    "read": lambda cursor: Records(cursor, transform=CROP),
    "read for a transform of one's own": lambda cursor: Records(cursor, transform=own_transform),
    "two datasets with one cursor": in_parts,
    "a store": lambda cursor: StoreDataset(Rows(cursor), CROP),
    "target_transform": ImageTargets,
    "a foreign dataset": plain,
}


@pytest.mark.parametrize("how", [{}, {"read_threads": 3}], ids=str)
@pytest.mark.parametrize("core", [True, False])
@pytest.mark.parametrize("reader", READERS)
def test_code_that_shares_a_cursor_gives_each_item_its_own(
    reader: str, core: bool, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads give what one thread gives, wherever the user's code reads with a common cursor."""
    if not core:
        monkeypatch.setenv("FASTDECODE_DISABLE", "native")
    if reader == "a foreign dataset" and how:
        pytest.skip("only a DecodeDataset can be read ahead")
    with Loader(READERS[reader](Cursor()), 4, threads=0) as loader:
        expected = copies(loader)
    with Loader(READERS[reader](Cursor()), 4, threads=6, **how) as loader:
        assert same(copies(loader), expected)


class Declared(Images):
    thread_safe = True

    def read(self, index: int) -> tuple[Any, Any]:
        return super().read(index)


class Below(Declared):
    pass


class OwnReadBelow(Declared):
    def read(self, index: int) -> tuple[Any, Any]:
        return super().read(index)


class OnlyTargets(ImageList):
    def map_target(self, target: Any, geometry: Any) -> Any:
        return target


def test_which_methods_may_run_in_several_threads() -> None:
    """Ours may, and those of a class that says so; a class below with its own says it anew."""
    assert is_thread_safe(ImageList([]), "read", "map_target")
    assert not is_thread_safe(Images(), "read")
    assert is_thread_safe(Declared(), "read")
    assert is_thread_safe(Below(), "read")
    assert not is_thread_safe(OwnReadBelow(), "read")
    assert is_thread_safe(OnlyTargets([]), "read")
    assert not is_thread_safe(OnlyTargets([]), "map_target")
    one = Images()
    one.thread_safe = True
    assert is_thread_safe(one, "read")
    OwnReadBelow.thread_safe = True
    assert is_thread_safe(OwnReadBelow(), "read")
    one = ImageList([])
    one.read = lambda _: (b"", 0)  # type: ignore[method-assign]
    assert not is_thread_safe(one, "read")


# ---- draws ----

PRIVATE = np.random.default_rng(0)
WORDS = ["one", "two", "three", "four", "five"]


def drawn(_: Any = None) -> int:
    return random.randrange(10**6)


def helper(_: Any) -> int:
    return drawn() + 1


class Caller:
    def __init__(self, made: Any) -> None:
        self.made = made

    def __call__(self, target: Any) -> Any:
        return self.made(target)


class Drawer(torch.nn.Module):
    def forward(self, target: Any) -> Any:
        return drawn(target)


class Counting:
    scale = 3

    def __call__(self, target: int) -> int:
        return self.scaled(target) + len(WORDS)

    def scaled(self, target: int) -> int:
        return target * self.scale


def make_closure() -> Callable[[Any], Any]:
    choose = random.choice

    return lambda _: choose(range(10**6))


def called(target: Any, made: Any = None, *more: Any) -> Any:
    return (target, made, more) if made is None else made(target)


DRAWS: dict[str, Any] = {
    "random": drawn,
    "by way of a helper": helper,
    "a method of random": random.random,
    "numpy": lambda _: int(np.random.randint(10**6)),  # noqa: NPY002
    "a generator of numpy": lambda _: int(PRIVATE.integers(10**6)),
    "torch": lambda _: torch.rand(()),
    "partial": functools.partial(random.choice, WORDS),
    "what a partial is given": functools.partial(called, 1, drawn),
    "what a partial is given by name": functools.partial(called, made=drawn),
    "a generator that a partial is given": functools.partial(called, made=random.Random(0)),
    "an object": Caller(drawn),
    "an object with a generator": Caller(random.Random(0)),
    "a closure": make_closure(),
    "nested": lambda _: [drawn() for _ in range(2)],
    "a module": torch.nn.Sequential(torch.nn.Identity(), Drawer()),
}
DRAWS_NOTHING: dict[str, Any] = {
    "a type": int,
    "a method of a dict": {3: 4}.get,
    "a lambda": lambda target: target % 3,
    "an item of a list": lambda target: WORDS[target % 5],
    "an object": Counting(),
    "torch": lambda target: torch.tensor(target).float(),
    "numpy": lambda target: np.eye(30)[target],
    "partial": functools.partial(max, 3),
    "partial with names": functools.partial(called, made=Counting()),
    "none": None,
}


@pytest.mark.parametrize("name", DRAWS)
def test_code_that_draws_is_recognised(name: str) -> None:
    """A function that reaches a random generator is found out, by whatever way it does."""
    assert may_draw(DRAWS[name])


@pytest.mark.parametrize("name", DRAWS_NOTHING)
def test_code_that_draws_nothing_stays_in_threads(name: str) -> None:
    """Common functions of targets do not make a Loader start processes."""
    assert not may_draw(DRAWS_NOTHING[name])
    with Loader(Images(EXACT, target_transform=DRAWS_NOTHING[name])) as loader:
        assert loader.workers == 0


class DrawsInRead(Images):
    def read(self, index: int) -> tuple[Any, Any]:
        data, _ = super().read(index)
        return data, (self.pick(), index)

    def pick(self) -> float:
        return random.random() + float(torch.rand(()))


class DrawsInMapTarget(Images):
    def map_target(self, target: Any, geometry: Any) -> Any:
        return geometry.size[0] + int(np.random.randint(10**6))  # noqa: NPY002


class DrawsTwice(DrawsInRead):
    def map_target(self, target: Any, geometry: Any) -> Any:
        return *target, random.random(), geometry.size[0]


def drawing_datasets() -> Iterator[Any]:
    yield Images(EXACT, target_transform=drawn)
    yield DrawsInRead(EXACT)
    yield DrawsInMapTarget(EXACT)
    yield DrawsTwice(EXACT, target_transform=lambda target: (*target, drawn()))


def flat(batches: Any) -> list[Any]:
    return [value for _, targets in batches for value in torch.utils._pytree.tree_leaves(targets)]


@pytest.mark.parametrize("at", range(4))
def test_draws_of_targets_are_those_of_the_seed(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs with one seed are equal, with any number of processes, or none, with or without core."""
    runs = []
    for how in ({"num_workers": 1}, {"num_workers": 2}, {"num_workers": 2}, {"num_workers": 0}):
        random.seed(len(runs))
        with Loader(list(drawing_datasets())[at], 4, seed=3, **how) as loader:
            assert loader.workers == how["num_workers"]
            runs.append(flat(loader) + flat(loader))
    monkeypatch.setenv("FASTDECODE_DISABLE", "native")
    with Loader(list(drawing_datasets())[at], 4, seed=3, num_workers=1) as loader:
        runs.append(flat(loader) + flat(loader))

    assert all(same(run, runs[0]) for run in runs)
    assert not same(runs[0][: len(runs[0]) // 2], runs[0][len(runs[0]) // 2 :])


class Augmenter:
    """Owns its generators, as albumentations' Compose does."""

    def __init__(self) -> None:
        self.set_random_seed(0)

    def set_random_seed(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def __call__(self, image: Any) -> Any:
        return {"image": np.asarray(image)[:4, :4] + self.random.integers(1000)}


AUGMENTER = Augmenter()


def augment(image: Any) -> Any:
    return AUGMENTER(image=image)["image"]


class Augmented(Plain):
    """A foreign dataset with an augmenter of its own."""

    def __init__(self) -> None:
        super().__init__(lambda index: index)
        self.augmenters = [Augmenter()]

    def __getitem__(self, index: int) -> Any:
        return self.augmenters[0](np.zeros((4, 4), np.int64))["image"], index


@pytest.mark.parametrize("kind", ["ours", "foreign"])
def test_an_augmenter_with_generators_of_its_own_is_seeded_for_each_sample(kind: str) -> None:
    """Its draws follow from seed, epoch and item, in processes, one thread or several."""
    dataset: Any = Images(augment, output="array") if kind == "ours" else Augmented()
    runs = []
    for how in ({"workers": 2}, {"threads": 0}, {"threads": 3}):
        with Loader(dataset, 4, seed=5, **how) as loader:
            runs.append([copies(loader), copies(loader)])
    first, second = ([image for images, _ in epoch for image in images] for epoch in runs[0])

    assert all(same(run, runs[0]) for run in runs)
    assert len({int(image.sum()) for image in first + second}) > COUNT


@pytest.mark.parametrize(("transform", "searches"), [(CROP, 0), (own_transform, 1)])
def test_generators_are_sought_once_and_only_for_samples_of_python(
    transform: Any, searches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An epoch whose samples the core makes searches no code, which takes milliseconds."""
    found: list[Any] = []
    monkeypatch.setattr(samples, "seedable", lambda *code: found.append(code) or [])
    dataset = ImageList(PHOTOS, [0] * len(PHOTOS), transform=transform)
    with Loader(dataset, 2, threads=1) as loader:
        assert len(copies(loader)) > 1
    assert len(found) == searches


# ---- whole batches ----


class Batched(Plain):
    """Gives whole batches, and lists what it was asked for."""

    def __init__(self) -> None:
        super().__init__(lambda index: index)
        self.asked: list[list[int]] = []

    def __getitems__(self, indices: list[int]) -> Any:
        self.asked.append(list(indices))
        return [(index * 2, len(indices)) for index in indices]


class Shorter(Batched):
    def __getitems__(self, indices: list[int]) -> Any:
        return super().__getitems__(indices)[-4:]


class Stacked(Batched):
    def __getitems__(self, indices: list[int]) -> Any:
        return torch.tensor(indices)


class Drawing(Batched):
    def __getitems__(self, indices: list[int]) -> Any:
        return [index + random.random() for index in indices]


class OwnItem(Batched):
    """A class whose ``__getitem__`` the inherited ``__getitems__`` would pass by."""

    def __getitem__(self, index: int) -> Any:
        return -index, 0


class OursInBatches(Images):
    def __getitems__(self, indices: Any) -> Any:
        return [(torch.tensor(index), len(indices)) for index in indices]


BATCHED_WAYS: dict[str, dict[str, Any]] = {
    "caller": {"num_workers": 0},
    "threads": {"threads": 3},
    "processes": {"workers": 2},
    "auto": {},
}


@pytest.mark.parametrize("way", BATCHED_WAYS)
@pytest.mark.parametrize("kind", [Batched, Shorter, OursInBatches])
@pytest.mark.parametrize("subsets", [0, 1, 2])
def test_whole_batches_are_those_of_torchs_loader(way: str, kind: Any, subsets: int) -> None:
    """`__getitems__` is called with the indices of a batch, also through Subset, as torch does."""

    def made() -> Any:
        dataset = kind()
        for _ in range(subsets):
            dataset = torch.utils.data.Subset(dataset, range(len(dataset) - 1, 0, -1))
        return dataset

    with Loader(made(), 5, **BATCHED_WAYS[way]) as loader:
        ours = list(loader)
    theirs = list(DataLoader(made(), 5))

    assert repr(ours) == repr(theirs)


def test_collate_fn_gets_whole_batches_and_an_own_getitem_is_not_passed_by() -> None:
    """`collate_fn` gets what `__getitems__` gave; a `__getitem__` of a class below comes first."""
    dataset = Batched()
    with Loader(dataset, 10, threads=2, collate_fn=tuple) as loader:
        assert [len(batch) for batch in loader] == [10, 10, 3]
    assert [len(asked) for asked in sorted(dataset.asked)] == [10, 10, 3]
    with Loader(Stacked(), 10, threads=2, collate_fn=lambda batch: batch + 1) as loader:
        assert torch.cat(list(loader)).tolist() == list(range(1, COUNT + 1))
    spread = functools.partial(
        Loader, Stacked(), 10, collate_fn=lambda batch: batch.expand(1, 2, 2, -1)
    )
    with spread(channels_last=True, threads=2) as loader:
        assert {batch.stride() for batch in loader} == {(0, 0, 0, 1)}  # as it has laid them out
    with Loader(OwnItem(), 10, threads=2) as loader:
        assert torch.cat([first for first, _ in loader]).tolist() == [-n for n in range(COUNT)]


def test_draws_of_whole_batches_follow_from_seed_and_epoch() -> None:
    """Processes and the calling thread give the same batches; epochs differ."""
    runs = []
    for how in ({"num_workers": 0}, {"workers": 1}, {"workers": 2}):
        with Loader(Drawing(), 5, True, seed=2, **how) as loader:
            runs.append([list(loader), list(loader)])

    assert all(same(run, runs[0]) for run in runs)
    assert len({float(value) for epoch in runs[0] for batch in epoch for value in batch}) > COUNT


# ---- worker processes ----


class Noise(Plain):
    """Draws from a generator that each worker process made from the seed that torch gave it."""

    def __init__(self) -> None:
        super().__init__(lambda index: index, 8)
        self.rng: Any = None

    def __getitem__(self, index: int) -> Any:
        return self.number()

    def number(self) -> int:
        info: Any = get_worker_info()
        if self.rng is None:
            self.rng = np.random.default_rng(info.seed)
        return int(self.rng.integers(10**9))


@pytest.mark.parametrize("count", [1, 2])
def test_seeds_of_workers_follow_from_seed_epoch_and_number(count: int) -> None:
    """A generator made from `info.seed` repeats for the same seed and epoch, and only then."""

    def drawn_by(**how: Any) -> list[list[int]]:
        torch.manual_seed(how.get("seed", 0))
        with Loader(Noise(), 4, workers=count, **how) as loader:
            return [[int(one) for batch in loader for one in batch] for _ in range(2)]

    runs = [drawn_by(seed=seed, rank=rank, world_size=2) for seed in (0, 1) for rank in (0, 1)]
    assert len({one for run in runs for epoch in run for one in epoch}) == 4 * 2 * 4
    assert drawn_by(seed=0) == drawn_by(seed=0)
    assert drawn_by(seed=0)[0] != drawn_by(seed=0)[1]
