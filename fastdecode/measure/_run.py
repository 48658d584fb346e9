"""The benchmark: times all backends on the same files, in rounds, so drift affects all alike."""

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
from fastdecode.measure._samples import comparable_files
from fastdecode.measure._stats import measurements
from fastdecode.measure._text import pipeline, setting, size
from fastdecode.measure._timing import Budget
from fastdecode.measure._workers import WORKER, Processes
from fastdecode.measure.result import AUTOMATIC, PILLOW, Measurement
from fastdecode.terminal import count

if TYPE_CHECKING:
    import torch

    from fastdecode.measure._collection import Photo
    from fastdecode.measure._device import DeviceContest
    from fastdecode.measure._workers import BlockTimes
    from fastdecode.measure.result import Device, Pipeline, Protocol
    from fastdecode.types import Format, Output, Reduce


_BLOCK_FILES = 64
_BLOCK_BYTES = 1 << 20  # a block takes about 10 ms to 100 ms for each backend
_FEW = 16  # files: a smaller block ends before the processor's caches are warm
_IMAGES_EACH: dict[Protocol, int] = {"threads": 32, "loader": 64}
"""Images per thread or worker: enough to hide their start and end (two batches)."""
_MAX_EACH = 1024
_MAX_WORKERS = 8
"""Most workers to compare all backends with: the workers of all backends live at the same time."""

_VISITS = 3  # least times that each file is decoded: the median of three ignores an interruption
_WARM_UP = 32  # images per thread or worker

_CROP = 224  # pixels: side of the images that a pipeline makes
_BATCH = 64  # images of 500 x 375 pixels; fewer if they are larger
_MIN_BATCH = 4
_USUAL_AREA = 500 * 375
_BATCHES = 3  # of an epoch, per thread or worker: its start and end then count little

# For runs with a time limit: the share of a case that may go into checking its files, and the
# minimum of work that is done even if the time is over.
_CHECKING_SHARE = 0.4
_MIN_FILES = 8
_MIN_ROUNDS = 3
_WEIGHTS: dict[Protocol, float] = {"train": 1.5}  # five processes that import PyTorch

Notify = Callable[[str, float], object]
"""Called with a description of the current step, and the share of the run that is done."""


@dataclass(frozen=True)
class Plan:
    """What to measure."""

    backends: tuple[str, ...] = ()  # usable ones; the automatic choice is always measured, too
    reduces: tuple[Reduce, ...] = (1,)
    seconds: float = 0.5  # measure each configuration for at least this time
    protocols: tuple[Protocol, ...] = ("decode",)  # protocols of the CPU
    # counts to measure with; an empty tuple leaves the protocol out
    threads: tuple[int, ...] = ()
    workers: tuple[int, ...] = ()
    output: Output = "array"
    size: int = 0  # side in pixels to resize to, which gives tensors; 0 does not resize
    seed: int = 0  # of the random order
    device: torch.device | None = None  # also measure decoding onto this device
    batches: tuple[int, ...] = ()  # images per batch there
    batch_backends: tuple[str, ...] | None = None  # only these; None means all of the device
    pipelines: tuple[Pipeline, ...] = ()  # those whose libraries are installed
    # about how many seconds the whole run may take; then only the most frequent format is
    # measured; None for no limit
    within: float | None = None


@dataclass(frozen=True)
class Round:
    """The times of all backends for the same files, measured one right after the other."""

    block: tuple[int, ...]  # indexes into `Case.photos`
    times: dict[str, BlockTimes]  # by backend


@dataclass
class Case:
    """One setting in which backends are compared, and their measurements."""

    usual: Measurement  # the settings that all of them share
    photos: Sequence[Photo]  # all files of the format
    checks: dict[str, Check]  # by backend; `AUTOMATIC` is the last of them
    chosen: str = ""  # the backend that `decode` chooses for most files; empty if it reads none
    compared: tuple[str, ...] = ()  # backends that are timed
    common: tuple[int, ...] = ()  # indices of the files that all of these read; only they are timed
    rounds: list[Round] = field(default_factory=list)  # complete rounds only
    failed: dict[str, str] = field(default_factory=dict)  # pipelines that failed, and why

    def remove(self, name: str, error: Exception) -> None:
        """Remove a backend and its times, because its process has failed."""
        why = reason(error)
        if self.usual.protocol == "train":  # a pipeline refuses no single file
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
    """List what to measure; `reads` gives the formats that each backend of the plan reads.

    The protocol ``decode`` covers every format and reduction; the others cover only the most
    frequent format at the largest size.
    """
    formats = [kind for kind, _ in Counter(photo.header.format for photo in photos).most_common()]
    found: list[Case] = []

    def add(
        protocol: Protocol, kind: Format, reduce: Reduce, threads: int = 1, workers: int = 0
    ) -> None:
        usual = Measurement(
            protocol, kind, reduce, "", threads, workers, output=plan.output, size=plan.size
        )
        # One count of workers compares all backends; the others show how `decode` scales.
        alone = protocol == "loader" and usual.workers != all_at
        able = (name for name in plan.backends if kind in reads[name] and not alone)
        own = [photo for photo in photos if photo.header.format == kind]
        found.append(Case(usual, own, {name: Check() for name in (*able, AUTOMATIC)}))

    all_at = max((n for n in plan.workers if n <= _MAX_WORKERS), default=0)
    if "decode" in plan.protocols:
        for kind in formats if plan.within is None else formats[:1]:
            for reduce in plan.reduces:
                add("decode", kind, reduce)
    if not formats:
        return found
    usual, largest = formats[0], min(plan.reduces)
    if "train" in plan.protocols and plan.pipelines:
        own = [photo for photo in photos if photo.header.format == usual]
        found.append(
            Case(_training_settings(usual, own), own, {name: Check() for name in plan.pipelines})
        )
    for threads in plan.threads if "threads" in plan.protocols else ():
        add("threads", usual, largest, threads=threads)
    for workers in plan.workers if "loader" in plan.protocols else ():
        add("loader", usual, largest, workers=workers)
    if "file" in plan.protocols:
        add("file", usual, largest)
    return found


def _training_settings(kind: Format, photos: Sequence[Photo]) -> Measurement:
    """Return the settings of training: all cores, and smaller batches of large images."""
    cores = usable_cores()
    area = sum(photo.pixels for photo in photos) / len(photos)
    fitting = _BATCH * math.sqrt(_USUAL_AREA / max(area, _USUAL_AREA))
    batch = max(_MIN_BATCH, 1 << int(math.log2(fitting)))
    return Measurement("train", kind, 1, "", cores, cores, output="tensor", size=_CROP, batch=batch)


def counts_up_to_cores() -> tuple[int, ...]:
    """Return the powers of two up to the number of usable cores, and that number."""
    cores = usable_cores()
    return tuple(sorted({*(1 << n for n in range(cores.bit_length())), cores}))


def blocks(
    usual: Measurement, sizes: Mapping[int, int], chance: random.Random
) -> list[tuple[int, ...]]:
    """Divide the files, in random order, into blocks, one for each round.

    If there are few files for several threads or workers, a block repeats all of its files equally
    often.
    """
    order = chance.sample(list(sizes), len(sizes))
    if usual.protocol == "train":  # one epoch with the same files in every round
        needed = usual.batch * usual.workers * _BATCHES
        return [tuple((order * -(-needed // len(order)))[:needed])]
    if usual.protocol in _IMAGES_EACH:
        mean = max(1, sum(sizes.values()) / len(sizes))
        each = min(_MAX_EACH, max(_IMAGES_EACH[usual.protocol], int(_BLOCK_BYTES / mean)))
        return _equal_blocks(order, max(usual.threads, usual.workers) * each)
    if len(order) <= _FEW:
        return _equal_blocks(order, _FEW)
    dealt: list[list[int]] = []
    room = 0
    for index in order:
        if not dealt or sizes[index] > room or len(dealt[-1]) == _BLOCK_FILES:
            dealt.append([])
            room = _BLOCK_BYTES
        dealt[-1].append(index)
        room -= sizes[index]
    return [tuple(block) for block in dealt]


def _equal_blocks(order: list[int], needed: int) -> list[tuple[int, ...]]:
    """Make blocks of at least `needed` files, repeating files if there are few."""
    count = max(1, len(order) // needed)
    repeats = -(-needed // len(order))
    return [tuple(order[number::count] * repeats) for number in range(count)]


@dataclass
class Run:
    """The measurements so far."""

    cases: list[Case] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # remarks for readers of the figures
    device: Device | None = None
    contests: list[DeviceContest] = field(default_factory=list)

    def measurements(self) -> tuple[Measurement, ...]:
        """Return the figures of the CPU."""
        return tuple(one for case in self.cases for one in measurements(case))

    def on_device(self) -> tuple[Measurement, ...]:
        """Return the figures of the device, the fastest of each batch size first."""
        return tuple(
            replace(contest.usual, backend=name, **vars(speed))
            for contest in self.contests
            for name, speed in contest.speeds().items()
        )


def measure(
    photos: Sequence[Photo],
    plan: Plan,
    found: Run,
    notify: Notify = lambda _what, _share: None,
) -> None:
    """Measure everything that the plan asks for.

    `found` is filled as results come, so they are not lost on an interruption.
    """
    run = _Run(photos, plan, found)
    if any(case.usual.protocol in ("file", "loader", "train") for case in run.cases):
        found.notes.append(
            "Reading is measured on files that were read before: the system returns them from its "
            "cache, as far as they fit."
        )
    for done, case in enumerate(run.cases):

        def step(what: str, share: float, done: int = done, case: Case = case) -> None:
            notify(f"{what} {_describe(case.usual)}", (done + share) / len(run.cases))

        run.measure(case, step)
    if plan.device is not None:
        from fastdecode.measure._device import measure_photos

        measure_photos(photos, plan, found, notify)


class _Run:
    """Measures case after case; files are checked once per format and reduction."""

    def __init__(self, photos: Sequence[Photo], plan: Plan, found: Run) -> None:
        self._plan = plan
        self._found = found
        self._budget = None if plan.within is None else Budget(plan.within)
        reads = {name: tuple(registry.load(name).supports) for name in plan.backends}
        self._checks: dict[object, dict[str, Check]] = {}  # by `Measurement.key`
        self.cases = cases(plan, photos, reads)
        checked = replace(plan, protocols=("decode",), reduces=(min(plan.reduces),))
        if set(plan.protocols) == {"train"}:  # two decoders are enough to check its files
            checked = replace(checked, backends=tuple({PILLOW} & {*plan.backends}))
        # Cases that only check files, in separate processes without a pool or workers.
        self._check_cases = {case.usual.format: case for case in cases(checked, photos, reads)}

    def measure(self, case: Case, step: Notify) -> None:
        """Check the files, unless they have been checked, and time them."""
        self._found.cases.append(case)
        usual = case.usual
        if usual.protocol != "decode":
            apart = self._check_cases[usual.format]
            if apart.usual.key not in self._checks:
                with self._processes(apart) as members:
                    self._check(members, apart, step)
            self._copy_check(case, apart.usual)
            if not case.common:
                return
        step("starting", 0.3 * (usual.protocol != "decode"))
        with self._processes(case) as members:
            if usual.protocol == "decode":
                self._check(members, case, step)
            if case.common:
                self._time(members, case, step)
        self._found.notes += [
            f"Not measured: {pipeline(name)}: {why}" for name, why in case.failed.items()
        ]

    def _is_time_up(self, case: Case, part: float = 1.0) -> bool:
        """Return whether this part of a case's time is over, in a run with a time limit."""
        if self._budget is None:
            return False
        weights = [_WEIGHTS.get(one.usual.protocol, 1.0) for one in self.cases]
        place = self.cases.index(case)
        until = sum(weights[:place]) + part * weights[place]
        return self._budget.share() >= until / sum(weights)

    def _processes(self, case: Case) -> Processes:
        """Start a process per backend of a case; if one fails, the others go on."""
        own = {name: _arguments(case, name) for name in case.compared or case.checks}
        return Processes(WORKER, own, case.remove)

    def _copy_check(self, case: Case, checked: Measurement) -> None:
        """Copy the results of an earlier check of the same files."""
        checks = copy.deepcopy(self._checks[checked.key])
        if case.usual.protocol == "train":
            # Every pipeline reads the files that these two decoders read.
            read = {name: checks[name].read for name in (PILLOW, AUTOMATIC) if name in checks}
            _, case.common = comparable_files(read)
            refused = checks[AUTOMATIC].refused
            case.checks = {name: Check(refused=refused) for name in case.checks}
            case.compared = tuple(case.checks)
            return
        able, case.common = comparable_files({name: check.read for name, check in checks.items()})
        case.checks = {name: checks[name] for name in case.checks}
        case.compared = tuple(name for name in case.checks if name in able)

    def _check(self, members: Processes, case: Case, step: Notify) -> None:
        """Decode every file once without timing, as check and warm-up."""
        crashes: list[Exception] = []

        def crashed(_name: str, error: Exception) -> None:
            if not isinstance(error, ChildDied):
                raise error
            crashes.append(error)

        step("checking", 0)
        with Processes(WORKER, {AUTOMATIC: _arguments(case, AUTOMATIC)}, crashed) as reference:
            every = range(len(case.photos))
            order = random.Random(self._plan.seed).sample(every, len(every))
            for done, index in enumerate(order):
                if done >= _MIN_FILES and self._is_time_up(case, _CHECKING_SHARE):
                    self._found.notes.append(
                        f"{count(len(order) - done, 'file')} of {len(order):,} were left out, so "
                        "that the run ends within a minute; --verbose measures all of them."
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
        case.compared, case.common = comparable_files(read)
        self._checks[case.usual.key] = copy.deepcopy(case.checks)

    def _time(self, members: Processes, case: Case, step: Notify) -> None:
        """Time rounds until every backend has enough time and every file enough visits."""
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
            if len(case.rounds) >= _MIN_ROUNDS and self._is_time_up(case):
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
    """Yield the names in portions of processes that do not slow each other down."""
    for start in range(0, len(names), size):
        yield names[start : start + size]


def _describe(one: Measurement) -> str:
    """Describe a setting."""
    if one.protocol == "train":
        return f"training, {setting(one)}"
    how = {
        "file": ", reading included",
        "threads": f", {count(one.threads, 'thread')}",
        "loader": f", {count(one.workers, 'worker')}",
    }.get(one.protocol, "")
    return f"{one.format} {size(one.reduce)}{how}"
