"""The rankings that `calibrate` measures, of backends and for devices, as plain data."""

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
    "faster_missing",
    "look_up",
    "move_faster_forward",
    "size_class",
    "sort_by_default",
]

SCHEMA = 1
CPU = "cpu"
"""The CPU path among the batch backends: all cores decode, and the pixels are copied."""

SIZE_LIMITS = (100_000, 1_000_000, 6_000_000)  # pixels; between what calibration measures at
_BUSY = 0.08  # an idle machine stays below half of that
_MAX_ON_CPU = 0.5
"""A backend that left a larger share of the images to the CPU is ranked as the CPU."""

saves = 0
"""Grows with every save, which makes rankings that were read before out of date."""

_RankingT = TypeVar("_RankingT")


@dataclass(frozen=True)
class Spread:
    """A median and the quartiles on its two sides."""

    median: float
    low: float
    high: float

    def over(self, base: Spread) -> Spread:
        """Divide by `base`; the bounds are the most cautious ones.

        The lower bound is the lower quartile over the upper quartile of the base, and the upper
        bound is the reverse.
        """
        high = self.high / base.low if base.low > 0 else float("inf")
        return Spread(self.median / base.median, self.low / max(base.high, base.median), high)


NOTHING = Spread(0.0, 0.0, 0.0)
"""Stands for a speed that was not measured."""


class _Saved:
    """A measurement that is saved in a file, and valid until the machine or a library changes."""

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
        """Read a file; with `own` it must belong to this user or to the system."""
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


def look_up(
    load: Callable[[], _RankingT], stale: Callable[[_RankingT], str]
) -> tuple[_RankingT | None, str]:
    """Return the saved ranking, or None and the problem with it (empty if there is none)."""
    try:
        found = load()
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, str(error)
    problem = stale(found)
    return (None, problem) if problem else (found, "")


def _describe_changes(
    names: Iterable[str], then: Mapping[str, str], now: Mapping[str, str]
) -> list[str]:
    return [
        f"{name} {then.get(name, 'missing')} then, {now.get(name, 'missing')} now"
        for name in names
        if then.get(name) != now.get(name)
    ]


class Cell(NamedTuple):
    """The kind of work that an order of backends applies to; None stands for any."""

    format: Format
    reduce: Reduce = 1
    size: SizeClass | None = None  # of the stored image
    output: Output | None = None
    context: Context | None = None


def size_class(pixels: int) -> SizeClass:
    """Return the size class of an image with this many stored pixels."""
    return SIZE_CLASSES[bisect(SIZE_LIMITS, pixels)]


@dataclass(frozen=True)
class Ranking(_Saved):
    """An order of preference among backends, as plain data.

    Attributes
    ----------
    orders : Mapping
        Backend names, fastest first, by `Cell` or by the first fields of one, such as
        ``("jpeg", 1)``. If a cell is missing, the nearest one is used: another size, a single
        thread, an array, ``reduce=1``. Backends that are not named come last, in the default order.
    speeds : Mapping
        Speed of each backend relative to the fastest (1.0), by `Cell`; empty if not measured.
    cpu : str
        Model of the processor that it was measured on; empty if it was not measured.
    libraries : Mapping of str to str
        Versions of the libraries that were installed when it was measured.
    measured : str
        Time of the measurement, in ISO 8601, UTC.
    disturbance : float
        By which fraction a backend's usual time exceeded its shortest one, on average. It shows how
        busy the machine was with other work; 0 if it was idle.

    Raises
    ------
    ValueError, TypeError
        A key is not a cell, or an order is not a sequence of names.

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
        """Whether the machine was so busy that differences may have gone unnoticed."""
        return self.disturbance > _BUSY

    def remark(self) -> str:
        """Return a sentence that says that the machine was busy; empty if it was not."""
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
        """Return the names for one kind of work, fastest first; empty if nothing near is known."""
        for cell in _nearest(Cell(format, reduce, size, output, context)):
            if cell in self.orders:
                return tuple(self.orders[cell])
        return ()

    def stale(self) -> str:
        """Return why it is out of date here; empty if it is not, or was not measured."""
        if not self.cpu:
            return ""
        if self.cpu != cpu_model():
            return f"it was measured on another processor ({self.cpu})"
        here = libraries()
        told = "; ".join(_describe_changes(sorted({*here, *self.libraries}), self.libraries, here))
        return f"libraries have changed since it was measured ({told})" if told else ""

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Save the ranking to a file, atomically.

        Parameters
        ----------
        path : path, optional
            By default the place where every later process of this user looks for it.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        cells = [
            {**cell._asdict(), "order": names, "speeds": dict(self.speeds.get(cell, {}))}
            for cell, names in self.orders.items()
        ]
        content = {"disturbance": self.disturbance, "cells": cells}
        return self._save(ranking_path() if path is None else Path(path), content)

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> Self:
        """Load a ranking from a file.

        Parameters
        ----------
        path : path, optional
            By default the ranking saved on this machine.

        Raises
        ------
        OSError
            The file cannot be read.
        ValueError
            The file is damaged; or it is the default file, but belongs to another user.
        """
        own = path is None and not ranking_is_named()
        return cls._load(ranking_path() if path is None else path, own=own)

    def __str__(self) -> str:
        """Return a table with a row per cell and the backends in order, and `remark` below it."""
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


def sort_by_default(names: Iterable[str], format: Format, reduce: Reduce) -> list[str]:
    """Sort backends into the default order, with unknown ones last."""
    known = DEFAULT.order(format, reduce)
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))


def faster_missing(
    infos: Sequence[BackendInfo], chosen: str, format: Format = "jpeg"
) -> dict[str, str]:
    """Return the install commands of missing backends before `chosen` in the default order."""
    missing = {info.name: info.install for info in infos if not info.usable}
    order = DEFAULT.order(format, 1)
    best = order.index(chosen) if chosen in order else len(order)
    return {name: missing[name] for name in order[:best] if name in missing}


def move_faster_forward(known: Sequence[str], is_faster: Callable[[str, str], bool]) -> list[str]:
    """Keep the known order, but move clearly faster backends before those that they beat."""
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
    """Return the cell whose first fields are given; raise if a value is invalid."""
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
    """Yield the cells that may replace a missing one, nearest first, beginning with itself."""
    # A cell for any value of a field includes this one, so it goes before cells that are only near.
    sizes: list[tuple[SizeClass | None, ...]] = [(), tuple(_nearest_sizes(cell.size))]
    outputs: list[tuple[Output | None, ...]] = [(), ("array",)]
    contexts: list[tuple[Context | None, ...]] = [(), ("one",)]
    for reduce in dict.fromkeys((cell.reduce, get_args(Reduce)[0])):
        for near_output, near_context, near_size in zip(outputs, contexts, sizes, strict=True):
            for output in dict.fromkeys((cell.output, None, *near_output)):
                for context in dict.fromkeys((cell.context, None, *near_context)):
                    for size in dict.fromkeys((cell.size, None, *near_size)):
                        yield Cell(cell.format, reduce, size, output, context)


def _nearest_sizes(size: SizeClass | None) -> list[SizeClass]:
    if size is None:
        return list(SIZE_CLASSES)
    place = SIZE_CLASSES.index(size)
    return sorted(SIZE_CLASSES, key=lambda other: abs(SIZE_CLASSES.index(other) - place))


def _row(cell: Cell, names: Sequence[str], speeds: Mapping[str, float]) -> tuple[str, ...]:
    told = [f"{name} {speeds[name]:.2f}" if name in speeds else name for name in names]
    return (*("any" if value is None else str(value) for value in cell), ", ".join(told))


class Identity(NamedTuple):
    """A model of device, and the software that drives it.

    `kind` is ``"cuda"`` or ``"cpu"``. `driver` is the version of the kernel driver, and `runtime`
    that of the CUDA (or HIP) that PyTorch is built for; each is empty if unknown.
    """

    kind: str
    name: str
    driver: str = ""
    runtime: str = ""


class DeviceCell(NamedTuple):
    """A kind of work: a format, the size class of the stored images, and the size of a batch.

    Batches of large images are smaller than requested.
    """

    format: Format
    size: SizeClass
    batch: int


@dataclass(frozen=True)
class Speed:
    """The speed of one decoder at one kind of work, as medians over the rounds."""

    # by wall clock, until the batch is ready
    images_per_s: Spread = NOTHING
    # relative to the CPU path on all cores, paired within the rounds; 0 if that was not measured
    ratio: Spread = NOTHING
    # processor seconds per 1000 images, user and system, summed over all cores
    cpu_s_per_1000: float = 0.0
    # milliseconds in which kernels or copies ran on the device; None if unknown
    gpu_ms_per_1000: float | None = None
    # milliseconds between events on the stream before and after a batch, waiting included
    stream_ms_per_1000: float | None = None
    on_cpu: float = 0.0  # share of the images, 0 to 1, that the CPU path decoded instead
    # in dB, of the image that differs most from the CPU path's; None if none differs
    psnr: float | None = None


@dataclass(frozen=True)
class DeviceRanking(_Saved):
    """The measurement of a device, as plain data.

    Attributes
    ----------
    device : Identity
    speeds : Mapping of DeviceCell to Mapping of str to Speed
        For each kind of work, the speed of each batch backend and of ``"cpu"``, fastest first.
    lost : Mapping of str to str
        The reasons why backends are missing from `speeds`, by name.
    cpu : str
        Model of the processor.
    cores : int
        Number of usable cores.
    libraries : Mapping of str to str
        Versions of the installed libraries.
    measured : str
        Time of the measurement, in ISO 8601, UTC.
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
        """Return the names, fastest first, by the geometric mean of `Speed.ratio` over all cells.

        A cell in which every batch backend left more than half of the images to the CPU is ignored,
        because there they differ from the CPU path only by chance. A backend is left out if it was
        not measured in each of the other cells, or left more than half to the CPU in all of them.
        The order is empty if nothing was compared.
        """
        every = [found for found in self.speeds.values() if any(_names_that_decoded(found))]
        common = [name for name in (every[0] if every else ()) if all(name in one for one in every)]
        able = {CPU, *(name for one in every for name in _names_that_decoded(one))}
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
        """Return why it is out of date for this device; empty if it is not."""
        then = _conditions(self.device, self.cpu, self.cores)
        now = _conditions(here, cpu_model(), usable_cores())
        libraries = device_libraries()
        told = _describe_changes(then, then, now)
        told += _describe_changes(sorted({*libraries, *self.libraries}), self.libraries, libraries)
        return f"it was measured with something else ({'; '.join(told)})" if told else ""

    def save(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Save it to a file, atomically; by default where ``decode="auto"`` looks for it."""
        content = {
            "device": self.device._asdict(),
            "cores": self.cores,
            "lost": dict(self.lost),
            "cells": [
                {
                    **cell._asdict(),
                    "speeds": {name: _speed_values(one) for name, one in found.items()},
                }
                for cell, found in self.speeds.items()
            ],
        }
        place = device_ranking_path(self.device.name) if path is None else Path(path)
        return self._save(place, content)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, own: bool = False) -> Self:
        """Load a measurement from a file; raise ValueError if it is damaged.

        With `own`, which means that nobody named the file, also raise ValueError unless the file
        belongs to this user or to the system.
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


def _names_that_decoded(found: Mapping[str, Speed]) -> list[str]:
    """Return the backends that decoded at least half of the images themselves."""
    return [name for name, one in found.items() if name != CPU and one.on_cpu <= _MAX_ON_CPU]


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
"""Names of the quartiles in a file, where they are fields next to their median."""


def _speed_values(speed: Speed) -> dict[str, float | None]:
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


# Fastest first on real photos, from bench/results/default_order.json, and decoder_px500.json for
# `native`. There are two exceptions: PyTorch's decoders come last, because choosing one would
# import PyTorch into programs that do not need it otherwise; kornia_rs comes after Pillow, because
# it holds the GIL.
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
