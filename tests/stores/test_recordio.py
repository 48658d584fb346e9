"""RecordIO stores that are written here: round trips, other readers, damage."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import store_cases
from corpus import CORPUS

from fastdecode import decode
from fastdecode.stores import StoreError, create_store, open_store

MAGIC = struct.pack("<I", 0xCED7230A)


def records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Parse a file by the description of the format; return offsets and payloads."""
    at = 0
    while at < len(data):
        begin, payload = at, b""
        while True:
            assert data[at : at + 4] == MAGIC
            (word,) = struct.unpack_from("<I", data, at + 4)
            kind, length = word >> 29, word % 2**29
            payload += data[at + 8 : at + 8 + length]
            at += 8 + (length + 3) // 4 * 4
            if kind in (0, 3):
                break
            payload += MAGIC
        yield begin, payload


@pytest.mark.parametrize("known", [".rec.fdx", ".idx", ""])
def test_damage_never_gives_another_items_bytes(tmp_path: Path, known: str) -> None:
    """Cut files and flipped bits are errors, with and without an index."""

    def damaged(data: bytes, draw: object) -> bytes:
        for suffix in (".rec.fdx", ".idx"):
            if suffix != known and not (suffix == ".idx" and known == ".rec.fdx"):
                (tmp_path / f"a{suffix}").unlink(missing_ok=True)
        return store_cases.cut(data, draw) if known else store_cases.flipped(data, draw)

    def in_the_frame(data: bytes, draw: object) -> bytes:
        """Flip a bit of a record's length or id."""
        begin, _ = draw.choice(list(records(data)))
        place = begin + draw.choice((4, 5, 6, 7, 16, 17))
        return data[:place] + bytes([data[place] ^ 1 << draw.randrange(8)]) + data[place + 1 :]

    store_cases.damaged_at_random(tmp_path / "a.rec", damaged, 40)
    if known:
        (tmp_path / "a.rec").unlink()
        (tmp_path / "a.idx").unlink()
        store_cases.damaged_at_random(tmp_path / "a.rec", in_the_frame, 80)


@pytest.mark.parametrize("suffix", [".idx", ".rec.fdx"])
def test_a_damaged_index_is_noticed(tmp_path: Path, suffix: str) -> None:
    """An index that was cut or changed is noticed."""
    store_cases.write(tmp_path / "a.rec", store_cases.images(), [1])
    index = tmp_path / f"a{suffix}"
    whole = index.read_bytes()
    for place in range(0, len(whole), 1 + len(whole) // 50):
        for data in (whole[:place], whole[:place] + b"\x00" + whole[place + 1 :]):
            if data != whole:
                index.write_bytes(data)
                with pytest.raises(StoreError, match=str(tmp_path)):
                    open_store(tmp_path / "a.rec")


def test_the_records_are_as_described(tmp_path: Path) -> None:
    """An independent reader finds number, labels and image in each record."""
    items = store_cases.images()
    store_cases.write(tmp_path / "a.rec", items, store_cases.NUMBERS)
    lines = (tmp_path / "a.idx").read_text().splitlines()

    found = list(records((tmp_path / "a.rec").read_bytes()))
    assert [f"{place}\t{begin}" for place, (begin, _) in enumerate(found)] == lines
    for place, (_, payload) in enumerate(found):
        flag, label, number, other = struct.unpack_from("<IfQQ", payload)
        target = store_cases.NUMBERS[place % len(store_cases.NUMBERS)]
        labels = target if isinstance(target, list) else []
        assert (flag, number, other) == (len(labels), place, 0)
        assert label == pytest.approx(0 if labels else target or 0)
        assert list(struct.unpack_from(f"<{flag}f", payload, 24)) == labels
        assert payload[24 + 4 * flag :] == items[place][1]


@pytest.mark.parametrize("before", [0, 1, 2, 3, 4, 8])
@pytest.mark.parametrize("after", [0, 1, 4])
def test_records_with_the_magic_number_are_cut_there(
    tmp_path: Path, before: int, after: int
) -> None:
    """Images that contain the magic number are read back, also if it repeats."""
    for times in (1, 2, 3):
        data = bytes(before) + MAGIC * times + bytes(after)
        where = tmp_path / f"{times}.rec"
        with create_store(where) as writer:
            writer.add("a.jpg", data)
            writer.add("b.jpg", b"next")

        written = where.read_bytes()
        numbers = sum(written[at : at + 4] == MAGIC for at in range(0, len(written), 4))
        assert numbers == (2 + times if before % 4 == 0 else 2)
        assert [payload[24:] for _, payload in records(written)] == [data, b"next"]
        for suffix in ("", ".rec.fdx", ".idx"):
            where.with_suffix(suffix).unlink(missing_ok=True) if suffix else None
            with open_store(where) as store:
                assert [bytes(store.read(place)) for place in (0, 1)] == [data, b"next"]


@pytest.mark.parametrize("target", ["a cat", {"a": 1}, [], [[1]], 2**24 + 1, [2**24 + 1], 1e39])
def test_targets_that_other_readers_would_not_get_are_refused(
    tmp_path: Path, target: object
) -> None:
    """A record holds float32, so texts and integers that would change are refused."""
    with create_store(tmp_path / "a.rec") as writer:
        with pytest.raises(ValueError, match=r"RecordIO (holds|stores)"):
            writer.add("a.jpg", b"1", target)
        writer.add("b.jpg", b"2", 2**24)

    with open_store(tmp_path / "a.rec") as store:
        assert (len(store), store.key(0), store.target(0)) == (1, "b.jpg", 2**24)


def test_the_index_of_other_records_is_not_overwritten(tmp_path: Path) -> None:
    """An existing .idx is not overwritten; this is checked at the beginning and at the end."""
    (tmp_path / "a.idx").write_text("mine")
    with pytest.raises(FileExistsError, match=r"a\.idx is there already"):
        create_store(tmp_path / "a.rec")
    writer = create_store(tmp_path / "b.rec")
    writer.add("a.jpg", b"1")
    (tmp_path / "b.idx").write_text("mine")
    with pytest.raises(FileExistsError, match=r"b\.idx is there already"):
        writer.close()

    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "a.idx": "mine",
        "b.idx": "mine",
    }


def test_dali_reads_it(tmp_path: Path) -> None:
    """DALI's reader for MXNet finds the same bytes and labels."""
    pytest.importorskip("nvidia.dali")
    from nvidia.dali import fn, pipeline_def

    files = sorted((CORPUS / "jpeg_kinds").glob("*_base.jpg"))
    items = [(file.name, file.read_bytes()) for file in files]
    # A comment that holds the magic number where it is aligned, so that the record has parts.
    comment = b"\xff\xfe\x00\x0a" + b"\0\0" + MAGIC + b"\0\0"
    items.append(("parts.jpg", items[0][1][:2] + comment + items[0][1][2:]))
    with create_store(tmp_path / "a.rec") as writer:
        for place, (key, data) in enumerate(items):
            writer.add(key, data, place * 3)

    @pipeline_def(batch_size=len(items), num_threads=2, device_id=None)
    def reading() -> tuple[object, object, object]:
        encoded, labels = fn.readers.mxnet(
            path=[str(tmp_path / "a.rec")], index_path=[str(tmp_path / "a.idx")]
        )
        return encoded, labels, fn.decoders.image(encoded, device="cpu")

    pipeline = reading()
    pipeline.build()
    encoded, labels, pixels = pipeline.run()
    for place, (_, data) in enumerate(items):
        assert encoded.at(place).tobytes() == data
        assert labels.at(place).tolist() == [place * 3]
        assert np.array_equal(pixels.at(place), decode(data, mode="RGB"))
