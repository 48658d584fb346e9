"""Every way of decoding onto a device at the same work, in rounds, so that drift hits all alike."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastdecode import batch_backends, registry, selection
from fastdecode.calibration.device_clock import Lap
from fastdecode.calibration.members import Members
from fastdecode.device.ranking import CPU, Speed

if TYPE_CHECKING:
    import torch

    from fastdecode.calibration.device_worker import Source, Warm

__all__ = [
    "PATIENCE_S",
    "Crew",
    "Heat",
    "Rate",
    "candidates",
    "speeds_of",
    "switched_off",
    "unread",
]

_WORKER = "fastdecode.calibration.device_worker:Worker"
PATIENCE_S = 2.0
_TURN_S = 0.15


def candidates(device: torch.device) -> list[str]:
    """Name what may decode for a device: all batch backends but those switched off, and the CPU."""
    off = selection.disabled()
    return [*(name for name in batch_backends.names(device.type) if name not in off), CPU]


def switched_off(device: torch.device, names: Sequence[str] = ()) -> dict[str, str]:
    """Name the batch backends for a device that are switched off, and say how.

    Parameters
    ----------
    device : torch.device
    names : sequence of str
        Without these, which were asked for all the same.
    """
    off = selection.disabled()
    return {
        name: "FASTDECODE_DISABLE switches it off"
        for name in batch_backends.names(device.type)
        if name in off and name not in names
    }


def unread(formats: Iterable[str], declared: Mapping[str, Iterable[str]]) -> str:
    """Say that there is no batch backend for some files.

    Parameters
    ----------
    formats : iterable of str
        Theirs.
    declared : Mapping of str to iterable of str
        What each batch backend that works reads.
    """
    theirs = [f"{name} reads {_listed(read)}" for name, read in declared.items()]
    return f"no batch backend reads {_listed(formats)}; {', '.join(theirs) or 'none works here'}"


def _listed(formats: Iterable[str]) -> str:
    return ", ".join(sorted(format.upper() for format in set(formats)))


class Crew(Members):
    """One process for each way of decoding; one that fails leaves, and the others go on.

    Parameters
    ----------
    device : torch.device
        From `device_of`.
    names : sequence of str
        From `candidates`.
    size : int
        As for the `Worker`.

    Attributes
    ----------
    lost : dict of str to str
        Who left, or was switched off from the beginning, and why.
    """

    def __init__(self, device: torch.device, names: Sequence[str], size: int = 0) -> None:
        self.lost = switched_off(device, names)
        # What the errors of `batch_backends.load` begin with: whoever reads `lost` knows it.
        self._known = f"the backend {{!r}} does not decode on {str(device)!r}: "
        targets = _targets()
        super().__init__(
            _WORKER,
            {name: (str(device), name, targets, size) for name in names},
            lambda name, error: self._note(name, registry.reason(error)),
        )

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method of one; None if it is lost over that, or was before."""
        if name not in self.names or not self.send(name, method, *arguments):
            return None
        return self.receive(name)[1]

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
    """What one picture took in one round, in seconds: the median over the laps of the turn."""

    wall: float
    cpu: float
    stream: float | None


class Heat:
    """One kind of work, and what was measured at it.

    Parameters
    ----------
    crew : Crew
    blocks : sequence of sequence of int
        Batches: indexes into what the crew has taken. Round after round has the next one.
    chance : random.Random
        Of the order of turns.
    """

    def __init__(
        self, crew: Crew, blocks: Sequence[Sequence[int]], chance: random.Random | None = None
    ) -> None:
        self.blocks = blocks
        self.rounds: list[dict[str, Rate]] = []
        self.warm: dict[str, Warm] = {}
        self.busy: dict[str, float] = {}
        self._crew = crew
        self._chance = chance or random.Random(0)  # noqa: S311 - of the order of turns

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


def _rate(laps: Sequence[Lap], pictures: int) -> Rate:
    streams = [lap.stream for lap in laps if lap.stream is not None]
    return Rate(
        median(lap.wall for lap in laps) / pictures,
        median(lap.cpu for lap in laps) / pictures,
        median(streams) / pictures if streams else None,
    )


def speeds_of(
    rounds: Sequence[Mapping[str, Rate]], warm: Mapping[str, Warm], busy: Mapping[str, float]
) -> dict[str, Speed]:
    """Work out the figures of several rounds.

    Parameters
    ----------
    rounds : sequence of Mapping of str to Rate
    warm : Mapping of str to Warm
        Of all whose figures are wanted.
    busy : Mapping of str to float
        Seconds for which the device was at work on one picture, where that is known.

    Returns
    -------
    dict of str to Speed
        Of those that took part in every round, the fastest first. Ratios are paired within rounds,
        where a machine whose speed drifts was about as fast for all.
    """
    if not rounds:
        return {}
    found = {}
    for name, one in warm.items():
        if all(name in times for times in rounds):
            pairs = [(times[name], times.get(CPU)) for times in rounds]
            found[name] = _speed(pairs, one, busy.get(name))
    return dict(sorted(found.items(), key=lambda item: -item[1].images_per_s))


def _speed(pairs: Sequence[tuple[Rate, Rate | None]], warm: Warm, busy: float | None) -> Speed:
    low, middle, high = _quartiles([1 / rate.wall for rate, _ in pairs])
    ratios = [cpu.wall / rate.wall for rate, cpu in pairs if cpu]
    few, ratio, many = _quartiles(ratios) if len(ratios) == len(pairs) else (0.0, 0.0, 0.0)
    streams = [rate.stream for rate, _ in pairs if rate.stream is not None]
    return Speed(
        images_per_s=middle,
        low=low,
        high=high,
        ratio=ratio,
        ratio_low=few,
        ratio_high=many,
        cpu_s_per_1000=1000 * median(rate.cpu for rate, _ in pairs),
        gpu_ms_per_1000=None if busy is None else 1e6 * busy,
        stream_ms_per_1000=1e6 * median(streams) if streams else None,
        on_cpu=warm.on_cpu,
        psnr=warm.psnr,
    )


def _quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    low, middle, high = (float(value) for value in np.quantile(values, (0.25, 0.5, 0.75)))
    return low, middle, high
