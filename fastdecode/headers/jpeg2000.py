"""JPEG 2000: the JP2 header box, or the SIZ segment of a bare codestream."""

from __future__ import annotations

import struct

from fastdecode.errors import DecodeError
from fastdecode.headers.isobmff import IsoBox, boxes, find
from fastdecode.types import Buffer, Color, Header

__all__ = ["parse"]

_CODESTREAM = b"\xff\x4f\xff\x51"  # SOC, SIZ
_SIZ = struct.Struct(">IIII")
_COUNT, _DEPTH = 40, 42  # offsets in a codestream: Csiz, and Ssiz of the first component
_IHDR = struct.Struct(">IIHB")
_VARYING = 255
# Enumerated colour spaces: ITU-T T.800, table I.10, and T.801, table M.25.
_COLORS: dict[int, Color] = {
    0: "gray", 12: "cmyk", 15: "gray", 16: "rgb", 17: "gray", 18: "ycc", 20: "rgb", 21: "rgb",
}  # fmt: skip
_BY_COUNT: dict[int, Color] = {1: "gray", 2: "gray", 3: "rgb", 4: "rgb"}


def parse(data: Buffer) -> Header:
    """Read a JPEG 2000's header.

    Parameters
    ----------
    data : bytes or memoryview

    Returns
    -------
    Header
        A palette counts as one channel.

    Raises
    ------
    DecodeError
        If there is no header box, or no picture in it. `struct.error` if the data ends first.

    Notes
    -----
    ITU-T T.800: A.5.1 (SIZ), I.5.3 (JP2 header, ihdr, bpcc, colr, pclr).
    """
    if data[:4] == _CODESTREAM:
        return _codestream(data)
    jp2h = find(data, IsoBox(b"", 0, len(data)), b"jp2h")
    if jp2h is None:
        raise DecodeError("the JPEG 2000 file has no header box (jp2h)")
    return _header_box(data, jp2h)


def _codestream(data: Buffer) -> Header:
    right, bottom, left, top = _SIZ.unpack_from(data, 8)
    channels, depth = struct.unpack_from(">HB", data, _COUNT)
    return _header(right - left, bottom - top, channels, depth, _BY_COUNT.get(channels, "other"))


def _header_box(data: Buffer, jp2h: IsoBox) -> Header:
    width = height = channels = depth = 0
    color: Color | None = None
    palette = False
    for box in boxes(data, jp2h.start, jp2h.end):
        if box.kind == b"ihdr":
            height, width, channels, depth = _IHDR.unpack_from(data, box.start)
        elif box.kind == b"bpcc" and depth == _VARYING:
            depth = data[box.start]
        elif box.kind == b"colr" and color is None and data[box.start] == 1:
            color = _COLORS.get(struct.unpack_from(">I", data, box.start + 3)[0], "other")
        elif box.kind == b"pclr":
            palette = True
    if palette:
        color = "palette"
    return _header(width, height, channels, depth, color or _BY_COUNT.get(channels, "other"))


def _header(width: int, height: int, channels: int, depth: int, color: Color) -> Header:
    if width <= 0 or height <= 0 or not channels:
        raise DecodeError(
            f"the JPEG 2000 header says {width}x{height} pixels with {channels} components"
        )
    bits = 8 if depth == _VARYING else (depth & 0x7F) + 1  # the top bit: signed samples
    return Header("jpeg2000", width, height, channels, bits, color=color)
