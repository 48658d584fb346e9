"""How much slower is `decode()` than the fastest backend, after calibration and without it?

Calibrates as ``python -m fastdecode calibrate`` does (its time is in the result), then measures
every backend and ``decode()`` on photos that calibration has not seen, each in a process of its
own, over a grid: JPEG of about 10 KB, 100 KB, 1 MB and 5 MB, PNG and WebP; reduce 1, 2, 4 and 8;
one thread and all cores. The regret of a cell is the shortest time of ``decode()`` over that of the
backend with the shortest: what else the machine does only adds to a time. Target: at most 3 % in
95 % of the cells, never more than 10 %. "Quick" and "default" are the
backends that quick calibrations (in each cell the worst of them) and the order without any would
have chosen, by the same times.

To see how far the figures can be trusted, the shortest time of the fastest backend in even rounds
is held against that in odd rounds ("itself"): where this is not near 0 the machine was too busy
for the cell to say anything.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import _common as bench
from PIL import Image

from fastdecode import Ranking, backends, calibrate
from fastdecode._system import usable_cores
from fastdecode.measure._calibrate import QUICK_S
from fastdecode.measure._collection import Photo
from fastdecode.measure._run import Case, Found, Plan, measure
from fastdecode.measure.result import AUTOMATIC
from fastdecode.ranking import DEFAULT, known_order, size_class
from fastdecode.types import REDUCES

_JPEG_SIZES = {"10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000, "5 MB": 5_000_000}
_OTHERS = {"png": 300_000, "webp": 50_000}
_WITHOUT = ("torchvision", "torchcodec")
_AIM = 0.03


def samples(folder: Path) -> dict[str, list[Photo]]:
    """Make the files of the grid out of the largest photos."""
    paths = sorted(folder.rglob("*.jpg"), key=lambda path: path.stat().st_size)
    photos = [Image.open(path).convert("RGB") for path in paths[-4:]]
    wanted = {f"jpeg {name}": ("jpeg", size) for name, size in _JPEG_SIZES.items()}
    wanted |= {format: (format, size) for format, size in _OTHERS.items()}
    return {
        name: [
            Photo.of(bench.scaled(photo, format, size))
            for photo in (photos if size < 1_000_000 else photos[-1:])
        ]
        for name, (format, size) in wanted.items()
    }


def cells(photos: Mapping[str, Sequence[Photo]], seconds: float) -> Iterator[tuple[str, Case]]:
    """Measure one cell after the other."""
    names = tuple(info.name for info in backends() if info.usable and info.name not in _WITHOUT)
    for what, files in photos.items():
        for reduce in REDUCES:
            threads = tuple({usable_cores()} - {1})
            plan = Plan(names, (reduce,), seconds, ("decode", "threads"), threads)
            measure(files, plan, found := Found())
            for case in found.cases:
                count = case.usual.threads
                yield f"{what}, 1/{reduce}, {count} thread{'s' if count > 1 else ''}", case


def figures(case: Case, rankings: Mapping[str, Sequence[Ranking]]) -> dict[str, Any]:
    """Find the regret, and what it was found from; and that of other rankings, at worst."""
    names = [name for name in case.compared if name != AUTOMATIC]
    times = {name: [one.times[name].wall for one in case.rounds] for name in case.compared}
    shortest = {name: min(own) for name, own in times.items()}
    best = min(names, key=lambda name: shortest[name])
    even, odd = (min(times[best][half::2]) for half in (0, 1))
    cell = {
        "best": best,
        "ms": round(1000 * shortest[best] / len(case.rounds[0].block), 3),
        "rounds": len(case.rounds),
        "speeds": {name: round(shortest[best] / shortest[name], 3) for name in names},
        "decode()": round(shortest[AUTOMATIC] / shortest[best] - 1, 4),
        "itself": round(max(even, odd) / min(even, odd) - 1, 4),
    }
    usual, size = case.usual, size_class(case.photos[0].pixels)
    context = "threads" if usual.threads > 1 else "one"
    rest = known_order(names, usual.format, usual.reduce)
    for way, several in rankings.items():
        orders = [one.order(usual.format, usual.reduce, size, "array", context) for one in several]
        chosen = {next(one for one in (*order, *rest) if one in names) for order in orders}
        cell[way] = round(max(1 / cell["speeds"][one] - 1 for one in chosen), 4)
    return cell


def summary(cells: dict[str, Any], way: str) -> dict[str, Any]:
    """Hold one way against the target."""
    regrets = {name: cell[way] for name, cell in cells.items()}
    within = sum(regret <= _AIM for regret in regrets.values()) / len(regrets)
    worst = max(regrets, key=lambda name: regrets[name])
    return {
        "within_3_percent": round(within, 3),
        "median": round(median(regrets.values()), 4),
        "worst": round(regrets[worst], 4),
        "worst_cell": worst,
    }


def timed_calibration(**how: Any) -> tuple[float, Ranking]:
    """Calibrate; the seconds that it took, and what came of it."""
    start = time.monotonic()
    made = calibrate(**how)
    return time.monotonic() - start, made


@bench.command(
    json=bench.RESULTS / "regret.json",
    seconds=(3.0, "for a cell"),
    quick=(5, "how many quick calibrations"),
)
def main(options: Any) -> Any:
    hasty: dict[str, Any] = {"contexts": ("one", "threads"), "outputs": ("array",)}
    quick = [timed_calibration(**hasty, seconds=QUICK_S) for _ in range(options.quick)]
    full_s, full = timed_calibration()
    rankings = {"quick": [one for _, one in quick], "full": [full], "default": [DEFAULT]}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FASTDECODE_RANKING"] = str(full.save(Path(folder) / "ranking.json"))
        for title, case in cells(samples(options.photos), options.seconds):
            found[title] = figures(case, rankings)
            print(title, found[title], flush=True)
    took = {"quick": median(seconds for seconds, _ in quick), "full": full_s}
    ways = {way: summary(found, way) for way in ("decode()", *rankings)}
    result = {
        "calibration_s": {name: round(seconds, 1) for name, seconds in took.items()},
        "disturbance": [ranking.disturbance for ranking in (*rankings["quick"], full)],
        **ways,
        "cells": found,
    }
    bench.show("regret", ways)
    return result


if __name__ == "__main__":
    main()
