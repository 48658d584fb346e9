"""`survey` finds what is damaged, odd or too large among the images of a store."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from fastdecode._arrays import map_in_order
from fastdecode._error_policy import ITEM_ERRORS, is_item_error
from fastdecode._headers import jpeg_stream
from fastdecode.api import decode, probe
from fastdecode.errors import DecodeError, FastDecodeError, ImageTooLarge, UnsupportedFormat
from fastdecode.packing._verify import printable, reason, verify
from fastdecode.plan import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from fastdecode.stores import Store
    from fastdecode.types import Buffer, Format, Header

Status: TypeAlias = Literal[
    "damaged", "no image", "unsupported", "unreadable", "oversized", "odd", "duplicate", "good"
]

FAILING: tuple[Status, ...] = ("damaged", "no image", "unsupported", "unreadable")
"""The statuses of items that do not decode here."""


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
_TRUNCATED = "it is truncated: its end is missing"


class Finding(NamedTuple):
    """The result of checking one item.

    Attributes
    ----------
    key : str
        Key of the item.
    status : Status
        The most serious finding. Items that do not decode here are ``"damaged"``; ``"no image"`` if
        their format is unknown; ``"unsupported"`` if no usable backend reads the format; or
        ``"unreadable"`` if the store cannot read their bytes. Items that decode are
        ``"oversized"`` if they exceed the limits; ``"odd"`` if something about them may surprise;
        ``"duplicate"`` if they have the same bytes as an earlier item; else ``"good"``.
    reasons : tuple of str
        All findings in words, the most serious first.
    format : str
        Format of the image; empty if the header cannot be read.
    width, height : int
        Size in pixels, as stored; 0 if the header cannot be read.
    bytes : int
        Size of the encoded image; 0 if it cannot be read.

    Examples
    --------
    >>> from fastdecode.packing import survey
    >>> from fastdecode.stores import open_store
    >>> finding = next(survey(open_store("train"), threads=1))
    >>> finding.key, finding.format, finding.width, finding.height
    ('bird/canyon-wren.jpg', 'jpeg', 500, 333)
    """

    key: str
    status: Status
    reasons: tuple[str, ...] = ()
    format: str = ""
    width: int = 0
    height: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class Limits:
    """The limits of `survey`: which images are oversized, and whether warnings are damage.

    Attributes
    ----------
    max_side, max_pixels : int or None
        Most pixels of the larger side, and of the whole image. None means no limit. An image of
        more than `max_pixels` is decoded only if `decode` would decode it by default.
    strict : bool
        Whether an image that decodes with a warning of the codec is damaged, instead of odd.

    Examples
    --------
    >>> from fastdecode.packing import Limits, survey
    >>> from fastdecode.stores import open_store
    >>> [finding.status for finding in survey(open_store("train"), 1, Limits(max_side=600))]
    ['good', 'good', 'good', 'oversized', 'good', 'good']
    """

    max_side: int | None = None
    max_pixels: int | None = DEFAULT_MAX_PIXELS
    strict: bool = False


def survey(
    store: Store, threads: int, limits: Limits | None = None
) -> Generator[Finding, None, None]:
    """Check every item of a store: read it, decode it, and note anything unusual.

    Parameters
    ----------
    store : Store
        The store to check.
    threads : int
        Number of threads.
    limits : Limits, optional
        By default images that `decode` refuses as too large are oversized, and a warning of the
        codec is odd.

    Yields
    ------
    Finding
        One for each item, in the order of the store.

    Raises
    ------
    OSError, StoreError
        If the store cannot be reached, or is damaged as a whole. The remaining items are not
        checked.

    Examples
    --------
    >>> from fastdecode.packing import survey
    >>> from fastdecode.stores import open_store
    >>> with open_store("train") as store:
    ...     for finding in survey(store, threads=2):
    ...         print(finding.key, finding.status)
    bird/canyon-wren.jpg good
    bird/perched-osprey.jpg good
    bird/roman-colosseum_422.jpg good
    place/casa-mila.jpg good
    place/piazza-gae-aulenti_gray.jpg good
    place/tea-gardens_progressive.jpg good
    """
    look = _Checker(store, limits or Limits())
    seen: dict[bytes, int] = {}
    with closing(map_in_order(look, range(len(store)), threads)) as found:
        for index, (finding, digest) in enumerate(found):
            first = seen.setdefault(digest, index) if digest else index
            yield finding if first == index else _as_duplicate(finding, printable(store.key(first)))


def _as_duplicate(finding: Finding, first: str) -> Finding:
    status: Status = "duplicate" if finding.status == "good" else finding.status
    reasons = (*finding.reasons, f"the same bytes as {first}")
    return finding._replace(status=status, reasons=reasons)


@dataclass(frozen=True)
class _Checker:
    """Checks one item, in any thread."""

    store: Store
    limits: Limits

    def __call__(self, index: int) -> tuple[Finding, bytes]:
        """Return the finding and a digest of the item's bytes, which is empty without bytes."""
        given = self.store.key(index)
        key = printable(given)
        try:
            data = self.store.read(index)
        except ITEM_ERRORS as error:
            if not is_item_error(error):
                raise
            none = isinstance(error, UnsupportedFormat)
            return Finding(key, "no image" if none else "unreadable", (reason(error),)), b""
        size = len(data)
        if not size:
            return Finding(key, "damaged", ("it is empty (0 bytes)",)), b""
        digest = hashlib.blake2b(data, digest_size=16).digest()
        try:
            header = probe(data)
        except FastDecodeError as error:
            status: Status = "damaged"
            if isinstance(error, (UnsupportedFormat, ImageTooLarge)):
                status = "no image" if isinstance(error, UnsupportedFormat) else "oversized"
            return Finding(key, status, (reason(error),), bytes=size), digest
        status, reasons = self._classify(data, header)
        if status not in FAILING:
            odd = _oddities(given, data, header)
            reasons = [*reasons, *odd]
            status = "odd" if odd and status == "good" else status
        finding = Finding(
            key, status, tuple(reasons), header.format, header.width, header.height, size
        )
        return finding, digest

    def _classify(self, data: bytes | memoryview, header: Header) -> tuple[Status, list[str]]:
        """Return the status of an image as far as decoding and size decide it, with reasons."""
        warning, large = "", self._oversize_reason(header)
        if large and not self._may_decode(header):
            return "oversized", [large]
        try:
            try:
                decode(data, strict=True, max_pixels=None)
            except (DecodeError, UnsupportedFormat) as error:  # most images raise nothing
                verify(data, header)
                if isinstance(error, DecodeError):  # else no backend reports warnings of the format
                    warning = f"it decodes with a warning: {reason(error)}"
        except UnsupportedFormat as error:
            return "unsupported", [reason(error)]
        except FastDecodeError as error:
            return "damaged", [reason(error)]
        except MemoryError:
            sides = f"{header.width} x {header.height} pixels"
            return "oversized", [f"{sides}: there is no memory to decode it"]
        reasons = [words for words in (warning, large) if words]
        if warning and self.limits.strict:
            return "damaged", reasons
        return "oversized" if large else "odd" if warning else "good", reasons

    def _may_decode(self, header: Header) -> bool:
        """Return whether the limits allow to decode an image."""
        most = self.limits.max_pixels
        pixels = header.width * header.height
        return most is None or pixels <= max(most, DEFAULT_MAX_PIXELS)

    def _oversize_reason(self, header: Header) -> str:
        """Return the size of an image in words if it exceeds the limits, else an empty string."""
        side, pixels = max(header.width, header.height), header.width * header.height
        beyond = (self.limits.max_side, side), (self.limits.max_pixels, pixels)
        if not any(most is not None and value > most for most, value in beyond):
            return ""
        return f"{header.width} x {header.height} pixels"


def _oddities(key: str, data: Buffer, header: Header) -> list[str]:
    """List, in words, what may surprise in an image that decodes."""
    suffix = PurePosixPath(key).suffix.lower()
    fitting = _SUFFIXES.get(header.format)
    known = any(suffix in suffixes for suffixes in _SUFFIXES.values())
    found = []
    if fitting is not None and known and suffix not in fitting:
        found.append(f"named {suffix}, but its format is {header.format}")
    if header.color == "cmyk":
        found.append("CMYK")
    if header.bits > 8:
        found.append(f"{header.bits} bits per sample")
    if header.orientation != 1:
        found.append(f"EXIF orientation {header.orientation}")
    if header.animated:
        found.append("animated")
    if header.coding not in ("", "baseline", "progressive"):
        found.append(f"JPEG coding: {header.coding}")
    if not key.isascii() and printable(key) != key:
        found.append("its name is not UTF-8, so it cannot be a key in a store")
    return found + faults(data, header.format) + _trailing(data, header)


def _trailing(data: Buffer, header: Header) -> list[str]:
    """Say what follows the end of the image, if the format tells where that is."""
    end = _end(data, header)
    left = len(data) - end
    if not left:
        return []
    if header.format == "jpeg" and data[end : end + 3] == _JPEG_START:
        return [f"another JPEG of {left} bytes follows it (MPO, or a preview)"]
    return [f"{left} bytes follow its end"]


def _end(data: Buffer, header: Header) -> int:
    """Return the offset of the image's end in bytes; the size of the file if that is unknown.

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


def faults(data: Buffer, format: Format) -> list[str]:
    """List, in words, what is wrong with a file's structure, without decoding it.

    Only PNG, GIF, WebP, AVIF and HEIC are checked. Sources: PNG 1.2, 3.2 and 4.1.4; GIF89a, 15 to
    27; RFC 9649, 2.4 (WebP); ISO/IEC 14496-12, 4.2 (AVIF, HEIC).
    """
    look = _LOOKS.get(format)
    if look is None:
        return []
    try:
        return look(memoryview(data).cast("B"))
    except IndexError:  # read past the end
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
        elif view[at]:  # some writers add a zero
            return ["it holds something that is not a block of a GIF"]
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
        if not size:  # the last box, which extends to the end of the file
            return []
        if size < least or at + size > len(view):
            return ["its last box extends past the end: it is truncated, or other data follows it"]
        at += size
    return []


_LOOKS: dict[Format, Callable[[memoryview], list[str]]] = {
    "png": _png,
    "gif": _gif,
    "webp": _webp,
    "avif": _boxes,
    "heic": _boxes,
}
