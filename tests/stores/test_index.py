"""Tests that an index is read back as it was written, and that forged ones do no harm."""

from __future__ import annotations

import json
import os
import pickle
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tars import image, numbered, write_tar

from fastdecode.errors import StoreError
from fastdecode.stores import open_store
from fastdecode.stores._index import MAGIC, Index, IndexBuilder
from fastdecode.stores.folder import INDEX
from fastdecode.stores.tar import index_tar

TARGETS: list[Any] = [
    None, 0, -1, (1 << 63) - 1, 1 << 70, 0.5, True, "cat", "", [1, 2.5], {"box": [1, 2]}, "ü"
]  # fmt: skip
KEYS = [*(f"dög/{number}.jpg" for number in range(len(TARGETS) - 1)), "\udcff.jpg"]


def builder() -> IndexBuilder:
    """Return a builder with an item for each kind of target."""
    made = IndexBuilder(["cat", "dög"], ["offset", "size"])
    for number, (key, target) in enumerate(zip(KEYS, TARGETS, strict=True)):
        made.add(key, target, offset=number << 40, size=number)
    return made


def test_index_round_trip(tmp_path: Path) -> None:
    """Keys, targets, columns, classes and the store's own fields are read back."""
    path = tmp_path / "a.fdx"
    builder().write(path, {"version": 1})

    for index in (Index.load(path), pickle.loads(pickle.dumps(Index.load(path)))):
        assert [index.key(at) for at in range(len(index))] == KEYS
        assert [index.target(at) for at in range(len(index))] == TARGETS
        assert type(index.target(TARGETS.index(True))) is type(TARGETS[TARGETS.index(True)])
        assert index["offset"].tolist() == [number << 40 for number in range(len(TARGETS))]
        assert index.classes == ["cat", "dög"]
        assert index.about == {"version": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["a.fdx"]
    empty = pickle.loads(pickle.dumps(Index(IndexBuilder().to_bytes(), "nothing")))
    assert (len(empty), empty.classes) == (0, [])


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


def _sealed(header: bytes, body: bytes) -> bytes:
    header += b" " * (-len(header) % 8)
    rest = len(header).to_bytes(8, "little") + header + body
    return MAGIC + zlib.crc32(rest).to_bytes(8, "little") + rest


def forged(column: str = "", values: bytes = b"", **fields: Any) -> bytes:
    """Make an index with changed columns or header fields, and a valid checksum."""
    made = IndexBuilder(["cat"], ["offset"])
    for number in range(3):
        made.add(f"{number}.jpg", {"n": number}, offset=number)
    data = made.to_bytes({"kind": "none"})
    length = int.from_bytes(data[16:24], "little")
    header, body = json.loads(data[24 : 24 + length]), bytearray(data[24 + length :])
    if column:
        place, _ = header["columns"][column]
        body[place : place + len(values)] = values
    for name, value in fields.items():
        if name in header["columns"]:
            header["columns"][name] = value(*header["columns"][name])
        else:
            header[name] = value
    return _sealed(json.dumps(header).encode(), bytes(body))


@pytest.mark.parametrize(
    ("data", "columns"),
    [
        *((_sealed(header, b""), []) for header in (b"[]", b"7", b"{}", b"[" * 100000, b"\xff")),
        (b"", []),
        (forged(), ["offset", "size"]),
        (forged(columns=[]), []),
        (forged(columns={}), []),
        (forged(classes=7), []),
        (forged(about=7), []),
        (forged(items=lambda *_: None), []),
        (forged(items=lambda place, _: (place, 1 << 40)), []),
        (forged(items=lambda place, size: (place - (1 << 40), size)), []),
        (forged(ends=lambda place, size: (place, size, 1)), []),
        (forged(ends=lambda place, size: (place, size - 1)), []),
        (forged(ends=lambda place, _: (place, 0)), []),
        (forged(ends=lambda place, size: (place, size - 8)), ["offset"]),
    ],
)
def test_what_is_no_such_index_is_damage(data: bytes, columns: list[str]) -> None:
    """An index is damaged if its header is not JSON or impossible, or if a column is missing."""
    Index(forged(), "it", ["offset"])
    with pytest.raises(StoreError, match="it: the index is damaged"):
        Index(data, "it", columns)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("ends", b"\x09"),
        *(("ends", number.to_bytes(16, "big")) for number in (1, 1 << 120, 5 << 64)),
        *(("items", text) for text in (b"\xff" * 20, b"[" * 20, b'["a"  ')),
    ],
)
def test_impossible_entries_are_damage(column: str, values: bytes) -> None:
    """An entry that is impossible is damage, and no other item's."""
    index = Index(forged(column, values), "it")
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


def test_keys_of_a_tar_are_relative(tmp_path: Path) -> None:
    """Keys from a tar are normalised to relative paths without ``..``."""
    shard = write_tar(tmp_path / "t.tar", [("a/../../../x.jpg", b"1"), ("b//c.jpg", b"2")])

    with open_store(shard) as store:
        assert [store.key(at) for at in range(2)] == ["a/x.jpg", "b/c.jpg"]
