"""EXIF and XMP: the orientation in a file's metadata, as Pillow's `exif_transpose` sees it."""

from __future__ import annotations

import re
import struct

from fastdecode.types import Buffer

_ORIENTATION = 274
_VALUES = range(1, 9)
_PREFIX = b"Exif\0\0"
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
# Bytes of a value of each field type, and how those that Pillow takes for a number are read.
_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8)
_NUMBERS = {3: "H", 4: "I", 5: "II", 6: "b", 8: "h", 9: "i", 10: "ii", 11: "f", 12: "d", 13: "I",
            16: "Q"}  # fmt: skip


class _Order:
    """How a block's byte order is read."""

    def __init__(self, letter: str) -> None:
        self.letter = letter
        self.short, self.long = struct.Struct(f"{letter}H"), struct.Struct(f"{letter}I")
        self.entry = struct.Struct(f"{letter}HHII")
        self.tag = self.short.pack(_ORIENTATION)


_BIG, _LITTLE = _Order(">"), _Order("<")
# As in Pillow, which takes a big-endian BigTIFF for a TIFF.
_ORDERS = {
    **dict.fromkeys((b"MM\0*", b"MM*\0", b"MM\0+"), _BIG),
    **dict.fromkeys((b"II*\0", b"II\0*"), _LITTLE),
}


def orientation(data: Buffer, start: int, end: int, xmp: Buffer = b"") -> int:
    """Return the orientation, 1 to 8, from the EXIF block ``data[start:end]`` and an XMP packet.

    The packet counts if the block has no such tag. This never raises: the result is 1 if both are
    absent or damaged, or if the value is out of range.
    """
    value = _of_block(data, start, min(end, len(data)))
    if value is None:
        value = of_xmp(xmp)
    return int(value) if value in _VALUES else 1


def of_xmp(packet: Buffer) -> int:
    """Return what an XMP packet says of the orientation; 1 if it says nothing."""
    found = _XMP.search(packet)
    return int(found[1]) if found else 1


def _of_block(data: Buffer, start: int, end: int) -> float | None:
    """Return the value of the orientation tag; None if there is none, and 0 if it is unreadable.

    TIFF 6.0, section 2 (header, IFD); EXIF 2.32, 4.6.4 (tag 0x0112). Only IFD0 counts, because IFD1
    describes the thumbnail. As in Pillow, any type of number is one, and of several values or
    entries the first counts. A value beyond the block ends the directory.
    """
    if not 0 <= start < end:
        return None
    for _ in range(2):  # some writers repeat the prefix of a JPEG segment
        if data[start : start + len(_PREFIX)] == _PREFIX:
            start += len(_PREFIX)
    if start >= end:
        return None
    order = _ORDERS.get(bytes(data[start : start + 4]))
    if order is None or start + 8 > end:
        return 0
    first = start + order.long.unpack_from(data, start + 4)[0] + 2
    if first > end:
        return None
    count = order.short.unpack_from(data, first - 2)[0]
    size = order.entry.size
    entries = bytes(data[first : first + min(count, (end - first) // size) * size])
    if order.tag not in entries:  # most blocks without it need no loop
        return None
    room, seen = end - start, set()
    for at, (tag, kind, count, place) in enumerate(order.entry.iter_unpack(entries)):
        length = count * _SIZES[kind] if kind < len(_SIZES) else 0
        if not length or tag in seen:
            continue
        where = first + at * size + 8
        if length > 4:
            room -= length
            if room < 0:  # more than the whole block: skipped
                continue
            where = start + place
            if where + length > end:
                return None
        seen.add(tag)
        if tag == _ORIENTATION:
            return _number(data, where, order.letter, kind)
    return None


def _number(data: Buffer, at: int, order: str, kind: int) -> float:
    form = _NUMBERS.get(kind)
    if form is None:
        return 0
    value, *divisor = struct.unpack_from(order + form, data, at)
    if 0 in divisor:
        return 0
    return float(value / divisor[0] if divisor else value)
