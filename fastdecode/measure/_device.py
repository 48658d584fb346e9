"""Measure for a device: time all ways of decoding onto it on the same work, in rounds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from fastdecode import _selection, registry
from fastdecode._system import cpu_model, device_libraries, usable_cores
from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import _backends
from fastdecode.gpu._devices import check_device, identify
from fastdecode.measure._device_worker import WORKER, LapTimes
from fastdecode.measure._samples import Sample, built_in, group_samples, with_indices
from fastdecode.measure._timing import Budget, now, spread
from fastdecode.measure._workers import Processes
from fastdecode.measure.result import Device, Measurement
from fastdecode.ranking import CPU, NOTHING, DeviceCell, DeviceRanking, Speed

if TYPE_CHECKING:
    from fastdecode.measure._collection import Photo
    from fastdecode.measure._device_worker import Warm
    from fastdecode.measure._run import Notify, Plan, Run
    from fastdecode.types import Format, SizeClass

_PATIENCE_S = 2.0
_TURN_S = 0.15

_MAX_PIXELS = 96_000_000  # of a batch: 0.3 GB of pixels, and a second of one core
_MIN_ROUNDS = 3  # enough for a median
_MAX_ROUNDS = 9
_OTHER_IMAGE_DB = 20.0
"""Even very different decoders have a higher PSNR; swapped channels or another image do not."""

_BUILT_IN: tuple[tuple[Format, SizeClass], ...] = (
    ("jpeg", "medium"),  # the size of most datasets; first, in case the time is short
    ("jpeg", "small"),
    ("jpeg", "large"),
    ("jpeg", "huge"),
)


def _candidate_names(device: torch.device) -> list[str]:
    """Return the candidates for a device: all batch backends that are not disabled, and the CPU."""
    off = _selection.disabled()
    return [*(name for name in _backends.names(device.type) if name not in off), CPU]


def unread_message(formats: Iterable[str], declared: Mapping[str, Iterable[str]]) -> str:
    """Return a message that no batch backend reads some formats, with those that each reads."""
    theirs = [f"{name} reads {_join_formats(read)}" for name, read in declared.items()]
    return (
        f"no batch backend reads {_join_formats(formats)}; {', '.join(theirs) or 'none works here'}"
    )


def _join_formats(formats: Iterable[str]) -> str:
    return ", ".join(sorted(format.upper() for format in set(formats)))


class DeviceProcesses(Processes):
    """One process per way of decoding. If one fails, the others go on."""

    def __init__(self, device: torch.device, names: Sequence[str], size: int = 0) -> None:
        off = _selection.disabled()
        self.lost = {
            name: "FASTDECODE_DISABLE switches it off"
            for name in _backends.names(device.type)
            if name in off and name not in names
        }
        # The beginning of errors of `_backends.load`, which readers of `lost` do not need.
        self._known = f"the backend {{!r}} does not decode on {str(device)!r}: "
        targets = _targets()
        super().__init__(
            WORKER,
            {name: (str(device), name, targets, size) for name in names},
            lambda name, error: self._note_loss(name, registry.reason(error)),
        )

    @cached_property
    def about(self) -> dict[str, tuple[str, str, tuple[Format, ...]]]:
        """The version, codec and declared formats of each batch backend."""
        asked = self.ask_all(self.names, "about")
        return {name: one for name, one in asked.items() if name != CPU}

    @property
    def reads(self) -> dict[str, tuple[Format, ...]]:
        """The declared formats of each batch backend."""
        return {name: one[2] for name, one in self.about.items()}

    def take(self, photos: Sequence[Photo]) -> list[int]:
        """Send the images to all processes; return the indices of those that the CPU path reads.

        The others are not measured, because all backends fall back on the CPU path.
        """
        for name in self.names:  # one after another: each transfer is a copy
            self.ask(name, "take", photos)
        refused = self.ask(CPU, "readable") or {}
        return [index for index in range(len(photos)) if index not in refused]

    def remove(self, name: str, why: str) -> None:
        """End a process, and note why."""
        self.end(name)
        self._note_loss(name, why)

    def _note_loss(self, name: str, why: str) -> None:
        self.lost[name] = _as_one_line(why.removeprefix(self._known.format(name)))


def _as_one_line(text: str) -> str:
    return ". ".join(line.strip().rstrip(".") for line in text.splitlines() if line.strip())


def _targets() -> dict[str, tuple[str, str]]:
    """Return the backends registered as ``"module:Class"``, which other processes can register."""
    found = {}
    for name, target in registry.targets().items():
        batch = registry.entry(name).batch
        if isinstance(batch, str):
            found[name] = (target, batch)
    return found


class DeviceContest:
    """One kind of work, and its measurements. Each round uses the next block."""

    def __init__(
        self,
        members: DeviceProcesses,
        usual: Measurement,
        blocks: Sequence[Sequence[int]],
        chance: random.Random | None = None,
    ) -> None:
        self.usual = usual
        self.blocks = blocks
        self.rounds: list[dict[str, LapTimes]] = []
        self.warm: dict[str, Warm] = {}
        self.busy: dict[str, float] = {}
        self._processes = members
        self._chance = chance or random.Random(0)

    @property
    def cost(self) -> float:
        """Estimate the seconds of a round."""
        return sum(one.seconds + max(one.seconds, _TURN_S) for one in self.warm.values())

    def warm_up(self, patience_s: float = _PATIENCE_S) -> None:
        """Decode the first batch with each backend until its time is steady."""
        for name in self._processes.names:
            warm = self._processes.ask(name, "warm_up", self.blocks[0], patience_s)
            if warm is not None:
                self.warm[name] = warm

    def play(self, turn_s: float = _TURN_S) -> None:
        """Decode the next batch with each backend, one right after the other, in random order."""
        block = self.blocks[len(self.rounds) % len(self.blocks)]
        names = [name for name in self._processes.names if name in self.warm]
        laps = self._processes.ask_in_turn(names, self._chance, "turn", block, turn_s)
        found = {name: _median_per_image(own, len(block)) for name, own in laps.items() if own}
        if found:
            self.rounds.append(found)

    def measure_busy(self) -> None:
        """Measure how long the device works on a batch; call this after all timing."""
        for name in self._processes.names:
            busy = self._processes.ask(name, "busy", self.blocks[0]) if name in self.warm else None
            if busy is not None:
                self.busy[name] = busy / len(self.blocks[0])

    def speeds(self) -> dict[str, Speed]:
        """Return the figures of the backends with a time in every round, fastest first."""
        return compute_speeds(self.rounds, self.warm, self.busy)


def _median_per_image(laps: Sequence[LapTimes], images: int) -> LapTimes:
    """Return the medians over the laps of a turn."""
    streams = [lap.stream for lap in laps if lap.stream is not None]
    return LapTimes(
        median(lap.wall for lap in laps) / images,
        median(lap.cpu for lap in laps) / images,
        median(streams) / images if streams else None,
    )


def compute_speeds(
    rounds: Sequence[Mapping[str, LapTimes]], warm: Mapping[str, Warm], busy: Mapping[str, float]
) -> dict[str, Speed]:
    """Return the figures of the backends with a time in every round, fastest first.

    Ratios are paired within rounds, in which a machine with drifting speed is about equally fast.
    """
    if not rounds:
        return {}
    found = {}
    for name, one in warm.items():
        if all(name in times for times in rounds):
            pairs = [(times[name], times.get(CPU)) for times in rounds]
            found[name] = _speed(pairs, one, busy.get(name))
    return dict(sorted(found.items(), key=lambda item: -item[1].images_per_s.median))


def _speed(
    pairs: Sequence[tuple[LapTimes, LapTimes | None]], warm: Warm, busy: float | None
) -> Speed:
    ratios = [cpu.wall / rate.wall for rate, cpu in pairs if cpu]
    streams = [rate.stream for rate, _ in pairs if rate.stream is not None]
    return Speed(
        images_per_s=spread([1 / rate.wall for rate, _ in pairs]),
        ratio=spread(ratios) if len(ratios) == len(pairs) else NOTHING,
        cpu_s_per_1000=1000 * median(rate.cpu for rate, _ in pairs),
        gpu_ms_per_1000=None if busy is None else 1e6 * busy,
        stream_ms_per_1000=1e6 * median(streams) if streams else None,
        on_cpu=warm.on_cpu,
        psnr=warm.psnr,
    )


def measure_device(
    samples: Iterable[Any] | None,
    device: str | int | torch.device,
    batches: Sequence[int],
    seconds: float,
    notify: Callable[[float], object],
) -> DeviceRanking:
    """Measure all batch backends that work for a device, and the CPU path."""
    place = check_device(device)
    budget = Budget(seconds)
    found = built_in(_BUILT_IN) if samples is None else group_samples(samples)
    with DeviceProcesses(place, _candidate_names(place)) as members:
        _check(members, place)
        contests = device_contests(members, _leave_out_undeclared(members, found), batches)
        _play(members, list(contests.values()), budget, notify)
        _check(members, place)
        speeds = {cell: contest.speeds() for cell, contest in contests.items() if contest.rounds}
        lost = dict(members.lost)
    return DeviceRanking(
        identify(place),
        speeds,
        lost,
        cpu_model(),
        usable_cores(),
        device_libraries(),
        now(),
    )


def limit_batch(batch: int, pixels: float) -> int:
    """Return the size of a batch of images with so many pixels."""
    return max(1, min(batch, int(_MAX_PIXELS / pixels)))


def _check(members: DeviceProcesses, device: torch.device) -> None:
    """Raise an error if there is nothing to compare."""
    if CPU not in members.names:
        raise RuntimeError(f"the CPU path does not reach {device}: {members.lost[CPU]}")
    if len(members.names) == 1:
        said = f"no backend decodes on {str(device)!r}, so there is nothing to compare with "
        lost = (f"{name}: {why}" for name, why in members.lost.items())
        raise BackendUnavailable("\n".join([f"{said}the CPU", *lost]))


def _leave_out_undeclared(members: DeviceProcesses, samples: Sequence[Sample]) -> list[Sample]:
    """Leave out formats that only the CPU path decodes."""
    read = members.reads
    kept = [one for one in samples if any(one.format in formats for formats in read.values())]
    if read and not kept:
        why = unread_message({one.format for one in samples}, read)
        raise ValueError(f"nothing was compared: the CPU decodes all of these files, as {why}")
    return kept


def device_contests(
    members: DeviceProcesses, samples: Sequence[Sample], batches: Sequence[int]
) -> dict[DeviceCell, DeviceContest]:
    """Send the samples to the processes, and set up each kind of work with these batch sizes."""
    good = set(members.take([photo for sample in samples for photo in sample.photos]))
    contests = {}
    for sample, every in with_indices(samples):
        places = [place for place in every if place in good]
        mean = sample.pixels / len(sample.photos)
        for count in sorted({limit_batch(batch, mean) for batch in batches}) if places else ():
            block = tuple((places * -(-count // len(places)))[:count])
            usual = Measurement("device", sample.format, 1, batch=count)
            contests[DeviceCell(sample.format, sample.size, count)] = DeviceContest(
                members, usual, [block]
            )
    return contests


def _play(
    members: DeviceProcesses,
    contests: Sequence[DeviceContest],
    budget: Budget,
    notify: Callable[[float], object],
) -> None:
    """Measure all kinds of work in turn, in rounds, until the time is up."""
    for number, contest in enumerate(contests):
        if number and budget.left() <= 0:
            break
        contest.warm_up(max(0.0, min(_PATIENCE_S, budget.left())))
        _end_wrong_backends(members, contest)
        for _ in range(_MIN_ROUNDS):
            contest.play()
        notify(budget.share())
    for _ in range(_MAX_ROUNDS - _MIN_ROUNDS):
        for contest in contests:
            if budget.left() < contest.cost:
                continue
            contest.play()
            notify(budget.share())
    for contest in contests:
        contest.measure_busy()


def _end_wrong_backends(members: DeviceProcesses, contest: DeviceContest) -> None:
    """End the backends whose pixels are not close to the CPU path's: their speed is meaningless."""
    for name, warm in contest.warm.items():
        if name in members.names and warm.psnr is not None and warm.psnr < _OTHER_IMAGE_DB:
            members.remove(name, f"its pixels are not those of decode: {warm.psnr:.0f} dB PSNR")


def measure_photos(photos: Sequence[Photo], plan: Plan, found: Run, notify: Notify) -> None:
    """Measure the most frequent format that a batch backend declares, in batches of each size.

    `found` is filled as results come, so they are not lost on an interruption.
    """
    device: Any = plan.device
    names = plan.batch_backends
    notify("starting a process for each backend", 0.0)
    with DeviceProcesses(
        device, _candidate_names(device) if names is None else [*names, CPU], plan.size
    ) as members:
        found.device = _describe(device, members)
        chosen = _choose_files(photos, members, found)
        notify("checking", 0.0)
        good = members.take(chosen)
        if len(good) < len(chosen):
            found.notes.append(
                "Not measured on the device, because nothing decodes them: "
                f"{len(chosen) - len(good)} of {len(chosen)} files."
            )
        if good:
            found.contests.extend(_deal_files(members, chosen, good, plan))
        for number, contest in enumerate(found.contests):

            def step(
                what: str, share: float, number: int = number, contest: DeviceContest = contest
            ) -> None:
                onto = f"{contest.usual.format} onto {device}, batches of {contest.usual.batch}"
                notify(f"{what} {onto}", (number + share) / len(found.contests))

            _time(contest, plan.seconds, step)
        for contest in found.contests:
            contest.measure_busy()
        found.device = _describe(device, members)


def _time(contest: DeviceContest, seconds: float, step: Notify) -> None:
    """Measure rounds until each backend has enough time, and each file was decoded once."""
    step("warming up", 0.0)
    contest.warm_up()
    needed = max(_MIN_ROUNDS, len(contest.blocks))
    for done in range(needed):
        contest.play(seconds / needed)
        step("timing", (done + 1) / needed)


def _describe(device: torch.device, members: DeviceProcesses) -> Device:
    """Describe the device, and why some backends were not measured there."""
    here = identify(device)
    versions = {name: " ".join(filter(None, one[:2])) for name, one in members.about.items()}
    missing = dict(members.lost)
    for name in registry.names():
        entry = registry.entry(name)
        if entry.batch and name not in _backends.names(device.type):
            missing[name] = f"it decodes on {' and '.join(entry.devices.split())} only"
    return Device(
        str(device), here.name, here.driver, here.runtime, torch.__version__, versions, missing
    )


def _choose_files(photos: Sequence[Photo], members: DeviceProcesses, found: Run) -> list[Photo]:
    """Choose the files of the most frequent format that a batch backend declares, or JPEG."""
    read: set[Format] = set().union(*members.reads.values()) or {"jpeg"}
    counts = Counter(photo.header.format for photo in photos if photo.header.format in read)
    if not counts:
        why = unread_message({photo.header.format for photo in photos}, members.reads)
        found.notes.append(f"Not measured on the device: {why}.")
        return []
    kind = counts.most_common(1)[0][0]
    return [photo for photo in photos if photo.header.format == kind]


def _deal_files(
    members: DeviceProcesses, photos: Sequence[Photo], good: Sequence[int], plan: Plan
) -> list[DeviceContest]:
    """Divide the files into batches in random order, repeating files if there are few."""
    chance = random.Random(plan.seed)
    order = chance.sample(list(good), len(good))
    largest = max(photos[index].pixels for index in order)
    contests = []
    for count in sorted({limit_batch(batch, largest) for batch in plan.batches}):
        several = max(1, len(order) // count)
        repeated = order * -(-count // len(order))
        blocks = [tuple(repeated[at * count : (at + 1) * count]) for at in range(several)]
        usual = Measurement("device", photos[0].header.format, 1, size=plan.size, batch=count)
        files = len({index for block in blocks for index in block})
        contests.append(DeviceContest(members, replace(usual, files=files), blocks, chance))
    return contests
