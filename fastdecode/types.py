"""The types that every module shares: formats, modes, reductions, `Header`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypedDict, get_args

if TYPE_CHECKING:
    from numpy.typing import NDArray

Format = Literal[
    "jpeg", "png", "webp", "gif", "bmp", "tiff", "avif", "heic", "jpeg2000", "jxl", "pnm"
]
"""File formats, as `probe` names them; ``"pnm"`` is PBM, PGM and PPM."""

Mode = Literal["RGB", "L", "RGBA", "stored"]
"""Pixel formats that a caller can ask for; ``"stored"`` keeps that of the file."""

PixelLayout = Literal["RGB", "L", "RGBA", "CMYK", "stored"]
"""Pixel formats that a backend can return: a `Mode`, or the four inks of a CMYK JPEG (0 = none)."""

Reduce = Literal[1, 2, 4, 8]
"""Divisors of both sides: the factors for which libjpeg-turbo has a scaled IDCT in SIMD."""

Color = Literal["gray", "ycc", "rgb", "cmyk", "palette", "other"]
"""Colour model of the stored samples; ``"cmyk"`` is CMYK and YCCK."""

Coding = Literal[
    "baseline", "progressive", "arithmetic", "lossless", "jpeg-ls",
    "jpeg", "fax", "packed", "rle", "plain", "other", "",
]  # fmt: skip
"""How samples are coded: `Header` says what each means in which format; empty is the usual way."""

Sample = Literal["unsigned", "signed", "float"]
"""Number type of the stored samples."""

Output = Literal["array", "tensor", "pil"]
"""Types of a result: an ndarray (H, W, C), a PyTorch tensor (C, H, W), a Pillow image."""

FORMATS: tuple[Format, ...] = get_args(Format)
MODES: tuple[Mode, ...] = get_args(Mode)
REDUCES: tuple[Reduce, ...] = get_args(Reduce)
OUTPUTS: tuple[Output, ...] = get_args(Output)

Buffer: TypeAlias = "bytes | memoryview"
"""Encoded bytes inside the package; `decode` turns every kind of input into this without a copy."""

Box: TypeAlias = "tuple[int, int, int, int]"
"""(left, top, right, bottom) in pixels; right and bottom are one past the end."""

Image: TypeAlias = "NDArray[Any]"
"""Decoded pixels: (H, W) or (H, W, C), row by row."""


class DecodeKeywords(TypedDict, total=False):
    """The keyword arguments of `decode`, except `reduce` and `out`; `decode` describes them."""

    min_size: int | tuple[int, int] | None
    mode: Mode
    region: Box | None
    orient: bool
    strict: bool
    max_pixels: int | None
    backend: str | None


class BatchOptions(DecodeKeywords, total=False):
    """The options with which `decode_batch` decodes each image."""

    reduce: int
    max_side: int | None


@dataclass(frozen=True)
class BackendInfo:
    """Describes a backend on this machine.

    Attributes
    ----------
    name : str
    usable : bool
    reason : str
        Why it is not usable; empty if it is.
    install : str
        The command that installs it.
    version : str
        Version of the library behind it; empty if unknown.
    codec : str
        The codec it is linked to, such as ``"libjpeg-turbo 3.1.2"``; empty if unknown.
    exact : bool
        Whether its pixels equal those of every other exact backend, so that it may be chosen by
        speed.
    formats : tuple of Format
    reduces : tuple of int
        Reductions that it does inside its JPEG decoder.
    releases_gil, fork_safe : bool
        Whether it releases the GIL while it decodes, and works in a forked child.
    holds_gil : tuple of Format
        Formats for which it does not release it.
    devices : tuple of str
        Types of device, as PyTorch names them, on which its `BatchBackend` decodes; empty if it has
        none. This does not say whether such a device is present, or supported by the installed
        library.

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
    holds_gil: tuple[Format, ...] = ()


class Header(NamedTuple):
    """The header of an image, read without decoding it.

    Attributes
    ----------
    format : Format
    width, height : int
        Stored size in pixels, before any EXIF orientation.
    channels : int
        Samples per stored pixel: 1 for grey and palette, 3, 4 …
    bits : int
        Bits per sample.
    orientation : int
        Orientation in EXIF, or else in XMP, 1-8; 1 if there is none, or if it is invalid.
    progressive : bool
        Whether it is a progressive JPEG, or an interlaced PNG or GIF.
    subsampling : str
        JPEG chroma subsampling: ``"4:4:4"``, ``"4:2:0"`` …, or else the sampling factors
        (``"1x2,2x1,1x1"``); empty if it has no meaning. For a JPEG 2000 with subsampled components,
        the same, or the distances between the samples of each component.
    restart_interval : int
        MCUs between two JPEG restart markers; 0 if there are none.
    color : Color
        Colour model of the stored samples.
    coding : Coding
        How samples are coded. JPEG: sequential Huffman is ``"baseline"``. JPEG 2000: ``"other"``
        means that the components do not map one to one to the channels (channels defined in
        another order, an unusual palette). TIFF: empty for contiguous pixels in whole strips,
        uncompressed or by LZW, Deflate or PackBits; ``"jpeg"``; ``"fax"`` for CCITT; ``"packed"``
        for all else that tifffile reads. BMP: ``"rle"`` for run lengths. In TIFF,
        ``"other"`` is what no backend reads. PNM: ``"plain"`` if in digits.
    animated : bool
        Whether there is more than one frame (`decode` returns the first).
    scan_offset : int
        For a JPEG, where the data of the first scan starts, in bytes; 0 for every other format.
    sample : Sample
        Number type of the samples.
    maxval : int
        The value of white in a PNM; 0 for every other format, where `bits` says it.

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
    sample: Sample = "unsigned"
    maxval: int = 0
