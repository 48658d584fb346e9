"""Tests of MXNet RecordIO with the index that 0.2.0 wrote beside it: parts of records, damage."""

from __future__ import annotations

from pathlib import Path

import pytest
import store_cases
from records import MAGIC, payloads, write_records

from fastdecode.stores import StoreError, open_store


@pytest.mark.parametrize("known", [".rec.fdx", ".idx", ""])
def test_damage_never_gives_another_items_bytes(tmp_path: Path, known: str) -> None:
    """Truncation and flipped bits are errors with either index and without one."""

    def damaged(data: bytes, draw: object) -> bytes:
        for suffix in (".rec.fdx", ".idx"):
            if suffix != known and not (suffix == ".idx" and known == ".rec.fdx"):
                (tmp_path / f"a{suffix}").unlink(missing_ok=True)
        return (
            store_cases.truncated(data, draw) if known else store_cases.with_bit_flipped(data, draw)
        )

    def in_the_frame(data: bytes, draw: object) -> bytes:
        """Flip a bit of a record's length or id, where it does most harm."""
        begin, _ = draw.choice(list(payloads(data)))
        place = begin + draw.choice((4, 5, 6, 7, 16, 17))
        return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]

    store_cases.check_random_damage(tmp_path / "a.rec", damaged, 40)
    if known:
        (tmp_path / "a.rec").unlink()
        (tmp_path / "a.idx").unlink()
        store_cases.check_random_damage(tmp_path / "a.rec", in_the_frame, 80)


@pytest.mark.parametrize("suffix", [".idx", ".rec.fdx"])
def test_damaged_index_is_an_error(tmp_path: Path, suffix: str) -> None:
    """A truncated or changed index is an error that names the folder."""
    store_cases.write(tmp_path / "a.rec", store_cases.images(), [1])
    index = tmp_path / f"a{suffix}"
    whole = index.read_bytes()
    for place in range(0, len(whole), 1 + len(whole) // 50):
        for data in (whole[:place], whole[:place] + b"\x00" + whole[place + 1 :]):
            if data != whole:
                index.write_bytes(data)
                with pytest.raises(StoreError, match=str(tmp_path)):
                    open_store(tmp_path / "a.rec")


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
        for suffix in ("", ".rec.fdx", ".idx"):
            where.with_suffix(suffix).unlink(missing_ok=True) if suffix else None
            with open_store(where) as store:
                assert [bytes(store.read(place)) for place in (0, 1)] == [data, b"next"]
