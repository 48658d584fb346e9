"""How much of its time does a training process lose to Python's lock (the GIL)?

    python bench/gil.py FOLDER [--threads 1,3] [--rounds 5] [--seconds 2] [--batch 64]
                        [--limit N] [--json FILE]

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
Whoever wants the GIL from a thread that never lets go of it waits for the switch interval, 5 ms.

FOLDER holds JPEG photos; "train" of `pipeline.py` is what is done. The situations take turns, in an
order drawn anew in each round; figures are medians of the rounds, and ratios of those within one.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from core import Work, pictures_of
from pipeline import epoch_length, linked
from pipeline_peers import OwnLoader, Setup
from record import record
from reference import photos_in
from typing_extensions import Self

from fastdecode._system import usable_cores
from fastdecode.native import library

_AIM = 0.05
_CHUNK = 1000
_ROWS = {
    "alone": "counter alone",
    "core": "beside the core, without Python",
    "loader": "beside the Loader",
}


class Counted(NamedTuple):
    """What the counter got done.

    Attributes
    ----------
    speed : float
        Counts per second.
    waits : float or None
        Of the time in which it did not wait for a processor, the share in which it did not run.
    """

    speed: float
    waits: float | None


class Counter:
    """A thread that counts while a `with` block runs."""

    def __init__(self, processor: int) -> None:
        self._processor = processor
        self._stop = False
        self._thread = threading.Thread(target=self._count)
        self.counted = Counted(0.0, None)

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
        waits = None
        if before and after:
            ran, queued = (late - early for early, late in zip(before, after, strict=True))
            waits = max(0.0, 1 - ran / (seconds - queued))
        self.counted = Counted(chunks * _CHUNK / seconds, waits)


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


def works_of(folder: str, threads: int, options: argparse.Namespace) -> dict[str, Any]:
    """Make the Loader, and the same work for the core."""
    peer = OwnLoader(Setup(folder, "train", options.batch, threads))
    loader = peer._loader
    normalize = loader.dataset.transform.normalize

    def epoch() -> float:
        loader.set_epoch(0)
        done = peer.epoch()
        return done.images / done.seconds

    return {"core": Work(pictures_of(loader), "resized", threads, normalize).run, "loader": epoch}


def measure(works: dict[str, Any], options: argparse.Namespace) -> list[dict[str, Any]]:
    """Go through all situations in each round."""
    for work in works.values():
        work()
    situations = [("alone", True), *((name, beside) for name in works for beside in (True, False))]
    rounds = []
    for _ in range(options.rounds):
        one: dict[str, Any] = {name: {} for name in ("alone", *works)}
        for name, counting in random.sample(situations, len(situations)):
            found = one[name]
            if not counting:
                found["images_per_s_without"] = keep_going(works[name], options.seconds)
                continue
            with Counter(options.processor) as counter:
                if name == "alone":
                    time.sleep(options.seconds)
                else:
                    found["images_per_s"] = keep_going(works[name], options.seconds)
            found["counts_per_s"], found["waits"] = counter.counted
        rounds.append(one)
    return rounds


def summary(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Sum up the rounds."""
    result: dict[str, Any] = {}
    for name in _ROWS:
        some = [one[name] for one in rounds]
        alone = [one["alone"]["counts_per_s"] for one in rounds]
        counts = [one["counts_per_s"] for one in some]
        found = result[name] = {
            "counts_per_s": round(median(counts)),
            "to_alone": _of(counts, alone),
        }
        if some[0]["waits"] is not None:
            found["waits"] = round(median(one["waits"] for one in some), 4)
        if name != "alone":
            speeds = [one["images_per_s"] for one in some]
            found["images_per_s"] = round(median(speeds), 1)
            found["to_no_counter"] = _of(speeds, [one["images_per_s_without"] for one in some])
        result[name] = found
    beside = ([one[name]["counts_per_s"] for one in rounds] for name in ("loader", "core"))
    result["lost_speed"] = round(1 - _of(*beside), 4)
    result["lost_waiting"] = round(
        median((one["loader"]["waits"] or 0.0) - (one["core"]["waits"] or 0.0) for one in rounds), 4
    )
    result["lost_to_gil"] = max(result["lost_speed"], result["lost_waiting"])
    return result


def _of(values: Sequence[float], others: Sequence[float]) -> float:
    """Divide, round by round."""
    return round(median(one / other for one, other in zip(values, others, strict=True)), 4)


def table(threads: int, found: dict[str, Any]) -> str:
    head = f"{threads} thread{'s' * (threads != 1)}"
    lines = [f"{head:<33}counts, to alone    waits  images/s  to no counter"]
    for name, title in _ROWS.items():
        one = found[name]
        waits = f"{100 * one['waits']:7.1f} %" if "waits" in one else f"{'':9}"
        line = f"{title:<33}{one['to_alone']:16.3f}{waits}"
        if name != "alone":
            line += f"{one['images_per_s']:10.1f}{one['to_no_counter']:15.3f}"
        lines.append(line)
    lost = found["lost_to_gil"]
    aim = f"the aim of at most {100 * _AIM:.0f} % is {'met' if lost <= _AIM else 'missed'}"
    lines.append(
        f"Lost to the GIL: {100 * found['lost_speed']:.1f} % by speed, "
        f"{100 * found['lost_waiting']:.1f} % by waiting; {aim}\n"
    )
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--threads", default=f"1,{max(1, usable_cores() - 1)}")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0, help="in each situation")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--limit", type=int, metavar="N", help="images in an epoch")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    options.threads = sorted({int(count) for count in options.threads.split(",")})
    options.workers = max(options.threads)  # what an epoch's length goes by
    return options


def main() -> None:
    options = arguments()
    library.require()
    *others, options.processor = sorted(os.sched_getaffinity(0))
    if not others:
        sys.exit("the counter and the Loader need a processor each")
    os.sched_setaffinity(0, others)  # what is started from here on stays there
    photos = photos_in(options.folder)
    images = epoch_length(photos, options)
    result = {}
    with tempfile.TemporaryDirectory() as temporary:
        linked(photos, options.folder, Path(temporary), images)
        for threads in options.threads:
            rounds = measure(works_of(temporary, threads, options), options)
            result[str(threads)] = summary(rounds)
            print(table(threads, result[str(threads)]), flush=True)
    os.sched_setaffinity(0, [*others, options.processor])  # the record counts them
    if options.json:
        settings = {
            "photos": options.folder.resolve().name,
            "images_per_epoch": images,
            "batch": options.batch,
            "rounds": options.rounds,
            "seconds": options.seconds,
            "switch_interval_s": sys.getswitchinterval(),
            "core": library.codec(),
            "torch": torch.__version__,
        }
        print(record(str(options.json.resolve().with_suffix("")), result, **settings))


if __name__ == "__main__":
    main()
