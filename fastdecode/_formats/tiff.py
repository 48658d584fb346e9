"""TIFF and BigTIFF: the first image file directory, and a check that the file contains all of it.

TIFF 6.0, section 2; BigTIFF's 8-byte offsets.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fastdecode._formats import exif
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Coding, Color, Header, Sample

_WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC = 256, 257, 258, 259, 262
_FILL_ORDER, _ORIENTATION, _SAMPLES, _STRIP_ROWS, _PLANES = 266, 274, 277, 278, 284
_PREDICTOR, _TILE_WIDTH, _TILE_HEIGHT, _EXTRA, _FORMAT = 317, 322, 323, 338, 339
_DEPTH, _XMP = 32997, 700
_STRIPS, _TILES = (273, 279), (324, 325)
"""The tags of the offsets and of the sizes in bytes."""

_WANTED = frozenset({
    _WIDTH, _HEIGHT, _BITS, _COMPRESSION, _PHOTOMETRIC, _FILL_ORDER, _ORIENTATION, _SAMPLES,
    _STRIP_ROWS, _PLANES, _PREDICTOR, _TILE_WIDTH, _TILE_HEIGHT, _EXTRA, _FORMAT, _DEPTH,
    *_STRIPS, *_TILES,
})  # fmt: skip
# The tags that decoders need for the pixels. XMP may contain the orientation.
_TELLING = _WANTED | frozenset({
    _XMP, 292, 293, 320, 332,  # fax options, colour map, inks
    347, *range(512, 522), 529, 530, 531, 532,  # JPEG, new and old; YCbCr
})  # fmt: skip

_PLAIN = frozenset({1, 5, 8, 32773, 32946})  # uncompressed, LZW, Deflate, PackBits, Deflate
# How all else is coded. Left out are codecs whose decoders do not notice damage (JPEG 2000, JPEG
# XR, WebP), that few files have (LERC, JPEG XL), or that do not exist. 34925 is LZMA; 50000 is
# Zstandard.
_CODINGS: dict[int, Coding] = {
    **dict.fromkeys((2, 3, 4), "fax"),
    7: "jpeg",
    **dict.fromkeys((*_PLAIN, 34925, 50000), "packed"),
}
_UNCOMPRESSED, _LZW, _OLD_JPEG, _JPEG, _PACK_BITS, _ZSTD = 1, 5, 6, 7, 32773, 50000
_DEFLATE = frozenset({8, 32946})
_ALWAYS_FINE, _MOST_PER_BYTE = 1 << 27, 20_000  # bytes of pixels, in all and for one of the file
# Field types that hold integers: struct letter by type number (BYTE … LONG8, IFD8).
_INTEGERS = {1: "B", 3: "H", 4: "I", 6: "b", 8: "h", 9: "i", 16: "Q", 17: "q", 18: "Q"}
# Bytes of a value of each field type. All readers ignore fields of other types.
_SIZES = (0, 1, 1, 2, 4, 8, 1, 1, 2, 4, 8, 4, 8, 4, 0, 0, 8, 8, 8)
_BYTES = frozenset({1, 2, 7})  # BYTE, ASCII, UNDEFINED: the types that XMP may have
_COLORS: dict[int, Color] = {
    0: "gray", 1: "gray", 2: "rgb", 3: "palette", 4: "gray", 5: "cmyk", 6: "ycc",
}  # fmt: skip
_INKS = {"gray": 1, "palette": 1, "rgb": 3, "ycc": 3, "cmyk": 4}
_SAMPLE_TYPES: dict[int, Sample] = {1: "unsigned", 2: "signed", 3: "float", 4: "unsigned"}
_COMPLEX = (5, 6)
_WHITE_IS_ZERO, _BLACK_IS_ZERO, _RGB = 0, 1, 2  # PhotometricInterpretation
_HORIZONTAL, _ALPHA = 2, 2
_ZSTD_FRAME, _STORED, _REPEATED = b"\x28\xb5\x2f\xfd", 0, 1  # magic number, types of blocks
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

    def is_big_endian_big_tiff(self) -> bool:
        return self.order == ">" and self.pointer.size == 8

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


class _Fields:
    """The fields of the first directory that say how the pixels are stored.

    As in all readers, the first of two entries with the same tag counts.
    """

    def __init__(self, data: Buffer) -> None:
        self.directory = _directory(data)
        self._values: dict[int, tuple[int, ...]] = {}
        self._places: dict[int, tuple[int, int]] = {}
        self._xmp = b""
        self.is_odd = False  # a field is no integer: some readers take it, others do not
        for tag, kind, count, at in self.directory.fields():
            if not count or at < 0:
                continue
            if tag in _WANTED and tag not in self._values and kind in _INTEGERS:
                self._values[tag] = self.directory.values(kind, count, at)
                self._places[tag] = kind, at
            elif tag == _XMP and kind in _BYTES:
                self._xmp = bytes(data[at : at + min(count, _MAX_XMP)])
            else:
                self.is_odd = self.is_odd or (tag in _WANTED and tag not in self._values)
        self.width, self.height = self.one(_WIDTH), self.one(_HEIGHT)
        if self.width <= 0 or self.height <= 0:
            raise DecodeError("the TIFF's directory gives no size")
        self.compression = self.one(_COMPRESSION, _UNCOMPRESSED)
        old_jpeg = self.compression == _OLD_JPEG
        self.samples = self.one(_SAMPLES, 3 if old_jpeg else 1)
        self.bits = self.all(_BITS)[: self.samples] or (8 if old_jpeg else 1,)
        if self.samples <= 0 or min(self.bits) <= 0:
            raise DecodeError("the TIFF's directory says that a pixel has no samples, or no bits")
        self.photometric = self.one(_PHOTOMETRIC, self._usual_photometric())
        self.color = "ycc" if old_jpeg else _COLORS.get(self.photometric, "other")

    def all(self, tag: int) -> tuple[int, ...]:
        return self._values.get(tag, ())

    def replace(self, tag: int, values: Sequence[int]) -> bytes:
        """Return the file with other first values of a field."""
        kind, at = self._places[tag]
        changed = bytearray(self.directory.data)
        form = f"{self.directory.order}{len(values)}{_INTEGERS[kind]}"
        struct.pack_into(form, changed, at, *values)
        return bytes(changed)

    def one(self, tag: int, default: int = 0) -> int:
        """Return the first value of a field."""
        return (self._values.get(tag) or (default,))[0]

    def _usual_photometric(self) -> int:
        """Return what libtiff takes the pixels for if they do not say it (tif_getimage.c)."""
        colours = self.samples - len(self.all(_EXTRA))
        if colours == 1:
            is_fax = _CODINGS.get(self.compression) == "fax"
            return _WHITE_IS_ZERO if is_fax else _BLACK_IS_ZERO
        return _RGB if colours == 3 and self.compression != _JPEG else -1

    def orientation(self) -> int:
        """Return the orientation; without the tag that of the XMP packet counts, as in Pillow."""
        said = self.one(_ORIENTATION, 1) if self.all(_ORIENTATION) else exif.of_xmp(self._xmp)
        return said if said in range(1, 9) else 1

    def has_usual_alpha(self) -> bool:
        return (self.color, self.samples) == ("rgb", 4) and self.all(_EXTRA) in ((), (_ALPHA,))

    def parts(self) -> _Parts:
        """Return how the pixels are divided, and where the parts lie."""
        tiled = bool(self.all(_TILE_WIDTH))
        rows = min(self.one(_STRIP_ROWS, self.height) or self.height, self.height)
        sides = (self.one(_TILE_WIDTH), self.one(_TILE_HEIGHT)) if tiled else (self.width, rows)
        if min(sides) <= 0:
            raise DecodeError(f"the TIFF has tiles of {sides[0]} x {sides[1]} pixels")
        planes = self.samples if self.one(_PLANES, 1) == 2 else 1
        number = -(-self.width // sides[0]) * -(-self.height // sides[1]) * planes
        unsaid = self.samples - len(self.bits)  # which may be billions in a hostile file
        of_pixel = sum(self.bits) + self.bits[-1] * unsaid
        line = sides[0] * (of_pixel if planes == 1 else min(self.bits))
        offsets, sizes = (
            self.all(_TILES[i]) or self.all(_STRIPS[i]) if tiled else self.all(_STRIPS[i])
            for i in (0, 1)
        )
        if not sizes and self.compression == _UNCOMPRESSED:  # as in TIFF 5 and before
            sizes = (-(-line // 8) * sides[1],) * min(number, len(offsets))
        return _Parts(
            tiled, *sides, planes, number, -(-line // 8), offsets[:number], sizes[:number]
        )

    def oddity(self) -> str:
        """Return what no backend reads, in words; empty if there is nothing."""
        types = self.all(_FORMAT)[: self.samples]
        if self.is_odd:
            return "a field that is no integer"
        if len(set(self.bits)) > 1:
            return f"samples of {', '.join(map(str, self.bits))} bits"
        if any(kind in _COMPLEX for kind in types):
            return "complex samples"
        if not {*types} <= {*_SAMPLE_TYPES} or len({_SAMPLE_TYPES[kind] for kind in types}) > 1:
            return f"samples of the types {', '.join(map(str, types))}"
        if self.one(_DEPTH, 1) != 1 or self.one(_PLANES, 1) not in (1, 2):
            return "pixels in several layers, or an unknown order"
        if self.samples < _INKS.get(self.color, 1):
            return f"{self.samples} samples of {self.color}"
        if self.compression not in _CODINGS:
            return f"compression {self.compression}"
        # libtiff ignores it there, others do not
        if self.one(_PREDICTOR, 1) != 1 and self.compression in (_UNCOMPRESSED, _PACK_BITS):
            return "a predictor, but no compression that has one"
        # chroma may be subsampled, which only codecs know
        return "uncompressed YCbCr" if self.color == "ycc" and self.compression != _JPEG else ""

    def coding(self) -> Coding:
        """Return empty for what all readers agree on, else who reads the pixels (see `Header`)."""
        if self.oddity():
            return "other"
        predictor = self.one(_PREDICTOR, 1)
        parts = self.parts()
        plain = (
            self.compression in _PLAIN
            and {*self.all(_FORMAT)[: self.samples]} <= {1, 4}
            and not (parts.tiled or parts.empty())
            and self.one(_PHOTOMETRIC) in (1, 2, 3)
            and self.bits[0] in ((8,) if self.color != "gray" or predictor != 1 else (1, 8))
            and (self.samples == _INKS.get(self.color) or self.has_usual_alpha())
            and not self.directory.is_big_endian_big_tiff()  # Pillow misreads it
            and self.one(_PLANES, 1) == 1
            and predictor in (1, _HORIZONTAL)
            and self.one(_FILL_ORDER, 1) == 1
        )
        return "" if plain else _CODINGS[self.compression]


class _Parts(NamedTuple):
    """The strips or tiles of a TIFF."""

    tiled: bool
    width: int
    height: int
    planes: int
    number: int  # that there must be
    row: int  # bytes of an uncompressed row of a part
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def empty(self) -> bool:
        """Return whether a part is left out, which for GDAL means zeros (or its "no data")."""
        return any(at == size == 0 for at, size in zip(self.offsets, self.sizes, strict=False))


def parse(data: Buffer) -> Header:
    """Read the header of a TIFF's first page.

    Pillow turns a TIFF upright while it loads it, which it does not do for JPEG, PNG, WebP or AVIF.
    So `width` and `height` are those of the upright image, and `orientation` is 1.
    """
    fields = _Fields(data)
    sides = fields.width, fields.height
    if fields.orientation() >= 5:
        sides = sides[::-1]
    return Header(
        "tiff",
        *sides,
        fields.samples,
        max(fields.bits),
        color=fields.color,
        coding=fields.coding(),
        animated=fields.directory.has_next(),
        sample=_SAMPLE_TYPES.get(fields.one(_FORMAT, 1), "unsigned"),
    )


class Storage(NamedTuple):
    """How the first page is stored, for decoders that leave its rules to the caller."""

    shape: tuple[int, int, int, int]  # planes, height, width, samples of each plane
    orientation: int
    white_is_zero: bool


def storage(data: Buffer) -> Storage:
    """Return how the first page is stored."""
    fields = _Fields(data)
    planes = fields.parts().planes
    shape = planes, fields.height, fields.width, fields.samples // planes
    return Storage(shape, fields.orientation(), fields.photometric == _WHITE_IS_ZERO)


def oddity(data: Buffer) -> str:
    """Return what the first page has that no backend reads, in words; empty if nothing."""
    return _Fields(data).oddity()


def excess(data: Buffer, _: Header) -> str:
    """Return what no real file has: far more bytes of pixels than a codec makes of the file.

    Or tiles that are far larger than the image, which decoders make room for.
    """
    fields = _Fields(data)
    parts = fields.parts()
    pixels = parts.row * parts.height * parts.number
    if pixels > max(_ALWAYS_FINE, _MOST_PER_BYTE * len(data)):
        return f"the TIFF promises {pixels:,} bytes of pixels in {len(data):,}"
    if parts.width * parts.height > max(_ALWAYS_FINE >> 3, fields.width * fields.height):
        return f"the TIFF has tiles of {parts.width} x {parts.height} pixels"
    return ""


def damaged_deflate(data: Buffer) -> str:
    """Return which strip fails its checksum, which libtiff does not compare; empty if none."""
    fields = _Fields(data)
    parts = fields.parts()
    if fields.compression not in _DEFLATE:
        return ""
    for index, (at, size) in enumerate(zip(parts.offsets, parts.sizes, strict=True)):
        stream = zlib.decompressobj()
        try:
            stream.decompress(data[at : at + size], parts.row * parts.height + 1)
        except zlib.error as error:
            return f"strip {index} of the TIFF: {error}"
        if not stream.eof:
            return f"strip {index} of the TIFF has no end, or more pixels than the image"
    return ""


def missing(data: Buffer, _: Header) -> str:
    """Return what the file lacks of the fields and data that the pixels need; empty if nothing."""
    return _missing_field(data) or _missing_part(_Fields(data), data)


def _missing_field(data: Buffer) -> str:
    """Return which field lies beyond the end of the file.

    Pillow only warns ("Truncated File Read", "Skipping tag") and decodes without it. Newer versions
    also decode without the fields after it. They skip a field in the same way if all fields
    together would have more bytes than the file.
    """
    directory = _directory(data)
    room = len(data)
    lost = False
    seen = set()
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
    return ""


def _missing_part(fields: _Fields, data: Buffer) -> str:
    """Return which strip or tile the tables lack, or the file, or is too short to be whole.

    A part at offset 0 with 0 bytes is meant to be missing. A compressed one may have any size.
    """
    parts = fields.parts()
    kind = "tile" if parts.tiled else "strip"
    if min(len(parts.offsets), len(parts.sizes)) < parts.number:
        found = min(len(parts.offsets), len(parts.sizes))
        return f"the TIFF lists {found} of its {parts.number} {kind}s"
    a_plane = -(-fields.height // parts.height) if not parts.tiled else 1
    for index, (at, size) in enumerate(zip(parts.offsets, parts.sizes, strict=True)):
        if at == size == 0:
            continue
        if at + size > len(data):
            return f"a {kind} of the TIFF ends at {at + size}, past its {len(data)} bytes"
        rows = parts.height
        if not parts.tiled:
            rows = min(rows, fields.height - index % a_plane * rows)
        least = parts.row * rows if fields.compression == _UNCOMPRESSED else 1
        if size < least and fields.color != "ycc":  # with fewer samples of chroma
            return f"{kind} {index} of the TIFF has {size} of {least} bytes"
    return ""


def without_padding(data: Buffer) -> Buffer:
    """Return a TIFF whose strips and tiles end where their data does, if that can be told.

    That is so with LZW and Zstandard, which have no checksum. Where zeros stand in place of data,
    too few pixels are left, which the decoder notices.
    """
    fields = _Fields(data)
    end_of = {_LZW: _end_of_lzw, _ZSTD: _end_of_zstd}.get(fields.compression)
    if end_of is None:
        return data
    parts = fields.parts()
    places = zip(parts.offsets, parts.sizes, strict=True)
    ends = tuple(end_of(bytes(data[at : at + size])) for at, size in places)
    tag = _TILES[1] if parts.tiled and fields.all(_TILES[1]) else _STRIPS[1]
    return data if ends == parts.sizes else fields.replace(tag, ends)


def _end_of_lzw(part: bytes) -> int:
    """Return where the codes end: the last one has up to 12 bits, filled up to at most 16."""
    return len(part) if any(part[-4:]) else len(part.rstrip(b"\0"))


def _end_of_zstd(part: bytes) -> int:
    """Return where the frames end (RFC 8878, 3.1.1).

    A block is stored as it is only if compressing it would save no more than about a 64th. All
    others end in a bit that is set, or in a zero that says that there are no sequences.
    """
    at = 0
    while part.startswith(_ZSTD_FRAME, at):
        kind = part[at + 4]
        is_single = kind >> 5 & 1
        at += 6 - is_single + (0, 1, 2, 4)[kind & 3] + (is_single, 2, 4, 8)[kind >> 6]
        is_last = 0
        while not is_last:
            block = int.from_bytes(part[at : at + 3], "little")
            is_last, how, size = part[at] & 1, block >> 1 & 3, block >> 3
            at += 3 + (1 if how == _REPEATED else size)
            zeros = size // 50 + 16 if how == _STORED else 4
            if how != _REPEATED and size > zeros and not any(part[at - zeros : at]):
                raise DecodeError("pixels are missing: there are zeros in place of Zstandard data")
        at += kind & 4  # a checksum
    if at > len(part):
        raise DecodeError("pixels are missing: Zstandard data ends before its last block does")
    return at or len(part)  # or it is something else, of which the decoder knows
