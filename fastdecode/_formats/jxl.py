"""JPEG XL: the size and metadata bits at the start of the codestream, bare or in its container."""

from __future__ import annotations

from typing import TypeAlias

from fastdecode._formats.heif import boxes
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Coding, Color, Header, Sample

_SIGNATURE = b"\xff\x0a"
_HEADER_BYTES = 8192  # more than the parser needs for any sane file
_MAX_EXTRA_CHANNELS = 256
# Width as a fraction of the height, by the 3-bit ratio; 0 means that the file contains the width.
_RATIOS = {1: (1, 1), 2: (12, 10), 3: (4, 3), 4: (3, 2), 5: (16, 9), 6: (5, 4), 7: (2, 1)}
# How sides are coded: (unit, choices of offset and bits); the second is for multiples of 8.
_Sides: TypeAlias = tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
_IMAGE: _Sides = ((1, ((1, 9), (1, 13), (1, 18), (1, 30))), (8, ((1, 5),)))
_PREVIEW: _Sides = (
    (1, ((1, 6), (65, 8), (321, 10), (1345, 12))),
    (8, ((16, 0), (32, 0), (1, 5), (33, 9))),
)
_ALPHA, _SPOT_COLOR, _CFA = 0, 2, 5  # extra channel types
_GRAY = 1  # colour space


class _CodestreamBits:
    """The codestream's bits, least significant first."""

    def __init__(self, data: bytes) -> None:
        self._value = int.from_bytes(data, "little")
        self._left = 8 * len(data)

    def u(self, count: int) -> int:
        """Read an unsigned integer of `count` bits."""
        if count > self._left:
            raise IndexError
        value = self._value & ((1 << count) - 1)
        self._value >>= count
        self._left -= count
        return value

    def u32(self, *choices: tuple[int, int]) -> int:
        """Read U32(): two bits choose one of four (offset, bits); a single choice needs none."""
        offset, count = choices[self.u(2) if len(choices) > 1 else 0]
        return offset + self.u(count)

    def enum(self) -> int:
        return self.u32((0, 0), (1, 0), (2, 4), (18, 6))


def parse(data: Buffer) -> Header:
    """Read a JPEG XL's header, which describes the upright image that libjxl returns.

    `channels` includes the alpha channel, but no other extra channel, such as depth. ISO/IEC
    18181-1, annex D (SizeHeader, ImageMetadata, BitDepth, ExtraChannelInfo, ColourEncoding);
    18181-2 (boxes).
    """
    codestream = _codestream(data)
    if codestream[:2] != _SIGNATURE:
        raise DecodeError("the JPEG XL codestream does not start with FF 0A")
    bits = _CodestreamBits(codestream[2:])
    width, height = _size(bits, _IMAGE)
    orientation, animated = 1, False
    depth, color, alpha, is_linear = 8, _GRAY - 1, False, False
    sample: Sample = "unsigned"
    if not bits.u(1):  # all_default
        if bits.u(1):  # extra_fields
            orientation = 1 + bits.u(3)
            animated = _extra_fields(bits)
        depth, sample = _bit_depth(bits)
        bits.u(1)  # modular_16bit_buffers
        alpha = _has_alpha(bits)
        color, is_linear = _color_space(bits)
    if orientation >= 5:
        width, height = height, width
    gray = color == _GRAY
    name: Color = "gray" if gray else "rgb"
    channels = (1 if gray else 3) + alpha
    coding: Coding = "other" if is_linear else ""
    return Header(
        "jxl",
        width,
        height,
        channels,
        depth,
        color=name,
        animated=animated,
        coding=coding,
        sample=sample,
    )


def oddity(_: Buffer) -> str:
    """Return what makes its coding ``"other"``."""
    return "lossy colours of an ICC profile, of which libjxl makes linear light; djxl converts it"


def _codestream(data: Buffer) -> bytes:
    """Return the first bytes of the codestream: of the jxlc box, or of the joined jxlp boxes."""
    if data[:2] == _SIGNATURE:
        return bytes(data[:_HEADER_BYTES])
    parts = b""
    for box in boxes(data):
        if box.kind == b"jxlc":
            return bytes(data[box.start : min(box.end, box.start + _HEADER_BYTES)])
        if box.kind == b"jxlp":  # a 4-byte counter comes first
            start = min(box.start + 4, box.end)
            parts += bytes(data[start : min(box.end, start + _HEADER_BYTES)])
            if len(parts) >= _HEADER_BYTES:
                break
    if not parts:
        raise DecodeError("the JPEG XL container has no codestream (jxlc, jxlp)")
    return parts


def _size(bits: _CodestreamBits, sides: _Sides) -> tuple[int, int]:
    """Read (width, height) from a SizeHeader or a PreviewHeader."""
    unit, choices = sides[bits.u(1)]
    height = unit * bits.u32(*choices)
    ratio = bits.u(3)
    if not ratio:
        return unit * bits.u32(*choices), height
    numerator, denominator = _RATIOS[ratio]
    return height * numerator // denominator, height


def _extra_fields(bits: _CodestreamBits) -> bool:
    """Skip the intrinsic size and the preview; return whether there is an animation."""
    if bits.u(1):
        _size(bits, _IMAGE)
    if bits.u(1):
        _size(bits, _PREVIEW)
    if not bits.u(1):
        return False
    bits.u32((100, 0), (1000, 0), (1, 10), (1, 30))  # ticks per second: numerator, denominator
    bits.u32((1, 0), (1001, 0), (1, 8), (1, 10))
    bits.u32((0, 0), (0, 3), (0, 16), (0, 32))  # loops
    bits.u(1)  # timecodes
    return True


def _bit_depth(bits: _CodestreamBits) -> tuple[int, Sample]:
    """Read a BitDepth: the bits of an integer sample, or of a float including its exponent."""
    if not bits.u(1):
        return bits.u32((8, 0), (10, 0), (12, 0), (1, 6)), "unsigned"
    depth = bits.u32((32, 0), (16, 0), (24, 0), (1, 6))
    bits.u(4)  # exponent bits
    return depth, "float"


def _has_alpha(bits: _CodestreamBits) -> bool:
    """Skip the extra channels; return whether one of them is alpha."""
    alpha = False
    count = bits.u32((0, 0), (1, 0), (2, 4), (1, 12))
    if count > _MAX_EXTRA_CHANNELS:
        raise DecodeError(f"the JPEG XL header says {count} extra channels")
    for _ in range(count):
        if bits.u(1):  # d_alpha: all defaults
            alpha = True
            continue
        kind = bits.enum()
        _bit_depth(bits)
        bits.u32((0, 0), (3, 0), (4, 0), (1, 3))  # subsampling
        bits.u(8 * bits.u32((0, 0), (0, 4), (16, 5), (48, 10)))  # name
        if kind == _ALPHA:
            alpha = True
            bits.u(1)  # premultiplied
        elif kind == _SPOT_COLOR:
            bits.u(64)  # four half floats
        elif kind == _CFA:
            bits.u32((1, 0), (0, 2), (3, 4), (19, 8))
    return alpha


def _color_space(bits: _CodestreamBits) -> tuple[int, bool]:
    """Read up to the colour space of the ColourEncoding: 0 RGB, 1 grey, 2 XYB, 3 unknown.

    Return also whether libjxl gives linear light: for lossy colours with an ICC profile.
    """
    xyb_encoded = bits.u(1)
    if bits.u(1):  # all_default: sRGB
        return 0, False
    want_icc = bits.u(1)
    return bits.enum(), bool(xyb_encoded and want_icc)
