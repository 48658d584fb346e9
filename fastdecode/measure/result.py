"""The result of a run as plain data, from which everything is printed and drawn.

The JSON form is one object with ``schema`` (the version, an integer) and the fields of `Result`.
Each class below becomes an object with one key per field; a tuple becomes a list. MB and megapixels
are 10^6 bytes and 10^6 pixels. A program that reads the JSON should

- reject a ``schema`` that it does not know: a field has changed its meaning or was removed;
- ignore keys that it does not know: new fields do not change ``schema``;
- identify a configuration by ``protocol``, ``format``, ``reduce``, ``backend``, ``workers`` and
  ``batch``, as `Measurement.key` does.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
import typing
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

import fastdecode
from fastdecode._system.processor import cpu_model, usable_cores

SCHEMA = 4
"""Version of the JSON. It grows when a field changes its meaning or is removed."""

OWN = "fastdecode"
"""This package among the backends and pipelines: `decode` without a backend, and `Loader`."""

PILLOW = "pillow"
"""The backend, and the pipeline, that all others are compared with."""

Protocol: TypeAlias = Literal["decode", "train"]
"""``decode``: from memory, in one thread. ``train``: from files to training batches, on all cores,
by whole pipelines."""

Pipeline: TypeAlias = Literal["fastdecode", "device", "pillow", "torchvision"]
"""What ``train`` compares instead of backends: this package's `Loader` with its dataset; the same,
decoding on a CUDA device; and Pillow or torchvision's transforms v2 in PyTorch's DataLoader."""

PIPELINES: tuple[Pipeline, ...] = typing.get_args(Pipeline)

_LABELS = {
    "device": "fastdecode on the GPU",
    "pillow": "Pillow + DataLoader",
    "torchvision": "torchvision + DataLoader",
}


def label(protocol: Protocol, name: str) -> str:
    """Return the name of a backend or pipeline for readers."""
    return _LABELS.get(name, name) if protocol == "train" else name


@dataclass(frozen=True)
class Spread:
    """A median, and the least and the largest of those of nine parts of the run."""

    median: float
    low: float
    high: float


NOTHING = Spread(0.0, 0.0, 0.0)
"""Stands for a speed that was not measured."""


@dataclass(frozen=True)
class Machine:
    """The machine and the Python interpreter."""

    cpu: str  # model name
    cores: int  # the cores that this process may use
    system: str
    python: str
    numpy: str
    fastdecode: str
    # load average over the minute before the run; None if the system does not report it
    load: float | None = None


@dataclass(frozen=True)
class Library:
    """A library that was measured, and the codec that it is linked to."""

    name: str
    version: str
    codec: str


@dataclass(frozen=True)
class CollectionSummary:
    """The files of the run."""

    images: int = 0  # images, bytes, pixels: totals of the readable images
    bytes: int = 0
    pixels: int = 0
    formats: dict[str, int] = field(default_factory=dict)  # number of images by format
    # by file name: why a file that should be an image cannot be read
    unreadable: dict[str, str] = field(default_factory=dict)
    not_images: int = 0  # files skipped because they are something else
    left_out: int = 0  # files not read, because there were enough
    samples: bool = False  # these are the photos that come with the package


@dataclass(frozen=True)
class Measurement:
    """One configuration, that is a backend with its settings, and its figures."""

    protocol: Protocol
    format: str
    reduce: int
    backend: str = ""  # name of a backend, `OWN`, or a `Pipeline`; empty in a template for all
    workers: int = 1  # threads or worker processes of a pipeline
    batch: int = 0  # images per batch in "train"; fewer if they are large
    files: int = 0  # timed files: those that all backends of the group read
    # over the rounds, which are epochs in "train"; 0 if only the pixels were checked
    images_per_s: Spread = NOTHING
    # `images_per_s` divided by Pillow's, or by that of the fastest if Pillow was not timed; the
    # spread is that of the quotients within the rounds
    ratio: Spread = NOTHING
    # processor time for 1000 images, including workers; 0 if the system does not report it
    cpu_s_per_1000: float = 0.0
    chosen: str = ""  # the backend that `OWN` used for most files
    # files that were not decoded, with the reasons
    refused: dict[str, str] = field(default_factory=dict)
    differing: tuple[str, ...] = ()  # files whose pixels differ from Pillow's
    # JPEG files that the package averages, because the backend does not reduce in its decoder.
    # Their pixels differ by design, so they are not in `differing`.
    averaged: int = 0

    @property
    def key(self) -> tuple[str, str, int, str, int, int]:
        """The configuration. Measurements of two results with the same key can be compared."""
        setting = (self.protocol, self.format, self.reduce, self.backend)
        return (*setting, self.workers, self.batch)


@dataclass(frozen=True)
class Result:
    """One run of the benchmark."""

    measured: str  # the time at which it began: ISO 8601, UTC
    machine: Machine
    collection: CollectionSummary
    backends: tuple[Library, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)  # seconds, seed and the other options
    measurements: tuple[Measurement, ...] = ()
    notes: tuple[str, ...] = ()
    interrupted: bool = False  # whether it ended before everything was measured


def to_json(result: Result) -> str:
    """Return a result as JSON."""
    return json.dumps({"schema": SCHEMA, **asdict(result)}, indent=1)


def now() -> str:
    """Return the time in UTC, in the ISO 8601 format of results."""
    return dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")


def machine() -> Machine:
    """Describe this machine, and its load before the run."""
    return Machine(
        cpu=cpu_model(),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        numpy=importlib.metadata.version("numpy"),
        fastdecode=fastdecode.__version__,
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    )
