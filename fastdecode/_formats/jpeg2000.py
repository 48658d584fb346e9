"""JPEG 2000: the SIZ segment of the codestream, and the colours of the JP2 header box.

Pillow says neither the depth nor the subsampling of the components, on which it depends who decodes
them rightly.
"""

from __future__ import annotations

import struct

from fastdecode._formats.heif import Box, boxes, find
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Coding, Color, Header

_CODESTREAM = b"\xff\x4f\xff\x51"  # SOC, SIZ
_COUNT, _COMPONENTS = 40, 42  # offsets in a codestream: Csiz; Ssiz, XRsiz, YRsiz per component
_EIGHT_BITS = 7  # a depth is stored as its bits minus 1; the top bit means signed samples
_IS_COLOUR, _WHOLE_IMAGE = 0, 0xFFFF  # Typ and Asoc of a channel definition
_MAX_DEFINITIONS = 256
_MAX_PIXELS_PER_BYTE = 20_000  # photos have fewer than a thousand
_FREE_PIXELS = 1 << 24  # decoded however few bytes promise them: this costs half a second
# Enumerated colour spaces: ITU-T T.800, table I.10, and T.801, table M.25.
_COLORS: dict[int, Color] = {
    0: "gray", 12: "cmyk", 15: "gray", 16: "rgb", 17: "gray", 18: "ycc", 20: "rgb", 21: "rgb",
}  # fmt: skip
_BY_COUNT: dict[int, Color] = {1: "gray", 2: "gray", 3: "rgb", 4: "rgb"}
# The distance between the samples of Cb and Cr, (across, down), and the name of the subsampling.
_CHROMA = {(2, 1): "4:2:2", (2, 2): "4:2:0", (1, 2): "4:4:0", (4, 1): "4:1:1"}
_NONE = (1, 1)


def parse(data: Buffer) -> Header:
    """Read a JPEG 2000's header.

    A palette of 8-bit colours with 8-bit indices counts as one channel. For any other palette,
    `bits`, `channels` and `color` describe the pixels that the decoder returns, and `coding` is
    ``"other"``. `coding` is also ``"other"`` if a channel definition is not in the order of the
    components. `color` is ``"other"`` if the components differ in depth. `subsampling` is empty
    unless a component is subsampled.

    ITU-T T.800: A.5.1 (SIZ), I.5.3 (JP2 header, colr, pclr, cdef).
    """
    at = 0
    colours: tuple[Color | None, Coding, Buffer] = None, "", b""
    if data[:4] != _CODESTREAM:
        jp2h, jp2c = find(data, b"jp2h"), find(data, b"jp2c")
        if jp2h is None or jp2c is None or data[jp2c.start : jp2c.start + 4] != _CODESTREAM:
            raise DecodeError("the JPEG 2000 file lacks its header box (jp2h) or its codestream")
        at = jp2c.start
        colours = _colours(data, jp2h)
    color, coding, columns = colours
    right, bottom, left, top = struct.unpack_from(">IIII", data, at + 8)
    (channels,) = struct.unpack_from(">H", data, at + _COUNT)
    components = list(
        struct.iter_unpack("BBB", data[at + _COMPONENTS : at + _COMPONENTS + 3 * channels])
    )
    width, height = right - left, bottom - top
    steps = [(across, down) for _, across, down in components]
    if min(width, height, channels, *map(min, steps)) <= 0 or len(steps) < channels:
        raise DecodeError(
            f"the JPEG 2000 header says {width}x{height} pixels with {channels} components"
        )
    depths = {depth for depth, _, _ in components}
    depth = max(depths, key=_bits)
    color = color or _BY_COUNT.get(channels, "other")
    if len(depths) > 1:
        color = "other"
    if columns and len(columns) in (3, 4) and {*columns, *depths} == {_EIGHT_BITS}:
        color = "palette"
    elif columns:
        channels, depth, coding = len(columns), max(columns), "other"
    return Header(
        "jpeg2000", width, height, channels, _bits(depth), color=color, coding=coding,
        subsampling=_subsampling(steps),
    )  # fmt: skip


def excess(data: Buffer, header: Header) -> str:
    """Return how much more the header promises than the data can hold; empty if it can hold it.

    OpenJPEG takes time and memory for all that is promised. Images of one colour are the smallest:
    up to 50,000 pixels a byte at 12 megapixels, and more in larger ones.
    """
    pixels = header.width * header.height
    if pixels <= max(_FREE_PIXELS, _MAX_PIXELS_PER_BYTE * len(data)):
        return ""
    return f"{len(data)} bytes promise {header.width}x{header.height} pixels"


def _colours(data: Buffer, jp2h: Box) -> tuple[Color | None, Coding, Buffer]:
    """Return the colour space, the coding, and the depths of a palette's columns."""
    color: Color | None = None
    coding: Coding = ""
    columns: Buffer = b""
    for box in boxes(data, jp2h.start, jp2h.end):
        if box.kind == b"colr" and color is None and data[box.start] == 1:
            color = _COLORS.get(struct.unpack_from(">I", data, box.start + 3)[0], "other")
        elif box.kind == b"pclr":
            columns = data[box.start + 3 : box.start + 3 + data[box.start + 2]]
        elif box.kind == b"cdef" and not _in_order(data, box):
            coding = "other"
    return color, coding, columns


def _in_order(data: Buffer, cdef: Box) -> bool:
    """Return whether the colour channels are the first components, in the same order."""
    (count,) = struct.unpack_from(">H", data, cdef.start)
    for index in range(min(count, _MAX_DEFINITIONS)):
        channel, kind, colour = struct.unpack_from(">HHH", data, cdef.start + 2 + 6 * index)
        if kind == _IS_COLOUR and 0 < colour < _WHOLE_IMAGE and colour != channel + 1:
            return False
    return True


def _bits(depth: int) -> int:
    return (depth & 0x7F) + 1


def _subsampling(steps: list[tuple[int, int]]) -> str:
    """Return the name of the subsampling; without a name, the steps of all components."""
    luma, *chroma = steps[:3]
    if set(steps) == {_NONE}:
        return ""
    if luma == _NONE and len(chroma) == 2 and len(set(chroma)) == 1 and set(steps[3:]) <= {_NONE}:
        name = _CHROMA.get(chroma[0])
        if name:
            return name
    return ",".join(f"{across}x{down}" for across, down in steps[:8])
