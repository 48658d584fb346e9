"""Tests that truncated, damaged or wrongly indexed tar shards raise errors that help."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tars import image, numbered, write_tar

from fastdecode.errors import StoreError
from fastdecode.stores import open_store
from fastdecode.stores._index import IndexBuilder
from fastdecode.stores.tar import index_tar, stream_tar
from fastdecode.stores.tar.store import SUFFIX

_COUNT = 6
_ITEM = 512 * (1 + 2 + 1 + 1)
"""An image of 641 bytes takes two blocks, its class one, and each has a header."""


@pytest.fixture
def shard(tmp_path: Path) -> Path:
    return write_tar(tmp_path / "t.tar", numbered(_COUNT))


def test_truncated_shard_names_its_last_member(shard: Path) -> None:
    """Truncation of a shard without an index is an error that names the last intact member."""
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


def test_an_index_of_another_shard_is_refused(shard: Path) -> None:
    """An index of another size is an error at opening.

    With that of another shard of the same size, each read is an error.
    """
    index_tar(shard)
    write_tar(shard, numbered(_COUNT, begin=10))
    store = open_store(shard)
    for index in range(_COUNT):
        with pytest.raises(StoreError, match=rf"item {index} \(000{index}\.jpg\).*another member"):
            store.read(index)
    write_tar(shard, numbered(_COUNT + 9))
    with pytest.raises(StoreError, match=r"index_tar\(.*t\.tar.\)"):
        open_store(shard)


def test_an_index_of_another_kind_is_refused(shard: Path) -> None:
    """An index that was not made for a tar shard is refused."""
    IndexBuilder().write(f"{shard}{SUFFIX}", {"kind": "folder"})

    with pytest.raises(StoreError, match="not the index of a tar shard"):
        open_store(shard)


def test_damaged_header_is_an_error(shard: Path) -> None:
    """A header with a wrong checksum ends a scan; with an index only its item fails."""
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


def test_compressed_shards_are_an_error(shard: Path) -> None:
    """A compressed tar is an error that says to decompress it; decompressed, it can be streamed."""
    whole = shard.read_bytes()
    shard.write_bytes(gzip.compress(whole))

    with pytest.raises(StoreError, match=r"not a tar file.*decompress it"):
        open_store(shard)
    with gzip.open(shard) as file:
        assert len(list(stream_tar(file))) == _COUNT


@pytest.mark.parametrize("zeros", [1, 2, 20, 21])
@pytest.mark.parametrize("rest", [0, 1, 511])
def test_zeros_after_the_end_are_ignored(shard: Path, zeros: int, rest: int) -> None:
    """Any number of zeros may follow the end of a tar; a single block counts as the end."""
    shard.write_bytes(shard.read_bytes()[: _COUNT * _ITEM] + bytes(512 * zeros + rest))
    index_tar(shard)

    assert len(open_store(shard)) == _COUNT
    assert len(list(stream_tar(shard))) == _COUNT


@pytest.mark.parametrize("zeros", [512, 1024, 10240])
@pytest.mark.parametrize(
    "behind",
    [
        lambda _: b"garbage" * 100,
        lambda _: b"x",
        lambda whole: whole,
        lambda whole: b"\n" + whole,  # which is at no multiple of a block any more
    ],
)
def test_other_bytes_after_the_end_are_an_error(shard: Path, zeros: int, behind: Any) -> None:
    """What follows the end of a tar may hold items, also another tar: it is an error.

    It names the place behind the end's first block of zeros, however many there are. The samples
    before it are streamed, and its advice makes the shard readable.
    """
    whole = shard.read_bytes()
    wanted = whole[: _COUNT * _ITEM] + bytes(zeros)
    shard.write_bytes(wanted + behind(whole))
    end = _COUNT * _ITEM + 512
    stream = stream_tar(shard)

    assert [sample.key for sample in islice(stream, _COUNT - 1)] == [
        f"{number:04d}.jpg" for number in range(_COUNT - 1)
    ]
    with pytest.raises(StoreError, match=rf"truncate -s {end}"):
        list(stream)
    for read in (open_store, index_tar):
        with pytest.raises(StoreError, match=rf"ends at byte {end}, .*truncate -s {end}"):
            read(shard)
    os.truncate(shard, end)
    assert len(open_store(shard)) == _COUNT


@pytest.mark.parametrize("seed", range(60))
def test_random_damage_gives_the_right_bytes_or_an_error(tmp_path: Path, seed: int) -> None:
    """With random damage to headers, a read gives the written bytes or a StoreError."""
    draw = random.Random(seed)
    names = ["x" * 130, "y", "z/" * 60 + "e", "w" * 400]
    parts = [(f"{name}.jpg", image(n)) for n, name in enumerate(names)]
    path = write_tar(tmp_path / "t.tar", parts, draw.choice([1, 2]))
    index_tar(path)
    data = bytearray(path.read_bytes())
    wanted = dict(parts)
    for _ in range(draw.randrange(1, 4)):
        # Damage only headers: no checksum guards the image bytes; that is the decoder's task.
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
