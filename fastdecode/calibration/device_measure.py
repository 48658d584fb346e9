"""`calibrate` for a device: decoded there, or on the CPU and copied."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from fastdecode.calibration.budget import Budget
from fastdecode.calibration.device_race import (
    PATIENCE_S,
    Crew,
    Heat,
    candidates,
    switched_off,
    unread,
)
from fastdecode.calibration.samples import Sample, built_in, grouped
from fastdecode.cores import cpu_model, usable_cores
from fastdecode.device.identity import identify
from fastdecode.device.ranking import CPU, DeviceCell, DeviceRanking
from fastdecode.device.where import device_of
from fastdecode.errors import BackendUnavailable
from fastdecode.installation import device_libraries

if TYPE_CHECKING:
    import torch

    from fastdecode.calibration.device_worker import Source
    from fastdecode.types import Format, SizeClass

__all__ = ["batch_of", "measure_device"]

_MOST_PIXELS = 96_000_000  # of a batch: 0.3 GB of pixels, and a second of one core
_FIRST_ROUNDS = 3  # of which the middle one counts, if there is no time for more
_MOST_ROUNDS = 9
_OTHER_PICTURE_DB = 20.0
"""Nearer come even strongly different decoders; swapped channels or another picture do not."""

_BUILT_IN: tuple[tuple[Format, SizeClass], ...] = (
    ("jpeg", "medium"),  # of data sets most are of this size: first, if the time is short
    ("jpeg", "small"),
    ("jpeg", "large"),
    ("jpeg", "huge"),
)


def measure_device(
    samples: Iterable[Any] | None,
    device: str | int | torch.device,
    batches: Sequence[int],
    seconds: float,
    notify: Callable[[float], object],
) -> DeviceRanking:
    """Measure every batch backend that works for a device beside the CPU path.

    Parameters
    ----------
    samples : iterable of encoded bytes or paths, or None
    device : str, int or torch.device
    batches : sequence of int
        Pictures of a batch; of large pictures there are fewer, so that they fit into memory.
    seconds : float
    notify : callable

    Returns
    -------
    DeviceRanking

    Raises
    ------
    DeviceUnavailable
        If the device cannot be used.
    RuntimeError
        If the CPU path fails.
    BackendUnavailable
        If there is no batch backend that works there; the message says why of each.
    ValueError
        If no batch backend reads any of the samples.
    """
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
    """Return how many pictures of so many pixels make a batch."""
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
        if name in crew.names and warm.psnr is not None and warm.psnr < _OTHER_PICTURE_DB:
            crew.lose(name, f"its pixels are not those of decode: {warm.psnr:.0f} dB PSNR")
