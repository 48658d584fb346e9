"""JPEG: the marker segments before the first scan, walked by their lengths.

Walking matters: an EXIF thumbnail and the second image of an MPO hold markers of their own, and
a search for the first SOF byte pair finds theirs.
"""

from __future__ import annotations

import re
import struct
from functools import lru_cache

from fastdecode._headers import exif
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Coding, Color, Header, Reduce

_SOF: dict[int, Coding] = {
    0xC0: "baseline",
    0xC1: "baseline",
    0xC2: "progressive",
    0xC3: "lossless",
    0xC5: "other",
    0xC6: "other",
    0xC7: "other",
    0xC9: "arithmetic",
    0xCA: "arithmetic",
    0xCB: "other",
    0xCD: "other",
    0xCE: "other",
    0xCF: "other",
    0xF7: "jpeg-ls",
}
_SOI, _EOI, _SOS, _DRI, _APP0, _APP1, _APP14 = 0xD8, 0xD9, 0xDA, 0xDD, 0xE0, 0xE1, 0xEE
_segment = struct.Struct(">BBH").unpack_from
_frame = struct.Struct(">BHHB").unpack_from
_MARKER = re.compile(rb"\xff+[^\xff]", re.DOTALL)
_MAX_SEGMENTS = 10_000
"""Before the first scan; an ICC profile of 16 MB takes 256."""

_BLOCK = 8
"""Samples on each side of what one DCT covers (T.81, A.3.1)."""

_PROGRESSIVE = frozenset({0xC2, 0xCA})
_WITHOUT_LENGTH = frozenset({0x00, 0x01, 0xFF, _SOI, _EOI, *range(0xD0, 0xD8)})
# Segments whose contents no decoder needs: with a length below 2 they have none (jdmarker.c).
_PASSED_OVER = frozenset({0xFE, *range(0xE0, 0xF0)})
# Those that say something about the image as a whole; all others are passed over.
_TELLING = frozenset({*_SOF, _SOS, _DRI, _APP0, _APP1, _APP14})

# Ratio of luma to chroma sampling, horizontal and vertical, as the field writes it.
_SUBSAMPLING = {
    (1, 1): "4:4:4",
    (2, 1): "4:2:2",
    (2, 2): "4:2:0",
    (1, 2): "4:4:0",
    (4, 1): "4:1:1",
    (1, 4): "4:4:1",
    (4, 2): "4:1:0",
}


def parse(data: Buffer) -> Header:
    """Read a JPEG's header: every segment up to the first scan. The file starts with FF D8.

    ITU-T T.81, annex B. Stray bytes before a marker are skipped, as libjpeg does.
    """
    # It runs for every image, with a cold cache after the last one: hence few calls and objects.
    frame = sof = restart_interval = length = 0
    orientation, jfif, adobe = 1, False, -1
    pos = 2
    for _ in range(_MAX_SEGMENTS):
        first, marker, length = _segment(data, pos)
        if first != 0xFF or marker in _WITHOUT_LENGTH:
            pos = _next_marker(data, pos)
            continue
        if length < 2:
            if marker not in _PASSED_OVER:
                raise DecodeError(f"JPEG segment FF {marker:02X} cannot have the length {length}")
            pos += 4
            continue
        if marker in _TELLING:
            if marker == _SOS:
                break
            if marker in _SOF:
                if not frame:
                    frame, sof = pos, marker
            elif marker == _DRI:
                restart_interval = data[pos + 4] << 8 | data[pos + 5]
            elif marker == _APP0:
                jfif = jfif or data[pos + 4 : pos + 9] == b"JFIF\0"
            elif marker == _APP1:
                if orientation == 1 and data[pos + 4 : pos + 10] == b"Exif\0\0":
                    orientation = exif.orientation(data, pos + 10, pos + 2 + length)
            elif length >= 14 and data[pos + 4 : pos + 9] == b"Adobe":
                adobe = data[pos + 15]
        pos += 2 + length
    if not frame or marker != _SOS:
        raise DecodeError("the JPEG has no frame header (SOF), or no scan (SOS) after it")
    bits, height, width, channels = _frame(data, frame + 4)
    if not (width and height and channels):
        raise DecodeError(f"the JPEG header says {width}x{height} with {channels} components")
    components = bytes(data[frame + 10 : frame + 10 + 3 * min(channels, 4)])
    subsampling, color = _sampling_and_color(components, channels, jfif, adobe)
    # Header(…) would go through a Python function that does just this.
    # fmt: off
    return tuple.__new__(Header, (
        "jpeg", width, height, channels, bits, orientation, sof in _PROGRESSIVE, subsampling,
        restart_interval, color, _SOF[sof], False, pos + 2 + length,
    ))
    # fmt: on


def with_plain_size(data: Buffer, header: Header, reduce: Reduce) -> tuple[Buffer, int, int]:
    """Make a size tell the reduction, for a decoder that is told a size instead of a factor.

    Returned are the file to decode, and the height and width of what the decoder then gives. Below
    8 pixels, 1/2 and 3/8 of a side may be the same number. So, if both sides are, one is written
    into the frame header as the 8 pixels that its blocks have anyway, and the caller drops what is
    beyond the image.

    The compressed data stays the same, as does the number of blocks in every scan. The side is one
    along which no reduced chroma is interpolated: there, its end would show.
    """
    width, height = header.width, header.height
    if reduce > 1 and max(width, height) < _BLOCK:
        upright = header.subsampling in ("4:4:0", "4:4:1")
        width, height = (_BLOCK, height) if upright else (width, _BLOCK)
        sides = _frame_of(data) + 5
        data = b"".join((data[:sides], struct.pack(">HH", height, width), data[sides + 4 :]))
    return data, -(-height // reduce), -(-width // reduce)


def _frame_of(data: Buffer) -> int:
    """Where the frame header (SOF) of a JPEG stands whose header has been read."""
    pos = 2
    while True:
        first, marker, length = _segment(data, pos)
        if first != 0xFF or marker in _WITHOUT_LENGTH:
            pos = _next_marker(data, pos)
        elif marker in _SOF:
            return pos
        else:
            pos += 2 + length


def _next_marker(data: Buffer, pos: int) -> int:
    """Step over a marker without a length, fill bytes (T.81, B.1.1.2), or stray bytes."""
    if data[pos] == 0xFF and data[pos + 1] != 0xFF:
        if data[pos + 1] == _EOI:
            raise DecodeError("the JPEG ends (EOI) before any image")
        return pos + 2
    found = _MARKER.search(data, pos)
    if found is None:
        raise IndexError
    return found.end() - 2


@lru_cache(maxsize=256)
def _sampling_and_color(
    components: bytes, channels: int, jfif: bool, adobe: int
) -> tuple[str, Color]:
    """Read the frame header's list of components: (id, sampling factors, table) for each."""
    if len(components) < 3 * min(channels, 4):
        raise IndexError
    return _subsampling(components[1::3]), _color(channels, jfif, adobe, components[0::3])


def _subsampling(factors: bytes) -> str:
    """Name the sampling from the components' factor bytes (horizontal << 4 | vertical)."""
    count = len(factors)
    if count < 3:
        return ""
    luma, cb, cr = factors[0], factors[1], factors[2]
    if cb == cr and (count == 3 or factors[3] == luma):
        h, v = cb >> 4, cb & 15
        if h and v and not (luma >> 4) % h and not (luma & 15) % v:
            name = _SUBSAMPLING.get(((luma >> 4) // h, (luma & 15) // v))
            if name:
                return name
    return ",".join(f"{f >> 4}x{f & 15}" for f in factors)


def _color(channels: int, jfif: bool, adobe: int, ids: bytes) -> Color:
    """Guess the colour model as libjpeg does (jdapimin.c, default_decompress_parms)."""
    if channels == 1:
        return "gray"
    if channels == 3:
        if not jfif and (adobe == 0 or (adobe < 0 and ids == b"RGB")):
            return "rgb"
        return "ycc"
    return "cmyk" if channels == 4 else "other"
