"""Turns measured times into figures: rates, quartiles, percentiles, and ratios within rounds."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fastdecode.measure._timing import spread
from fastdecode.measure.result import AUTOMATIC, Measurement, Spread

if TYPE_CHECKING:
    from fastdecode.measure._run import Case
    from fastdecode.measure._workers import BlockTimes

Round: TypeAlias = "tuple[Hashable, Mapping[str, float]]"
_MEGA = 1_000_000
_ONE_THREAD = ("decode", "file")


def percentiles(values: Sequence[float]) -> tuple[float, ...]:
    """Return the percentiles 0 to 100, interpolated linearly; empty without values."""
    if not values:
        return ()
    return tuple(float(value) for value in np.percentile(values, range(101)))


def pass_time(rounds: Iterable[Iterable[tuple[Hashable, float]]]) -> dict[Hashable, float]:
    """Return the time of each part of the work, as the median over its repetitions.

    A round consists of parts that were timed separately. A part is a file, or a whole block if
    threads or workers share the block.
    """
    times: dict[Hashable, list[float]] = {}
    for one in rounds:
        for part, seconds in one:
            times.setdefault(part, []).append(seconds)
    return {part: median(seconds) for part, seconds in times.items()}


def rate(rounds: Sequence[Sequence[tuple[Hashable, float]]], amount: float) -> Spread:
    """Return the amount of work per second. One pass over all parts is `amount`.

    The median is `amount` divided by the sum of the parts' median times, so a single interruption
    has no effect. The quartiles are taken over the rounds. A round is compared with the sum of the
    median times of its own parts, so blocks with different files do not add to the spread.
    """
    parts = pass_time(rounds)
    middle = amount / sum(parts.values())
    speeds = spread(
        [sum(parts[part] for part, _ in one) / sum(seconds for _, seconds in one) for one in rounds]
    )
    return Spread(middle, middle * min(speeds.low, 1), middle * max(speeds.high, 1))


def fastest(rounds: Sequence[Round], names: Iterable[str]) -> str:
    """Return the name that is fastest, by comparison within the rounds.

    In a round, all work on the same files at nearly the same time. If the speed of the machine
    drifts, this comparison is therefore more stable than one of rates.
    """
    means = [fmean(times.values()) for _, times in rounds]
    return min(names, key=lambda name: _slowdown(rounds, name, means)[0])


def ratios(rounds: Sequence[Round], best: str) -> dict[str, Spread]:
    """Return the speed of each name divided by that of `best`, compared within the rounds.

    Each block counts with the median of its rounds, weighted by its time, so the result agrees with
    the ratio of the rates. The quartiles are those of the rounds' deviations from that median.
    """
    yardstick = [times[best] for _, times in rounds]
    found = {}
    for name in rounds[0][1]:
        slowdown, steadiness = _slowdown(rounds, name, yardstick)
        around = spread(steadiness)
        found[name] = Spread(
            1 / slowdown, min(around.low, 1) / slowdown, max(around.high, 1) / slowdown
        )
    return found


def _slowdown(
    rounds: Sequence[Round], name: str, yardstick: Sequence[float]
) -> tuple[float, list[float]]:
    """Compare the times of `name` with `yardstick`, the times of something else in these rounds.

    Return how many times as long `name` took and, for each round, how many times as fast it was as
    usual for that block.
    """
    shares = [times[name] / other for (_, times), other in zip(rounds, yardstick, strict=True)]
    blocks = [block for block, _ in rounds]
    usual = pass_time([list(zip(blocks, shares, strict=True))])
    weight = pass_time([list(zip(blocks, yardstick, strict=True))])
    slowdown = sum(usual[block] * weight[block] for block in usual) / sum(weight.values())
    return slowdown, [usual[block] / share for block, share in zip(blocks, shares, strict=True)]


def measurements(case: Case) -> list[Measurement]:
    """Return the measurements of a case, fastest first and the automatic choice last."""
    rounds: list[Round] = [
        (one.block, {name: timed.wall for name, timed in one.times.items()}) for one in case.rounds
    ]
    beside = ratios(rounds, _best(case, rounds)) if rounds and case.compared else {}
    found = [_measurement(case, name, beside.get(name)) for name in case.checks]
    return sorted(found, key=lambda one: (one.backend == AUTOMATIC, -one.ratio.median))


def _best(case: Case, rounds: Sequence[Round]) -> str:
    """Return the fastest backend; if any backends have right pixels, only among those."""
    backends = [name for name in case.compared if name != AUTOMATIC] or [AUTOMATIC]
    right = [name for name in backends if not case.checks[name].differing] or backends
    best = fastest(rounds, right)
    # Another backend may have a higher median ratio than `best`: repeat until none has.
    for _ in right:
        beside = ratios(rounds, best)
        faster = max(right, key=lambda name: (beside[name].median, name == best))
        if faster == best:
            break
        best = faster
    return best


def _measurement(case: Case, name: str, ratio: Spread | None) -> Measurement:
    check = case.checks[name]
    names = [photo.name for photo in case.photos]
    checked = replace(
        case.usual,
        backend=name,
        chosen=case.chosen if name == AUTOMATIC else "",
        fallbacks=check.fallbacks,
        refused={names[index]: why for index, why in sorted(check.refused.items())},
        differing=tuple(names[index] for index in sorted(check.differing)),
        averaged=len(check.averaged),
        max_difference=check.max_difference,
    )
    if ratio is None:
        return checked
    return _timed(checked, case, [one.times[name] for one in case.rounds], ratio)


def _timed(
    checked: Measurement, case: Case, times: Sequence[BlockTimes], ratio: Spread
) -> Measurement:
    """Add the figures of one backend to its measurement."""
    rounds = _parts(case, times)
    visits = _visits(case)
    photos = [case.photos[index] for index in visits]
    speed = rate(rounds, len(visits))
    seconds = len(visits) / speed.median
    calls = [call for timed in times for call in timed.calls]
    wall = sum(timed.wall for timed in times)
    images = sum(len(one.block) for one in case.rounds)
    return replace(
        checked,
        files=len(set(visits)),
        images_per_s=speed,
        mb_per_s=sum(photo.size for photo in photos) / _MEGA / seconds,
        megapixels_per_s=sum(photo.pixels for photo in photos) / _MEGA / seconds,
        latency_ms=tuple(round(1000 * value, 4) for value in percentiles(calls)),
        cpu_s_per_1000=1000 * sum(timed.cpu for timed in times) / images,
        peak_mb=max(timed.peak_mb for timed in times),
        read_share=sum(timed.reading for timed in times) / wall,
        ratio=ratio,
    )


def _parts(case: Case, times: Sequence[BlockTimes]) -> list[list[tuple[Hashable, float]]]:
    """Split each round into the parts that were timed separately."""
    pairs = zip(case.rounds, times, strict=True)
    if case.usual.protocol in _ONE_THREAD:
        return [list(zip(one.block, timed.calls, strict=True)) for one, timed in pairs]
    return [[(one.block, timed.wall)] for one, timed in pairs]


def _visits(case: Case) -> list[int]:
    """List the files of one pass over all parts, each as often as the parts contain it."""
    blocks = {one.block for one in case.rounds}
    files = [index for block in blocks for index in block]
    return list(set(files)) if case.usual.protocol in _ONE_THREAD else files
