"""Batches of samples made in the native core, which reads, decodes, resizes and normalises in C.

Python says where each image is, and the core does the rest. It leaves every unusual sample to
Python, which makes it on its own. The result is the same as if the core had not been used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from fastdecode import _formats
from fastdecode._decode.resizing import core_may_decode
from fastdecode.errors import FastDecodeError
from fastdecode.native._pool import as_source
from fastdecode.torch._user_code import seed_global_generators
from fastdecode.torch.dataset import EligibleRecipe, Settings, map_targets
from fastdecode.torch.mixin import set_up_process
from fastdecode.torch.transforms._random_crop import draws_beside_users_code, generator_of
from fastdecode.torch.transforms.base import Recipe, core_pixel_format

if TYPE_CHECKING:
    from fastdecode.geometry import Geometry
    from fastdecode.native._pool import Items, Pool
    from fastdecode.torch._loader.order import Item

FALLBACK: Any = object()
"""Marks a sample that Python must make on its own."""

Take: TypeAlias = "Callable[[tuple[int, ...], torch.dtype], torch.Tensor]"
"""Returns memory for a shape and a type, whose values are not initialised."""

_IN_PLACE = object()
_TRIAL = 64
_MAX_PYTHON_S = 0.0005


def take_new(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return new memory."""
    return torch.empty(shape, dtype=dtype, device="cpu")


class NativeBatchMaker:
    """Makes samples of a dataset in a pool of the core. Any number of threads may use it at once.

    `place_of` returns where in the dataset an item is. Code of the user's is called under `lock`.
    `as_uint8` makes uint8 images without normalising them. `isolated` says that there is no such
    code. With `seeds`, the global generators are seeded for each sample.
    """

    def __init__(
        self,
        dataset: Any,
        settings: Settings,
        pool: Pool,
        place_of: Callable[[Any], Any],
        lock: AbstractContextManager[Any],
        *,
        as_uint8: bool = False,
        isolated: bool = True,
        seeds: bool = False,
    ) -> None:
        self.dataset = dataset
        self.settings = settings
        self.place_of = place_of
        self.lock = lock
        self.isolated = isolated
        self.seeds = seeds
        self._pool = pool
        self._as_uint8 = as_uint8
        self._recipe = self._eligible_recipe()
        self._asked = self._made = 0
        self._python_s = 0.0
        self.part = pool.part

    @property
    def eligible(self) -> bool:
        """Whether the core made at least half of the samples so far; else trying does not pay."""
        return self._asked < _TRIAL or 2 * self._made >= self._asked

    @property
    def worthwhile(self) -> bool:
        """Whether it is `eligible`, and large parts pay: the dataset's Python code is fast enough.

        Slow Python code is divided better among threads in small parts.
        """
        slow = self._asked >= _TRIAL and self._python_s > _MAX_PYTHON_S * self._asked
        return self.eligible and not slow

    def make(
        self,
        items: Sequence[Item],
        images: torch.Tensor | None = None,
        stopped: Callable[[], bool] = bool,
        take: Take = take_new,
    ) -> list[Any]:
        """Make a sample as the user gets it, or FALLBACK, for each item.

        If `images` (N, 3, H, W), contiguous or channels last, is given, the core writes the images
        there; the image in each sample is then only a placeholder. Else the images lie in memory
        from `take`. `stopped` returns whether the samples are not wanted any more.
        """
        eligible = self._recipe
        if eligible is None or not (images is None or _fits(images, eligible.recipe)):
            return [FALLBACK] * len(items)
        set_up_process(self.dataset)
        call = _Call(self, eligible, items, images, take)
        with self._pool.items() as core:
            call.run(self._pool, core, stopped)
        call.finish()
        self._asked += len(items)
        self._made += call.made
        self._python_s += call.python_s
        return call.samples

    def _eligible_recipe(self) -> EligibleRecipe | None:
        """Return how the core makes samples; None if the dataset or the backend forbids it."""
        eligible: EligibleRecipe | str
        eligible = self.dataset._eligible_recipe(self.settings, finishes=not self._as_uint8)
        if isinstance(eligible, str) or not core_may_decode(self.settings.options.backend):
            return None
        draws_between = self.seeds and eligible.maps
        if draws_between or (eligible.finish is not None and not self.isolated):
            return None  # code of the user's draws before and after the core, for each sample
        if self._as_uint8:
            return eligible._replace(recipe=eligible.recipe.in_bytes(), image=None)
        return eligible


@dataclass
class _Call:
    """One call of `NativeBatchMaker.make`, step by step."""

    _maker: NativeBatchMaker
    _eligible: EligibleRecipe
    _items: Sequence[Item]
    _images: torch.Tensor | None
    _take: Take

    def __post_init__(self) -> None:
        self._dataset = self._maker.dataset
        self._targets: list[Any] = [None] * len(self._items)
        self._seeds = [item.seed for item in self._items]
        self._rows: Sequence[Any] | None = None
        self._done: list[tuple[int, Geometry | None]] = []
        self.samples: list[Any] = [FALLBACK] * len(self._items)
        self.made = 0
        self.python_s = 0.0

    def run(self, pool: Pool, items: Items, stopped: Callable[[], bool]) -> None:
        """Read the files, and make the images of those that the core takes."""
        sources = self._locate_images()
        orient = self._maker.settings.options.orient
        recipe = self._core_recipe(orient=orient)
        if stopped() or recipe is None:
            return
        seeds, how = self._seeds, self._output_layout()
        made, left = items.make(pool, sources, seeds, recipe, *how)
        self._add_made(items, made)
        if orient and left and not stopped():
            again = self._upright(items, left)
            recipe = self._core_recipe(orient=False)
            self._add_made(items, items.make(pool, again, seeds, recipe, *how)[0])
        self._done.sort(key=itemgetter(0))

    def _upright(self, items: Items, left: Sequence[int]) -> list[memoryview | None]:
        """Return the bytes of those of the items left whose Exif segment turns nothing."""
        turned, found = items.headers().may_turn.tolist(), dict.fromkeys(range(len(self._items)))
        for at in left:
            with suppress(FastDecodeError):
                if turned[at] and _formats.probe(items.data(at)).orientation == 1:
                    found[at] = items.data(at)
        return [*found.values()]

    def _locate_images(self) -> list[Any]:
        """Ask the dataset where the images are: paths, bytes, or None for those left to Python."""
        read, place_of = self._dataset.read, self._maker.place_of
        found: list[Any] = []
        with self._maker.lock:
            began = time.perf_counter()
            for at, item in enumerate(self._items):
                try:
                    if self._maker.seeds:
                        seed_global_generators(item.seed)
                    source, self._targets[at] = read(place_of(item.index))
                    if not self._maker.isolated:
                        generator = draws_beside_users_code(item.seed, globally=self._maker.seeds)
                        self._seeds[at] = generator.state
                    if self._maker.seeds:
                        target, by = self._targets[at], self._maker.settings.target_transform
                        self._targets[at] = map_targets(self._dataset, target, None, by)
                    found.append(as_source(source))
                except Exception:  # raised again when the sample is made on its own
                    found.append(None)
            self.python_s += time.perf_counter() - began
        return found

    def _add_made(self, items: Items, made: Iterable[int]) -> None:
        """Note which samples are made, with their geometry if the dataset maps targets."""
        if not self._eligible.maps:
            self._done += [(at, None) for at in made]
            return
        headers, draw = items.headers(), self._eligible.recipe.draw
        width, height = headers.width.tolist(), headers.height.tolist()
        for at in made:
            drawn = draw(width[at], height[at], generator_of(self._seeds[at]))
            self._done.append((at, drawn.geometry()))

    def _core_recipe(self, *, orient: bool) -> Any:
        """Return the recipe as ``fd_recipe *`` for the core; None if it cannot do that."""
        recipe = self._eligible.recipe
        try:
            max_pixels = self._maker.settings.options.max_pixels
            made = recipe.as_core_recipe(orient=orient, max_pixels=max_pixels)
        except Exception:  # raised again when the sample is made on its own
            return None
        sides = None if made is None else (recipe.channels, made.height, made.width)
        return made if sides == recipe.shape else None

    def _output_layout(self) -> tuple[Any, int, int]:
        """Return the format of pixels, the address of the first image, and the stride in bytes."""
        recipe, images = self._eligible.recipe, self._images
        if images is None:
            shape: Any = recipe.shape
            images = self._images = self._take((len(self._items), *shape), recipe.dtype)
            rows: Sequence[torch.Tensor] = images.unbind(0)
            image = self._eligible.image
            self._rows = rows if image is None else [row.as_subclass(image) for row in rows]
        first, channels = images.is_contiguous(), images.shape[1]
        pixels = core_pixel_format(recipe.normalize, channels_first=first, channels=channels)
        return pixels, images.data_ptr(), images.stride(0) * images.element_size()

    def finish(self) -> None:
        """Pair the images with their targets."""
        began = time.perf_counter()
        rows, targets = self._rows, self._targets
        by = self._maker.settings.target_transform
        as_read = not self._eligible.maps and by is None
        as_read |= self._maker.seeds
        bare, finish = self._dataset._is_bare(), self._eligible.finish
        with self._maker.lock:
            for at, geometry in self._done:
                image: Any = _IN_PLACE if rows is None else rows[at]
                try:
                    if finish is not None:
                        image = finish(image, generator_of(self._seeds[at]))
                    target = targets[at]
                    if not as_read:
                        target = map_targets(self._dataset, target, geometry, by)
                    self.samples[at] = image if bare else (image, target)
                except Exception:  # raised again when the sample is made on its own
                    self.made -= 1
                self.made += 1
        self.python_s += time.perf_counter() - began


def _fits(images: torch.Tensor, recipe: Recipe) -> bool:
    return tuple(images.shape[1:]) == recipe.shape and images.dtype == recipe.dtype
