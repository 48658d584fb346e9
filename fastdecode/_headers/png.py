"""PNG: the IHDR chunk, and the acTL and eXIf chunks before the first IDAT."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

from fastdecode._headers import exif
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Color, Header

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHUNK = struct.Struct(">I4s")
_IHDR = struct.Struct(">IIBBBBB")
# Colour type: (samples per pixel, colour model, legal bit depths).
_COLOR_TYPES: dict[int, tuple[int, Color, tuple[int, ...]]] = {
    0: (1, "gray", (1, 2, 4, 8, 16)),
    2: (3, "rgb", (8, 16)),
    3: (1, "palette", (1, 2, 4, 8)),
    4: (2, "gray", (8, 16)),
    6: (4, "rgb", (8, 16)),
}
_MAX_SIDE = 2**31 - 1
_SPARE_BYTES = 1 << 16  # for an encoder that compresses badly; inflated, they cost 0.2 s
_MAX_CHUNKS = 1024  # before the first IDAT: real files have a dozen
_AT_ONCE = 1 << 18  # bytes to inflate
_PASSES = (  # of Adam7: (first column, first row, distance of columns, distance of rows)
    *((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4)),
    *((0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)),
)


def parse(data: Buffer) -> Header:
    """Read a PNG's header, which describes the stored pixels: Pillow does not turn them.

    PNG specification, third edition: 5.2 (signature), 5.6 (chunk order), 11.2.1 (IHDR), 11.3.4.5
    (eXIf), APNG's acTL. An eXIf after the pixels is ignored.
    """
    if data[:8] != _SIGNATURE[: len(data)]:
        raise DecodeError("the PNG signature is damaged")
    length, kind = _CHUNK.unpack_from(data, 8)
    width, height, bits, color_type, _, _, interlace = _IHDR.unpack_from(data, 16)
    if kind != b"IHDR" or length < _IHDR.size:
        raise DecodeError(f"the PNG starts with a {kind!r} chunk instead of IHDR")
    if not 0 < width <= _MAX_SIDE or not 0 < height <= _MAX_SIDE:
        raise DecodeError(f"the PNG header says {width}x{height} pixels")
    channels, color, depths = _COLOR_TYPES.get(color_type, (0, "other", ()))
    if bits not in depths:
        raise DecodeError(f"the PNG header says colour type {color_type} with {bits} bits")
    animated, orientation = _ancillary(data, 8 + 12 + length)
    return Header(
        "png", width, height, channels, bits, orientation, progressive=interlace == 1, color=color,
        animated=animated,
    )  # fmt: skip


def chunks_fit(data: Buffer) -> bool:
    """Return whether every chunk fits into the file: a decoder may allocate what one claims."""
    pos, size = 8, len(data)
    while pos + 8 <= size:
        length, kind = _CHUNK.unpack_from(data, pos)
        pos += 12 + length
        if kind == b"IEND":
            break
    return pos <= size


def excess(data: Buffer, header: Header) -> str:
    """Return how much compressed data there is beyond any need of the image; empty if there is not.

    libpng inflates all of it, up to a thousand times its size, although the image has ended.
    """
    row = 1 + -(-header.width * header.channels * header.bits // 8)
    most = _SPARE_BYTES + 2 * row * header.height
    if len(data) <= most:
        return ""
    pos, size, compressed = 8, len(data), 0
    while pos + 8 <= size:
        length, kind = _CHUNK.unpack_from(data, pos)
        compressed += length if kind == b"IDAT" else 0
        pos += 12 + length
        if kind == b"IEND":
            break
    if compressed <= most:
        return ""
    return f"there are {compressed} compressed bytes for {header.width}x{header.height} pixels"


def missing(data: Buffer, header: Header) -> str:
    """Return what the compressed data lacks of the image; empty if it is complete.

    Pillow leaves rows empty if the stream ends in order, but before the image. If a chunk is cut,
    it takes what follows for a part of it; the checksum shows that. This costs about as much as
    decoding.
    """
    needed = left = sum(
        rows * (1 + -(-columns * header.channels * header.bits // 8))
        for columns, rows in _sizes(header)
    )
    at_end = 0 if intact(data) else -_AT_ONCE  # read on to the checksum, but not for ever
    stream = zlib.decompressobj()
    try:
        for part, _ in _compressed(data):
            rest: Buffer = part
            while len(rest) and not stream.eof and left > at_end:
                left -= len(stream.decompress(rest, _AT_ONCE))
                rest = stream.unconsumed_tail
        if left > 0:  # what zlib still holds
            left -= len(stream.decompress(b"", left))
    except zlib.error as error:
        return str(error)
    if left > 0:
        return f"there are {needed - left} of {needed} bytes"
    return "a chunk is cut" if at_end and not stream.eof else ""


def intact(data: Buffer) -> bool:
    """Return whether all chunks with compressed data are complete, and their CRCs are right."""
    return all(zlib.crc32(part, zlib.crc32(b"IDAT")) == crc for part, crc in _compressed(data))


def _sizes(header: Header) -> Iterator[tuple[int, int]]:
    """Yield (columns, rows) of each part of the image that is compressed on its own."""
    for left, top, across, down in _PASSES if header.progressive else ((0, 0, 1, 1),):
        columns = max(0, -(-(header.width - left) // across))
        if columns:
            yield columns, max(0, -(-(header.height - top) // down))


def _compressed(data: Buffer) -> Iterator[tuple[memoryview, int]]:
    """Yield the contents and the CRC of the first IDAT, and of those that follow it directly.

    Of a chunk that is cut, the CRC is -1.
    """
    view, pos, begun = memoryview(data), 8, False
    while pos + 8 <= len(view):
        length, kind = _CHUNK.unpack_from(view, pos)
        begin, pos = pos + 8, pos + 12 + length
        if kind == b"IDAT":
            begun = True
            crc = int.from_bytes(view[pos - 4 : pos], "big") if pos <= len(view) else -1
            yield view[begin : begin + length], crc
        elif begun or kind == b"IEND":
            break


def _ancillary(data: Buffer, pos: int) -> tuple[bool, int]:
    """Return (animated, orientation) from acTL and eXIf between `pos` and the first IDAT."""
    animated = False
    orientation = 1
    size = len(data)
    for _ in range(_MAX_CHUNKS):
        if pos + 8 > size:
            break
        length, kind = _CHUNK.unpack_from(data, pos)
        if kind == b"IDAT" or kind == b"IEND":
            break
        if kind == b"acTL":
            # One frame is an image, not an animation.
            animated = int.from_bytes(data[pos + 8 : pos + 12], "big") > 1
        elif kind == b"eXIf":
            orientation = exif.orientation(data, pos + 8, pos + 8 + length)
        pos += 12 + length
    return animated, orientation
