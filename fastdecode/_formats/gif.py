"""GIF: the logical screen and the first image descriptor."""

from __future__ import annotations

import struct

from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Header

_SCREEN = struct.Struct("<HHB")
_DESCRIPTOR = struct.Struct("<HHHHB")
_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_HAS_COLOR_TABLE, _INTERLACED, _TABLE_BITS = 0x80, 0x40, 0x07
# The most blocks to read before the first image (up to 16 MB of metadata, some milliseconds), and
# from there to a second image (up to 1 MB of pixels).
_MAX_BLOCKS = 65536
_MAX_BLOCKS_TO_SECOND = 4096


def parse(data: Buffer) -> Header:
    """Read a GIF's header.

    The size is that of Pillow's first frame: the logical screen, enlarged to contain the first
    image. `animated` means that a second image follows within the first megabyte.

    GIF89a specification, sections 18 (logical screen), 20 (image descriptor), 22 (image data), 24
    (extensions). Enlarging the screen is Pillow's rule.
    """
    if data[:6] not in (b"GIF87a", b"GIF89a"):
        raise DecodeError("the GIF signature is damaged")
    width, height, flags = _SCREEN.unpack_from(data, 6)
    start = _next_image(data, 13 + _color_table(flags), _MAX_BLOCKS)
    if not start:
        raise DecodeError("the GIF contains no image")
    left, top, image_width, image_height, local = _DESCRIPTOR.unpack_from(data, start)
    width = max(width, left + image_width)
    height = max(height, top + image_height)
    if not width or not height:
        raise DecodeError(f"the GIF header says {width}x{height} pixels")
    if local & _HAS_COLOR_TABLE:
        flags = local
    return Header(
        "gif",
        width,
        height,
        1,
        (flags & _TABLE_BITS) + 1 if flags & _HAS_COLOR_TABLE else 8,
        progressive=bool(local & _INTERLACED),
        color="palette",
        animated=_has_second(data, start),
    )


def _color_table(flags: int) -> int:
    """Return the number of bytes of the colour table that the flags announce."""
    return 3 << (flags & _TABLE_BITS) + 1 if flags & _HAS_COLOR_TABLE else 0


def _has_second(data: Buffer, start: int) -> bool:
    """Return whether another image follows the one whose descriptor is at `start`."""
    try:
        pixels = start + _DESCRIPTOR.size + _color_table(data[start + 8]) + 1
        pos, left = _skip_blocks(data, pixels, _MAX_BLOCKS_TO_SECOND)
        return _next_image(data, pos, left) > 0
    except IndexError:  # truncated, or only the first bytes of a file
        return False


def _next_image(data: Buffer, pos: int, budget: int) -> int:
    """Return the offset of the next image descriptor's fields; 0 if the GIF ends before it."""
    while budget > 0:
        kind = data[pos]
        if kind == _IMAGE:
            return pos + 1
        if kind == _TRAILER:
            return 0
        pos += 1
        budget -= 1
        if kind == _EXTENSION:  # else stray bytes between blocks: Pillow skips them
            pos, budget = _skip_blocks(data, pos + 1, budget)
    return 0


def _skip_blocks(data: Buffer, pos: int, budget: int) -> tuple[int, int]:
    """Skip data sub-blocks up to the empty one; return its end and the rest of the budget."""
    while (length := data[pos]) and budget > 0:
        pos += length + 1
        budget -= 1
    return pos + 1, budget
