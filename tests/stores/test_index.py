"""Tests that an index is read back as it was written, and that forged ones do no harm."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import write_records
from tars import image, numbered, write_tar

from fastdecode.errors import StoreError
from fastdecode.stores import open_store
from fastdecode.stores._index import Index, IndexBuilder
from fastdecode.stores.folder import INDEX
from fastdecode.stores.tar import index_tar

TARGETS: list[Any] = [
    None, 0, -1, (1 << 63) - 1, 1 << 70, 0.5, True, "cat", "", [1, 2.5], {"box": [1, 2]}, "ü"
]  # fmt: skip


def builder() -> IndexBuilder:
    """Return a builder with an item for each kind of target."""
    made = IndexBuilder(["cat", "dög"], ["offset", "size"])
    for number, target in enumerate(TARGETS):
        made.add(f"dög/{number}.jpg", target, offset=number << 40, size=number)
    return made


def test_index_round_trip(tmp_path: Path) -> None:
    """Keys, targets, columns, classes and the store's own fields are read back."""
    path = tmp_path / "a.fdx"
    builder().write(path, {"version": 1})

    for index in (Index.load(path), pickle.loads(pickle.dumps(Index.load(path)))):
        assert [index.key(at) for at in range(len(index))] == [
            f"dög/{number}.jpg" for number in range(len(TARGETS))
        ]
        assert [index.target(at) for at in range(len(index))] == TARGETS
        assert type(index.target(TARGETS.index(True))) is type(TARGETS[TARGETS.index(True)])
        assert index["offset"].tolist() == [number << 40 for number in range(len(TARGETS))]
        assert index.classes == ["cat", "dög"]
        assert index.about == {"version": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["a.fdx"]


def test_empty_index(tmp_path: Path) -> None:
    """An index may be empty, and can be pickled without a file."""
    index = pickle.loads(pickle.dumps(Index(IndexBuilder().to_bytes(), "nothing")))

    assert len(index) == 0
    assert index.classes == []


@given(at=st.integers(0, 5000), bit=st.integers(-1, 7))
def test_damaged_index_is_an_error(at: int, bit: int) -> None:
    """A flipped bit anywhere in an index is found by its checksum, and so is a missing end."""
    data = bytearray(builder().to_bytes())
    at %= len(data)
    if bit < 0:
        del data[at:]
    else:
        data[at] ^= 1 << bit

    with pytest.raises(StoreError, match="it: the index is damaged"):
        Index(bytes(data), "it")


@pytest.mark.parametrize("target", [float("nan"), float("inf"), b"bytes", object(), {1, 2}])
def test_targets_that_json_cannot_hold_are_refused(target: object) -> None:
    """A target that JSON cannot hold is refused, and the builder stays usable."""
    made = IndexBuilder()
    with pytest.raises(ValueError, match="a target must be"):
        made.add("a", target)

    assert len(made) == 0
    made.add("b", 1)
    assert Index(made.to_bytes(), "it").key(0) == "b"


def forged(**changes: Any) -> bytes:
    """Make an index with changed header fields and a valid checksum."""
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
def test_impossible_header_fields_are_damage(changes: dict[str, Any]) -> None:
    """An index whose header has impossible columns, counts or classes is damaged."""
    with pytest.raises(StoreError, match="it: the index is damaged"):
        Index(forged(**changes), "it")


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        *((_sealed(header, b""), []) for header in (b"[]", b"7", b"{}", b"[" * 100000, b"\xff")),
        (b"", []),
        (forged(), ["offset", "size"]),
    ],
)
def test_what_is_no_such_index_is_damage(data: bytes, columns: list[str]) -> None:
    """An index is damaged if its header is not JSON, or a column is missing."""
    Index(forged(), "it", ["offset"])
    with pytest.raises(StoreError, match="it: the index is damaged"):
        Index(data, "it", columns)


@pytest.mark.parametrize("count", ["-1", "1e999", "1e15", "NaN", '"many"'])
def test_impossible_count_is_an_error(tmp_path: Path, count: str) -> None:
    """A count in an index header that its size does not allow is an error that names it."""
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


@pytest.mark.parametrize(
    ("column", "values"),
    [
        *(("key_ends", ends) for ends in ([0, 10, 5, 15], [0, 1 << 60, 1 << 61, 1 << 62])),
        ("key_ends", [9, 1, 1, 1]),
        *(("targets", [number]) for number in (1 << 40, -5, -(1 << 63), 3)),
        ("kinds", [9]),
        ("texts", [255] * 20),
        ("texts", [8, 0, 0, 0, 255]),
        ("texts", [1, 0, 0, 0, ord("{")]),
    ],
)
def test_impossible_entries_are_damage(column: str, values: list[int]) -> None:
    """An offset, length, text or kind of a key or target that is impossible is damage."""
    index = _changed(column, values)
    with pytest.raises(StoreError, match=r"it, item [01]: its entry in the index is damaged"):
        [(index.key(at), index.target(at)) for at in range(2)]


def test_tar_with_truncated_index_is_an_error(tmp_path: Path) -> None:
    """Reads, keys and targets of a tar raise an error after its index is truncated."""
    shard = write_tar(tmp_path / "t.tar", numbered(300))
    index_tar(shard)
    store = open_store(shard)
    os.truncate(f"{shard}.fdx", 100)

    for ask in (store.read, store.key, store.target):
        with pytest.raises(StoreError, match=r"item 299.*t\.tar\.fdx: the file has been cut"):
            ask(299)


@pytest.mark.parametrize("name", ["../secret.jpg", "a/../../secret.jpg", "{absolute}", "a\0b", ""])
def test_folder_index_cannot_name_files_outside(tmp_path: Path, name: str) -> None:
    """An index in a folder cannot name files outside that folder."""
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


def test_relabelled_shard_is_an_error(tmp_path: Path) -> None:
    """A target that differs from the index is an error; the other items are still read."""
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


def test_index_without_target_offsets_is_read(tmp_path: Path) -> None:
    """An index of an older version, without the offsets of targets, is still read."""
    shard = write_tar(tmp_path / "t.tar", numbered(3))
    index = index_tar(shard)
    old = IndexBuilder(index.classes, ("offset", "size", "head", "check"))
    for at in range(3):
        numbers = {name: int(index[name][at]) for name in ("offset", "size", "head", "check")}
        old.add(index.key(at), index.target(at), **numbers)
    old.write(f"{shard}.fdx", index.about)

    with open_store(shard) as store:
        assert [store.target(at) for at in range(3)] == [0, 1, 2]


def test_relabelled_records_are_an_error(tmp_path: Path) -> None:
    """A label in a record that differs from the index is an error."""
    path = tmp_path / "a.rec"
    for target in (3, 4):
        if path.exists():
            path.unlink()
            (tmp_path / "a.idx").unlink()
            kept = Path(f"{path}.fdx").read_bytes()
        write_records(path, [("a.jpg", b"1" * 100, target), ("b.jpg", b"1" * 100, 9)])
    Path(f"{path}.fdx").write_bytes(kept)

    with open_store(path) as store:
        for ask in (store.read, store.target):
            with pytest.raises(
                StoreError, match=r"item 0 \(a\.jpg\).*label is \[4\.0\], but in the index it is 3"
            ):
                ask(0)
        assert store.target(1) == 9


def test_keys_of_a_tar_are_relative(tmp_path: Path) -> None:
    """Keys from a tar are normalised to relative paths without ``..``."""
    shard = write_tar(tmp_path / "t.tar", [("a/../../../x.jpg", b"1"), ("b//c.jpg", b"2")])

    with open_store(shard) as store:
        assert [store.key(at) for at in range(2)] == ["a/x.jpg", "b/c.jpg"]
