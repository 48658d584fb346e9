"""Whether a file has its end, and its checksums are right: decoders may well not look at that."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastdecode.types import Buffer, Format

__all__ = ["faults"]

_TRUNCATED = "it is truncated: its end is missing"


def faults(data: Buffer, format: Format) -> list[str]:
    """List what is wrong with a file's frame, in words and without decoding it.

    Formats other than PNG, GIF, WebP, AVIF and HEIC are not looked at here. Sources:
    PNG 1.2, 3.2 and 4.1.4; GIF89a, 15 to 27; RFC 9649, 2.4 (WebP); ISO/IEC 14496-12, 4.2 (AVIF,
    HEIC).
    """
    look = _LOOKS.get(format)
    if look is None:
        return []
    try:
        return look(memoryview(data).cast("B"))
    except IndexError:  # beyond the end
        return [_TRUNCATED]


def _png(view: memoryview) -> list[str]:
    found: list[str] = []
    at = 8
    while at + 12 <= len(view):
        end = at + 12 + int.from_bytes(view[at : at + 4], "big")
        if end > len(view):
            break
        kind = bytes(view[at + 4 : at + 8])
        if zlib.crc32(view[at + 4 : end - 4]) != int.from_bytes(view[end - 4 : end], "big"):
            words = f"a {kind.decode('ascii', 'backslashreplace')} chunk has a wrong checksum"
            found += [] if words in found else [words]
        if kind == b"IEND":
            return found
        at = end
    return [*found, _TRUNCATED]


def _gif(view: memoryview) -> list[str]:
    at = 13 + _colours(view[10])
    while view[at] != 0x3B:
        if view[at] == 0x2C:
            at += 11 + _colours(view[at + 9])
        elif view[at] == 0x21:
            at += 2
        elif view[at]:  # some writers put a zero more than needed
            return ["something in it is no block of a GIF"]
        while view[at]:
            at += view[at] + 1
        at += 1
    return []


def _colours(flags: int) -> int:
    """Return the size of a colour table in bytes."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _webp(view: memoryview) -> list[str]:
    size = int.from_bytes(view[4:8], "little") + 8
    if size > len(view):
        return [_TRUNCATED]
    left = len(view) - size - size % 2
    return [f"{left} bytes follow its end"] if left > 0 else []


def _boxes(view: memoryview) -> list[str]:
    at = 0
    while at < len(view):
        size, least = int.from_bytes(view[at : at + 4], "big"), 8
        if size == 1:
            size, least = int.from_bytes(view[at + 8 : at + 16], "big"), 16
        if not size:  # the last one, up to the end
            return []
        if size < least or at + size > len(view):
            return ["its last part goes beyond its end: it is truncated, or more follows it"]
        at += size
    return []


_LOOKS: dict[Format, Callable[[memoryview], list[str]]] = {
    "png": _png,
    "gif": _gif,
    "webp": _webp,
    "avif": _boxes,
    "heic": _boxes,
}
