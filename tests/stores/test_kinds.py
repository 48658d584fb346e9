"""Tests of all kinds of stores: round trips, sharing, damage, and writers."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from store_cases import (
    CLASSES,
    LABELS,
    NUMBERS,
    TARGETS,
    all_items,
    check_and_close,
    check_random_damage,
    images,
    truncated,
    write,
    write_together,
)

from fastdecode.stores import KINDS, StoreError, create_store, open_store

_WRITTEN = [name for name, kind in KINDS.items() if kind.writer]
_CHECKED_WHEN_OPENED = ["tar", "lmdb", "hdf5"]
_ONE_FILE = [*_CHECKED_WHEN_OPENED, "recordio"]
_LIBRARIES = {"lmdb": "lmdb", "hdf5": "h5py"}
_MAGIC = (0xCED7230A).to_bytes(4, "little")


class Kind:
    """A kind of store, and paths for such stores."""

    def __init__(self, name: str, folder: Path) -> None:
        pytest.importorskip(_LIBRARIES.get(name, "numpy"))
        self.name = name
        self.folder = folder
        self.suffix = KINDS[name].suffixes[0] if KINDS[name].suffixes else ""
        self.targets: tuple[Any, ...] = {"recordio": NUMBERS, "hdf5": LABELS}.get(name, TARGETS)

    def at(self, stem: str) -> Path:
        """Return the path of a store."""
        return self.folder / f"{stem}{self.suffix}"


@pytest.fixture(params=["folder", *_ONE_FILE])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """Run the test with each kind that `store_cases.write` can make."""
    return Kind(request.param, tmp_path)


@pytest.fixture(params=_WRITTEN)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    """Run the test with each kind that has a writer."""
    return Kind(request.param, tmp_path)


@pytest.fixture
def place(kind: Kind) -> Iterator[Path]:
    """Write a store of the kind and return its path."""
    where = kind.at("first")
    write(where, items(), kind.targets)
    return where


def items() -> list[tuple[str, bytes]]:
    """Return real files, awkward lengths, and bytes that look like parts of a container."""
    odd = [b"\xff\xd8" + _MAGIC * 3 + b"\xff\xd9", b"\xff\xd8" + bytes(1024), b"\xff\xd8ustar\0"]
    return images() + [(f"owl/odd-{at}.jpg", data) for at, data in enumerate(odd)]


def expected(kind: Kind) -> list[tuple[str, bytes, Any]]:
    """Return what a store of `items` must hold."""
    targets = kind.targets
    return [
        (str(at) if kind.name == "recordio" else key, data, targets[at % len(targets)])
        for at, (key, data) in enumerate(items())
    ]


def files(place: Path) -> dict[str, bytes]:
    """Read all files of a store, including its index files."""
    found = sorted(place.parent.glob(f"{place.stem}*"))
    found += [each for path in found for each in sorted(path.rglob("*"))]
    return {
        str(path.relative_to(place.parent)).removeprefix(place.stem): path.read_bytes()
        for path in found
        if path.is_file()
    }


def test_a_store_gives_back_what_was_written(place: Path, kind: Kind) -> None:
    """Keys, targets and bytes are read back, and the store leaves no other files."""
    with open_store(place) as store:
        assert all_items(store) == expected(kind)
        for at in range(len(store)):
            assert type(store.target(at)) is type(kind.targets[at % len(kind.targets)])
        assert list(store.classes) == []
        assert store.kind == kind.name
        assert memoryview(store.read(0)).readonly
    beside = {"tar": ["first.tar.fdx"], "recordio": ["first.idx"]}
    there = sorted(path.name for path in place.parent.iterdir())
    assert there == sorted([place.name, *beside.get(kind.name, [])])


@pytest.mark.parametrize("other", _WRITTEN)
def test_any_kind_can_be_copied_to_any_kind(written: Kind, other: str) -> None:
    """Copying a store into any kind keeps keys, bytes, targets, classes and order."""
    first, into = written.at("first"), Kind(other, written.folder)
    write(first, items(), [0, 1])
    second = into.at("second")
    with open_store(first) as source, create_store(second, other, classes=source.classes) as writer:
        for item in all_items(source):
            writer.add(*item)

    with open_store(second) as store:
        assert all_items(store) == [(*item, at % 2) for at, item in enumerate(items())]
        assert list(store.classes) == CLASSES
        assert store.kind == other


@pytest.mark.parametrize("count", [0, 1])
def test_store_may_be_empty_or_have_one_item(kind: Kind, count: int) -> None:
    """A store may be empty or have a single item."""
    write(kind.at("few"), items()[:count], [7])

    with open_store(kind.at("few")) as store:
        assert [(data, target) for _, data, target in all_items(store)] == [
            (data, 7) for _, data in items()[:count]
        ]


@pytest.mark.parametrize("kind", _WRITTEN, indirect=True)
def test_the_same_items_make_the_same_bytes(place: Path, kind: Kind) -> None:
    """Equal items give equal files: no timestamps, paths or uninitialised memory."""
    write(kind.at("other"), items(), kind.targets)

    assert files(kind.at("other")) == files(place)


def test_store_works_in_other_processes_and_threads(place: Path, kind: Kind) -> None:
    """A store can be pickled, forked, spawned and shared; a child may close its copy."""
    wanted = expected(kind)
    with open_store(place) as store:
        before = pickle.loads(pickle.dumps(store))
        assert all_items(store) == wanted
        after = pickle.loads(pickle.dumps(store))
        assert all_items(before) == all_items(after) == wanted
        for method in ("fork", "spawn"):
            if method in multiprocessing.get_all_start_methods():
                context = multiprocessing.get_context(method)
                child = context.Process(target=check_and_close, args=(store, wanted))
                child.start()
                child.join()
                assert child.exitcode == 0

        def read(seed: int) -> list[int]:
            order = random.Random(seed).choices(range(len(wanted)), k=200)
            return [at for at in order if bytes(store.read(at)) != wanted[at][1]]

        with ThreadPoolExecutor(4) as threads:
            assert list(threads.map(read, range(4))) == [[]] * 4
        before.close()
        after.close()


def test_store_at_a_uri_is_the_same(place: Path, kind: Kind) -> None:
    """A store at a URI equals the local one, pickled as well; LMDB needs a local disk."""
    memory = pytest.importorskip("fsspec").filesystem("memory")
    uri = f"memory://kinds/{place.name}"
    if kind.name == "lmdb":
        with pytest.raises(ValueError, match="local disk"):
            open_store(uri)
        return
    for name, data in files(place).items():
        memory.pipe(f"/kinds/{place.stem}{name}", data)
    try:
        with open_store(uri) as store:
            again = pickle.loads(pickle.dumps(store))
            assert all_items(store) == all_items(again) == expected(kind)
            again.close()
        with pytest.raises(FileNotFoundError, match="missing"):
            open_store(f"memory://kinds/missing{kind.suffix}")
    finally:
        memory.rm("/kinds", recursive=True)


def test_data_stays_valid_after_close(place: Path, kind: Kind) -> None:
    """Data and known targets stay valid after closing; later reads raise ValueError."""
    store = open_store(place)
    views = [store.read(at) for at in range(len(store))]
    known = [store.key(1), None if kind.name == "recordio" else store.target(1)]
    store.close()
    store.close()

    assert views == [data for _, data in items()]
    assert [store.key(1), None if kind.name == "recordio" else store.target(1)] == known
    for ask in (store.read, store.source):
        with pytest.raises(ValueError, match="has been closed"):
            ask(0)


@pytest.mark.parametrize("kind", ["tar", "recordio"], indirect=True)
def test_images_are_not_copied(place: Path) -> None:
    """Images are views of the mapped file."""
    with open_store(place) as store:
        assert all(isinstance(store.read(at), memoryview) for at in range(len(images())))


def test_wrong_indices_are_index_errors(place: Path) -> None:
    """An index out of range is an IndexError, one that is not an integer a TypeError."""
    with open_store(place) as store:
        for at in (-1, len(store), 1 << 40):
            for ask in (store.read, store.key, store.target, store.source):
                with pytest.raises(IndexError, match=f"{place}: there is no item"):
                    ask(at)
        for wrong in ("a.jpg", 1.0, None):
            with pytest.raises(TypeError, match=f"{place}: an index must be an integer, not"):
                store.read(wrong)
        assert bytes(store.read(np.int64(1))) == bytes(store.read(1))


def test_many_items_are_found(kind: Kind) -> None:
    """Twenty thousand items are found: several write batches, and an LMDB map that grows."""
    count = 500 if kind.name in ("folder", "hdf5") else 20_000
    where = kind.at("many")
    write(where, [(f"{at}.jpg", b"%d" % at) for at in range(count)], range(count))

    with open_store(where) as store:
        assert len(store) == count
        for at in (0, 1, count // 2, count - 1, *random.Random(1).sample(range(count), 500)):
            assert bytes(store.read(at)) == b"%d" % at
            assert store.key(at).removesuffix(".jpg") == str(at)
            assert store.target(at) == at


@pytest.mark.parametrize("kind", _ONE_FILE, indirect=True)
def test_store_truncated_while_open_is_an_error(place: Path) -> None:
    """Reading a store truncated while open is an error, neither a crash nor zeros."""
    with open_store(place) as store:
        os.truncate(place, 20)

        with pytest.raises(StoreError, match=r"item 0.*cut"):
            store.read(0)


@pytest.mark.parametrize("kind", _CHECKED_WHEN_OPENED, indirect=True)
@pytest.mark.parametrize(
    "data", [b"", b"no store", b"\0" * 511, b"x" * 2000, b"no database" * 1000]
)
def test_file_that_is_not_a_store_is_an_error(kind: Kind, data: bytes) -> None:
    """A file that is not a store, is empty or is missing is an error that names it."""
    kind.at("other").write_bytes(data)
    with pytest.raises(StoreError, match=f"other{kind.suffix}"):
        open_store(kind.at("other"))
    with pytest.raises(FileNotFoundError, match=f"missing{kind.suffix}"):
        open_store(kind.at("missing"))


def test_truncation_anywhere_is_an_error(kind: Kind) -> None:
    """Truncating a store anywhere is an error at opening or reading."""
    if kind.name == "folder":
        pytest.skip("a folder has no single file to truncate")
    check_random_damage(kind.at("a"), truncated, 40)


_NOT_KEYS = (
    *("", "/a.jpg", "../a.jpg", "a\\b.jpg", "./a.jpg", "a//b.jpg", "a/", "a/./b.jpg"),
    *("a/../../b", "a\0b", "\udcff.jpg"),
)
_NO_CLASS = "index of a class, from 0 to 1, not "


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (("a/b.jpg", b"2", 1), "key 'a/b.jpg' is there already"),
        *(((key, b"2", 1), "key must be") for key in _NOT_KEYS),
        ((None, b"2"), "key must be text, not None"),
        (("c.jpg", "a.jpg"), r"Path\('a.jpg'\).read_bytes"),
        (("c.jpg", b""), "is not an image"),
        *((("c.jpg", b"2", target), "target.* not") for target in (float("nan"), object())),
        *((("c.jpg", b"2", target), _NO_CLASS) for target in (2, -1, "cat", True, 0.0, [0])),
    ],
)
def test_wrong_items_are_refused(written: Kind, item: tuple[Any, ...], said: str) -> None:
    """Keys that exist or are not normalised, no images, and wrong targets are refused.

    The writer stays usable.
    """
    place = written.at("a")
    with create_store(place, classes=["cat", "dog"] if said == _NO_CLASS else ()) as writer:
        writer.add("a/b.jpg", b"1", 1)
        with pytest.raises((TypeError, ValueError), match=said):
            writer.add(*item)
        writer.add("z.jpg", b"3")
    with pytest.raises(ValueError, match="closed"):
        writer.add("d.jpg", b"4")

    with open_store(place) as store:
        assert all_items(store) == [("a/b.jpg", b"1", 1), ("z.jpg", b"3", None)]
    with pytest.raises(FileExistsError):
        create_store(place)


def test_what_cannot_be_created_leaves_no_files(written: Kind) -> None:
    """A URI, and class names that are not in a list, are refused before anything is created."""
    for location in ("s3://bucket/x", "file:///x", "memory://x"):
        with pytest.raises(ValueError, match="local paths; copy it when done"):
            create_store(location + written.suffix)
    with pytest.raises(TypeError, match=r"classes .*, not 'cat'"):
        create_store(written.at("a"), classes="cat")

    assert files(written.at("a")) == {}


@pytest.mark.parametrize(
    ("item", "said"),
    [(("a.jpg", b"1"), "there already"), (("b.jpg", b"1", object()), "target")],
)
def test_error_in_the_writer_leaves_no_files(
    written: Kind, item: tuple[Any, ...], said: str
) -> None:
    """An error inside the writer's block leaves no store, no partial file and no lock."""
    writer = create_store(written.at("a"))
    with pytest.raises(ValueError, match=said), writer:  # noqa: PT012 - it is about the block
        writer.add("a.jpg", b"1")
        assert not written.at("a").exists()
        writer.add(*item)

    assert list(written.folder.iterdir()) == []


def test_any_name_is_a_class(written: Kind) -> None:
    """A class name may hold a NUL, or bytes that are not UTF-8.

    Its index may be NumPy's. Missing parent folders are created, and closing twice does nothing.
    """
    classes, deep = (
        ["plain", "a\0b", "\udcff", "漢"],
        written.folder / "x" / "y" / written.at("a").name,
    )
    writer = create_store(deep, classes=classes)
    writer.add("a.jpg", b"1", np.int64(1))
    writer.close()
    writer.close()
    writer.abort()

    with open_store(deep) as store:
        assert list(store.classes) == classes
        assert store.target(0) == 1
        assert type(store.target(0)) is int


def test_two_processes_do_not_mix(written: Kind) -> None:
    """Whichever process closes first, the other is told that the place is taken."""
    context = multiprocessing.get_context("spawn")
    place, done, barrier = written.at("a"), context.Queue(), context.Barrier(2)
    both = [
        context.Process(target=write_together, args=(place, number, barrier, done))
        for number in (1, 2)
    ]
    for process in both:
        process.start()
    told = [done.get(timeout=60) for _ in both]
    for process in both:
        process.join()

    assert min(told) == -1 < max(told)
    with open_store(place) as store:
        assert {bytes(store.read(at)) for at in range(3)} == {b"%d" % max(told)}


def test_two_writers_do_not_mix(written: Kind) -> None:
    """Of two writers to one path the first to close wins; the other leaves its store intact."""
    place = written.at("a")
    first, second = create_store(place), create_store(place)
    for writer, data in ((first, b"first"), (second, b"second")):
        for number in range(3):
            writer.add(f"{number}.jpg", data, number)
    first.close()
    there = files(place)
    with pytest.raises(FileExistsError, match="is there already"):
        second.close()

    assert files(place) == there
    with open_store(place) as store:
        assert [bytes(store.read(at)) for at in range(3)] == [b"first"] * 3
    assert not [path for path in written.folder.iterdir() if path.name.startswith(".")]


class _Cut:
    """A target that raises KeyboardInterrupt, like Ctrl-C in the middle of an item."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            raise KeyboardInterrupt
        return super().__getattribute__(name)


@pytest.mark.parametrize("cause", ["Ctrl-C", "a full disk"])
def test_writer_stopped_within_an_item_makes_no_store(written: Kind, cause: str) -> None:
    """A writer that was stopped within an item refuses to go on and makes no store."""
    resource = pytest.importorskip("resource")
    if written.name in _LIBRARIES and cause == "a full disk":
        pytest.skip("a library writes this kind")
    writer = create_store(written.at("a"))
    writer.add("a.jpg", b"1" * 100)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if cause == "a full disk":
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))  # like a disk with 8 KiB free
    try:
        with pytest.raises((KeyboardInterrupt, OSError), match=r"^$|File too large"):
            writer.add("b.jpg", b"2" * (1 << 20), _Cut() if cause == "Ctrl-C" else None)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    for go_on in (lambda: writer.add("c.jpg", b"3"), writer.close):
        with pytest.raises(ValueError, match="create the store again"):
            go_on()

    assert list(written.folder.iterdir()) == []
