"""Images that are not made yet: a file, what is done to it, and in which form it is wanted."""

from __future__ import annotations

import bisect
import itertools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from threading import Lock
from typing import Any, NamedTuple, cast
from weakref import WeakSet

import numpy as np
import torch

from fastdecode._system.processor import usable_cores
from fastdecode.errors import begin_with
from fastdecode.native import _library
from fastdecode.native._augment import Operation, as_operations
from fastdecode.native._library import Axis, Patches
from fastdecode.torch.transforms.base import DrawnSample
from fastdecode.types import Image


class ProcessorSettings(NamedTuple):
    """Those of a processor."""

    max_pixels: int | None
    """The most that the header of a file may promise."""
    threads: int | None
    """How many make the images of a batch; None: as many as there are cores."""


class RgbFile(NamedTuple):
    """An RGB image in a file."""

    data: bytes
    """What was in the file when it was opened: it may be another one when the pixels are made.

    It is empty if Pillow decodes.
    """
    name: str
    """The path, for errors; empty if there is none."""
    sides: tuple[int, int]
    """(width, height)."""
    decode: Callable[[], Image]
    """Returns the pixels (H, W, 3) if the core refuses to."""
    settings: ProcessorSettings


class PixelBox(NamedTuple):
    """A part of an image."""

    left: int
    top: int
    height: int
    width: int

    @property
    def value(self) -> tuple[int, int, int, int]:
        """Its numbers in the order of the core's operations."""
        return self.left, self.top, self.width, self.height


_PLANES: tuple[Axis, ...] = ("channel", "row", "column")


class Picture:
    """The memory of a tensor: an image of a file, or of another picture after operations.

    It has three channels of bytes. With a `table` (3, 1, 256), its values are those of the table
    at the bytes; each function of single values changes the table. It may be cut into `patches`.
    """

    def __init__(
        self,
        file: RgbFile,
        size: tuple[int, int],
        before: Picture | None = None,
        operations: tuple[Operation, ...] = (),
        table: torch.Tensor | None = None,
        patches: Patches | None = None,
    ) -> None:
        self.file, self.size = file, size  # (height, width)
        self.before, self.operations, self.table, self.patches = before, operations, table, patches
        self.rows: Image | None = None  # (H, W, 4), of one of which several others are made
        self.values: torch.Tensor | None = None
        self.followers: WeakSet[Picture] = WeakSet()
        self._making = Lock()  # of the rows: two threads must not decode an image of Pillow's
        if before is not None:
            before.followers.add(self)

    def then(
        self, *operations: Operation, size: tuple[int, int] | None = None, **form: Any
    ) -> Picture:
        """Return the picture after operations, or with another table or other patches."""
        form = {"table": self.table, "patches": self.patches} | form
        if self.before is None or (self.table is None and self.patches is None):
            return Picture(self.file, size or self.size, self, operations, **form)
        return Picture(self.file, self.size, self.before, self.operations, **form)

    @property
    def dtype(self) -> torch.dtype:
        return torch.uint8 if self.table is None else self.table.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (3, *self.size) if self.patches is None else self.patches.shape(self.size)

    @property
    def parts(self) -> list[Picture]:
        """The pictures whose values lie here one after the other."""
        return [self]

    @property
    def is_plain(self) -> bool:
        """Whether it is one image that is not cut into patches."""
        return self.patches is None

    @property
    def may_change(self) -> bool:
        """Whether it has no values yet, and nothing is made of them."""
        known = self.before is not None and self.patches is None and self.table is None
        return known and self.values is None and self.rows is None and not self.followers

    def crop(self, box: PixelBox) -> Picture:
        """Return a part of the image."""
        if box == (0, 0, *self.size) and self.patches is None:
            return self
        size, crop = (box.height, box.width), Operation("crop", box.value, "constant")
        if self.before is None or (self.table is None and self.patches is None):
            return self.then(crop, size=size)
        return Picture(self.file, size, self.before, (*self.operations, crop), self.table)

    def part_at(self, place: int) -> tuple[Picture, int]:
        """Return the picture of which a value is, and the place of the value in it."""
        return self, place

    @property
    def steps(self) -> list[int]:
        """How many values lie from one channel, row and column to the next."""
        axes = _PLANES if self.patches is None else self.patches.order
        steps = [math.prod(self.shape[at + 1 :]) for at in range(len(axes))]
        return [steps[axes.index(axis)] for axis in _PLANES]

    def box_at(self, place: int, height: int, width: int) -> PixelBox | None:
        """Return the box of this size whose values begin at a place; of patches, that of one."""
        if self.patches is None:
            top, left = divmod(place, self.size[1])
            box = PixelBox(left, top, height, width)
            return box if top + height <= self.size[0] and left + width <= self.size[1] else None
        how, axis = self.patches, self.patches.order.index("patch")
        number, rest = divmod(place, math.prod(self.shape[axis + 1 :]))
        square, inside = divmod(number, how.merge * how.merge)
        row, column = divmod(square, self.size[1] // width // how.merge)
        top, left = row * how.merge + inside // how.merge, column * how.merge + inside % how.merge
        box = PixelBox(left * width, top * height, height, width)
        return None if rest or how.size != (height, width) else box

    def source(self) -> tuple[Picture, tuple[Operation, ...]]:
        """Return the last picture at hand, or of which several are made; and what follows."""
        at: Picture = self
        operations: tuple[Operation, ...] = ()
        while (
            at.before is not None
            and at.rows is None
            and at.values is None
            and (at is self or not at._is_for_several)
        ):
            at, operations = at.before, at.operations + operations
        return at, operations

    @property
    def _is_for_several(self) -> bool:
        return len({one.operations for one in self.followers}) > 1

    def shown(self) -> torch.Tensor:
        """Return the values to somebody who may change them.

        So what is made of them is made before.
        """
        make_all([self, *self.followers])
        return cast("torch.Tensor", self.values)

    def write(self, out: torch.Tensor) -> None:
        """Write the values to memory, one after the other."""
        if self.values is not None:
            out.copy_(self.values.view(-1))
            return
        table = None if self.table is None else self.table.float().numpy().tobytes()
        dtype: Any = str(self.dtype).removeprefix("torch.")
        form = _library.stored(
            None, channels_first=True, dtype=dtype, table=table, patches=self.patches
        )
        self._write(out.data_ptr(), form)

    def _write(self, out: int, form: Any) -> None:
        source, operations = self.source()
        rows = source.pixels() if source is not self else self.rows
        if rows is None:
            resize, rest = _planned(operations, self.file.sides, self.size)
            data = self.file.data
            if data and resize and _library.decode_resized(data, resize, form, out, rest):
                return
            rows = self._decoded()
        resize, rest = _planned(operations, (rows.shape[1], rows.shape[0]), self.size)
        if resize is None or not _library.resize_pixels(rows, resize, form, out, rest):
            raise MemoryError(f"{self.file.name or 'an image'} could not become {self.shape}")

    def pixels(self) -> Image | None:
        """Return the pixels (H, W, 3 or 4), for what is made of it; None: the file is taken."""
        if self.rows is None and self.values is not None:
            values: Image = self.values.permute(1, 2, 0).contiguous().numpy()
            return values
        if self._is_for_several:
            with self._making:
                if self.rows is None:
                    rows = np.empty((*self.size, 4), np.uint8)
                    form = _library.stored(None, channels_first=False, channels=4)
                    self._write(rows.ctypes.data, form)
                    self.rows = rows
        return self.rows

    def _decoded(self) -> Image:
        try:
            pixels = self.file.decode()
        except Exception as error:
            if self.file.name and error.args and self.file.name not in str(error.args[0]):
                begin_with(error, self.file.name)
            raise
        return np.ascontiguousarray(pixels)


class Album(Picture):
    """Several pictures of one type, one after the other, as `stack` and `cat` put them."""

    is_plain = False

    def __init__(self, parts: Sequence[Picture]) -> None:
        first = parts[0]
        super().__init__(first.file, first.size, table=first.table, patches=first.patches)
        self._parts = [*parts]
        self._ends = [*itertools.accumulate(math.prod(one.shape) for one in parts)]

    def then(self, *_: Operation, size: Any = None, **form: Any) -> Picture:  # noqa: ARG002
        """Return the pictures with another table."""
        return Album([one.then(**form) for one in self.parts])

    @property
    def parts(self) -> list[Picture]:
        return self._parts

    def part_at(self, place: int) -> tuple[Picture, int]:
        at = bisect.bisect_right(self._ends, place)
        return self._parts[at].part_at(place - (self._ends[at - 1] if at else 0))

    @property
    def shape(self) -> tuple[int, ...]:
        return (self._ends[-1],)


def together(parts: list[Picture]) -> Picture:
    """Return one picture with the values of several."""
    return Album(parts) if len(parts) > 1 else parts[0]


@lru_cache(maxsize=256)
def _planned(
    operations: tuple[Operation, ...], sides: tuple[int, int], size: tuple[int, int]
) -> tuple[Any, Any]:
    """Return what the core does to an image (width, height): a resize, and the rest."""
    drawn = DrawnSample.of(as_operations(operations), sides, size)
    return drawn.plan.for_core(*sides, 1), drawn.rest


def make_all(pictures: Sequence[Picture], memory: Sequence[torch.Tensor] | None = None) -> None:
    """Make the values of pictures, in threads; write them to other `memory` if that is given."""
    if memory is None:
        new = [(one, _memory(one)) for one in pictures if one.values is None]
    else:
        new = [*zip(pictures, memory, strict=True)]
    calls = []
    for one, values in new:
        parts, at = values.view(-1), 0
        for part in one.parts:
            count = math.prod(part.shape)
            calls.append((part, parts[at : at + count]))
            at += count
    unmade = (part for part, _ in calls if part.values is None)
    sources = {id(one): one for one in (part.source()[0] for part in unmade)}
    _in_threads(Picture.pixels, [(one,) for one in sources.values()])
    _in_threads(Picture.write, calls)
    for one, values in new if memory is None else ():
        one.values = values


def _memory(picture: Picture) -> torch.Tensor:
    """Return memory for the values: from NumPy, which gets it in large pages."""
    count = math.prod(picture.shape) * picture.dtype.itemsize
    return torch.from_numpy(np.empty(count, np.uint8)).view(picture.dtype).view(picture.shape)


def _in_threads(function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> None:
    threads = calls[0][0].file.settings.threads if calls else 1
    if torch.utils.data.get_worker_info() is not None:
        threads = 1  # a worker process has one core to itself
    if len(calls) < 2 or threads == 1:
        for call in calls:
            function(*call)
    else:
        list(_executor(threads, os.getpid()).map(function, *zip(*calls, strict=True)))


@cache
def _executor(threads: int | None, _process: int) -> ThreadPoolExecutor:
    """Return the threads of this process."""
    return ThreadPoolExecutor(usable_cores() if threads is None else threads, "fastdecode")
