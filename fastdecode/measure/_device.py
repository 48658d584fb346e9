"""`calibrate` for a device: every way of decoding onto it at the same work, in rounds."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from fastdecode import _selection, registry
from fastdecode._system import cpu_model, device_libraries, usable_cores
from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import _backends
from fastdecode.gpu._devices import device_of, identify
from fastdecode.measure._calibration_workers import Members
from fastdecode.measure._device_worker import Lap
from fastdecode.measure._samples import Sample, built_in, grouped
from fastdecode.measure._timing import Budget, spread
from fastdecode.ranking import CPU, NOTHING, DeviceCell, DeviceRanking, Speed

if TYPE_CHECKING:
    import torch

    from fastdecode.measure._device_worker import Source, Warm
    from fastdecode.types import Format, SizeClass

__all__ = [
    "PATIENCE_S",
    "Crew",
    "Heat",
    "Rate",
    "batch_of",
    "candidates",
    "measure_device",
    "speeds_of",
    "switched_off",
    "unread",
]

_WORKER = "fastdecode.measure._device_worker:Worker"
PATIENCE_S = 2.0
_TURN_S = 0.15

_MOST_PIXELS = 96_000_000  # of a batch: 0.3 GB of pixels, and a second of one core
_FIRST_ROUNDS = 3  # of which the middle one counts, if there is no time for more
_MOST_ROUNDS = 9
_OTHER_IMAGE_DB = 20.0
"""Nearer come even strongly different decoders; swapped channels or another image do not."""

_BUILT_IN: tuple[tuple[Format, SizeClass], ...] = (
    ("jpeg", "medium"),  # of data sets most are of this size: first, if the time is short
    ("jpeg", "small"),
    ("jpeg", "large"),
    ("jpeg", "huge"),
)


def candidates(device: torch.device) -> list[str]:
    """Name what may decode for a device: all batch backends but those switched off, and the CPU."""
    off = _selection.disabled()
    return [*(name for name in _backends.names(device.type) if name not in off), CPU]


def switched_off(device: torch.device, names: Sequence[str] = ()) -> dict[str, str]:
    """Name the batch backends that are switched off, and how, but for those asked for by name."""
    off = _selection.disabled()
    return {
        name: "FASTDECODE_DISABLE switches it off"
        for name in _backends.names(device.type)
        if name in off and name not in names
    }


def unread(formats: Iterable[str], declared: Mapping[str, Iterable[str]]) -> str:
    """Say that no batch backend reads some formats, and what each that works has declared."""
    theirs = [f"{name} reads {_listed(read)}" for name, read in declared.items()]
    return f"no batch backend reads {_listed(formats)}; {', '.join(theirs) or 'none works here'}"


def _listed(formats: Iterable[str]) -> str:
    return ", ".join(sorted(format.upper() for format in set(formats)))


class Crew(Members):
    """One process for each way of decoding; one that fails leaves, and the others go on."""

    def __init__(self, device: torch.device, names: Sequence[str], size: int = 0) -> None:
        self.lost = switched_off(device, names)
        # What the errors of `_backends.load` begin with: whoever reads `lost` knows it.
        self._known = f"the backend {{!r}} does not decode on {str(device)!r}: "
        targets = _targets()
        super().__init__(
            _WORKER,
            {name: (str(device), name, targets, size) for name in names},
            lambda name, error: self._note(name, registry.reason(error)),
        )

    def take(self, sources: Sequence[Source]) -> None:
        """Hand to all what is to be decoded."""
        for name in self.names:
            self.ask(name, "take", sources)

    def lose(self, name: str, why: str) -> None:
        """Let one go, for a reason that it does not know of."""
        self.end(name)
        self._note(name, why)

    def _note(self, name: str, why: str) -> None:
        self.lost[name] = _in_one_line(why.removeprefix(self._known.format(name)))


def _in_one_line(text: str) -> str:
    return ". ".join(line.strip().rstrip(".") for line in text.splitlines() if line.strip())


def _targets() -> dict[str, tuple[str, str]]:
    """Return what was registered in words, which other processes can register too."""
    found = {}
    for name, target in registry.targets().items():
        batch = registry.entry(name).batch
        if isinstance(batch, str):
            found[name] = (target, batch)
    return found


class Rate(NamedTuple):
    """What one image took in one round, in seconds: the median over the laps of the turn."""

    wall: float
    cpu: float
    stream: float | None


class Heat:
    """One kind of work, and what was measured at it; each round has the next of the blocks."""

    def __init__(
        self, crew: Crew, blocks: Sequence[Sequence[int]], chance: random.Random | None = None
    ) -> None:
        self.blocks = blocks
        self.rounds: list[dict[str, Rate]] = []
        self.warm: dict[str, Warm] = {}
        self.busy: dict[str, float] = {}
        self._crew = crew
        self._chance = chance or random.Random(0)

    @property
    def cost(self) -> float:
        """Guess the seconds of a round."""
        return sum(one.seconds + max(one.seconds, _TURN_S) for one in self.warm.values())

    def warm_up(self, patience_s: float = PATIENCE_S) -> None:
        """Let everyone decode the first batch until that is steady."""
        for name in self._crew.names:
            warm = self._crew.ask(name, "warm_up", self.blocks[0], patience_s)
            if warm is not None:
                self.warm[name] = warm

    def play(self, turn_s: float = _TURN_S) -> None:
        """Let everyone decode the next batch, one right after the other, in random order."""
        block = self.blocks[len(self.rounds) % len(self.blocks)]
        names = [name for name in self._crew.names if name in self.warm]
        found: dict[str, Rate] = {}
        for name in self._chance.sample(names, len(names)):
            laps: list[Lap] | None = self._crew.ask(name, "turn", block, turn_s)
            if laps:
                found[name] = _rate(laps, len(block))
        if found:
            self.rounds.append(found)

    def look(self) -> None:
        """Find out for how long the device is at work on a batch; after all that is timed."""
        for name in self._crew.names:
            busy = self._crew.ask(name, "busy", self.blocks[0]) if name in self.warm else None
            if busy is not None:
                self.busy[name] = busy / len(self.blocks[0])

    def speeds(self) -> dict[str, Speed]:
        """Work out the figures, the fastest first, of those that took part in every round."""
        return speeds_of(self.rounds, self.warm, self.busy)


def _rate(laps: Sequence[Lap], images: int) -> Rate:
    streams = [lap.stream for lap in laps if lap.stream is not None]
    return Rate(
        median(lap.wall for lap in laps) / images,
        median(lap.cpu for lap in laps) / images,
        median(streams) / images if streams else None,
    )


def speeds_of(
    rounds: Sequence[Mapping[str, Rate]], warm: Mapping[str, Warm], busy: Mapping[str, float]
) -> dict[str, Speed]:
    """Work out the figures of those that took part in every round, the fastest first.

    Ratios are paired within rounds, where a machine whose speed drifts was about as fast for all.
    """
    if not rounds:
        return {}
    found = {}
    for name, one in warm.items():
        if all(name in times for times in rounds):
            pairs = [(times[name], times.get(CPU)) for times in rounds]
            found[name] = _speed(pairs, one, busy.get(name))
    return dict(sorted(found.items(), key=lambda item: -item[1].images_per_s.median))


def _speed(pairs: Sequence[tuple[Rate, Rate | None]], warm: Warm, busy: float | None) -> Speed:
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
    """Measure every batch backend that works for a device beside the CPU path."""
    place = device_of(device)
    budget = Budget(seconds)
    found = built_in(_BUILT_IN) if samples is None else grouped(samples)
    names = candidates(place)
    if names == [CPU]:
        raise BackendUnavailable(_nobody(place, switched_off(place)))
    with Crew(place, names) as crew:
        _check(crew, place)
        sources, kinds = _sources(crew, _declared(crew, found))
        crew.take(sources)
        heats = _heats(crew, kinds, batches)
        _play(crew, list(heats.values()), budget, notify)
        _check(crew, place)
        speeds = {cell: heat.speeds() for cell, heat in heats.items() if heat.rounds}
        lost = dict(crew.lost)
    return DeviceRanking(
        identify(place),
        speeds,
        lost,
        cpu_model(),
        usable_cores(),
        device_libraries(),
        dt.datetime.now(tz=dt.timezone.utc).isoformat(timespec="seconds"),
    )


def batch_of(batch: int, pixels: float) -> int:
    """Return how many images of so many pixels make a batch."""
    return max(1, min(batch, int(_MOST_PIXELS / pixels)))


def _check(crew: Crew, device: torch.device) -> None:
    """Go on only where there is something to compare."""
    if CPU not in crew.names:
        raise RuntimeError(f"the CPU path does not reach {device}: {crew.lost[CPU]}")
    if len(crew.names) > 1:
        return
    raise BackendUnavailable(_nobody(device, crew.lost))


def _nobody(device: torch.device, lost: Mapping[str, str]) -> str:
    said = (
        f"no backend decodes on {str(device)!r}, so that there is nothing to compare with the CPU"
    )
    return "\n".join([said, *(f"{name}: {why}" for name, why in lost.items())])


def _declared(crew: Crew, samples: Sequence[Sample]) -> list[Sample]:
    """Leave out what would only show how the CPU differs from itself."""
    asked = {name: crew.ask(name, "about") for name in crew.names if name != CPU}
    read = {name: about[2] for name, about in asked.items() if about is not None}
    kept = [one for one in samples if any(one.format in formats for formats in read.values())]
    if read and not kept:
        why = unread({one.format for one in samples}, read)
        raise ValueError(f"nothing was compared: the CPU decodes all of these files, as {why}")
    return kept


def _sources(crew: Crew, samples: Sequence[Sample]) -> tuple[list[Source], dict[Any, list[int]]]:
    """Put all files into one list, and say which of them make which kind of work.

    What the CPU path does not read takes part in nothing: it is what all others fall back on.
    """
    sources: list[Source] = [partial(bytes, item) for sample in samples for item in sample.items]
    crew.take(sources)
    refused = crew.ask(CPU, "readable") or {}
    kinds: dict[Any, list[int]] = {}
    at = 0
    for sample in samples:
        places = range(at, at + len(sample.items))
        at += len(sample.items)
        good = [place for place in places if place not in refused]
        if good:
            kinds[sample.format, sample.size, sample.pixels / len(sample.items)] = good
    return sources, kinds


def _heats(
    crew: Crew, kinds: dict[Any, list[int]], batches: Sequence[int]
) -> dict[DeviceCell, Heat]:
    heats = {}
    for (format, size, pixels), places in kinds.items():
        for count in sorted({batch_of(batch, pixels) for batch in batches}):
            block = tuple((places * -(-count // len(places)))[:count])
            heats[DeviceCell(format, size, count)] = Heat(crew, [block])
    return heats


def _play(
    crew: Crew, heats: Sequence[Heat], budget: Budget, notify: Callable[[float], object]
) -> None:
    """Play rounds of all kinds of work in turn, until the time is up."""
    for number, heat in enumerate(heats):
        if number and budget.left() <= 0:
            break
        heat.warm_up(max(0.0, min(PATIENCE_S, budget.left())))
        _leave_out_wrong(crew, heat)
        for _ in range(_FIRST_ROUNDS):
            heat.play()
        notify(budget.share())
    for _ in range(_MOST_ROUNDS - _FIRST_ROUNDS):
        for heat in heats:
            if budget.left() < heat.cost:
                continue
            heat.play()
            notify(budget.share())
    for heat in heats:
        heat.look()


def _leave_out_wrong(crew: Crew, heat: Heat) -> None:
    """Let those go whose pixels are not even near: speed is no merit of theirs."""
    for name, warm in heat.warm.items():
        if name in crew.names and warm.psnr is not None and warm.psnr < _OTHER_IMAGE_DB:
            crew.lose(name, f"its pixels are not those of decode: {warm.psnr:.0f} dB PSNR")
