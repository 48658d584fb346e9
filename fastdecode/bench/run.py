"""Measuring: every backend on the same files, in rounds, so that drift hits all of them alike."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fastdecode import registry
from fastdecode.bench.check import Check
from fastdecode.bench.plan import Cell, able, blocks, cells
from fastdecode.bench.result import AUTOMATIC
from fastdecode.bench.summary import measurements
from fastdecode.bench.team import Referee, Team
from fastdecode.bench.work import Setup
from fastdecode.cores import usable_cores

if TYPE_CHECKING:
    from fastdecode.bench.files import Photo
    from fastdecode.bench.plan import Plan
    from fastdecode.bench.protocols import Timed
    from fastdecode.bench.result import Measurement
    from fastdecode.types import Format, Reduce

__all__ = ["Found", "Group", "Notify", "Round", "compared", "measure"]

_VISITS = 3  # to each file at least: the median of three passes over one interruption
_WARM_UP = 32  # images for each thread or worker
_MIN_SHARE = 0.5  # of the files, read by a backend: one that reads fewer is not compared

Notify = Callable[[str, float], object]
"""Told what is being done, in words, and what share of the whole run is behind."""


@dataclass(frozen=True)
class Round:
    """The same files, decoded by each backend, one backend right after the other.

    Attributes
    ----------
    block : tuple of int
        Indexes into `Group.photos`.
    times : dict of str to Timed
        By backend.
    """

    block: tuple[int, ...]
    times: dict[str, Timed]


@dataclass
class Group:
    """The backends that are compared in one cell, and what was measured.

    Attributes
    ----------
    cell : Cell
    photos : sequence of Photo
        All files of the format.
    checks : dict of str to Check
        By backend; `AUTOMATIC` is one of them.
    chosen : str
        What `decode` chooses for most of the files; empty if it reads none.
    compared : tuple of str
        Backends that are timed.
    common : tuple of int
        Files that all of these read, by index: only they are timed.
    rounds : list of Round
        Complete rounds only.
    """

    cell: Cell
    photos: Sequence[Photo]
    checks: dict[str, Check]
    chosen: str = ""
    compared: tuple[str, ...] = ()
    common: tuple[int, ...] = ()
    rounds: list[Round] = field(default_factory=list)

    def lose(self, name: str, why: str) -> None:
        """Leave a backend out, and what was measured of it: its process has failed."""
        self.checks[name].refuse_all(range(len(self.photos)), why)
        self.compared = tuple(other for other in self.compared if other != name)
        for one in self.rounds:
            one.times.pop(name, None)


@dataclass
class Found:
    """What was measured so far.

    Attributes
    ----------
    groups : list of Group
    notes : list of str
        What a reader of the figures should know.
    """

    groups: list[Group] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

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

    Parameters
    ----------
    photos : sequence of Photo
    plan : Plan
    found : Found
        Filled as results come, so that what was measured so far is there if this is interrupted.
    notify : callable, optional
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
    """Decide which backends are compared, and on which files.

    Parameters
    ----------
    checks : Mapping of str to Check

    Returns
    -------
    backends : tuple of str
        Those that read at least half of the files that anything reads. One that reads hardly any
        would otherwise leave hardly any to compare the others on.
    files : tuple of int
        Those that all of these backends read.
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
                    for name, finding in team.ask(names, "examine", index, right).items():
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
            group.chosen = team.ask(names, "warm_up", first).get(AUTOMATIC, group.chosen)
        spent = 0.0
        needed = _VISITS * len(dealt)
        while group.compared and (len(group.rounds) < needed or spent < self._plan.seconds):
            block = dealt[len(group.rounds) % len(dealt)]
            times: dict[str, Timed] = {}
            for name in chance.sample(group.compared, len(group.compared)):
                times |= team.ask([name], "time", block)
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
    size = "full size" if cell.reduce == 1 else f"1/{cell.reduce} size"
    how = {
        "decode": "",
        "file": ", reading included",
        "threads": f", {cell.threads} thread{_s(cell.threads)}",
        "loader": f", {cell.workers} worker{_s(cell.workers)}",
    }[cell.protocol]
    return f"{cell.format} {size}{how}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"
