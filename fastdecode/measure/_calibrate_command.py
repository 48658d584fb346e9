"""``fastdecode calibrate``: measure the backends on this machine, and save the ranking."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fastdecode import _files
from fastdecode._system import device_ranking_path, ranking_path
from fastdecode.errors import FastDecodeError, visible
from fastdecode.measure import _collection as files
from fastdecode.measure import _report as report
from fastdecode.measure._calibrate import (
    BATCHES,
    DEVICE_S,
    FULL_S,
    QUICK_S,
    calibrate,
    find_device,
)
from fastdecode.measure._collection import USUAL_LIMIT
from fastdecode.terminal import INTERRUPTED, Parser, counts, paragraph, progress, seconds, width
from fastdecode.types import CONTEXTS

if TYPE_CHECKING:
    import torch

    from fastdecode.ranking import DeviceRanking, Ranking
    from fastdecode.types import Buffer, Context

_EXAMPLES = f"""\
examples:
  %(prog)s              about {FULL_S:.0f} seconds
  %(prog)s --quick      about {QUICK_S:.0f} seconds, coarser
  %(prog)s photos/      on your own images
  %(prog)s --device cuda    about {DEVICE_S:.0f} seconds

The ranking is saved in a file that decode() reads from then on in each of your
new processes on this machine; the environment variable FASTDECODE_RANKING names
another file. It is ignored, with a warning, after a library has changed.

With --device it measures how fast images reach that device: decoded there by
each batch backend, or decoded by all cores of the CPU and copied. With
decode="auto", decode_batch() and the Loader use the result. It is saved next to
the ranking, in one file per model of device: if FASTDECODE_RANKING is
FOLDER/NAME.json, that is FOLDER/NAME-device-KEY.json.

exit status: 0; 2 for a wrong argument, no images, nothing to compare, or a file
that cannot be written; 130 after Ctrl-C, with nothing saved"""
QUICK_DEVICE_S = 20.0
_MIN_WIDTH = 60
_NOTHING = "nothing was compared: no two backends here read the same of these files"
_QUICK_CONTEXTS: tuple[Context, ...] = ("one", "threads")


def run(options: argparse.Namespace, parser: Parser) -> int:
    """Measure and save; return the exit status."""
    if options.batch and options.device is None:
        parser.error("--batch is for --device")
    if options.to and options.device is not None:
        parser.error(
            "--to is not for --device: decode_batch() looks next to the file that "
            "FASTDECODE_RANKING names"
        )
    begun = time.monotonic()
    try:
        options.device = None if options.device is None else find_device(options.device)
        place = None if options.no_save else options.to or _default_path(options.device)
        if options.to:
            _files.check_result(options.to, "--to", ".json", parents=True)
        elif place:  # what is there was not named, and may be damaged: it is replaced
            with _files.name_in_errors(place):
                _files.check_writable(place, parents=True)
        found, text = _for_decode(options) if options.device is None else _for_device(options)
        # Save before printing, because a closed pipe ends the command.
        problem = _save(found, place) if found and place else ""
    except (FastDecodeError, OSError, ImportError, ValueError, RuntimeError) as error:
        parser.fail(error)
    except KeyboardInterrupt:
        print("\nInterrupted: nothing is kept.", file=sys.stderr)
        return INTERRUPTED
    if not found:
        parser.fail(text)
    kept = paragraph(visible(f"Kept in {place}")) if place and not problem else "Not kept."
    print(text)
    print(f"\nMeasured in {time.monotonic() - begun:.1f} s.")
    print(kept, flush=True)
    if problem:
        parser.fail(problem)
    return 0


def _default_path(device: torch.device | None) -> Path:
    """Return where later processes look for the result."""
    if device is None:
        return ranking_path()
    from fastdecode.gpu._devices import identify

    return device_ranking_path(identify(device).name)


def _save(found: Ranking | DeviceRanking, place: Path) -> str:
    """Save the ranking; return why that failed, so that the caller prints it at least."""
    try:
        with _files.name_in_errors(place):
            found.save(place)
    except OSError as error:
        return str(error)
    return ""


def _for_decode(options: argparse.Namespace) -> tuple[Ranking | None, str]:
    """Measure for `decode`; return a ranking and its text, or None and the reason."""
    quick: bool = options.quick
    samples = _find_samples(options.paths) if options.paths else None
    with progress() as notify:
        ranking = calibrate(
            samples,
            contexts=_QUICK_CONTEXTS if quick else CONTEXTS,
            outputs=("array",) if quick else ("array", "pil"),
            seconds=options.seconds or (QUICK_S if quick else FULL_S),
            notify=lambda share: notify("measuring", share),
        )
    if not ranking.orders:
        return None, _NOTHING
    remark = ranking.remark()
    table = str(ranking).removesuffix(remark).splitlines()
    shown = [_fit_line(line) for line in table]
    return ranking, "\n".join([*shown, *(["", paragraph(remark)] if remark else [])])


def _for_device(options: argparse.Namespace) -> tuple[DeviceRanking | None, str]:
    """Measure for a device; return a ranking and its text, or None and the reason."""
    with progress() as notify:
        ranking = calibrate(
            _find_samples(options.paths) if options.paths else None,
            device=options.device,
            batches=options.batch or BATCHES,
            seconds=options.seconds or (QUICK_DEVICE_S if options.quick else DEVICE_S),
            notify=lambda share: notify("measuring", share),
        )
    if not ranking.order():
        return None, report.no_order(ranking)
    return ranking, "\n".join(report.device_ranking(ranking))


def add_arguments(parser: Parser) -> None:
    """Add the arguments of the command to its parser."""
    parser.description = (
        "Measure which decoding library is fastest on this machine, for each format,\n"
        "size and reduction, alone and with all cores busy; decode() then uses the\nresult. "
        "With --device: measure whether images reach a device faster if they\nare decoded there "
        "or on the CPU; decode_batch() and the Loader use the result."
    )
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PATH",
        help="folders, image files and stores (train.tar) to measure with, at most 200 drawn at "
        "random (default: made of the package's photos)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"about {QUICK_S:.0f} seconds: fewer sizes, no worker processes; with --device about "
        f"{QUICK_DEVICE_S:.0f}",
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="measure how fast images come onto it: cuda, cuda:1 or 1; needs PyTorch",
    )
    parser.add_argument(
        "--batch",
        type=counts,
        metavar="N,...",
        help="images per batch on the device; fewer if they are large (default: "
        f"{','.join(map(str, BATCHES))})",
    )
    parser.add_argument(
        "--seconds",
        type=_parse_seconds,
        metavar="S",
        help="about how long it may take; starting, and one kind of work, take their time in any "
        "case",
    )
    _add_paths(parser)


def _add_paths(parser: argparse.ArgumentParser) -> None:
    target = parser.add_mutually_exclusive_group()
    target.add_argument(
        "--to",
        type=Path,
        metavar="FILE",
        help="keep the ranking in this file, for Ranking.load(); not with --device",
    )
    target.add_argument("--no-save", action="store_true", help="print it, keep nothing")


def _parse_seconds(text: str) -> float:
    if seconds(text) == 0:
        raise argparse.ArgumentTypeError("in 0 seconds nothing can be measured")
    return seconds(text)


def _fit_line(line: str) -> str:
    """Shorten a line to the terminal, except to very narrow ones, which wrap it themselves."""
    if len(line) <= width() or width() < _MIN_WIDTH:
        return line
    return f"{line[: width() - 1].rstrip(' ,')}…"


def _find_samples(paths: Sequence[str]) -> list[Path | Buffer]:
    """Find the images; name those that cannot be read, and leave them out."""
    collection = files.collect(paths, limit=USUAL_LIMIT)
    for name, reason in collection.unreadable.items():
        print(paragraph(f"left out: {name}: {visible(reason)}"), file=sys.stderr)
    if not collection.photos:
        raise ValueError(f"no readable images in {visible(', '.join(map(str, paths)))}")
    return [photo.read() if photo.store else photo.path for photo in collection.photos]
