"""EXIF: the orientation tag of an EXIF block of any format."""

from __future__ import annotations

from typing import Literal

from fastdecode.types import Buffer

_ENTRY = 12
# By the first bytes of the block: its byte order, and the first bytes of the entry "Orientation,
# type SHORT, one value" in that order.
_ORDERS: dict[bytes, tuple[Literal["little", "big"], bytes]] = {
    b"II*\0": ("little", b"\x12\x01\x03\x00\x01\x00\x00\x00"),
    b"MM\0*": ("big", b"\x01\x12\x00\x03\x00\x00\x00\x01"),
}


def orientation(data: Buffer, start: int, end: int) -> int:
    """Return the orientation, 1 to 8, from the EXIF block ``data[start:end]``.

    The block begins with the TIFF header (``II`` or ``MM``). This never raises: the result is 1 if
    the tag is absent, damaged or out of range. TIFF 6.0, section 2 (header, IFD) and EXIF 2.32,
    4.6.4 (tag 0x0112). Only IFD0 counts, because IFD1 describes the thumbnail.
    """
    if start < 0:
        return 1
    head = bytes(data[start : min(start + 14, end)])
    if head[:6] == b"Exif\0\0":  # some writers of PNG and WebP keep the prefix of a JPEG segment
        start += 6
        head = head[6:]
    if head[:4] not in _ORDERS:
        return 1
    order, pattern = _ORDERS[head[:4]]
    ifd = start + int.from_bytes(head[4:8], order)
    first = ifd + 2
    if first > end:
        return 1
    count = int.from_bytes(data[ifd:first], order)
    # Copy only the entries inside the block. To search them for the bytes of the tag is faster than
    # a loop over them.
    entries = bytes(data[first : min(first + _ENTRY * count, end)])
    at = entries.find(pattern)
    while at >= 0 and at % _ENTRY:  # inside another entry
        at = entries.find(pattern, at + 1)
    if at < 0:
        return 1
    value = int.from_bytes(entries[at + 8 : at + 10], order)
    return value if 1 <= value <= 8 else 1
