"""How much slower is `decode()` than the fastest backend, after calibration and without it?

The script calibrates as ``python -m fastdecode calibrate`` does, and records how long that takes.
It then measures every backend and ``decode()`` on photos that calibration did not use, in turn, in
rounds of random order, over a grid: JPEG of about 10 KB, 100 KB, 1 MB and 5 MB, PNG and WebP;
reduce 1, 2, 4 and 8; one thread and all cores. The regret of a cell is the shortest time of
``decode()`` divided by the shortest time of the fastest backend, minus 1. The shortest times are
compared because other work of the machine only adds to a time. Aim: at most 3 % in 95 % of the
cells, never more than 10 %. "Quick" and "default" use the same times for the backends that would
have been chosen by quick calibrations (in each cell the worst of them) and by the order without any
calibration.

To show how far the figures can be trusted, the shortest time of the fastest backend in even rounds
is compared with that in odd rounds ("itself"). If this is not close to 0, the machine was too busy
for the cell to say anything.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, product
from pathlib import Path
from statistics import median
from typing import Any

import _common as bench
from PIL import Image

from fastdecode import Ranking, calibrate
from fastdecode._process import Child
from fastdecode._system import usable_cores
from fastdecode.measure._calibrate import QUICK_S
from fastdecode.measure._collection import Photo
from fastdecode.measure._samples import Sample
from fastdecode.measure._workers import WORKER
from fastdecode.measure.result import AUTOMATIC, Measurement, Protocol
from fastdecode.ranking import DEFAULT, size_class, sort_by_default
from fastdecode.registry import BUILTIN
from fastdecode.types import REDUCES, Context

_JPEG_SIZES = {"10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000, "5 MB": 5_000_000}
_ROUNDS = 15
_TURN_S = 0.02
_MORE_WITH_THREADS = 3  # their times vary more
_AIM = 0.03


def samples(folder: Path) -> dict[str, Sample]:
    """Make the files of the grid from the largest photos."""
    paths = sorted(folder.rglob("*.jpg"), key=lambda path: path.stat().st_size)
    photos = [Image.open(path).convert("RGB") for path in paths[-4:]]
    found = {}
    for name, target in _JPEG_SIZES.items():
        few = photos if target < 1_000_000 else photos[-1:]
        found[f"jpeg {name}"] = tuple(bench.scaled(photo, "jpeg", target) for photo in few)
    for format, target in (("png", 300_000), ("webp", 50_000)):
        found[format] = tuple(bench.scaled(photo, format, target) for photo in photos)
    return {name: _sample(items) for name, items in found.items()}


def _sample(items: tuple[bytes, ...]) -> Sample:
    photos = tuple(Photo.of(item) for item in items)
    return Sample(photos[0].header.format, size_class(photos[0].pixels), photos)


def measure(
    child: Child, names: Sequence[str], block: range, task: Measurement, seconds: float
) -> dict[str, Any]:
    """Time `decode()` and the backends in turn; return the regret, and the times behind it."""
    ways = [*names, AUTOMATIC]
    times: dict[str, list[float]] = {way: [] for way in ways}

    def time_one(way: str, passes: int) -> float:
        took = child.ask("seconds", replace(task, backend=way), [*block] * passes)
        return float(took / passes)

    threads = task.threads
    once = time_one(AUTOMATIC, threads)
    more = _MORE_WITH_THREADS if threads > 1 else 1
    passes = threads * max(1, round(more * _TURN_S / once / threads))
    end = time.monotonic() + more * seconds
    while time.monotonic() < end or len(times[AUTOMATIC]) < _ROUNDS:
        for way in random.sample(ways, len(ways)):
            times[way].append(time_one(way, passes))
    shortest = {way: min(found) for way, found in times.items()}
    best = min(names, key=lambda name: shortest[name])
    even, odd = (min(times[best][half::2]) for half in (0, 1))
    return {
        "best": best,
        "ms": round(1000 * shortest[best], 3),
        "rounds": len(times[best]),
        "speeds": {name: round(shortest[best] / shortest[name], 3) for name in names},
        "decode()": round(shortest[AUTOMATIC] / shortest[best] - 1, 4),
        "itself": round(max(even, odd) / min(even, odd) - 1, 4),
    }


def grid(
    photos: dict[str, Sample], rankings: dict[str, list[Ranking]], seconds: float
) -> dict[str, Any]:
    """Measure all cells; add the worst regret of what each ranking would have chosen."""
    names = [name for name in BUILTIN if name not in ("torchvision", "torchcodec")]
    result = {}
    with Child(WORKER, {}) as child:
        child.receive()
        readers = child.ask("usable", names)
        child.ask("take", [photo for sample in photos.values() for photo in sample.photos])
        starts = accumulate((len(sample.photos) for sample in photos.values()), initial=0)
        blocks = {
            what: range(start, start + len(photos[what].photos))
            for what, start in zip(photos, starts, strict=False)
        }
        work = product(photos.items(), REDUCES, sorted({1, usable_cores()}))
        for (what, sample), reduce, threads in work:
            able = [
                name
                for name, formats in readers.items()
                if reduce in formats.get(sample.format, ()) or sample.format != "jpeg"
                if sample.format in formats
            ]
            protocol: Protocol = "threads" if threads > 1 else "decode"
            task = Measurement(protocol, sample.format, reduce, threads=threads)
            cell = measure(child, able, blocks[what], task, seconds)
            context: Context = "threads" if threads > 1 else "one"
            for name, several in rankings.items():
                orders = [
                    ranking.order(sample.format, reduce, sample.size, "array", context)
                    for ranking in several
                ]
                rest = sort_by_default(able, sample.format, reduce)
                chosen = {next(one for one in [*order, *rest] if one in able) for order in orders}
                cell[name] = round(max(1 / cell["speeds"][one] - 1 for one in chosen), 4)
            title = f"{what}, 1/{reduce}, {threads} thread{'s' if threads > 1 else ''}"
            result[title] = cell
            print(title, cell, flush=True)
    return result


def summary(cells: dict[str, Any], way: str) -> dict[str, Any]:
    """Compare one way with the aim."""
    regrets = {name: cell[way] for name, cell in cells.items()}
    within = sum(regret <= _AIM for regret in regrets.values()) / len(regrets)
    worst = max(regrets, key=lambda name: regrets[name])
    return {
        "within_3_percent": round(within, 3),
        "median": round(median(regrets.values()), 4),
        "worst": round(regrets[worst], 4),
        "worst_cell": worst,
    }


@bench.command(
    json=bench.RESULTS / "regret.json",
    seconds=(3.0, "per cell"),
    quick=(5, "quick calibrations"),
)
def main(options: Any) -> Any:
    photos = samples(options.photos)
    start = time.monotonic()
    quick = [
        calibrate(contexts=("one", "threads"), outputs=("array",), seconds=QUICK_S)
        for _ in range(options.quick)
    ]
    took = {"quick": round((time.monotonic() - start) / len(quick), 1)}
    start = time.monotonic()
    full = calibrate()
    took["full"] = round(time.monotonic() - start, 1)
    rankings = {"quick": quick, "full": [full], "default": [DEFAULT]}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FASTDECODE_RANKING"] = str(full.save(Path(folder) / "ranking.json"))
        cells = grid(photos, rankings, options.seconds)
    result = {
        "calibration_s": took,
        "disturbance": [ranking.disturbance for ranking in (*quick, full)],
        **{way: summary(cells, way) for way in ("decode()", *rankings)},
        "cells": cells,
    }
    ways = {name: result[name] for name in ("decode()", *rankings)}
    bench.show("regret", ways)
    options.least_rounds = _ROUNDS
    return result


if __name__ == "__main__":
    main()
