"""PNG: the IHDR chunk, and the acTL and eXIf chunks before the first IDAT."""

from __future__ import annotations

import struct

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
