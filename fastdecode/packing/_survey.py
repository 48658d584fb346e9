"""`survey` finds what is damaged, too large or named wrongly among the images of a store."""

from __future__ import annotations

import hashlib
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from fastdecode._decode.api import decode, decode_part, probe
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS
from fastdecode._error_policy import ITEM_ERRORS, is_item_error
from fastdecode._system.threads import map_in_order
from fastdecode.errors import FastDecodeError, ImageTooLarge, UnsupportedFormat, without_advice
from fastdecode.stores._scan import SUFFIXES

if TYPE_CHECKING:
    from fastdecode.stores import Store
    from fastdecode.types import Buffer, Header

Status: TypeAlias = Literal[
    "damaged", "unsupported", "unreadable", "oversized", "wrong suffix", "duplicate", "good"
]

FAILING: tuple[Status, ...] = ("damaged", "unsupported", "unreadable")
"""The statuses of items that do not decode here."""


class Finding(NamedTuple):
    """The result of checking one item.

    Attributes
    ----------
    key : str
        Key of the item.
    status : Status
        The most serious finding. Items that do not decode here are ``"damaged"``;
        ``"unsupported"`` if no usable backend reads their format; or ``"unreadable"`` if the store
        cannot read their bytes. Other items are ``"oversized"`` if they exceed the limits;
        ``"wrong suffix"`` if they are named like another format; ``"duplicate"`` if they have the
        same bytes as an earlier item; else ``"good"``.
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
        Whether an image that decodes with a warning of the codec is damaged.

    Examples
    --------
    >>> from fastdecode.packing import Limits, survey
    >>> from fastdecode.stores import open_store
    >>> [finding.status for finding in survey(open_store("train"), 1, Limits(max_side=600))]
    ['good', 'good', 'oversized', 'good', 'good', 'good']
    """

    max_side: int | None = None
    max_pixels: int | None = DEFAULT_MAX_PIXELS
    strict: bool = False


def survey(
    store: Store, threads: int, limits: Limits | None = None
) -> Generator[Finding, None, None]:
    """Check every item of a store: read it, decode it, and compare its name with its format.

    Parameters
    ----------
    store : Store
        The store to check.
    threads : int
        Number of threads.
    limits : Limits, optional
        By default images that `decode` refuses as too large are oversized, and warnings of the
        codec are ignored.

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
    place/casa-mila.jpg good
    place/piazza-gae-aulenti_gray.jpg good
    place/roman-colosseum_422.jpg good
    place/tea-gardens_progressive.jpg good
    """
    look = _Checker(store, limits or Limits())
    seen: dict[bytes, int] = {}
    with closing(map_in_order(look, range(len(store)), threads)) as found:
        for index, (finding, digest) in enumerate(found):
            first = seen.setdefault(digest, index) if digest else index
            if first == index:
                yield finding
            else:
                yield _with(finding, "duplicate", f"the same bytes as {store.key(first)}")


def _with(finding: Finding, status: Status, why: str) -> Finding:
    """Add something to a finding that may have a more serious status."""
    kept = status if finding.status == "good" else finding.status
    return finding._replace(status=kept, reasons=(*finding.reasons, printable(why)))


@dataclass(frozen=True)
class _Checker:
    """Checks one item, in any thread."""

    store: Store
    limits: Limits

    def __call__(self, index: int) -> tuple[Finding, bytes]:
        """Return the finding and a digest of the item's bytes, which is empty without bytes."""
        key = printable(self.store.key(index))
        try:
            data = self.store.read(index)
        except ITEM_ERRORS as error:
            if not is_item_error(error):
                raise
            none = isinstance(error, UnsupportedFormat)  # a large file that is no image
            return Finding(key, "unsupported" if none else "unreadable", (reason(error),)), b""
        if not len(data):
            return Finding(key, "damaged", ("it is empty (0 bytes)",)), b""
        digest = hashlib.blake2b(data, digest_size=16).digest()
        try:
            header = probe(data)
        except FastDecodeError as error:
            return Finding(key, _status(error), (reason(error),), bytes=len(data)), digest
        size = header.format, header.width, header.height, len(data)
        finding = Finding(key, "good", (), *size)
        try:
            self._decode(data, header)
        except (FastDecodeError, MemoryError) as error:
            finding = _with(finding, _status(error), reason(error))
        if self._is_oversized(header):
            finding = _with(finding, "oversized", f"{header.width} x {header.height} pixels")
        suffix = PurePosixPath(key).suffix.lower()
        known = any(suffix in suffixes for suffixes in SUFFIXES.values())
        if known and suffix not in SUFFIXES.get(header.format, (suffix,)):
            finding = _with(
                finding, "wrong suffix", f"named {suffix}, but its format is {header.format}"
            )
        return finding, digest

    def _decode(self, data: Buffer, header: Header) -> None:
        """Decode an image, unless it is too large for both the limits and `decode`."""
        most = self.limits.max_pixels
        if most is not None and header.width * header.height > max(most, DEFAULT_MAX_PIXELS):
            return
        if self.limits.strict:
            with suppress(UnsupportedFormat):  # no backend reports warnings of this format
                decode(data, strict=True, max_pixels=None)
                return
        verify(data, header)

    def _is_oversized(self, header: Header) -> bool:
        side, pixels = max(header.width, header.height), header.width * header.height
        beyond = (self.limits.max_side, side), (self.limits.max_pixels, pixels)
        return any(most is not None and value > most for most, value in beyond)


def _status(error: BaseException) -> Status:
    """Return the status of an item whose bytes raise an error."""
    if isinstance(error, (ImageTooLarge, MemoryError)):
        return "oversized"
    return "unsupported" if isinstance(error, UnsupportedFormat) else "damaged"


def verify(data: Buffer, header: Header) -> None:
    """Decode an image in full, however large it is, and discard the pixels."""
    decode_part(data, header, 1, None, max_pixels=None)


def reason(error: BaseException) -> str:
    """Return the reason why an item is bad, in one line."""
    words = printable(" ".join(without_advice(error).split()))
    known = isinstance(error, (FastDecodeError, OSError, ValueError))
    return words if known and words else f"{type(error).__name__}: {words}".rstrip(": ")


def printable(text: str) -> str:
    """Return text that can be written as UTF-8, which the name of a file may not be."""
    return text.encode("utf-8", "backslashreplace").decode()
