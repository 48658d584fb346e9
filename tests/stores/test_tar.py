"""Tests of tar shards of this package: round trips, names of members, and streams."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tarfile
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from same import assert_same
from tars import image, numbered, write_tar

from fastdecode.errors import StoreError
from fastdecode.stores import create_store, open_store
from fastdecode.stores._index import Index
from fastdecode.stores.tar.format import make_header, member_name, parse_header, split
from fastdecode.stores.tar.store import (
    COLUMNS,
    ShardFull,
    TarStore,
    TarWriter,
    index_tar,
    stream_tar,
)

_ITEMS: dict[str, Any] = {
    "a.jpg": None,
    "a.png": 5,
    "a.JPG": 6,
    "b.c.jpg": "text",
    "b.jpg": {"boxes": [[1, 2], [3, 4]], "name": "ü"},
    "dir/x.JPEG": 0.5,
    "dir.with.dots/y": True,
    "__meta__/k.jpg": -7,
    "a%~2.png": "",
    "a%2Eb.jpg": [1],
    "a.b.jpg": None,
    f"{'z' * 150}/{'y' * 200}.jpg": 1 << 70,
    f"{'p' * 120}/{'q' * 60}.jpg": "two\nlines\n",
    "ü/é 1.jpg": 0,
    ".hidden.jpg": 1,
    "x.notes.txt": 2,
    "no image": 3,
    "empty.xyz": None,
}


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    path = tmp_path / "train.tar"
    with create_store(path) as writer:
        for number, (key, target) in enumerate(_ITEMS.items()):
            writer.add(key, image(number), target)
    return path


def test_the_writer_indexes_what_it_writes(tmp_path: Path) -> None:
    """Its index has the places and targets that reading the shard finds, and its checksum."""
    with TarWriter(str(tmp_path / "t.tar"), ["a", "b"]) as writer:
        writer.add("a.jpg", image(0), 1)
        with pytest.raises(ValueError, match="there already"):
            writer.add("a.jpg", image(0), 1)
    with TarWriter(str(tmp_path / "u.tar")) as mixed:
        for number, (key, target) in enumerate(_ITEMS.items()):
            mixed.add(key, image(number), target)

    for made in (writer, mixed):
        shard, written = Path(made.location), Index.load(f"{made.location}.fdx")
        found = index_tar(shard, index=shard.with_name("again"))
        for name in COLUMNS:
            assert_same(found[name], written[name])
        every = range(made.items)
        assert list(map(found.target, every)) == list(map(written.target, every))
        assert hashlib.sha256(shard.read_bytes()).hexdigest() == made.sha256
        assert written.about == {**found.about, "sha256": made.sha256}
        assert shard.stat().st_size == made.size
        shard.with_name("again").unlink()


def test_a_shard_takes_no_more_than_its_limit(tmp_path: Path) -> None:
    """An item that would exceed the limit is refused, except as the first; nothing is written."""
    data = image(0)
    for room, fits in ((0, True), (-1, False)):
        path = tmp_path / f"{fits}.tar"
        whole = 2 * (512 + len(data) + -len(data) % 512) + 1024
        with TarWriter(str(path), limit=whole + room) as writer:
            writer.add("a.jpg", data)
            if fits:
                writer.add("b.jpg", data)
            else:
                with pytest.raises(ShardFull):
                    writer.add("b.jpg", data)
        with open_store(path) as store:
            assert len(store) == 1 + fits
        assert path.stat().st_size <= whole + room
    with TarWriter(str(tmp_path / "large.tar"), limit=1) as writer:
        writer.add("a.jpg", data)


@pytest.mark.parametrize("indexed", [True, False])
def test_tar_round_trip(shard: Path, indexed: bool) -> None:
    """Any key, target and bytes are read back; without the index, keys are those of members."""
    if not indexed:
        Path(f"{shard}.fdx").unlink()
    with open_store(shard) as store:
        assert isinstance(store, TarStore)
        assert len(store) == len(_ITEMS)
        keys = [store.key(i) for i in range(len(store))]
        assert keys == list(_ITEMS) if indexed else len(set(keys)) == len(_ITEMS)
        targets = [store.target(i) for i in range(len(store))]
        assert targets == list(_ITEMS.values())
        assert list(map(type, targets)) == list(map(type, _ITEMS.values()))
        assert [bytes(store.read(i)) for i in range(len(store))] == [
            image(n) for n in range(len(_ITEMS))
        ]
        assert not indexed or len(pickle.dumps(store)) < 1000
        assert [each[1:] for each in stream_tar(shard)] == [
            (store.read(i), store.target(i)) for i in range(len(store))
        ]


def test_tarfile_reads_what_was_written(shard: Path) -> None:
    """Python's tarfile finds every image under a distinct name."""
    with tarfile.open(shard) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}

    assert len(found) == len(_ITEMS) + sum(target is not None for target in _ITEMS.values())
    assert found["a.jpg"] == image(0)
    assert found["dir/x.JPEG"] == image(5)
    assert found["dir/x.json"] == b"0.5"
    assert found[f"{'z' * 150}/{'y' * 200}.jpg"] == image(11)


@pytest.mark.skipif(os.name == "nt", reason="links need a privilege there")
@pytest.mark.parametrize("other", ["file", "link", "dangling"])
def test_no_index_replaces_another_file(tmp_path: Path, other: str) -> None:
    """Neither writing a shard nor indexing it replaces a file that is no index, or a link."""
    whole, mine = tmp_path / "whole.tar", tmp_path / "p.tar.fdx"
    with create_store(whole) as writer:
        writer.add("a.jpg", image(0), 0)
    index = whole.with_name("whole.tar.fdx").rename(tmp_path / "an.fdx")
    mine.write_bytes(b"mine") if other == "file" else mine.symlink_to(
        index if other == "link" else "nothing"
    )
    before = {path: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()}

    with pytest.raises(FileExistsError, match=r"p\.tar\.fdx is"):
        create_store(tmp_path / "p.tar")
    with pytest.raises(FileExistsError, match=r"p\.tar\.fdx is"):
        index_tar(whole, index=mine)
    assert {path: path.is_file() and path.read_bytes() for path in tmp_path.iterdir()} == before


def test_indexes_of_two_shards_do_not_replace_each_other(tmp_path: Path) -> None:
    """`index_tar` does not replace the index of another shard of the same name."""
    shards, index = [], tmp_path / "train.tar.fdx"
    for target, name in enumerate(("a", "b")):
        shards.append(tmp_path / name / "train.tar")
        with create_store(shards[-1], classes=["x", "y"]) as writer:
            writer.add("a.jpg", image(0), target)

    assert len(index_tar(shards[0], index=index)) == len(index_tar(shards[0], index=index)) == 1
    with pytest.raises(FileExistsError, match="another index"):
        index_tar(shards[1], index=index)
    with open_store(shards[0], index=index) as store:
        assert store.target(0) == 0


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
    path.write_bytes(make_header("a.jpg", 1 << 70) + bytes(1024))

    with pytest.raises(StoreError, match="truncated"):
        list(stream_tar(path))


@pytest.mark.parametrize(
    ("key", "data", "name"),
    [
        ("cat/1.jpg", b"", "cat/1.jpg"),
        ("cat/1.tar.jpg", b"", "cat/1%2Etar.jpg"),
        ("cat/1", b"\x89PNG", "cat/1.png"),
        ("cat/1.dat", b"?", "cat/1%2Edat.img"),
        ("v1.0/1.webp", b"", "v1.0/1.webp"),
        ("100%/1.2.jpg", b"", "100%/1%2E2.jpg"),
        (".hidden.jpg", b"", "%2Ehidden.jpg"),
        ("__meta__/k.jpg", b"", "%5F_meta__/k.jpg"),
    ],
)
def test_member_names_are_those_that_webdataset_splits_alike(
    key: str, data: bytes, name: str
) -> None:
    """Only what WebDataset would misread has another name as a member."""
    stem, extension = member_name(key, data)

    assert f"{stem}.{extension}" == name
    assert split(name) == (stem, extension)


@given(
    st.binary(min_size=1, max_size=400).filter(lambda name: b"\0" not in name and name[:1] != b"/")
)
def test_header_round_trip(name: bytes) -> None:
    """A header gives back name and size; a flipped bit is found."""
    header = make_header(name.decode("utf-8", "surrogateescape"), 12345)[-512:]

    found = parse_header(header)
    assert found is not None
    assert (found.size, found.kind) == (12345, b"0")
    assert found.name == name or name.startswith(found.name)
    for place in (0, 99, 124, 135, 345, 511):
        damaged = bytearray(header)
        damaged[place] ^= 1
        assert parse_header(bytes(damaged)) is None
