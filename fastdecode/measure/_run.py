"""Measuring: every backend on the same files, in rounds, so that drift hits all of them alike."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fastdecode import registry
from fastdecode._process import Child, ChildDied
from fastdecode._system import usable_cores
from fastdecode.measure._calibration_workers import Members
from fastdecode.measure._check import Check, reason
from fastdecode.measure._stats import measurements
from fastdecode.measure._text import count, size
from fastdecode.measure._workers import Setup
from fastdecode.measure.result import AUTOMATIC, Protocol

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from fastdecode.measure._collection import Photo
    from fastdecode.measure._workers import Timed
    from fastdecode.measure.result import Measurement
    from fastdecode.types import Format, Output, Reduce

__all__ = [
    "Cell",
    "Found",
    "Group",
    "Notify",
    "Plan",
    "Referee",
    "Round",
    "Team",
    "able",
    "blocks",
    "cells",
    "compared",
    "counts_up_to_cores",
    "measure",
]


_BLOCK_FILES = 64
_BLOCK_BYTES = 1 << 20  # a block takes about 10 ms to 100 ms for each backend
_FEW = 16  # files: a block of fewer is over before the processor's caches are warm
_EACH: dict[Protocol, int] = {"threads": 32, "loader": 64}
"""Images for each thread or worker: enough to hide how they start and end (two batches)."""
_MOST_EACH = 1024
_MOST_WORKERS = 8
"""Workers with which all backends are compared: each has its own, all alive at the same time."""

_WORKER = "fastdecode.measure._workers:Worker"
_REFERENCE = "fastdecode.measure._workers:Reference"

_VISITS = 3  # to each file at least: the median of three passes over one interruption
_WARM_UP = 32  # images for each thread or worker
_MIN_SHARE = 0.5  # of the files, read by a backend: one that reads fewer is not compared

Notify = Callable[[str, float], object]
"""Told what is being done, in words, and what share of the whole run is behind."""


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    backends: tuple[str, ...]  # usable ones, by name; `decode` by itself is always measured too
    reduces: tuple[Reduce, ...] = (1,)
    seconds: float = 0.5  # time each configuration is measured for at least
    protocols: tuple[Protocol, ...] = ("decode",)
    # threads, workers: counts to measure with; none leaves the protocol out
    threads: tuple[int, ...] = ()
    workers: tuple[int, ...] = ()
    output: Output = "array"
    size: int = 0  # side in pixels to resize to, which gives tensors; 0 leaves images as they are
    seed: int = 0  # of the random order


@dataclass(frozen=True)
class Cell:
    """What a group of backends is compared in."""

    protocol: Protocol
    format: Format
    reduce: Reduce
    threads: int  # threads, workers: 1 and 0 where the protocol has none
    workers: int
    backends: tuple[str, ...]  # `AUTOMATIC` is the last of them


def cells(plan: Plan, photos: Sequence[Photo], reads: Mapping[str, Sequence[Format]]) -> list[Cell]:
    """List the groups to measure; `reads` says what each backend of the plan reads.

    The protocol ``decode`` has every format and reduction; the others have the commonest format at
    the largest size alone.
    """
    formats = [kind for kind, _ in Counter(photo.header.format for photo in photos).most_common()]
    found: list[Cell] = []
    if "decode" in plan.protocols:
        found += [
            Cell("decode", kind, reduce, 1, 0, able(plan, reads, kind))
            for kind in formats
            for reduce in plan.reduces
        ]
    if not formats:
        return found
    usual, reduce = formats[0], min(plan.reduces)
    everyone = able(plan, reads, usual)
    if "threads" in plan.protocols:
        found += [Cell("threads", usual, reduce, n, 0, everyone) for n in plan.threads]
    if "loader" in plan.protocols:
        # Of the counts, one with all backends; the others show how `decode` scales.
        all_at = max((n for n in plan.workers if n <= _MOST_WORKERS), default=0)
        found += [
            Cell("loader", usual, reduce, 1, n, everyone if n == all_at else (AUTOMATIC,))
            for n in plan.workers
        ]
    if "file" in plan.protocols:
        found.append(Cell("file", usual, reduce, 1, 0, everyone))
    return found


def able(plan: Plan, reads: Mapping[str, Sequence[Format]], format: Format) -> tuple[str, ...]:
    """Name the backends that read a format, and `AUTOMATIC`."""
    return (*(name for name in plan.backends if format in reads[name]), AUTOMATIC)


def counts_up_to_cores() -> tuple[int, ...]:
    """Return the powers of two up to the cores that are usable here, and these."""
    cores = usable_cores()
    return tuple(sorted({*(1 << n for n in range(cores.bit_length())), cores}))


def blocks(cell: Cell, sizes: Mapping[int, int], chance: random.Random) -> list[tuple[int, ...]]:
    """Deal the files, in random order, into the shares of one round each.

    The same files may come more than once in a block, all of them equally often, if there are few
    and several threads or workers share them.
    """
    order = chance.sample(list(sizes), len(sizes))
    if cell.protocol in ("threads", "loader"):
        sharers = max(cell.threads, cell.workers)
        usual = max(1, sum(sizes.values()) / len(sizes))
        each = min(_MOST_EACH, max(_EACH[cell.protocol], int(_BLOCK_BYTES / usual)))
        return _equal(order, sharers * each)
    if len(order) <= _FEW:
        return _equal(order, _FEW)
    dealt: list[list[int]] = []
    room = 0
    for index in order:
        if not dealt or sizes[index] > room or len(dealt[-1]) == _BLOCK_FILES:
            dealt.append([])
            room = _BLOCK_BYTES
        dealt[-1].append(index)
        room -= sizes[index]
    return [tuple(block) for block in dealt]


def _equal(order: list[int], needed: int) -> list[tuple[int, ...]]:
    """Make blocks of at least so many files, of the same ones again and again if there are few."""
    count = max(1, len(order) // needed)
    repeats = -(-needed // len(order))
    return [tuple(order[number::count] * repeats) for number in range(count)]


class Team(Members):
    """One process for each configuration; one that fails leaves, and the others go on."""

    def __init__(self, setups: Mapping[str, Setup], on_loss: Callable[[str, str], object]) -> None:
        self.setup = next(iter(setups.values()))
        super().__init__(
            _WORKER,
            {name: (setup,) for name, setup in setups.items()},
            lambda name, error: on_loss(name, reason(error)),
        )


class Referee:
    """The process that decodes for comparison; a new one, where a file has crashed it."""

    def __init__(self, setup: Setup) -> None:
        self.crashes = 0
        self._setup = setup
        self._child = self._start()

    def digest(self, index: int) -> bytes | None:
        """Return what the right pixels of a file come to; None if there are none."""
        try:
            digest: bytes | None = self._child.ask("digest", index)
        except ChildDied:
            self.crashes += 1
            self._child.close()
            self._child = self._start()
            return None
        return digest

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._child.close()

    def _start(self) -> Child:
        child = Child(_REFERENCE, self._setup)
        child.receive()
        return child


@dataclass(frozen=True)
class Round:
    """The same files, decoded by each backend, one backend right after the other."""

    block: tuple[int, ...]  # indexes into `Group.photos`
    times: dict[str, Timed]  # by backend


@dataclass
class Group:
    """The backends that are compared in one cell, and what was measured."""

    cell: Cell
    photos: Sequence[Photo]  # all files of the format
    checks: dict[str, Check]  # by backend; `AUTOMATIC` is one of them
    chosen: str = ""  # what `decode` chooses for most of the files; empty if it reads none
    compared: tuple[str, ...] = ()  # backends that are timed
    common: tuple[int, ...] = ()  # files that all of these read, by index: only they are timed
    rounds: list[Round] = field(default_factory=list)  # complete rounds only

    def lose(self, name: str, why: str) -> None:
        """Leave a backend out, and what was measured of it: its process has failed."""
        self.checks[name].refuse_all(range(len(self.photos)), why)
        self.compared = tuple(other for other in self.compared if other != name)
        for one in self.rounds:
            one.times.pop(name, None)


@dataclass
class Found:
    """What was measured so far."""

    groups: list[Group] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what a reader of the figures should know

    def measurements(self, plan: Plan) -> tuple[Measurement, ...]:
        """Work out the figures."""
        return tuple(
            one for group in self.groups for one in measurements(group, plan.output, plan.size)
        )


def measure(
    photos: Sequence[Photo],
    plan: Plan,
    found: Found,
    notify: Notify = lambda _what, _share: None,
) -> None:
    """Measure everything that the plan asks for.

    What is `found` is filled as results come, so that it is there if this is interrupted.
    """
    run = _Run(photos, plan, found)
    if any(cell.protocol in ("file", "loader") for cell in run.cells):
        found.notes.append(
            "Reading is measured on files that were read before: from the memory that the system "
            "keeps them in, as far as they fit."
        )
    for done, cell in enumerate(run.cells):

        def step(what: str, share: float, done: int = done, cell: Cell = cell) -> None:
            notify(f"{what} {_said(cell)}", (done + share) / len(run.cells))

        run.measure(cell, step)


def compared(checks: Mapping[str, Check]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Decide which backends are compared, and on which files: those that all of these read.

    A backend that reads less than half of what anything reads is not compared: it would leave
    hardly any files to compare the others on.
    """
    readable: set[int] = set().union(*(result.read for result in checks.values()))
    able = tuple(
        name
        for name, result in checks.items()
        if readable and len(result.read) >= _MIN_SHARE * len(readable)
    )
    common = set.intersection(readable, *(checks[name].read for name in able))
    return able, tuple(sorted(common))


class _Run:
    """Measures cell after cell; files are checked once for each format and reduction."""

    def __init__(self, photos: Sequence[Photo], plan: Plan, found: Found) -> None:
        self._photos = photos
        self._plan = plan
        self._found = found
        self._reads = {name: tuple(registry.load(name).supports) for name in plan.backends}
        self._checks: dict[tuple[Format, Reduce], dict[str, Check]] = {}
        self.cells = cells(plan, photos, self._reads)

    def measure(self, cell: Cell, step: Notify) -> None:
        """Check the files, unless that is done, and time them."""
        group = self._group(cell)
        self._found.groups.append(group)
        if cell.protocol != "decode":
            if (cell.format, cell.reduce) not in self._checks:
                self._check_first(cell, step)
            self._adopt(group)
            if not group.common:
                return
        with self._team(group) as team:
            if cell.protocol == "decode":
                self._check(team, group, step)
            if group.common:
                self._time(team, group, step)

    def _group(self, cell: Cell) -> Group:
        photos = [photo for photo in self._photos if photo.header.format == cell.format]
        return Group(cell, photos, {name: Check() for name in cell.backends})

    def _team(self, group: Group) -> Team:
        cell, plan = group.cell, self._plan
        setups = {
            name: Setup(
                cell.protocol,
                name,
                cell.reduce,
                group.photos,
                cell.threads,
                cell.workers,
                plan.output,
                plan.size,
                registry.targets(),
            )
            for name in group.compared or cell.backends
        }
        return Team(setups, group.lose)

    def _check_first(self, cell: Cell, step: Notify) -> None:
        """Check without timing: in processes of their own, without a pool or workers."""
        backends = able(self._plan, self._reads, cell.format)
        group = self._group(Cell("decode", cell.format, cell.reduce, 1, 0, backends))
        with self._team(group) as team:
            self._check(team, group, step)

    def _adopt(self, group: Group) -> None:
        """Take over what was found out by an earlier check of the same files."""
        checks = copy.deepcopy(self._checks[group.cell.format, group.cell.reduce])
        backends, group.common = compared(checks)
        group.checks = {name: checks[name] for name in group.cell.backends}
        group.compared = tuple(name for name in group.checks if name in backends)

    def _check(self, team: Team, group: Group, step: Notify) -> None:
        """Decode everything once, outside the clock: it is the check, and the warm-up."""
        step("checking", 0)
        with Referee(replace(team.setup, backend=AUTOMATIC)) as referee:
            for index in range(len(group.photos)):
                right = referee.digest(index)
                for names in _portions(team.names, usable_cores()):
                    for name, finding in team.ask_all(names, "examine", index, right).items():
                        group.checks[name].add(index, finding)
                step("checking", 0.3 * (index + 1) / len(group.photos))
        if referee.crashes:
            self._found.notes.append(
                f"The reference decoder crashed on {referee.crashes} {group.cell.format} files at "
                f"reduce {group.cell.reduce}: their pixels are not compared."
            )
        group.compared, group.common = compared(group.checks)
        self._checks[group.cell.format, group.cell.reduce] = copy.deepcopy(group.checks)

    def _time(self, team: Team, group: Group, step: Notify) -> None:
        """Time rounds until every backend was measured long enough and every file often enough."""
        chance = random.Random(self._plan.seed)
        sizes = {index: group.photos[index].size for index in group.common}
        dealt = blocks(group.cell, sizes, chance)
        busy = max(group.cell.threads, group.cell.workers)
        for names in _portions(group.compared, max(1, usable_cores() // busy)):
            step("warming up", 0.3)
            first = dealt[0][: _WARM_UP * busy]
            group.chosen = team.ask_all(names, "warm_up", first).get(AUTOMATIC, group.chosen)
        spent = 0.0
        needed = _VISITS * len(dealt)
        while group.compared and (len(group.rounds) < needed or spent < self._plan.seconds):
            block = dealt[len(group.rounds) % len(dealt)]
            times: dict[str, Timed] = {}
            for name in chance.sample(group.compared, len(group.compared)):
                times |= team.ask_all([name], "time", block)
            left = {name: times[name] for name in group.compared}  # without those that failed
            if not left:
                return
            group.rounds.append(Round(block, left))
            spent += min(timed.wall for timed in left.values())
            long_enough = spent / self._plan.seconds if self._plan.seconds else 1
            share = min(len(group.rounds) / needed, long_enough, 1)
            step("timing", 0.3 + 0.7 * share)


def _portions(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield the names in portions: so many processes at once leave each other alone."""
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _said(cell: Cell) -> str:
    """Name a cell in words."""
    how = {
        "decode": "",
        "file": ", reading included",
        "threads": f", {count(cell.threads, 'thread')}",
        "loader": f", {count(cell.workers, 'worker')}",
    }[cell.protocol]
    return f"{cell.format} {size(cell.reduce)}{how}"
