"""``python -m fastdecode.bench``: how fast every decoder is here, on the user's own images."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import fastdecode
from fastdecode import ranking
from fastdecode.bench import files, report, run
from fastdecode.bench.machine import machine
from fastdecode.bench.tables import HAS_RICH
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.types import REDUCES

if TYPE_CHECKING:
    from fastdecode.registry import BackendInfo
    from fastdecode.types import Reduce

__all__ = ["main"]

_EXAMPLES = """\
examples:
  python -m fastdecode.bench                      the six photos of the package
  python -m fastdecode.bench photos/              every image under a folder
  python -m fastdecode.bench photos/ --limit 200 --reduce 1,8
  python -m fastdecode.bench a.jpg b.png --backend pillow,simplejpeg --seconds 3

Every backend decodes the same files from memory, in rounds of random order;
"vs best" compares speeds within each round and takes the median over them.
The pixels are compared with Pillow's.

exit status: 0; 1 if no file could be decoded; 2 for a wrong argument or no
images; 130 after Ctrl-C, with what was measured so far"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark.

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
    groups: list[run.Group] = []
    collection = files.Collection()
    try:
        collection = files.collect(options.paths or [files.SAMPLES], limit=options.limit)
        if not options.paths:
            collection.not_images = 0  # the licence of the samples lies beside them
        if not collection.photos:
            _fail_without_images(parser, options.paths, collection)
        if options.list:
            _list(collection)
            return 0
        infos = _backends(options.backend)
        plan = run.Plan(tuple(info.name for info in infos), options.reduce, options.seconds)
        report.heading(machine(), infos, collection)
        sys.stdout.flush()  # before the progress on stderr
        with _progress() as notify:
            run.measure(collection.photos, plan, groups, notify)
    except (FileNotFoundError, UnknownBackend, BackendUnavailable) as error:
        parser.exit(2, f"{parser.prog}: error: {error}\n")
    except KeyboardInterrupt:
        report.report(groups, collection, interrupted=True)
        return 130
    report.report(groups, collection)
    return 0 if any(group.rounds for group in groups) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m fastdecode.bench",
        description="Decode images with every usable backend, and compare speed and pixels.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "paths", nargs="*", type=Path, metavar="PATH", help="folders and image files"
    )
    parser.add_argument(
        "--reduce",
        type=_reduces,
        default=REDUCES,
        metavar="N,…",
        help="divide each side by 1, 2, 4 or 8 (default: 1,2,4,8)",
    )
    parser.add_argument(
        "--backend", type=_names, metavar="NAME,…", help="only these (default: all usable ones)"
    )
    parser.add_argument(
        "--limit", type=_positive, metavar="N", help="at most N images, drawn at random"
    )
    parser.add_argument(
        "--seconds",
        type=_seconds,
        default=0.5,
        metavar="S",
        help="time each backend for at least S seconds at each size (default: 0.5)",
    )
    parser.add_argument("--list", action="store_true", help="list the images, measure nothing")
    parser.add_argument(
        "--version", action="version", version=f"fastdecode {fastdecode.__version__}"
    )
    return parser


def _reduces(text: str) -> tuple[Reduce, ...]:
    wanted = _names(text)
    known: dict[str, Reduce] = {str(reduce): reduce for reduce in REDUCES}
    if not all(word in known for word in wanted):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of 1, 2, 4 and 8")
    return tuple(sorted(known[word] for word in wanted))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not names:
        raise argparse.ArgumentTypeError("the list is empty")
    return names


def _positive(text: str) -> int:
    if not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def _fail_without_images(
    parser: argparse.ArgumentParser, paths: Sequence[Path], collection: files.Collection
) -> None:
    where = ", ".join(files.printable(path) for path in paths)
    text = f"{parser.prog}: error: no readable images in {where}\n"
    if collection.unreadable:
        text += report.listing("Unreadable", collection.unreadable) + "\n"
    if collection.not_images:
        text += f"Passed over, not images: {report.count(collection.not_images, 'file')}\n"
    parser.exit(2, text)


def _backends(names: Sequence[str] | None) -> list[BackendInfo]:
    """Those that were named, else all that are usable and not switched off.

    Raises
    ------
    UnknownBackend, BackendUnavailable
        If one that was named, here or in ``FASTDECODE_BACKEND``, does not work.
    """
    ranking.preferred()
    if names is None:
        off = os.environ.get("FASTDECODE_DISABLE", "").replace(" ", "").split(",")
        return [info for info in fastdecode.backends() if info.usable and info.name not in off]
    for name in names:
        ranking.load_named(name)
    known = {info.name: info for info in fastdecode.backends()}
    return [known[name] for name in names]


def _list(collection: files.Collection) -> None:
    for photo in collection.photos:
        header = photo.header
        size = f"{header.width} x {header.height}"
        print(f"{header.format:8}  {size:>13}  {len(photo.data):>11,} bytes  {photo.name}")
    print(report.count(len(collection.photos), "image"))
    if collection.unreadable:
        print(report.listing("Unreadable", collection.unreadable))


@contextmanager
def _progress() -> Iterator[run.Notify]:
    """Show on standard error how far the run is: a bar on a terminal, else a line for each step."""
    if HAS_RICH and sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("", total=1.0)
            yield lambda what, share: bar.update(task, description=what, completed=share)
        return
    last = ""

    def line(what: str, _share: float) -> None:
        nonlocal last
        if what != last:
            print(f"{what} …", file=sys.stderr, flush=True)
        last = what

    yield line


if __name__ == "__main__":
    sys.exit(main())
