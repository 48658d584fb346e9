"""Who decodes for a device: a batch backend there, or the CPU, by what was measured and saved."""

from __future__ import annotations

import json
import math
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

from fastdecode import _files, _preference, registry
from fastdecode._process import ForkLock, speaks_for_all
from fastdecode._selection import disabled
from fastdecode._system import (
    cpu_model,
    device_libraries,
    device_ranking_path,
    ranking_is_named,
    usable_cores,
)
from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import _backends
from fastdecode.gpu._devices import Identity, identify
from fastdecode.types import FORMATS, SIZE_CLASSES

if TYPE_CHECKING:
    import torch

    from fastdecode.types import Format, SizeClass

__all__ = [
    "CPU",
    "DECODE",
    "SCHEMA",
    "Decode",
    "DeviceCell",
    "DeviceChoice",
    "DeviceRanking",
    "Speed",
    "choose",
    "look_up",
    "measured",
]

Decode: TypeAlias = Literal["auto", "cpu", "gpu"]
DECODE: tuple[Decode, ...] = ("auto", "cpu", "gpu")

SCHEMA = 1
CPU = "cpu"
"""Stands among the batch backends for the CPU path: all cores decode, and the pixels are copied."""

# Where nothing was measured: first who reaches the GPU's JPEG hardware and refuses image by image,
# then who calls the same library without the hardware, last whose one bad image costs the whole
# batch another try.
_DEFAULT = ("nvimgcodec", "torchcodec", "torchvision", "dali")

_MOST_ON_CPU = 0.5
"""Share of the images: of one that left more to the CPU path, the figures are the CPU's."""

_DAMAGED = "is no measurement of a device that fastdecode wrote"

_known: dict[tuple[int, torch.device], tuple[str, ...]] = {}
_lock = ForkLock()
_generation = 0
"""Grows with every `DeviceRanking.save`: what was read before is out of date."""


class DeviceChoice(NamedTuple):
    """Who decodes: a batch backend, or None for the CPU path alone; and why, in words.

    `cpu` is the backend that the CPU path is to use; None for the fastest.
    """

    batch: str | None
    cpu: str | None
    why: str


def choose(
    device: torch.device, decode: Decode = "auto", backend: str | None = None
) -> DeviceChoice:
    """Choose who decodes for a device, one from `device_of`.

    ``"auto"`` is what `calibrate` measured to be fastest there; where nothing was measured, the
    first batch backend that works, and the CPU if none does.

    `backend` names a batch backend, or one that is to decode on the CPU. By default it is that of
    `use` or ``FASTDECODE_BACKEND``, if there is one; ``"gpu"`` heeds only a batch backend.

    It is an UnknownBackend or BackendUnavailable if the named one cannot be used, or with ``"gpu"``
    if none can, with what to install; a ValueError if what is asked for contradicts itself.
    """
    if decode not in DECODE:
        raise ValueError(f"decode must be one of {', '.join(DECODE)}, not {decode!r}")
    if decode == "gpu" and device.type == "cpu":
        raise ValueError("decode='gpu' needs a GPU as device, not 'cpu'")
    if backend is not None:
        return _named(device, decode, backend)
    preferred = _preference.preferred()
    if isinstance(preferred, str) and (
        decode != "gpu" or preferred in _backends.names(device.type)
    ):
        return _named(device, decode, preferred)
    if decode == "cpu" or device.type == "cpu":
        return DeviceChoice(None, None, "the CPU decodes, as asked")
    return _first(device, decode)


def _named(device: torch.device, decode: Decode, name: str) -> DeviceChoice:
    registry.entry(name)  # UnknownBackend
    able = _backends.names(device.type)
    if decode != "cpu" and name in able:
        _backends.load(name, device)
        return DeviceChoice(name, None, f"{name} decodes, as asked")
    if decode == "gpu":
        raise ValueError(
            f"the backend {name!r} does not decode on {str(device)!r}; these do: {', '.join(able)}"
        )
    _preference.load_named(name)
    return DeviceChoice(None, name, f"{name} decodes on the CPU, as asked")


def _first(device: torch.device, decode: Decode) -> DeviceChoice:
    """Take the first that works: of what was measured, then of the default order."""
    known = measured(device)
    missing: list[str] = []
    left_out = disabled()
    for name in _order(known, device):
        if name in left_out:
            missing.append(f"the backend {name!r} is left out by FASTDECODE_DISABLE")
            continue
        if name == CPU:
            if decode == "auto":
                return DeviceChoice(None, None, "the CPU decodes: it was measured to be fastest")
            continue
        try:
            _backends.load(name, device)
        except BackendUnavailable as error:
            missing.append(str(error))
            continue
        how = "was measured to be fastest" if name in known else "is the first that works"
        return DeviceChoice(name, None, f"{name} decodes: it {how} on {device}")
    if decode == "auto":
        return DeviceChoice(None, None, f"the CPU decodes: no backend decodes on {device}")
    raise BackendUnavailable(
        f"no backend decodes on {str(device)!r}, which decode='gpu' needs; decode='cpu' would do "
        "without:\n" + "\n".join(missing)
    )


def _order(known: Iterable[str], device: torch.device) -> Iterator[str]:
    able = _backends.names(device.type)
    for name in dict.fromkeys((*known, *_DEFAULT, *able)):
        if name == CPU or name in able:
            yield name


def measured(device: torch.device) -> tuple[str, ...]:
    """Name what decodes for a device, the fastest first, by what was measured there.

    `CPU` is among them. It is empty if nothing was measured, or if that is damaged or out of date,
    of which one warning tells. It is read once a process, and again after a new save.
    """
    key = _generation, device
    found = _known.get(key)
    if found is not None:
        return found
    saved, problem = look_up(device)
    order = saved.order() if saved else ()
    with _lock:
        first, _known[key] = key not in _known, order
    if first and problem and speaks_for_all():  # outside the lock: a warning may run anything
        warnings.warn(
            f"what was measured for {device} is ignored: {problem}. To measure anew: "
            f"python -m fastdecode calibrate --device {device}",
            stacklevel=2,
        )
    return order


def look_up(device: torch.device) -> tuple[DeviceRanking | None, str]:
    """Return what was saved for a device, or None and what is wrong with it, if it is."""
    here = identify(device)
    try:
        place = device_ranking_path(here.name)
        found = DeviceRanking.load(place, own=not ranking_is_named())
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, str(error)
    problem = found.stale(here)
    return (None, problem) if problem else (found, "")


class DeviceCell(NamedTuple):
    """A kind of work: a format, the size class of the stored images, and the images of a batch.

    Batches are smaller than was asked for if the images are large.
    """

    format: Format
    size: SizeClass
    batch: int


class Speed(NamedTuple):
    """What one way of decoding does at one kind of work.

    Attributes
    ----------
    images_per_s : float
        By the clock on the wall, until the batch is there; the median over the rounds.
    low, high : float
        Its quartiles.
    ratio : float
        Speed over that of the CPU path with all cores, paired within the rounds; 0 without it.
    ratio_low, ratio_high : float
        Its quartiles.
    cpu_s_per_1000 : float
        Processor seconds for 1000 images, user and system, all cores added up.
    gpu_ms_per_1000 : float or None
        Milliseconds in which kernels or copies ran on the device, for 1000 images; None where
        that could not be found out.
    stream_ms_per_1000 : float or None
        Milliseconds between two events on the stream, before the batch and after it, waiting
        included; None without a stream.
    on_cpu : float
        Share of the images, 0 to 1, that the CPU path decoded after all.
    psnr : float or None
        Of the image that differs most from the CPU path's, in dB; None if all are the same.
    """

    images_per_s: float
    low: float
    high: float
    ratio: float
    ratio_low: float
    ratio_high: float
    cpu_s_per_1000: float
    gpu_ms_per_1000: float | None = None
    stream_ms_per_1000: float | None = None
    on_cpu: float = 0.0
    psnr: float | None = None


@dataclass(frozen=True)
class DeviceRanking:
    """What was measured for a device: plain data.

    Attributes
    ----------
    device : Identity
    speeds : Mapping of DeviceCell to Mapping of str to Speed
        By kind of work, and by batch backend, or ``"cpu"``; the fastest first.
    lost : Mapping of str to str
        Why a backend that should be here is not, by name.
    cpu : str
        Model of the processor.
    cores : int
        Those that could be used.
    libraries : Mapping of str to str
        Versions of what was installed.
    measured : str
        When: ISO 8601, UTC.
    """

    device: Identity
    speeds: Mapping[DeviceCell, Mapping[str, Speed]] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    cpu: str = ""
    cores: int = 0
    libraries: Mapping[str, str] = field(default_factory=dict)
    measured: str = ""

    def order(self) -> tuple[str, ...]:
        """Names, the fastest first: by the geometric mean of `Speed.ratio` over all kinds of work.

        Left out are the kinds at which all others had the CPU path decode more than half: there
        they differ from it by chance alone. Who was not measured at every kind that is left, or had
        the CPU decode more than half at each of them, has no place in the order. It is empty where
        nothing was compared.
        """
        every = [found for found in self.speeds.values() if any(_decoded(found))]
        common = [name for name in (every[0] if every else ()) if all(name in one for one in every)]
        able = {CPU, *(name for one in every for name in _decoded(one))}
        ratios = {name: [one[name].ratio for one in every] for name in common if name in able}
        means = {
            name: math.fsum(map(math.log, found)) / len(found)
            for name, found in ratios.items()
            if all(ratio > 0 for ratio in found)
        }
        return tuple(sorted(means, key=lambda name: -means[name]))

    def stale(self, here: Identity) -> str:
        """Say why it is out of date for a device; empty if it is not."""
        pairs = {
            "device": (self.device.name, here.name),
            "driver": (self.device.driver, here.driver),
            "CUDA": (self.device.runtime, here.runtime),
            "processor": (self.cpu, cpu_model()),
            "cores": (str(self.cores), str(usable_cores())),
        }
        now = device_libraries()
        for name in sorted({*now, *self.libraries}):
            pairs[name] = (self.libraries.get(name, "missing"), now.get(name, "missing"))
        told = [f"{name} {old} then, {new} now" for name, (old, new) in pairs.items() if old != new]
        return f"it was measured with something else ({'; '.join(told)})" if told else ""

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write all of it or nothing; by default where ``decode="auto"`` looks for it."""
        global _generation
        target = device_ranking_path(self.device.name) if path is None else Path(path)
        _files.check_writable(target, parents=True)
        _files.write_text(target, self._to_json())
        _generation += 1
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, own: bool = False) -> DeviceRanking:
        """Read one from a file; it is a ValueError if it is damaged, or another user's.

        `own` says that nobody named the file: it is believed only if it is this user's, or the
        system's.
        """
        return _files.read_text(path, cls._from_json, _DAMAGED, own=own)

    def _to_json(self) -> str:
        cells = [
            {**cell._asdict(), "speeds": {name: one._asdict() for name, one in found.items()}}
            for cell, found in self.speeds.items()
        ]
        content = {
            "schema": SCHEMA,
            "device": self.device._asdict(),
            "cpu": self.cpu,
            "cores": self.cores,
            "libraries": dict(self.libraries),
            "measured": self.measured,
            "lost": dict(self.lost),
            "cells": cells,
        }
        return json.dumps(content, indent=1)

    @classmethod
    def _from_json(cls, text: str) -> DeviceRanking:
        content = json.loads(text)
        if content["schema"] != SCHEMA:
            raise ValueError(f"its schema is {content['schema']}, and this version reads {SCHEMA}")
        device = Identity(**{name: content["device"][name] for name in Identity._fields})
        words = [*device, content["cpu"], content["measured"], *content["libraries"].values()]
        if not all(isinstance(word, str) and (word.isprintable() or not word) for word in words):
            raise ValueError("what should be text is none")
        return cls(
            device,
            {_cell(values): _speeds(values["speeds"]) for values in content["cells"]},
            dict(content["lost"]),
            content["cpu"],
            int(content["cores"]),
            dict(content["libraries"]),
            content["measured"],
        )


def _decoded(found: Mapping[str, Speed]) -> list[str]:
    """Name those that decoded at least half by themselves."""
    return [name for name, one in found.items() if name != CPU and one.on_cpu <= _MOST_ON_CPU]


def _cell(values: Mapping[str, Any]) -> DeviceCell:
    format, size, batch = values["format"], values["size"], values["batch"]
    if format not in FORMATS or size not in SIZE_CLASSES or type(batch) is not int or batch < 1:
        raise ValueError(f"{format!r}, {size!r}, {batch!r} is no kind of work")
    return DeviceCell(cast("Format", format), cast("SizeClass", size), batch)


def _speeds(values: Mapping[str, Mapping[str, Any]]) -> dict[str, Speed]:
    return {name: _speed([one[part] for part in Speed._fields]) for name, one in values.items()}


def _speed(numbers: Sequence[Any]) -> Speed:
    for part, number in zip(Speed._fields, numbers, strict=True):
        may_miss = Speed._field_defaults.get(part, 0.0) is None
        if number is None and may_miss:
            continue
        if type(number) not in (int, float) or not 0 <= number < float("inf"):
            raise ValueError(f"{part} is {number!r}")
    return Speed(*numbers)
