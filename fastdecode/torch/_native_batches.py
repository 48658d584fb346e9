"""Batches of samples made in the native core, which reads, decodes, resizes and normalises in C.

Python says where each image is. The core draws the random numbers of each sample where it can;
otherwise Python draws them, for all samples together. The core leaves every unusual sample to
Python, which makes it on its own. The result is the same as if the core had not been used.
"""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fastdecode import _headers
from fastdecode._resizing import ResizePlan, core_can_decode, core_may_decode
from fastdecode.native._augment import compiled
from fastdecode.native._batch import Items, as_source
from fastdecode.torch._fuse import as_uint8
from fastdecode.torch.mixin import set_up_process
from fastdecode.torch.transforms._random_crop import generator_of
from fastdecode.torch.transforms.base import Crop, core_pixel_format, plan_geometry

if TYPE_CHECKING:
    from fastdecode.geometry import Geometry
    from fastdecode.native._batch import Pool
    from fastdecode.native._library import CoreResize
    from fastdecode.torch._read_ahead import Read

FALLBACK: Any = object()
"""Marks a sample that Python must make on its own."""

ELSEWHERE: Any = object()
"""In place of an index: the sample is another dataset's."""

_IN_PLACE = object()
_TRIAL = 64
_MAX_PYTHON_S = 0.0005
_PARTS, _MIN_PART = 128, 16


class EligibleCrop(NamedTuple):
    """How the core or a device makes the samples of a dataset.

    `image` is as for `Fused`; `maps` says that the dataset has a ``map_target``.
    """

    crop: Crop
    image: type[torch.Tensor] | None
    maps: bool


class Draws:
    """Random numbers for the samples of one call, each drawn from the sample's own seed.

    `seed_all` is called with that seed before user code runs, because user code may draw from the
    global generators.
    """

    def __init__(self, seeds: Sequence[int], seed_all: Callable[[int], None] | None = None) -> None:
        self.seeds = seeds
        self._seed_all = seed_all

    def begin(self, at: int) -> None:
        """Seed the generators that user code may draw from."""
        if self._seed_all is not None:
            self._seed_all(self.seeds[at])

    def plan(
        self, eligible: EligibleCrop, at: int, width: int, height: int
    ) -> tuple[ResizePlan, int]:
        """Draw the random numbers of the sample at a place in the batch; return the state after."""
        generator = generator_of(self.seeds[at])
        return eligible.crop.plan(width, height, generator), generator.state


class NativeBatchMaker:
    """Makes samples of a dataset in a pool of the core. Any number of threads may use it at once.

    `as_uint8` makes uint8 images without normalising them.
    """

    def __init__(self, dataset: Any, pool: Pool, *, as_uint8: bool = False) -> None:
        self._dataset = weakref.ref(dataset)  # the dataset may hold this object
        self._pool = pool
        self._as_uint8 = as_uint8
        self._spare: deque[Items] = deque()
        self._asked = self._made = 0
        self._python_s = 0.0
        self.part = max(_MIN_PART, _PARTS // pool.threads)
        """How many samples to make in one call."""

    @property
    def eligible(self) -> bool:
        """Whether the core made at least half of the samples so far; else trying does not pay."""
        return self._asked < _TRIAL or 2 * self._made >= self._asked

    @property
    def worthwhile(self) -> bool:
        """Whether it is `eligible` and the dataset's own Python code is fast enough.

        Slow Python code is divided better among threads that make samples one by one.
        """
        slow = self._asked >= _TRIAL and self._python_s > _MAX_PYTHON_S * self._asked
        return self.eligible and not slow

    def make(
        self,
        indices: Sequence[Any],
        draws: Draws,
        images: torch.Tensor | None = None,
        stopped: Callable[[], bool] = bool,
        reads: Sequence[Read] | None = None,
    ) -> list[Any]:
        """Make an (image, target), or FALLBACK, for each index.

        If `images` (N, 3, H, W), contiguous or channels last, is given, the core writes the images
        there; the image in each pair is then only a placeholder. `stopped` returns whether the
        samples are not wanted any more. `reads` holds what other threads have read for each index
        instead of the dataset.
        """
        dataset = self._dataset()
        eligible = None if dataset is None else self._eligible_crop(dataset)
        if eligible is None or not (images is None or _fits(images, eligible.crop)):
            return [FALLBACK] * len(indices)
        set_up_process(dataset)
        call = _Call(dataset, eligible, draws, indices, images, reads)
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
        self._asked += sum(index is not ELSEWHERE for index in indices)
        self._made += call.made
        self._python_s += call.python_s
        return call.samples

    def _eligible_crop(self, dataset: Any) -> EligibleCrop | None:
        """Return how the core makes samples; None if the dataset or the backend forbids it."""
        eligible: EligibleCrop | str = dataset._eligible_crop()
        if isinstance(eligible, str) or not core_may_decode(dataset.decode_options.backend):
            return None
        if self._as_uint8:
            return eligible._replace(crop=as_uint8(eligible.crop), image=None)
        return eligible


@dataclass
class _Call:
    """One call of `NativeBatchMaker.make`, step by step."""

    _dataset: Any
    _eligible: EligibleCrop
    _draws: Draws
    _indices: Sequence[Any]
    _images: torch.Tensor | None
    _reads: Sequence[Read] | None

    def __post_init__(self) -> None:
        self._targets: list[Any] = [None] * len(self._indices)
        self._rows: Sequence[Any] | None = None
        self._done: list[tuple[int, Geometry | None]] = []
        self.samples: list[Any] = [FALLBACK] * len(self._indices)
        self.made = 0
        self.python_s = 0.0

    def run(self, pool: Pool, items: Items, stopped: Callable[[], bool]) -> None:
        """Make the images: in one call where the core can draw, and the others in two calls."""
        sources = self._locate_images()
        left = () if stopped() else self._crop(pool, items, sources)
        if left and not stopped():
            plans = self._plan(items, left)
            if plans and not stopped():
                self._resize(pool, items, plans)

    def _locate_images(self) -> list[Any]:
        """Ask the dataset where the images are: paths, bytes, or None for those left to Python."""
        reads = self._reads
        for other in reads or ():  # the wait for other threads does not count as Python's time
            with suppress(CancelledError):
                other.exception()
        began = time.perf_counter()
        read, begin = self._dataset.read, self._draws.begin
        found: list[Any] = []
        for at, index in enumerate(self._indices):
            source = None
            if index is ELSEWHERE:
                found.append(None)
                continue
            try:
                begin(at)
                if reads is not None:
                    source, self._targets[at] = reads[at].result()
                else:
                    source, self._targets[at] = read(index)
                source = as_source(source)
            except Exception:  # raised again when the sample is made on its own
                source = None
            found.append(source)
        self.python_s += time.perf_counter() - began
        return found

    def _crop(self, pool: Pool, items: Items, sources: list[Any]) -> Sequence[int]:
        """Read the files, let the core draw and make what it can, and return the places left."""
        crop = self._core_crop()
        if crop is None:
            items.read(pool, sources)
            return range(len(sources))
        made, left = items.crop(pool, sources, self._draws.seeds, crop, *self._output_layout())
        self._add_made(items, made, lambda at: ResizePlan.from_core(items.resize_of(at)))
        return left

    def _add_made(
        self, items: Items, made: Iterable[int], plan_of: Callable[[int], ResizePlan]
    ) -> None:
        """Note which samples are made, with their geometry if the dataset maps targets."""
        if not self._eligible.maps:
            self._done += [(at, None) for at in made]
            return
        headers = items.headers()
        width, height = headers.width.tolist(), headers.height.tolist()
        self._done += [(at, plan_geometry(plan_of(at), width[at], height[at])) for at in made]

    def _core_crop(self) -> Any:
        """Return the crop as ``fd_crop *`` for the core; None if Python must draw."""
        crop = self._eligible.crop
        try:
            made = crop.as_core_crop(orient=self._dataset.decode_options.orient)
        except Exception:  # raised again when the sample is made on its own
            return None
        sides = None if made is None else (3, made.height, made.width)
        return made if sides == crop.shape else None

    def _plan(
        self, items: Items, left: Sequence[int]
    ) -> dict[int, tuple[ResizePlan, CoreResize, int]]:
        """Draw and plan how each image is resized; leave out images that the core cannot make."""
        eligible, draws, headers = self._eligible, self._draws, items.headers()
        orient = self._dataset.decode_options.orient
        sides = eligible.crop.shape[1:]  # type: ignore[index]  # an eligible crop has a shape
        columns = (
            (headers.readable & core_can_decode(headers)).tolist(),
            headers.width.tolist(),
            headers.height.tolist(),
            headers.has_exif.tolist(),
        )
        rows = list(zip(*columns, strict=True))
        plans: dict[int, tuple[ResizePlan, CoreResize, int]] = {}
        for at in left:
            fits, width, height, exif = rows[at]
            if fits and not (orient and exif and _headers.probe(items.data(at)).orientation != 1):
                try:
                    plan, state = draws.plan(eligible, at, width, height)
                    resize = eligible.crop.core_resize(plan, width, height)
                except Exception:  # raised again when the sample is made on its own
                    resize = None
                if resize is not None and plan.size == sides:
                    plans[at] = plan, resize, state
        return plans

    def _resize(
        self, pool: Pool, items: Items, plans: dict[int, tuple[ResizePlan, CoreResize, int]]
    ) -> None:
        """Let the core make the planned images."""
        _, resizes, states = zip(*plans.values(), strict=True)
        program = self._eligible.crop.program
        drawn = (compiled(program), states) if program else ()
        done = items.resize(pool, list(plans), resizes, *self._output_layout(), *drawn)
        made = [at for at, whole in zip(plans, done, strict=True) if whole]
        self._add_made(items, made, lambda at: plans[at][0])
        self._done.sort(key=itemgetter(0))

    def _output_layout(self) -> tuple[Any, int, int]:
        """Return the format of pixels, the address of the first image, and the stride in bytes."""
        crop, images = self._eligible.crop, self._images
        if images is None:
            images = self._images = torch.empty(
                (len(self._indices), *crop.shape),  # type: ignore[misc]  # it has a shape
                dtype=crop.dtype,
                device="cpu",
            )
            rows: Sequence[torch.Tensor] = images.unbind(0)
            image = self._eligible.image
            self._rows = rows if image is None else [row.as_subclass(image) for row in rows]
        pixels = core_pixel_format(crop.normalize, channels_first=images.is_contiguous())
        return pixels, images.data_ptr(), images.stride(0) * images.element_size()

    def finish(self) -> None:
        """Pair the images with their targets."""
        began = time.perf_counter()
        rows, targets = self._rows, self._targets
        as_read = not self._eligible.maps and self._dataset.target_transform is None
        for at, geometry in self._done:
            image = _IN_PLACE if rows is None else rows[at]
            try:
                self.samples[at] = image, targets[at] if as_read else self._target(at, geometry)
            except Exception:  # raised again when the sample is made on its own
                self.made -= 1
            self.made += 1
        self.python_s += time.perf_counter() - began

    def _target(self, at: int, geometry: Geometry | None) -> Any:
        target, transform = self._targets[at], self._dataset.target_transform
        self._draws.begin(at)
        if geometry is not None:
            target = self._dataset.map_target(target, geometry)
        return target if transform is None else transform(target)


def _fits(images: torch.Tensor, crop: Crop) -> bool:
    return tuple(images.shape[1:]) == crop.shape and images.dtype == crop.dtype
