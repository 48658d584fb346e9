"""The words that every module shares: formats, modes, reduces, and what a header says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "FORMATS",
    "MODES",
    "REDUCES",
    "Box",
    "Buffer",
    "Coding",
    "Color",
    "Format",
    "Header",
    "Image",
    "Mode",
    "PixelLayout",
    "Reduce",
]

Format = Literal[
    "jpeg", "png", "webp", "gif", "bmp", "tiff", "avif", "heic", "jpeg2000", "jxl", "other"
]
"""File formats, as `probe` names them; ``"other"`` is whatever else Pillow opens (ICO, PNM, …)."""

Mode = Literal["RGB", "L", "RGBA", "native"]
"""What the caller can ask for; ``"native"`` is what the file holds."""

PixelLayout = Literal["RGB", "L", "RGBA", "CMYK", "native"]
"""What a backend can be asked for: a `Mode`, or the four inks of a CMYK JPEG (0 = no ink)."""

Reduce = Literal[1, 2, 4, 8]
"""By how much each side is divided: the factors for which libjpeg has a scaled IDCT in SIMD."""

Color = Literal["gray", "ycc", "rgb", "cmyk", "palette", "other"]
"""Colour model of the stored samples; ``"cmyk"`` is CMYK and YCCK."""

Coding = Literal["baseline", "progressive", "arithmetic", "lossless", "jpeg-ls", "other", ""]
"""How a JPEG's samples are coded (sequential Huffman is ``"baseline"``); empty otherwise."""

FORMATS: tuple[Format, ...] = get_args(Format)
MODES: tuple[Mode, ...] = get_args(Mode)
REDUCES: tuple[Reduce, ...] = get_args(Reduce)

Buffer: TypeAlias = "bytes | memoryview"
"""Encoded bytes inside the package: what `decode` makes of every kind of input, without a copy."""

Box: TypeAlias = "tuple[int, int, int, int]"
"""(left, top, right, bottom) in pixels; right and bottom are one past the end."""

Image: TypeAlias = "NDArray[Any]"
"""Decoded pixels: (H, W) or (H, W, C), row by row."""


class Header(NamedTuple):
    """What the first bytes of an image say, without decoding it.

    Attributes
    ----------
    format : Format
    width, height : int
        Stored size in pixels, before any EXIF orientation.
    channels : int
        Samples for each stored pixel: 1 for grey and palette, 3, 4 …
    bits : int
        Bits for each sample.
    orientation : int
        EXIF orientation, 1-8; 1 where there is none, or where it is not valid.
    progressive : bool
        Progressive JPEG, interlaced PNG or GIF.
    subsampling : str
        JPEG chroma subsampling: ``"4:4:4"``, ``"4:2:0"`` …, else the sampling factors written out
        (``"1x2,2x1,1x1"``); empty where it has no meaning.
    restart_interval : int
        MCUs between two JPEG restart markers; 0 where there are none.
    color : Color
        Colour model of the stored samples.
    coding : Coding
        How a JPEG's samples are coded.
    animated : bool
        More than one frame (`decode` gives the first).
    scan_offset : int
        JPEG: where the first scan's data starts, in bytes; 0 for every other format.
    """

    format: Format
    width: int
    height: int
    channels: int = 3
    bits: int = 8
    orientation: int = 1
    progressive: bool = False
    subsampling: str = ""
    restart_interval: int = 0
    color: Color = "rgb"
    coding: Coding = ""
    animated: bool = False
    scan_offset: int = 0
