"""``python -m fastdecode calibrate``: measure the backends here, and keep the ranking."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastdecode import outfile
from fastdecode.bench import files
from fastdecode.bench.on_device import CPU, OnDevice
from fastdecode.bench.on_device_run import measurement_of
from fastdecode.bench.on_device_words import COLUMNS, legend
from fastdecode.bench.progress import progress
from fastdecode.bench.tables import Column, Table, paragraph, plain, width
from fastdecode.calibration import calibrate
from fastdecode.calibration.api import BATCHES, DEVICE_S
from fastdecode.calibration.measure import FULL_S, QUICK_S
from fastdecode.errors import BackendUnavailable, FastDecodeError
from fastdecode.installation import device_ranking_path, ranking_path
from fastdecode.types import CONTEXTS

if TYPE_CHECKING:
    from fastdecode.device.identity import Identity
    from fastdecode.device.ranking import DeviceRanking
    from fastdecode.ranking import Ranking
    from fastdecode.types import Buffer, Context, Output

__all__ = ["QUICK_DEVICE_S", "main"]

_EXAMPLES = f"""\
examples:
  python -m fastdecode calibrate              about {FULL_S:.0f} seconds
  python -m fastdecode calibrate --quick      about {QUICK_S:.0f} seconds, coarser
  python -m fastdecode calibrate photos/      on your own images
  python -m fastdecode calibrate --device cuda    about {DEVICE_S:.0f} seconds

With --device it measures how fast JPEGs come onto that device: decoded there by
each batch backend, or by all cores of the CPU and copied. decode_batch() and the
Loader go by that with decode="auto"; it is kept in a file of its own.

The ranking is kept in a file that decode() reads from then on, in every new
process of yours on this machine; the environment variable FASTDECODE_RANKING
names another file. It is ignored, with a warning, once a library has changed.

exit status: 0; 2 for a wrong argument, no images, nothing to compare, or a file
that cannot be written; 130 after Ctrl-C, with nothing kept"""
QUICK_DEVICE_S = 20.0
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
    if options.batch and not options.device:
        parser.error("--batch is for --device")
    begun = time.monotonic()
    try:
        place = None if options.no_save else options.to or _usual_place(options.device)
        if place:
            _check(place)
        found, text = _for_device(options) if options.device else _for_decode(options)
        if found and place:
            found.save(place)  # before anything is printed: the reader may be gone
    except (FastDecodeError, OSError, ImportError, ValueError, RuntimeError) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except KeyboardInterrupt:
        print("\nInterrupted: nothing is kept.", file=sys.stderr)
        return 130
    if not found:
        parser.exit(2, f"{parser.prog}: error: {_NOTHING}\n")
    try:
        print(text)
        print(f"\nMeasured in {time.monotonic() - begun:.1f} s.")
        print(paragraph(f"Kept in {place}") if place else "Not kept.", flush=True)
    except OSError:  # whoever reads this has read enough, or has no room
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return 0


def _usual_place(device: str | None) -> Path:
    """Return where later processes look for the result."""
    if device is None:
        return ranking_path()
    return device_ranking_path(_identify(device).name)


def _identify(device: str) -> Identity:
    """Look a device up.

    Raises
    ------
    BackendUnavailable
        If PyTorch is missing.
    RuntimeError, ValueError
        If there is no such device; the message says what is missing.
    """
    try:
        from fastdecode.device.identity import identify
        from fastdecode.device.where import device_of
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise BackendUnavailable(
            "--device needs PyTorch, which is not installed: pip install 'fastdecode[torch]'"
        ) from error
    return identify(device_of(device))


def _for_decode(options: argparse.Namespace) -> tuple[Ranking | None, str]:
    """Measure for `decode`: a ranking, if there is one, and how it is shown."""
    ranking = _measure(options)
    text = "\n".join(_fitted(line) for line in str(ranking).splitlines())
    return (ranking if ranking.orders else None), text


def _for_device(options: argparse.Namespace) -> tuple[DeviceRanking | None, str]:
    """Measure for a device, likewise."""
    with progress() as notify:
        ranking = calibrate(
            _samples(options.paths) if options.paths else None,
            device=options.device,
            batches=options.batch or BATCHES,
            seconds=options.seconds or (QUICK_DEVICE_S if options.quick else DEVICE_S),
            notify=lambda share: notify("measuring", share),
        )
    return (ranking if ranking.order() else None), "\n".join(_device_lines(ranking))


def _device_lines(ranking: DeviceRanking) -> Iterator[str]:
    here = ranking.device
    driver = f", driver {here.driver}" if here.driver else ""
    runtime = f", CUDA {here.runtime}" if here.runtime else ""
    yield paragraph(f"{here.name}{driver}{runtime}; {ranking.cpu}, {ranking.cores} cores")
    yield ""
    columns = [Column(one.title, bool(place)) for place, one in enumerate(COLUMNS)]
    table = Table("", columns)
    for cell, speeds in ranking.speeds.items():
        usual = OnDevice(CPU, cell.format, cell.batch)
        rows = [
            tuple(one.text(measurement_of(usual, name, speed)) for one in COLUMNS)
            for name, speed in speeds.items()
        ]
        table.sections.append(
            (f"{cell.format.upper()}, {cell.size}, batches of {cell.batch}", rows)
        )
    yield from plain(table)
    yield ""
    yield from (paragraph(line, indent="  ", first="") for line in legend())
    for name, why in ranking.lost.items():
        yield paragraph(f"Left out: {name}: {why}", indent="  ", first="")
    yield paragraph(f"The fastest first, over all of these: {', '.join(ranking.order())}.")


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
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="measure how fast pictures come onto it: cuda, cuda:1; needs PyTorch",
    )
    parser.add_argument(
        "--batch",
        type=_batches,
        metavar="N,...",
        help=f"pictures of a batch there (default: {','.join(map(str, BATCHES))})",
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


def _batches(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of positive whole numbers")
    return tuple(sorted({int(word) for word in words}))


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
