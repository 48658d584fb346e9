"""An order of preference among the backends: plain data, which `calibrate` measures."""

from __future__ import annotations

import json
import os
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args

from fastdecode import _files
from fastdecode._system import cpu_model, libraries, ranking_is_named, ranking_path
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

__all__ = ["DEFAULT", "SIZE_LIMITS", "Cell", "Ranking", "known_order", "reordered", "size_class"]

SCHEMA = 1
SIZE_LIMITS = (100_000, 1_000_000, 6_000_000)  # pixels; between what calibration measures at
_DAMAGED = "is no ranking that fastdecode wrote"
_BUSY = 0.08  # an idle machine stays below half of that


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
class Ranking:
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
    """

    orders: Mapping[Any, Sequence[str]] = field(default_factory=dict)
    speeds: Mapping[Cell, Mapping[str, float]] = field(default_factory=dict)
    cpu: str = ""
    libraries: Mapping[str, str] = field(default_factory=dict)
    measured: str = ""
    disturbance: float = 0.0

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
        changed = sorted(
            name for name in {*here, *self.libraries} if here.get(name) != self.libraries.get(name)
        )
        if not changed:
            return ""
        told = [
            f"{name} {self.libraries.get(name, 'missing')} then, {here.get(name, 'missing')} now"
            for name in changed
        ]
        return f"libraries have changed since it was measured ({'; '.join(told)})"

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
        target = ranking_path() if path is None else Path(path)
        _files.check_writable(target, parents=True)
        _files.write_text(target, self._to_json())
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str] | None = None) -> Ranking:
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
        place = ranking_path() if path is None else path
        return _files.read_text(place, cls._from_json, _DAMAGED, own=own)

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

    def _to_json(self) -> str:
        cells = [
            {**cell._asdict(), "order": names, "speeds": dict(self.speeds.get(cell, {}))}
            for cell, names in self.orders.items()
        ]
        content = {
            "schema": SCHEMA,
            "cpu": self.cpu,
            "libraries": dict(self.libraries),
            "measured": self.measured,
            "disturbance": self.disturbance,
            "cells": cells,
        }
        return json.dumps(content, indent=1)

    @classmethod
    def _from_json(cls, text: str) -> Ranking:
        content = json.loads(text)
        if content["schema"] != SCHEMA:
            raise ValueError(f"its schema is {content['schema']}, and this version reads {SCHEMA}")
        orders = {}
        speeds = {}
        for values in content["cells"]:
            cell = _cell(tuple(values[name] for name in Cell._fields))
            orders[cell] = values["order"]
            if values["speeds"]:
                speeds[cell] = {name: float(speed) for name, speed in values["speeds"].items()}
        words = (content["cpu"], content["measured"], *content["libraries"].values())
        if not all(isinstance(word, str) and (word.isprintable() or not word) for word in words):
            raise ValueError("what should be text is none")
        return cls(
            orders,
            speeds,
            content["cpu"],
            dict(content["libraries"]),
            content["measured"],
            float(content.get("disturbance", 0.0)),
        )


def known_order(names: Iterable[str], format: Format, reduce: Reduce) -> list[str]:
    """Put backends into the default order, those that are not in it last."""
    known = DEFAULT.order(format, reduce)
    return sorted(names, key=lambda name: known.index(name) if name in known else len(known))


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
