"""What does `decode()` cost on top of the library that it calls?

For JPEGs of about 10 KB, 100 KB, 300 KB and 1 MB, three calls are timed in turn, in one loop:
``simplejpeg.decode_jpeg(data)``, ``decode(data, backend="simplejpeg")`` and ``decode(data)``. The
figure is the median of the differences between neighbouring calls, so a drift in the machine's
speed does not matter. How cold the caches are after a decode depends on where the process lies in
memory. So each size is measured in several fresh processes, and the result is the median of their
medians, with the range. Aim: at most 12 microseconds extra at 10 KB, at most 1 % from 100 KB on. As
a check of the method, simplejpeg is also timed against simplejpeg ("itself").
"""

from __future__ import annotations

import multiprocessing
from functools import partial
from statistics import median
from typing import Any

import _common as bench
import simplejpeg
from PIL import Image

from fastdecode import decode
from fastdecode.testing import drawing

_SIZES = {"10 KB": 10_000, "100 KB": 100_000, "300 KB": 300_000, "1 MB": 1_000_000}
_WAYS = ("itself", "named", "automatic")


def compare(path: str, size: int, seconds: float) -> dict[str, float]:
    """Time the calls in turn; return microseconds, and differences from the direct call."""
    data = bench.scaled(
        Image.open(path).convert("RGB") if path else drawing(2600, 1950), "jpeg", size
    )
    calls = {
        "direct": simplejpeg.decode_jpeg,
        "itself": simplejpeg.decode_jpeg,
        "named": partial(decode, backend="simplejpeg"),
        "automatic": decode,
    }

    def turns(rounds: int) -> dict[str, list[float]]:
        found = bench.time_each(lambda _: [data], calls, rounds)
        return {name: [1000 * one["ms"] for one in own.values()] for name, own in found.items()}

    few = sum(map(median, turns(5).values())) / 1e6  # seconds of a round
    us = turns(max(5, round(seconds / few)))
    base = median(us["direct"])
    result = {"bytes": len(data), "rounds": len(us["direct"]), "direct_us": base}
    for name in _WAYS:
        more = median(own - beside for own, beside in zip(us[name], us["direct"], strict=True))
        result |= {f"{name}_more_us": more, f"{name}_more_percent": 100 * more / base}
    return result


@bench.command(
    photos="?",
    json=bench.RESULTS / "overhead.json",
    seconds=(3.0, "in each process"),
    processes=(11, "per size"),
)
def main(options: Any) -> Any:
    path = ""
    if options.photos:
        path = str(max(options.photos.rglob("*.jpg"), key=lambda photo: photo.stat().st_size))
    results: dict[str, dict] = {}
    # One process per run: how cold its caches are depends on where it lies in memory.
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name, size in _SIZES.items():
            work = [(path, size, options.seconds)] * options.processes
            runs = pool.starmap(compare, work, chunksize=1)
            results[name] = {key: round(median(run[key] for run in runs), 2) for key in runs[0]}
            for key in ("named_more_us", "automatic_more_us"):
                values = [round(run[key], 2) for run in runs]
                results[name][f"{key}_range"] = [min(values), max(values)]
    bench.show("JPEG of", results)
    return results


if __name__ == "__main__":
    main()
