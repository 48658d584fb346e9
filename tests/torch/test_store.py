"""`StoreDataset`: any store as a dataset, bit-identical with the folder."""

from __future__ import annotations

import copy
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import store_cases
import torch
from loading import COUNT, PROCESS_WARNINGS, copies, encoded, epoch
from processes import few_files, python
from same import assert_same
from shards import write_shards
from torch.utils.data import ConcatDataset, DataLoader

from fastdecode import DecodeError, stores
from fastdecode.errors import StoreError
from fastdecode.stores import Store
from fastdecode.stores.tar import index_tar
from fastdecode.torch import DecodeOptions, ImageFolder, Loader, StoreDataset
from fastdecode.torch._errors import Failure
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize, ResizeCenterCropNormalize

CLASSES = ("cat", "dog", "eel")
KINDS = {name: "".join(kind.suffixes[:1]) for name, kind in stores.KINDS.items() if name != "list"}
LIBRARIES = {"lmdb": "lmdb", "hdf5": "h5py"}
DAMAGED = 7
SMALL = ResizeCenterCropNormalize(32, 24)


def key(number: int) -> str:
    return f"{CLASSES[number * 3 // COUNT]}/{number:03}.jpg"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create one folder per class, as for torchvision."""
    for number, data in enumerate(encoded()):
        path = tmp_path / "photos" / key(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "photos"


def usable_kinds() -> list[str]:
    return [kind for kind in KINDS if find_spec(LIBRARIES.get(kind, "fastdecode"))]


def stored(place: Path, kind: str, *, damaged: bool = False, targets: bool = True) -> Path:
    """Write the same images into a store."""
    if kind in LIBRARIES:
        pytest.importorskip(LIBRARIES[kind])
    location = place / f"stored{KINDS[kind]}"
    items = [
        (key(number), data, number * 3 // COUNT if targets else None)
        for number, data in enumerate(encoded())
    ]
    if damaged:
        name, data, target = items[DAMAGED]
        items[DAMAGED] = name, data[: len(data) // 3], target
    store_cases.make(location, items, CLASSES if targets else ())
    return location


class Listed(Store):
    """Images in memory, some of which cannot be read."""

    kind = "listed"

    def __init__(self, targets: Callable[[int], Any] = lambda index: None) -> None:
        super().__init__("memory")
        self.targets = targets
        self.asked: list[int] = []

    def __len__(self) -> int:
        return COUNT

    def key(self, index: int) -> str:
        self._check(index)
        return f"{index}.jpg"

    def target(self, index: int) -> Any:
        self._check(index)
        self.asked.append(index)
        return self.targets(index)

    def _open(self) -> Any:
        return self

    def _read(self, opened: Any, index: int) -> Any:
        if index == DAMAGED:
            raise self._damage_error(index, "it is truncated")
        return memoryview(encoded()[index])


@pytest.mark.parametrize("kind", KINDS)
def test_batches_are_those_of_the_folder(tmp_path: Path, folder: Path, kind: str) -> None:
    """Each kind of store gives the order, targets and pixels of `ImageFolder`."""
    dataset = StoreDataset(stored(tmp_path, kind), RandomResizedCropFlipNormalize(24))
    plain = ImageFolder(folder, RandomResizedCropFlipNormalize(24))

    assert_same(epoch(dataset, 4, shuffle=True, seed=3), epoch(plain, 4, shuffle=True, seed=3))
    assert dataset.targets == plain.targets
    if kind in ("recordio", "hdf5"):  # which have no names of classes
        return
    assert dataset.classes == plain.classes
    assert dataset.class_to_idx == plain.class_to_idx
    assert [dataset.key(index) for index in range(COUNT)] == [key(n) for n in range(COUNT)]


@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.filterwarnings(*PROCESS_WARNINGS)
def test_worker_processes_open_the_store_by_themselves(tmp_path: Path, context: str) -> None:
    """DataLoader gives the same with and without workers, for each start method."""
    if context not in torch.multiprocessing.get_all_start_methods():
        pytest.skip(f"there is no {context} here")
    datasets = [StoreDataset(stored(tmp_path, kind), SMALL) for kind in usable_kinds()]
    for dataset in datasets:
        dataset[0]  # the parent has the store open
    every = ConcatDataset(datasets)
    several = DataLoader(every, 6, num_workers=1, multiprocessing_context=context)

    assert_same(list(several), list(DataLoader(every, 6)))


@pytest.mark.filterwarnings(*PROCESS_WARNINGS)
@pytest.mark.parametrize("options", [{"threads": 3}, {"workers": 1}])
@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("indexed", [True, False])
def test_more_shards_than_files_may_be_open(
    tmp_path: Path, indexed: bool, joined: bool, options: dict[str, int]
) -> None:
    """A loader reads more shards than the process may open files, as one dataset or as many."""
    paths = write_shards(tmp_path, [2] * 100)
    for path in paths if indexed else ():
        index_tar(path)
    with few_files(100):
        dataset: Any = StoreDataset(paths, SMALL)
        if not joined:
            dataset = ConcatDataset([StoreDataset(path, SMALL) for path in paths])
        with Loader(dataset, 64, shuffle=True, seed=1, **options) as loader:
            found = [
                (image, label) for batch in loader for image, label in zip(*batch, strict=True)
            ]

    assert sorted(int(label) for _, label in found) == list(range(200))
    wanted = [SMALL(data) for data in encoded()]
    assert_same([image for image, _ in found], [wanted[int(label) % COUNT] for _, label in found])


@pytest.mark.parametrize("kind", ["tar", "lmdb", "hdf5", "recordio", "folder"])
def test_damaged_images_are_named_by_their_key(tmp_path: Path, kind: str) -> None:
    """An error has the store's location, the item's key, or its file's path, and its index.

    So has `errors`.
    """
    location = stored(tmp_path, kind, damaged=True)
    dataset = StoreDataset(location, RandomResizedCropFlipNormalize(24))
    item = DAMAGED if kind == "recordio" else key(DAMAGED)
    name = str(location / key(DAMAGED)) if kind == "folder" else f"{location}, {item}"

    with pytest.raises(DecodeError) as caught:
        dataset[DAMAGED]
    assert str(caught.value).startswith(f"{name} (item {DAMAGED}): ")

    dataset.decode_options = DecodeOptions(on_error="skip")
    with Loader(dataset, COUNT, threads=2) as loader:
        [[images, _]] = copies(loader)
        assert (len(images), loader.skipped) == (COUNT - 1, 1)
    [failure] = dataset.errors
    assert failure[:2] == (DAMAGED, name)


def test_damage_of_the_store_is_named_once() -> None:
    """A store's message is not repeated, and the policies apply to its errors."""
    dataset = StoreDataset(Listed(), RandomResizedCropFlipNormalize(24))

    with pytest.raises(StoreError) as caught:
        dataset[DAMAGED - COUNT]
    assert str(caught.value) == f"memory, {DAMAGED}.jpg (item {DAMAGED}): it is truncated"

    dataset.decode_options = DecodeOptions(on_error="replace")
    assert dataset[DAMAGED].shape == (3, 24, 24)
    assert dataset.errors[-1] == Failure(DAMAGED, f"memory, {DAMAGED}.jpg", "it is truncated")


def test_whether_there_are_targets_is_found_out() -> None:
    """One target among those checked is enough; the caller may say so explicitly.

    They are read when they are first needed, and a copy reads its own.
    """
    none, some = StoreDataset(Listed()), StoreDataset(Listed(lambda index: index or None))

    assert (none.has_targets, some.has_targets) == (False, True)
    assert none[0].size == (64, 48)
    assert some[3][1] == 3
    assert StoreDataset(Listed(), has_targets=True)[0][1] is None
    asked = some.store.asked
    before = len(asked)
    assert some.targets is some.targets
    assert some.targets == [None, *range(1, COUNT)]
    assert len(asked) == before + COUNT
    assert "_targets" not in copy.copy(some).__dict__


_TRUNCATED = """
import os, sys
from fastdecode.errors import StoreError
from fastdecode.torch import Loader, StoreDataset
from fastdecode.torch.transforms import ResizeCenterCropNormalize

class Called(type(ResizeCenterCropNormalize(32, 32))):
    def __call__(self, *data, **options):
        return super().__call__(*data, **options)

class Truncating(StoreDataset):
    def read(self, index):
        sample = super().read(index)
        if index == 5:  # the batch of this item is not decoded yet
            os.truncate(sys.argv[1], 4096)
        return sample

transforms = {
    "core": ResizeCenterCropNormalize(32, 32),
    "overridden": Called(32, 32),
    "written": lambda image: image.resize((32, 32)),
    "none": None,
}
dataset = Truncating(sys.argv[1], transform=transforms[sys.argv[2]])
collate = None if sys.argv[2] == "core" else list
batches = 0
try:
    for _ in Loader(dataset, 8, threads=2, collate_fn=collate):
        batches += 1
except StoreError as error:
    print(batches, error)
"""


@pytest.mark.parametrize("transform", ["core", "overridden", "written", "none"])
@pytest.mark.parametrize("kind", ["tar", "recordio"])
def test_store_truncated_within_an_epoch_is_an_error(
    tmp_path: Path, kind: str, transform: str
) -> None:
    """A local file that is cut while its images are decoded is an error, and no signal."""
    place = stored(tmp_path, kind)

    done = python("-W", "ignore", "-c", _TRUNCATED, place, transform)

    assert (done.returncode, done.stderr) == (0, "")
    assert "cut to 4096 bytes" in done.stdout
    assert str(place) in done.stdout
