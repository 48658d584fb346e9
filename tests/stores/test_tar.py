"""Tar shards that are written and read here."""

from __future__ import annotations

import pickle
import tarfile
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from tars import image

from fastdecode.stores import create_store, open_store
from fastdecode.stores._index import Index
from fastdecode.stores.tar import END, TarStore, TarWriter, append_members, index_tar, stream_tar
from fastdecode.stores.tar.format import FileSource, members
from fastdecode.stores.tar.names import Names

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
def test_what_was_written_is_read(shard: Path, indexed: bool) -> None:
    """Any key, any target and all bytes are read back, with the index and without."""
    if not indexed:
        Path(f"{shard}.fdx").unlink()
    with open_store(shard) as store:
        assert isinstance(store, TarStore)
        assert len(store) == len(_ITEMS)
        assert [store.key(i) for i in range(len(store))] == list(_ITEMS)
        targets = [store.target(i) for i in range(len(store))]
        assert targets == list(_ITEMS.values())
        assert list(map(type, targets)) == list(map(type, _ITEMS.values()))
        for index in (3, 0, len(_ITEMS) - 1, 3):
            assert bytes(store.read(index)) == image(index)


def test_the_stream_gives_the_same(shard: Path) -> None:
    """Streaming gives the keys, bytes and targets of the store."""
    found = list(stream_tar(shard))

    assert [sample.key for sample in found] == list(_ITEMS)
    assert [sample.target for sample in found] == list(_ITEMS.values())
    assert [bytes(sample.data) for sample in found] == [image(n) for n in range(len(_ITEMS))]


@pytest.mark.parametrize("indexed", [True, False])
def test_a_store_goes_to_other_processes(shard: Path, indexed: bool) -> None:
    """A pickled store equals the original, and is small if there is an index."""
    if not indexed:
        Path(f"{shard}.fdx").unlink()
    store = open_store(shard)
    sent = pickle.dumps(store)
    again = pickle.loads(sent)

    assert [again.key(i) for i in range(len(again))] == list(_ITEMS)
    assert bytes(again.read(4)) == image(4)
    assert not indexed or len(sent) < 1000


def test_what_is_there_is_not_replaced(tmp_path: Path) -> None:
    """A shard that another process has created meanwhile is kept."""
    writer = TarWriter(str(tmp_path / "t.tar"))
    writer.add("a.jpg", image(0))
    (tmp_path / "t.tar").write_bytes(b"mine")

    with pytest.raises(FileExistsError, match="there already"):
        writer.close()

    assert [path.name for path in tmp_path.iterdir()] == ["t.tar"]
    assert (tmp_path / "t.tar").read_bytes() == b"mine"


def test_an_empty_shard_has_no_images(tmp_path: Path) -> None:
    """A shard without members can be written and read."""
    create_store(tmp_path / "t.tar").close()

    with open_store(tmp_path / "t.tar") as store:
        assert len(store) == 0
        with pytest.raises(IndexError, match="no item 0"):
            store.read(0)
    assert not list(stream_tar(tmp_path / "t.tar"))


def test_members_can_be_appended_after_a_stop(shard: Path, tmp_path: Path) -> None:
    """Appending to a tar that was cut at the end of an item gives the same bytes."""
    items = list(enumerate(_ITEMS.items()))
    path = tmp_path / "again.tar"
    with path.open("wb") as file:
        for number, (key, target) in items[:9]:
            offset, size = append_members(file, key, image(number), target, names_at(path))
            file.flush()
            assert path.read_bytes()[offset : offset + size] == image(number)
    with path.open("r+b") as file:
        names = names_in(file)
        assert file.tell() == path.stat().st_size
        for number, (key, target) in items[9:]:
            append_members(file, key, image(number), target, names)
        with pytest.raises(ValueError, match="there already"):
            append_members(file, "a.jpg", b"", None, names)
        file.write(END)

    assert path.read_bytes() == shard.read_bytes()


def names_at(path: Path) -> Names:
    """Return the names in a tar that is still being written."""
    with path.open("rb") as file:
        return names_in(file)


def names_in(file: BinaryIO) -> Names:
    """Return the names in a tar without its end."""
    names = Names()
    for member in members(FileSource(file, file.name), ended=False):
        names.add(member)
    return names


def test_tarfile_reads_what_was_written(shard: Path) -> None:
    """Python's tarfile finds every image under its own name."""
    with tarfile.open(shard) as tar:
        found = {member.name: tar.extractfile(member).read() for member in tar.getmembers()}

    assert len(found) == len(_ITEMS) + sum(target is not None for target in _ITEMS.values())
    assert found["a.jpg"] == image(0)
    assert found["dir/x.JPEG"] == image(5)
    assert found["dir/x.json"] == b"0.5"
    assert found[f"{'z' * 150}/{'y' * 200}.jpg"] == image(11)


def test_indexing_again_keeps_all(shard: Path) -> None:
    """An index can be made again from the shard; the classes come from the old index."""
    index_tar(shard, classes=["cat", "dog"])
    before = Path(f"{shard}.fdx").read_bytes()

    index = index_tar(shard)

    assert isinstance(index, Index)
    assert len(index) == len(_ITEMS)
    assert Path(f"{shard}.fdx").read_bytes() == before
