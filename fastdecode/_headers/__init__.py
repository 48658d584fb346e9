"""What the bytes are, and what their header says, without decoding: `sniff` and `probe`.

There is a module for each format, whose ``parse(data)`` reads the header, and may run into an
`IndexError` or `struct.error` where the data ends; `jpeg_stream` knows what follows a JPEG's.
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
    """Tell a file's format from its first bytes: "other" is left to Pillow, be it an image or not.

    The signatures are each format's own; TIFF's are those that Pillow accepts. FF D8 is enough for
    a JPEG: what follows may be damaged, and its header says so. No bytes are a `DecodeError`.
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
    """Read an image's header: it describes the array that the format's decoder gives.

    Those are the stored pixels for JPEG, PNG, WebP and AVIF, whose `orientation` is still to be
    applied; for TIFF, HEIC and JPEG XL the pixels that Pillow, libheif and libjxl have already
    turned upright. A damaged or truncated header is a `DecodeError`; what neither fastdecode nor
    Pillow, where it is installed, knows is an `UnsupportedFormat`.
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
    except Exception as error:  # the edge: a header may say anything
        raise DecodeError(f"the {name.upper()} header: {type(error).__name__}: {error}") from error


@cache
def _parser(name: Format) -> _Parser:
    """Import a format's module on first use, and return its `parse`."""
    module = _MODULES.get(name, name)
    parse: _Parser = importlib.import_module(f"fastdecode._headers.{module}").parse
    return parse
