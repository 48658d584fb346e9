"""Measuring on a device: every batch backend there beside the CPU path, on the user's images."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fastdecode import registry
from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import _backends
from fastdecode.measure.result import Device, OnDevice
from fastdecode.ranking import CPU

if TYPE_CHECKING:
    import argparse

    import torch

    from fastdecode.measure._collection import Photo
    from fastdecode.measure._device import Crew, Heat
    from fastdecode.measure._run import Notify
    from fastdecode.ranking import Speed

__all__ = ["FoundOnDevice", "PlanOnDevice", "check", "measure", "measurement_of", "place_of"]

_LEAST_ROUNDS = 3
_SEED = 0


@dataclass(frozen=True)
class PlanOnDevice:
    """What to measure."""

    device: torch.device
    batches: tuple[int, ...]  # images of a batch
    seconds: float = 0.5  # time each way of decoding is measured for at least, for each batch
    size: int = 0  # side to resize to on the device; 0 for none
    backends: tuple[str, ...] | None = None  # only these batch backends; None for all


@dataclass
class FoundOnDevice:
    """What was measured so far."""

    device: Device | None = None
    # each with what is the same for all its measurements
    heats: list[tuple[OnDevice, Heat]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def measurements(self) -> tuple[OnDevice, ...]:
        """Work out the figures, the fastest of each batch first."""
        return tuple(
            measurement_of(usual, name, speed)
            for usual, heat in self.heats
            for name, speed in heat.speeds().items()
        )


def check(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with status 2 if what is asked for cannot be done; else look the device up."""
    if options.save:
        parser.error("--save keeps what decode() goes by: not with --device")
    if options.output and not options.protocol:
        parser.error("--output is of no use with --device, which gives tensors")
    if not options.batch:
        parser.error("--batch 0 leaves nothing to measure")
    try:
        options.device = place_of(options.device)
    except (RuntimeError, ValueError) as error:
        parser.error(str(error))
    able = _backends.names(options.device.type)
    for name in options.backend or ():
        if name not in able:
            parser.error(
                f"no batch backend for {options.device} is called {name!r}; there are: "
                f"{', '.join(able) or 'none'}"
            )


def place_of(device: str) -> torch.device:
    """Look a device up by PyTorch's name for it, or by the number of a CUDA device."""
    try:
        from fastdecode.gpu._devices import device_of
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise BackendUnavailable(
            "--device needs PyTorch, which is not installed: pip install 'fastdecode[torch]'"
        ) from error
    return device_of(f"cuda:{device}" if device.isascii() and device.isdigit() else device)


def measure(
    photos: Sequence[Photo],
    plan: PlanOnDevice,
    found: FoundOnDevice,
    notify: Notify = lambda _what, _share: None,
) -> None:
    """Measure the commonest format that a batch backend declares, in batches of each size.

    What is `found` is filled as results come, so that it is there if this is interrupted.
    """
    from fastdecode.measure._device import Crew, candidates

    names = candidates(plan.device) if plan.backends is None else [*plan.backends, CPU]
    notify("starting a process for each backend", 0.0)
    with Crew(plan.device, names, plan.size) as crew:
        asked = {name: crew.ask(name, "about") for name in crew.names}
        about = {name: one for name, one in asked.items() if one is not None}
        found.device = _device(plan.device, crew, about)
        chosen = _commonest(photos, about, found)
        crew.take([photo.read for photo in chosen])
        notify("checking", 0.0)
        refused = crew.ask(CPU, "readable") or {}
        good = [index for index in range(len(chosen)) if index not in refused]
        if refused:
            found.notes.append(
                f"Not brought onto the device, because nothing decodes them: {len(refused)} of "
                f"{len(chosen)} files."
            )
        if good:
            _heats(crew, chosen, good, plan, found)
        for number, (usual, heat) in enumerate(found.heats):
            _time(heat, usual, plan, notify, (number, len(found.heats)))
        for _, heat in found.heats:
            heat.look()
        found.device = _device(plan.device, crew, about)


def _device(device: torch.device, crew: Crew, about: dict[str, Any]) -> Device:
    """Describe the device, and who could not be measured there."""
    import torch

    from fastdecode.gpu._devices import identify

    here = identify(device)
    versions = {name: " ".join(filter(None, one[:2])) for name, one in about.items() if name != CPU}
    elsewhere = [
        name
        for name in registry.names()
        if registry.entry(name).batch and name not in _backends.names(device.type)
    ]
    missing = {**crew.lost, **{name: _where_else(name) for name in elsewhere}}
    return Device(
        str(device), here.name, here.driver, here.runtime, torch.__version__, versions, missing
    )


def _where_else(name: str) -> str:
    return f"it decodes on {' and '.join(registry.entry(name).devices.split())} only"


def _commonest(photos: Sequence[Photo], about: dict[str, Any], found: FoundOnDevice) -> list[Photo]:
    """Choose the files of the commonest format that some batch backend declares, or JPEG."""
    from fastdecode.measure._device import unread

    declared = {name: one[2] for name, one in about.items() if name != CPU}
    read: set[Any] = set().union(*declared.values()) or {"jpeg"}
    counts = Counter(photo.header.format for photo in photos if photo.header.format in read)
    if not counts:
        why = unread({photo.header.format for photo in photos}, declared)
        found.notes.append(f"Not brought onto the device: {why}.")
        return []
    kind = counts.most_common(1)[0][0]
    return [photo for photo in photos if photo.header.format == kind]


def _heats(
    crew: Crew,
    photos: Sequence[Photo],
    good: Sequence[int],
    plan: PlanOnDevice,
    found: FoundOnDevice,
) -> None:
    """Deal the files into batches, in random order, the same ones again if there are few."""
    from fastdecode.measure._device import Heat, batch_of

    chance = random.Random(_SEED)
    order = chance.sample(list(good), len(good))
    headers = [photos[index].header for index in order]
    largest = max(header.width * header.height for header in headers)
    for count in sorted({batch_of(batch, largest) for batch in plan.batches}):
        several = max(1, len(order) // count)
        repeated = order * -(-count // len(order))
        blocks = [tuple(repeated[at * count : (at + 1) * count]) for at in range(several)]
        usual = OnDevice(
            CPU,
            headers[0].format,
            count,
            plan.size,
            files=len({index for block in blocks for index in block}),
        )
        found.heats.append((usual, Heat(crew, blocks, chance)))


def _time(
    heat: Heat,
    usual: OnDevice,
    plan: PlanOnDevice,
    notify: Notify,
    place: tuple[int, int],
) -> None:
    """Play rounds until each was measured long enough, and each file once."""
    number, many = place
    what = f"{usual.format} onto {plan.device}, batches of {usual.batch}"
    notify(f"warming up {what}", number / many)
    heat.warm_up()
    needed = max(_LEAST_ROUNDS, len(heat.blocks))
    turn = plan.seconds / needed
    for done in range(needed):
        heat.play(turn)
        notify(f"timing {what}", (number + (done + 1) / needed) / many)


def measurement_of(usual: OnDevice, name: str, speed: Speed) -> OnDevice:
    """Put figures together with what is the same for all measurements of a batch."""
    return replace(usual, backend=name, **vars(speed))
