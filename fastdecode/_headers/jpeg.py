"""JPEG: the marker segments before the first scan, read one after another by their lengths.

A search for the first SOF marker would not do: an EXIF thumbnail and the second image of an MPO
contain their own markers, and the search could find those.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from fastdecode._headers import exif
from fastdecode._headers.jpeg_stream import after_segment, next_segment
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
_XMP = b"http://ns.adobe.com/xap/1.0/\0"
_SOI, _EOI, _SOS, _DRI, _APP0, _APP1, _APP14 = 0xD8, 0xD9, 0xDA, 0xDD, 0xE0, 0xE1, 0xEE
_segment = struct.Struct(">BBH").unpack_from
_frame = struct.Struct(">BHHB").unpack_from
_MAX_SEGMENTS = 10_000
"""The most segments before the first scan. An ICC profile of 16 MB takes 256."""

_BLOCK = 8
"""Width and height of the block of one DCT, in samples (T.81, A.3.1)."""

_PROGRESSIVE = frozenset({0xC2, 0xCA})
_WITHOUT_LENGTH = frozenset({0x00, 0x01, 0xFF, _SOI, _EOI, *range(0xD0, 0xD8)})
# Segments whose contents no decoder needs. With a length below 2 they have none (jdmarker.c).
_PASSED_OVER = frozenset({0xFE, *range(0xE0, 0xF0)})
# Segments that describe the whole image. All others are skipped.
_TELLING = frozenset({*_SOF, _SOS, _DRI, _APP0, _APP1, _APP14})

# Ratio of luma to chroma sampling, (horizontal, vertical), and its usual name.
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

    ITU-T T.81, annex B. Like libjpeg, it skips stray bytes before a marker.
    """
    # It runs for every image, with a cold cache after the previous one: so it makes few calls and
    # objects.
    frame = sof = restart_interval = length = 0
    jfif, adobe = False, -1
    blocks: list[tuple[int, int]] = []
    xmp = 0, 0
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
                if data[pos + 4 : pos + 10] == b"Exif\0\0":
                    blocks.append((pos + 4, pos + 2 + length))
                elif data[pos + 4 : pos + 4 + len(_XMP)] == _XMP:
                    xmp = pos + 4 + len(_XMP), pos + 2 + length
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
    orientation = _orientation(data, blocks, xmp) if blocks or xmp[1] else 1
    # fmt: off
    return Header(
        "jpeg", width, height, channels, bits, orientation, sof in _PROGRESSIVE, subsampling,
        restart_interval, color, _SOF[sof], False, pos + 2 + length,
    )
    # fmt: on


def _orientation(data: Buffer, blocks: list[tuple[int, int]], xmp: tuple[int, int]) -> int:
    """Read the orientation; as in Pillow, later EXIF segments go on with the block of the first."""
    packet = memoryview(data)[slice(*xmp)] if xmp[1] else b""
    start, end = blocks[0] if blocks else (0, 0)
    if len(blocks) > 1:
        data = b"".join((data[start:end], *(data[more + 6 : to] for more, to in blocks[1:])))
        start, end = 0, len(data)
    return exif.orientation(data, start, end, packet)


def with_plain_size(data: Buffer, header: Header, reduce: Reduce) -> tuple[Buffer, int, int]:
    """Prepare a file for a decoder that takes a size instead of a reduction.

    Return the file to decode, and the height and width to ask for. Below 8 pixels, 1/2 and 3/8 of a
    side may be the same number, so the size would not determine the reduction. If both sides are
    below 8, the frame header of the returned file says 8 for one of them. The blocks have these
    pixels anyway, and the caller cuts off those beyond the image.

    The compressed data and the number of blocks in every scan stay the same. The side that changes
    is one along which no subsampled chroma is interpolated: interpolation depends on where the side
    ends.
    """
    width, height = header.width, header.height
    if reduce > 1 and max(width, height) < _BLOCK:
        upright = header.subsampling in ("4:4:0", "4:4:1")
        width, height = (_BLOCK, height) if upright else (width, _BLOCK)
        sides = _frame_of(data) + 5
        data = b"".join((data[:sides], struct.pack(">HH", height, width), data[sides + 4 :]))
    return data, -(-height // reduce), -(-width // reduce)


def without_exif(data: Buffer) -> bytes:
    """Return a JPEG whose header was already read without its EXIF and XMP (APP1)."""
    parts, begin, pos, marker = [], 0, 2, 0
    while marker != _SOS:
        first, marker, length = _segment(data, pos)
        if first != 0xFF or marker in _WITHOUT_LENGTH:
            pos = _next_marker(data, pos)
            continue
        end = pos + 2 + max(length, 2)
        if marker == _APP1:
            parts.append(data[begin:pos])
            begin = end
        pos = end
    return b"".join((*parts, data[begin:]))


def _frame_of(data: Buffer) -> int:
    """Return the offset of the frame header (SOF) in a JPEG whose header was already read."""
    pos = next_segment(data, 2)
    while data[pos + 1] not in _SOF:
        pos = next_segment(data, after_segment(data, pos))
    return pos


def _next_marker(data: Buffer, pos: int) -> int:
    """Return the offset after markers without a length, fill bytes (B.1.1.2) or stray bytes."""
    pos = next_segment(data, pos)
    if data[pos + 1] == _EOI:
        raise DecodeError("the JPEG ends (EOI) before any image")
    return pos


@lru_cache(maxsize=256)
def _sampling_and_color(
    components: bytes, channels: int, jfif: bool, adobe: int
) -> tuple[str, Color]:
    """Interpret the frame header's components: each is (id, sampling factors, table)."""
    if len(components) < 3 * min(channels, 4):
        raise IndexError
    return _subsampling(components[1::3]), _color(channels, jfif, adobe, components[0::3])


def _subsampling(factors: bytes) -> str:
    """Return the name of the sampling, given each component's (horizontal << 4 | vertical)."""
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
    """Return the colour model that libjpeg would guess (jdapimin.c, default_decompress_parms)."""
    if channels == 1:
        return "gray"
    if channels == 3:
        if not jfif and (adobe == 0 or (adobe < 0 and ids == b"RGB")):
            return "rgb"
        return "ycc"
    return "cmyk" if channels == 4 else "other"
