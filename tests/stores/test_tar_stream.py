"""Tests of streaming tar shards (pipes, short reads, memory) and of the names of members."""

from __future__ import annotations

import io
import os
import struct
import threading
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tars import image, numbered, write_tar

from fastdecode.errors import StoreError
from fastdecode.stores.tar.format import make_header, parse_header
from fastdecode.stores.tar.names import IMAGES, Names, member_key, member_name, split
from fastdecode.stores.tar.store import Sample, stream_tar


class _Trickle(io.RawIOBase):
    """A stream that returns few bytes per read and cannot seek."""

    def __init__(self, data: bytes, most: int = 7) -> None:
        self._data = io.BytesIO(data)
        self._most = most

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        return self._data.read(min(size, self._most) if size >= 0 else self._most)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_is_read(tmp_path: Path) -> None:
    """A pipe that the caller has opened is streamed; the path of a pipe is refused."""
    data = write_tar(tmp_path / "t.tar", numbered(50)).read_bytes()
    os.mkfifo(tmp_path / "pipe.tar")
    with pytest.raises(OSError, match="a FIFO"):
        next(stream_tar(tmp_path / "pipe.tar"))
    writer = threading.Thread(target=(tmp_path / "pipe.tar").write_bytes, args=(data,))
    writer.start()

    with (tmp_path / "pipe.tar").open("rb") as pipe:
        found = list(stream_tar(pipe))
        assert not pipe.read().strip(b"\0")
    writer.join()
    assert [(bytes(each.data), each.target) for each in found] == [
        (image(number), number) for number in range(50)
    ]


def test_short_reads_are_enough(tmp_path: Path) -> None:
    """A stream may return fewer bytes than asked; it is neither closed nor sought in."""
    data = write_tar(tmp_path / "t.tar", numbered(3)).read_bytes()
    stream = _Trickle(data)

    assert [bytes(each.data) for each in stream_tar(stream)] == [image(n) for n in range(3)]
    assert not stream.closed
    for end in range(0, 6 * 512, 100):
        with pytest.raises(StoreError, match=r"the stream.*truncated"):
            list(stream_tar(_Trickle(data[:end], 1000)))


def test_samples_come_before_the_damage(tmp_path: Path) -> None:
    """Intact samples are returned before the error, which names the file."""
    path = write_tar(tmp_path / "t.tar", numbered(5))
    os.truncate(path, 3 * 2560 + 600)
    found: list[Sample] = []

    with pytest.raises(StoreError, match=r"t\.tar: member '0003\.jpg' is truncated"):
        found.extend(stream_tar(path))

    assert [each.target for each in found] == [0, 1, 2]


def test_memory_is_that_of_one_sample(tmp_path: Path) -> None:
    """Streaming a long shard holds about one sample in memory and no skipped members."""
    members = [(f"{n:03d}.{name}", bytes(200_000)) for n in range(60) for name in ("jpg", "raw")]
    path = write_tar(tmp_path / "t.tar", members)
    tracemalloc.start()
    count = sum(1 for _ in stream_tar(path))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert count == 60
    assert peak < 4 << 20


def test_false_size_allocates_no_memory(tmp_path: Path) -> None:
    """A header that promises terabytes is a truncated shard and allocates nothing."""
    path = tmp_path / "t.tar"
    path.write_bytes(make_header(b"a.jpg", 1 << 70) + bytes(1024))

    with pytest.raises(StoreError, match="truncated"):
        list(stream_tar(path))


_STEMS = (
    st.lists(st.sampled_from([*"aB.%~-_/2é ", "%2E", "%~2"]), min_size=1, max_size=9)
    .map(lambda parts: "/".join(part for part in "".join(parts).split("/") if part.strip(".")))
    .filter(bool)
)
_SUFFIXES = st.lists(st.sampled_from(["", ".jpg", ".PNG", ".x"]), min_size=1, unique=True)
_KEYS = st.lists(st.tuples(_STEMS, _SUFFIXES), max_size=15).map(
    lambda found: list(dict.fromkeys(stem + suffix for stem, some in found for suffix in some))
)


@settings(deadline=None)
@given(_KEYS)
def test_keys_round_trip_through_names(keys: list[str]) -> None:
    """Every key gets a distinct sample name for WebDataset that maps back to the key."""
    names = Names()
    stems = set()
    for key in keys:
        stem, extension, owner = names.take(key, b"\xff\xd8\xff")
        assert split(f"{stem}.{extension}") == (stem, extension)
        assert extension.lower() in IMAGES
        assert member_key(stem, extension, owner) == key
        stems.add(stem)
        with pytest.raises(ValueError, match="there already"):
            names.take(key, b"\xff\xd8\xff")

    assert len(stems) == len(keys)


@pytest.mark.parametrize(
    ("key", "data", "name"),
    [
        ("cat/1.jpg", b"", "cat/1.jpg"),
        ("cat/1.tar.jpg", b"", "cat/1%2Etar.jpg"),
        ("cat/1", b"\x89PNG", "cat/1%-.png"),
        ("cat/1.dat", b"?", "cat/1%2Edat%-.img"),
        ("v1.0/1.webp", b"", "v1.0/1.webp"),
        ("100%/1.jpg", b"", "100%/1.jpg"),
        ("100%/1.2.jpg", b"", "100%25/1%2E2.jpg"),
    ],
)
def test_only_what_must_be_is_escaped(key: str, data: bytes, name: str) -> None:
    """Only those characters of a key are escaped that WebDataset would misread."""
    stem, extension, _ = member_name(key, data)

    assert f"{stem}.{extension}" == name


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=400).filter(lambda name: b"\0" not in name))
def test_header_round_trip(name: bytes) -> None:
    """A header gives back name, size and owner; a flipped bit is found.

    Old Sun tars added signed bytes for the checksum.
    """
    header = make_header(name, 12345, b"somebody")[-512:]
    signed = sum(struct.unpack("512b", header[:148] + b" " * 8 + header[156:]))
    by_sun = header[:148] + b"%06o\0 " % max(0, signed) + header[156:]

    for found in (parse_header(each) for each in ((header, by_sun) if signed >= 0 else (header,))):
        assert found is not None
        assert (found.size, found.kind, found.owner) == (12345, b"0", b"somebody")
        assert found.name == name or name.startswith(found.name)
    for place in (0, 99, 124, 135, 345, 511):
        damaged = bytearray(header)
        damaged[place] ^= 1
        assert parse_header(bytes(damaged)) is None
