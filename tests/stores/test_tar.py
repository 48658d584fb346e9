"""Tests that tar shards of this package give back keys, bytes and targets."""

from __future__ import annotations

import hashlib
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest
from tars import image

from fastdecode.cli import main
from fastdecode.stores import create_store, open_store
from fastdecode.stores.tar.store import TarStore, index_tar, stream_tar
from fastdecode.stores.tar.writer import ShardFull, TarWriter

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
    """Its index is that which reading the shard makes, byte for byte, and so is its checksum."""
    with TarWriter(str(tmp_path / "t.tar"), ["a", "b"]) as writer:
        writer.add("a.jpg", image(0), 1)
        with pytest.raises(ValueError, match="there already"):
            writer.add("a.jpg", image(0), 1)
    with TarWriter(str(tmp_path / "u.tar")) as mixed:
        for number, (key, target) in enumerate(_ITEMS.items()):
            mixed.add(key, image(number), target)

    for made, classes in ((writer, ["a", "b"]), (mixed, [])):
        shard, index = Path(made.location), Path(f"{made.location}.fdx")
        written = index.read_bytes()
        index_tar(shard, classes=classes)
        assert index.read_bytes() == written
        assert hashlib.sha256(shard.read_bytes()).hexdigest() == made.sha256
        assert shard.stat().st_size == made.size


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


@pytest.mark.parametrize("change", ["targets", "images", "names"])
def test_names_of_another_shard_are_not_kept(tmp_path: Path, change: str) -> None:
    """An index keeps the class names of an earlier one only if that is one of this very shard."""
    shard = tmp_path / "train.tar"
    with create_store(shard, classes=["cat", "dog"]) as writer:
        writer.add("a.jpg", image(0), 0)
        writer.add("b.jpg", image(0), 1)
    assert index_tar(shard).classes == ["cat", "dog"]
    index = shard.with_name("train.tar.fdx").read_bytes()
    for path in tmp_path.iterdir():
        path.unlink()
    names = ("a.jpg", "c.jpg") if change == "names" else ("a.jpg", "b.jpg")
    with create_store(shard) as writer:
        for name, target in zip(names, (0, 2 if change == "targets" else 1), strict=True):
            writer.add(name, image(0) + b"\0" * 600 if change == "images" else image(0), target)
    shard.with_name("train.tar.fdx").write_bytes(index)

    with pytest.warns(UserWarning, match=r"train\.tar\.fdx are not kept"):
        assert index_tar(shard).classes == []


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


def test_indexes_of_two_shards_do_not_replace_each_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``index --to`` refuses two shards of one name, and the index of another shard."""
    shards = []
    for target, name in enumerate(("a", "b")):
        shards.append(str(tmp_path / name / "train.tar"))
        with create_store(shards[-1], classes=["x", "y"]) as writer:
            writer.add("a.jpg", image(0), target)
    to = ["index", "--to", str(tmp_path / "to")]

    with pytest.raises(SystemExit):
        main([*to, *shards])
    assert "have the same name" in capsys.readouterr().err
    assert not (tmp_path / "to").exists()
    assert main([*to, shards[0]]) == main([*to, shards[0]]) == 0
    assert main([*to, shards[1]]) == 1
    assert "is there already" in capsys.readouterr().err
    assert open_store(shards[0], index=tmp_path / "to" / "train.tar.fdx").classes == ["x", "y"]
