"""Shared parts of the scripts: options, photos, turns and their ratios, tables, memory, results."""

from __future__ import annotations

import argparse
import dataclasses
import importlib.metadata
import json
import math
import os
import random
import re
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

from PIL import Image

import fastdecode
from fastdecode._system import files
from fastdecode.measure._processes import cpu_seconds, family, no_garbage_collection
from fastdecode.measure.result import machine, now
from fastdecode.testing import encode

_T = TypeVar("_T")
Figures: TypeAlias = Mapping[str, float]
Rounds: TypeAlias = dict[str, dict[int, Figures]]
"""Figures by competitor, number of the round and name of the figure."""

_PROCESSOR = re.sub(r"\(r\)|processor", "", machine().cpu.lower())
RESULTS = Path(__file__).parent / "results" / "_".join(re.findall(r"[a-z0-9]+", _PROCESSOR))
"""The results of this kind of processor."""
sys.path.append(str(RESULTS.parents[2] / "tests" / "support"))  # modules shared with the tests
_PHOTOS = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
_IMAGES, _AREA = 1000, 500 * 375  # images of an epoch at this area; larger photos give fewer
_LIBRARIES = (  # recorded with each result
    *("torch", "torchvision", "torchcodec", "timm", "pillow", "opencv-python-headless", "ray"),
    *("nvidia-nvimgcodec-cu13", "nvidia-nvimgcodec-cu12"),
    *("nvidia-dali-cuda130", "nvidia-dali-cuda120"),
)


# Options


def command(*, photos: str | None = None, json: Path | None = None, **options: Any) -> Any:
    """Make a script of a function that measures; it is called with the command line's options.

    The script writes the function's result to the file of ``--json``. The settings there are all
    options, and whatever the function adds to them. `photos` is the `nargs` of the folder of
    photos. Each further option has a default and a help text. The default determines the type: a
    list takes values separated by commas, False makes a flag, and None is an optional integer.
    """

    def script(measure: Any) -> Callable[[], None]:
        parser = argparse.ArgumentParser(description=measure.__globals__["__doc__"].splitlines()[0])
        add = parser.add_argument
        add("photos", type=Path, nargs=photos, metavar="PHOTOS", help="a folder of photos")
        add("--json", type=Path, default=json, metavar="FILE", help="save the result")
        for name, (default, help) in options.items():
            flag, text = f"--{name.replace('_', '-')}", f"{help} (default: %(default)s)"
            if default is False:
                add(flag, action="store_true", help=help)
            elif isinstance(default, list):
                kind, value = _list_of(type(default[0])), ",".join(map(str, default))
                add(flag, type=kind, default=value, metavar="A,B", help=text)
            else:
                kind = int if default is None else type(default)
                add(flag, type=kind, default=default, metavar="N", help=text)

        def run() -> None:
            chosen = parser.parse_args()
            _keep(chosen, measure(chosen))

        return run

    return script


def _list_of(kind: Callable[[str], Any]) -> Callable[[str], list[Any]]:
    return lambda text: [kind(word) for word in text.split(",")]


# Photos


def photos_in(folder: Path) -> list[Path]:
    """List the photos under a folder, sorted; exit if there are none."""
    photos = sorted(path for path in folder.rglob("*") if path.suffix.lower() in _PHOTOS)
    return photos or sys.exit(f"there are no photos in {folder}")


def spaced(photos: Sequence[Path], limit: int) -> Sequence[Path]:
    """Choose at most `limit` photos, evenly spaced in the list."""
    return photos[:: -(-len(photos) // limit)]


@contextmanager
def linked(
    photos: Sequence[Path], folder: Path, count: int, *, flat: bool = False
) -> Iterator[str]:
    """Make a folder of `count` links, by class or flat; each photo is linked equally often."""
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
    """Resize a photo until its file has about `target` bytes."""
    low, high = 16, 4096
    data = b""
    for _ in range(7):
        side = (low + high) // 2
        size = (side, max(1, side * photo.height // photo.width))
        data = encode(photo.resize(size, Image.Resampling.LANCZOS), format)
        low, high = (side, high) if len(data) < target else (low, side)
    return data


def epoch_length(photos: Sequence[Path], batch: int, workers: int, limit: int | None) -> int:
    """Choose the number of images: whole batches, and equally many a worker if there are enough."""
    if limit:
        step = batch * workers if limit >= batch * workers > 0 else batch
        return step * math.ceil(limit / step)
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
) -> Rounds:
    """Let competitors take turns, in a new random order each round; return their figures.

    The first round is the warm-up: it does not count, and follows the order of the mapping. If
    there is a `left_out`, it receives the name of each competitor that fails, with the reason, and
    the others go on; otherwise the error is raised.
    """
    turns: Rounds = {}
    running = list(competitors)
    for number in range(0 if warm_up else 1, rounds + 1):
        for name in random.sample(running, len(running)) if number else list(running):
            try:
                one = competitors[name]()
            except Exception as error:  # its library is missing, or fails
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
    check: Callable[[list[Any]], Any] | None = None,
) -> Rounds:
    """Let competitors take turns at each item of a round, in a new random order each time.

    Return images/s and milliseconds per item, by round; round 0 is the warm-up and does not count.
    `before` is called with the name of the competitor whose turn it is, and `check` with the
    results of all competitors for an item. Neither is timed.
    """
    found: Rounds = {name: {} for name in competitors}
    with no_garbage_collection():
        for number in range(rounds + 1):
            spent, given = dict.fromkeys(competitors, 0.0), items(number)
            for item in given:
                made = []
                for name in random.sample(list(competitors), len(competitors)):
                    before(name)
                    start = perf_counter()
                    one = competitors[name](item)
                    spent[name] += perf_counter() - start
                    if check:
                        made.append(one)
                    del one  # its memory is free for the next
                if check:
                    check(made)
            for name, seconds in spent.items() if number else ():
                ms = 1000 * seconds / len(given)
                found[name][number] = {"images_per_s": 1000 / ms, "ms": ms}
    return found


def work_done(work: Callable[[], int]) -> dict[str, float]:
    """Return images/s, and the CPU time of 1000 images, of work that returns how many it made."""
    pid = os.getpid()
    cpu, start = cpu_seconds(pid), perf_counter()
    images = work()
    speed = images / (perf_counter() - start)
    return {"images_per_s": speed, "cpu_s_per_1000": 1000 * (cpu_seconds(pid) - cpu) / images}


def ratios(turns: Rounds, own: str, base: str, figure: str = "images_per_s") -> list[float]:
    """Divide a figure of one competitor by that of another, in each round that has both."""
    ours, theirs = turns.get(own, {}), turns.get(base, {})
    return [ours[n][figure] / theirs[n][figure] for n in ours if theirs.get(n, {}).get(figure)]


def ratio(turns: Rounds, own: str, base: str, figure: str = "images_per_s") -> float | None:
    """Return the median of the ratios within a round; None if no round has both."""
    pairs = ratios(turns, own, base, figure)
    return short(median(pairs)) if pairs else None


def short(value: float) -> float:
    """Round to five digits."""
    return float(f"{value:.5g}")


def sum_up(turns: Rounds, figure: str = "images_per_s", **bases: str) -> dict[str, dict[str, Any]]:
    """Sum up each competitor: the median of each figure; for `figure` also the value of each round,
    and the ratios to the competitors that `bases` names."""
    return {
        name: {
            **{key: short(median(turn[key] for turn in own.values())) for key in _first(own)},
            "rounds": [short(turn[figure]) for turn in own.values()],
            **{key: ratio(turns, name, base, figure) for key, base in bases.items()},
        }
        for name, own in turns.items()
    }


def _first(own: Mapping[int, _T]) -> _T:
    return next(iter(own.values()))


def told(error: BaseException) -> str:
    """Return an error in one line; print its traceback, unless a library is missing."""
    if not isinstance(error, ModuleNotFoundError):
        traceback.print_exception(error)
    return f"{type(error).__name__}: {error}".partition("\n")[0]


# Tables


def show(title: str, rows: Mapping[str, Mapping[str, Any]], *names: str) -> None:
    """Print a table: the figures of these names in each row, or all figures that are numbers."""
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
    if isinstance(value, Mapping):  # a spread
        value = value["median"]
    if isinstance(value, float):
        return f"{value:.{3 if abs(value) < 10 else 1}f}"
    return "" if value is None else str(value)


def judge(what: str, figure: float, aim: float, *, at_most: bool = False) -> None:
    """Print whether a figure meets its aim."""
    met = figure <= aim if at_most else figure >= aim
    print(f"{what}: {figure:.3g}; the aim of {aim:g} is {'met' if met else 'MISSED'}", flush=True)


# Memory, as Linux accounts for it


@contextmanager
def peak_memory(pid: int, *, pss: bool = False) -> Iterator[dict[str, float]]:
    """Watch a process and its children; record their peak memory in 10^6 bytes.

    "Rss" counts a shared page once for each process; "Pss" divides it among them. "Pss" is only
    recorded with `pss`: the kernel needs milliseconds for it and stops the process meanwhile, so do
    not use it while something is timed.
    """
    most, done = {"Rss": 0.0, "Pss": 0.0}, threading.Event()

    def watch() -> None:
        while True:
            members = list(family(pid))
            for name in ("Rss", "Pss") if pss else ("Rss",):
                seen = sum(_memory(member, name) for member in members) / 1e6
                most[name] = max(most[name], seen)
            if done.wait(0.1):
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield most
    finally:
        done.set()
        thread.join()


def _memory(pid: int, name: str) -> int:
    """Return the resident bytes of a process; 0 if it has ended."""
    try:
        if name == "Rss":
            pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
            return int(pages) * os.sysconf("SC_PAGE_SIZE")
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


# Results


def _keep(options: argparse.Namespace, result: Any) -> None:
    """Write the result to the file of ``--json``, with machine, versions and options."""
    if options.json is None:
        return
    usable = [info for info in fastdecode.backends() if info.usable]
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    if options.photos:
        settings["photos"] = options.photos.resolve().name
        settings["different_photos"] = len(photos_in(options.photos))
    settings["core"] = next((info.codec for info in usable if info.name == "native"), None)
    libraries = settings["libraries"] = {}
    for name in _LIBRARIES:
        with suppress(importlib.metadata.PackageNotFoundError):
            libraries[name] = importlib.metadata.version(name)
    content = {
        "measured": now()[:10],
        "machine": dataclasses.asdict(machine()),
        "backends": {
            info.name: f"{info.version} ({info.codec})" if info.codec else info.version
            for info in usable
        },
        "settings": settings,
        "result": result,
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=1, default=str) + "\n"
    files.write_bytes(options.json, text.encode(), b'{\n "measured": ')
    print(options.json)
