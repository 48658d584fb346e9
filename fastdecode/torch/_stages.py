"""The steps of a pipeline after those that run while decoding, in a `Loader`.

A step that the core does not know is called in Python, as it is written. What it returns decides
how the steps after it are done: an image goes through the core again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode.native._augment import Impossible
from fastdecode.torch import _recognise
from fastdecode.torch._albumentations import OfImage
from fastdecode.torch._recorded import LazyTensor, may_be_of, ppm
from fastdecode.torch._snapshot import Snapshot
from fastdecode.torch._user_code import DrawingFrom, is_thread_safe, says_thread_safe, seeded
from fastdecode.torch.transforms._random_crop import GlobalDraws, SampleGenerator
from fastdecode.torch.transforms.base import DecodedPart, DrawnSample, Recipe

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Form: TypeAlias = Literal["pil", "array", "uint8"]
"""A Pillow image, an array (H, W, C) or a tensor (C, H, W), of bytes."""


@dataclass(frozen=True)
class Called:
    """A step that is called in Python."""

    part: Any

    def __call__(
        self,
        image: Any,
        generator: torch.Generator | None,
        *,
        later: bool = False,  # noqa: ARG002 - as of other steps
    ) -> Any:
        """Return what the step makes of an image."""
        if isinstance(self.part, OfImage) and isinstance(generator, GlobalDraws):
            self.part.seed(int(torch.randint(2**32, ())))
            return self.part(image)
        if isinstance(self.part, OfImage) and generator is not None and self.isolated:
            return self.part(image, int(torch.randint(2**32, (), generator=generator)))
        if not draws_for_itself(generator) or not self._is_known:
            return self.part(image)  # with the global generators, as it is written
        drawing = DrawingFrom(generator) if self.isolated else as_written(generator)
        with drawing:
            return self.part(image)

    @cached_property
    def _is_known(self) -> bool:
        return _recognise.row_of(self.part) is not None or _recognise.draws_in_torch(self.part)

    @cached_property
    def isolated(self) -> bool:
        """Whether threads may call it at once, and it draws from no generator that they share."""
        if isinstance(self.part, OfImage):
            return self.part.can_be_seeded
        known = _recognise.draws_nothing(self.part) or _recognise.draws_in_torch(self.part)
        held = getattr(self.part, "transforms", None) or ()
        safe = is_thread_safe(self.part, "__call__", "forward")
        return known or says_thread_safe(self.part) or (safe and not held)

    def __reduce__(self) -> tuple[Any, ...]:
        return Called, (self.part,)

    def lines(self) -> list[str]:
        """Return where it is called, and what would change that."""
        if self.isolated:
            return [f"in Python, in the Loader's threads: {self.part!r}"]
        why = "unless it, or the dataset, says thread_safe = True"
        return [f"in Python, in worker processes: {self.part!r}", f"  ({why})"]


@dataclass(frozen=True)
class InCore:
    """Parts that run in the core on an image in memory; `recipe` is what they come to."""

    recipe: Recipe
    parts: tuple[Any, ...]

    def __call__(
        self, image: Any, generator: torch.Generator | None, *, later: bool = False
    ) -> Any:
        """Return what the parts make of an image, of the form that the recipe begins with.

        If that may be made `later`, a tensor is recorded.
        """
        pixels = image.permute(1, 2, 0).numpy() if isinstance(image, torch.Tensor) else image
        rows = np.ascontiguousarray(pixels)
        height, width = rows.shape[:2]
        try:
            drawn = self.recipe.draw(width, height, generator)
            # As many samples wait as a batch has: larger pixels than their result are not kept.
            if later and self._is_recordable and rows.nbytes <= self._bytes_of(drawn):
                return LazyTensor.of_sample(ppm(rows), "", drawn, self.recipe, self.recipe.image)
            pixels = self.recipe.make_from(DecodedPart(rows, 0, 0), drawn)
        except Impossible:  # then as written
            with as_written(generator):
                for one in self.parts:
                    image = one(image)
            return image
        made = as_image(pixels, self.recipe.form, self.recipe.image)
        if isinstance(made, PillowImage.Image) and isinstance(image, PillowImage.Image):
            made.info = dict(image.info)
        return made

    def _bytes_of(self, drawn: DrawnSample) -> int:
        return math.prod(drawn.size) * self.recipe.channels * self.recipe.dtype.itemsize

    @property
    def _is_recordable(self) -> bool:
        recipe, image = self.recipe, self.recipe.image
        as_tensor = recipe.form != "pil" and image is not np.ndarray
        return as_tensor and may_be_of(image)


@dataclass(frozen=True)
class Following:
    """The parts after a step that is called; what they get is seen when it is there."""

    parts: tuple[Any, ...]
    _stages: dict[Any, tuple[Any, ...]] = field(default_factory=dict, compare=False, repr=False)
    _made: list[Snapshot] = field(default_factory=list, compare=False, repr=False)

    def __call__(
        self, image: Any, generator: torch.Generator | None, *, later: bool = False
    ) -> Any:
        """Return what the parts make of whatever the step has returned."""
        form = form_of(image)
        kind = type(image) if form == "uint8" else None
        if not (self._made and self._made[0].is_current()):  # a step may change the later ones
            self._stages.clear()
            self._made[:] = [Snapshot(self.parts)]
        found = form, kind, generator is None
        if found not in self._stages:
            self._stages[found] = self._stages_for(*found)
        for stage in self._stages[found]:
            image = stage(image, generator, later=later)
        return image

    def _stages_for(
        self, form: Form | None, kind: type | None, draws_alike: bool
    ) -> tuple[Any, ...]:
        if form is not None:
            form_of_pixels = "uint8" if form == "array" else form
            begin = Recipe().but(draws_alike=draws_alike, form=form_of_pixels)
            image = np.ndarray if form == "array" else None if kind is torch.Tensor else kind
            recipe, count, _ = _recognise.read_pipeline(self.parts, begin.but(image=image))
            if count:
                first = InCore(recipe, self.parts[:count])
                return (first, *following(self.parts[count:]))
        return (Called(self.parts[0]), *following(self.parts[1:]))

    @property
    def isolated(self) -> bool:
        """Whether none of them draws from a generator that threads share."""
        return all(_recognise.is_known(part) or Called(part).isolated for part in self.parts)

    def __reduce__(self) -> tuple[Any, ...]:
        return Following, (self.parts,)

    def lines(self) -> list[str]:
        """Return which steps these are."""
        names = ", ".join(map(_recognise.name_of, self.parts))
        return [f"on what that returns, in the core if it is an image: {names}"]


def following(parts: Sequence[Any]) -> tuple[Any, ...]:
    """Return the stages of the parts after those that are known; none if there are none."""
    return (Following(tuple(parts)),) if parts else ()


def stages_of(parts: Sequence[Any]) -> tuple[Any, ...]:
    """Return how the parts are done of which the first one is called."""
    return (Called(parts[0]), *following(parts[1:])) if parts else ()


def as_written(generator: torch.Generator | None) -> AbstractContextManager[None]:
    """Return a context for steps that draw from global generators, in a thread of a `Loader`.

    The core may refuse what it has drawn, because an image is too small, for which the steps raise
    an error of their own, or too large for it. In a worker process the global generators are the
    sample's.
    """
    return seeded(generator.state) if draws_for_itself(generator) else nullcontext()


def draws_for_itself(generator: Any) -> TypeIs[SampleGenerator]:
    """Return whether a sample has random numbers of its own, and not torch's global ones."""
    return isinstance(generator, SampleGenerator) and not isinstance(generator, GlobalDraws)


def form_of(image: Any) -> Form | None:
    """Return the form of an image of three channels, of bytes; None of anything else."""
    if isinstance(image, PillowImage.Image):
        return "pil" if image.mode == "RGB" else None
    if isinstance(image, np.ndarray):
        known = image.ndim == 3 and image.shape[2] == 3 and image.dtype == np.uint8
        return "array" if known else None
    known = type(image) in (torch.Tensor, _recognise.image_tensor())
    if not known or image.ndim != 3 or len(image) != 3:
        return None
    return "uint8" if image.dtype == torch.uint8 and image.device.type == "cpu" else None


def as_image(pixels: torch.Tensor, form: str, image: Any) -> Any:
    """Return pixels (C, H, W) as a Pillow image, an array (H, W, C), or a tensor of a class."""
    if image is np.ndarray:
        return pixels.permute(1, 2, 0).contiguous().numpy()
    if form == "pil":
        rows = pixels[0] if len(pixels) == 1 else pixels.permute(1, 2, 0)
        return PillowImage.fromarray(rows.contiguous().numpy())
    if image is not None and not isinstance(image, type):
        return image(pixels)
    return pixels if image is None else pixels.as_subclass(image)
