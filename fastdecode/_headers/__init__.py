"""`sniff` and `probe`: tell the format of a file and read its header, without decoding it.

There is one module per format. Its ``parse(data)`` reads the header, and may raise `IndexError` or
`struct.error` if the data is truncated. `jpeg_stream` reads what follows the header of a JPEG.
"""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from functools import cache
from typing import TypeAlias

from fastdecode.errors import DecodeError, FastDecodeError, UnsupportedFormat
from fastdecode.types import Buffer, Format, Header

_Parser: TypeAlias = Callable[[Buffer], Header]

_MODULES: dict[Format, str] = {"avif": "isobmff", "heic": "isobmff"}  # else the format's own name
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
)


def sniff(data: Buffer) -> Format:
    """Return a file's format by its first bytes; "other" for Pillow to try, even if not an image.

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
        from fastdecode._headers import isobmff

        return isobmff.sniff(data) or "other"
    return "other"


def probe(data: Buffer) -> Header:
    """Read an image's header, which describes the array that the format's decoder returns.

    For JPEG, PNG, WebP and AVIF these are the stored pixels, and `orientation` must still be
    applied. For TIFF, HEIC and JPEG XL these are the pixels that Pillow, libheif or libjxl has
    already turned upright. Raises `DecodeError` for a damaged or truncated header, and
    `UnsupportedFormat` for a format that neither fastdecode nor Pillow, if installed, knows.
    """
    name: Format = "other"
    try:
        name = sniff(data)
        return _parser(name)(data)
    except (FastDecodeError, MemoryError):
        raise
    except (IndexError, OverflowError, struct.error):
        message = f"the {name.upper()} header is truncated ({len(data)} bytes)"
        raise DecodeError(message) from None
    except ModuleNotFoundError as error:
        raise UnsupportedFormat(
            f"data of length {len(data)} is not an image that fastdecode knows; "
            f"Pillow might, but it is not installed ({error})"
        ) from error
    except Exception as error:  # a header may contain anything: no other error leaves this package
        raise DecodeError(f"the {name.upper()} header: {type(error).__name__}: {error}") from error


@cache
def _parser(name: Format) -> _Parser:
    """Import a format's module on first use, and return its `parse`."""
    module = _MODULES.get(name, name)
    parse: _Parser = importlib.import_module(f"fastdecode._headers.{module}").parse
    return parse
