"""The simple formats: GIF, BMP and PNM (PBM, PGM and PPM)."""

from __future__ import annotations

import io
import re
import struct

import numpy as np
from PIL import BmpImagePlugin

from fastdecode.errors import DecodeError, UnsupportedFormat
from fastdecode.types import Buffer, Coding, Header

# ---- GIF: the logical screen and the first image descriptor ----

_SCREEN = struct.Struct("<HHB")
_DESCRIPTOR = struct.Struct("<HHHHB")
_EXTENSION, _IMAGE, _TRAILER = 0x21, 0x2C, 0x3B
_HAS_COLOR_TABLE, _INTERLACED, _TABLE_BITS = 0x80, 0x40, 0x07
# The most blocks to read before the first image (up to 16 MB of metadata, some milliseconds), and
# from there to a second image (up to 1 MB of pixels).
_MAX_BLOCKS = 65536
_MAX_BLOCKS_TO_SECOND = 4096


def parse_gif(data: Buffer) -> Header:
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


# ---- BMP: the header as Pillow reads it, and what neither Pillow nor OpenCV notices ----

_CORE_SIZE, _OS2_SIZE, _ALPHA_MASK_SIZE = 12, 64, 56  # bytes of a bitmap header
_BITFIELDS, _RLE = 3, {1: 8, 2: 4}
"""Numbers of compressions; of run lengths, with the bits of an index."""
_ALPHA_MASK_AT = 66
_END, _MAX_END = b"\0\1", 4


def parse_bmp(data: Buffer) -> Header:
    """Read a BMP's header.

    `bits` is the size of an index if there is a palette, else 8: 16-bit pixels have samples of 4 to
    6 bits, which every decoder widens. It is 5 for those with an alpha, which Pillow does not see.
    """
    try:
        image = BmpImagePlugin.BmpImageFile(io.BytesIO(data))
    except OSError as error:
        if not str(error).startswith("Unsupported"):
            raise
        raise UnsupportedFormat(f"no backend reads this bmp: {error}") from error
    (size,) = struct.unpack_from("<I", data, 14)
    (bits,) = struct.unpack_from("<H", data, 24 if size == _CORE_SIZE else 28)
    compression = image.info["compression"]
    if compression in _RLE and _RLE[compression] != bits:
        raise UnsupportedFormat(f"no backend reads run lengths of {bits} bits in a bmp")
    if compression == _BITFIELDS and size == _OS2_SIZE:
        raise UnsupportedFormat("no backend reads a bmp of OS/2 in Huffman codes")
    if bits <= 8:
        coding: Coding = "rle" if compression in _RLE else ""
        return Header("bmp", *image.size, 1, bits, color="palette", coding=coding)
    if bits == 16 and compression == _BITFIELDS and size >= _ALPHA_MASK_SIZE:
        has_alpha = any(data[_ALPHA_MASK_AT : _ALPHA_MASK_AT + 4])
        return Header("bmp", *image.size, 4 if has_alpha else 3, 5 if has_alpha else 8)
    return Header("bmp", *image.size, len(image.mode))


def missing_in_bmp(data: Buffer, header: Header) -> str:
    """Return what a run-length coded BMP lacks at its end; empty if nothing, or if not coded so.

    Zeros in place of its data mean empty rows. Its last code is 0, 1, and few zeros follow it.
    """
    if header.coding != "rle":
        return ""
    end = bytes(data).rstrip(b"\0")
    if len(data) - len(end) > _MAX_END and not end.endswith(_END):
        return f"the file ends in {len(data) - len(end)} zeros, not in its last code"
    return ""


def with_grey_palette(data: Buffer) -> bytes:
    """Return a BMP whose colour n is the grey n, so that its colours are its indices."""
    (size,) = struct.unpack_from("<I", data, 14)
    begin, entry = 14 + size, 3 if size == _CORE_SIZE else 4
    (pixels,) = struct.unpack_from("<I", data, 10)
    end = min(begin + entry * 256, max(begin, pixels))
    greys = b"".join(bytes((grey, grey, grey, 0)[:entry]) for grey in range(256))
    return bytes(data[:begin]) + greys[: end - begin] + bytes(data[end:])


# ---- PNM, as digits ("plain") or as bytes ("raw") ----

_MAX_HEADER = 1 << 16  # comments may have any length
_NUMBER = re.compile(rb"(?:\s|#[^\n\r]*[\n\r])*(\d{1,10})(?=[\s#])")
_LAST_NUMBER = re.compile(rb"(?<!\d)(\d+)\Z")
_MAX_DIGITS = 16


def parse_pnm(data: Buffer) -> Header:
    """Read a PNM's header: the size, and the value of white.

    The manual pages pbm(5), pgm(5) and ppm(5) of Netpbm. In a PBM, 1 is black.
    """
    kind, (width, height, maxval), _ = _read(data)
    if not width or not height:
        raise DecodeError(f"the PNM header says {width}x{height} pixels")
    if not 0 < maxval <= 0xFFFF:
        raise DecodeError(f"the PNM header says that white is {maxval}")
    color = kind % 3 == 0
    return Header(
        "pnm",
        width,
        height,
        3 if color else 1,
        maxval.bit_length(),
        color="rgb" if color else "gray",
        coding="plain" if kind <= 3 else "",
        maxval=maxval,
    )


def missing_in_pnm(data: Buffer, _: Header) -> str:
    """Return what is missing of a PNM, or shows that something is; empty if nothing is.

    Not all decoders check the length of raw pixels, or their range. The last of the digits of a
    plain one may be missing, without which it is another number.
    """
    kind, (width, height, maxval), start = _read(data)
    if kind > 3:
        row = -(-width // 8) if kind == 4 else width * (3 if kind == 6 else 1)
        sample = np.dtype(">u2" if maxval > 255 else np.uint8)
        end = start + row * height * sample.itemsize
        if end > len(data):
            return f"the pixels end at {end}, past its {len(data)} bytes"
        full = kind == 4 or maxval == np.iinfo(sample).max
        if full or np.frombuffer(data[start:end], sample).max() <= maxval:
            return ""
        return f"a sample of the PNM is larger than its white, {maxval}"
    last = _LAST_NUMBER.search(bytes(data[-_MAX_DIGITS:]))
    if kind > 1 and last and 0 < 10 * int(last[1]) <= maxval:
        return f"the PNM may end within the number {last[1].decode()}: no white space follows"
    return ""


def _read(data: Buffer) -> tuple[int, tuple[int, int, int], int]:
    """Return the digit of the signature; width, height and maxval; and where the pixels start."""
    head = bytes(data[:_MAX_HEADER])
    kind, at = int(head[1:2]), 2
    numbers = [1, 1, 1]
    for index in range(2 if kind in (1, 4) else 3):
        found = _NUMBER.match(head, at)
        if not found:
            raise DecodeError(f"the PNM header has no {('width', 'height', 'maxval')[index]}")
        numbers[index], at = int(found[1]), found.end()
    return kind, (numbers[0], numbers[1], numbers[2]), at + 1
