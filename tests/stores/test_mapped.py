"""Ranges of files, mapped or requested: never past the end, nor of a file that was cut."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastdecode.errors import StoreError
from fastdecode.stores._mmap import Mapped, is_uri, local_path

_DATA = bytes(range(256)) * 40


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(_DATA)
    return path


def test_ranges_are_read(file: Path) -> None:
    """Any range of the file can be read, also empty ones and the whole file."""
    mapped = Mapped(str(file))

    assert mapped.size == len(_DATA)
    assert mapped.is_local
    for offset, size in ((0, 1), (3, 0), (100, 5000), (0, len(_DATA)), (len(_DATA), 0)):
        assert bytes(mapped.read(offset, size)) == _DATA[offset : offset + size]


def test_views_are_read_only_and_outlive_the_file(file: Path) -> None:
    """A range is a read-only view, which stays valid after closing and removing the file."""
    mapped = Mapped(str(file))
    view = memoryview(mapped.read(10, 20))

    mapped.close()
    mapped.close()
    file.unlink()

    assert view.readonly
    assert bytes(view) == _DATA[10:30]


def test_a_closed_file_is_not_read(file: Path) -> None:
    """Reading after close raises a ValueError that names the file."""
    mapped = Mapped(str(file))
    mapped.close()

    with pytest.raises(ValueError, match=r"data: the file has been closed"):
        mapped.read(0, 1)


@pytest.mark.parametrize(("offset", "size"), [(0, 10241), (10240, 1), (-1, 2), (5, -1), (2**62, 1)])
def test_ranges_outside_are_refused(file: Path, offset: int, size: int) -> None:
    """A range outside the file is an error."""
    with pytest.raises(StoreError, match="past its end at 10240"):
        Mapped(str(file)).read(offset, size)


def test_a_file_that_was_cut_does_not_kill(file: Path) -> None:
    """After a cut, the rest of the file is read, and ranges beyond it raise an error."""
    mapped = Mapped(str(file))
    os.truncate(file, 5000)

    assert bytes(mapped.read(0, 5000)) == _DATA[:5000]
    with pytest.raises(StoreError, match=r"cut to 5000 bytes.*had 10240"):
        mapped.read(4999, 2)


def test_an_empty_file_has_only_the_empty_range(tmp_path: Path) -> None:
    """An empty file can be opened, although it cannot be mapped."""
    (tmp_path / "none").touch()
    mapped = Mapped(str(tmp_path / "none"))

    assert bytes(mapped.read(0, 0)) == b""
    with pytest.raises(StoreError, match="past its end at 0"):
        mapped.read(0, 1)


def test_what_is_not_there_is_an_oserror(tmp_path: Path) -> None:
    """A missing file and a folder raise the system's errors."""
    with pytest.raises(FileNotFoundError):
        Mapped(str(tmp_path / "missing"))
    with pytest.raises(IsADirectoryError):
        Mapped(str(tmp_path))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a device to open")
def test_devices_are_refused() -> None:
    """A device, which has no length, is refused."""
    with pytest.raises(StoreError, match="not a regular file"):
        Mapped("/dev/zero")


def test_threads_read_at_once(file: Path) -> None:
    """Many threads can read one file."""
    mapped = Mapped(str(file))

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda at: bytes(mapped.read(at, 17)), range(2000)))

    assert found == [_DATA[at : at + 17] for at in range(2000)]


def test_only_uris_of_other_places_are_uris() -> None:
    """``file://`` is a local file, and a colon in a path does not make a URI."""
    assert is_uri("s3://bucket/a")
    assert not is_uri("file:///tmp/a")
    assert not is_uri("a:b/c")
    assert local_path("file:///tmp/a") == "/tmp/a"
    assert local_path("/tmp/a") == "/tmp/a"


def test_a_uri_is_read_by_ranges() -> None:
    """A file behind a URI gives the same ranges and errors."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/mapped/data", _DATA)
    mapped = Mapped("memory://mapped/data")

    assert mapped.size == len(_DATA)
    assert not mapped.is_local
    assert bytes(mapped.read(100, 50)) == _DATA[100:150]
    assert bytes(mapped.read(len(_DATA), 0)) == b""
    with pytest.raises(StoreError, match="past its end"):
        mapped.read(len(_DATA), 1)

    memory.pipe_file("/mapped/data", _DATA[:120])

    with pytest.raises(StoreError, match="cut to 120 bytes"):
        mapped.read(100, 50)
