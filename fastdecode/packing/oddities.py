"""What is odd about a picture that decodes: it may surprise whoever trains on it."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from fastdecode import jpeg_stream
from fastdecode.packing.ends import faults
from fastdecode.packing.verify import plain

if TYPE_CHECKING:
    from fastdecode.types import Buffer, Format, Header

__all__ = ["oddities"]

_SUFFIXES: dict[Format, tuple[str, ...]] = {
    "jpeg": (".jpg", ".jpeg", ".jpe", ".jfif", ".jls", ".mpo"),
    "png": (".png", ".apng"),
    "webp": (".webp",),
    "gif": (".gif",),
    "bmp": (".bmp", ".dib"),
    "tiff": (".tif", ".tiff"),
    "avif": (".avif", ".avifs"),
    "heic": (".heic", ".heif", ".hif"),
    "jpeg2000": (".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx"),
    "jxl": (".jxl",),
}
_PNG_END = re.compile(rb"\x00{4}IEND\xae\x42\x60\x82")
_JPEG_START = b"\xff\xd8\xff"


def oddities(key: str, data: Buffer, header: Header) -> list[str]:
    """List what is odd.

    Parameters
    ----------
    key : str
        For its suffix.
    data : bytes or memoryview
    header : Header
        Of `data`.

    Returns
    -------
    list of str
        In words; empty if it is as most pictures are.
    """
    suffix = PurePosixPath(key).suffix.lower()
    fitting = _SUFFIXES.get(header.format)
    known = any(suffix in suffixes for suffixes in _SUFFIXES.values())
    found = []
    if fitting is not None and known and suffix not in fitting:
        found.append(f"named {suffix}, but its format is {header.format}")
    if header.color == "cmyk":
        found.append("CMYK")
    if header.bits > 8:
        found.append(f"{header.bits} bits a sample")
    if header.orientation != 1:
        found.append(f"EXIF orientation {header.orientation}")
    if header.animated:
        found.append("animated")
    if header.coding not in ("", "baseline", "progressive"):
        found.append(f"JPEG coding: {header.coding}")
    if not key.isascii() and plain(key) != key:
        found.append("its name is no UTF-8, and no key of a store")
    return found + faults(data, header.format) + _trailing(data, header)


def _trailing(data: Buffer, header: Header) -> list[str]:
    """Say what follows the picture's end, where the format shows where that is."""
    end = _end(data, header)
    left = len(data) - end
    if not left:
        return []
    if header.format == "jpeg" and data[end : end + 3] == _JPEG_START:
        return [f"another JPEG of {left} bytes follows it (MPO, or a preview)"]
    return [f"{left} bytes follow its end"]


def _end(data: Buffer, header: Header) -> int:
    """Offset in bytes of the picture's end; that of the file, where it is not known.

    Notes
    -----
    ITU-T T.81, B.1.1.3 (EOI) and F.1.2.3; PNG 1.2, 4.1.4 (IEND, whose length and CRC are fixed).
    """
    if header.format == "jpeg":
        last = jpeg_stream.outer_scans(data, header)[-1]
        end = last.end
        while end < len(data) and data[end] == 0xFF:  # fill bytes belong to the marker
            end += 1
        return end + 1 if end < len(data) and data[end] == 0xD9 else len(data)
    if header.format == "png":
        found = _PNG_END.search(data)
        return found.end() if found else len(data)
    return len(data)
