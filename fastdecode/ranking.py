"""Orders of preference that `calibrate` measures, as plain data: of backends, and for devices."""

from __future__ import annotations

import json
import math
import os
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar, cast, get_args

from fastdecode import _files
from fastdecode._system import (
    cpu_model,
    device_libraries,
    device_ranking_path,
    libraries,
    ranking_is_named,
    ranking_path,
    usable_cores,
)
from fastdecode.types import (
    CONTEXTS,
    FORMATS,
    OUTPUTS,
    REDUCES,
    SIZE_CLASSES,
    Context,
    Format,
    Output,
    Reduce,
    SizeClass,
)

if TYPE_CHECKING:
    from typing_extensions import Self

    from fastdecode.types import BackendInfo

__all__ = [
    "BEGINS",
    "CPU",
    "DEFAULT",
    "NOTHING",
    "SIZE_LIMITS",
    "Cell",
    "DeviceCell",
    "DeviceRanking",
    "Identity",
    "Ranking",
    "Speed",
    "Spread",
    "faster",
    "known_order",
    "look_up",
    "reordered",
    "size_class",
]

SCHEMA = 1
CPU = "cpu"
"""Stands among the batch backends for the CPU path: all cores decode, and the pixels are copied."""

SIZE_LIMITS = (100_000, 1_000_000, 6_000_000)  # pixels; between what calibration measures at
_BUSY = 0.08  # an idle machine stays below half of that
_MOST_ON_CPU = 0.5
"""Share of the images: of one that left more to the CPU path, the figures are the CPU's."""

saves = 0
"""Grows with every save: what was read before is out of date."""

_Kept = TypeVar("_Kept")


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles on its two sides."""

    median: float
    low: float
    high: float

    def over(self, base: Spread) -> Spread:
        """Divide by another, so that the bounds hold whichever way both were off.

        They are the lower quartile over the upper one of the base, and the upper one over the lower
        one.
        """
        high = self.high / base.low if base.low > 0 else float("inf")
        return Spread(self.median / base.median, self.low / max(base.high, base.median), high)


BEGINS = rb'\{\s*"schema": \d+,\s*"cpu": '
"""How a file of a ranking begins."""

NOTHING = Spread(0.0, 0.0, 0.0)
"""Of what was not measured."""


class _Saved:
    """What was measured here once, is kept in a file, and holds until something has changed."""

    cpu: str
    libraries: Mapping[str, str]
    measured: str
    _damaged: ClassVar[str]

    def _save(self, target: Path, content: Mapping[str, Any]) -> Path:
        global saves
        common = {"cpu": self.cpu, "libraries": dict(self.libraries), "measured": self.measured}
        _files.check_writable(target, parents=True)
        text = json.dumps({"schema": SCHEMA, **common, **content}, indent=1)
        _files.write_text(target, text)
        saves += 1
        return target

    @classmethod
    def _load(cls, place: str | os.PathLike[str], *, own: bool) -> Self:
        """Read a file; `own`: nobody named it, so that it must be this user's, or the system's."""
        return _files.read_text(place, cls._from_text, cls._damaged, own=own)

    @classmethod
    def _from_text(cls, text: str) -> Self:
        content = json.loads(text)
        if content["schema"] != SCHEMA:
            raise ValueError(f"its schema is {content['schema']}, and this version reads {SCHEMA}")
        _printable([content["cpu"], content["measured"], *content["libraries"].values()])
        common = {name: content[name] for name in ("cpu", "libraries", "measured")}
        return cls._from_content(content, **common)

    @classmethod
    def _from_content(cls, content: Any, **common: Any) -> Self:
        raise NotImplementedError


def look_up(load: Callable[[], _Kept], stale: Callable[[_Kept], str]) -> tuple[_Kept | None, str]:
    """Read what was saved; return it, or None and what is wrong with it, if there is one."""
    try:
        found = load()
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, str(error)
    problem = stale(found)
    return (None, problem) if problem else (found, "")


def _changes(names: Iterable[str], then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return [
        f"{name} {then.get(name, 'missing')} then, {now.get(name, 'missing')} now"
        for name in names
        if then.get(name) != now.get(name)
    ]


class Cell(NamedTuple):
    """What an order of backends is for; None stands for any."""

    format: Format
    reduce: Reduce = 1
    size: SizeClass | None = None  # of the stored image
    output: Output | None = None
    context: Context | None = None


def size_class(pixels: int) -> SizeClass:
    """Name the class of an image with that many stored pixels."""
    return SIZE_CLASSES[bisect(SIZE_LIMITS, pixels)]


@dataclass(frozen=True)
class Ranking(_Saved):
    """An order of preference among backends: plain data.

    Attributes
    ----------
    orders : Mapping
        Backend names, fastest first, by `Cell`, or by a tuple that begins like one, such as
        ``("jpeg", 1)``. What is nearest to a cell that is missing stands in for it: the same for
        another size, for a single thread, for an array, for ``reduce=1``. Names that are missing
        come last, in the default order.
    speeds : Mapping
        Speed of each backend beside the fastest (1.0), by `Cell`; empty if not measured.
    cpu : str
        Model of the processor that it was measured on; empty if it was not measured.
    libraries : Mapping of str to str
        Versions of the libraries that were installed then.
    measured : str
        When: ISO 8601, UTC.
    disturbance : float
        By what share a backend's usual time exceeded its shortest, on average over what was
        measured: the work of others, 0 where there is none.

    Raises
    ------
    ValueError, TypeError
        If a key is no cell, or an order is no sequence of names.

    Examples
    --------
    >>> from fastdecode import Ranking, decode, use
    >>> ranking = Ranking({("jpeg", 1): ("opencv", "pillow")})
    >>> ranking.order("jpeg", 1)
    ('opencv', 'pillow')
    >>> with use(ranking):
    ...     image = decode(data)
    """

    orders: Mapping[Any, Sequence[str]] = field(default_factory=dict)
    speeds: Mapping[Cell, Mapping[str, float]] = field(default_factory=dict)
    cpu: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    measured: str = ""
    disturbance: float = 0.0

    _damaged: ClassVar[str] = "is no ranking that fastdecode wrote"

    @property
    def busy(self) -> bool:
        """Whether the machine had so much else to do that differences may have gone unseen."""
        return self.disturbance > _BUSY

    def remark(self) -> str:
        """Say that the machine was busy, and what follows from it; empty if it was not."""
        if not self.busy:
            return ""
        return (
            f"The machine was busy with other work: usually a backend took "
            f"{100 * self.disturbance:.0f} % longer than at its best. Where that hid who is "
            "faster, the default order stands; measure again when the machine is idle."
        )

    def __post_init__(self) -> None:
        if not isinstance(self.orders, Mapping):
            raise TypeError(
                "orders must be a mapping such as {('jpeg', 1): ('simplejpeg', 'pillow')}, not "
                f"{self.orders!r}"
            )
        orders = {_cell(key): _names(names) for key, names in self.orders.items()}
        speeds = {_cell(key): dict(found) for key, found in self.speeds.items()}
        object.__setattr__(self, "orders", orders)
        object.__setattr__(self, "speeds", speeds)

    def order(
        self,
        format: Format,
        reduce: Reduce,
        size: SizeClass = "medium",
        output: Output = "array",
        context: Context = "one",
    ) -> tuple[str, ...]:
        """Names for one kind of work, fastest first; empty where nothing near it is known."""
        for cell in _nearest(Cell(format, reduce, size, output, context)):
            if cell in self.orders:
                return tuple(self.orders[cell])
        return ()

    def stale(self) -> str:
        """Say why it is out of date here; empty if it is not, or was not measured at all."""
        if not self.cpu:
            return ""
        if self.cpu != cpu_model():
            return f"it was measured on another processor ({self.cpu})"
        here = libraries()
        told = "; ".join(_changes(sorted({*here, *self.libraries}), self.libraries, here))
        return f"libraries have changed since it was measured ({told})" if told else ""

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write it to a file: all of it, or nothing.

        Parameters
        ----------
        path : path, optional
            By default where every later process of this user looks for it.

        Returns
        -------
        Path
            Where it is.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        cells = [
            {**cell._asdict(), "order": names, "speeds": dict(self.speeds.get(cell, {}))}
            for cell, names in self.orders.items()
        ]
        content = {"disturbance": self.disturbance, "cells": cells}
        return self._save(ranking_path() if path is None else Path(path), content)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> Self:
        """Read one from a file.

        Parameters
        ----------
        path : path, optional
            By default the saved one of this machine.

        Raises
        ------
        OSError
            If it cannot be read.
        ValueError
            If it is damaged, or at the usual place, but another user's.
        """
        own = path is None and not ranking_is_named()
        return cls._load(ranking_path() if path is None else path, own=own)

    def __str__(self) -> str:
        """Draw a table: a line for each cell, the backends in order, and `remark` below it."""
        rows = [_row(cell, names, self.speeds.get(cell, {})) for cell, names in self.orders.items()]
        head = ("format", "reduce", "size", "output", "context")
        widths = [max(len(row[at]) for row in [head, *rows]) for at in range(len(head))]
        lines = [
            "  ".join([*(cell.ljust(wide) for cell, wide in zip(row, widths, strict=False)), last])
            for row, last in [
                (head, "fastest first, share of its speed"),
                *((row, row[-1]) for row in rows),
            ]
        ]
        return "\n".join([*lines, *([self.remark()] if self.busy else [])])

    @classmethod
    def _from_content(cls, content: Any, **common: Any) -> Self:
        orders = {}
        speeds = {}
        for values in content["cells"]:
            cell = _cell(tuple(values[name] for name in Cell._fields))
            orders[cell] = values["order"]
            if values["speeds"]:
                speeds[cell] = {name: float(speed) for name, speed in values["speeds"].items()}
        disturbance = float(content.get("disturbance", 0.0))
        return cls(orders, speeds, disturbance=disturbance, **common)


def known_order(names: Iterable[str], format: Format, reduce: Reduce) -> list[str]:
    """Put backends into the default order, those that are not in it last."""
    known = DEFAULT.order(format, reduce)
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))


def faster(infos: Sequence[BackendInfo], chosen: str, format: Format = "jpeg") -> dict[str, str]:
    """Return the install lines of missing backends that come before one in the default order."""
    missing = {info.name: info.install for info in infos if not info.usable}
    order = DEFAULT.order(format, 1)
    best = order.index(chosen) if chosen in order else len(order)
    return {name: missing[name] for name in order[:best] if name in missing}


def reordered(known: Sequence[str], is_faster: Callable[[str, str], bool]) -> list[str]:
    """Keep an order, but put whoever is faster beyond doubt before those that are slower."""
    left, order = list(known), list[str]()
    while left:
        unbeaten = (
            name
            for name in left
            if not any(is_faster(other, name) for other in left if other != name)
        )
        order.append(next(unbeaten, left[0]))
        left.remove(order[-1])
    return order


def _cell(key: Any) -> Cell:
    """Make a cell of a tuple that begins like one."""
    if not isinstance(key, tuple) or not 1 <= len(key) <= len(Cell._fields):
        raise TypeError(f"a ranking's keys are tuples such as ('jpeg', 1), not {key!r}")
    cell = Cell(*key)
    for value, allowed, may_be_any in (
        (cell.format, FORMATS, False),
        (cell.reduce, REDUCES, False),
        (cell.size, SIZE_CLASSES, True),
        (cell.output, OUTPUTS, True),
        (cell.context, CONTEXTS, True),
    ):
        if value not in allowed and not (may_be_any and value is None):
            raise ValueError(f"{value!r} in {key!r} is none of {', '.join(map(str, allowed))}")
    return cell


def _names(names: object) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise TypeError(f"an order is a sequence of backends' names, not {names!r}")
    if not all(isinstance(name, str) for name in names):
        raise TypeError(f"backends are given by name, not {names!r}")
    return tuple(names)


def _nearest(cell: Cell) -> Iterator[Cell]:
    """Yield what may stand in for a cell, itself first."""
    # What holds for any of a kind holds for this one too, and goes before what is only near.
    sizes: list[tuple[SizeClass | None, ...]] = [(), tuple(_by_distance(cell.size))]
    outputs: list[tuple[Output | None, ...]] = [(), ("array",)]
    contexts: list[tuple[Context | None, ...]] = [(), ("one",)]
    for reduce in dict.fromkeys((cell.reduce, get_args(Reduce)[0])):
        for near_output, near_context, near_size in zip(outputs, contexts, sizes, strict=True):
            for output in dict.fromkeys((cell.output, None, *near_output)):
                for context in dict.fromkeys((cell.context, None, *near_context)):
                    for size in dict.fromkeys((cell.size, None, *near_size)):
                        yield Cell(cell.format, reduce, size, output, context)


def _by_distance(size: SizeClass | None) -> list[SizeClass]:
    if size is None:
        return list(SIZE_CLASSES)
    place = SIZE_CLASSES.index(size)
    return sorted(SIZE_CLASSES, key=lambda other: abs(SIZE_CLASSES.index(other) - place))


def _row(cell: Cell, names: Sequence[str], speeds: Mapping[str, float]) -> tuple[str, ...]:
    told = [f"{name} {speeds[name]:.2f}" if name in speeds else name for name in names]
    return (*("any" if value is None else str(value) for value in cell), ", ".join(told))


class Identity(NamedTuple):
    """A model of device, and the software that drives it.

    `kind` is ``"cuda"`` or ``"cpu"``. `driver` is the version of the kernel's driver, and `runtime`
    that of the CUDA (or HIP) that PyTorch is built for; each is empty where it is not known.
    """

    kind: str
    name: str
    driver: str = ""
    runtime: str = ""


class DeviceCell(NamedTuple):
    """A kind of work: a format, the size class of the stored images, and the images of a batch.

    Batches are smaller than was asked for if the images are large.
    """

    format: Format
    size: SizeClass
    batch: int


@dataclass(frozen=True)
class Speed:
    """What one way of decoding does at one kind of work, by the median over the rounds."""

    # by the clock on the wall, until the batch is there
    images_per_s: Spread = NOTHING
    # speed over that of the CPU path with all cores, paired within the rounds; 0 without it
    ratio: Spread = NOTHING
    # processor seconds for 1000 images, user and system, all cores added up
    cpu_s_per_1000: float = 0.0
    # milliseconds in which kernels or copies ran on the device; None where nobody could tell
    gpu_ms_per_1000: float | None = None
    # milliseconds between events on the stream before and after a batch, waiting included
    stream_ms_per_1000: float | None = None
    on_cpu: float = 0.0  # share of the images, 0 to 1, that the CPU path decoded after all
    # of the image that differs most from the CPU path's, in dB; None if none differs
    psnr: float | None = None


@dataclass(frozen=True)
class DeviceRanking(_Saved):
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

    _damaged: ClassVar[str] = "is no measurement of a device that fastdecode wrote"

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
        ratios = {
            name: [one[name].ratio.median for one in every] for name in common if name in able
        }
        means = {
            name: math.fsum(map(math.log, found)) / len(found)
            for name, found in ratios.items()
            if all(ratio > 0 for ratio in found)
        }
        return tuple(sorted(means, key=lambda name: -means[name]))

    def stale(self, here: Identity) -> str:
        """Say why it is out of date for a device; empty if it is not."""
        then = _conditions(self.device, self.cpu, self.cores)
        now = _conditions(here, cpu_model(), usable_cores())
        libraries = device_libraries()
        told = _changes(then, then, now)
        told += _changes(sorted({*libraries, *self.libraries}), self.libraries, libraries)
        return f"it was measured with something else ({'; '.join(told)})" if told else ""

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write all of it or nothing; by default where ``decode="auto"`` looks for it."""
        content = {
            "device": self.device._asdict(),
            "cores": self.cores,
            "lost": dict(self.lost),
            "cells": [
                {**cell._asdict(), "speeds": {name: _flat(one) for name, one in found.items()}}
                for cell, found in self.speeds.items()
            ],
        }
        place = device_ranking_path(self.device.name) if path is None else Path(path)
        return self._save(place, content)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, own: bool = False) -> Self:
        """Read one from a file; it is a ValueError if it is damaged, or another user's.

        `own` says that nobody named the file: it is believed only if it is this user's, or the
        system's.
        """
        return cls._load(path, own=own)

    @classmethod
    def _from_content(cls, content: Any, **common: Any) -> Self:
        return cls(
            Identity(*_printable([content["device"][name] for name in Identity._fields])),
            {
                _device_cell(values): {
                    name: _speed(numbers) for name, numbers in values["speeds"].items()
                }
                for values in content["cells"]
            },
            dict(content["lost"]),
            cores=int(content["cores"]),
            **common,
        )


def _decoded(found: Mapping[str, Speed]) -> list[str]:
    """Name those that decoded at least half by themselves."""
    return [name for name, one in found.items() if name != CPU and one.on_cpu <= _MOST_ON_CPU]


def _conditions(device: Identity, cpu: str, cores: int) -> dict[str, str]:
    return {
        "device": device.name,
        "driver": device.driver,
        "CUDA": device.runtime,
        "processor": cpu,
        "cores": str(cores),
    }


def _device_cell(values: Mapping[str, Any]) -> DeviceCell:
    format, size, batch = values["format"], values["size"], values["batch"]
    if format not in FORMATS or size not in SIZE_CLASSES or type(batch) is not int or batch < 1:
        raise ValueError(f"{format!r}, {size!r}, {batch!r} is no kind of work")
    return DeviceCell(cast("Format", format), cast("SizeClass", size), batch)


_QUARTILES = {"images_per_s": ("low", "high"), "ratio": ("ratio_low", "ratio_high")}
"""What a file calls the quartiles: in it they stand beside their median."""


def _flat(speed: Speed) -> dict[str, float | None]:
    values = asdict(speed)
    for name, (low, high) in _QUARTILES.items():
        spread = values.pop(name)
        values |= {name: spread["median"], low: spread["low"], high: spread["high"]}
    return values


def _speed(values: Mapping[str, Any]) -> Speed:
    numbers: dict[str, Any] = {}
    for one in fields(Speed):
        found = [values[name] for name in (one.name, *_QUARTILES.get(one.name, ()))]
        for number in found:
            missing = number is None and one.default is None
            if not missing and (type(number) not in (int, float) or not 0 <= number < float("inf")):
                raise ValueError(f"{one.name} is {number!r}")
        numbers[one.name] = Spread(*found) if len(found) > 1 else found[0]
    return Speed(**numbers)


def _printable(words: Sequence[Any]) -> Sequence[str]:
    if not all(isinstance(word, str) and (word.isprintable() or not word) for word in words):
        raise ValueError("what should be text is none")
    return words


# Fastest first on real photos, by bench/results/default_order.json; that `native` leads for JPEG is
# shown by decoder_px500.json beside it. Two departures from them: PyTorch's decoders come last,
# because choosing one would import PyTorch into programs without other use for it; kornia_rs stands
# behind Pillow, because it stops other Python threads.
DEFAULT = Ranking(
    {
        ("jpeg", 1): (
            "native",
            "simplejpeg",
            "turbojpeg",
            "jpeg4py",
            "imagecodecs",
            "opencv",
            "pillow",
            "kornia_rs",
            "torchcodec",
            "torchvision",
        ),
        ("jpeg", 2): ("native", "simplejpeg", "turbojpeg", "jpeg4py", "opencv", "pillow"),
        ("jpeg", 4): ("native", "simplejpeg", "turbojpeg", "jpeg4py", "opencv", "pillow"),
        ("jpeg", 8): ("native", "simplejpeg", "turbojpeg", "jpeg4py", "opencv", "pillow"),
        ("png", 1): ("opencv", "pillow", "torchcodec"),
        ("webp", 1): ("opencv", "pillow"),
        ("jpeg2000", 1): ("pillow", "imagecodecs"),
    }
)
