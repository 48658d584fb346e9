"""The parts of a pipeline that a `Loader` does in the core, and those that it calls in Python.

A part that the core does not know ends nothing: what comes before it runs in the core, and what
comes after it runs there again, on the image that it returned.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode.native._augment import Impossible, Program
from fastdecode.torch import _recognise
from fastdecode.torch._albumentations import OfImage
from fastdecode.torch._probes import (
    Draws,
    Found,
    examine,
    form_of,
    images_for,
    is_stateless,
)
from fastdecode.torch._programs import OWN
from fastdecode.torch._twins import twin_of
from fastdecode.torch._user_code import DrawingFrom, alone, is_thread_safe, seeded
from fastdecode.torch.transforms._random_crop import SampleGenerator
from fastdecode.torch.transforms.base import DecodedPart

if TYPE_CHECKING:
    from fastdecode.torch.transforms.base import Recipe


@dataclass(frozen=True)
class Called:
    """A part that is called in Python; `draws_from` says what it may draw from."""

    part: Any
    draws_from: Draws

    def __call__(self, image: Any, generator: torch.Generator | None) -> Any:
        """Return what the part makes of an image."""
        if self.draws_from == "by itself" and generator is not None:
            return self.part(image, int(torch.randint(2**32, (), generator=generator)))
        if generator is None or self.draws_from != "from the seed":
            with alone(thread_safe=self.is_shared):
                return self.part(image)
        with alone(thread_safe=self.is_shared), DrawingFrom(generator):
            return self._twin(image)

    @cached_property
    def _twin(self) -> Any:
        return twin_of(self.part)

    def __reduce__(self) -> tuple[Any, ...]:
        return Called, (self.part, self.draws_from)  # a twin cannot be pickled

    @property
    def draws(self) -> bool:
        """Whether it may draw from global generators, which threads share."""
        return self.draws_from == "globally"

    @cached_property
    def is_shared(self) -> bool:
        """Whether several threads may call it at once."""
        if isinstance(self.part, OfImage):
            return self.draws_from == "by itself"
        known = _recognise.row_of(self.part) is not None
        known = known or _recognise.draws_in_torch(self.part) or is_stateless(self.part)
        return known or _says_safe(self.part)

    def lines(self) -> list[str]:
        """Return where it is called, and what would change that."""
        if self.draws:
            why = "it may draw from global generators; if not, say thread_safe = True in its class"
            return [f"in Python, in worker processes: {self.part!r}", f"  ({why})"]
        if self.is_shared:
            return [f"in Python, in the Loader's threads: {self.part!r}"]
        why = "if several threads may call it at once, say thread_safe = True in its class"
        return [f"in Python, in one thread at a time: {self.part!r}", f"  ({why})"]


@dataclass(frozen=True)
class InCore:
    """Parts that run in the core on an image in memory; `recipe` is what they come to."""

    recipe: Recipe
    form: str  # of the image
    kind: type[torch.Tensor] | None  # of the image, if it is no plain tensor
    parts: tuple[Any, ...]
    draws: bool = False

    @property
    def idle(self) -> tuple[Any, ...]:
        """The parts that are passed over."""
        return self.recipe.idle

    def lines(self) -> list[str]:
        """Return which steps these are."""
        names = [_recognise.name_of(part) for part in self.parts if part not in self.idle]
        return [f"in the core: {', '.join(names)}"]

    def __call__(self, image: Any, generator: torch.Generator | None) -> Any:
        """Return what the parts make of an image; call them if that is of another form."""
        in_rows = self.form in ("pil", "array")
        alike = form_of(image) == self.form and (
            in_rows or type(image) is (self.kind or torch.Tensor)
        )
        if alike:
            pixels = np.asarray(image) if in_rows else image.permute(1, 2, 0).numpy()
            height, width = pixels.shape[:2]
            part = DecodedPart(np.ascontiguousarray(pixels), 0, 0)
            try:
                made = self.recipe.make_from(part, self.recipe.draw(width, height, generator))
                return as_image(made, self.recipe.form, self.recipe.image)
            except Impossible:  # then as written
                pass
        with as_written(generator):
            for one in self.parts:
                image = one(image)
        return image


def as_written(generator: torch.Generator | None) -> AbstractContextManager[None]:
    """Return a context for steps that draw from global generators, in which a `Loader` seeds these.

    The core may refuse what it has drawn, because an image is too small, for which the steps raise
    an error of their own, or too large for it.
    """
    return seeded(generator.state) if isinstance(generator, SampleGenerator) else nullcontext()


def works_again(stage: Any) -> bool:
    """Return whether a stage is one in the core that does."""
    return isinstance(stage, InCore) and bool(stage.recipe.program)


def _says_safe(part: Any) -> bool:
    return not isinstance(part, OfImage) and is_thread_safe(part, "__call__", "forward")


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


def _form_after(recipe: Recipe) -> Any:
    """Return the form of a recipe's result, for the next part."""
    if recipe.image is np.ndarray:
        return "array" if recipe.form == "uint8" else None
    if recipe.image is not None and not isinstance(recipe.image, type):
        return None  # the values have a layout of their own
    return recipe.form if recipe.form in ("pil", "uint8") else "floats"


def stages_after(recipe: Recipe, parts: Sequence[Any]) -> tuple[Any, ...]:
    """Return how the parts are done that follow a recipe in a `Loader`."""
    stages: list[Any] = []
    form, channels, kind = _form_after(recipe), recipe.channels, recipe.image
    found: Found | None = None
    size = recipe.shape and recipe.shape[1:]
    left = list(parts)
    while left:
        if form in ("pil", "uint8", "array") and channels == 3 and stages:
            given = ("uint8", np.ndarray) if form == "array" else (form, kind)
            begin = recipe.doing(Program()).in_bytes().but(idle=(), form=given[0], image=given[1])
            made, count, _ = _recognise.read_pipeline(left, begin)
            if count:
                stages.append(InCore(made, form, kind, tuple(left[:count])))
                left, channels, kind = left[count:], made.channels, made.image
                form, found, size = _form_after(made), None, made.shape and made.shape[1:]
                continue
        part = left.pop(0)
        probes = [found.made] if found else images_for(form, channels, kind, size) if form else ()
        found = examine(part, probes)
        stages.append(Called(part, _draws_from(part, found)))
        form, kind = (None, None) if found is None else _form_of(found.made, channels, kind)
    return tuple(stages)


def _draws_from(part: Any, found: Found | None) -> Draws:
    if _recognise.draws_nothing(part):
        return "nothing"
    if isinstance(part, OfImage):
        return "by itself" if part.can_be_seeded else "globally"
    if found is not None and found.draws != "globally":
        return found.draws
    if type(part).__module__.startswith(OWN):
        return "from the seed"  # by torch's functions, whatever it gets
    return "nothing" if _says_safe(part) else "globally"


def _form_of(made: Any, channels: int, kind: Any) -> Any:
    """Return the form of what a step made of a probe, and the class of a tensor, if known."""
    own = type(made) if type(made) in (kind, torch.Tensor) else None
    known = own is not None or isinstance(made, (PillowImage.Image, np.ndarray))
    return form_of(made, channels) if known else None, own if own is not torch.Tensor else None
