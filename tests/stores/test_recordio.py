"""Tests of MXNet RecordIO."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest
import store_cases
from records import MAGIC, part, payloads, record, write_records

from fastdecode.stores import StoreError, open_store


@pytest.mark.parametrize("frame", [False, True])
def test_damage_never_gives_another_items_bytes(tmp_path: Path, frame: bool) -> None:
    """Truncation is an error, and so are flipped bits of a record's length."""

    def in_the_frame(data: bytes, draw: object) -> bytes:
        begin, _ = draw.choice(list(payloads(data)))
        place = begin + draw.choice((4, 5, 6, 7))
        return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]

    damaged = in_the_frame if frame else store_cases.truncated
    store_cases.check_random_damage(tmp_path / "a.rec", damaged, 80)


@pytest.mark.parametrize("before", [0, 1, 2, 3, 4, 8])
@pytest.mark.parametrize("after", [0, 1, 4])
def test_records_are_split_at_the_magic_number(tmp_path: Path, before: int, after: int) -> None:
    """Images with the magic number are read back; a record is split where it is aligned."""
    for times in (1, 2, 3):
        data = bytes(before) + MAGIC * times + bytes(after)
        where = tmp_path / f"{times}.rec"
        write_records(where, [("a.jpg", data, None), ("b.jpg", b"next", None)])
        written = where.read_bytes()
        numbers = sum(written[at : at + 4] == MAGIC for at in range(0, len(written), 4))
        assert numbers == (2 + times if before % 4 == 0 else 2)
        assert [payload[24:] for _, payload in payloads(written)] == [data, b"next"]
        with open_store(where) as store:
            assert [bytes(store.read(place)) for place in (0, 1)] == [data, b"next"]


def _write(where: Path, made: Sequence[bytes], keys: Sequence[int]) -> None:
    """Write records and their index."""
    where.write_bytes(b"".join(made))
    ends = accumulate(map(len, made), initial=0)
    lines = [f"{key}\t{at}\n" for key, at in zip(keys, ends, strict=False)]
    where.with_suffix(".idx").write_text("".join(lines))


def test_labels_are_the_targets(tmp_path: Path) -> None:
    """A whole label is read as an int, another as a float, and several as a list."""
    made = [
        record(b"a", 3, 10),
        record(b"b", 0.5, 11),
        record(b"c", 0, 12, [1, 2.5]),
        record(b"d", 0, 13, [4]),
    ]
    _write(tmp_path / "a.rec", made, [10, 11, 12, 13])

    with open_store(tmp_path / "a.rec") as store:
        again = pickle.loads(pickle.dumps(store))
        for one in (store, again):
            assert [one.target(place) for place in range(4)] == [3, 0.5, [1, 2.5], [4]]
            assert [type(one.target(place)) for place in range(2)] == [int, float]
            assert [bytes(one.read(place)) for place in range(4)] == [b"a", b"b", b"c", b"d"]
            assert [one.key(place) for place in range(4)] == ["10", "11", "12", "13"]


def test_file_without_index_is_an_error(tmp_path: Path) -> None:
    """Without an index, the error says how to make one."""
    (tmp_path / "a.rec").write_bytes(record(b"x"))

    with pytest.raises(FileNotFoundError, match=r"a\.rec: its index .*a\.idx is missing.*rec2idx"):
        open_store(tmp_path / "a.rec")


def test_the_order_is_that_of_the_index(tmp_path: Path) -> None:
    """Items have the order of the index lines, which im2rec may have shuffled."""
    made = [record(b"%d" % place, place, place) for place in range(4)]
    _write(tmp_path / "a.rec", made, range(4))
    lines = (tmp_path / "a.idx").read_text().splitlines()
    (tmp_path / "a.idx").write_text("\n".join(reversed(lines)))

    with open_store(tmp_path / "a.rec") as store:
        assert [bytes(store.read(place)) for place in range(4)] == [b"3", b"2", b"1", b"0"]


def test_an_index_elsewhere_may_name_some_records(tmp_path: Path) -> None:
    """``index=`` may name some records; a default index that does so is an error."""
    items = [(f"{place}.jpg", b"%d" % place, place) for place in range(4)]
    write_records(tmp_path / "a.rec", items)
    lines = (tmp_path / "a.idx").read_text().splitlines()
    (tmp_path / "some.idx").write_text("\n".join(lines[1:3]))

    with open_store(tmp_path / "a.rec", index=tmp_path / "some.idx") as store:
        assert [bytes(store.read(place)) for place in range(len(store))] == [b"1", b"2"]
        assert [store.key(place) for place in range(len(store))] == ["1", "2"]
    (tmp_path / "a.idx").write_text("\n".join(lines[1:3]))
    with pytest.raises(StoreError, match="belongs to another file"):
        open_store(tmp_path / "a.rec")
    with pytest.raises(FileNotFoundError, match=r"none\.idx"):
        open_store(tmp_path / "a.rec", index=tmp_path / "none.idx")


_WHOLE = record(b"a" * 8) + record(b"b" * 8)
_HEADS = b"", b"short", struct.pack("<IfQQ", 2**31, 0, 0, 0), struct.pack("<IfQQ", 1, 0, 0, 0)


@pytest.mark.parametrize(
    ("data", "lines", "item"),
    [
        *((_WHOLE[:end], "0\t0\n1\t40\n", "") for end in (1, 5, 44, 59)),
        *((part(head), "0\t0\n", ", item 0") for head in _HEADS),
        *((part(bytes(24), 1) + part(bytes(24), kind), "0\t0\n", "") for kind in (1, 0, 2)),
        *((_WHOLE, lines, "") for lines in ("0 0\n1\n", "0\t0\t0\n", "a\t0\n", "0\t-8\n", "\0")),
        *((_WHOLE, f"0\t{at}\n", "") for at in (1, 99999, 4)),
    ],
)
def test_damage_is_an_error(tmp_path: Path, data: bytes, lines: str, item: str) -> None:
    """Records or lines that are cut, malformed or out of order are an error that names the file."""
    (tmp_path / "a.rec").write_bytes(data)
    (tmp_path / "a.idx").write_text(lines)

    for ask in ("read", "target"):
        with pytest.raises(StoreError, match=f"{tmp_path / 'a'}.*{item}"):
            getattr(open_store(tmp_path / "a.rec"), ask)(0)


def test_a_remote_file_is_read(tmp_path: Path) -> None:
    """A file at a URI is read like a local one, but needs its ``.idx``."""
    fsspec = pytest.importorskip("fsspec")
    items = [*store_cases.images(), ("large.jpg", bytes(200_000))]
    items.append(("split.jpg", (bytes(60_000) + MAGIC) * 3))
    store_cases.write(tmp_path / "a.rec", items, [1])
    memory = fsspec.filesystem("memory")
    uri = "memory://stores-recordio/a.rec"
    for suffix in (".rec", ".idx"):
        memory.pipe(f"/stores-recordio/a{suffix}", (tmp_path / f"a{suffix}").read_bytes())
    with open_store(uri) as store:
        assert [bytes(store.read(place)) for place in range(len(store))] == [d for _, d in items]
        assert store.target(1) == 1
    memory.rm("/stores-recordio/a.idx")
    with pytest.raises(FileNotFoundError, match=r"index="):
        open_store(uri)
    assert len(open_store(uri, index=tmp_path / "a.idx")) == len(items)
