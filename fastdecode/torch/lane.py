"""Many samples at once, by the native core: it reads, decodes, resizes and normalises them in C.

Python says where each picture is. What is to become of it the core draws by itself where it can,
else Python does, for all of them in one go. The core does what every picture needs; whatever is out
of the ordinary is left to who makes samples one by one, and gives exactly what it would have given
without all this.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from fastdecode import _headers
from fastdecode.native.batch import Items, as_source
from fastdecode.resizing import ResizePlan, core_takes
from fastdecode.torch.as_bytes import as_bytes
from fastdecode.torch.draws import Draws
from fastdecode.torch.transforms.base import Crop, geometry_of, stored_as
from fastdecode.torch.way import Way, way_of

if TYPE_CHECKING:
    from fastdecode.native.batch import Pool
    from fastdecode.native.single import Resize
    from fastdecode.torch.read_ahead import Read

    _Plans: TypeAlias = dict[int, tuple[ResizePlan, Resize]]

__all__ = ["LEFT", "Lane"]

LEFT: Any = object()
"""In the place of a sample that is to be made in another way."""

_IN_PLACE = object()
_TRIAL = 64
_MOST_PYTHON_S = 0.0005
_PARTS, _LEAST_PART = 128, 16


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
    as_bytes : bool
        Leave out the normalising, and make bytes.

    Attributes
    ----------
    part : int
        How many samples to make in one call.
    """

    def __init__(
        self,
        dataset: Any,
        ours: type,
        pool: Pool,
        subset: Sequence[int] | None = None,
        *,
        as_bytes: bool = False,
    ) -> None:
        self._dataset = weakref.ref(dataset)  # which may keep this one
        self._ours = ours
        self._pool = pool
        self._subset = subset
        self._as_bytes = as_bytes
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
        reads: Sequence[Read] | None = None,
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
        reads : sequence of Read, optional
            What others read for each, instead of the dataset.

        Returns
        -------
        list of (image, target) or LEFT
            Where `images` are given, the image stands for nothing.
        """
        dataset = self._dataset()
        way = None if dataset is None else way_of(dataset, self._ours)
        if dataset is None or way is None or not draws.suits(way):
            return [LEFT] * len(indices)
        if self._as_bytes:
            way = way._replace(crop=as_bytes(way.crop), image=None)
        if not (images is None or _has_room(images, way.crop)):
            return [LEFT] * len(indices)
        dataset._settle()
        call = _Call(dataset, way, draws, indices, self._subset, images, reads)
        try:
            items = self._spare.pop()
        except IndexError:
            items = Items()
        try:
            call.run(self._pool, items, stopped)
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
        images: torch.Tensor | None,
        reads: Sequence[Read] | None,
    ) -> None:
        self._reads = reads
        self._dataset = dataset
        self._way = way
        self._draws = draws
        self._indices = indices
        self._subset = subset
        self._images = images
        self._targets: list[Any] = [None] * len(indices)
        self._rows: Sequence[Any] | None = None
        self._done: list[tuple[int, ResizePlan | None]] = []
        self.samples: list[Any] = [LEFT] * len(indices)
        self.made = 0
        self.python_s = 0.0

    def run(self, pool: Pool, items: Items, stopped: Callable[[], bool]) -> None:
        """Make the pictures: in one go where the core can draw, and what that leaves in two."""
        sources = self._find()
        left = () if stopped() else self._crop(pool, items, sources)
        if left and not stopped():
            plans = self._plan(items, left)
            if plans and not stopped():
                self._resize(pool, items, plans)

    def _find(self) -> list[Any]:
        """Ask the dataset where the pictures are: paths, bytes, or None for what is left."""
        reads = self._reads
        for other in reads or ():  # waiting for others is no work of Python's
            with suppress(CancelledError):
                other.exception()
        began = time.perf_counter()
        read, begin, subset = self._dataset.read, self._draws.begin, self._subset
        found: list[Any] = []
        for at, index in enumerate(self._indices):
            source = None
            try:
                begin(at)
                if reads is not None:
                    source, self._targets[at] = reads[at].result()
                else:
                    source, self._targets[at] = read(index if subset is None else subset[index])
                source = as_source(source)
            except Exception:  # it comes again when the item is made by itself
                source = None
            found.append(source)
        self.python_s += time.perf_counter() - began
        return found

    def _crop(self, pool: Pool, items: Items, sources: list[Any]) -> Sequence[int]:
        """Read, and let the core draw and make where it can; return what is left."""
        seeds = self._draws.seeds
        crop = None if seeds is None else self._way.described(orient=self._dataset.orient)
        if seeds is None or crop is None:
            items.read(pool, sources)
            return range(len(sources))
        made, left = items.crop(pool, sources, seeds, crop, *self._place())
        maps = self._way.maps
        self._done = [
            (at, ResizePlan.of_core(items.resize_of(at)) if maps else None) for at in made
        ]
        return left

    def _plan(self, items: Items, left: Sequence[int]) -> _Plans:
        """Decide, and draw, what is to become of each picture."""
        way, draws, headers = self._way, self._draws, items.headers()
        orient = self._dataset.orient
        sides = way.crop.shape[1:]  # type: ignore[index]  # there is one: see `way_of`
        columns = (
            (headers.readable & core_takes(headers)).tolist(),
            headers.width.tolist(),
            headers.height.tolist(),
            headers.has_exif.tolist(),
        )
        rows = list(zip(*columns, strict=True))
        plans: _Plans = {}
        for at in left:
            fits, width, height, exif = rows[at]
            if fits and not (orient and exif and _headers.probe(items.data(at)).orientation != 1):
                try:
                    plan = draws.plan(way, at, width, height)
                    resize = way.crop.core_resize(plan, width, height)
                except Exception:  # likewise
                    resize = None
                if resize is not None and plan.size == sides:
                    plans[at] = plan, resize
                    continue
            draws.left(at)
        return plans

    def _resize(self, pool: Pool, items: Items, plans: _Plans) -> None:
        """Let the core make those that are planned."""
        resizes = [resize for _, resize in plans.values()]
        done = items.resize(pool, list(plans), resizes, *self._place())
        self._done += [(at, plans[at][0]) for at, whole in zip(plans, done, strict=True) if whole]
        self._done.sort(key=itemgetter(0))

    def _place(self) -> tuple[Any, int, int]:
        """Return how pixels are stored, where those of the first picture go, and how far apart."""
        crop, images = self._way.crop, self._images
        if images is None:
            images = self._images = torch.empty(
                (len(self._indices), *crop.shape),  # type: ignore[misc]  # likewise
                dtype=crop.dtype,
                device="cpu",
            )
            rows: Sequence[torch.Tensor] = images.unbind(0)
            image = self._way.image
            self._rows = rows if image is None else [row.as_subclass(image) for row in rows]
        pixels = stored_as(crop.normalize, channels_first=images.is_contiguous())
        return pixels, images.data_ptr(), images.stride(0) * images.element_size()

    def finish(self) -> None:
        """Put pictures and targets together."""
        began = time.perf_counter()
        for at, plan in self._done:
            image = _IN_PLACE if self._rows is None else self._rows[at]
            try:
                self.samples[at] = image, self._target(at, plan)
            except Exception:  # likewise
                self.made -= 1
            self.made += 1
        self.python_s += time.perf_counter() - began

    def _target(self, at: int, plan: ResizePlan | None) -> Any:
        target, transform = self._targets[at], self._dataset.target_transform
        if self._way.maps or transform is not None:
            self._draws.begin(at)
        if plan is not None and self._way.maps:
            target = self._dataset.map_target(target, geometry_of(plan))
        return target if transform is None else transform(target)


def _has_room(images: torch.Tensor, crop: Crop) -> bool:
    return tuple(images.shape[1:]) == crop.shape and images.dtype == crop.dtype
