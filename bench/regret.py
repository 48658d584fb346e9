"""How much slower is `decode()` than the fastest backend, after calibration and without it?

The script calibrates as ``fastdecode calibrate`` does, and records how long that takes. It then
measures every backend and ``decode()`` on photos that calibration did not use, over a grid: JPEG of
about 10 KB, 100 KB, 1 MB and 5 MB at reduce 1, 2, 4 and 8, PNG and WebP; in one thread. The regret
of a cell is the speed of the fastest backend divided by that of ``decode()``, minus 1. Aim: at most
3 % in 95 % of the cells, never more than 10 %. "Default" uses the same figures for the backends
that the order without any calibration would have chosen.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import _common as bench
from PIL import Image

from fastdecode import calibrate
from fastdecode._backends.ranking import sort_by_default
from fastdecode._backends.registry import BUILTIN
from fastdecode.measure._cases import measurements
from fastdecode.measure._collection import Photo
from fastdecode.measure._run import Run, RunPlan, measure
from fastdecode.measure.result import OWN
from fastdecode.types import REDUCES

_JPEG_SIZES = {"10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000, "5 MB": 5_000_000}
_AIM = 0.03


def samples(folder: Path) -> dict[str, list[Photo]]:
    """Make the files of the grid from the largest photos."""
    paths = sorted(folder.rglob("*.jpg"), key=lambda path: path.stat().st_size)
    photos = [Image.open(path).convert("RGB") for path in paths[-4:]]
    found = {}
    for name, target in _JPEG_SIZES.items():
        few = photos if target < 1_000_000 else photos[-1:]
        found[f"jpeg {name}"] = [bench.scaled(photo, "jpeg", target) for photo in few]
    for format, target in (("png", 300_000), ("webp", 50_000)):
        found[format] = [bench.scaled(photo, format, target) for photo in photos]
    return {name: [Photo.of(item) for item in items] for name, items in found.items()}


def grid(photos: dict[str, list[Photo]], seconds: float) -> dict[str, Any]:
    """Measure all cells."""
    names = tuple(name for name in BUILTIN if name not in ("torchvision", "torchcodec"))
    result = {}
    for what, own in photos.items():
        found = Run()
        measure(own, RunPlan(names, REDUCES, automatic=True, seconds=seconds), found)
        for case in found.cases:
            rows = [row for row in measurements(case) if row.files]
            speeds = {row.backend: row.images_per_s.median for row in rows}
            chosen = speeds.pop(OWN)
            best = max(speeds, key=lambda name: speeds[name])
            usual = sort_by_default(speeds, own[0].header.format, REDUCES[0])[0]
            cell = {
                "best": best,
                "ms": round(1000 / speeds[best], 3),
                "rounds": len(case.rounds),
                "speeds": {name: round(speed / speeds[best], 3) for name, speed in speeds.items()},
                "decode()": round(speeds[best] / chosen - 1, 4),
                "default": round(speeds[best] / speeds[usual] - 1, 4),
            }
            title = f"{what}, 1/{case.task.reduce}"
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


@bench.command(json=bench.RESULTS / "regret.json", seconds=(3.0, "per backend and cell"))
def main(options: Any) -> Any:
    photos = samples(options.photos)
    start = time.monotonic()
    ranking = calibrate()
    took = round(time.monotonic() - start, 1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FASTDECODE_RANKING"] = str(ranking.save(Path(folder) / "ranking.json"))
        cells = grid(photos, options.seconds)
    ways = {way: summary(cells, way) for way in ("decode()", "default")}
    bench.show("regret", ways)
    return {"calibration_s": took, **ways, "cells": cells}


if __name__ == "__main__":
    main()
