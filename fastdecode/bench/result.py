"""What a run found, as plain data: everything that is printed, drawn or compared comes from here.

The JSON form is one object: ``schema`` (the version, an integer) and the fields of `Result`. Each
class below is an object with a key for each of its fields; a tuple is a list. Sizes are in 10^6
bytes and 10^6 pixels. A reader should

- refuse another ``schema`` than it knows: a field has then changed its meaning or gone away;
- pass over keys that it does not know: new fields do not change ``schema``;
- tell configurations apart by ``protocol``, ``format``, ``reduce``, ``backend``, ``threads``,
  ``workers``, ``output`` and ``size``, which `Measurement.key` gives.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import types
import typing
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

import fastdecode
from fastdecode._system import cpu_model, usable_cores

__all__ = [
    "AUTOMATIC",
    "CPU",
    "NOTHING",
    "PROTOCOLS",
    "SCHEMA",
    "Backend",
    "Collection",
    "Device",
    "DeviceKey",
    "Machine",
    "Measurement",
    "OnDevice",
    "Protocol",
    "Result",
    "Spread",
    "from_json",
    "machine",
    "to_json",
]

CPU = "cpu"
"""Stands among the batch backends for the CPU path: all cores decode, and the pixels are copied."""

SCHEMA = 1
"""Grows whenever a field changes its meaning or goes away; a new field leaves it as it is."""

AUTOMATIC = "decode()"
"""Stands among the backends for the automatic choice."""

Protocol: TypeAlias = Literal["decode", "threads", "loader", "file"]
"""``decode``: from memory, one thread. ``threads``: a pool in one process. ``loader``: a PyTorch
DataLoader with worker processes. ``file``: reading included, one thread."""

PROTOCOLS: tuple[Protocol, ...] = ("decode", "threads", "loader", "file")


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles on its two sides."""

    median: float
    low: float
    high: float


NOTHING = Spread(0.0, 0.0, 0.0)
"""Of what was not measured."""


def _read(kind: Any, value: Any, where: str) -> Any:
    """Make a value of a type out of what `json.loads` gave; `where` names it in errors.

    The type is a dataclass, ``tuple[X, ...]``, ``dict[str, X]``, a `Literal`, a union, or a plain
    one. Keys that a dataclass has no field for are passed over.
    """
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _record(kind, _of(dict, value, where), where)
    if origin is tuple:
        items = _of(list, value, where)
        return tuple(_read(inner[0], item, f"{where}[{n}]") for n, item in enumerate(items))
    if origin is dict:
        entries = _of(dict, value, where)
        return {key: _read(inner[1], item, f"{where}.{key}") for key, item in entries.items()}
    if origin is typing.Literal:
        if value not in inner:
            raise ValueError(f"{where} is {value!r}, none of {', '.join(map(str, inner))}")
        return value
    if origin in (types.UnionType, typing.Union):
        given = [one for one in inner if one is not type(None)]
        return None if value is None else _read(given[0], value, where)
    return _of(kind, value, where)


def _record(kind: Any, values: dict[str, Any], where: str) -> Any:
    hints = typing.get_type_hints(kind)
    found = {}
    for one in fields(kind):
        if one.name in values:
            found[one.name] = _read(hints[one.name], values[one.name], f"{where}.{one.name}")
        elif one.default is MISSING and one.default_factory is MISSING:
            raise ValueError(f"{where} has no {one.name!r}")
    return kind(**found)


def _of(kind: type, value: Any, where: str) -> Any:
    """Return the value if it is of a plain type; a whole number may stand for a float."""
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:  # not isinstance: true is no number
        raise ValueError(f"{where} is {type(value).__name__}, not {kind.__name__}")
    return value


class DeviceKey(NamedTuple):
    """What was asked for: the same in two results that may be compared."""

    format: str
    batch: int
    size: int
    backend: str


@dataclass(frozen=True)
class Device:
    """The device that images were brought onto.

    Attributes
    ----------
    device : str
        As PyTorch names it: ``"cuda:0"``.
    name : str
        Of its model.
    driver, runtime : str
        Versions of the driver and of CUDA; empty without.
    torch : str
    versions : dict of str to str
        Of the batch backends' libraries, by backend.
    missing : dict of str to str
        Why a batch backend was not measured, and how it is installed, by name.
    """

    device: str
    name: str
    driver: str = ""
    runtime: str = ""
    torch: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OnDevice:
    """One way of bringing images onto the device.

    Attributes
    ----------
    backend : str
        A batch backend's name, or ``"cpu"``: all cores decode, and the pixels are copied.
    format : str
    batch : int
        Images of a batch; fewer than were asked for if they are large.
    size : int
        Side in pixels that they were resized to, into one tensor; 0 if they were not.
    files : int
        Different ones that were timed.
    images_per_s : Spread
        Over the rounds; until the batch is on the device.
    ratio : Spread
        Speed over that of the CPU path, paired within rounds; 0 without it.
    cpu_s_per_1000 : float
        Processor seconds for 1000 images, user and system, all cores added up.
    gpu_ms_per_1000 : float or None
        Milliseconds in which kernels or copies ran on the device; None where nobody could tell.
    stream_ms_per_1000 : float or None
        Milliseconds between events on the stream before and after a batch, waiting included.
    on_cpu : float
        Share of the images, 0 to 1, that the CPU path decoded after all.
    psnr : float or None
        Of the image that differs most from the CPU path's, in dB; None if none differs.
    """

    backend: str
    format: str
    batch: int
    size: int = 0
    files: int = 0
    images_per_s: Spread = NOTHING
    ratio: Spread = NOTHING
    cpu_s_per_1000: float = 0.0
    gpu_ms_per_1000: float | None = None
    stream_ms_per_1000: float | None = None
    on_cpu: float = 0.0
    psnr: float | None = None

    @property
    def key(self) -> DeviceKey:
        """What was asked for."""
        return DeviceKey(self.format, self.batch, self.size, self.backend)


@dataclass(frozen=True)
class Machine:
    """The machine and the interpreter.

    Attributes
    ----------
    cpu : str
        Its model name.
    cores : int
        Those that this process may use.
    system, python, numpy, fastdecode : str
    load : float or None
        Processes that wanted to run, on average over the minute before the run; None where the
        system does not say.
    """

    cpu: str
    cores: int
    system: str
    python: str
    numpy: str
    fastdecode: str
    load: float | None = None


@dataclass(frozen=True)
class Backend:
    """A library that was measured, and the codec it is linked to."""

    name: str
    version: str
    codec: str


@dataclass(frozen=True)
class Collection:
    """The files.

    Attributes
    ----------
    images, bytes, pixels : int
        Of those that could be read, in all.
    formats : dict of str to int
        Images of each format.
    unreadable : dict of str to str
        Why a file that should be an image is none, by name.
    not_images, left_out : int
    """

    images: int
    bytes: int
    pixels: int
    formats: dict[str, int]
    unreadable: dict[str, str] = field(default_factory=dict)
    not_images: int = 0
    left_out: int = 0


@dataclass(frozen=True)
class Measurement:
    """One configuration: a backend, and what it was asked to do, and how.

    Attributes
    ----------
    protocol : {"decode", "threads", "loader", "file"}
    format : str
    reduce : {1, 2, 4, 8}
    backend : str
        A backend's name, or ``"decode()"`` for the automatic choice.
    threads, workers : int
        1 and 0 where the protocol has none.
    output : {"array", "tensor", "pil"}
    size : int
        Side in pixels that images were resized to; 0 if they were not.
    files : int
        That were timed: those that all the backends of the group read.
    images_per_s : Spread
        Over the blocks. 0 in a configuration that was only checked.
    mb_per_s, megapixels_per_s : float
        Encoded megabytes, and decoded (full-size) megapixels, for each second.
    latency_ms : tuple of float
        101 percentiles, 0 to 100, of the time one image took; of the call alone, not its waiting.
        Empty where nothing was timed.
    cpu_s_per_1000 : float
        Processor time, workers included.
    peak_mb : float
        Memory at its highest, libraries and workers included, in 10^6 bytes; 0 if unknown.
    ratio : Spread
        Speed over that of the fastest right backend with the same settings, paired within blocks.
    chosen : str
        What the automatic choice took for most files.
    fallbacks : int
        Files that the automatic choice got from another backend than the first.
    refused : dict of str to str
        Files that it did not decode, and why.
    differing : tuple of str
        Files whose pixels should be those of the reference and are not.
    averaged : int
        JPEG files that the package averages, because the backend does not reduce in its decoder:
        their pixels are others by design, and not in `differing`.
    max_difference : int
        Of a sample from the reference, in levels of 255.
    read_share : float
        Part of the time, 0 to 1, that reading the files took, in the protocol ``file``.
    """

    protocol: Protocol
    format: str
    reduce: int
    backend: str
    threads: int = 1
    workers: int = 0
    output: str = "array"
    size: int = 0
    files: int = 0
    images_per_s: Spread = NOTHING
    mb_per_s: float = 0.0
    megapixels_per_s: float = 0.0
    latency_ms: tuple[float, ...] = ()
    cpu_s_per_1000: float = 0.0
    peak_mb: float = 0.0
    ratio: Spread = NOTHING
    chosen: str = ""
    fallbacks: int = 0
    refused: dict[str, str] = field(default_factory=dict)
    differing: tuple[str, ...] = ()
    averaged: int = 0
    max_difference: int = 0
    read_share: float = 0.0

    @property
    def key(self) -> tuple[str, str, int, str, int, int, str, int]:
        """What was asked for: the same in two results that may be compared."""
        return (
            self.protocol,
            self.format,
            self.reduce,
            self.backend,
            self.threads,
            self.workers,
            self.output,
            self.size,
        )


@dataclass(frozen=True)
class Result:
    """One run of the benchmark.

    Attributes
    ----------
    measured : str
        When it began: ISO 8601, UTC.
    answer : tuple of str
        The sentences that stand on top.
    interrupted : bool
        It was stopped before everything was measured.
    settings : dict
        Seconds, seed and whatever else was asked for.
    device : Device or None
        That images were brought onto; None if that was not measured.
    on_device : tuple of OnDevice
        What was measured there.
    """

    measured: str
    machine: Machine
    backends: tuple[Backend, ...]
    collection: Collection
    settings: dict[str, Any] = field(default_factory=dict)
    measurements: tuple[Measurement, ...] = ()
    answer: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False
    device: Device | None = None
    on_device: tuple[OnDevice, ...] = ()


def to_json(result: Result) -> str:
    """Write a result as JSON."""
    return json.dumps({"schema": SCHEMA, **asdict(result)}, indent=1)


def from_json(text: str) -> Result:
    """Read a result back. Fields that this version does not know are ignored."""
    try:
        content = json.loads(text)
        schema = content["schema"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            "this is not a result that `python -m fastdecode.bench --json` wrote"
        ) from error
    if schema != SCHEMA:
        raise ValueError(f"the result has schema {schema}, and this version reads {SCHEMA}")
    try:
        result: Result = _read(Result, content, "result")
    except ValueError as error:
        raise ValueError(f"the result is damaged: {error}") from error
    return result


def machine() -> Machine:
    """Describe this machine, and how busy it is before the run."""
    return Machine(
        cpu=cpu_model(),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        numpy=importlib.metadata.version("numpy"),
        fastdecode=fastdecode.__version__,
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    )
