"""``fastdecode pack``: copy images into a store, and check that each one decodes."""

from __future__ import annotations

import argparse
import re
import time
import warnings

from fastdecode._decode.plan import DEFAULT_MAX_PIXELS
from fastdecode.cli.terminal import (
    INTERRUPTED,
    Parser,
    brief,
    count,
    positive,
    progress,
    quality,
    say,
    worker_count,
)
from fastdecode.errors import FastDecodeError
from fastdecode.packing._check import reason
from fastdecode.packing._pack import BadItems, Packed, pack
from fastdecode.stores import KINDS, kind_for

_EXAMPLES = """\
examples:
  %(prog)s photos/ train.tar
  %(prog)s photos/ train.lmdb --max-side 512 --skip-bad
  %(prog)s s3://bucket/train.csv train.tar --shard-size 1GB
  %(prog)s train.rec photos/ --restart-markers

Next to DST, pack writes DST.json, with counts and checksums, and DST.bad.csv,
with the items that do not decode. After a crash, a full disk or Ctrl-C, the
same command goes on after the last complete shard; without --shard-size it
begins again. The result is the same, byte for byte.

exit status: 0; 1 if items are bad (without --skip-bad), or something cannot be
read or written; 2 if pack cannot begin: a wrong argument, nothing at SRC, or
something at DST; 130 after Ctrl-C"""
_KINDS = [kind for kind, entry in KINDS.items() if entry.writer]
_SHOWN = 5
_LARGEST = 1 << 62
_NOTES = {
    "shrunk": "shrunk",
    "restart markers": "given restart markers",
    "too large": "larger than --max-side, but of a kind that is not shrunk",
    "no restart markers": "JPEGs that cannot be given restart markers, and keep their bytes",
}


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Pack, print what was done, and return the exit status."""
    begun = time.monotonic()
    if options.kind is None and options.dst:
        try:
            kind_for(options.dst)
        except ValueError as error:
            parser.print_error(f"{reason(error)}: --store folder makes a folder of that name")
            return 2
    try:
        with warnings.catch_warnings(), progress(counted=True) as notify:
            warnings.simplefilter("ignore")  # those of Pillow would appear between the lines
            packed = pack(**vars(options), notify=notify)
    except KeyboardInterrupt:
        say(f"Interrupted: {_way_on(options)}.", error=True)
        return INTERRUPTED
    except (FastDecodeError, ImportError, MemoryError, OSError, ValueError) as error:
        return _failed(parser, error, options)
    _report(packed, time.monotonic() - begun)
    return 0


def _way_on(options: argparse.Namespace) -> str:
    """Say what the same command does after it has been interrupted."""
    if options.shard_size:
        return "the same command goes on after the last complete shard"
    return "nothing is written, and the same command begins again"


def _failed(parser: Parser, error: Exception, options: argparse.Namespace) -> int:
    """Print why there is no result, with the first bad items; return the exit status."""
    if isinstance(error, BadItems) and error.packed is not None:
        _name_bad(error.packed)
    words = reason(error)
    if isinstance(error, OSError) and error.strerror and not error.filename:
        words = f"{options.dst}: {error.strerror}"
    parser.print_error(words)
    if isinstance(error, (FileExistsError, FileNotFoundError, ImportError)):
        return 2
    return 1 if isinstance(error, (FastDecodeError, OSError, MemoryError)) else 2


def _name_bad(packed: Packed) -> None:
    for key, why in packed.bad[:_SHOWN]:
        say(brief(f"bad: {key}: {why}"), indent="  ", error=True)
    if len(packed.bad) > _SHOWN:
        say(f"... and {len(packed.bad) - _SHOWN} more", error=True)


def _report(packed: Packed, seconds: float) -> None:
    _name_bad(packed)
    place = f"{packed.location} ({packed.kind})"
    if packed.shards:
        first, *others = packed.shards
        place = f"1 shard, {first}"
        if others:
            place = f"{len(packed.shards):,} shards, {first} to {others[-1]}"
    say(
        f"{count(packed.items, 'image')} in {place}, "
        f"{packed.bytes_in / 1e6:,.1f} MB in, {packed.bytes_out / 1e6:,.1f} MB out"
    )
    for note, words in _NOTES.items():
        if packed.notes[note]:
            say(f"{packed.notes[note]:,} {words}", indent="  ")
    if packed.bad:
        say(f"{len(packed.bad):,} bad, left out: listed in {packed.location}.bad.csv")
    now = packed.items + len(packed.bad) - packed.resumed
    earlier = f", {packed.resumed:,} of an earlier run kept" if packed.resumed else ""
    rate = (
        f"{now / max(seconds, 1e-9):,.0f} images/s in {seconds:.1f} s"
        if now
        else "nothing left to do"
    )
    say(f"{rate}{earlier}")
    say(f"Counts and checksums: {packed.manifest}")


def add_arguments(parser: Parser) -> None:
    parser.description = (
        "Copy images into a store that is cheap to read and decode, and check that\n"
        "each of them decodes."
    )
    parser.epilog = _EXAMPLES
    add = parser.add_argument
    add("src", metavar="SRC", help="a folder, .csv, .tar, .lmdb, .h5, .rec, or a URI of one")
    add("dst", metavar="DST", help="the store to make; nothing may be there yet")
    add(
        "--store",
        dest="kind",
        choices=_KINDS,
        help="kind of store (default: by the suffix of DST; without one, a folder)",
    )
    add(
        "--max-side",
        type=positive,
        metavar="N",
        help="shrink images whose longer side is over N pixels, and encode them again",
    )
    add(
        "--quality",
        type=quality,
        default=90,
        metavar="Q",
        help="quality of JPEGs that are encoded again, 1 to 100 (default: %(default)s)",
    )
    add(
        "--restart-markers",
        action="store_true",
        help="rewrite JPEGs, without loss, so that a part can be decoded without the rest",
    )
    add(
        "--shard-size",
        type=as_bytes,
        metavar="SIZE",
        help="write several .tar shards of at most SIZE each, such as 500MB or 1GB",
    )
    add(
        "--max-pixels",
        type=positive,
        default=DEFAULT_MAX_PIXELS,
        metavar="N",
        help="an image of more than N pixels is bad (default: %(default)s, as in decode)",
    )
    add("--threads", type=worker_count, metavar="N", help="threads to use (default: one per core)")
    add("--skip-bad", action="store_true", help="leave out what does not decode, and list it")


def as_bytes(text: str) -> int:
    """Parse the size of a shard: ``"500MB"`` is 500 000 000 bytes, ``"1GiB"`` 1 073 741 824."""
    form = r"([0-9]+(?:\.[0-9]+)?) ?(?:([KMGT])(i)?)?(B?)"
    found = re.fullmatch(form, text.strip(), re.IGNORECASE)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 500MB or 1GiB")
    number, prefix, binary, unit = found.groups()
    if not prefix and not unit:
        raise argparse.ArgumentTypeError(f"{text} has no unit: {number}GB?")
    power = 0 if not prefix else "KMGT".index(prefix.upper()) + 1
    size = float(number) * float(1024 if binary else 1000) ** power
    if size > _LARGEST:
        raise argparse.ArgumentTypeError(f"{text[:20]!r}... is more than any file can be")
    if round(size) < 1:
        raise argparse.ArgumentTypeError("a shard has at least 1 byte")
    return round(size)
