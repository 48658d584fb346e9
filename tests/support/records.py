"""Writes the stores that the package only reads: RecordIO, by its description alone, and HDF5."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

MAGIC = struct.pack("<I", 0xCED7230A)


def part(data: bytes, kind: int = 0) -> bytes:
    """Make a part of a record: 0 is a whole one, 1 its first part, 2 a middle one, 3 the last."""
    return MAGIC + struct.pack("<I", kind << 29 | len(data)) + data + bytes(-len(data) % 4)


def record(data: bytes, label: float = 0, number: int = 0, labels: Sequence[float] = ()) -> bytes:
    """Make a record; it is split wherever the magic number lies at a multiple of 4."""
    payload = struct.pack("<IfQQ", len(labels), label, number, 0)
    payload += struct.pack(f"<{len(labels)}f", *labels) + data
    pieces, begin, at = [], 0, payload.find(MAGIC)
    while at >= 0:
        if at % 4 == 0:
            pieces.append(payload[begin:at])
            begin = at + 4
        at = payload.find(MAGIC, at + 1)
    pieces.append(payload[begin:])
    if len(pieces) == 1:
        return part(payload)
    kinds = [1, *[2] * (len(pieces) - 2), 3]
    return b"".join(map(part, pieces, kinds))


def payloads(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the offset and payload of each record."""
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


def write_records(where: Path, items: Sequence[tuple[str, bytes, Any]]) -> None:
    """Write ``NAME.rec`` and ``NAME.idx``, whose keys are numbers."""
    made, lines = b"", b""
    for number, (_, data, target) in enumerate(items):
        labels = target if isinstance(target, list) else ()
        lines += b"%d\t%d\n" % (number, len(made))
        made += record(data, 0 if labels else target or 0, number, labels)
    where.write_bytes(made)
    where.with_suffix(".idx").write_bytes(lines)


def write_hdf5(
    where: Path, items: Sequence[tuple[str, bytes, Any]], *, images: str = "images", **others: Any
) -> None:
    """Write images and keys, labels if there are any, and other datasets, with h5py."""
    import h5py
    import numpy as np

    keys, data, labels = zip(*items, strict=True) if items else ((), (), ())
    with h5py.File(where, "w") as file:
        table = file.create_dataset(images, (len(data),), h5py.vlen_dtype(np.uint8))
        for place, each in enumerate(data):
            table[place] = np.frombuffer(each, np.uint8)
        columns = {"keys": list(keys), "labels": list(labels)} | others
        for name, values in columns.items():
            if len(values) and values[0] is not None:
                file[name] = values
