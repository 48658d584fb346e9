"""Tests of reading ranges of files, local or remote, including truncated files."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fastdecode.errors import StoreError
from fastdecode.stores._ranges import Ranges, is_uri, local_path

_DATA = bytes(range(256)) * 40


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.write_bytes(_DATA)
    return path


def test_ranges_are_read(file: Path) -> None:
    """Any range of the file is returned, including empty ones and the whole file."""
    ranges = Ranges(str(file))

    assert ranges.size == len(_DATA)
    assert ranges.is_local
    for offset, size in ((0, 1), (3, 0), (100, 5000), (0, len(_DATA)), (len(_DATA), 0)):
        assert bytes(ranges.read(offset, size)) == _DATA[offset : offset + size]


def test_views_are_read_only_and_outlive_the_file(file: Path) -> None:
    """A range is a read-only view that stays valid after close and removal of the file."""
    ranges = Ranges(str(file))
    view = memoryview(ranges.read(10, 20))

    ranges.close()
    ranges.close()
    file.unlink()

    assert view.readonly
    assert bytes(view) == _DATA[10:30]


def test_a_closed_file_is_not_read(file: Path) -> None:
    """Reading a closed file is a ValueError that names it."""
    ranges = Ranges(str(file))
    ranges.close()

    with pytest.raises(ValueError, match=r"data: the file has been closed"):
        ranges.read(0, 1)


@pytest.mark.parametrize(("offset", "size"), [(0, 10241), (10240, 1), (-1, 2), (5, -1), (2**62, 1)])
def test_ranges_outside_are_refused(file: Path, offset: int, size: int) -> None:
    """A range outside the file is an error."""
    with pytest.raises(StoreError, match="past its end at 10240"):
        Ranges(str(file)).read(offset, size)


def test_truncated_file_is_an_error(file: Path) -> None:
    """The rest of a truncated file is still read; reading past it is an error."""
    ranges = Ranges(str(file))
    os.truncate(file, 5000)

    assert bytes(ranges.read(0, 5000)) == _DATA[:5000]
    for access in (lambda: ranges.read(4999, 2), lambda: ranges.read(9000, 2), ranges.check):
        with pytest.raises(StoreError, match=r"cut to 5000 bytes.*had 10240"):
            access()


def test_files_are_closed_with_the_last_view(file: Path) -> None:
    """A view keeps the mapping and its descriptor; nothing stays open after both are gone."""
    if not Path("/dev/fd").exists():
        pytest.skip("this system does not list open files")
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208
    ranges = Ranges(str(file))
    view = ranges.read(10, 20)
    ranges.close()

    assert len(os.listdir("/dev/fd")) == before + 2  # noqa: PTH208
    del ranges, view

    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208


def test_an_empty_file_has_only_the_empty_range(tmp_path: Path) -> None:
    """An empty file cannot be mapped but can be opened."""
    (tmp_path / "none").touch()
    ranges = Ranges(str(tmp_path / "none"))

    assert bytes(ranges.read(0, 0)) == b""
    with pytest.raises(StoreError, match="past its end at 0"):
        ranges.read(0, 1)


def test_missing_file_is_an_oserror(tmp_path: Path) -> None:
    """A missing file or a folder raises the operating system's error."""
    with pytest.raises(FileNotFoundError):
        Ranges(str(tmp_path / "missing"))
    with pytest.raises(IsADirectoryError):
        Ranges(str(tmp_path))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs a device to open")
def test_devices_are_refused() -> None:
    """A device has no length and is refused."""
    with pytest.raises(StoreError, match="not a regular file"):
        Ranges("/dev/zero")


def test_threads_read_at_once(file: Path) -> None:
    """Many threads can read one file at once."""
    ranges = Ranges(str(file))

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda at: bytes(ranges.read(at, 17)), range(2000)))

    assert found == [_DATA[at : at + 17] for at in range(2000)]


def test_file_uris_are_local_paths() -> None:
    """``file://`` is a local path, and a colon alone does not make a URI."""
    assert is_uri("s3://bucket/a")
    assert not is_uri("file:///tmp/a")
    assert not is_uri("a:b/c")
    assert local_path("file:///tmp/a") == "/tmp/a"
    assert local_path("/tmp/a") == "/tmp/a"


def test_a_uri_is_read_by_ranges() -> None:
    """A file at a URI is read by ranges, with the same errors."""
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/mapped/data", _DATA)
    ranges = Ranges("memory://mapped/data")

    assert ranges.size == len(_DATA)
    assert not ranges.is_local
    assert bytes(ranges.read(100, 50)) == _DATA[100:150]
    assert bytes(ranges.read(len(_DATA), 0)) == b""
    with pytest.raises(StoreError, match="past its end"):
        ranges.read(len(_DATA), 1)

    memory.pipe_file("/mapped/data", _DATA[:120])

    with pytest.raises(StoreError, match="cut to 120 bytes"):
        ranges.read(100, 50)
