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

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from fastdecode.bench.on_device import Device, OnDevice
from fastdecode.bench.reading import read
from fastdecode.bench.spread import NOTHING, Spread

__all__ = [
    "AUTOMATIC",
    "SCHEMA",
    "Backend",
    "Collection",
    "Machine",
    "Measurement",
    "Protocol",
    "Result",
    "Spread",
    "from_json",
    "to_json",
]

SCHEMA = 1
"""Grows whenever a field changes its meaning or goes away; a new field leaves it as it is."""

AUTOMATIC = "decode()"
"""Stands among the backends for the automatic choice."""

Protocol: TypeAlias = Literal["decode", "threads", "loader", "file"]
"""``decode``: from memory, one thread. ``threads``: a pool in one process. ``loader``: a PyTorch
DataLoader with worker processes. ``file``: reading included, one thread."""


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
        Side in pixels that pictures were resized to; 0 if they were not.
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
        That pictures were brought onto; None if that was not measured.
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
    """Write a result as JSON.

    Returns
    -------
    str
        An object with ``schema`` and the fields of `Result`.
    """
    return json.dumps({"schema": SCHEMA, **asdict(result)}, indent=1)


def from_json(text: str) -> Result:
    """Read a result back. Fields that this version does not know are ignored.

    Raises
    ------
    ValueError
        If it is not the JSON of a result, or of another schema.
    """
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
        result: Result = read(Result, content, "result")
    except ValueError as error:
        raise ValueError(f"the result is damaged: {error}") from error
    return result
