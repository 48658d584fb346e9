"""The engine: times all backends on the same files, in rounds, so drift affects all alike.

The times of a case become its figures: rates, ratios and spreads.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from fastdecode._backends import registry
from fastdecode._system.processor import usable_cores
from fastdecode.errors import BackendUnavailable
from fastdecode.measure._processes import DECODER, TRAINER, Examination, Processes, reason
from fastdecode.measure.result import OWN, PILLOW, Measurement, Spread, label

if TYPE_CHECKING:
    from fastdecode.cli.terminal import Notify
    from fastdecode.measure._collection import Photo
    from fastdecode.measure._processes import BlockTimes
    from fastdecode.measure.result import Pipeline
    from fastdecode.types import BackendInfo, Format, Reduce

_BLOCK_FILES = 64
_BLOCK_BYTES = 1 << 20  # a block takes about 10 ms to 100 ms for each backend
_FEW = 8  # files: a smaller block ends before the processor's caches are warm
_PROCESSES = 3  # of a decoder, one after the other: its figure moves between these, too

_BATCH = 64  # images of 500 x 375 pixels; fewer if they are larger
_MIN_BATCH = 4
_USUAL_AREA = 500 * 375
_BATCHES = 3  # of an epoch, per thread or worker: its start and end then count little
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


@dataclass(frozen=True)
class RunPlan:
    """What to measure."""

    backends: tuple[str, ...] = ()  # to compare with `OWN`, which is always measured
    reduces: tuple[Reduce, ...] = (1,)
    pipelines: tuple[Pipeline, ...] = ()  # to make training batches; needs PyTorch
    every_format: bool = False  # else only the most frequent one
    seconds: float = 0.5  # for each backend of a table, on average
    visits: int = 3  # of each file, and epochs, at least: the median of 3 ignores an interruption
    seed: int = 0  # of the random order


@dataclass
class Run:
    """The measurements so far."""

    cases: list[Case] = field(default_factory=list)
    infos: dict[str, BackendInfo] = field(default_factory=dict)  # of the backends
    notes: list[str] = field(default_factory=list)  # remarks for readers of the figures

    def measurements(self) -> tuple[Measurement, ...]:
        """Return the figures."""
        return tuple(one for case in self.cases for one in measurements(case))


def measure(
    photos: Sequence[Photo],
    plan: RunPlan,
    found: Run,
    notify: Notify = lambda _what, _done, _total: None,
) -> None:
    """Measure everything that the plan asks for.

    `found` is filled as results come, so they are not lost on an interruption.
    """
    formats = [kind for kind, _ in Counter(photo.header.format for photo in photos).most_common()]
    tasks = [
        Measurement("decode", kind, reduce)
        for kind in (formats if plan.every_format else formats[:1])
        for reduce in plan.reduces
        if kind == "jpeg" or reduce == min(plan.reduces)  # only JPEGs are reduced by their decoders
    ]
    if plan.pipelines and formats:
        tasks.append(training_task(formats[0], photos))
    _Engine(photos, plan, found, notify).run(tasks)


def training_task(kind: Format, photos: Sequence[Photo]) -> Measurement:
    """Return the settings of training: all cores, and smaller batches of large images."""
    areas = [photo.pixels for photo in photos if photo.header.format == kind]
    fitting = _BATCH * math.sqrt(_USUAL_AREA / max(sum(areas) / len(areas), _USUAL_AREA))
    batch = max(_MIN_BATCH, 1 << round(math.log2(fitting)))
    return Measurement("train", kind, 1, workers=usable_cores(), batch=batch)


def blocks(
    task: Measurement, sizes: Mapping[int, int], chance: random.Random
) -> list[tuple[int, ...]]:
    """Divide the files, in random order, into blocks, one for each round.

    `sizes` are those of the files in bytes. A few files are repeated; an epoch is always the same.
    """
    order = chance.sample(list(sizes), len(sizes))
    if task.protocol == "train":
        batches = max(task.workers * _BATCHES, -(-len(order) // task.batch))
        return [tuple(itertools.islice(itertools.cycle(order), batches * task.batch))]
    if len(order) < _FEW:
        return [tuple(itertools.islice(itertools.cycle(order), _FEW))]
    dealt: list[list[int]] = []
    room = 0
    for index in order:
        if not dealt or sizes[index] > room or len(dealt[-1]) == _BLOCK_FILES:
            dealt.append([])
            room = _BLOCK_BYTES
        dealt[-1].append(index)
        room -= sizes[index]
    return [tuple(block) for block in dealt]


class _Engine:
    """Measures case after case."""

    def __init__(self, photos: Sequence[Photo], plan: RunPlan, found: Run, notify: Notify) -> None:
        self._photos, self._plan, self._found, self._notify = photos, plan, found, notify
        self._done, self._total = 0, 1  # cases

    def run(self, tasks: Sequence[Measurement]) -> None:
        """Measure these settings in order, decoding first."""
        self._total = len(tasks)
        for task in tasks:
            self._progress("starting", 0.0)
            if task.protocol == "train":
                self._train(task)
            else:
                self._decode(task)
            self._done += 1
        self._progress("timing", 0.0)

    def _progress(self, doing: str, share: float) -> None:
        self._notify(doing, self._done + share, self._total)

    def _decode(self, task: Measurement) -> None:
        """Check the files of a format at one reduction, and time them."""
        case = Case(task, self._photos, {name: {} for name in (*self._plan.backends, OWN)})
        self._found.cases.append(case)
        order = random.Random(self._plan.seed).sample(case.indexes, len(case.indexes))
        own = {name: (registry.targets(), self._photos, name) for name in case.checks}
        with closing(Processes(DECODER, own, partial(self._lose, case))) as members:
            infos = members.ask(self._plan.backends, "describe")
            self._found.infos.update(infos)
            for name in infos:
                if task.format not in infos[name].formats:
                    del case.checks[name]
            for done, index in enumerate(order):
                self._progress("checking", 0.3 * done / len(order))
                found = members.ask([*case.checks], "examine", index, task.reduce)
                for name, finding in found.items():
                    case.checks[name][index] = finding
        case.compared, case.common = comparable_files(case.checks)
        self._time(case, DECODER, own, task.reduce)

    def _train(self, task: Measurement) -> None:
        """Time the pipelines on the files that all decoders read."""
        decoded = next(case for case in self._found.cases if case.task.format == task.format)
        refused = {n: one for n, one in decoded.checks.get(OWN, {}).items() if one.refused}
        if not decoded.common:
            return
        names = self._plan.pipelines
        case = Case(task, self._photos, dict.fromkeys(names, refused), names, decoded.common)
        self._found.cases.append(case)
        own: dict[str, tuple[object, ...]] = {
            name: (registry.targets(), self._photos, replace(task, backend=name)) for name in names
        }
        self._time(case, TRAINER, own)

    def _lose(self, case: Case, name: str, error: Exception) -> None:
        """Note that a process has failed, and remove it from the case that is measured."""
        note = f"Not measured: {label(case.task.protocol, name)}: {reason(error)}"
        if note not in self._found.notes:
            self._found.notes.append(note)
        if isinstance(error, BackendUnavailable):  # nothing can be said of single files
            case.checks.pop(name, None)
        case.remove(name, reason(error))

    def _time(
        self, case: Case, target: str, own: Mapping[str, Sequence[object]], *arguments: object
    ) -> None:
        """Time rounds until the time is over and every file has had its visits."""
        if not case.common:
            return
        chance = random.Random(self._plan.seed)
        dealt = blocks(case.task, {n: self._photos[n].size for n in case.common}, chance)
        parts = 1 if case.task.protocol == "train" else _PROCESSES
        done, spent = 0.0, 0.0
        for part in range(1, parts + 1):
            arrived = {name: own[name] for name in case.compared}
            with closing(Processes(target, arrived, partial(self._lose, case))) as members:
                self._progress("warming up", 0.3 + 0.7 * done)
                _round(members, case, dealt[0], chance, arguments)
                while case.compared and done < part / parts:
                    self._progress("timing", 0.3 + 0.7 * done)
                    block = dealt[len(case.rounds) % len(dealt)]
                    times = _round(members, case, block, chance, arguments)
                    if times:
                        case.rounds.append(Round(block, times))
                    spent += sum(timed.wall for timed in times.values())
                    time = self._plan.seconds * len(case.compared)
                    visits = len(case.rounds) / len(dealt) / self._plan.visits
                    done = min(visits, spent / time if time else 1.0)


def _round(
    members: Processes,
    case: Case,
    block: Sequence[int],
    chance: random.Random,
    arguments: Sequence[object],
) -> dict[str, BlockTimes]:
    """Time a block in one process after another, in random order, without those that fail."""
    times: dict[str, BlockTimes] = {}
    for name in chance.sample(case.compared, len(case.compared)):
        times |= members.ask([name], "time", block, *arguments)
    return {name: times[name] for name in case.compared}
