"""Numbers out of measured times: rates, medians, and ratios paired within a round."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING

from fastdecode.bench.check import AUTOMATIC

if TYPE_CHECKING:
    from fastdecode.bench.run import Group

__all__ = ["Row", "fastest", "file_times", "paired_speeds", "rows", "timed_files"]

_MEGA = 1_000_000


@dataclass(frozen=True)
class Row:
    """The figures of one backend for one format at one reduction.

    Attributes
    ----------
    backend : str
        A backend's name, or `AUTOMATIC`.
    images_per_s : float
        From the sum of each file's median time.
    mb_per_s : float
        Encoded megabytes (10^6 bytes) for each second.
    ms : float
        The median file's time, in milliseconds.
    ratio : float
        Speed over that of the fastest backend whose pixels agree, from `paired_speeds`.
    """

    backend: str
    images_per_s: float
    mb_per_s: float
    ms: float
    ratio: float


def file_times(group: Group, backend: str) -> dict[int, float]:
    """Return the time of each file that was timed, in seconds: the median over its rounds."""
    times: dict[int, list[float]] = {}
    for one in group.rounds:
        for index, seconds in zip(one.files, one.seconds[backend], strict=True):
            times.setdefault(index, []).append(seconds)
    return {index: median(seconds) for index, seconds in times.items()}


def timed_files(group: Group) -> int:
    """Count the files that were timed at least once."""
    return len({index for one in group.rounds for index in one.files})


def paired_speeds(group: Group) -> dict[str, float]:
    """Return how fast each backend is beside the others.

    Parameters
    ----------
    group : Group
        With at least one round.

    Returns
    -------
    dict of str to float
        By backend, the median over the rounds of its speed over the round's mean. A round has all
        of them on the same files at nearly the same moment, so where a machine's speed drifts this
        is steadier than rates are; only the ratios between these numbers mean anything.
    """
    totals = [{name: sum(times) for name, times in one.seconds.items()} for one in group.rounds]
    return {
        name: median(fmean(total.values()) / total[name] for total in totals)
        for name in group.compared
    }


def fastest(group: Group) -> str:
    """Name the fastest backend, of those whose pixels agree, if there are any.

    Parameters
    ----------
    group : Group
        With at least one round.

    Returns
    -------
    str
        A backend's name; `AUTOMATIC` if no other was timed.
    """
    backends = [name for name in group.compared if name != AUTOMATIC] or [AUTOMATIC]
    right = [name for name in backends if not group.checks[name].differing] or backends
    speeds = paired_speeds(group)
    return max(right, key=lambda name: speeds[name])


def rows(group: Group) -> list[Row]:
    """Work out the figures of every backend that was timed.

    Parameters
    ----------
    group : Group

    Returns
    -------
    list of Row
        The fastest first, the automatic choice last; empty if no round was completed.
    """
    if not group.rounds:
        return []
    speeds = paired_speeds(group)
    best = speeds[fastest(group)]
    result = []
    for name in group.compared:
        times = file_times(group, name)
        spent = sum(times.values())
        size = sum(len(group.photos[index].data) for index in times)
        result.append(
            Row(
                name,
                images_per_s=len(times) / spent,
                mb_per_s=size / _MEGA / spent,
                ms=median(times.values()) * 1000,
                ratio=speeds[name] / best,
            )
        )
    return sorted(result, key=lambda row: (row.backend == AUTOMATIC, -row.ratio))
