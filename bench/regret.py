"""How much slower is `decode()` than the fastest backend, after calibration and without it?

    python bench/regret.py PHOTOS

Calibrates as ``python -m fastdecode calibrate`` does (its time is in the result), then measures
every backend and ``decode()`` on photos that calibration has not seen, in turn, in rounds of random
order, over a grid: JPEG of about 10 KB, 100 KB, 1 MB and 5 MB, PNG and WebP; reduce 1, 2, 4 and 8;
one thread and all cores. The regret of a cell is the median over the rounds of the time of
``decode()`` over that of the backend with the shortest median. Target: at most 3 % in 95 % of the
cells, never more than 10 %. "Quick" and "default" are the backends that a quick calibration and the
order without any would have chosen, by the same times.

To see how far the figures can be trusted, the fastest backend's first half of the rounds is held
against its second ("itself"): where this is not near 0 the machine was busy.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from PIL import Image
from record import record

from fastdecode import Ranking, calibrate, probe
from fastdecode.calibration.measure import QUICK_S
from fastdecode.calibration.samples import Sample
from fastdecode.child import Child
from fastdecode.cores import usable_cores
from fastdecode.ranking import DEFAULT, size_class
from fastdecode.registry import BUILTIN
from fastdecode.testing import encode
from fastdecode.types import REDUCES, Context, Reduce

_JPEG_SIZES = {"10 KB": 10_000, "100 KB": 100_000, "1 MB": 1_000_000, "5 MB": 5_000_000}
_SECONDS = 3.0
_ROUNDS = 15
_TURN_S = 0.02
_MORE_WITH_THREADS = 3  # their times vary more
_AIM, _AIM_SHARE, _LIMIT = 0.03, 0.95, 0.10


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


def samples(folder: Path) -> dict[str, Sample]:
    """Make the files of the grid out of the largest photos."""
    paths = sorted(folder.rglob("*.jpg"), key=lambda path: path.stat().st_size)
    photos = [Image.open(path).convert("RGB") for path in paths[-4:]]
    found = {}
    for name, target in _JPEG_SIZES.items():
        few = photos if target < 1_000_000 else photos[-1:]
        found[f"jpeg {name}"] = tuple(scaled(photo, "jpeg", target) for photo in few)
    for format, target in (("png", 300_000), ("webp", 50_000)):
        found[format] = tuple(scaled(photo, format, target) for photo in photos)
    return {name: _sample(items) for name, items in found.items()}


def _sample(items: tuple[bytes, ...]) -> Sample:
    headers = [probe(item) for item in items]
    pixels = [header.width * header.height for header in headers]
    return Sample(headers[0].format, size_class(pixels[0]), items, sum(pixels))


def measure(
    child: Child, names: Sequence[str], index: int, reduce: Reduce, threads: int
) -> dict[str, Any]:
    """Time `decode()` and the backends in turn; return the regret and what it was found from."""
    ways: list[str | None] = [*names, None]
    times: dict[str | None, list[float]] = {way: [] for way in ways}
    once = child.ask("time", None, index, reduce, "array", 1, threads)
    more = _MORE_WITH_THREADS if threads > 1 else 1
    repeats = max(1, round(more * _TURN_S / once / threads))
    end = time.monotonic() + more * _SECONDS
    while time.monotonic() < end or len(times[None]) < _ROUNDS:
        for way in random.sample(ways, len(ways)):
            took = child.ask("time", way, index, reduce, "array", repeats, threads)
            times[way].append(took)
    typical = {name: median(times[name]) for name in names}
    best = min(names, key=lambda name: typical[name])
    ratios = [own / other for own, other in zip(times[None], times[best], strict=True)]
    half = len(ratios) // 2
    return {
        "best": best,
        "ms": round(1000 * typical[best], 3),
        "rounds": len(ratios),
        "speeds": {name: round(typical[best] / typical[name], 3) for name in names},
        "decode()": round(median(ratios) - 1, 4),
        "itself": round(median(times[best][:half]) / median(times[best][half:]) - 1, 4),
    }


def grid(photos: dict[str, Sample], rankings: dict[str, Ranking]) -> dict[str, Any]:
    """Measure all cells; look up what other rankings would have chosen."""
    names = [name for name in BUILTIN if name not in ("torchvision", "torchcodec")]
    result = {}
    with Child("fastdecode.calibration.worker:Worker", {}) as child:
        child.receive()
        readers = child.ask("usable", names)
        child.ask("take", list(photos.values()))
        work = product(photos.items(), REDUCES, sorted({1, usable_cores()}))
        for (what, sample), reduce, threads in work:
            able = [
                name
                for name, formats in readers.items()
                if reduce in formats.get(sample.format, ()) or sample.format != "jpeg"
                if sample.format in formats
            ]
            index = list(photos).index(what)
            cell = measure(child, able, index, reduce, threads)
            context: Context = "threads" if threads > 1 else "one"
            for name, ranking in rankings.items():
                order = [*ranking.order(sample.format, reduce, sample.size, "array", context)]
                chosen = next(name for name in [*order, *able] if name in able)
                cell[name] = round(1 / cell["speeds"][chosen] - 1, 4)
            title = f"{what}, 1/{reduce}, {threads} thread{'s' if threads > 1 else ''}"
            result[title] = cell
            print(title, cell, flush=True)
    return result


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
        "target_met": within >= _AIM_SHARE and regrets[worst] <= _LIMIT,
    }


def main() -> None:
    photos = samples(Path(sys.argv[1]))
    took = {}
    start = time.monotonic()
    quick = calibrate(contexts=("one", "threads"), outputs=("array",), seconds=QUICK_S)
    took["quick"] = round(time.monotonic() - start, 1)
    start = time.monotonic()
    full = calibrate()
    took["full"] = round(time.monotonic() - start, 1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FASTDECODE_RANKING"] = str(full.save(Path(folder) / "ranking.json"))
        cells = grid(photos, {"quick": quick, "default": DEFAULT})
    result = {
        "calibration_s": took,
        **{way: summary(cells, way) for way in ("decode()", "quick", "default")},
        "cells": cells,
    }
    print({name: value for name, value in result.items() if name != "cells"})
    print(record("regret", result, seconds=_SECONDS, least_rounds=_ROUNDS))


if __name__ == "__main__":
    main()
