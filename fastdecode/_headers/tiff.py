"""TIFF and BigTIFF: the first image file directory, and whether all of it is in the file."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from operator import add

from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Color, Header

__all__ = ["missing", "parse"]

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_ORIENTATION, _SAMPLES, _XMP = 274, 277, 700
_WANTED = frozenset(
    {_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _ORIENTATION, _SAMPLES, _XMP}
)
# The tags that Pillow and libtiff decode pixels by. XMP is the orientation's second place.
_TELLING = frozenset({
    _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _ORIENTATION, _SAMPLES, _XMP,
    266, 273, 278, 279, 284,  # fill order; strips: offsets, rows, sizes; planes
    292, 293, 317, 320,  # fax options, predictor, colour map
    322, 323, 324, 325, 332, 338, 339,  # tiles; inks, extra samples, sample format
    347, *range(512, 522), 529, 530, 531, 532, 50674,  # JPEG, new and old; YCbCr; LERC
})  # fmt: skip
_STRIPS, _TILES = (273, 279), (324, 325)
"""Tags of where each lies, and of its bytes."""

_OLD_JPEG = 6
# Field types that hold integers: struct letter by type number (BYTE … LONG8, IFD8).
_INTEGERS = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 16: "Q", 17: "q", 18: "Q"}
# Bytes of a value of each field type; a field of another type is ignored by everyone.
_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)
_BYTES = frozenset({1, 2, 7})  # BYTE, ASCII, UNDEFINED: what XMP is stored as
_COLORS: dict[int, Color] = {
    0: "gray", 1: "gray", 2: "rgb", 3: "palette", 4: "gray", 5: "cmyk", 6: "ycc",
}  # fmt: skip
_XMP_ORIENTATION = re.compile(rb'tiff:Orientation(?:="|>)([0-9])')
_MAX_ENTRIES = 65535
_MAX_XMP = 1 << 20


def parse(data: Buffer) -> Header:
    """Read the header of a TIFF's first page.

    Pillow turns a TIFF's pixels upright while it loads them (it alone among the stored-pixel
    formats), so `width` and `height` are those of the upright image, and `orientation` is 1.
    `struct.error` says that the data ends first.

    TIFF 6.0, section 2; BigTIFF's 8-byte offsets. Of two entries with one tag the first counts, and
    without the tag the XMP packet's orientation does: both as in Pillow.
    """
    order, big, offset = _start(data)
    fields: dict[int, tuple[int, ...]] = {}
    xmp = (0, 0)
    for tag, kind, count, at in _fields(data, order, offset, big):
        if tag not in _WANTED or not count or at < 0:
            continue
        if tag not in fields and kind in _INTEGERS and tag != _XMP:
            fields[tag] = _values(data, order + _INTEGERS[kind], min(count, 16), at)
        elif tag == _XMP and kind in _BYTES:
            xmp = (at, at + min(count, _MAX_XMP))
    return _header(fields, _upright_swaps(data, fields, xmp), _has_next(data, order, offset, big))


def missing(data: Buffer) -> str:
    """Say what the pixels are decoded by and the file ends before; empty if all of it is there.

    Of pixels that are not compressed the decoder knows how many there must be. For a field that
    lies beyond the end Pillow only warns ("Truncated File Read", "Skipping tag"), and decodes
    without it; newer versions also without those that follow it. They skip a field likewise where
    the fields together would have more bytes than the file. libtiff fills in what an old-style
    JPEG lacks.
    """
    order, big, offset = _start(data)
    room = len(data)
    lost = False
    seen = set()
    values: dict[int, tuple[int, ...]] = {}
    for tag, kind, count, at in _fields(data, order, offset, big):
        if at < 0:
            return f"the TIFF's directory at {offset} is truncated: the file has {len(data)} bytes"
        size = count * (_SIZES[kind] if kind < len(_SIZES) else 0)
        if size > (8 if big else 4) and tag not in seen:
            seen.add(tag)  # of two fields with one tag the first counts
            room -= size
            lost = lost or at + size > len(data) or room < 0
        if lost and size and tag in _TELLING:
            return (
                f"the TIFF's field {tag}, or one before it, lies beyond the end of the file "
                f"({len(data)} bytes)"
            )
        if tag in (_COMPRESSION, *_STRIPS, *_TILES) and tag not in values and kind in _INTEGERS:
            values[tag] = _values(data, order + _INTEGERS[kind], count, at)
    if values.get(_COMPRESSION, (1,)) == (1,):
        return ""
    for offsets, sizes in (_STRIPS, _TILES):
        end = max(map(add, values.get(offsets, ()), values.get(sizes, ())), default=0)
        if end > len(data):
            return f"a strip or tile of the TIFF ends at {end}, past its {len(data)} bytes"
    return ""


def _start(data: Buffer) -> tuple[str, bool, int]:
    """Byte order, whether it is a BigTIFF, and where its first directory lies."""
    order = "<" if data[:2] == b"II" else ">"
    big = 43 in (data[2], data[3])
    offset = struct.unpack_from(order + ("Q" if big else "I"), data, 8 if big else 4)[0]
    if offset >= len(data):
        raise DecodeError(f"the TIFF's directory lies at {offset}, past its {len(data)} bytes")
    return order, big, offset


def _fields(
    data: Buffer, order: str, offset: int, big: bool
) -> Iterator[tuple[int, int, int, int]]:
    """Yield a directory's fields: (tag, type, count, where the values lie).

    The last one is at -1 if the directory is truncated.
    """
    if big:
        (number,) = struct.unpack_from(order + "Q", data, offset)
        entry, first, inline = struct.Struct(order + "HHQQ"), offset + 8, 8
    else:
        (number,) = struct.unpack_from(order + "H", data, offset)
        entry, first, inline = struct.Struct(order + "HHII"), offset + 2, 4
    for at in range(first, first + min(number, _MAX_ENTRIES) * entry.size, entry.size):
        if at + entry.size > len(data):
            yield 0, 0, 0, -1
            return
        tag, kind, count, pointer = entry.unpack_from(data, at)
        size = count * (_SIZES[kind] if kind < len(_SIZES) else 0)
        yield tag, kind, count, at + entry.size - inline if size <= inline else pointer


def _values(data: Buffer, letter: str, count: int, at: int) -> tuple[int, ...]:
    """Values of a field; none where they lie outside the file, as if the field were missing."""
    form = f"{letter[0]}{count}{letter[1]}"
    if at + struct.calcsize(form) > len(data):
        return ()
    return struct.unpack_from(form, data, at)


def _upright_swaps(data: Buffer, fields: dict[int, tuple[int, ...]], xmp: tuple[int, int]) -> bool:
    """Whether turning the image upright exchanges its sides (orientations 5 to 8)."""
    stored = fields.get(_ORIENTATION)
    if stored:
        return 5 <= stored[0] <= 8
    found = _XMP_ORIENTATION.search(bytes(data[xmp[0] : xmp[1]]))
    return found is not None and 5 <= int(found[1]) <= 8


def _has_next(data: Buffer, order: str, offset: int, big: bool) -> bool:
    """Whether another page follows: the offset behind the entries leads to another directory."""
    letter, first, entry = ("Q", 8, 20) if big else ("H", 2, 12)
    (count,) = struct.unpack_from(order + letter, data, offset)
    at = offset + first + count * entry
    pointer = struct.Struct(order + ("Q" if big else "I"))
    if at + pointer.size > len(data):
        return False
    following: int = pointer.unpack_from(data, at)[0]
    return following != offset and 0 < following < len(data)


def _header(fields: dict[int, tuple[int, ...]], swap: bool, animated: bool) -> Header:
    width, height = (fields.get(tag, (0,)) for tag in (_WIDTH, _HEIGHT))
    if len(width) != 1 or len(height) != 1 or width[0] <= 0 or height[0] <= 0:
        raise DecodeError("the TIFF's directory gives no size")
    photometric = fields.get(_PHOTOMETRIC, (0,))[:1]
    old_jpeg = fields.get(_COMPRESSION) == (_OLD_JPEG,)
    color = "ycc" if old_jpeg else _COLORS.get(photometric[0] if photometric else 0, "other")
    samples = fields.get(_SAMPLES) or (3 if old_jpeg else 1,)
    bits = fields.get(_BITS) or (1,)
    sides = (height[0], width[0]) if swap else (width[0], height[0])
    return Header("tiff", *sides, samples[0], max(bits), color=color, animated=animated)
