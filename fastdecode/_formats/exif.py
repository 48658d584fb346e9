"""EXIF and XMP: the orientation in a file's metadata, which Pillow's `exif_transpose` applies."""

from __future__ import annotations

import re
import struct

from fastdecode.types import Buffer

_ORIENTATION = 274
_VALUES = range(1, 9)
_PREFIX = b"Exif\0\0"
_XMP = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
_SHORT, _LONG = 3, 4  # field types


class _Order:
    """How a block's byte order is read."""

    def __init__(self, letter: str) -> None:
        self.short, self.long = struct.Struct(f"{letter}H"), struct.Struct(f"{letter}I")
        self.entry = struct.Struct(f"{letter}HHI4s")
        self.tag = self.short.pack(_ORIENTATION)


_ORDERS = {b"MM\0*": _Order(">"), b"II*\0": _Order("<")}


def orientation(data: Buffer, start: int, end: int, xmp: Buffer = b"") -> int:
    """Return the orientation, 1 to 8, from the EXIF block ``data[start:end]`` and an XMP packet.

    The packet counts if the block has no such tag. This never raises: the result is 1 if both are
    absent or damaged, or if the value is out of range.
    """
    value = _of_block(data, start, min(end, len(data)))
    if value is None:
        value = of_xmp(xmp)
    return value if value in _VALUES else 1


def of_xmp(packet: Buffer) -> int:
    """Return what an XMP packet says of the orientation; 1 if it says nothing."""
    found = _XMP.search(packet)
    return int(found[1]) if found else 1


def _of_block(data: Buffer, start: int, end: int) -> int | None:
    """Return the value of the orientation tag; None if there is none, and 0 if it is unreadable.

    TIFF 6.0, section 2 (header, IFD); EXIF 2.32, 4.6.4 (tag 0x0112, a SHORT; some writers use a
    LONG). Only IFD0 counts, because IFD1 describes the thumbnail. The first entry counts.
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
    for tag, kind, count, value in order.entry.iter_unpack(entries):
        if tag == _ORIENTATION and count == 1 and kind in (_SHORT, _LONG):
            found: int = (order.short if kind == _SHORT else order.long).unpack_from(value)[0]
            return found
    return None
