"""What was measured for a device: how fast each way of decoding brings pictures there."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fastdecode import _files
from fastdecode._system import cpu_model, device_libraries, device_ranking_path, usable_cores
from fastdecode.device.identity import Identity
from fastdecode.types import FORMATS, SIZE_CLASSES

if TYPE_CHECKING:
    from fastdecode.types import Format, SizeClass

__all__ = ["CPU", "SCHEMA", "DeviceCell", "DeviceRanking", "Speed"]

SCHEMA = 1
CPU = "cpu"
"""Stands among the batch backends for the CPU path: all cores decode, and the pixels are copied."""

generation = 0
"""Grows with every `DeviceRanking.save`: what was read before is out of date."""

_MOST_ON_CPU = 0.5
"""Share of the pictures: of one that left more to the CPU path, the figures are the CPU's."""

_DAMAGED = "is no measurement of a device that fastdecode wrote"


class DeviceCell(NamedTuple):
    """A kind of work.

    Attributes
    ----------
    format : Format
    size : {"small", "medium", "large", "huge"}
        Of the stored pictures.
    batch : int
        Pictures of a batch: fewer than were asked for, if they are large.
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
        Processor seconds for 1000 pictures, user and system, all cores added up.
    gpu_ms_per_1000 : float or None
        Milliseconds in which kernels or copies ran on the device, for 1000 pictures; None where
        that could not be found out.
    stream_ms_per_1000 : float or None
        Milliseconds between two events on the stream, before the batch and after it, waiting
        included; None without a stream.
    on_cpu : float
        Share of the pictures, 0 to 1, that the CPU path decoded after all.
    psnr : float or None
        Of the picture that differs most from the CPU path's, in dB; None if all are the same.
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
        """Say why it is out of date for a device; empty if it is not.

        Parameters
        ----------
        here : Identity
            That of the device, from `identify`.
        """
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
        """Write it to a file: all of it, or nothing.

        Parameters
        ----------
        path : path, optional
            By default where ``decode="auto"`` looks for it.

        Returns
        -------
        Path
            Where it is.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        global generation
        target = device_ranking_path(self.device.name) if path is None else Path(path)
        _files.check_writable(target, parents=True)
        _files.write_text(target, self._to_json())
        generation += 1
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, own: bool = False) -> DeviceRanking:
        """Read one from a file.

        Parameters
        ----------
        path : path
        own : bool
            Nobody named the file: believe it only if it is this user's, or the system's.

        Raises
        ------
        OSError
            If it cannot be read.
        ValueError
            If it is damaged, or another user's.
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
