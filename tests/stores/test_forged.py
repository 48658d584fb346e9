"""Forged stores and indexes raise errors that name the item, and do no harm."""

from __future__ import annotations

import json
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from tars import image, numbered, write_tar

from fastdecode.errors import StoreError
from fastdecode.stores import create_store, open_store
from fastdecode.stores._index import Index, IndexBuilder
from fastdecode.stores.folder import INDEX
from fastdecode.stores.tar import index_tar


def forged(**changes: Any) -> bytes:
    """Return an index with a correct checksum and any header."""
    builder = IndexBuilder(["cat"], ["offset"])
    for number in range(3):
        builder.add(f"{number}.jpg", {"n": number}, offset=number)
    data = builder.to_bytes({"kind": "none"})
    length = int.from_bytes(data[16:24], "little")
    header = json.loads(data[24 : 24 + length])
    for name, value in changes.items():
        if name in header["columns"]:
            header["columns"][name] = value(*header["columns"][name])
        else:
            header[name] = value
    return _sealed(json.dumps(header).encode(), data[24 + length :])


def _sealed(header: bytes, body: bytes) -> bytes:
    header += b" " * (-len(header) % 8)
    rest = len(header).to_bytes(8, "little") + header + body
    return b"FDINDEX1" + zlib.crc32(rest).to_bytes(8, "little") + rest


@pytest.mark.parametrize(
    "changes",
    [
        {"key_ends": lambda _, place, size: ("<f8", place, size)},
        {"key_ends": lambda _, place, size: ("O", place, size)},
        {"offset": lambda _, place, size: ("<u4", place, size)},
        {"targets": lambda _, place, size: ("<u8", place, size)},
        {"keys": lambda kind, place, _: (kind, place, 1 << 40)},
        {"keys": lambda kind, place, size: (kind, place - (1 << 40), size)},
        {"keys": lambda *_: None},
        {"kinds": lambda kind, place, size: (kind, place, size, 1)},
        {"columns": []},
        {"columns": {}},
        {"count": -1},
        {"count": 1 << 80},
        {"classes": 7},
        {"about": 7},
    ],
)
def test_a_header_that_cannot_be_is_damage(changes: dict[str, Any]) -> None:
    """Columns with wrong types or positions are refused."""
    with pytest.raises(StoreError, match="it: the index is damaged"):
        Index(forged(**changes), "it")


@pytest.mark.parametrize("header", [b"[]", b"7", b"{}", b"[" * 100000, b"\xff"])
def test_a_header_that_is_none_is_damage(header: bytes) -> None:
    """A header that is not the right JSON, or no JSON, is refused."""
    with pytest.raises(StoreError, match="it: the index is damaged"):
        Index(_sealed(header, b""), "it")


@pytest.mark.parametrize("count", ["-1", "1e999", "1e15", "NaN", '"many"'])
def test_a_count_that_cannot_be(tmp_path: Path, count: str) -> None:
    """The count in an index is limited by the size of the index."""
    for number in range(2):
        shard = write_tar(tmp_path / f"t-{number}.tar", numbered(3))
        index_tar(shard)
    path = tmp_path / "t-1.tar.fdx"
    data = path.read_bytes()
    end = 24 + int.from_bytes(data[16:24], "little")
    header = data[24:end].rstrip().replace(b'"count": 3', b'"count": ' + count.encode())
    path.write_bytes(_sealed(header, data[end:]))

    with pytest.raises(StoreError, match=r"t-1\.tar\.fdx"):
        open_store(f"{tmp_path}/t-*.tar")


def test_columns_that_a_store_needs_must_be_there() -> None:
    """An index without the columns of the store is refused when it is opened."""
    Index(forged(), "it", ["offset"])
    with pytest.raises(StoreError, match="it: the index is damaged"):
        Index(forged(), "it", ["offset", "size"])


def _changed(column: str, values: list[int]) -> Index:
    data = forged()
    length = int.from_bytes(data[16:24], "little")
    header = json.loads(data[24 : 24 + length])
    body = bytearray(data[24 + length :])
    kind, place, size = header["columns"][column]
    code = {"u1": "B", "<u8": "Q", "<i8": "q"}[kind]
    packed = struct.pack(f"<{len(values)}{code}", *values)
    assert len(packed) <= size
    body[place : place + len(packed)] = packed
    return Index(_sealed(json.dumps(header).encode(), bytes(body)), "it")


@pytest.mark.parametrize("ends", [[0, 10, 5, 15], [0, 1 << 60, 1 << 61, 1 << 62], [9, 1, 1, 1]])
def test_keys_that_cannot_be_are_damage(ends: list[int]) -> None:
    """Ends of keys that decrease, or exceed all keys, raise a StoreError."""
    index = _changed("key_ends", ends)
    with pytest.raises(StoreError, match=r"it, item [01]: its entry in the index is damaged"):
        [index.key(at) for at in range(2)]


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("targets", [1 << 40]),
        ("targets", [-5]),
        ("targets", [-(1 << 63)]),
        ("targets", [3]),
        ("kinds", [9]),
        ("texts", [255] * 20),
        ("texts", [8, 0, 0, 0, 255]),
        ("texts", [1, 0, 0, 0, ord("{")]),
    ],
)
def test_targets_that_cannot_be_are_damage(column: str, values: list[int]) -> None:
    """Targets with a wrong position, length, JSON, UTF-8 or kind raise a StoreError."""
    with pytest.raises(StoreError, match="it, item 0: its entry in the index is damaged"):
        _changed(column, values).target(0)


def test_an_index_that_is_cut_while_it_is_open_is_an_error(tmp_path: Path) -> None:
    """Reading an index that is cut while it is open raises an error instead of a crash."""
    builder = IndexBuilder()
    for number in range(20000):
        builder.add(f"{number}.jpg", number)
    path = tmp_path / "a.fdx"
    builder.write(path)
    index = Index.load(path)
    assert index.key(19999) == "19999.jpg"
    os.truncate(path, 100)

    for ask in (index.key, index.target):
        with pytest.raises(StoreError, match=r"item 19999: .*a\.fdx: the file has been cut"):
            ask(19999)


def test_a_tar_whose_index_is_cut_is_an_error(tmp_path: Path) -> None:
    """A tar whose index is cut while it is open raises an error."""
    shard = write_tar(tmp_path / "t.tar", numbered(300))
    index_tar(shard)
    store = open_store(shard)
    os.truncate(f"{shard}.fdx", 100)

    for ask in (store.read, store.key, store.target):
        with pytest.raises(StoreError, match=r"item 299.*t\.tar\.fdx: the file has been cut"):
            ask(299)


@pytest.mark.parametrize("name", ["../secret.jpg", "a/../../secret.jpg", "{absolute}", "a\0b", ""])
def test_a_folder_gives_no_file_from_elsewhere(tmp_path: Path, name: str) -> None:
    """An index in a folder cannot name files outside the folder."""
    secret = tmp_path / "secret.jpg"
    secret.write_bytes(b"secret")
    folder = tmp_path / "folder"
    (folder / "a").mkdir(parents=True)
    (folder / "a..b.jpg").write_bytes(b"good")
    builder = IndexBuilder()
    builder.add(name.format(absolute=secret))
    builder.add("a..b.jpg")
    builder.write(folder / INDEX)

    with open_store(folder) as store:
        for ask in (store.read, store.source):
            with pytest.raises(StoreError, match=r"folder, item 0 .*does not lie in the folder"):
                ask(0)
        assert store.read(1) == b"good"
        assert store.source(1) == str(folder / "a..b.jpg")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_list_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    """A list that names a pipe does not block the reader."""
    os.mkfifo(tmp_path / "a.jpg")

    store = open_store([tmp_path / "a.jpg"])
    with pytest.raises(StoreError, match="not a regular file"):
        store.read(0)


def test_a_relabelled_shard_is_seen(tmp_path: Path) -> None:
    """A target that changed after the index was made is an error; the others are read."""
    shard = write_tar(tmp_path / "t.tar", numbered(3))
    index_tar(shard)
    write_tar(shard, [("0000.jpg", image(0)), ("0000.cls", b"7"), *numbered(2, begin=1)])

    with open_store(shard) as store:
        assert bytes(store.read(0)) == image(0)
        with pytest.raises(StoreError, match=r"item 0 \(0000\.jpg\).*another target.*index "):
            store.target(0)
        assert store.target(1) == 1
    index_tar(shard)
    assert open_store(shard).target(0) == 7


def test_an_index_without_places_of_targets_is_still_read(tmp_path: Path) -> None:
    """An index of an older version, without positions of targets, is still read."""
    shard = write_tar(tmp_path / "t.tar", numbered(3))
    index = index_tar(shard)
    old = IndexBuilder(index.classes, ("offset", "size", "head", "check"))
    for at in range(3):
        numbers = {name: int(index[name][at]) for name in ("offset", "size", "head", "check")}
        old.add(index.key(at), index.target(at), **numbers)
    old.write(f"{shard}.fdx", index.about)

    with open_store(shard) as store:
        assert [store.target(at) for at in range(3)] == [0, 1, 2]


def test_relabelled_records_are_seen(tmp_path: Path) -> None:
    """The label in a record must equal the one in the index."""
    path = tmp_path / "a.rec"
    for target in (3, 4):
        if path.exists():
            path.unlink()
            (tmp_path / "a.idx").unlink()
            kept = Path(f"{path}.fdx").read_bytes()
        with create_store(path) as writer:
            writer.add("a.jpg", b"1" * 100, target)
            writer.add("b.jpg", b"1" * 100, 9)
    Path(f"{path}.fdx").write_bytes(kept)

    with open_store(path) as store:
        for ask in (store.read, store.target):
            with pytest.raises(
                StoreError, match=r"item 0 \(a\.jpg\).*label is \[4\.0\], but in the index it is 3"
            ):
                ask(0)
        assert store.target(1) == 9


def test_keys_of_a_tar_lead_nowhere(tmp_path: Path) -> None:
    """Keys of a tar are relative, as writers require."""
    shard = write_tar(tmp_path / "t.tar", [("a/../../../x.jpg", b"1"), ("b//c.jpg", b"2")])

    with open_store(shard) as store:
        assert [store.key(at) for at in range(2)] == ["a/x.jpg", "b/c.jpg"]


def test_swapped_shards_never_mix_images_and_targets(tmp_path: Path) -> None:
    """Shards with equal headers and sizes are told apart by the bytes of their targets."""
    members = [("a.jpg", image(1)), ("a.cls", b"1")], [("a.jpg", image(2)), ("a.cls", b"2")]
    shard, other = (
        write_tar(tmp_path / name, each) for name, each in zip("xy", members, strict=True)
    )
    index_tar(shard)
    other.replace(shard)

    store = open_store(shard, "tar")
    with pytest.raises(StoreError, match="another target"):
        store.target(0)
