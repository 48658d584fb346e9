"""Tests of RecordIO files from MXNet's tools: no index, only an ``.idx``."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from pathlib import Path

import pytest
import store_cases

from fastdecode.stores import StoreError, open_store

MAGIC = struct.pack("<I", 0xCED7230A)


def _record(data: bytes, label: float = 0, number: int = 0, labels: Sequence[float] = ()) -> bytes:
    """Make a record with a single part, by the format's description."""
    payload = struct.pack("<IfQQ", len(labels), label, number, 0)
    payload += struct.pack(f"<{len(labels)}f", *labels) + data
    return MAGIC + struct.pack("<I", len(payload)) + payload + bytes(-len(payload) % 4)


def _write(where: Path, made: Sequence[bytes], keys: Sequence[int] | None = None) -> None:
    """Write records, and an index if keys are given."""
    where.write_bytes(b"".join(made))
    at = 0
    lines = []
    for key, record in zip(keys or (), made, strict=False):
        lines.append(f"{key}\t{at}\n")
        at += len(record)
    if keys is not None:
        where.with_suffix(".idx").write_text("".join(lines))


def test_labels_are_the_targets(tmp_path: Path) -> None:
    """A whole label is read as an int, another as a float, and several as a list."""
    made = [
        _record(b"a", 3, 10),
        _record(b"b", 0.5, 11),
        _record(b"c", 0, 12, [1, 2.5]),
        _record(b"d", 0, 13, [4]),
    ]
    _write(tmp_path / "a.rec", made, [10, 11, 12, 13])

    with open_store(tmp_path / "a.rec") as store:
        again = pickle.loads(pickle.dumps(store))
        for one in (store, again):
            assert [one.target(place) for place in range(4)] == [3, 0.5, [1, 2.5], [4]]
            assert [type(one.target(place)) for place in range(2)] == [int, float]
            assert [bytes(one.read(place)) for place in range(4)] == [b"a", b"b", b"c", b"d"]
            assert [one.key(place) for place in range(4)] == ["10", "11", "12", "13"]


def test_file_without_index_is_scanned(tmp_path: Path) -> None:
    """Without an index the records are scanned and numbered."""
    _write(tmp_path / "a.rec", [_record(b"x" * place, place) for place in range(9)])

    with open_store(tmp_path / "a.rec") as store:
        assert [bytes(store.read(place)) for place in range(9)] == [b"x" * p for p in range(9)]
        assert [store.target(place) for place in range(9)] == list(range(9))
        assert store.key(8) == "8"


@pytest.mark.parametrize("end", [1, 5, 44, 59])
def test_truncated_file_without_index_is_an_error(tmp_path: Path, end: int) -> None:
    """Opening a truncated file without an index is an error that names the last record."""
    whole = _record(b"a" * 8) + _record(b"b" * 8)
    (tmp_path / "a.rec").write_bytes(whole[:end])

    with pytest.raises(StoreError, match=f"item {end // 40}"):
        open_store(tmp_path / "a.rec")


def test_the_order_is_that_of_the_index(tmp_path: Path) -> None:
    """Items have the order of the index lines, which im2rec may have shuffled."""
    made = [_record(b"%d" % place, place, place) for place in range(4)]
    _write(tmp_path / "a.rec", made, range(4))
    lines = (tmp_path / "a.idx").read_text().splitlines()
    (tmp_path / "a.idx").write_text("\n".join(reversed(lines)))

    with open_store(tmp_path / "a.rec") as store:
        assert [bytes(store.read(place)) for place in range(4)] == [b"3", b"2", b"1", b"0"]


def test_an_index_elsewhere_may_name_some_records(tmp_path: Path) -> None:
    """``index=`` may name some of the records; a default index that does is an error."""
    made = [_record(b"%d" % place, place, place) for place in range(4)]
    _write(tmp_path / "a.rec", made, range(4))
    lines = (tmp_path / "a.idx").read_text().splitlines()
    (tmp_path / "some.idx").write_text("\n".join(lines[1:3]))

    with open_store(tmp_path / "a.rec", index=tmp_path / "some.idx") as store:
        assert [bytes(store.read(place)) for place in range(len(store))] == [b"1", b"2"]
    (tmp_path / "a.idx").write_text("\n".join(lines[1:3]))
    with pytest.raises(StoreError, match="belongs to another file"):
        open_store(tmp_path / "a.rec")
    with pytest.raises(FileNotFoundError, match=r"none\.idx"):
        open_store(tmp_path / "a.rec", index=tmp_path / "none.idx")


def test_offset_of_another_record_is_an_error(tmp_path: Path) -> None:
    """An offset that leads to a record with another id is an error that names the item."""
    made = [_record(b"%d" % place, place, place) for place in range(9)]
    _write(tmp_path / "a.rec", made, range(9))
    lines = (tmp_path / "a.idx").read_text().splitlines()
    lines[4] = "4\t" + lines[5].split("\t")[1]
    (tmp_path / "a.idx").write_text("\n".join(lines))

    with open_store(tmp_path / "a.rec") as store:
        assert bytes(store.read(3)) == b"3"
        for method in (store.read, store.target):
            with pytest.raises(StoreError, match=r"item 4 \(4\): there is another record"):
                method(4)


@pytest.mark.parametrize(
    "text", ["0 0\n1\n", "0\t0\t0\n", "a\t0\n", "0\t-8\n", "0\t1\n", "0\t99999\n", "0\t4\n", "\0"]
)
def test_malformed_index_lines_are_an_error(tmp_path: Path, text: str) -> None:
    """An index line with wrong fields or an impossible offset is an error that names the file."""
    _write(tmp_path / "a.rec", [_record(b"a"), _record(b"b")])
    (tmp_path / "a.idx").write_text(text)

    with pytest.raises(StoreError, match=str(tmp_path / "a")):
        open_store(tmp_path / "a.rec")


def test_ids_that_are_all_zero_are_ignored(tmp_path: Path) -> None:
    """Records whose ids are all zero are read without comparing ids."""
    _write(tmp_path / "a.rec", [_record(b"%d" % place) for place in range(9)], range(9))

    with open_store(tmp_path / "a.rec") as store:
        assert [bytes(store.read(place)) for place in range(9)] == [b"%d" % p for p in range(9)]


@pytest.mark.parametrize(
    "payload",
    [b"", b"short", struct.pack("<IfQQ", 2**31, 0, 0, 0), struct.pack("<IfQQ", 1, 0, 0, 0)],
)
def test_short_records_are_an_error(tmp_path: Path, payload: bytes) -> None:
    """A record shorter than its header requires is an error that names the item."""
    record = MAGIC + struct.pack("<I", len(payload)) + payload + bytes(-len(payload) % 4)
    (tmp_path / "a.rec").write_bytes(record)

    with open_store(tmp_path / "a.rec") as store:
        for method in (store.read, store.target):
            with pytest.raises(StoreError, match=r"a\.rec, item 0 \(0\): the record is too short"):
                method(0)


def test_parts_out_of_order_are_an_error(tmp_path: Path) -> None:
    """A part of a record without its first or last part is an error."""
    for kinds in ((1, 1), (1, 0), (1, 2)):
        made = [MAGIC + struct.pack("<I", kind << 29 | 24) + bytes(24) for kind in kinds]
        _write(tmp_path / "a.rec", made, [0])
        with pytest.raises(StoreError, match=r"a\.rec"):
            open_store(tmp_path / "a.rec")


def test_a_remote_file_is_read(tmp_path: Path) -> None:
    """A file at a URI is read like a local one, but needs its ``.idx``."""
    fsspec = pytest.importorskip("fsspec")
    items = [*store_cases.images(), ("large.jpg", bytes(200_000))]
    store_cases.write(tmp_path / "a.rec", items, [1])
    memory = fsspec.filesystem("memory")
    uri = "memory://stores-recordio/a.rec"
    for suffix in (".rec", ".idx"):
        memory.pipe(f"/stores-recordio/a{suffix}", (tmp_path / f"a{suffix}").read_bytes())
    with open_store(uri) as store:
        assert [bytes(store.read(place)) for place in range(len(store))] == [d for _, d in items]
        assert store.target(1) == 1
    memory.rm("/stores-recordio/a.idx")
    with pytest.raises(StoreError, match=r"index="):
        open_store(uri)
    assert len(open_store(uri, index=tmp_path / "a.idx")) == len(items)
