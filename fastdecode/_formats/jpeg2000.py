"""JPEG 2000: the JP2 header box, or the SIZ segment of a bare codestream."""

from __future__ import annotations

import struct
from typing import NamedTuple

from fastdecode._formats.isobmff import IsoBox, whole
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Coding, Color, Header

_CODESTREAM = b"\xff\x4f\xff\x51"  # SOC, SIZ
_EDGES = struct.Struct(">IIII")
_COUNT, _COMPONENTS = 40, 42  # offsets in a codestream: Csiz; Ssiz, XRsiz, YRsiz per component
_IHDR = struct.Struct(">IIHB")
_VARYING = 255
_EIGHT_BITS = 7  # a depth is stored as its bits minus 1
_IS_COLOUR, _WHOLE_IMAGE = 0, 0xFFFF  # Typ and Asoc of a channel definition
_MAX_DEFINITIONS = 256
_MAX_PIXELS_PER_BYTE = 20_000  # photos have fewer than a thousand
_FREE_PIXELS = 1 << 24  # decoded however few bytes promise them: this costs half a second
_MAX_NAMED = 8
# Enumerated colour spaces: ITU-T T.800, table I.10, and T.801, table M.25.
_COLORS: dict[int, Color] = {
    0: "gray", 12: "cmyk", 15: "gray", 16: "rgb", 17: "gray", 18: "ycc", 20: "rgb", 21: "rgb",
}  # fmt: skip
_BY_COUNT: dict[int, Color] = {1: "gray", 2: "gray", 3: "rgb", 4: "rgb"}
# The distance between the samples of Cb and Cr, (across, down), and the name of the subsampling.
_CHROMA = {(2, 1): "4:2:2", (2, 2): "4:2:0", (1, 2): "4:4:0", (4, 1): "4:1:1"}
_NONE = (1, 1)


class _Siz(NamedTuple):
    """The size of the image and its components, from the SIZ segment."""

    width: int
    height: int
    channels: int
    depths: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]


def parse(data: Buffer) -> Header:
    """Read a JPEG 2000's header.

    A palette of 8-bit colours with 8-bit indices counts as one channel. For any other palette,
    `bits`, `channels` and `color` describe the pixels that the decoder returns, and `coding` is
    ``"other"``. `coding` is also ``"other"`` if a channel definition is not in the order of the
    components. `color` is ``"other"`` if the components differ in depth. `subsampling` is empty
    unless a component is subsampled.

    ITU-T T.800: A.5.1 (SIZ), I.5.3 (JP2 header, ihdr, bpcc, colr, pclr, cdef).
    """
    if data[:4] == _CODESTREAM:
        siz = _siz(data, 0)
        return _header(siz.width, siz.height, siz.channels, siz.depths[0], siz)
    jp2h = whole(data).find(b"jp2h")
    if jp2h is None:
        raise DecodeError("the JPEG 2000 file has no header box (jp2h)")
    jp2c = whole(data).find(b"jp2c")
    in_full = jp2c is not None and data[jp2c.start : jp2c.start + 4] == _CODESTREAM
    return _header_box(data, jp2h, _siz(data, jp2c.start) if jp2c and in_full else None)


def excess(data: Buffer, header: Header) -> str:
    """Return how much more the header promises than the data can hold; empty if it can hold it.

    OpenJPEG takes time and memory for all that is promised. Images of one colour are the smallest:
    up to 50,000 pixels a byte at 12 megapixels, and more in larger ones.
    """
    pixels = header.width * header.height
    if pixels <= max(_FREE_PIXELS, _MAX_PIXELS_PER_BYTE * len(data)):
        return ""
    return f"{len(data)} bytes promise {header.width}x{header.height} pixels"


def _siz(data: Buffer, start: int) -> _Siz:
    """Read the SIZ segment of the codestream at `start`."""
    right, bottom, left, top = _EDGES.unpack_from(data, start + 8)
    (count,) = struct.unpack_from(">H", data, start + _COUNT)
    if not count:
        raise DecodeError("the JPEG 2000 codestream has no components")
    found = [
        struct.unpack_from(">BBB", data, start + _COMPONENTS + 3 * index) for index in range(count)
    ]
    if not all(across and down for _, across, down in found):
        raise DecodeError("the JPEG 2000 codestream has a component without samples")
    depths = tuple(depth for depth, _, _ in found)
    return _Siz(right - left, bottom - top, count, depths, tuple(step[1:] for step in found))


def _header_box(data: Buffer, jp2h: IsoBox, siz: _Siz | None) -> Header:
    width = height = channels = depth = 0
    color: Color | None = None
    coding: Coding = ""
    columns = None
    for box in jp2h.boxes():
        if box.kind == b"ihdr":
            height, width, channels, depth = _IHDR.unpack_from(data, box.start)
        elif box.kind == b"bpcc" and depth == _VARYING:
            depth = data[box.start]
        elif box.kind == b"colr" and color is None and data[box.start] == 1:
            color = _COLORS.get(struct.unpack_from(">I", data, box.start + 3)[0], "other")
        elif box.kind == b"pclr":
            columns = data[box.start + 3 : box.start + 3 + data[box.start + 2]]
        elif box.kind == b"cdef" and not _in_order(data, box):
            coding = "other"
    if columns is not None:
        if len(columns) in (3, 4) and {*columns, depth} == {_EIGHT_BITS}:
            color = "palette"
        else:
            channels, depth, coding = len(columns), max(columns, default=0), "other"
    return _header(width, height, channels, depth, siz, color, coding)


def _in_order(data: Buffer, cdef: IsoBox) -> bool:
    """Return whether the colour channels are the first components, in the same order."""
    (count,) = struct.unpack_from(">H", data, cdef.start)
    for index in range(min(count, _MAX_DEFINITIONS)):
        channel, kind, colour = struct.unpack_from(">HHH", data, cdef.start + 2 + 6 * index)
        if kind == _IS_COLOUR and 0 < colour < _WHOLE_IMAGE and colour != channel + 1:
            return False
    return True


def _header(
    width: int,
    height: int,
    channels: int,
    depth: int,
    siz: _Siz | None,
    color: Color | None = None,
    coding: Coding = "",
) -> Header:
    if width <= 0 or height <= 0 or not channels:
        raise DecodeError(
            f"the JPEG 2000 header says {width}x{height} pixels with {channels} components"
        )
    color = color or _BY_COUNT.get(channels, "other")
    if siz and len(set(siz.depths)) > 1:
        depth, color = max(siz.depths, key=_bits), "other"
    bits = 8 if depth == _VARYING else _bits(depth)
    subsampling = _subsampling(siz.steps) if siz else ""
    return Header(
        "jpeg2000", width, height, channels, bits, color=color, coding=coding,
        subsampling=subsampling,
    )  # fmt: skip


def _bits(depth: int) -> int:
    return (depth & 0x7F) + 1  # the top bit: signed samples


def _subsampling(steps: tuple[tuple[int, int], ...]) -> str:
    """Return the name of the subsampling; without a name, the steps of all components."""
    if set(steps) == {_NONE}:
        return ""
    luma, *chroma = steps[:3]
    if luma == _NONE and len(chroma) == 2 and len(set(chroma)) == 1 and set(steps[3:]) <= {_NONE}:
        name = _CHROMA.get(chroma[0])
        if name:
            return name
    return ",".join(f"{across}x{down}" for across, down in steps[:_MAX_NAMED])
