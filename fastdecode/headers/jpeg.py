"""JPEG: the marker segments before the first scan, walked by their lengths.

Walking matters: an EXIF thumbnail and the second picture of an MPO hold markers of their own, and
a search for the first SOF byte pair finds theirs.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from fastdecode.errors import DecodeError
from fastdecode.headers import exif
from fastdecode.types import Buffer, Coding, Color, Header

__all__ = ["parse"]

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
_MARKER = re.compile(rb"\xff+[^\xff]", re.DOTALL)
_MAX_SEGMENTS = 10_000
"""Before the first scan; an ICC profile of 16 MB takes 256."""

_PROGRESSIVE = frozenset({0xC2, 0xCA})
_WITHOUT_LENGTH = frozenset({0x00, 0x01, _SOI, *range(0xD0, 0xD8)})

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


class _Segments(NamedTuple):
    """What the marker segments say: offsets in bytes, -1 for no Adobe marker."""

    frame: int
    sof: int
    scan_offset: int
    restart_interval: int
    orientation: int
    jfif: bool
    adobe: int


def parse(data: Buffer) -> Header:
    """Read a JPEG's header: every segment up to the first scan.

    Parameters
    ----------
    data : bytes or memoryview
        The file; it starts with FF D8.

    Returns
    -------
    Header

    Raises
    ------
    DecodeError
        If the file ends, or the picture is described as empty, before the first scan.

    Notes
    -----
    ITU-T T.81, annex B. Stray bytes before a marker are skipped, as libjpeg does.
    """
    try:
        segments = _walk(data)
        frame = segments.frame
        bits = data[frame + 2]
        height = data[frame + 3] << 8 | data[frame + 4]
        width = data[frame + 5] << 8 | data[frame + 6]
        channels = data[frame + 7]
        factors = [data[frame + 9 + 3 * i] for i in range(min(channels, 4))]
        ids = (data[frame + 8], data[frame + 11], data[frame + 14]) if channels == 3 else ()
    except IndexError:
        raise DecodeError(f"the JPEG ends inside its header ({len(data)} bytes)") from None
    if not (width and height and channels):
        raise DecodeError(f"the JPEG header says {width}x{height} with {channels} components")
    return Header(
        "jpeg",
        width,
        height,
        channels,
        bits,
        segments.orientation,
        segments.sof in _PROGRESSIVE,
        _subsampling(factors),
        segments.restart_interval,
        _color(channels, segments, ids),
        _SOF[segments.sof],
        False,
        segments.scan_offset,
    )


def _walk(data: Buffer) -> _Segments:
    """Go from marker to marker up to the first scan."""
    frame = sof = restart_interval = 0
    orientation, jfif, adobe = 1, False, -1
    pos = 2
    for _ in range(_MAX_SEGMENTS):
        marker = data[pos + 1]
        if data[pos] == 0xFF and marker != 0xFF:
            pos += 2
        else:  # stray bytes, or fill bytes (T.81, B.1.1.2)
            found = _MARKER.search(data, pos)
            if found is None:
                raise IndexError
            pos = found.end()
            marker = data[pos - 1]
        if marker in _WITHOUT_LENGTH:
            continue
        if marker == _EOI:
            raise DecodeError("the JPEG ends (EOI) before any picture")
        length = data[pos] << 8 | data[pos + 1]
        if length < 2:
            raise DecodeError(f"JPEG segment FF {marker:02X} has the impossible length {length}")
        if marker == _SOS:
            break
        if marker in _SOF:
            if not frame:
                frame, sof = pos, marker
        elif marker == _DRI:
            restart_interval = data[pos + 2] << 8 | data[pos + 3]
        elif marker == _APP0:
            jfif = jfif or data[pos + 2 : pos + 7] == b"JFIF\0"
        elif marker == _APP1:
            if orientation == 1 and data[pos + 2 : pos + 8] == b"Exif\0\0":
                orientation = exif.orientation(data, pos + 8, pos + length)
        elif marker == _APP14 and length >= 14 and data[pos + 2 : pos + 7] == b"Adobe":
            adobe = data[pos + 13]
        pos += length
    else:
        raise DecodeError(f"the JPEG header has more than {_MAX_SEGMENTS} segments")
    if not frame:
        raise DecodeError("the JPEG has no frame header (SOF) before its first scan")
    return _Segments(frame, sof, pos + length, restart_interval, orientation, jfif, adobe)


def _subsampling(factors: list[int]) -> str:
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


def _color(channels: int, segments: _Segments, ids: tuple[int, ...]) -> Color:
    """Guess the colour model as libjpeg does (jdapimin.c, default_decompress_parms)."""
    if channels == 1:
        return "gray"
    if channels == 3:
        adobe = segments.adobe
        if not segments.jfif and (adobe == 0 or (adobe < 0 and ids == (0x52, 0x47, 0x42))):
            return "rgb"
        return "ycc"
    return "cmyk" if channels == 4 else "other"
