"""BMP: the file header and every generation of the bitmap header."""

from __future__ import annotations

import struct

from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Header

_CORE = struct.Struct("<HHHH")  # OS/2 1: width, height, planes, bits
_INFO = struct.Struct("<IiHHI")  # Windows 3 and later: …, compression
_CORE_SIZE, _MIN_INFO_SIZE, _ALPHA_MASK_SIZE = 12, 16, 56
_BITFIELDS = 3
_BITS = frozenset({0, 1, 2, 4, 8, 16, 24, 32, 64})  # 0: an embedded JPEG or PNG has the number


def parse(data: Buffer) -> Header:
    """Read a BMP's header.

    `bits` is the size of an index if there is a palette, else 8: 16-bit pixels have samples of 4 to
    6 bits, which every decoder widens.

    Microsoft's BITMAPFILEHEADER, BITMAPCOREHEADER (12 bytes) and BITMAPINFOHEADER to
    BITMAPV5HEADER (40 to 124 bytes); OS/2 2 (16 to 64 bytes). If the height is negative, the first
    row is the top one. Only a BITFIELDS header with an alpha mask has alpha.
    """
    (size,) = struct.unpack_from("<I", data, 14)
    if size == _CORE_SIZE:
        width, height, _, bits = _CORE.unpack_from(data, 18)
        compression = 0
    elif _MIN_INFO_SIZE <= size <= 4096:
        width, height, _, bits, compression = _info(data, size)
    else:
        raise DecodeError(f"the BMP header says that it has {size} bytes")
    if not width or not height or width > 0x7FFFFFFF:
        raise DecodeError(f"the BMP header says {width}x{height} pixels")
    if bits not in _BITS:
        raise DecodeError(f"the BMP header says {bits} bits per pixel")
    if 0 < bits <= 8:
        return Header("bmp", width, abs(height), 1, bits, color="palette")
    # In OS/2 2 headers (64 bytes), compression 3 and the bytes of the masks mean something else.
    masks = compression == _BITFIELDS and size >= _ALPHA_MASK_SIZE and size != 64
    alpha = masks and bits == 32 and struct.unpack_from("<I", data, 66)[0] != 0
    return Header("bmp", width, abs(height), 4 if alpha else 3)


def _info(data: Buffer, size: int) -> tuple[int, int, int, int, int]:
    """Read width, height, planes, bits and compression; OS/2 2 headers may end after the bits."""
    if size < 20:
        return (*struct.unpack_from("<IiHH", data, 18), 0)
    return _INFO.unpack_from(data, 18)
