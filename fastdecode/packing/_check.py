"""`survey` and ``fastdecode check``: find what is damaged, too large or named wrongly."""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
import warnings
from collections import Counter
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from fastdecode._decode.api import decode, decode_part, probe
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS
from fastdecode._error_policy import ITEM_ERRORS, is_item_error
from fastdecode._system import files
from fastdecode._system.processor import usable_cores
from fastdecode._system.threads import map_in_order
from fastdecode.cli.terminal import (
    INTERRUPTED,
    Column,
    Parser,
    brief,
    count,
    csv_text,
    positive,
    progress,
    say,
    table,
    worker_count,
)
from fastdecode.errors import (
    FastDecodeError,
    ImageTooLarge,
    StoreError,
    UnsupportedFormat,
    visible,
    without_advice,
)
from fastdecode.stores._scan import SUFFIXES
from fastdecode.stores.folder import open_any

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


# ---- the command

_EXAMPLES = """\
examples:
  %(prog)s photos/
  %(prog)s train.tar --csv findings.csv --max-side 4096

damaged       does not decode, or not all of it
unsupported   is no image, or has a format that no installed backend reads
unreadable    is missing, or the store cannot read its bytes
oversized     is larger than --max-side or --max-pixels
wrong suffix  has the suffix of another format
duplicate     has the same bytes as an earlier one

If something cannot be reached (a forbidden file, a server that is down), the
check ends, because that says nothing about the image.

exit status: 0; 1 if anything is damaged, unsupported or unreadable; 2 for
a wrong argument, nothing at SRC, something that cannot be reached, or a file
that cannot be written; 130 after Ctrl-C"""
_SHOWN = 3
_ORDER: tuple[Status, ...] = (*FAILING, "oversized", "wrong suffix", "duplicate", "good")
_REPORT = (Column("status"), Column("images", right=True), Column("examples"))
_COLUMNS = ("key", "status", "reason", "format", "width", "height", "bytes")


@dataclass
class _Tally:
    """Counts and examples of the findings so far."""

    total: int = 0
    bytes: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)
    ended: str = ""
    """Why the check ended early; empty if it did not."""

    def add(self, finding: Finding) -> None:
        self.total += 1
        self.bytes += finding.bytes
        self.counts[finding.status] += 1
        some = self.examples.setdefault(finding.status, [])
        if finding.status != "good" and len(some) < _SHOWN:
            some.append(brief(f"{finding.key}: {finding.reasons[0]}"))


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Check every image, print what was found, and return the exit status."""
    begun = time.monotonic()
    try:
        if options.csv:
            files.check_result(options.csv, "--csv")
        with warnings.catch_warnings():  # those of Pillow would appear between the lines
            warnings.simplefilter("ignore")
            seen = _check_all(options)
    except KeyboardInterrupt:
        say("Interrupted: nothing is written.", error=True)
        return INTERRUPTED
    except (FastDecodeError, OSError, ValueError, ImportError) as error:
        parser.print_error(reason(error))
        return 2
    _report(seen, time.monotonic() - begun, options.csv)
    if seen.ended:
        sys.stdout.flush()
        parser.print_error(seen.ended)
        return 2
    return int(any(seen.counts[status] for status in FAILING))


def _check_all(options: argparse.Namespace) -> _Tally:
    """Check every item, count the findings, and write the CSV."""
    seen = _Tally()
    rows: list[tuple[str | int, ...]] = [_COLUMNS]
    limits = Limits(options.max_side, options.max_pixels, options.strict)
    threads = options.threads or usable_cores()
    with (
        open_any(options.src) as store,
        progress(counted=True) as notify,
        closing(survey(store, threads, limits)) as findings,
    ):
        if not len(store):
            raise StoreError(f"there is nothing in {options.src}")
        try:
            for finding in findings:
                seen.add(finding)
                notify("checking", seen.total, len(store))
                if options.csv:
                    rows.append(_row(finding))
        except ITEM_ERRORS as error:
            if not seen.total:
                raise
            seen.ended = f"{reason(error)} (after {seen.total:,} of {len(store):,} images)"
    if options.csv:
        with files.name_in_errors(options.csv):
            files.write_bytes(options.csv, csv_text(rows).encode())
    return seen


def _row(one: Finding) -> tuple[str | int, ...]:
    reasons = "; ".join(one.reasons)
    return one.key, one.status, reasons, one.format, one.width, one.height, one.bytes


def _report(seen: _Tally, seconds: float, csv_file: Path | None) -> None:
    rows: list[tuple[str, str, str]] = []
    for status in _ORDER:
        if seen.counts[status]:
            first, *others = [*seen.examples[status], ""]
            rows.append((status, f"{seen.counts[status]:,}", first))
            rows += [("", "", other) for other in others if other]
            more = seen.counts[status] - len(seen.examples[status])
            if others and more:
                rows.append(("", "", f"... and {more:,} more"))
    sys.stdout.write("\n".join([*table(_REPORT, [[*map(visible, row)] for row in rows]), ""]))
    rate = seen.total / max(seconds, 1e-9)
    say(f"{count(seen.total, 'image')}, {seen.bytes / 1e6:,.1f} MB, {rate:,.0f} images/s")
    if csv_file:
        say(f"All of them: {csv_file}")


def add_arguments(parser: Parser) -> None:
    parser.description = (
        "Decode every image, and list those that are damaged, too large or named\nwrongly."
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("src", metavar="SRC", help="a folder, .csv, .tar, .lmdb, .h5, .rec, or a URI of one")
    add("--csv", type=Path, metavar="FILE", help="write a line for each image to this new file")
    add("--max-side", type=positive, metavar="N", help="oversized: a side of more than N pixels")
    add(
        "--max-pixels",
        type=positive,
        default=DEFAULT_MAX_PIXELS,
        metavar="N",
        help="oversized: more than N pixels in all (default: %(default)s, as in decode)",
    )
    add("--threads", type=worker_count, metavar="N", help="threads to use (default: one per core)")
    add("--strict", action="store_true", help="count a warning of the codec as damage")
