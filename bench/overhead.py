"""What does `decode()` cost on top of the library that it calls?

For JPEGs of about 10 KB, 100 KB, 300 KB and 1 MB, three calls are timed in turn, in one loop:
``simplejpeg.decode_jpeg(data)``, ``decode(data, backend="simplejpeg")`` and ``decode(data)``. The
figure is the median of the differences between neighbours, so that a machine whose speed drifts
does not matter. How cold the caches are after a decode depends on where a process happens to lie
in memory: each size is measured in several fresh processes, and the median of their medians is
quoted beside the range. Target: at most 12 microseconds more at 10 KB, at most 1 % more from
100 KB on.

To see that the clock itself is fair, simplejpeg is also timed against simplejpeg ("itself").
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import simplejpeg
from _common import RESULTS, keep, parser, scaled, show
from PIL import Image

from fastdecode import decode
from fastdecode.measure._timing import no_garbage_collection
from fastdecode.testing import drawing

_SIZES = {"10 KB": 10_000, "100 KB": 100_000, "300 KB": 300_000, "1 MB": 1_000_000}
_SECONDS = 3.0
_PROCESSES = 11
_WAYS = ("itself", "named", "automatic")


def compare(data: bytes) -> dict[str, float]:
    """Time the calls in turn; microseconds, and differences to the direct call beside it."""
    calls: dict[str, Callable[[], object]] = {
        "direct": lambda: simplejpeg.decode_jpeg(data),
        "itself": lambda: simplejpeg.decode_jpeg(data),
        "named": lambda: decode(data, backend="simplejpeg"),
        "automatic": lambda: decode(data),
    }
    for call in calls.values():
        call()
    more: dict[str, list[float]] = {name: [] for name in _WAYS}
    direct: list[float] = []
    end = time.perf_counter() + _SECONDS
    with no_garbage_collection():
        while time.perf_counter() < end:
            spent = {}
            for name in random.sample(list(calls), len(calls)):
                start = time.perf_counter_ns()
                calls[name]()
                spent[name] = (time.perf_counter_ns() - start) / 1000
            direct.append(spent["direct"])
            for name in _WAYS:
                more[name].append(spent[name] - spent["direct"])
    base = median(direct)
    result = {"rounds": len(direct), "direct_us": round(base, 1)}
    for name in _WAYS:
        result[f"{name}_more_us"] = round(median(more[name]), 2)
        result[f"{name}_more_percent"] = round(100 * median(more[name]) / base, 2)
    return result


def one(path: str, size: int) -> None:
    """Measure one size in this process, and print the figures as JSON."""
    photo = Image.open(path).convert("RGB") if path else drawing(2600, 1950)
    data = scaled(photo, "jpeg", size)
    print(json.dumps({"bytes": len(data), **compare(data)}))


def main() -> None:
    arguments = parser(__doc__, photos=False, json=RESULTS / "overhead.json")
    arguments.add_argument("photos", type=Path, nargs="?", metavar="PHOTOS")
    options = arguments.parse_args()
    path = ""
    if options.photos:
        path = str(max(options.photos.rglob("*.jpg"), key=lambda photo: photo.stat().st_size))
    results: dict[str, dict] = {}
    for name, size in _SIZES.items():
        runs = []
        for _ in range(_PROCESSES):
            command_line = [sys.executable, __file__, "--one", path, str(size)]
            runs.append(
                json.loads(subprocess.run(command_line, capture_output=True, check=True).stdout)
            )
        results[name] = {key: round(median(run[key] for run in runs), 2) for key in runs[0]}
        for key in ("named_more_us", "automatic_more_us"):
            values = sorted(run[key] for run in runs)
            results[name][f"{key}_range"] = [values[0], values[-1]]
    show("JPEG of", results)
    keep(options, results, seconds_each=_SECONDS, processes=_PROCESSES)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], int(sys.argv[3]))
    else:
        main()
