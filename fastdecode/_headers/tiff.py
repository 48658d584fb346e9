"""TIFF and BigTIFF: the first image file directory, and a check that the file contains all of it.

TIFF 6.0, section 2; BigTIFF's 8-byte offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from operator import add
from typing import NamedTuple

from fastdecode._headers import exif
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Color, Header

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_ORIENTATION, _SAMPLES, _XMP = 274, 277, 700
_WANTED = frozenset({_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _ORIENTATION, _SAMPLES})
# The tags that Pillow and libtiff need to decode pixels. XMP may contain the orientation.
_TELLING = _WANTED | frozenset({
    _XMP, 266, 273, 278, 279, 284,  # fill order; strips: offsets, rows, sizes; planes
    292, 293, 317, 320,  # fax options, predictor, colour map
    322, 323, 324, 325, 332, 338, 339,  # tiles; inks, extra samples, sample format
    347, *range(512, 522), 529, 530, 531, 532, 50674,  # JPEG, new and old; YCbCr; LERC
})  # fmt: skip
_STRIPS, _TILES = (273, 279), (324, 325)
"""The tags of the offsets and of the sizes in bytes."""

_OLD_JPEG = 6
# Field types that hold integers: struct letter by type number (BYTE … LONG8, IFD8).
_INTEGERS = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 16: "Q", 17: "q", 18: "Q"}
# Bytes of a value of each field type. All readers ignore fields of other types.
_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)
_BYTES = frozenset({1, 2, 7})  # BYTE, ASCII, UNDEFINED: the types that XMP may have
_COLORS: dict[int, Color] = {
    0: "gray", 1: "gray", 2: "rgb", 3: "palette", 4: "gray", 5: "cmyk", 6: "ycc",
}  # fmt: skip
_MAX_ENTRIES = 65535
_MAX_XMP = 1 << 20


class _Directory(NamedTuple):
    """A TIFF's first directory: the position of its fields, and the structs to read them."""

    data: Buffer
    order: str
    offset: int
    entry: struct.Struct
    pointer: struct.Struct
    first: int
    number: int

    def fields(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield (tag, type, count, offset of the values, or -1 if the directory is truncated)."""
        size = self.entry.size
        for at in range(self.first, self.first + min(self.number, _MAX_ENTRIES) * size, size):
            if at + size > len(self.data):
                yield 0, 0, 0, -1
                return
            tag, kind, count, place = self.entry.unpack_from(self.data, at)
            inline = self.pointer.size
            yield tag, kind, count, at + size - inline if _size(kind, count) <= inline else place

    def values(self, kind: int, count: int, at: int) -> tuple[int, ...]:
        """Return integers; empty, as for a missing field, if they are outside the file."""
        form = f"{self.order}{count}{_INTEGERS[kind]}"
        if at + struct.calcsize(form) > len(self.data):
            return ()
        return struct.unpack_from(form, self.data, at)

    def has_next(self) -> bool:
        """Return whether another page follows: the offset after the fields leads to a directory."""
        at = self.first + self.number * self.entry.size
        if at + self.pointer.size > len(self.data):
            return False
        following: int = self.pointer.unpack_from(self.data, at)[0]
        return following != self.offset and 0 < following < len(self.data)


def _directory(data: Buffer) -> _Directory:
    order = "<" if data[:2] == b"II" else ">"
    letters = "QQHHQQ" if 43 in (data[2], data[3]) else "IHHHII"
    pointer, number, entry = (
        struct.Struct(order + part) for part in (letters[0], letters[1], letters[2:])
    )
    (offset,) = pointer.unpack_from(data, pointer.size)
    if offset >= len(data):
        raise DecodeError(f"the TIFF's directory lies at {offset}, past its {len(data)} bytes")
    (count,) = number.unpack_from(data, offset)
    return _Directory(data, order, offset, entry, pointer, offset + number.size, count)


def _size(kind: int, count: int) -> int:
    return count * (_SIZES[kind] if kind < len(_SIZES) else 0)


def parse(data: Buffer) -> Header:
    """Read the header of a TIFF's first page.

    Pillow turns a TIFF upright while it loads it, which it does not do for JPEG, PNG, WebP or AVIF.
    So `width` and `height` are those of the upright image, and `orientation` is 1. As in Pillow,
    the first of two entries with the same tag counts. If there is no orientation tag, the
    orientation of the XMP packet counts, also as in Pillow.
    """
    directory = _directory(data)
    fields: dict[int, tuple[int, ...]] = {}
    xmp = b""
    for tag, kind, count, at in directory.fields():
        if not count or at < 0:
            continue
        if tag in _WANTED and tag not in fields and kind in _INTEGERS:
            fields[tag] = directory.values(kind, min(count, 16), at)
        elif tag == _XMP and kind in _BYTES:
            xmp = bytes(data[at : at + min(count, _MAX_XMP)])
    width, height = (fields.get(tag, (0,)) for tag in (_WIDTH, _HEIGHT))
    if len(width) != 1 or len(height) != 1 or width[0] <= 0 or height[0] <= 0:
        raise DecodeError("the TIFF's directory gives no size")
    orientation = fields.get(_ORIENTATION)
    if not orientation:
        orientation = (exif.of_xmp(xmp),)
    sides = (height[0], width[0]) if 5 <= orientation[0] <= 8 else (width[0], height[0])
    photometric = fields.get(_PHOTOMETRIC, (0,))[:1]
    old_jpeg = fields.get(_COMPRESSION) == (_OLD_JPEG,)
    color = "ycc" if old_jpeg else _COLORS.get(photometric[0] if photometric else 0, "other")
    samples = fields.get(_SAMPLES) or (3 if old_jpeg else 1,)
    bits = fields.get(_BITS) or (1,)
    animated = directory.has_next()
    return Header("tiff", *sides, samples[0], max(bits), color=color, animated=animated)


def missing(data: Buffer) -> str:
    """Return what the file lacks of the fields and data that the pixels need; empty if nothing.

    Uncompressed pixels are not checked: the decoder knows how many there must be. If a field lies
    beyond the end of the file, Pillow only warns ("Truncated File Read", "Skipping tag") and
    decodes without it. Newer versions also decode without the fields after it. They skip a field in
    the same way if all fields together would have more bytes than the file. libtiff fills in the
    missing data of an old-style JPEG.
    """
    directory = _directory(data)
    room = len(data)
    lost = False
    seen = set()
    values: dict[int, tuple[int, ...]] = {}
    for tag, kind, count, at in directory.fields():
        if at < 0:
            return (
                f"the TIFF's directory at {directory.offset} is truncated: "
                f"the file has {len(data)} bytes"
            )
        size = _size(kind, count)
        if size > directory.pointer.size and tag not in seen:
            seen.add(tag)  # the first of two fields with the same tag counts
            room -= size
            lost = lost or at + size > len(data) or room < 0
        if lost and size and tag in _TELLING:
            return (
                f"the TIFF's field {tag}, or one before it, lies beyond the end of the file "
                f"({len(data)} bytes)"
            )
        if tag in (_COMPRESSION, *_STRIPS, *_TILES) and tag not in values and kind in _INTEGERS:
            values[tag] = directory.values(kind, count, at)
    if values.get(_COMPRESSION, (1,)) == (1,):
        return ""
    for offsets, sizes in (_STRIPS, _TILES):
        end = max(map(add, values.get(offsets, ()), values.get(sizes, ())), default=0)
        if end > len(data):
            return f"a strip or tile of the TIFF ends at {end}, past its {len(data)} bytes"
    return ""
