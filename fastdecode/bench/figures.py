"""Numbers out of measured times: rates, quartiles, percentiles, and ratios paired by block."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import TypeAlias

import numpy as np

from fastdecode.bench.result import Spread

__all__ = ["fastest", "pass_time", "percentiles", "rate", "ratios", "spread"]

Round: TypeAlias = "tuple[Hashable, Mapping[str, float]]"


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles, interpolated linearly.

    Parameters
    ----------
    values : sequence of float
        Not empty.
    """
    low, middle, high = (float(value) for value in np.quantile(values, (0.25, 0.5, 0.75)))
    return Spread(middle, low, high)


def percentiles(values: Sequence[float]) -> tuple[float, ...]:
    """Return the percentiles 0 to 100, interpolated linearly; none of no values."""
    if not values:
        return ()
    return tuple(float(value) for value in np.percentile(values, range(101)))


def pass_time(rounds: Iterable[Iterable[tuple[Hashable, float]]]) -> dict[Hashable, float]:
    """Return how long each part of the work takes: the median over the times it was done.

    Parameters
    ----------
    rounds : iterable of iterable of (part, seconds)
        What was done in each round, in parts that have a time of their own: files, or whole blocks
        where threads or workers share them.
    """
    times: dict[Hashable, list[float]] = {}
    for one in rounds:
        for part, seconds in one:
            times.setdefault(part, []).append(seconds)
    return {part: median(seconds) for part, seconds in times.items()}


def rate(rounds: Sequence[Sequence[tuple[Hashable, float]]], amount: float) -> Spread:
    """Return how much is done in a second.

    Parameters
    ----------
    rounds : sequence of sequence of (part, seconds)
        As for `pass_time`.
    amount : float
        What one pass over all parts comes to: images, for instance.

    Returns
    -------
    Spread
        Its median is the amount over the sum of the parts' median times, so that an interruption
        does not count. The quartiles are over the rounds, by how much longer or shorter each took
        than the median times of its parts make up: that blocks hold different files is no spread.
    """
    parts = pass_time(rounds)
    middle = amount / sum(parts.values())
    speeds = spread(
        [sum(parts[part] for part, _ in one) / sum(seconds for _, seconds in one) for one in rounds]
    )
    return Spread(middle, middle * min(speeds.low, 1), middle * max(speeds.high, 1))


def fastest(rounds: Sequence[Round], names: Iterable[str]) -> str:
    """Name the one that is fastest beside the others.

    Parameters
    ----------
    rounds : sequence of (block, Mapping of str to float)
        What each backend took for the block, in seconds. A round has all of them on the same files
        at nearly the same moment, so where a machine's speed drifts this is steadier than rates.
    names : iterable of str
        Those to choose from.
    """
    means = [fmean(times.values()) for _, times in rounds]
    return min(names, key=lambda name: _slowdown(rounds, name, means)[0])


def ratios(rounds: Sequence[Round], best: str) -> dict[str, Spread]:
    """Return the speed of each over that of the best, paired within the rounds.

    Parameters
    ----------
    rounds : sequence of (block, Mapping of str to float)
        As for `fastest`; not empty.
    best : str

    Returns
    -------
    dict of str to Spread
        Of each block the median of its rounds counts, and the longer blocks count for more: so it
        agrees with the ratio of the rates. The quartiles are over the rounds, by how each differs
        from that median.
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
    """Compare with what something else took in the same rounds.

    Returns
    -------
    float
        How many times as long it took.
    list of float
        For each round, how much faster it was than usual for that block.
    """
    shares = [times[name] / other for (_, times), other in zip(rounds, yardstick, strict=True)]
    blocks = [block for block, _ in rounds]
    usual = pass_time([list(zip(blocks, shares, strict=True))])
    weight = pass_time([list(zip(blocks, yardstick, strict=True))])
    slowdown = sum(usual[block] * weight[block] for block in usual) / sum(weight.values())
    return slowdown, [usual[block] / share for block, share in zip(blocks, shares, strict=True)]
