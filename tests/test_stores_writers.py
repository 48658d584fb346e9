"""What all writers have in common: nothing of others is harmed, and no half of a store is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastdecode.stores import create_store, open_store

KINDS = {"tar": ".tar", "recordio": ".rec", "lmdb": ".lmdb", "hdf5": ".h5", "folder": ""}


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Say where to make a store of each kind."""
    pytest.importorskip({"lmdb": "lmdb", "hdf5": "h5py"}.get(request.param, "numpy"))
    return tmp_path / f"made{KINDS[request.param]}"


@pytest.mark.parametrize(
    "key", ["./a.jpg", "a//b.jpg", "a/", "a/./b.jpg", "b\\c.jpg", "\udcff.jpg"]
)
def test_a_key_has_one_form(place: Path, key: str) -> None:
    """Others that mean the same file, and what is no text, are refused; the writer goes on."""
    with create_store(place) as writer:
        writer.add("a.jpg", b"1", 1)
        with pytest.raises(ValueError, match="key must be"):
            writer.add(key, b"2", 2)
        writer.add("z.jpg", b"3", 3)

    with open_store(place) as store:
        assert [bytes(store.read(at)) for at in range(len(store))] == [b"1", b"3"]
        assert [store.target(at) for at in range(2)] == [1, 3]


def test_whole_numbers_of_numpy_are_targets(place: Path) -> None:
    """They come back as Python's."""
    with create_store(place, classes=["a", "b"]) as writer:
        writer.add("a.jpg", b"1", np.int64(1))
        writer.add("b.jpg", b"2", np.uint8(0))

    with open_store(place) as store:
        assert [store.target(at) for at in range(2)] == [1, 0]
        assert type(store.target(0)) is int


def test_any_name_is_a_class(place: Path) -> None:
    """Also that of a folder which is no UTF-8, or a label with a NUL, which HDF5's texts lack."""
    classes = ["plain", "a\0b", "\udcff", "漢"]
    with create_store(place, classes=classes) as writer:
        writer.add("a.jpg", b"1", 1)

    with open_store(place) as store:
        assert list(store.classes) == classes
        assert store.target(0) == 1


def test_folders_above_are_made(place: Path) -> None:
    """By all kinds alike."""
    deep = place.parent / "x" / "y" / place.name
    with create_store(deep) as writer:
        writer.add("a.jpg", b"1")

    assert len(open_store(deep)) == 1


@pytest.mark.parametrize("location", ["s3://bucket/x", "file:///x", "memory://x"])
def test_stores_are_made_on_local_paths(place: Path, location: str) -> None:
    """A URI is refused before anything is made."""
    with pytest.raises(ValueError, match="local paths; copy it when done"):
        create_store(location + place.suffix)


def test_two_writers_do_not_mix(place: Path) -> None:
    """Both write; the one that ends first has the place, and the other harms nothing."""
    first, second = create_store(place), create_store(place)
    for writer, data in ((first, b"first"), (second, b"second")):
        for number in range(3):
            writer.add(f"{number}.jpg", data, number)
    first.close()
    there = {path: path.read_bytes() for path in place.parent.rglob("*") if path.is_file()}
    there = {path: data for path, data in there.items() if "partial" not in str(path)}
    with pytest.raises(FileExistsError, match="is there already"):
        second.close()

    assert {path: path.read_bytes() for path in there} == there
    with open_store(place) as store:
        assert [bytes(store.read(at)) for at in range(3)] == [b"first"] * 3
    assert not [path for path in place.parent.iterdir() if path.name.startswith(".")]


class _Cut:
    """A target that cannot even be looked at: as when Ctrl-C comes within an item."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            raise KeyboardInterrupt
        return super().__getattribute__(name)


def test_a_writer_that_failed_within_an_item_makes_no_store(place: Path) -> None:
    """Nobody knows how much of that item is there."""
    writer = create_store(place)
    writer.add("a.jpg", b"1")
    with pytest.raises(KeyboardInterrupt):
        writer.add("b.jpg", b"2", _Cut())
    with pytest.raises(ValueError, match="begin the store anew"):
        writer.add("c.jpg", b"3")
    with pytest.raises(ValueError, match="begin the store anew"):
        writer.close()

    assert list(place.parent.iterdir()) == []


def test_a_full_disk_makes_no_store(place: Path) -> None:
    """A write that fails for want of room, and is tried again, does not leave half an item."""
    if place.suffix not in (".tar", ".rec", ""):
        pytest.skip("writes by a library")
    resource = pytest.importorskip("resource")
    writer = create_store(place)
    writer.add("a.jpg", b"1" * 100)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))  # as a disk with so much room
    try:
        with pytest.raises(OSError, match="File too large"):
            writer.add("b.jpg", b"2" * (1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(ValueError, match="begin the store anew"):
        writer.close()

    assert list(place.parent.iterdir()) == []


def test_the_index_of_other_records_is_not_overwritten(tmp_path: Path) -> None:
    """An .idx of that name is somebody's; it is asked for at the beginning and at the end."""
    (tmp_path / "a.idx").write_text("mine")
    with pytest.raises(FileExistsError, match=r"a\.idx is there already"):
        create_store(tmp_path / "a.rec")
    writer = create_store(tmp_path / "b.rec")
    writer.add("a.jpg", b"1")
    (tmp_path / "b.idx").write_text("mine")
    with pytest.raises(FileExistsError, match=r"b\.idx is there already"):
        writer.close()

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.idx": "mine",
        "b.idx": "mine",
    }


@pytest.mark.parametrize("nothing", ["", None])
def test_nothing_is_no_location(nothing: Any) -> None:
    """Rather than the current folder."""
    with pytest.raises(ValueError, match="opened by its path or URI, not"):
        open_store(nothing)


@pytest.mark.parametrize("name", ["a.tar.gz", "a.TGZ", "a.tar.xz"])
def test_compressed_tars_are_told_by_their_names(tmp_path: Path, name: str) -> None:
    """With the way out."""
    (tmp_path / name).write_bytes(b"1")

    with pytest.raises(ValueError, match=r"compressed tar.*decompress it"):
        open_store(tmp_path / name)
