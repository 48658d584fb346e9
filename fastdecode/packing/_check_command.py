"""``fastdecode check``: find what is damaged, too large or named wrongly among images."""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from fastdecode._decode.plan import DEFAULT_MAX_PIXELS
from fastdecode._error_policy import ITEM_ERRORS
from fastdecode._system import files
from fastdecode._system.processor import usable_cores
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
from fastdecode.errors import FastDecodeError, StoreError, visible
from fastdecode.packing._survey import FAILING, Finding, Limits, Status, reason, survey
from fastdecode.stores.folder import open_any

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
    print("\n".join(table(_REPORT, [[*map(visible, row)] for row in rows])))
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
