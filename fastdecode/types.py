"""The words that every module shares: formats, modes, reduces, and what a header says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict, get_args

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CONTEXTS",
    "FORMATS",
    "MODES",
    "OUTPUTS",
    "REDUCES",
    "SIZE_CLASSES",
    "BackendInfo",
    "BatchOptions",
    "Box",
    "Buffer",
    "Coding",
    "Color",
    "Context",
    "DecodeOptions",
    "Format",
    "Header",
    "Image",
    "Mode",
    "Output",
    "PixelLayout",
    "Reduce",
    "SizeClass",
]

Format = Literal[
    "jpeg", "png", "webp", "gif", "bmp", "tiff", "avif", "heic", "jpeg2000", "jxl", "other"
]
"""File formats, as `probe` names them; ``"other"`` is whatever else Pillow opens (ICO, PNM, …)."""

Mode = Literal["RGB", "L", "RGBA", "stored"]
"""What the caller can ask for; ``"stored"`` is what the file holds."""

PixelLayout = Literal["RGB", "L", "RGBA", "CMYK", "stored"]
"""What a backend can be asked for: a `Mode`, or the four inks of a CMYK JPEG (0 = no ink)."""

Reduce = Literal[1, 2, 4, 8]
"""By how much each side is divided: the factors for which libjpeg has a scaled IDCT in SIMD."""

Color = Literal["gray", "ycc", "rgb", "cmyk", "palette", "other"]
"""Colour model of the stored samples; ``"cmyk"`` is CMYK and YCCK."""

Coding = Literal["baseline", "progressive", "arithmetic", "lossless", "jpeg-ls", "other", ""]
"""How a JPEG's samples are coded (sequential Huffman is ``"baseline"``); empty otherwise."""

SizeClass = Literal["small", "medium", "large", "huge"]
"""How many pixels the stored image has: below 0.1, 1 and 6 million, and beyond."""

Output = Literal["array", "tensor", "pil"]
"""What the caller gets: an ndarray (H, W, C), a PyTorch tensor (C, H, W), a Pillow image."""

Context = Literal["one", "threads", "processes"]
"""What else decodes meanwhile: nothing, other threads of the process, other processes."""

FORMATS: tuple[Format, ...] = get_args(Format)
MODES: tuple[Mode, ...] = get_args(Mode)
REDUCES: tuple[Reduce, ...] = get_args(Reduce)
SIZE_CLASSES: tuple[SizeClass, ...] = get_args(SizeClass)
OUTPUTS: tuple[Output, ...] = get_args(Output)
CONTEXTS: tuple[Context, ...] = get_args(Context)

Buffer: TypeAlias = "bytes | memoryview"
"""Encoded bytes inside the package: what `decode` makes of every kind of input, without a copy."""

Box: TypeAlias = "tuple[int, int, int, int]"
"""(left, top, right, bottom) in pixels; right and bottom are one past the end."""

Image: TypeAlias = "NDArray[Any]"
"""Decoded pixels: (H, W) or (H, W, C), row by row."""


class DecodeOptions(TypedDict, total=False):
    """What `decode` takes by name besides `reduce` and `out`: it says what each is."""

    min_size: int | tuple[int, int] | None
    mode: Mode
    region: Box | None
    orient: bool
    strict: bool
    max_pixels: int | None
    backend: str | None


class BatchOptions(DecodeOptions, total=False):
    """How `decode_batch` decodes each image."""

    reduce: int


@dataclass(frozen=True)
class BackendInfo:
    """What is known of a backend here.

    Attributes
    ----------
    name : str
    usable : bool
    reason : str
        Why it is not usable; empty when it is.
    install : str
        The line that installs it.
    version : str
        Of the library behind it; empty where unknown.
    codec : str
        The codec it is linked to, such as ``"libjpeg-turbo 3.1.2"``; empty where unknown.
    exact : bool
        Its pixels are the same as every other exact backend's, so it may be chosen by speed.
    formats : tuple of Format
    reduces : tuple of int
        Reductions it makes inside its JPEG decoder.
    releases_gil, fork_safe : bool
    devices : tuple of str
        Types of device, as PyTorch names them, on which its batch form decodes; empty if it has
        none. Whether such a device is here, and the library is made for it, is another question.

    Examples
    --------
    >>> from fastdecode import backends
    >>> pillow = backends()[0]
    >>> pillow.name, pillow.usable, pillow.reduces
    ('pillow', True, (1, 2, 4, 8))
    """

    name: str
    usable: bool
    reason: str
    install: str
    version: str = ""
    codec: str = ""
    exact: bool = True
    formats: tuple[Format, ...] = ()
    reduces: tuple[int, ...] = ()
    releases_gil: bool = True
    fork_safe: bool = True
    devices: tuple[str, ...] = ()


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
        (``"1x2,2x1,1x1"``); empty where it has no meaning. Of JPEG 2000, components that are
        subsampled: likewise, or how far apart the samples of each lie.
    restart_interval : int
        MCUs between two JPEG restart markers; 0 where there are none.
    color : Color
        Colour model of the stored samples.
    coding : Coding
        How a JPEG's samples are coded. ``"other"`` of JPEG 2000: the components are not the
        channels, one by one (a channel definition in another order, an unusual palette).
    animated : bool
        More than one frame (`decode` gives the first).
    scan_offset : int
        JPEG: where the first scan's data starts, in bytes; 0 for every other format.

    Examples
    --------
    >>> from fastdecode import probe
    >>> header = probe(data)
    >>> header.color, header.subsampling, header.coding
    ('ycc', '4:2:0', 'baseline')
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
