"""JPEG: what the core finds in the segments before the first scan (``structure.c``), in words."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache

from fastdecode._formats import exif
from fastdecode.native._library import COLORS, ffi, header, lib, probe
from fastdecode.types import Buffer, Coding, Header, Reduce

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
_SOS, _APP1 = 0xDA, 0xE1
_EXIF_PREFIX = b"Exif\0\0"

_BLOCK = 8
"""Width and height of the block of one DCT, in samples (T.81, A.3.1)."""

_PROGRESSIVE = frozenset({0xC2, 0xCA})

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
    """Read a JPEG's header: every segment up to the first scan. The file starts with FF D8."""
    # It runs for every image, with a cold cache after the previous one: so it makes few calls and
    # objects.
    # fmt: off
    (width, height, channels, bits, sof, interval, turns, _, color, _, _, blocks, factors, scan,
     _, *place) = header(data, "JPEG")
    return Header(
        "jpeg", width, height, channels, bits, _orientation(data, blocks, *place) if turns else 1,
        sof in _PROGRESSIVE, _subsampling(factors[:channels]), interval, COLORS[color],
        _SOF[sof], False, scan,
    )
    # fmt: on


def _orientation(
    data: Buffer, blocks: int, start: int, end: int, packet: int, packet_end: int
) -> int:
    """Read the orientation; as in Pillow, later EXIF segments go on with the block of the first."""
    xmp = memoryview(data)[packet:packet_end]
    if blocks > 1:
        found = [bytes(data[at + 4 : to]) for marker, at, to in _segments(data) if marker == _APP1]
        first, *others = [block for block in found if block.startswith(_EXIF_PREFIX)]
        data = b"".join((first, *(block[len(_EXIF_PREFIX) :] for block in others)))
        start, end = 0, len(data)
    return exif.orientation(data, start, end, xmp)


def _segments(data: Buffer) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, start, end) of each segment up to the first scan, in a file that has one."""
    found = ffi.new("fd_segment *", {"end": 2})
    view = ffi.from_buffer("uint8_t[]", data)
    while found.marker != _SOS:
        lib.fd_next_segment(view, len(view), found.end, found)
        yield found.marker, found.at, found.end


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
        sides = probe(data).frame + 1
        data = b"".join((data[:sides], struct.pack(">HH", height, width), data[sides + 4 :]))
    return data, -(-height // reduce), -(-width // reduce)


def without_exif(data: Buffer) -> bytes:
    """Return a JPEG whose header was already read without its EXIF and XMP (APP1)."""
    parts, begin = [], 0
    for marker, start, end in _segments(data):
        if marker == _APP1:
            parts.append(data[begin:start])
            begin = end
    return b"".join((*parts, data[begin:]))


@lru_cache(maxsize=256)
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
