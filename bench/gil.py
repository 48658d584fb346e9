"""How much of its time does a training process lose to the GIL?

A thread of pure Python, the counter, counts as fast as it can. It stands for the Python code of a
training script. It runs in three situations: alone; next to the native core, which makes the same
training batches in C threads without any Python; and next to a `Loader` with as many threads. Two
figures say what it loses to the GIL, and the larger one counts. Aim: at most 5 %.

- speed: its speed next to the Loader, divided by its speed next to the core, where it shares the
  caches with as many threads. The counter has a processor to itself and all other threads share the
  remaining ones, so it does not lose time to the scheduler.
- waits: of the time in which the counter did not wait for a processor, the share in which it did
  not run either, as accounted by the kernel (Linux), minus the same share next to the core.

The script also measures the other direction: images/s of the core and of the Loader with the
counter, compared with those without it. A thread that needs the GIL while another one never
releases it waits for the switch interval, 5 ms.

PHOTOS contains JPEG photos; the work is "train" of `pipeline.py`. The situations take turns, in a
new random order each round. Figures and ratios are medians over the rounds.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import _common as bench
from _pipelines import Pipeline, Setup
from core import Work, images_of

from fastdecode._system.processor import usable_cores

_AIM = 0.05
_CHUNK = 1000
_BESIDE = ("alone", "core", "loader")


def scheduled(account: Path) -> tuple[float, float] | None:
    """Return for how many seconds a thread has run, and has waited for a processor."""
    try:
        ran, queued, _ = account.read_text().split()
    except OSError:
        return None
    return int(ran) / 1e9, int(queued) / 1e9


def count(processor: int, stop: threading.Event, found: dict[str, float]) -> None:
    """Count until `stop` is set; write the counts per second and `waits` to `found`.

    `waits` is the share of time in which this thread did not run, out of the time in which it did
    not wait for a processor.
    """
    os.sched_setaffinity(0, {processor})
    account = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    before, start, chunks = scheduled(account), time.perf_counter(), 0
    while not stop.is_set():
        for _ in range(_CHUNK):
            pass
        chunks += 1
    seconds, after = time.perf_counter() - start, scheduled(account)
    found |= {"counts_per_s": chunks * _CHUNK / seconds, "waits": 0.0}
    if before and after:
        ran, queued = (late - early for early, late in zip(before, after, strict=True))
        found["waits"] = max(0.0, 1 - ran / (seconds - queued))


def keep_going(work: Callable[[], float], seconds: float) -> dict[str, float]:
    """Repeat the work for so many seconds; return images/s."""
    end, speeds = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        speeds.append(work())
    return {"images_per_s": len(speeds) / sum(1 / speed for speed in speeds)}


def count_beside(work: Callable[[], dict[str, float]], processor: int) -> dict[str, float]:
    """Do the work while a thread counts."""
    stop, found = threading.Event(), {}
    counter = threading.Thread(target=count, args=(processor, stop, found))
    counter.start()
    try:
        done = work()
    finally:
        stop.set()
        counter.join()
    return {**found, **done}


def situations(setup: Setup, processor: int, seconds: float) -> dict[str, Callable[[], Any]]:
    """Return the situations: the counter alone; the core and the Loader, with and without it."""
    own = Pipeline("loader", setup)
    normalize = own.loader.dataset.transform.normalize
    core = Work(images_of(own.loader), "resized", setup.workers, normalize)
    works = {
        "core": partial(keep_going, core.run, seconds),
        "loader": partial(keep_going, own.speed, seconds),
    }

    def pause() -> dict[str, float]:
        time.sleep(seconds)
        return {}

    beside = {"alone": pause, **works}
    return {
        **{name: partial(count_beside, work, processor) for name, work in beside.items()},
        **{f"{name}, without": work for name, work in works.items()},
    }


def summary(turns: bench.Rounds) -> dict[str, Any]:
    """Sum up the rounds."""
    beside = {name: turns[name] for name in _BESIDE}
    result: dict[str, Any] = bench.sum_up(beside, "counts_per_s", to_alone="alone")
    for name in ("core", "loader"):
        result[name]["to_no_counter"] = bench.ratio(turns, name, f"{name}, without")
    loader, core = beside["loader"], beside["core"]
    waiting = median(loader[number]["waits"] - core[number]["waits"] for number in core)
    speed = 1 - (bench.ratio(turns, "loader", "core", "counts_per_s") or 0.0)
    result["lost_speed"], result["lost_waiting"] = round(speed, 4), round(waiting, 4)
    result["lost_to_gil"] = max(result["lost_speed"], result["lost_waiting"])
    return result


@bench.command(
    threads=([1, max(1, usable_cores() - 1)], "of the Loader and the core"),
    rounds=(5, "after the warm-up"),
    seconds=(2.0, "per situation"),
    batch=(64, "images"),
    limit=(None, "images in an epoch"),
)
def main(options: Any) -> Any:
    *others, processor = sorted(os.sched_getaffinity(0))
    if not others:
        sys.exit("the counter and the Loader need one processor each")
    os.sched_setaffinity(0, others)  # threads that start later inherit it
    photos = bench.photos_in(options.photos)
    images = bench.epoch_length(photos, options.batch, max(options.threads), options.limit)
    result = {}
    with bench.linked(photos, options.photos, images) as folder:
        for threads in sorted({*options.threads}):
            setup = Setup(folder, "train", options.batch, threads)
            competitors = situations(setup, processor, options.seconds)
            found = summary(bench.take_turns(competitors, options.rounds))
            result[str(threads)] = found
            bench.show(f"threads: {threads}", {name: found[name] for name in _BESIDE})
            print(f"lost: {found['lost_speed']:.1%} by speed, {found['lost_waiting']:.1%} waiting")
            bench.judge("lost to the GIL", found["lost_to_gil"], _AIM, at_most=True)
    os.sched_setaffinity(0, [*others, processor])  # the saved result counts them
    options.images_per_epoch, options.switch_interval_s = images, sys.getswitchinterval()
    return result


if __name__ == "__main__":
    main()
