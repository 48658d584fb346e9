"""What the scripts share: options, photos, turns and their ratios, tables, processes, results."""

from __future__ import annotations

import argparse
import dataclasses
import datetime as dt
import importlib.metadata
import json
import math
import os
import random
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from PIL import Image

import fastdecode
from fastdecode import _files
from fastdecode.measure._timing import family, no_garbage_collection
from fastdecode.measure.result import machine
from fastdecode.testing import encode

if TYPE_CHECKING:
    from typing_extensions import Self

_T = TypeVar("_T")
Rounds: TypeAlias = dict[str, dict[int, _T]]
"""What each competitor did, by the number of the round."""

RESULTS = Path(__file__).parent / "results"
_PHOTOS = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
_IMAGES, _AREA = 1000, 500 * 375  # of an epoch, at this size; it falls with the photos' side
_LIBRARIES = (
    "torch",
    "torchvision",
    "torchcodec",
    "timm",
    "nvidia-nvimgcodec-cu13",
    "nvidia-nvimgcodec-cu12",
    "nvidia-dali-cuda130",
    "nvidia-dali-cuda120",
    "pillow",
    "opencv-python-headless",
)


# Options


def parser(
    doc: str | None, *, photos: bool = True, json: Path | None = None, **options: Any
) -> argparse.ArgumentParser:
    """Take a folder of photos, ``--json FILE`` and options by name, each with default and help.

    The default says the type: a list's values are separated by commas, False makes a flag, and
    None is for a whole number that need not be given.
    """
    made = argparse.ArgumentParser(description=(doc or "").strip().splitlines()[0])
    if photos:
        made.add_argument("photos", type=Path, metavar="PHOTOS", help="a folder of them")
    for name, (default, help) in options.items():
        flag, text = f"--{name.replace('_', '-')}", f"{help} (default: %(default)s)"
        if default is False:
            made.add_argument(flag, action="store_true", help=help)
        elif isinstance(default, list):
            kind = _list_of(type(default[0]))
            words = ",".join(map(str, default))
            made.add_argument(flag, type=kind, default=words, metavar="A,B", help=text)
        else:
            kind = int if default is None else type(default)
            made.add_argument(flag, type=kind, default=default, metavar="N", help=text)
    made.add_argument("--json", type=Path, default=json, metavar="FILE", help="keep the result")
    return made


def _list_of(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [kind(word) for word in text.split(",")]


# Photos


def photos_in(folder: Path) -> list[Path]:
    """List the photos under a folder, sorted; without any, that is the end."""
    photos = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _PHOTOS)
    return photos or sys.exit(f"there are no photos in {folder}")


@contextmanager
def linked(
    photos: Sequence[Path], folder: Path, count: int, *, flat: bool = False
) -> Iterator[str]:
    """Make a folder of links, by class or flat: so many photos, each as often as the others."""
    with tempfile.TemporaryDirectory() as root:
        for number in range(count):
            few = count < len(photos)
            photo = photos[number * len(photos) // count if few else number % len(photos)]
            parts = photo.relative_to(folder).parent.parts
            place = Path(root, "" if flat else parts[0] if parts else "photos")
            place.mkdir(exist_ok=True)
            name = f"{number:06d}_{photo.stem}{photo.suffix.lower()}"
            (place / name).symlink_to(photo.resolve())
        yield root


def scaled(photo: Image.Image, format: str, target: int) -> bytes:
    """Resize a photo until its file has about that many bytes."""
    low, high = 16, 4096
    data = b""
    for _ in range(7):
        side = (low + high) // 2
        size = (side, max(1, side * photo.height // photo.width))
        data = encode(photo.resize(size, Image.Resampling.LANCZOS), format)
        low, high = (side, high) if len(data) < target else (low, side)
    return data


def epoch_length(photos: Sequence[Path], batch: int, workers: int, limit: int | None) -> int:
    """Choose the number of images: whole batches, as many for each worker unless it was given."""
    if limit:
        return batch * math.ceil(limit / batch)
    headers = [fastdecode.probe(path.read_bytes()) for path in photos]
    area = sum(header.width * header.height for header in headers) / len(headers)
    step = batch * max(1, workers)
    return step * max(2, math.ceil(_IMAGES * math.sqrt(_AREA / area) / step))


# Turns


def take_turns(
    competitors: Mapping[str, Callable[[], Any]],
    rounds: int,
    *,
    left_out: dict[str, str] | None = None,
    warm_up: bool = True,
) -> Rounds[Any]:
    """Let competitors take turns, in an order drawn anew in each round; return what each gave.

    In the first round, which is the warm-up and does not count, they come in the order of the
    mapping. With `left_out`, it gets the names of those that fail, and why, and the others go on;
    without, an error is the end.
    """
    turns: Rounds[Any] = {}
    running = list(competitors)
    for number in range(0 if warm_up else 1, rounds + 1):
        for name in random.sample(running, len(running)) if number else list(running):
            try:
                one = competitors[name]()
            except Exception as error:  # its library is not there, or fails
                if left_out is None:
                    raise
                left_out[name] = told(error)
                running.remove(name)
                continue
            if number:
                turns.setdefault(name, {})[number] = one
    return {name: turns[name] for name in competitors if name in turns}


def time_each(
    items: Callable[[int], Sequence[_T]],
    competitors: Mapping[str, Callable[[_T], Any]],
    rounds: int,
    *,
    before: Callable[[str], Any] = str,
    check: Callable[[list[Any]], Any] = len,
) -> Rounds[float]:
    """Let competitors take turns at each item of a round, in an order drawn anew.

    Returns the seconds of the rounds, of which round 0 is the warm-up and does not count. `before`
    is called with the name of the competitor whose turn it is, and `check` gets what all have made
    of an item; neither is timed.
    """
    found: Rounds[float] = {name: {} for name in competitors}
    with no_garbage_collection():
        for number in range(rounds + 1):
            spent = dict.fromkeys(competitors, 0.0)
            for item in items(number):
                made = []
                for name in random.sample(list(competitors), len(competitors)):
                    before(name)
                    start = perf_counter()
                    made.append(competitors[name](item))
                    spent[name] += perf_counter() - start
                check(made)
            for name, seconds in spent.items() if number else ():
                found[name][number] = seconds
    return found


def each(turns: Rounds[_T], figure: Callable[[_T], float]) -> Rounds[float]:
    """Take one figure of every turn."""
    return {
        name: {number: figure(turn) for number, turn in rounds.items()}
        for name, rounds in turns.items()
    }


def middle(rounds: Mapping[int, float], digits: int = 3) -> float:
    """Return the median over the rounds."""
    return round(median(rounds.values()), digits)


def ratios(own: Mapping[int, float], base: Mapping[int, float]) -> list[float]:
    """Divide within each round that both were in."""
    return [own[number] / base[number] for number in own if base.get(number)]


def ratio(own: Mapping[int, float], base: Mapping[int, float], digits: int = 3) -> float | None:
    """Return the median of the ratios within a round; None if they share none."""
    pairs = ratios(own, base)
    return round(median(pairs), digits) if pairs else None


def rates(speeds: Rounds[float], *, digits: int = 1, **bases: str) -> dict[str, dict[str, Any]]:
    """Sum up images/s: the median, all rounds, and ratios to the competitors that `bases` names."""
    return {
        name: {
            "images_per_s": middle(own, digits),
            "rounds": [round(speed, digits) for speed in own.values()],
            **{key: ratio(own, speeds.get(base, {})) for key, base in bases.items()},
        }
        for name, own in speeds.items()
    }


def told(error: BaseException) -> str:
    """Return what failed in a line; where it happened is shown, unless a library is missing."""
    if not isinstance(error, ModuleNotFoundError):
        traceback.print_exception(error)
    return f"{type(error).__name__}: {error}".partition("\n")[0]


# Tables


def show(title: str, rows: Mapping[str, Mapping[str, Any]], *names: str) -> None:
    """Print a table: of each row the figures of these names, or all that are numbers."""
    every = (name for one in rows.values() for name in one if isinstance(one[name], (int, float)))
    names = names or tuple(dict.fromkeys(every))
    lines = [(title, *names)]
    lines += [(row, *(_figure(one.get(name)) for name in names)) for row, one in rows.items()]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *others in lines:
        rest = (f"  {cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
        print(f"{first:<{widths[0]}}{''.join(rest)}".rstrip())
    print(flush=True)


def _figure(value: Any) -> str:
    if isinstance(value, Mapping):  # of a spread the middle
        value = value["median"]
    if isinstance(value, float):
        return f"{value:.{3 if abs(value) < 10 else 1}f}"
    return "" if value is None else str(value)


def judge(what: str, figure: float, aim: float, *, at_most: bool = False) -> None:
    """Print whether an aim is met."""
    met = figure <= aim if at_most else figure >= aim
    print(f"{what}: {figure:.3g}; the aim of {aim:g} is {'met' if met else 'MISSED'}", flush=True)


# Processes, as Linux accounts for them

_PROC = Path("/proc")


class Peak(NamedTuple):
    """Memory at its highest, in 10^6 bytes, summed over processes.

    Pages that they share count more than once in `rss_mb`, and divided among them in `pss_mb`.
    """

    rss_mb: float
    pss_mb: float


def resident(pid: int) -> int:
    """Return the bytes that a process has resident; 0 if it has ended."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _proportional(pid: int) -> int:
    try:
        lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


class PeakMemory:
    """Watches a process and its children from a thread while a `with` block runs.

    `pss` finds the proportional size, too. That takes the kernel milliseconds, and holds up the
    process that is looked at: not while the clock runs.
    """

    def __init__(self, pid: int, *, pss: bool = False) -> None:
        self._pid, self._with_pss = pid, pss
        self.peak = Peak(0, 0)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while True:
            members = list(family(self._pid))
            pss = sum(map(_proportional, members)) if self._with_pss else 0
            seen = sum(map(resident, members)) / 1e6, pss / 1e6
            self.peak = Peak(*map(max, self.peak, seen))
            if self._done.wait(0.1):
                return


# Results


def versions() -> dict[str, str]:
    """Say which versions of the libraries are installed that a result depends on."""
    found = {}
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def today() -> str:
    return dt.datetime.now(tz=dt.timezone.utc).date().isoformat()


def write(path: Path, content: Any) -> None:
    """Write a file of JSON: all of it, or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _files.write_text(path, json.dumps(content, indent=1) + "\n")


def keep(options: argparse.Namespace, result: Any, *names: str, **settings: Any) -> None:
    """Write the result to the file of ``--json``, with what it was measured on and the options."""
    if options.json is None:
        return
    chosen = {name: getattr(options, name) for name in names}
    if getattr(options, "photos", None):
        chosen = {"photos": options.photos.resolve().name, **chosen}
    backends = {
        info.name: f"{info.version} ({info.codec})" if info.codec else info.version
        for info in fastdecode.backends()
        if info.usable
    }
    content = {
        "measured": today(),
        "machine": dataclasses.asdict(machine()),
        "backends": backends,
        "settings": {**chosen, **settings},
        "result": result,
    }
    write(options.json, content)
    print(options.json)
