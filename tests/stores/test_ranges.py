"""Tests of reading ranges of files, local or remote, including truncated files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from fastdecode.errors import StoreError
from fastdecode.stores._ranges import Ranges, is_uri, local_path

_DATA = bytes(range(256)) * 40


class Place(NamedTuple):
    """Where a file lies, and how to replace its content."""

    location: str
    cut: Callable[[int], object]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(_DATA)
    return path


@pytest.fixture(params=["local", "remote"])
def place(request: pytest.FixtureRequest, file: Path) -> Iterator[Place]:
    """Run the test with a local file, and with one at a URI."""
    if request.param == "local":
        yield Place(str(file), lambda size: os.truncate(file, size))
        return
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.pipe_file("/ranges/data", _DATA)
    yield Place("memory://ranges/data", lambda size: memory.pipe_file("/ranges/data", _DATA[:size]))
    memory.rm("/ranges", recursive=True)


def test_ranges_are_read(place: Place) -> None:
    """Any range of the file is returned, including empty ones and the whole file."""
    ranges = Ranges(place.location)

    assert ranges.size == len(_DATA)
    assert ranges.is_local == (not is_uri(place.location))
    for offset, size in ((0, 1), (3, 0), (100, 5000), (0, len(_DATA)), (len(_DATA), 0)):
        assert bytes(ranges.read(offset, size)) == _DATA[offset : offset + size]


@pytest.mark.parametrize(("offset", "size"), [(0, 10241), (10240, 1), (-1, 2), (5, -1), (2**62, 1)])
def test_ranges_outside_are_refused(place: Place, offset: int, size: int) -> None:
    """A range outside the file is an error, and so is any range of a closed one."""
    ranges = Ranges(place.location)
    with pytest.raises(StoreError, match=f"{place.location}: .* 10240"):
        ranges.read(offset, size)
    ranges.close()

    with pytest.raises(ValueError, match=place.location):
        ranges.read(0, 1)


def test_truncated_file_is_an_error(place: Place) -> None:
    """The rest of a truncated file is still read; reading past it is an error."""
    ranges = Ranges(place.location)
    place.cut(5000)

    assert bytes(ranges.read(0, 5000)) == _DATA[:5000]
    with pytest.raises(StoreError, match=f"{place.location}: .*cut to 5000 bytes.* 10240"):
        ranges.read(4999, 2)
    if ranges.is_local:
        with pytest.raises(StoreError, match="cut to 5000 bytes"):
            ranges.check()


def test_views_outlive_the_file(file: Path) -> None:
    """A range is a read-only view. It keeps the mapping and its descriptor, and nothing else does.

    So it stays valid after close and removal of the file.
    """
    listed = Path("/dev/fd").exists()
    before = len(os.listdir("/dev/fd")) if listed else 0  # noqa: PTH208
    ranges = Ranges(str(file))
    view = memoryview(ranges.read(10, 20))
    ranges.close()
    ranges.close()
    file.unlink()

    assert view.readonly
    assert bytes(view) == _DATA[10:30]
    assert not listed or len(os.listdir("/dev/fd")) == before + 2  # noqa: PTH208
    del ranges, view

    assert not listed or len(os.listdir("/dev/fd")) == before  # noqa: PTH208


@pytest.mark.parametrize(
    ("name", "error"),
    [
        *(("missing", FileNotFoundError), (".", IsADirectoryError)),
        *(("/dev/zero", StoreError), ("none", StoreError)),
    ],
)
def test_what_has_no_ranges_is_an_error(tmp_path: Path, name: str, error: type[Exception]) -> None:
    """A missing file, a folder, and a device are errors; an empty file has only the empty range."""
    (tmp_path / "none").touch()
    with pytest.raises(error):
        Ranges(str(tmp_path / name)).read(0, 1)
    assert bytes(Ranges(str(tmp_path / "none")).read(0, 0)) == b""


def test_file_uris_are_local_paths() -> None:
    """``file://`` is a local path, and a colon alone does not make a URI."""
    assert is_uri("s3://bucket/a")
    assert not is_uri("file:///tmp/a")
    assert not is_uri("a:b/c")
    assert local_path("file:///tmp/a") == "/tmp/a"
    assert local_path("/tmp/a") == "/tmp/a"
