"""What a run found, as plain data: everything that is printed, drawn or compared comes from here.

The JSON form is one object: ``schema`` (the version, an integer) and the fields of `Result`. Each
class below is an object with a key for each of its fields; a tuple is a list. Sizes are in 10^6
bytes and 10^6 pixels. A reader should

- refuse another ``schema`` than it knows: a field has then changed its meaning or gone away;
- pass over keys that it does not know: new fields do not change ``schema``;
- tell configurations apart by ``protocol``, ``format``, ``reduce``, ``backend``, ``threads``,
  ``workers``, ``output``, ``size`` and ``batch``, which `Measurement.key` gives.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import types
import typing
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from typing import Any, Literal, TypeAlias

import fastdecode
from fastdecode._system import cpu_model, usable_cores
from fastdecode.ranking import CPU, NOTHING, Spread

__all__ = [
    "AUTOMATIC",
    "BEGINS",
    "CPU",
    "NOTHING",
    "PILLOW",
    "PIPELINES",
    "PROTOCOLS",
    "SCHEMA",
    "Backend",
    "Collection",
    "Device",
    "Machine",
    "Measurement",
    "Pipeline",
    "Protocol",
    "Result",
    "Spread",
    "from_json",
    "machine",
    "to_json",
]

SCHEMA = 1
"""Grows whenever a field changes its meaning or goes away; a new field leaves it as it is."""

AUTOMATIC = "decode()"
"""Stands among the backends for the automatic choice."""

Protocol: TypeAlias = Literal["decode", "train", "threads", "loader", "file", "device"]
"""``decode``: from memory, one thread. ``train``: from files to training batches, by whole
pipelines. ``threads``: a pool in one process. ``loader``: a PyTorch DataLoader with worker
processes. ``file``: reading included, one thread. ``device``: batches onto a device, by a batch
backend there, or by the CPU and a copy."""

PROTOCOLS: tuple[Protocol, ...] = ("decode", "train", "threads", "loader", "file")
"""Those of the CPU."""

Pipeline: TypeAlias = Literal["loader", "dataset", "pillow", "torchvision", "dali"]
"""What stands in the place of a backend in the protocol ``train``: this package's `Loader` with its
dataset; that dataset, Pillow, or torchvision's transforms v2 in PyTorch's DataLoader; DALI on the
CPU."""

PIPELINES: tuple[Pipeline, ...] = ("loader", "dataset", "pillow", "torchvision", "dali")
PILLOW = "pillow"
"""The backend, and the pipeline, that everything is held against."""


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


@dataclass(frozen=True)
class Device:
    """The device that images were brought onto."""

    device: str  # as PyTorch names it: "cuda:0"
    name: str  # of its model
    driver: str = ""  # driver, runtime: versions of the driver and of CUDA; empty without
    runtime: str = ""
    torch: str = ""
    versions: dict[str, str] = field(default_factory=dict)  # of libraries, by batch backend
    # why a batch backend was not measured, and how it is installed, by name
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Machine:
    """The machine and the interpreter."""

    cpu: str  # its model name
    cores: int  # those that this process may use
    system: str
    python: str
    numpy: str
    fastdecode: str
    # processes that wanted to run, on average over the minute before the run; None where the
    # system does not say
    load: float | None = None


@dataclass(frozen=True)
class Backend:
    """A library that was measured, and the codec it is linked to."""

    name: str
    version: str
    codec: str


@dataclass(frozen=True)
class Collection:
    """The files."""

    images: int  # images, bytes, pixels: of those that could be read, in all
    bytes: int
    pixels: int
    formats: dict[str, int]  # images of each format
    # why a file that should be an image is none, by name
    unreadable: dict[str, str] = field(default_factory=dict)
    not_images: int = 0
    left_out: int = 0
    samples: bool = False  # these are the photos that the package carries, and not the user's


@dataclass(frozen=True)
class Measurement:
    """One configuration: a backend, and what it was asked to do, and how."""

    protocol: Protocol
    format: str
    reduce: int
    # a backend's name, `AUTOMATIC`, `CPU`, or a `Pipeline`; empty while it stands for all
    backend: str = ""
    # threads, workers: 1 and 0 where the protocol has none; in "train" the same number, of which a
    # pipeline uses threads or worker processes, whichever it has
    threads: int = 1
    workers: int = 0
    output: str = "array"  # or "tensor", "pil"
    size: int = 0  # side in pixels that images were resized to; 0 if they were not
    # images of a batch in "train" and on a device, where it is fewer than were asked for if they
    # are large
    batch: int = 0
    files: int = 0  # that were timed: those that all the backends of the group read
    # over the blocks, or the epochs of "train"; 0 where the pixels were only checked
    images_per_s: Spread = NOTHING
    mb_per_s: float = 0.0  # encoded
    megapixels_per_s: float = 0.0  # decoded, full-size
    # 101 percentiles, 0 to 100, of the time one image took; of the call alone, not its waiting.
    # Empty where nothing was timed, and in "train".
    latency_ms: tuple[float, ...] = ()
    # processor time for 1000 images, workers included; 0 where the system does not say
    cpu_s_per_1000: float = 0.0
    peak_mb: float = 0.0  # memory at its highest, libraries and workers included; 0 if unknown
    # speed over that of the fastest right backend with the same settings, paired within blocks; on
    # a device over that of the CPU path
    ratio: Spread = NOTHING
    chosen: str = ""  # what the automatic choice took for most files
    fallbacks: int = 0  # files that it got from another backend than the first
    refused: dict[str, str] = field(default_factory=dict)  # files not decoded, and why
    differing: tuple[str, ...] = ()  # files whose pixels are not those of the reference
    # JPEG files that the package averages, because the backend does not reduce in its decoder:
    # their pixels are others by design, and not in `differing`
    averaged: int = 0
    max_difference: int = 0  # of a sample from the reference, in levels of 255
    read_share: float = 0.0  # of the time, 0 to 1, that went into reading, in protocol "file"
    # of a device alone: as in `fastdecode.ranking.Speed`
    gpu_ms_per_1000: float | None = None
    stream_ms_per_1000: float | None = None
    on_cpu: float = 0.0
    psnr: float | None = None

    @property
    def key(self) -> tuple[str, str, int, str, int, int, str, int, int]:
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
            self.batch,
        )


@dataclass(frozen=True)
class Result:
    """One run of the benchmark."""

    measured: str  # when it began: ISO 8601, UTC
    machine: Machine
    backends: tuple[Backend, ...]
    collection: Collection
    settings: dict[str, Any] = field(default_factory=dict)  # seconds, seed, what was asked for
    measurements: tuple[Measurement, ...] = ()
    answer: tuple[str, ...] = ()  # what was found, in sentences
    notes: tuple[str, ...] = ()
    # the lines that install backends which are missing here and, in the default order, come before
    # the one that `decode` chose, by name
    faster: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False  # before everything was measured
    device: Device | None = None  # that images were brought onto; None if that was not measured
    on_device: tuple[Measurement, ...] = ()


BEGINS = rb'\{\s*"schema": \d+,\s*"measured": '
"""How a file of `to_json` begins."""


def to_json(result: Result) -> str:
    """Write a result as JSON."""
    return json.dumps({"schema": SCHEMA, **asdict(result)}, indent=1)


def from_json(text: str | bytes) -> Result:
    """Read a result back. Fields that this version does not know are ignored."""
    try:
        content = json.loads(text)
        schema = content["schema"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError("this is not a result that `fastdecode bench --json` wrote") from error
    if schema != SCHEMA:
        raise ValueError(f"the result has schema {schema}, and this version reads {SCHEMA}")
    on_device = content.get("on_device")
    if isinstance(on_device, list):  # which once said less of each
        usual = {"protocol": "device", "reduce": 1}
        content["on_device"] = [
            {**usual, **one} if isinstance(one, dict) else one for one in on_device
        ]
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
