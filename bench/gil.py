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
from typing import Any, NamedTuple

import torch
from _common import (
    Rounds,
    each,
    epoch_length,
    judge,
    keep,
    linked,
    middle,
    parser,
    photos_in,
    ratio,
    show,
    take_turns,
)
from _pipelines import Pipeline, Setup
from core import Work, images_of
from typing_extensions import Self

from fastdecode._system import usable_cores
from fastdecode.native import _library

_AIM = 0.05
_CHUNK = 1000
_BESIDE = ("alone", "core", "loader")


class Turn(NamedTuple):
    """What was done in one situation: by the counter, and beside it.

    `waits` is the share of the time in which the counter did not run, of that in which it did not
    wait for a processor; 0 where the kernel keeps no account.
    """

    counts: float  # per second
    waits: float
    images: float  # per second


class Counter:
    """A thread that counts while a `with` block runs."""

    def __init__(self, processor: int) -> None:
        self._processor = processor
        self._stop = False
        self._thread = threading.Thread(target=self._count)
        self.speed = self.waits = 0.0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop = True
        self._thread.join()

    def _count(self) -> None:
        os.sched_setaffinity(0, {self._processor})
        account = Path(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        before, start, chunks = _scheduled(account), time.perf_counter(), 0
        while not self._stop:
            for _ in range(_CHUNK):
                pass
            chunks += 1
        seconds, after = time.perf_counter() - start, _scheduled(account)
        if before and after:
            ran, queued = (late - early for early, late in zip(before, after, strict=True))
            self.waits = max(0.0, 1 - ran / (seconds - queued))
        self.speed = chunks * _CHUNK / seconds


def _scheduled(account: Path) -> tuple[float, float] | None:
    """Return the seconds for which a thread has run, and has waited for a processor."""
    try:
        ran, queued, _ = account.read_text().split()
    except OSError:
        return None
    return int(ran) / 1e9, int(queued) / 1e9


def keep_going(work: Callable[[], float], seconds: float) -> float:
    """Do it again and again for so long; images/s."""
    end, speeds = time.perf_counter() + seconds, []
    while time.perf_counter() < end:
        speeds.append(work())
    return len(speeds) / sum(1 / speed for speed in speeds)


def count_beside(work: Callable[[], float], processor: int) -> Turn:
    """Do it while a thread counts."""
    with Counter(processor) as counter:
        images = work()
    return Turn(counter.speed, counter.waits, images)


def situations(setup: Setup, processor: int, seconds: float) -> dict[str, Callable[[], Turn]]:
    """List them: the counter alone; and the core and the Loader at the same work, with and without
    the counter beside them."""
    own = Pipeline("loader", setup)
    normalize = own.loader.dataset.transform.normalize
    core = Work(images_of(own.loader), "resized", setup.workers, normalize)

    def without(work: Callable[[], float]) -> Turn:
        return Turn(0.0, 0.0, work())

    works = {
        "core": partial(keep_going, core.run, seconds),
        "loader": partial(keep_going, own.speed, seconds),
    }
    pause: Callable[[], Any] = partial(time.sleep, seconds)
    return {
        "alone": partial(count_beside, pause, processor),
        **{name: partial(count_beside, work, processor) for name, work in works.items()},
        **{f"{name}, without": partial(without, work) for name, work in works.items()},
    }


def summary(turns: Rounds[Turn]) -> dict[str, Any]:
    """Sum up the rounds."""
    counts = each(turns, lambda turn: turn.counts)
    waits = each(turns, lambda turn: turn.waits)
    result: dict[str, Any] = {}
    for name in _BESIDE:
        result[name] = {
            "counts_per_s": round(middle(counts[name])),
            "to_alone": ratio(counts[name], counts["alone"], 4),
            "waits": middle(waits[name], 4),
        }
    images = each({name: turns[name] for name in turns if name != "alone"}, lambda one: one.images)
    for name in ("core", "loader"):
        to_no_counter = ratio(images[name], images[f"{name}, without"], 4)
        result[name] |= {"images_per_s": middle(images[name], 1), "to_no_counter": to_no_counter}
    more = median(waits["loader"][number] - waits["core"][number] for number in waits["core"])
    result["lost_speed"] = round(1 - (ratio(counts["loader"], counts["core"], 4) or 0.0), 4)
    result["lost_waiting"] = round(more, 4)
    result["lost_to_gil"] = max(result["lost_speed"], result["lost_waiting"])
    return result


def main() -> None:
    options = parser(
        __doc__,
        threads=([1, max(1, usable_cores() - 1)], "of the Loader and the core"),
        rounds=(5, "after the warm-up"),
        seconds=(2.0, "in each situation"),
        batch=(64, "images"),
        limit=(None, "images in an epoch"),
    ).parse_args()
    _library.require()
    *others, processor = sorted(os.sched_getaffinity(0))
    if not others:
        sys.exit("the counter and the Loader need a processor each")
    os.sched_setaffinity(0, others)  # what is started from here on stays there
    photos = photos_in(options.photos)
    images = epoch_length(photos, options.batch, max(options.threads), options.limit)
    result = {}
    with linked(photos, options.photos, images) as folder:
        for threads in sorted({*options.threads}):
            setup = Setup(folder, "train", options.batch, threads)
            competitors = situations(setup, processor, options.seconds)
            found = result[str(threads)] = summary(take_turns(competitors, options.rounds))
            show(f"threads: {threads}", {name: found[name] for name in _BESIDE})
            print(f"lost: {found['lost_speed']:.1%} by speed, {found['lost_waiting']:.1%} waiting")
            judge("lost to the GIL", found["lost_to_gil"], _AIM, at_most=True)
    os.sched_setaffinity(0, [*others, processor])  # the record counts them
    keep(
        options,
        result,
        "batch",
        "rounds",
        "seconds",
        images_per_epoch=images,
        switch_interval_s=sys.getswitchinterval(),
        core=_library.codec(),
        torch=torch.__version__,
    )


if __name__ == "__main__":
    main()
