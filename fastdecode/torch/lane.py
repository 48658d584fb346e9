"""Many samples at once, by the native core: it reads, decodes, resizes and normalises them in C.

Python has its say in between, for all of them in one go: where each picture is, and what is to
become of it. The core does what every picture needs; whatever is out of the ordinary is left to who
makes samples one by one, and gives exactly what it would have given without all this.
"""

from __future__ import annotations

import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fastdecode.buffers import as_buffer
from fastdecode.native.batch import Headers, Items
from fastdecode.torch.transforms import direct
from fastdecode.torch.transforms.base import Crop, Plan, geometry_of
from fastdecode.torch.way import Way, way_of

if TYPE_CHECKING:
    from fastdecode.native.pool import Pool

__all__ = ["LEFT", "Draws", "Lane"]

LEFT: Any = object()
"""In the place of a sample that is to be made in another way."""

_IN_PLACE = object()
_TRIAL = 64
_MOST_PYTHON_S = 0.0005
_PARTS, _LEAST_PART = 128, 16


class Draws:
    """Random numbers of the samples of one call: each item's follow from a seed of its own.

    Parameters
    ----------
    seeds : sequence of int
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self._seeds = seeds

    def begin(self, at: int) -> None:
        """Prepare for code of the user's, which may draw from wherever it likes."""

    def plan(self, way: Way, at: int, width: int, height: int) -> Plan:
        """Draw for the item at that place of the batch."""
        return way.crop.seeded_plan(width, height, self._seeds[at])

    def left(self, at: int) -> None:
        """Take note, in order, that the item is to be made in another way."""


class Lane:
    """Makes samples of a dataset by a pool. Any number of threads may use it at once.

    Parameters
    ----------
    dataset : DecodeDataset
    ours : type
        `DecodeDataset` itself: what a subclass has overridden is not passed over.
    pool : Pool
    subset : sequence of int, optional
        What indices stand for.

    Attributes
    ----------
    part : int
        How many samples to make in one call.
    """

    def __init__(
        self, dataset: Any, ours: type, pool: Pool, subset: Sequence[int] | None = None
    ) -> None:
        self._dataset = weakref.ref(dataset)  # which may keep this one
        self._ours = ours
        self._pool = pool
        self._subset = subset
        self._spare: deque[Items] = deque()
        self._asked = self._made = 0
        self._python_s = 0.0
        self.part = max(_LEAST_PART, _PARTS // pool.threads)

    @property
    def fits(self) -> bool:
        """Whether most of the samples so far were for it: if not, it is better not to try."""
        return self._asked < _TRIAL or 2 * self._made >= self._asked

    @property
    def pays(self) -> bool:
        """Whether, besides, the dataset's own Python is no matter.

        If it takes long, threads that make samples one by one share it better.
        """
        slow = self._asked >= _TRIAL and self._python_s > _MOST_PYTHON_S * self._asked
        return self.fits and not slow

    def make(
        self,
        indices: Sequence[Any],
        draws: Draws,
        images: torch.Tensor | None = None,
        stopped: Callable[[], bool] = bool,
    ) -> list[Any]:
        """Make samples.

        Parameters
        ----------
        indices : sequence of int
        draws : Draws
        images : tensor (N, 3, H, W), optional
            Where the pictures go, contiguous or channels last; else into memory of their own.
        stopped : callable
            Whether nobody wants them any more.

        Returns
        -------
        list of (image, target) or LEFT
            Where `images` are given, the image stands for nothing.
        """
        dataset = self._dataset()
        way = None if dataset is None else way_of(dataset, self._ours)
        if dataset is None or way is None:
            return [LEFT] * len(indices)
        if not (images is None or _has_room(images, way.crop)):
            return [LEFT] * len(indices)
        dataset._settle()
        call = _Call(dataset, way, draws, indices, self._subset)
        try:
            items = self._spare.pop()
        except IndexError:
            items = Items()
        try:
            headers = items.read(self._pool, call.sources())
            if not stopped():
                call.plan(headers, items)
            if not stopped():
                call.decode(self._pool, items, images)
        finally:
            items.clear()
            self._spare.append(items)
        call.finish()
        self._asked += len(indices)
        self._made += call.made
        self._python_s += call.python_s
        return call.samples


class _Call:
    """One call of `Lane.make`, step by step."""

    def __init__(
        self,
        dataset: Any,
        way: Way,
        draws: Draws,
        indices: Sequence[Any],
        subset: Sequence[int] | None,
    ) -> None:
        self._dataset = dataset
        self._way = way
        self._draws = draws
        self._indices = indices
        self._subset = subset
        self._targets: list[Any] = [None] * len(indices)
        self._wanted: list[int] = []
        self._plans: list[Plan] = []
        self._numbers: list[tuple[float, ...]] = []
        self._done: list[bool] = []
        self._rows: Sequence[Any] | None = None
        self.samples: list[Any] = [LEFT] * len(indices)
        self.made = 0
        self.python_s = 0.0

    def sources(self) -> list[Any]:
        """Ask the dataset where the pictures are: paths, bytes, or None for what is left."""
        began = time.perf_counter()
        read, begin, subset = self._dataset.read, self._draws.begin, self._subset
        found: list[Any] = []
        for at, index in enumerate(self._indices):
            source = None
            try:
                begin(at)
                source, self._targets[at] = read(index if subset is None else subset[index])
                source = _as_source(source)
            except Exception:  # it comes again when the item is made by itself
                source = None
            found.append(source)
        self.python_s += time.perf_counter() - began
        return found

    def plan(self, headers: Headers, items: Items) -> None:
        """Decide, and draw, what is to become of each picture."""
        way, draws = self._way, self._draws
        orient = self._dataset.orient
        sides = way.crop.shape[1:]  # type: ignore[index]  # there is one: see `way_of`
        columns = (
            (headers.readable & direct.fits(headers)).tolist(),
            headers.width.tolist(),
            headers.height.tolist(),
            headers.has_exif.tolist(),
        )
        for at, (fits, width, height, exif) in enumerate(zip(*columns, strict=True)):
            if fits and not (orient and exif and not direct.upright(items.data(at))):
                try:
                    plan = draws.plan(way, at, width, height)
                    numbers = way.crop.numbers(plan, width, height)
                except Exception:  # likewise
                    numbers = None
                if numbers is not None and plan.size == sides:
                    self._wanted.append(at)
                    self._plans.append(plan)
                    self._numbers.append(numbers)
                    continue
            draws.left(at)

    def decode(self, pool: Pool, items: Items, images: torch.Tensor | None) -> None:
        """Let the core make those that are for it."""
        if not self._wanted:
            return
        crop = self._way.crop
        if images is None:
            images = torch.empty(
                (len(self._indices), *crop.shape),  # type: ignore[misc]  # likewise
                dtype=crop.dtype,
                device="cpu",
            )
            rows: Sequence[torch.Tensor] = images.unbind(0)
            image = self._way.image
            self._rows = rows if image is None else [row.as_subclass(image) for row in rows]
        pixels = direct.pixels_of(crop.normalize, channels_first=images.is_contiguous())
        stride = images.stride(0) * images.element_size()
        out = images.data_ptr()
        self._done = items.resize(pool, self._wanted, self._numbers, pixels, out, stride)

    def finish(self) -> None:
        """Put pictures and targets together."""
        began = time.perf_counter()
        for at, plan, done in zip(self._wanted, self._plans, self._done, strict=False):
            if done:
                image = _IN_PLACE if self._rows is None else self._rows[at]
                try:
                    self.samples[at] = image, self._target(at, plan)
                except Exception:  # likewise
                    self.made -= 1
                self.made += 1
        self.python_s += time.perf_counter() - began

    def _target(self, at: int, plan: Plan) -> Any:
        target, transform = self._targets[at], self._dataset.target_transform
        if self._way.maps or transform is not None:
            self._draws.begin(at)
        if self._way.maps:
            target = self._dataset.map_target(target, geometry_of(plan))
        return target if transform is None else transform(target)


def _has_room(images: torch.Tensor, crop: Crop) -> bool:
    return tuple(images.shape[1:]) == crop.shape and images.dtype == crop.dtype


def _as_source(source: Any) -> Any:
    """Return the bytes, or the path as a string."""
    if type(source) is bytes or type(source) is str:
        return source
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source)
    return as_buffer(source)
