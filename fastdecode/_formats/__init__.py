"""`sniff` and `probe`: tell the format of a file and read its header, without decoding it.

The parser of a format, a function of the data, reads the header, and may raise `IndexError` or
`struct.error` if the data is truncated.
"""

from __future__ import annotations

import pkgutil
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from fastdecode.errors import DecodeError, FastDecodeError, UnsupportedFormat
from fastdecode.types import FORMATS, Buffer, Format, Header

_PARSERS: dict[Format, str] = {
    **{form: f"{form}:parse" for form in ("jpeg", "png", "webp", "tiff", "jpeg2000", "jxl")},
    **{form: f"simple:parse_{form}" for form in ("gif", "bmp", "pnm")},
    **{form: f"heif:parse_{form}" for form in ("avif", "heic")},
}
_TIFF = tuple(
    order + magic
    for order in (b"II", b"MM")
    for magic in (b"\x2a\0", b"\0\x2a", b"\x2b\0", b"\0\x2b")
)
_JP2 = b"\0\0\0\x0cjP  \r\n\x87\n"
_JXL = b"\0\0\0\x0cJXL \r\n\x87\n"
_STARTS: tuple[tuple[tuple[bytes, ...], Format], ...] = (
    ((b"\x89PNG",), "png"),
    ((b"GIF87a", b"GIF89a"), "gif"),
    ((b"BM",), "bmp"),
    (_TIFF, "tiff"),
    ((_JP2, b"\xff\x4f\xff\x51"), "jpeg2000"),
    ((_JXL, b"\xff\x0a"), "jxl"),
    (tuple(b"P%d%c" % (kind, end) for kind in range(1, 7) for end in b" \t\n\v\f\r#"), "pnm"),
)
# Formats that are refused by name: first bytes, name, the Python library that reads them.
_FOREIGN: tuple[tuple[bytes, str, str], ...] = (
    # A TGA has no signature: without a colour map, its fields 3 to 7 are zero.
    *((b"\0\0%c\0\0\0\0\0" % kind, "TGA", "Pillow") for kind in (2, 3, 10, 11)),
    (b"\0\0\1\0", "ICO", "Pillow"),
    (b"\0\0\2\0", "CUR", "Pillow"),
    (b"icns", "ICNS", "Pillow"),
    (b"SIMPLE  =", "FITS", "astropy"),
    (b"\x01\xda", "SGI", "Pillow"),
    (b"Pf", "PFM", "Pillow"),
    (b"PF", "PFM", "OpenCV"),
    (b"P7", "PAM", "OpenCV"),
    (b"8BPS", "PSD", "psd-tools"),
    (b"qoif", "QOI", "Pillow"),
    (b"DDS ", "DDS", "Pillow"),
    *((b"\x0a%c\x01" % version, "PCX", "Pillow") for version in (0, 2, 3, 4, 5)),
    (b"\xb1\x68\xde\x3a", "DCX", "Pillow"),
    (b"#?RADIANCE", "Radiance HDR", "OpenCV"),
    (b"\x76\x2f\x31\x01", "OpenEXR", "OpenEXR"),
    (b"\x59\xa6\x6a\x95", "Sun raster", "OpenCV"),
    (b"II\xbc\x01", "JPEG XR", "imagecodecs"),
    (b"%!PS", "PostScript", "Pillow with Ghostscript"),
    (b"\xc5\xd0\xd3\xc6", "PostScript", "Pillow with Ghostscript"),
    (b"%PDF", "PDF", "pypdfium2"),
    (b"<svg", "SVG", "CairoSVG"),
    (b"/* XPM */", "XPM", "Pillow"),
    (b"#define ", "XBM", "Pillow"),
    (b"\x89HDF", "HDF5", "h5py"),
    (b"\xd7\xcd\xc6\x9a", "WMF", "Pillow on Windows"),
)
_MISSING = {
    "tiff": "tiff:missing",
    "avif": "heif:missing",
    "heic": "heif:missing",
    **{form: f"simple:missing_in_{form}" for form in ("bmp", "pnm")},
}
"""The functions that say what a file lacks, by format."""
_EXCESS = {form: f"{form}:excess" for form in ("png", "jpeg2000", "tiff")}
"""The functions that say what is too much of a file."""
_TGA_END = b"TRUEVISION-XFILE.\0"


class NoFallback(DecodeError):
    """An error that no other backend can avoid: pixels are missing, or `strict` refuses it."""


def sniff(data: Buffer) -> Format | None:
    """Return a file's format by its first bytes; None if it is none that the package reads.

    The signatures are those that each format defines; for TIFF, those that Pillow accepts. FF D8 is
    enough for a JPEG: if the rest is damaged, reading its header reports that. Raises `DecodeError`
    if there are no bytes.
    """
    if len(data) > 1 and data[0] == 0xFF and data[1] == 0xD8:
        return "jpeg"
    if not len(data):
        raise DecodeError("no data: the image is empty (0 bytes)")
    start = bytes(data[:16])
    for signatures, name in _STARTS:
        if start.startswith(signatures):
            return name
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "webp"
    if start[4:8] == b"ftyp":
        from fastdecode._formats import heif

        return heif.sniff(data)
    return None


def probe(data: Buffer) -> Header:
    """Read an image's header, which describes the array that the format's decoder returns.

    For JPEG, PNG, WebP and AVIF these are the stored pixels, and `orientation` must still be
    applied. For TIFF, HEIC and JPEG XL these are the pixels that Pillow, libheif or libjxl has
    already turned upright. Raises `DecodeError` for a damaged or truncated header, and
    `UnsupportedFormat`, which names the format if it is known, for one that is not read.
    """
    name = sniff(data)
    if name is None:
        raise _unsupported(data)
    try:
        header: Header = function(_PARSERS[name])(data)
    except (FastDecodeError, MemoryError):
        raise
    except (IndexError, OverflowError, struct.error):
        message = f"the {name.upper()} header is truncated ({len(data)} bytes)"
        raise DecodeError(message) from None
    except Exception as error:  # a header may contain anything: no other error leaves this package
        words = f"the {name.upper()} header, of {len(data)} bytes: {type(error).__name__}: {error}"
        raise DecodeError(words) from error
    return header


def oddity(data: Buffer, header: Header) -> str:
    """Return in words why no backend reads a file, as far as its header does not say it."""
    if header.coding != "other" or header.format not in ("tiff", "jxl"):
        return ""
    words: str = function(f"{header.format}:oddity")(data)
    return words


def check_container(data: Buffer, header: Header) -> Buffer:
    """Check that a file is as long as its tables say, where decoders do not check it.

    TIFF, AVIF, HEIC, BMP and PNM need this. The other formats are read in order, so their
    decoders notice missing data. A few bytes of PNG, JPEG 2000 or TIFF may cost a decoder seconds.
    Return what to decode.
    """
    form = header.format
    if form in _EXCESS and (words := function(_EXCESS[form])(data, header)):
        raise DecodeError(f"{words}: refused as hostile")
    if form not in _MISSING:
        return data
    try:
        words = function(_MISSING[form])(data, header)
        if not words:
            return function("tiff:without_padding")(data) if form == "tiff" else data
    except (IndexError, OverflowError, struct.error):
        words = f"the tables of its parts are truncated ({len(data)} bytes)"
    raise DecodeError(f"pixels are missing: {words}")


def _unsupported(data: Buffer) -> UnsupportedFormat:
    """Return an error that names the format and a library that reads it, or the first bytes."""
    start = bytes(data[:16])
    tga = ((b"", "TGA", "Pillow"),) if bytes(data[-len(_TGA_END) :]) == _TGA_END else ()
    for signature, name, library in (*tga, *_FOREIGN):
        if start.startswith(signature):
            return UnsupportedFormat(
                f"{name} is not one of the formats of fastdecode ({', '.join(FORMATS)}). "
                f"{library} reads it: convert such files, to PNG or TIFF, or open them there"
            )
    return UnsupportedFormat(
        f"data of length {len(data)} is not an image that fastdecode knows: "
        f"it starts with {start.hex(' ').upper()}"
    )


@cache
def function(place: str) -> Callable[..., Any]:
    """Return a function of a module of this package, which is imported on first use."""
    found: Callable[..., Any] = pkgutil.resolve_name(f"fastdecode._formats.{place}")
    return found
