"""The cases that are measured, and their figures: rates, ratios and spreads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fastdecode.measure._check import Examination
from fastdecode.measure.result import OWN, PILLOW, Measurement, Spread

if TYPE_CHECKING:
    from fastdecode.measure._collection import Photo
    from fastdecode.measure._processes import BlockTimes

Rounds: TypeAlias = "Sequence[tuple[Hashable, float]]"
"""The block of each round, and the seconds that it took."""

_PARTS = 9  # of a measurement: fewer often agree by chance
_MIN_SHARE = 0.5  # a backend that reads a smaller share of the files is not compared


@dataclass(frozen=True)
class Round:
    """The times of all backends for the same files, measured one right after the other."""

    block: tuple[int, ...]  # indexes into `Case.photos`
    times: dict[str, BlockTimes]  # by backend


@dataclass
class Case:
    """One setting in which backends are compared, and their measurements."""

    task: Measurement  # the settings that all of them share
    photos: Sequence[Photo]  # all photos of the run
    checks: dict[str, dict[int, Examination]]  # by backend and index of the file
    compared: tuple[str, ...] = ()  # backends that are timed
    common: tuple[int, ...] = ()  # indexes of the files that all of these read; only they are timed
    rounds: list[Round] = field(default_factory=list)  # complete rounds only

    @property
    def indexes(self) -> list[int]:
        """The files of the format."""
        return [n for n, photo in enumerate(self.photos) if photo.header.format == self.task.format]

    def remove(self, name: str, why: str) -> None:
        """Remove a backend and its times, because its process has failed."""
        if self.task.protocol == "train":  # a pipeline refuses no single file
            self.checks.pop(name, None)
        elif name in self.checks:
            failed, own = Examination(refused=why), self.checks[name]
            refused = {n: one for n, one in own.items() if one.refused}
            self.checks[name] = dict.fromkeys(self.indexes, failed) | refused
        self.compared = tuple(other for other in self.compared if other != name)
        for one in self.rounds:
            one.times.pop(name, None)


def comparable_files(
    checks: Mapping[str, Mapping[int, Examination]],
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the backends to compare, and the files that all of these read.

    A backend that reads less than half of the readable files is left out, because it would leave
    hardly any files for the comparison. So a single odd file excludes no fast backend.
    """
    read = {name: {n for n, one in own.items() if not one.refused} for name, own in checks.items()}
    readable: set[int] = set().union(*read.values())
    able = tuple(
        name for name, own in read.items() if readable and len(own) >= _MIN_SHARE * len(readable)
    )
    return able, tuple(sorted(set.intersection(readable, *(read[name] for name in able))))


def block_times(rounds: Rounds) -> dict[Hashable, float]:
    """Return the time of each block, as the median over its rounds."""
    times: dict[Hashable, list[float]] = {}
    for block, seconds in rounds:
        times.setdefault(block, []).append(seconds)
    return {block: median(found) for block, found in times.items()}


def around(middle: float, shares: Sequence[float]) -> Spread:
    """Return a spread around a median, from what the rounds are as shares of it, in their order.

    It covers the medians of consecutive parts: where a process happens to lie in memory, and what
    runs beside it, lasts longer than a round, so that neighbouring rounds agree better than a
    figure does with that of another run.
    """
    parts = np.array_split(shares, min(_PARTS, len(shares)))
    seen = [1.0, *(float(np.median(part)) for part in parts)]
    return Spread(middle, middle * min(seen), middle * max(seen))


def rate(rounds: Rounds, amount: float) -> Spread:
    """Return the amount of work per second. One pass over all blocks is `amount`.

    The median is `amount` divided by the sum of the blocks' median times, so a single interruption
    has no effect. A round is compared with the median of its own block, so blocks with different
    files do not add to the spread.
    """
    times = block_times(rounds)
    shares = [times[block] / seconds for block, seconds in rounds]
    return around(amount / sum(times.values()), shares)


def ratio(rounds: Rounds, base: Rounds) -> Spread:
    """Return how many times as fast the rounds were as those of `base`, which are paired with them.

    The median is the quotient of the two rates. Its spread is that of the quotients within the
    rounds: if the speed of the machine drifts, both drift alike.
    """
    own, its = block_times(rounds), block_times(base)
    shares = [
        other / seconds / (its[block] / own[block])
        for (block, seconds), (_, other) in zip(rounds, base, strict=True)
    ]
    return around(sum(its.values()) / sum(own.values()), shares)


def measurements(case: Case) -> list[Measurement]:
    """Return the measurements of a case, fastest first; those that were only checked come last."""
    timed: dict[str, Rounds] = {
        name: [(one.block, one.times[name].wall) for one in case.rounds]
        for name in (case.compared if case.rounds else ())
    }
    totals = {name: sum(block_times(rounds).values()) for name, rounds in timed.items()}
    base = PILLOW if PILLOW in timed else min(totals, key=lambda name: totals[name], default="")
    found = []
    for name in case.checks:
        one = _checked(case, name)
        found.append(_timed(one, case, timed[name], timed[base]) if name in timed else one)
    return sorted(found, key=lambda one: -one.images_per_s.median)


def _checked(case: Case, name: str) -> Measurement:
    checks = {case.photos[n].name: one for n, one in sorted(case.checks[name].items())}
    chosen = Counter(one.chosen for one in checks.values() if one.chosen and name == OWN)
    return replace(
        case.task,
        backend=name,
        chosen=max(chosen, key=lambda each: chosen[each], default=""),
        refused={file: one.refused for file, one in checks.items() if one.refused},
        differing=tuple(file for file, one in checks.items() if one.differs),
        averaged=sum(one.averaged for one in checks.values()),
        max_difference=max((one.difference for one in checks.values()), default=0),
    )


def _timed(one: Measurement, case: Case, rounds: Rounds, base: Rounds) -> Measurement:
    """Add the figures of one backend to its measurement."""
    images = sum(len(each.block) for each in case.rounds)
    visits = [index for block in {each.block for each in case.rounds} for index in block]
    cpu = sum(each.times[one.backend].cpu for each in case.rounds)
    return replace(
        one,
        files=len(set(visits)),
        images_per_s=rate(rounds, len(visits)),
        ratio=ratio(rounds, base),
        cpu_s_per_1000=1000 * cpu / images,
    )
