"""BMP: the header as Pillow reads it, and what neither Pillow nor OpenCV notices."""

from __future__ import annotations

import io
import struct

from PIL import BmpImagePlugin

from fastdecode.errors import UnsupportedFormat
from fastdecode.types import Buffer, Coding, Header

_CORE_SIZE, _OS2_SIZE, _ALPHA_MASK_SIZE = 12, 64, 56  # bytes of a bitmap header
_BITFIELDS, _RLE = 3, {1: 8, 2: 4}
"""Numbers of compressions; of run lengths, with the bits of an index."""
_ALPHA_MASK_AT = 66
_END, _MAX_END = b"\0\1", 4


def parse(data: Buffer) -> Header:
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


def missing(data: Buffer, header: Header) -> str:
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
