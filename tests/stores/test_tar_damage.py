"""Tar shards that are cut, damaged or do not match their index: errors with advice."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import shutil
from pathlib import Path

import pytest
from tars import image, numbered, write_tar

from fastdecode.errors import StoreError
from fastdecode.stores import open_store
from fastdecode.stores._index import Index, summary
from fastdecode.stores.tar import index_tar, stream_tar
from fastdecode.stores.tar.store import SUFFIX

_COUNT = 6
_ITEM = 512 * (1 + 2 + 1 + 1)
"""An image of 641 bytes takes two blocks, its class one, and each has a header."""


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "t.tar", numbered(_COUNT))


def _same_or_none(data: bytes, number: int) -> bool:
    return bytes(data) == image(number)


def test_a_cut_shard_names_its_last_member(shard: Path) -> None:
    """Without an index, the error of a cut names the last complete member."""
    whole = shard.read_bytes()
    for end in (1, 511, 512, 600, _ITEM, 3 * _ITEM + 512 + 700, _COUNT * _ITEM):
        shard.write_bytes(whole[:end])
        with pytest.raises(StoreError, match=r"t\.tar.*truncated"):
            open_store(shard)
        with pytest.raises(StoreError, match=r"t\.tar.*truncated"):
            list(stream_tar(shard))
    shard.write_bytes(whole[: 3 * _ITEM + 512 + 700])
    with pytest.raises(StoreError, match=r"after member '0003\.jpg': it is truncated"):
        open_store(shard)
    shard.write_bytes(whole[: _COUNT * _ITEM])
    with pytest.raises(StoreError, match=r"after member '0005\.cls'.*truncate -s \+1024"):
        open_store(shard)
    os.truncate(shard, shard.stat().st_size + 1024)
    assert len(open_store(shard)) == _COUNT


def test_a_cut_shard_with_an_index_names_the_first_lost_item(shard: Path) -> None:
    """With an index, the error of a cut names the first lost item."""
    index_tar(shard)
    os.truncate(shard, 3 * _ITEM + 512 + 100)

    with pytest.raises(StoreError, match=r"item 3 \(0003\.jpg\) and 2 more are cut off"):
        open_store(shard)


def test_a_shard_that_is_cut_while_it_is_read(shard: Path) -> None:
    """Items before a cut are read; those after it raise errors that name them."""
    index_tar(shard)
    store = open_store(shard)
    os.truncate(shard, 3 * _ITEM + 100)

    assert bytes(store.read(2)) == image(2)
    with pytest.raises(StoreError, match=r"item 3 \(0003\.jpg\).*cut to"):
        store.read(3)


def test_an_index_of_another_size_is_refused(shard: Path) -> None:
    """A shard that has grown is refused with its old index; the message says what to do."""
    index_tar(shard)
    write_tar(shard, numbered(_COUNT + 9))

    with pytest.raises(StoreError, match=r"`fastdecode index .*t\.tar`"):
        open_store(shard)
    index_tar(shard)
    assert len(open_store(shard)) == _COUNT + 9


def test_an_index_of_another_shard_gives_no_bytes(shard: Path, tmp_path: Path) -> None:
    """With the index of another shard of equal size, each read raises an error."""
    index_tar(shard)
    write_tar(shard, numbered(_COUNT, begin=10))
    store = open_store(shard)

    for index in range(_COUNT):
        with pytest.raises(StoreError, match=rf"item {index} \(000{index}\.jpg\).*another member"):
            store.read(index)


def test_a_shard_replaced_while_it_is_open_stays_what_it_was(shard: Path) -> None:
    """If a new file replaces an open shard, the old one is still read."""
    index_tar(shard)
    store = open_store(shard)
    other = write_tar(shard.with_name("other"), numbered(_COUNT, begin=10))
    other.rename(shard)

    assert [bytes(store.read(i)) for i in range(_COUNT)] == [image(i) for i in range(_COUNT)]


def test_a_damaged_index_is_refused(shard: Path) -> None:
    """An index with any byte changed, or cut anywhere, is refused."""
    index_tar(shard)
    path = Path(f"{shard}{SUFFIX}")
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with pytest.raises(StoreError):
            open_store(shard)
        path.write_bytes(whole[:place])
        with pytest.raises(StoreError):
            open_store(shard)


def test_an_index_of_another_kind_is_refused(shard: Path) -> None:
    """An index that was not made for a tar shard is refused."""
    from fastdecode.stores._index import IndexBuilder

    builder = IndexBuilder()
    builder.add("a.jpg")
    builder.write(f"{shard}{SUFFIX}", {"kind": "folder"})

    with pytest.raises(StoreError, match="not the index of a tar shard"):
        open_store(shard)


def test_the_beginning_of_an_index_says_what_the_whole_does(shard: Path) -> None:
    """`summary` returns the header of an index without reading its columns."""
    index = index_tar(shard, classes=["cat", "dog" * 40000])

    assert isinstance(index, Index)
    assert summary(f"{shard}{SUFFIX}") == (len(index), index.classes, index.about)


def test_a_damaged_header_is_told(shard: Path) -> None:
    """A damaged header stops indexing; with an index only its item fails."""
    index_tar(shard)
    whole = bytearray(shard.read_bytes())
    whole[2 * _ITEM + 3] ^= 1
    shard.write_bytes(whole)
    store = open_store(shard)

    assert bytes(store.read(1)) == image(1)
    with pytest.raises(StoreError, match=r"item 2 \(0002\.jpg\)"):
        store.read(2)
    assert bytes(store.read(3)) == image(3)
    Path(f"{shard}{SUFFIX}").unlink()
    with pytest.raises(StoreError, match=r"after member '0001\.cls'.*no header at byte 5120"):
        open_store(shard)
    found = []
    with pytest.raises(StoreError, match=r"after member '0001\.cls'"):
        found.extend(stream_tar(shard))


def test_a_file_twice_in_a_sample_is_refused(tmp_path: Path) -> None:
    """Two files of one name in a sample are refused, because one would be lost."""
    path = write_tar(tmp_path / "t.tar", [("a.jpg", b"1"), ("a.cls", b"1"), ("a.JPG", b"2")])

    with pytest.raises(StoreError, match=r"member 'a\.JPG' is in its sample twice"):
        open_store(path)


def test_compressed_shards_are_refused_with_the_way_out(shard: Path) -> None:
    """A compressed shard is refused with advice to stream it."""
    whole = shard.read_bytes()
    shard.write_bytes(gzip.compress(whole))

    with pytest.raises(StoreError, match=r"compressed \(gzip\).*decompress it"):
        open_store(shard)
    with gzip.open(shard) as file:
        assert len(list(stream_tar(file))) == _COUNT


def test_what_follows_the_end_is_not_read(shard: Path) -> None:
    """Data after the end of a tar is not read; a single block of zeros is an end."""
    whole = shard.read_bytes()[: _COUNT * _ITEM]
    for behind in (bytes(512), bytes(1024) + b"garbage" * 100, bytes(1024) + whole + bytes(1024)):
        shard.write_bytes(whole + behind)
        index_tar(shard)

        assert len(open_store(shard)) == _COUNT
        assert len(list(stream_tar(shard))) == _COUNT


@pytest.mark.parametrize("seed", range(60))
def test_random_damage_gives_the_right_bytes_or_an_error(tmp_path: Path, seed: int) -> None:
    """Damaged headers give the right bytes or an error, never a crash."""
    draw = random.Random(seed)
    names = ["x" * 130, "y", "z/" * 60 + "e", "w" * 400]
    parts = [(f"{name}.jpg", image(n)) for n, name in enumerate(names)]
    path = write_tar(tmp_path / "t.tar", parts, draw.choice([1, 2]))
    index_tar(path)
    data = bytearray(path.read_bytes())
    wanted = dict(parts)
    for _ in range(draw.randrange(1, 4)):
        # Only what is about the images: nothing guards their own bytes, which have a decoder.
        place = draw.randrange(len(data))
        start = place // 512 * 512
        if b"image" not in data[start : start + 512] and b"..." not in data[start : start + 512]:
            data[place] = draw.randrange(256)
    path.write_bytes(data[: draw.choice([len(data), len(data), draw.randrange(len(data))])])
    for indexed in (True, False):
        if not indexed:
            Path(f"{path}{SUFFIX}").unlink()
        try:
            store = open_store(path)
        except StoreError:
            continue
        for index in range(len(store)):
            try:
                found = bytes(store.read(index))
            except StoreError:
                continue
            assert found == wanted.get(store.key(index), found)
    with contextlib.suppress(StoreError):
        list(stream_tar(io.BytesIO(path.read_bytes())))


def test_a_folder_of_that_name_is_no_shard(tmp_path: Path) -> None:
    """A folder with the name of a shard raises the system's error."""
    (tmp_path / "t.tar").mkdir()

    with pytest.raises(OSError, match=r"t\.tar"):
        open_store(tmp_path / "t.tar")


def test_a_missing_shard_is_not_found(shard: Path) -> None:
    """A missing shard raises FileNotFoundError, even if its index exists."""
    index_tar(shard)
    shutil.move(shard, shard.with_name("away"))

    with pytest.raises(FileNotFoundError):
        open_store(shard)
