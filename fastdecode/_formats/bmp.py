"""BMP: the file header and every generation of the bitmap header."""

from __future__ import annotations

import struct

from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Coding, Header

_CORE = struct.Struct("<HHHH")  # OS/2 1: width, height, planes, bits
_INFO = struct.Struct("<IiHHI")  # Windows 3 and later: …, compression
_MASKS = struct.Struct("<4I")  # red, green, blue, alpha
_MASKS_AT = 54
_CORE_SIZE, _MIN_INFO_SIZE, _OS2_SIZE, _ALPHA_MASK_SIZE = 12, 16, 64, 56
_RAW, _BITFIELDS, _ALPHA_BITFIELDS = 0, 3, 6
_RLE = {1: 8, 2: 4}
"""The bits of an index, by the number of the run-length coding."""
_END, _MAX_END = b"\0\1", 4

# Masks that Pillow reads, by the bits of a pixel. All zero is an old writer's BGRA.
_USUAL_MASKS = {
    16: ((0xF800, 0x7E0, 0x1F), (0x7C00, 0x3E0, 0x1F)),
    24: ((0xFF0000, 0xFF00, 0xFF, 0),),
    32: (
        *((0xFF0000, 0xFF00, 0xFF, alpha) for alpha in (0, 0xFF000000)),
        *((0xFF000000, 0xFF0000, 0xFF00, alpha) for alpha in (0, 0xFF)),
        *((0xFF000000, 0xFF00, 0xFF, alpha) for alpha in (0, 0xFF0000)),
        (0xFF, 0xFF00, 0xFF0000, 0xFF000000),
        (0, 0, 0, 0),
    ),
}
_BITS = frozenset({0, 1, 2, 4, 8, 16, 24, 32, 64})  # 0: an embedded JPEG or PNG has the number


def parse(data: Buffer) -> Header:
    """Read a BMP's header.

    `bits` is the size of an index if there is a palette, else 8: 16-bit pixels have samples of 4 to
    6 bits, which every decoder widens. It is 5 for those with an alpha, which Pillow does not see.

    Microsoft's BITMAPFILEHEADER, BITMAPCOREHEADER (12 bytes) and BITMAPINFOHEADER to
    BITMAPV5HEADER (40 to 124 bytes); OS/2 2 (16 to 64 bytes). If the height is negative, the first
    row is the top one. Only a BITFIELDS header with an alpha mask has alpha.
    """
    (size,) = struct.unpack_from("<I", data, 14)
    if size == _CORE_SIZE:
        width, height, _, bits = _CORE.unpack_from(data, 18)
        compression = _RAW
    elif _MIN_INFO_SIZE <= size <= 4096:
        width, height, _, bits, compression = _info(data, size)
    else:
        raise DecodeError(f"the BMP header says that it has {size} bytes")
    if not width or not height or width > 0x7FFFFFFF:
        raise DecodeError(f"the BMP header says {width}x{height} pixels")
    if bits not in _BITS:
        raise DecodeError(f"the BMP header says {bits} bits per pixel")
    masks = (0, 0, 0, 0)
    # In OS/2 2 headers, compression 3 and the bytes of the masks mean something else.
    if compression in (_BITFIELDS, _ALPHA_BITFIELDS) and size != _OS2_SIZE:
        masks = _MASKS.unpack_from(data, _MASKS_AT)
        if size < _ALPHA_MASK_SIZE and compression == _BITFIELDS:
            masks = (*masks[:3], 0)
    coding = _coding(size, bits, compression, masks)
    if 0 < bits <= 8:
        return Header("bmp", width, abs(height), 1, bits, color="palette", coding=coding)
    channels, sample_bits = (4, 5 if bits == 16 else 8) if masks[3] else (3, 8)
    return Header("bmp", width, abs(height), channels, sample_bits, coding=coding)


def missing(data: Buffer) -> str:
    """Return what a run-length coded BMP lacks at its end; empty if nothing, or if not coded so.

    Zeros in place of its data mean empty rows. Its last code is 0, 1, and few zeros follow it.
    """
    if parse(data).coding != "rle":
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


def _coding(size: int, bits: int, compression: int, masks: tuple[int, ...]) -> Coding:
    """Return empty for what Pillow reads, else who reads the pixels (see `Header`)."""
    if compression == _RAW:
        return "" if bits in (1, 4, 8, 16, 24, 32) else "other"
    if compression in _RLE:
        return "rle" if _RLE[compression] == bits else "other"
    if compression != _BITFIELDS or size == _OS2_SIZE:
        return "other"
    if (masks[:3] if bits == 16 else masks) in _USUAL_MASKS.get(bits, ()):
        return ""
    # OpenCV reads no masks behind a shorter header, and widens 16 bits wrongly. It takes each mask
    # for one run of bits.
    runs = (mask // (mask & -mask) + 1 for mask in masks if mask)
    whole = all(masks[:3]) and all(run & (run - 1) == 0 for run in runs)
    return "fields" if bits == 32 and size >= _ALPHA_MASK_SIZE and whole else "other"


def _info(data: Buffer, size: int) -> tuple[int, int, int, int, int]:
    """Read width, height, planes, bits and compression; OS/2 2 headers may end after the bits."""
    if size < 20:
        return (*struct.unpack_from("<IiHH", data, 18), 0)
    return _INFO.unpack_from(data, 18)
