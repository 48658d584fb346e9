"""The benchmark: all backends on the same files, in rounds, so that drift hits them alike."""

from __future__ import annotations

import copy
import math
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
from fastdecode.measure._text import pipeline, setting, size
from fastdecode.measure._timing import Budget
from fastdecode.measure._workers import WORKER, Members
from fastdecode.measure.result import AUTOMATIC, PILLOW, Measurement
from fastdecode.terminal import count

if TYPE_CHECKING:
    import torch

    from fastdecode.measure._collection import Photo
    from fastdecode.measure._device import Heat
    from fastdecode.measure._workers import Timed
    from fastdecode.measure.result import Device, Pipeline, Protocol
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

_CROP = 224  # pixels: side of what a pipeline makes
_BATCH = 64  # images of 500 x 375 pixels; fewer of larger ones
_FEWEST = 4
_USUAL_AREA = 500 * 375
_BATCHES = 3  # of an epoch, for each thread or worker: how it begins and ends counts for little

# Of a run that is to be over in time: the part of a case that goes into checking its files, and
# what is done however late it is.
_CHECKING = 0.4
_LEAST_FILES = 8
_LEAST_ROUNDS = 3
_WEIGHTS: dict[Protocol, float] = {"train": 1.5}  # five processes that import PyTorch

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
    pipelines: tuple[Pipeline, ...] = ()  # those whose libraries are here
    # seconds that all of it may take, about, which leaves out all formats but the commonest; None
    # for as long as it takes
    within: float | None = None


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
    failed: dict[str, str] = field(default_factory=dict)  # pipelines that are left out, and why

    def lose(self, name: str, error: Exception) -> None:
        """Leave a backend out, and what was measured of it: its process has failed."""
        why = reason(error)
        if self.usual.protocol == "train":  # which refuses no single file
            self.failed[name] = why
            del self.checks[name]
        else:
            refused = self.checks[name].refused
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
        for kind in formats if plan.within is None else formats[:1]:
            for reduce in plan.reduces:
                add("decode", kind, reduce)
    if not formats:
        return found
    usual, largest = formats[0], min(plan.reduces)
    if "train" in plan.protocols and plan.pipelines:
        own = [photo for photo in photos if photo.header.format == usual]
        found.append(Case(_training(usual, own), own, {name: Check() for name in plan.pipelines}))
    for threads in plan.threads if "threads" in plan.protocols else ():
        add("threads", usual, largest, threads=threads)
    for workers in plan.workers if "loader" in plan.protocols else ():
        add("loader", usual, largest, workers=workers)
    if "file" in plan.protocols:
        add("file", usual, largest)
    return found


def _training(kind: Format, photos: Sequence[Photo]) -> Measurement:
    """Say how batches are made: with all cores, smaller ones of large images."""
    cores = usable_cores()
    area = sum(photo.pixels for photo in photos) / len(photos)
    fitting = _BATCH * math.sqrt(_USUAL_AREA / max(area, _USUAL_AREA))
    batch = max(_FEWEST, 1 << int(math.log2(fitting)))
    return Measurement("train", kind, 1, "", cores, cores, output="tensor", size=_CROP, batch=batch)


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
    if usual.protocol == "train":  # one epoch, of the same files in every round
        needed = usual.batch * usual.workers * _BATCHES
        return [tuple((order * -(-needed // len(order)))[:needed])]
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
class Run:
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
    found: Run,
    notify: Notify = lambda _what, _share: None,
) -> None:
    """Measure everything that the plan asks for.

    What is `found` is filled as results come, so that it is there if this is interrupted.
    """
    run = _Run(photos, plan, found)
    if any(case.usual.protocol in ("file", "loader", "train") for case in run.cases):
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

    def __init__(self, photos: Sequence[Photo], plan: Plan, found: Run) -> None:
        self._plan = plan
        self._found = found
        self._budget = None if plan.within is None else Budget(plan.within)
        reads = {name: tuple(registry.load(name).supports) for name in plan.backends}
        self._checks: dict[object, dict[str, Check]] = {}  # by `Measurement.key`
        self.cases = cases(plan, photos, reads)
        checked = replace(plan, protocols=("decode",), reduces=(min(plan.reduces),))
        if set(plan.protocols) == {"train"}:  # whose files two decoders are enough to check
            checked = replace(checked, backends=tuple({PILLOW} & {*plan.backends}))
        # To check without timing: in processes of their own, without a pool or workers.
        self._apart = {case.usual.format: case for case in cases(checked, photos, reads)}

    def measure(self, case: Case, step: Notify) -> None:
        """Check the files, unless that is done, and time them."""
        self._found.cases.append(case)
        usual = case.usual
        if usual.protocol != "decode":
            apart = self._apart[usual.format]
            if apart.usual.key not in self._checks:
                with self._members(apart) as members:
                    self._check(members, apart, step)
            self._adopt(case, apart.usual)
            if not case.common:
                return
        step("starting", 0.3 * (usual.protocol != "decode"))
        with self._members(case) as members:
            if usual.protocol == "decode":
                self._check(members, case, step)
            if case.common:
                self._time(members, case, step)
        self._found.notes += [
            f"Not measured: {pipeline(name)}: {why}" for name, why in case.failed.items()
        ]

    def _over(self, case: Case, part: float = 1.0) -> bool:
        """Whether so large a part of the time for a case is over, in a run that has to end."""
        if self._budget is None:
            return False
        weights = [_WEIGHTS.get(one.usual.protocol, 1.0) for one in self.cases]
        place = self.cases.index(case)
        until = sum(weights[:place]) + part * weights[place]
        return self._budget.share() >= until / sum(weights)

    def _members(self, case: Case) -> Members:
        """Start a process for each backend of a case; one that fails leaves, others go on."""
        own = {name: _arguments(case, name) for name in case.compared or case.checks}
        return Members(WORKER, own, case.lose)

    def _adopt(self, case: Case, checked: Measurement) -> None:
        """Take over what was found out by an earlier check of the same files."""
        checks = copy.deepcopy(self._checks[checked.key])
        if case.usual.protocol == "train":
            # What these two decoders read every pipeline reads.
            read = {name: checks[name].read for name in (PILLOW, AUTOMATIC) if name in checks}
            _, case.common = comparable(read)
            refused = checks[AUTOMATIC].refused
            case.checks = {name: Check(refused=refused) for name in case.checks}
            case.compared = tuple(case.checks)
            return
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
            every = range(len(case.photos))
            order = random.Random(self._plan.seed).sample(every, len(every))
            for done, index in enumerate(order):
                if done >= _LEAST_FILES and self._over(case, _CHECKING):
                    self._found.notes.append(
                        f"{count(len(order) - done, 'file')} of {len(order):,} were left out, so "
                        "that the run ends within a minute; --verbose takes all of them."
                    )
                    break
                right = reference.ask(AUTOMATIC, "digest", index)
                if not reference.names:
                    reference.start(AUTOMATIC)
                for names in _portions(members.names, usable_cores()):
                    for name, finding in members.ask_all(names, "examine", index, right).items():
                        case.checks[name].add(index, finding)
                step("checking", 0.3 * (done + 1) / len(order))
        if crashes:
            self._found.notes.append(
                f"The reference decoder crashed on {len(crashes)} {case.usual.format} files at "
                f"reduce {case.usual.reduce}: their pixels are not compared."
            )
        read = {name: check.read for name, check in case.checks.items()}
        case.compared, case.common = comparable(read)
        self._checks[case.usual.key] = copy.deepcopy(case.checks)

    def _time(self, members: Members, case: Case, step: Notify) -> None:
        """Time rounds until every backend was measured long enough and every file often enough."""
        chance = random.Random(self._plan.seed)
        sizes = {index: case.photos[index].size for index in case.common}
        dealt = blocks(case.usual, sizes, chance)
        busy = max(case.usual.threads, case.usual.workers)
        for names in _portions(case.compared, max(1, usable_cores() // busy)):
            step("warming up", 0.3)
            first = dealt[0] if case.usual.protocol == "train" else dealt[0][: _WARM_UP * busy]
            case.chosen = members.ask_all(names, "warm_up", first).get(AUTOMATIC, case.chosen)
        spent = 0.0
        needed = _VISITS * len(dealt)
        while case.compared and (len(case.rounds) < needed or spent < self._plan.seconds):
            if len(case.rounds) >= _LEAST_ROUNDS and self._over(case):
                return
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
    if one.protocol == "train":
        return f"training, {setting(one)}"
    how = {
        "file": ", reading included",
        "threads": f", {count(one.threads, 'thread')}",
        "loader": f", {count(one.workers, 'worker')}",
    }.get(one.protocol, "")
    return f"{one.format} {size(one.reduce)}{how}"
