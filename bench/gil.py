"""How much of its time does a training process lose to the GIL?

A thread of pure Python counts as fast as it can, as a training script's own Python would run. It
does so alone; beside the native core, which makes the same training batches in C threads without
any Python; and beside a running `Loader` of as many threads. Two figures tell what it loses to the
GIL, and the larger one counts. Aim: at most 5 %.

- speed: what it counts beside the Loader, against beside the core, where it shares caches with as
  many threads. The counter has a processor to itself, and everything else shares the others: what
  it loses is no other thread's turn.
- waits: of the time in which it did not wait for a processor, the share in which it did not run
  either, by the kernel's account (Linux), less that beside the core.

The other way round: images/s of the core and of the Loader beside the counter, against without.
Whoever wants the GIL from a thread that never releases it waits for the switch interval, 5 ms.

PHOTOS holds JPEG photos; "train" of `pipeline.py` is what is done. The situations take turns, in an
order drawn anew in each round; figures are medians of the rounds, and ratios of those within one.
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

from fastdecode._system import usable_cores
from fastdecode.native import _library

_AIM = 0.05
_CHUNK = 1000
_BESIDE = ("alone", "core", "loader")


def scheduled(account: Path) -> tuple[float, float] | None:
    """Return the seconds for which a thread has run, and has waited for a processor."""
    try:
        ran, queued, _ = account.read_text().split()
    except OSError:
        return None
    return int(ran) / 1e9, int(queued) / 1e9


def count(processor: int, stop: threading.Event, found: dict[str, float]) -> None:
    """Count until the end: how often in a second, and the share of the time that is `waits`: in
    which this did not run, of that in which it did not wait for a processor."""
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
    """Do it again and again for so long; images/s."""
    end, speeds = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        speeds.append(work())
    return {"images_per_s": len(speeds) / sum(1 / speed for speed in speeds)}


def count_beside(work: Callable[[], dict[str, float]], processor: int) -> dict[str, float]:
    """Do it while a thread counts."""
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
    """List them: the counter alone; and the core and the Loader at the same work, with and without
    the counter beside them."""
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
    seconds=(2.0, "in each situation"),
    batch=(64, "images"),
    limit=(None, "images in an epoch"),
)
def main(options: Any) -> Any:
    _library.require()
    *others, processor = sorted(os.sched_getaffinity(0))
    if not others:
        sys.exit("the counter and the Loader need a processor each")
    os.sched_setaffinity(0, others)  # what is started from here on stays there
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
    os.sched_setaffinity(0, [*others, processor])  # the record counts them
    options.images_per_epoch, options.switch_interval_s = images, sys.getswitchinterval()
    return result


if __name__ == "__main__":
    main()
