"""The benchmark: all backends on the same files, in rounds, so that drift hits them alike."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from fastdecode import registry
from fastdecode._process import ChildDied
from fastdecode._system import usable_cores
from fastdecode.measure._check import Check, reason
from fastdecode.measure._samples import comparable
from fastdecode.measure._stats import measurements
from fastdecode.measure._text import count, size
from fastdecode.measure._workers import WORKER, Members
from fastdecode.measure.result import AUTOMATIC, Measurement

if TYPE_CHECKING:
    import torch

    from fastdecode.measure._collection import Photo
    from fastdecode.measure._device import Heat
    from fastdecode.measure._workers import Timed
    from fastdecode.measure.result import Device, Protocol
    from fastdecode.types import Format, Output, Reduce


_BLOCK_FILES = 64
_BLOCK_BYTES = 1 << 20  # a block takes about 10 ms to 100 ms for each backend
_FEW = 16  # files: a block of fewer is over before the processor's caches are warm
_EACH: dict[Protocol, int] = {"threads": 32, "loader": 64}
"""Images for each thread or worker: enough to hide how they start and end (two batches)."""
_MOST_EACH = 1024
_MOST_WORKERS = 8
"""Workers with which all backends are compared: each has its own, all alive at the same time."""

_VISITS = 3  # to each file at least: the median of three passes over one interruption
_WARM_UP = 32  # images for each thread or worker

Notify = Callable[[str, float], object]
"""Told what is being done, in words, and what share of the whole run is behind."""


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    backends: tuple[str, ...] = ()  # usable ones; `decode` by itself is always measured too
    reduces: tuple[Reduce, ...] = (1,)
    seconds: float = 0.5  # time each configuration is measured for at least
    protocols: tuple[Protocol, ...] = ("decode",)  # of the CPU
    # threads, workers: counts to measure with; none leaves the protocol out
    threads: tuple[int, ...] = ()
    workers: tuple[int, ...] = ()
    output: Output = "array"
    size: int = 0  # side in pixels to resize to, which gives tensors; 0 leaves images as they are
    seed: int = 0  # of the random order
    device: torch.device | None = None  # to bring images onto, too
    batches: tuple[int, ...] = ()  # images of a batch there
    batch_backends: tuple[str, ...] | None = None  # only these; None for all of the device


@dataclass(frozen=True)
class Round:
    """The same files, decoded by each backend, one backend right after the other."""

    block: tuple[int, ...]  # indexes into `Case.photos`
    times: dict[str, Timed]  # by backend


@dataclass
class Case:
    """One setting in which backends are compared, and what was measured of them."""

    usual: Measurement  # what is the same for all of them
    photos: Sequence[Photo]  # all files of the format
    checks: dict[str, Check]  # by backend; `AUTOMATIC` is the last of them
    chosen: str = ""  # what `decode` chooses for most of the files; empty if it reads none
    compared: tuple[str, ...] = ()  # backends that are timed
    common: tuple[int, ...] = ()  # files that all of these read, by index: only they are timed
    rounds: list[Round] = field(default_factory=list)  # complete rounds only

    def lose(self, name: str, error: Exception) -> None:
        """Leave a backend out, and what was measured of it: its process has failed."""
        refused, why = self.checks[name].refused, reason(error)
        every = range(len(self.photos))
        self.checks[name] = Check(refused={index: refused.get(index, why) for index in every})
        self.compared = tuple(other for other in self.compared if other != name)
        for one in self.rounds:
            one.times.pop(name, None)


def cases(plan: Plan, photos: Sequence[Photo], reads: Mapping[str, Sequence[Format]]) -> list[Case]:
    """List what to measure; `reads` says what each backend of the plan reads.

    The protocol ``decode`` has every format and reduction; the others have the commonest format at
    the largest size alone.
    """
    formats = [kind for kind, _ in Counter(photo.header.format for photo in photos).most_common()]
    found: list[Case] = []

    def add(
        protocol: Protocol, kind: Format, reduce: Reduce, threads: int = 1, workers: int = 0
    ) -> None:
        usual = Measurement(
            protocol, kind, reduce, "", threads, workers, output=plan.output, size=plan.size
        )
        # Of the workers, one count has all backends; the others show how `decode` scales.
        alone = protocol == "loader" and usual.workers != all_at
        able = (name for name in plan.backends if kind in reads[name] and not alone)
        own = [photo for photo in photos if photo.header.format == kind]
        found.append(Case(usual, own, {name: Check() for name in (*able, AUTOMATIC)}))

    all_at = max((n for n in plan.workers if n <= _MOST_WORKERS), default=0)
    if "decode" in plan.protocols:
        for kind in formats:
            for reduce in plan.reduces:
                add("decode", kind, reduce)
    if not formats:
        return found
    usual, largest = formats[0], min(plan.reduces)
    for threads in plan.threads if "threads" in plan.protocols else ():
        add("threads", usual, largest, threads=threads)
    for workers in plan.workers if "loader" in plan.protocols else ():
        add("loader", usual, largest, workers=workers)
    if "file" in plan.protocols:
        add("file", usual, largest)
    return found


def counts_up_to_cores() -> tuple[int, ...]:
    """Return the powers of two up to the cores that are usable here, and these."""
    cores = usable_cores()
    return tuple(sorted({*(1 << n for n in range(cores.bit_length())), cores}))


def blocks(
    usual: Measurement, sizes: Mapping[int, int], chance: random.Random
) -> list[tuple[int, ...]]:
    """Deal the files, in random order, into the shares of one round each.

    The same files may come more than once in a block, all of them equally often, if there are few
    and several threads or workers share them.
    """
    order = chance.sample(list(sizes), len(sizes))
    if usual.protocol in _EACH:
        mean = max(1, sum(sizes.values()) / len(sizes))
        each = min(_MOST_EACH, max(_EACH[usual.protocol], int(_BLOCK_BYTES / mean)))
        return _equal(order, max(usual.threads, usual.workers) * each)
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


@dataclass
class Found:
    """What was measured so far."""

    cases: list[Case] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what a reader of the figures should know
    device: Device | None = None
    heats: list[Heat] = field(default_factory=list)

    def measurements(self) -> tuple[Measurement, ...]:
        """Work out the figures of the CPU."""
        return tuple(one for case in self.cases for one in measurements(case))

    def on_device(self) -> tuple[Measurement, ...]:
        """Work out the figures of the device, the fastest of each batch first."""
        return tuple(
            replace(heat.usual, backend=name, **vars(speed))
            for heat in self.heats
            for name, speed in heat.speeds().items()
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
    if any(case.usual.protocol in ("file", "loader") for case in run.cases):
        found.notes.append(
            "Reading is measured on files that were read before: from the memory that the system "
            "keeps them in, as far as they fit."
        )
    for done, case in enumerate(run.cases):

        def step(what: str, share: float, done: int = done, case: Case = case) -> None:
            notify(f"{what} {_said(case.usual)}", (done + share) / len(run.cases))

        run.measure(case, step)
    if plan.device is not None:
        from fastdecode.measure._device import measure_photos

        measure_photos(photos, plan, found, notify)


class _Run:
    """Measures case after case; files are checked once for each format and reduction."""

    def __init__(self, photos: Sequence[Photo], plan: Plan, found: Found) -> None:
        self._plan = plan
        self._found = found
        reads = {name: tuple(registry.load(name).supports) for name in plan.backends}
        self._checks: dict[tuple[str, int], dict[str, Check]] = {}
        self.cases = cases(plan, photos, reads)
        checked = replace(plan, protocols=("decode",), reduces=(min(plan.reduces),))
        # To check without timing: in processes of their own, without a pool or workers.
        self._apart = {case.usual.format: case for case in cases(checked, photos, reads)}

    def measure(self, case: Case, step: Notify) -> None:
        """Check the files, unless that is done, and time them."""
        self._found.cases.append(case)
        usual = case.usual
        if usual.protocol != "decode":
            if (usual.format, usual.reduce) not in self._checks:
                apart = self._apart[usual.format]
                with self._members(apart) as members:
                    self._check(members, apart, step)
            self._adopt(case)
            if not case.common:
                return
        with self._members(case) as members:
            if usual.protocol == "decode":
                self._check(members, case, step)
            if case.common:
                self._time(members, case, step)

    def _members(self, case: Case) -> Members:
        """Start a process for each backend of a case; one that fails leaves, others go on."""
        own = {name: _arguments(case, name) for name in case.compared or case.checks}
        return Members(WORKER, own, case.lose)

    def _adopt(self, case: Case) -> None:
        """Take over what was found out by an earlier check of the same files."""
        checks = copy.deepcopy(self._checks[case.usual.format, case.usual.reduce])
        able, case.common = comparable({name: check.read for name, check in checks.items()})
        case.checks = {name: checks[name] for name in case.checks}
        case.compared = tuple(name for name in case.checks if name in able)

    def _check(self, members: Members, case: Case, step: Notify) -> None:
        """Decode everything once, outside the clock: it is the check, and the warm-up."""
        crashes: list[Exception] = []

        def crashed(_name: str, error: Exception) -> None:
            if not isinstance(error, ChildDied):
                raise error
            crashes.append(error)

        step("checking", 0)
        with Members(WORKER, {AUTOMATIC: _arguments(case, AUTOMATIC)}, crashed) as reference:
            for index in range(len(case.photos)):
                right = reference.ask(AUTOMATIC, "digest", index)
                if not reference.names:
                    reference.start(AUTOMATIC)
                for names in _portions(members.names, usable_cores()):
                    for name, finding in members.ask_all(names, "examine", index, right).items():
                        case.checks[name].add(index, finding)
                step("checking", 0.3 * (index + 1) / len(case.photos))
        if crashes:
            self._found.notes.append(
                f"The reference decoder crashed on {len(crashes)} {case.usual.format} files at "
                f"reduce {case.usual.reduce}: their pixels are not compared."
            )
        read = {name: check.read for name, check in case.checks.items()}
        case.compared, case.common = comparable(read)
        self._checks[case.usual.format, case.usual.reduce] = copy.deepcopy(case.checks)

    def _time(self, members: Members, case: Case, step: Notify) -> None:
        """Time rounds until every backend was measured long enough and every file often enough."""
        chance = random.Random(self._plan.seed)
        sizes = {index: case.photos[index].size for index in case.common}
        dealt = blocks(case.usual, sizes, chance)
        busy = max(case.usual.threads, case.usual.workers)
        for names in _portions(case.compared, max(1, usable_cores() // busy)):
            step("warming up", 0.3)
            first = dealt[0][: _WARM_UP * busy]
            case.chosen = members.ask_all(names, "warm_up", first).get(AUTOMATIC, case.chosen)
        spent = 0.0
        needed = _VISITS * len(dealt)
        while case.compared and (len(case.rounds) < needed or spent < self._plan.seconds):
            block = dealt[len(case.rounds) % len(dealt)]
            times = members.ask_in_turn(case.compared, chance, "time", block)
            left = {name: times[name] for name in case.compared}  # without those that failed
            if not left:
                return
            case.rounds.append(Round(block, left))
            spent += min(timed.wall for timed in left.values())
            long_enough = spent / self._plan.seconds if self._plan.seconds else 1
            share = min(len(case.rounds) / needed, long_enough, 1)
            step("timing", 0.3 + 0.7 * share)


def _arguments(case: Case, name: str) -> tuple[object, ...]:
    return registry.targets(), case.photos, replace(case.usual, backend=name)


def _portions(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """Yield the names in portions: so many processes at once leave each other alone."""
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _said(one: Measurement) -> str:
    """Name a setting in words."""
    how = {
        "file": ", reading included",
        "threads": f", {count(one.threads, 'thread')}",
        "loader": f", {count(one.workers, 'worker')}",
    }.get(one.protocol, "")
    return f"{one.format} {size(one.reduce)}{how}"
