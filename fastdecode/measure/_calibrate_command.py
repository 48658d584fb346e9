"""``fastdecode calibrate``: measure the backends on this machine, and save the ranking."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastdecode._backends.ranking import MARK, ranking_path
from fastdecode._system import files as _files
from fastdecode.cli.terminal import INTERRUPTED, Parser, paragraph, progress, seconds
from fastdecode.errors import FastDecodeError, visible
from fastdecode.measure import _collection as files
from fastdecode.measure._calibrate import USUAL_S, rank, sample_photos
from fastdecode.measure._collection import USUAL_LIMIT, USUAL_PIXELS
from fastdecode.measure._summary import busy
from fastdecode.measure.result import machine

if TYPE_CHECKING:
    from fastdecode.measure._collection import Photo

_EXAMPLES = f"""\
examples:
  %(prog)s              about {USUAL_S:.0f} seconds, or more
  %(prog)s photos/      on your own images

The ranking is saved in a file that decode() reads from then on in each of your
new processes on this machine; the environment variable FASTDECODE_RANKING names
another file. It is ignored, with a warning, after a library has changed.

exit status: 0; 2 for a wrong argument, no images, nothing to compare, or a file
that cannot be written; 130 after Ctrl-C, with nothing saved"""
_NOTHING = "nothing was compared: no two backends here read the same of these files"


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Measure and save; return the exit status."""
    begun, load = time.monotonic(), busy(machine())
    place = None if options.no_save else options.to or ranking_path()
    try:
        if place:
            _files.check_result(place, "--to", MARK, parents=True)
        photos = _find_photos(options.paths) if options.paths else sample_photos()
        with progress() as notify:
            ranking, notes = rank(photos, options.seconds, notify)
        if not ranking.orders:
            parser.fail("\n".join([_NOTHING, *notes]))
        problem = ""
        if place:  # save before printing, because a closed pipe ends the command
            try:
                with _files.name_in_errors(place):
                    ranking.save(place)
            except OSError as error:
                problem = str(error)
    except (FastDecodeError, OSError, ValueError) as error:
        parser.fail(error)
    except KeyboardInterrupt:
        print("\nInterrupted: nothing is kept.", file=sys.stderr)
        return INTERRUPTED
    print("\n".join(paragraph(line, " " * 19, first="") for line in str(ranking).splitlines()))
    for line in (*notes, load):
        if line:
            print(paragraph(visible(line)))
    print(f"\nMeasured in {time.monotonic() - begun:.1f} s.")
    kept = place and not problem
    print(paragraph(visible(f"Kept in {place}")) if kept else "Not kept.", flush=True)
    if problem:
        parser.fail(problem)
    return 0


def add_arguments(parser: Parser) -> None:
    """Add the arguments of the command to its parser."""
    parser.description = (
        "Measure which decoding library is fastest on this machine, for each format\n"
        "and reduction; decode() then uses the result."
    )
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="folders, image files and stores (train.tar) to measure with, at most "
        f"{USUAL_LIMIT} images drawn at random (default: the package's photos)",
    )
    parser.add_argument(
        "--seconds",
        type=_parse_seconds,
        default=USUAL_S,
        metavar="S",
        help="about how long to measure; starting the processes, and one pass over the images, "
        "take their time in any case (default: %(default)g)",
    )
    target = parser.add_mutually_exclusive_group()
    target.add_argument(
        "--to", type=Path, metavar="FILE", help="keep the ranking in this file, for Ranking.load()"
    )
    target.add_argument("--no-save", action="store_true", help="print it, keep nothing")


def _parse_seconds(text: str) -> float:
    if seconds(text) == 0:
        raise argparse.ArgumentTypeError("in 0 seconds nothing can be measured")
    return seconds(text)


def _find_photos(paths: Sequence[str]) -> list[Photo]:
    """Find the images; name those that cannot be read, and leave them out."""
    collection = files.collect(paths, limit=USUAL_LIMIT, pixels=USUAL_PIXELS)
    for name, reason in collection.unreadable.items():
        print(paragraph(f"left out: {name}: {visible(reason)}"), file=sys.stderr)
    if not collection.photos:
        raise ValueError(f"no readable images in {visible(', '.join(map(str, paths)))}")
    return collection.photos
