"""The user's own code in a `Loader`: one thread at a time, and the same draws in every run.

Also a dataset of one's own, whose fused pipeline gets images of `fastdecode.open`.
"""

from __future__ import annotations

import functools
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
import torch
from loading import COUNT, EXACT, PROCESS_WARNINGS, Images, Plain, Sources, copies, encoded, same
from loading import SeededLoader as Loader
from PIL import ImageOps
from same import assert_same
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset, get_worker_info
from torch_reference import PHOTOS

import fastdecode
from fastdecode.stores.base import Store
from fastdecode.torch import DecodeDataset, DecodeMixin, DecodeOptions, ImageList, StoreDataset
from fastdecode.torch.transforms import (
    Compose,
    RandomResizedCrop,
    Resize,
    ResizeCenterCropNormalize,
    ToTensor,
)

v1 = pytest.importorskip("torchvision.transforms")
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

    thread_safe = False

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


@pytest.mark.parametrize("core", [True, False])
@pytest.mark.parametrize("reader", READERS)
def test_code_that_shares_a_cursor_gives_each_item_its_own(
    reader: str, core: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads give what one thread gives, wherever the user's code reads with a common cursor."""
    if not core:
        monkeypatch.setenv("FASTDECODE_DISABLE", "native")
    with Loader(READERS[reader](Cursor()), 4, threads=0) as loader:
        expected = copies(loader)
    with Loader(READERS[reader](Cursor()), 4, threads=6) as loader:
        assert_same(copies(loader), expected)


def _read(self: Any, index: int) -> Any:
    return ImageList.read(self, index)


# ---- where it is called ----


def _read(self: Any, index: int) -> Any:
    return ImageList.read(self, index)


def _item(self: Any, index: int) -> Any:
    return ImageList.__getitem__(self, index)


def _says_so(one: Any) -> Any:
    one.thread_safe = True
    return one


class Inverts:
    """A step of one's own."""

    def __call__(self, image: Any) -> Any:
        return ImageOps.invert(image)


class OwnCrop(RandomResizedCrop):
    """A transform of bytes of one's own."""

    def __call__(self, data: Any, **options: Any) -> Any:
        return super().__call__(data, **options) + 0


class OwnImages(Dataset[Any]):
    """What people write: it opens an image, and calls its transform."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        return self.transform(fastdecode.open(encoded()[index]).convert("RGB")), index


READS, ITEMS = ({"read": _read}, {"__getitem__": _item})
SAFE: dict[str, Any] = {"thread_safe": True}
Mine: Any = type("Mine", (ImageList,), READS)
Safe: Any = type("Safe", (Mine,), {**READS, **SAFE})
SafeImages: Any = type("SafeImages", (OwnImages,), SAFE)
SafeStep: Any = type("SafeStep", (Inverts,), SAFE)


def _photos(transform: Any = None, kind: Any = ImageList, **options: Any) -> Any:
    return kind(PHOTOS[:2], [0, 0], transform, **options)


def _steps(*steps: Any) -> Any:
    return _photos(Compose([Resize((16, 16)), *steps, ToTensor()]))


PLACES: dict[str, tuple[Callable[[], Any], tuple[str, ...]]] = {
    "whole images": (_photos, ()),
    "a crop": (lambda: _photos(CROP), ()),
    "known steps": (lambda: _steps(v1.RandomHorizontalFlip()), ()),
    "a step that says so": (lambda: _steps(SafeStep(), v1.RandomHorizontalFlip()), ()),
    "a crop that says so": (lambda: _photos(type("Crop", (OwnCrop,), {"isolated": True})(9)), ()),
    "a class that says so": (lambda: _photos(kind=Safe), ()),
    "a class below that": (lambda: _photos(kind=type("Below", (Safe,), {})), ()),
    "an object that says so": (lambda: _says_so(_photos(Inverts(), Mine)), ()),
    "its own item, and says so": (
        lambda: _photos(CROP, type("Item", (ImageList,), {**ITEMS, **SAFE})),
        (),
    ),
    "parts": (lambda: ConcatDataset([_photos(CROP), Subset(_photos(CROP), [1])]), ()),
    "no class of ours, but says so": (lambda: SafeImages(CROP), ()),
    "a subset of that": (lambda: Subset(SafeImages(CROP), range(9)), ()),
    "several of that": (lambda: ConcatDataset([SafeImages(CROP), SafeImages(CROP)]), ()),
    "a function": (
        lambda: _photos(ImageOps.invert),
        ("a step of its transform", "True in ImageList"),
    ),
    "a step": (lambda: _steps(Inverts()), ("a step of its transform",)),
    "a step behind one that says so": (
        lambda: _steps(SafeStep(), v1.RandomApply([ImageOps.mirror], p=1.0)),
        ("a step of its transform",),
    ),
    "a crop of one's own": (lambda: _photos(OwnCrop(9)), ("a step of its transform",)),
    "target_transform": (lambda: _photos(CROP, target_transform=str), ("target_transform",)),
    "map_target": (
        lambda: _photos(CROP, type("Maps", (ImageList,), {"map_target": lambda *_: 0})),
        ("Maps.map_target", "code of your own"),
    ),
    "its own read": (lambda: _photos(CROP, Mine), ("Mine.read", "thread_safe = True")),
    "its own read below one that says so": (
        lambda: _photos(CROP, type("Below", (Safe,), READS)),
        ("Below.read",),
    ),
    "its own item": (
        lambda: _photos(CROP, type("Item", (ImageList,), ITEMS)),
        ("Item.__getitem__", "thread_safe = True in Item"),
    ),
    "no class of ours": (lambda: OwnImages(CROP), ("OwnImages", "thread_safe")),
    "one of two": (lambda: ConcatDataset([SafeImages(CROP), OwnImages(CROP)]), ("ConcatDataset",)),
}
if find_spec("kornia_rs"):
    PLACES["a decoder that keeps the GIL"] = (lambda: Images(backend="kornia_rs"), ("GIL",))


def test_where_the_users_code_is_called() -> None:
    """In threads if all of it says that they may; else in processes, and `repr` says why."""
    for name, (make, why) in PLACES.items():
        for asked in ({}, {"num_workers": 2}):
            loader = Loader(make(), 2, **asked)
            count = asked.get("num_workers", max(loader.threads, loader.workers))
            assert (loader.threads, loader.workers) == ((0, count) if why else (count, 0)), name
            told = repr(loader).partition("\n")[2]
            assert [word for word in (*why, "threads=") if why and word not in told] == [], name
            assert bool(told) == bool(why), name
        for number in ({"threads": 2}, {"workers": 2}, {"num_workers": 0}):
            loader = Loader(make(), 2, **number)
            wanted = number.get("threads", 0), number.get("workers", 0)
            assert (loader.threads, loader.workers) == wanted, name
            assert "\n" not in repr(loader) or (why and loader.threads == 0), name


# ---- draws ----


def drawn(_: Any = None) -> int:
    return random.randrange(10**6)


class Helper:
    """An object of which nothing shows that it draws."""

    def __call__(self, target: int) -> float:
        return target + float(torch.distributions.Normal(0.0, 1.0).sample())


class Seeds(Images):
    """Its `read` decides the crop."""

    thread_safe = False

    def read(self, index: int) -> tuple[Any, Any]:
        torch.manual_seed(7)
        return encoded()[0], index


class DrawsInRead(Images):
    thread_safe = False

    def read(self, index: int) -> tuple[Any, Any]:
        data, _ = super().read(index)
        return data, (self.pick(), index)

    def pick(self) -> float:
        return random.random() + float(torch.rand(()))


class DrawsInMapTarget(Images):
    thread_safe = False

    def map_target(self, target: Any, geometry: Any) -> Any:
        return geometry.size[0] + int(np.random.randint(10**6))  # noqa: NPY002


class DrawsTwice(DrawsInRead):
    def map_target(self, target: Any, geometry: Any) -> Any:
        return *target, random.random(), geometry.size[0]


def drawing_datasets() -> Iterator[Any]:
    for function in (drawn, Helper()):
        dataset = Images(EXACT, target_transform=function)
        dataset.thread_safe = False
        yield dataset
    yield DrawsInRead(EXACT)
    yield DrawsInMapTarget(EXACT)
    yield DrawsTwice(EXACT, target_transform=lambda target: (*target, drawn()))


def flat(batches: Any) -> list[Any]:
    return [value for _, targets in batches for value in torch.utils._pytree.tree_leaves(targets)]


@pytest.mark.parametrize("at", range(5))
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

    assert_same(runs[1:], runs[:1] * 4)
    assert not same(runs[0][: len(runs[0]) // 2], runs[0][len(runs[0]) // 2 :])


@pytest.mark.parametrize("how", [{"threads": 0}, {"workers": 2}], ids=str)
def test_a_read_that_seeds_torch_decides_the_crop(how: dict[str, int]) -> None:
    """The core begins its draws where the transform would: after `read`, from torch's generator."""
    with Loader(Seeds(EXACT), COUNT, **how) as loader:
        ((images, _),) = loader
    assert len({image.numpy().tobytes() for image in images}) == 1


# ---- code that waits, and code in the place of ours ----


class Mosaic(DecodeDataset):
    """Its `read` asks another dataset in other threads, or a loader of that."""

    def __init__(self, *, loads: bool) -> None:
        super().__init__(CROP)
        self.parts, self.loads = Records(Cursor(), transform=CROP), loads

    def __len__(self) -> int:
        return 4

    def read(self, index: int) -> tuple[Any, Any]:
        if self.loads:
            with Loader(self.parts, COUNT, threads=2) as loader:
                return encoded()[index], int(next(iter(loader))[1].sum())
        with ThreadPoolExecutor(2) as pool:
            made = list(pool.map(self.parts.__getitem__, [index, index + 1]))
        return encoded()[index], sum(target for _, target in made)


@pytest.mark.parametrize("loads", [False, True])
def test_a_read_may_wait_for_other_threads(loads: bool) -> None:
    """Outside of a loader and in the threads of one, which hold no lock that others need."""
    dataset = Mosaic(loads=loads)
    expected = [COUNT * (COUNT - 1) // 2] * 4 if loads else [1, 3, 5, 7]
    assert [dataset[index][1] for index in range(4)] == expected
    with Loader(dataset, 4, threads=2) as loader:
        assert next(iter(loader))[1].tolist() == expected


def test_a_method_that_somebody_has_replaced_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class is known as long as its code is its own; also between epochs."""
    transform = Compose([Resize((8, 8)), v1.RandomInvert(0.0)])
    dataset = ImageList(PHOTOS[:2], [0] * 2, transform=transform)
    with Loader(dataset, 1, threads=0, collate_fn=list) as loader:
        assert dataset.isolated
        before = [image.tobytes() for batch in loader for image, _ in batch]
        monkeypatch.setattr(v1.RandomInvert, "forward", lambda _, image: ImageOps.mirror(image))
        after = [image for batch in loader for image, _ in batch]
        assert not dataset.isolated
        assert [ImageOps.mirror(image).tobytes() for image in after] == before


# ---- whole batches ----


def _pairs(indices: list[int]) -> Any:
    return [(index * 2, len(indices)) for index in indices]


class Batched(Plain):
    """Gives whole batches, and lists what it was asked for."""

    def __init__(self, give: Callable[[list[int]], Any] = _pairs) -> None:
        super().__init__(lambda index: index)
        self.give = give
        self.asked: list[list[int]] = []

    def __getitems__(self, indices: list[int]) -> Any:
        self.asked.append(list(indices))
        return self.give(indices)


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
@pytest.mark.parametrize(
    "kind", [Batched, lambda: Batched(lambda some: _pairs(some)[-4:]), OursInBatches]
)
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
    with Loader(Batched(torch.tensor), 10, threads=2, collate_fn=lambda batch: batch + 1) as loader:
        assert torch.cat(list(loader)).tolist() == list(range(1, COUNT + 1))
    spread = functools.partial(
        Loader, Batched(torch.tensor), 10, collate_fn=lambda batch: batch.expand(1, 2, 2, -1)
    )
    with spread(channels_last=True, threads=2) as loader:
        assert {batch.stride() for batch in loader} == {(0, 0, 0, 1)}  # as it has laid them out
    with Loader(OwnItem(), 10, threads=2) as loader:
        assert torch.cat([first for first, _ in loader]).tolist() == [-n for n in range(COUNT)]


def test_draws_of_whole_batches_follow_from_seed_and_epoch() -> None:
    """Processes and the calling thread give the same batches; epochs differ."""
    runs = []
    for how in ({"num_workers": 0}, {"workers": 1}, {"workers": 2}):
        with Loader(
            Batched(lambda some: [index + random.random() for index in some]),
            5,
            True,
            seed=2,
            **how,
        ) as loader:
            runs.append([list(loader), list(loader)])

    assert_same(runs[1:], runs[:1] * 2)
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


# ---- a dataset of one's own, and `fuse` ----

BOX = v1.RandomResizedCrop((24, 24), (0.08, 1.0), (0.75, 1.3))
PIPELINE = v1.Compose([BOX, v1.RandomHorizontalFlip(0.5), v1.ToTensor()])


class OfBatches(OwnImages):
    """It has a loader of its own, which nobody asked for processes."""

    def __getitem__(self, index: int) -> Any:
        return next(iter(Loader(OwnImages(self.transform), 2, seed=index)))[0]


def test_a_dataset_with_a_loader_of_its_own_runs_in_worker_processes() -> None:
    """These cannot start others, so that loader makes its batches there."""
    dataset = Subset(OfBatches(PIPELINE), range(4))
    with Loader(dataset, 4, num_workers=1) as loader:
        [made] = loader
    assert_same(made, torch.stack([dataset[index] for index in range(4)]))


@pytest.mark.parametrize("on_disk", [False, True])
def test_rows_of_hugging_face_are_sources(on_disk: bool, tmp_path: Any) -> None:
    """A row of ``Image(decode=False)``, with bytes or a path, is taken as these are."""
    rows = []
    for number, data in enumerate(encoded()):
        path = tmp_path / f"{number}.jpg"
        path.write_bytes(data)
        rows.append({"bytes": None if on_disk else data, "path": str(path)})
    loaders = [Loader(Sources(*sources, transform=PIPELINE), 5) for sources in (rows, encoded())]

    assert_same(*([images for images, _ in loader] for loader in loaders))
    mixin = type("Rows", (DecodeMixin,), {"decode_options": DecodeOptions(reduce=2)})()
    assert_same(mixin.decode(rows[0]), mixin.decode(encoded()[0]))
    assert mixin.transformed(rows[0]) == mixin.transformed(encoded()[0])
    with pytest.raises(TypeError, match="dict"):
        Sources({"data": b""})[0]
