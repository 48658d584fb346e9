"""``python -m fastdecode calibrate``: measure the backends here, and keep the ranking."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastdecode import outfile
from fastdecode.bench import files
from fastdecode.bench.progress import progress
from fastdecode.bench.tables import paragraph, width
from fastdecode.calibration import calibrate
from fastdecode.calibration.measure import FULL_S, QUICK_S
from fastdecode.errors import FastDecodeError
from fastdecode.installation import ranking_path
from fastdecode.types import CONTEXTS

if TYPE_CHECKING:
    from fastdecode.ranking import Ranking
    from fastdecode.types import Buffer, Context, Output

__all__ = ["main"]

_EXAMPLES = f"""\
examples:
  python -m fastdecode calibrate              about {FULL_S:.0f} seconds
  python -m fastdecode calibrate --quick      about {QUICK_S:.0f} seconds, coarser
  python -m fastdecode calibrate photos/      on your own images

The ranking is kept in a file that decode() reads from then on, in every new
process of yours on this machine; the environment variable FASTDECODE_RANKING
names another file. It is ignored, with a warning, once a library has changed.

exit status: 0; 2 for a wrong argument, no images, nothing to compare, or a file
that cannot be written; 130 after Ctrl-C, with nothing kept"""
_LEAST_WIDTH = 60
_NOTHING = (
    "nothing was compared: no two backends here read the same of these files, or the time was too "
    "short (--seconds)"
)
_MOST_FILES = 200  # drawn at random: a data set has millions
_QUICK_CONTEXTS: tuple[Context, ...] = ("one", "threads")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and keep.

    Parameters
    ----------
    arguments : sequence of str, optional
        Instead of the command line's.

    Returns
    -------
    int
        The exit status.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    try:
        place = None if options.no_save else options.to or ranking_path()
        if place:
            _check(place)
        ranking = _measure(options)
        if ranking.orders and place:
            ranking.save(place)  # before anything is printed: the reader may be gone
    except (FastDecodeError, OSError, ImportError, ValueError, RuntimeError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except KeyboardInterrupt:
        print("\nInterrupted: nothing is kept.", file=sys.stderr)
        return 130
    if not ranking.orders:
        parser.exit(2, f"{parser.prog}: error: {_NOTHING}\n")
    try:
        print("\n".join(_fitted(line) for line in str(ranking).splitlines()))
        print(f"\nMeasured in {time.monotonic() - begun:.1f} s.")
        print(paragraph(f"Kept in {place}") if place else "Not kept.", flush=True)
    except OSError:  # whoever reads this has read enough, or has no room
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _measure(options: argparse.Namespace) -> Ranking:
    quick: bool = options.quick
    outputs: tuple[Output, ...] = ("array",) if quick else ("array", "pil")
    samples = _samples(options.paths) if options.paths else None
    with progress() as notify:
        return calibrate(
            samples,
            contexts=_QUICK_CONTEXTS if quick else CONTEXTS,
            outputs=outputs,
            seconds=options.seconds or (QUICK_S if quick else FULL_S),
            notify=lambda share: notify("measuring", share),
        )


def _check(place: Path) -> None:
    """Find out before measuring whether the ranking can be kept."""
    try:
        outfile.check(place, parents=True)
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{files.printable(place)} cannot be written: {why}") from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fastdecode calibrate",
        description="Measure which decoding library is fastest on this machine, for each format,\n"
        "size and reduction, alone and with all cores busy; decode() goes by that\nafterwards.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="folders, image files and stores (train.tar) to measure with, at most 200 drawn at "
        "random (default: made of the package's photos)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="about two seconds: fewer sizes, no worker processes"
    )
    parser.add_argument("--seconds", type=_seconds, metavar="S", help="how long it may take in all")
    target = parser.add_mutually_exclusive_group()
    target.add_argument("--to", type=Path, metavar="FILE", help="keep the ranking in this file")
    target.add_argument("--no-save", action="store_true", help="print it, keep nothing")
    return parser


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def _fitted(line: str) -> str:
    """Cut what does not fit: the fastest come first. Very narrow terminals wrap by themselves."""
    if len(line) <= width() or width() < _LEAST_WIDTH:
        return line
    return f"{line[: width() - 1].rstrip(' ,')}…"


def _samples(paths: Sequence[str]) -> list[Path | Buffer]:
    """Find the images; those that cannot be read are named and left out."""
    collection = files.collect(paths, limit=_MOST_FILES)
    for name, reason in collection.unreadable.items():
        print(paragraph(f"left out: {name}: {reason}"), file=sys.stderr)
    if not collection.photos:
        raise ValueError(f"no readable images in {', '.join(map(files.printable, paths))}")
    return [photo.read() if photo.store else photo.path for photo in collection.photos]
