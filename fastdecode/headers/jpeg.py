"""JPEG: the marker segments before the first scan, walked by their lengths.

Walking matters: an EXIF thumbnail and the second picture of an MPO hold markers of their own, and
a search for the first SOF byte pair finds theirs.
"""

from __future__ import annotations

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
_WITHOUT_LENGTH = frozenset({0x01, _SOI, *range(0xD0, 0xD8)})

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
    frame = 0
    coding: Coding = ""
    progressive = jfif = False
    restart = 0
    orientation = 1
    adobe = -1
    pos = 2
    try:
        while True:
            while data[pos] != 0xFF:
                pos += 1
            while data[pos] == 0xFF:
                pos += 1
            marker = data[pos]
            pos += 1
            if marker in _WITHOUT_LENGTH or marker == 0:
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
                    frame, coding, progressive = pos, _SOF[marker], marker in (0xC2, 0xCA)
            elif marker == _DRI:
                restart = data[pos + 2] << 8 | data[pos + 3]
            elif marker == _APP0:
                jfif = jfif or data[pos + 2 : pos + 7] == b"JFIF\0"
            elif marker == _APP1:
                if orientation == 1 and data[pos + 2 : pos + 8] == b"Exif\0\0":
                    orientation = exif.orientation(data, pos + 8, pos + length)
            elif marker == _APP14 and length >= 14 and data[pos + 2 : pos + 7] == b"Adobe":
                adobe = data[pos + 13]
            pos += length
        scan_offset = pos + length
        if not frame:
            raise DecodeError("the JPEG has no frame header (SOF) before its first scan")
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
        orientation,
        progressive,
        _subsampling(factors),
        restart,
        _color(channels, jfif, adobe, ids),
        coding,
        False,
        scan_offset,
    )


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


def _color(channels: int, jfif: bool, adobe: int, ids: tuple[int, ...]) -> Color:
    """Guess the colour model as libjpeg does (jdapimin.c, default_decompress_parms)."""
    if channels == 1:
        return "gray"
    if channels == 3:
        if not jfif and (adobe == 0 or (adobe < 0 and ids == (0x52, 0x47, 0x42))):
            return "rgb"
        return "ycc"
    return "cmyk" if channels == 4 else "other"
