"""Tests that tar shards of this package give back keys, bytes and targets."""

from __future__ import annotations

import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tars import image

from fastdecode.stores import create_store, open_store
from fastdecode.stores._index import Index
from fastdecode.stores.tar import TarStore, index_tar, stream_tar

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


@pytest.mark.parametrize("indexed", [True, False])
def test_tar_round_trip(shard: Path, indexed: bool) -> None:
    """Any key, target and bytes are read back, with the index, without, and as a stream."""
    if not indexed:
        Path(f"{shard}.fdx").unlink()
    with open_store(shard) as store:
        assert isinstance(store, TarStore)
        assert len(store) == len(_ITEMS)
        assert [store.key(i) for i in range(len(store))] == list(_ITEMS)
        targets = [store.target(i) for i in range(len(store))]
        assert targets == list(_ITEMS.values())
        assert list(map(type, targets)) == list(map(type, _ITEMS.values()))
        assert [bytes(store.read(i)) for i in range(len(store))] == [
            image(n) for n in range(len(_ITEMS))
        ]
        assert not indexed or len(pickle.dumps(store)) < 1000
        assert list(stream_tar(shard)) == [
            (store.key(i), store.read(i), store.target(i)) for i in range(len(store))
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


def test_indexing_again_gives_the_same_index(shard: Path) -> None:
    """Indexing a shard again gives the same index; the classes come from the old one."""
    index_tar(shard, classes=["cat", "dog"])
    before = Path(f"{shard}.fdx").read_bytes()

    index = index_tar(shard)

    assert isinstance(index, Index)
    assert len(index) == len(_ITEMS)
    assert Path(f"{shard}.fdx").read_bytes() == before
