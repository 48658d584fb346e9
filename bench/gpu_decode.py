"""How fast do encoded pictures become pixels on the device? A part of `gpu.py`.

Each lane decodes the same pictures, from memory, in batches, by `fastdecode.decode_batch`: with
each batch backend that works on the device, and on the CPU with different numbers of threads, from
where they are copied. At full size, and with `size=` as a network wants them, for which the CPU
lets the JPEG decoder reduce. And the middle half alone: whether windows pay (`gpu_windows.py`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import mean
from time import perf_counter, process_time
from typing import Any, NamedTuple

import torch
from gpu_budget import Budget, told
from gpu_clock import Clock
from gpu_race import middle, race, ratio
from gpu_windows import window_lanes, window_summary
from reference import SIZE

import fastdecode
from fastdecode.calibration.device_worker import busy_seconds
from fastdecode.gpu import _backends
from fastdecode.gpu._batch import request_of

ARRAYS = "arrays"
_AT_MOST_DB = 60.0


class Lane(NamedTuple):
    """One way to decode.

    Attributes
    ----------
    name : str
    options : dict
        Of `decode_batch`.
    copied : bool
        Whether the pictures get onto the device; if not, they are arrays.
    """

    name: str
    options: dict[str, Any]
    copied: bool = True


class Work(NamedTuple):
    """What all lanes do.

    Attributes
    ----------
    files : list of bytes
    batch : int
    device : torch.device
    sized : bool
        Make pictures of 224 x 224.
    """

    files: list[bytes]
    batch: int
    device: torch.device
    sized: bool

    def batches(self) -> Iterator[list[bytes]]:
        for at in range(0, len(self.files), self.batch):
            yield self.files[at : at + self.batch]

    def decode(self, files: Sequence[bytes], lane: Lane) -> Any:
        options = {"device": self.device, **lane.options} if lane.copied else lane.options
        if self.sized:
            by_cpu = {} if "backend" in lane.options else {"min_size": SIZE}
            options = {**options, **by_cpu, "size": SIZE}
        return fastdecode.decode_batch(files, **options)


class Turn(NamedTuple):
    """What a lane did in one round, in seconds.

    Attributes
    ----------
    seconds : float
        Until the last picture was there, by the host's clock.
    device : float
        Between the marks around each call, in the order of the device's work, summed.
    cpu : float
        Of all threads.
    """

    seconds: float
    device: float
    cpu: float


def lanes_of(
    device: torch.device, threads: Sequence[int], left_out: dict[str, str]
) -> dict[str, Lane]:
    """List the ways that work here; `left_out` gets the others, and why."""
    lanes = []
    for name in _backends.names(device.type):
        try:
            _backends.load(name, device)
        except fastdecode.BackendUnavailable as error:
            left_out[name] = str(error).partition("\n")[0]
        else:
            lanes.append(Lane(name, {"backend": name}))
    for count in threads:
        words = f"cpu, {count} thread{'s' * (count != 1)}"
        lanes.append(Lane(words, {"decode": "cpu", "threads": count}))
    # What the CPU's decoding alone makes: nothing else of it can be blamed on the copy.
    lanes.append(Lane(f"{lanes[-1].name}, {ARRAYS}", {"threads": threads[-1]}, copied=False))
    return {lane.name: lane for lane in lanes}


def run(work: Work, lane: Lane, clock: Clock) -> Turn:
    """Decode all once."""
    marks = []
    clock.wait()
    cpu, start = process_time(), perf_counter()
    for files in work.batches():
        first = clock.mark()
        work.decode(files, lane)  # and let go of them: as in training, their memory is used again
        marks.append((first, clock.mark()))
    clock.wait()
    seconds, cpu = perf_counter() - start, process_time() - cpu
    return Turn(seconds, sum(clock.between(first, last) for first, last in marks), cpu)


def summary(
    turns: dict[str, dict[int, Turn]], images: int, bases: dict[str, str]
) -> dict[str, Any]:
    """Sum up the rounds, by lane; `bases` are the lanes that the others are compared with."""
    speeds = {
        name: {number: images / turn.seconds for number, turn in rounds.items()}
        for name, rounds in turns.items()
    }
    return {
        name: {
            "images_per_s": middle(speeds[name], 1),
            "rounds": [round(speed, 1) for speed in speeds[name].values()],
            "device_ms": middle({n: 1000 * turn.device / images for n, turn in rounds.items()}, 4),
            "cpu_ms": middle({n: 1000 * turn.cpu / images for n, turn in rounds.items()}, 4),
            **{key: ratio(speeds[name], speeds.get(base, {})) for key, base in bases.items()},
        }
        for name, rounds in turns.items()
    }


def fallen_back(work: Work, name: str) -> dict[str, int]:
    """Count what a batch backend does not decode itself: by its declaration, or by refusing it."""
    backend = _backends.load(name, work.device).backend
    declared = sum(request_of(data, backend, {}) is None for data in work.files)
    fastdecode.stats(reset=True)
    for files in work.batches():
        work.decode(files, Lane(name, {"backend": name}))
    by_cpu = fastdecode.stats().fallbacks.get((name, "cpu"), 0)
    return {"not_declared": declared, "refused": by_cpu - declared}


def nearness(work: Work, name: str) -> dict[str, Any]:
    """Compare a batch backend's pixels with those of the CPU path, each photo once."""
    levels, largest = [], 0
    for files in work.batches():
        own, cpu = (
            fastdecode.decode_batch(files, device=work.device, **options)
            for options in ({"backend": name}, {"decode": "cpu"})
        )
        for one, other in zip(own, cpu, strict=True):
            difference = (one.float() - other.float()).abs()
            levels.append(_decibels(float(difference.square().mean())))
            largest = max(largest, int(difference.max()))
    return {
        "photos": len(levels),
        "identical": sum(level == math.inf for level in levels),
        "mean_db": round(mean(min(level, _AT_MOST_DB) for level in levels), 2),
        "least_db": round(min(min(level, _AT_MOST_DB) for level in levels), 2),
        "largest_difference": largest,
    }


def _decibels(error: float) -> float:
    return 10 * math.log10(255**2 / error) if error else math.inf


def add_busy(
    work: Work, lanes: dict[str, Lane], found: dict[str, Any], left_out: dict[str, str]
) -> None:
    """Add for how long the device was at work, in ms for an image, by its driver's notes."""
    files = next(work.batches())
    for name in (name for name in found if lanes[name].copied):
        try:
            seconds = busy_seconds(work.device, partial(work.decode, files, lanes[name]))
        except Exception as error:  # of the profiler, which not every driver allows
            left_out[f"{name}, at work"] = told(error)
        else:
            busy = None if seconds is None else round(1000 * seconds / len(files), 4)
            found[name]["busy_ms"] = busy


def decode_part(
    photos: list[bytes],
    items: int,
    batch: int,
    options: Any,
    clock: Clock,
    budget: Budget,
) -> Iterator[dict[str, Any]]:
    """Measure all lanes; yield what is known after each round."""
    left_out: dict[str, str] = {}
    lanes = lanes_of(options.device, options.threads, left_out)
    batched = [name for name, lane in lanes.items() if "backend" in lane.options]
    found: dict[str, Any] = {kind: {} for kind in ("pixels", "full", "sized", "middle")}
    found["left_out"] = left_out
    different = Work(photos, batch, options.device, sized=False)
    for name in batched:
        try:
            found["pixels"][name] = {**nearness(different, name), **fallen_back(different, name)}
        except Exception as error:  # of a library: the others go on
            left_out[name] = told(error)
            del lanes[name]
        yield found
    files = [photos[number % len(photos)] for number in range(items)]
    bases = dict(zip(("to_cpu", "to_arrays"), list(lanes)[-2:], strict=True))
    for kind in ("full", "sized"):
        work = different._replace(files=files, sized=kind == "sized")
        fitting = {name: lane for name, lane in lanes.items() if lane.copied or not work.sized}
        runs = {name: partial(run, work, lane, clock) for name, lane in fitting.items()}
        for turns in race(runs, options.rounds, budget, left_out):
            found[kind] = summary(turns, items, bases)
            yield found
    windows = window_lanes([name for name in batched if name in lanes], files, batch, clock)
    for turns in race(windows, options.rounds, budget, left_out):
        found["middle"] = window_summary(turns)
        yield found
    # Last, because the profiler slows down what comes after it.
    for kind in ("full", "sized"):
        work = different._replace(files=files, sized=kind == "sized")
        add_busy(work, lanes, found[kind], left_out)
        yield found
