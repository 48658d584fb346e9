"""`Plan`: what a pipeline was compiled into, a program that runs while decoding and then steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode._arguments import without_row
from fastdecode._decode import api
from fastdecode._decode.lazy import encoded, info_of, open_rgb, unmade
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS
from fastdecode.geometry import Geometry
from fastdecode.native._augment import Impossible, Operation
from fastdecode.torch import _recognise
from fastdecode.torch._albumentations import OfImage, as_transform, steps_of
from fastdecode.torch._options import DecodeOptions
from fastdecode.torch._recorded import LazyTensor, may_be_of
from fastdecode.torch._stages import Called, Following, as_image, as_written, stages_of
from fastdecode.torch._unchanged import forget
from fastdecode.torch._user_code import is_isolated
from fastdecode.torch.transforms import (
    EncodedTransform,
    Normalize,
    RandomResizedCrop,
    Resize,
    ResizeCenterCrop,
)
from fastdecode.torch.transforms._random_crop import SampleGenerator
from fastdecode.torch.transforms.base import Recipe

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fastdecode._decode.api import Data
    from fastdecode.torch.transforms.base import DrawnSample, TransformOptions

_T = TypeVar("_T")

_OWN = (RandomResizedCrop, Resize, ResizeCenterCrop)
"""The package's own transforms, whose steps are known."""


class Plan(EncodedTransform):
    """What a pipeline was compiled into: a program that runs while decoding, and then steps.

    It does not change: who has changed the pipeline compiles another one.

    Parameters
    ----------
    head : EncodedTransform
        Makes what the first `count` parts make.
    parts : sequence of callables
        Those of the pipeline. The first `taking_bytes` of them, none or one, take a file's bytes.
    count : int
    reason : str
        Why the part after those is not among them.
    begin : Recipe, optional
        What was done before the first part that takes an image. Without it, nothing else is tried.
    written : sequence of callables, optional
        What to call where the core refuses an image; by default the parts.
    """

    def __init__(
        self,
        head: EncodedTransform,
        parts: Sequence[Any],
        count: int,
        reason: str = "",
        *,
        begin: Recipe | None = None,
        taking_bytes: int = 0,
        written: Sequence[Any] | None = None,
    ) -> None:
        self.head = head
        self.parts = tuple(parts)
        self.count = count
        self.reason = reason
        self.begin = begin
        self.taking_bytes = taking_bytes
        self.written = self.parts if written is None else tuple(written)
        self.steps: tuple[Called | Following, ...] = stages_of(self.rest)
        self.form, self.image = _form_of(head)
        self.shape = None if self.steps or self.form != "tensor" else head.shape
        self.dtype = head.dtype
        self.isolated = is_isolated(head) and all(step.isolated for step in self.steps)

    @property
    def rest(self) -> tuple[Any, ...]:
        """The parts that the steps call."""
        return self.parts[self.count :]

    @property
    def names(self) -> list[str]:
        """The names of the parts that the head does."""
        return list(map(_recognise.name_of, self.parts[: self.count]))

    @cached_property
    def alike(self) -> Plan:
        """The plan for draws from the global generators, of which each part draws as its library.

        What is not known to do so is a step of it.
        """
        head = self.head
        known = not isinstance(head, Recipe) or head.parts or not head.program
        if self.begin is None or known:
            return self
        return compile_parts(self.written, self.begin.but(draws_alike=True), self.taking_bytes)

    @cached_property
    def as_written(self) -> Plan:
        """The plan that calls every part, with the decoded image."""
        head = self.parts[0] if self.taking_bytes else self.begin
        return self if head is None else Plan(head, self.written, self.taking_bytes)

    # ---- making an image ----

    def with_geometry(
        self, data: Data, **options: Unpack[TransformOptions]
    ) -> tuple[Any, Geometry]:
        """Decode and transform an image, and return where the result lies in it.

        Raises
        ------
        ValueError
            A step is not known to keep every pixel in its place.
        """
        if self.moving_part is not None:
            raise ValueError(
                f"{self.moving_part!r} may move pixels, so where the result lies is not known"
            )
        return self._run(data, **options)

    def _transformed(self, data: Any, **options: Unpack[TransformOptions]) -> Any:
        return self._run(without_row(data), **options)[0]

    @property
    def moving_part(self) -> Any:
        """The first part that may move pixels in a way that no `Geometry` says, or None."""
        for at, part in enumerate(self.parts[self.taking_bytes :], self.taking_bytes):
            followed = at < self.count and _recognise.is_followed(part)
            if not (followed or _recognise.keeps_geometry(part)):
                return part
        return None

    def _run(
        self, data: Data, *, generator: torch.Generator | None = None, **options: Any
    ) -> tuple[Any, Geometry]:
        plan = self.alike if generator is None else self
        if self.as_written is self:
            return plan._do(data, generator, **options)
        with suppress(Impossible):
            return plan._do(data, generator, **options)
        with as_written(generator):
            return self.as_written._do(data, generator, **options)

    def _do(
        self,
        data: Data,
        generator: torch.Generator | None,
        out: torch.Tensor | None = None,
        *,
        later: bool = False,
        **decoding: Any,
    ) -> tuple[Any, Geometry]:
        """Run the head, and then the other steps; raise `Impossible` if the core refuses."""
        direct = not self.steps and self.form == "tensor"
        if self._opens:
            result: Any = open_rgb(data, **decoding)
            orient = bool(decoding.get("orient"))
            geometry = Geometry.of_decode(api.probe(data), orient=orient)
        else:
            made, geometry = self.head.with_geometry(
                data, generator=generator, out=out if direct else None, **decoding
            )
            if direct and out is not None:
                return out, geometry
            result = self.as_output(made, data)
        result = self._through_steps(result, generator, later=later)
        return (result if out is None else _copy_result(result, out)), geometry

    def finish(
        self, pixels: torch.Tensor, generator: torch.Generator | None = None, data: Any = None
    ) -> Any:
        """Return the result of the last step from that of the head, with `data` for `as_output`."""
        return self._through_steps(self.as_output(pixels, data), generator)

    @property
    def _opens(self) -> bool:
        """Whether the head hands on the whole image, and code of the user's decides what to use."""
        whole = type(self.head) is Recipe and not self.head.program
        return whole and self.form == "pil" and self.ends_in_users_code

    @cached_property
    def ends_in_users_code(self) -> bool:
        """Whether code of the user's is among the steps, or gets the result."""
        return not self.steps or not all(map(_recognise.is_known, self.rest))

    def _through_steps(
        self, result: Any, generator: torch.Generator | None, *, later: bool = False
    ) -> Any:
        for step in self.steps:
            result = step(result, generator, later=later)
        return result

    @property
    def draws_later(self) -> bool:
        """Whether what `finish` draws does not depend on how much the head has drawn."""
        return self.isolated and not self.ends_in_users_code

    def as_output(self, pixels: torch.Tensor, data: Any = None) -> Any:
        """Return the result of the head in the form that the next step, or the caller, gets.

        A Pillow image for code of the user's has the `info` of the file, if that is given.
        """
        image = self.image or (np.ndarray if self.form == "array" else None)
        made = as_image(pixels, self.form, image)
        if data is not None and isinstance(made, PillowImage.Image) and self.ends_in_users_code:
            made.info = info_of(data)
        return made

    def in_bytes(self) -> Any:
        """Return what makes bytes for a slot of a batch, to be normalised later; else this plan."""
        plain = not self.steps and self.form == "tensor"
        return transform_for_slot(self.head, torch.uint8) if plain else self

    # ---- an image that is opened ----

    def of_image(self, image: PillowImage.Image) -> Any:
        """Return the result for an image of `fastdecode.open`, whose values may be made later.

        Any other Pillow image, and one that is decoded, goes through the pipeline as written.
        """
        if unmade(image) is not None:
            made = self._recorded(image)
            if made is not None:
                return made
            file = encoded(image)
            if file is not None:
                return self._run(file, later=True)[0]
        if self.taking_bytes or self.begin is None:
            raise TypeError(
                f"{self.head!r} takes the bytes of a file, or an image from fastdecode.open that "
                "has not been changed"
            )
        return _through(self.written, image)

    def _recorded(self, image: PillowImage.Image) -> Any:
        """Return the result as a tensor whose values are made later; None if that cannot be.

        If steps have to be called, they are called with the image, which remembers most of what
        they do, and what follows them is recorded.
        """
        if self._halves is None:
            return self.record(image)
        called, following = self._halves
        made = _through(called, image)
        if following is None:
            return made
        if unmade(made) is not None:
            return following.of_image(made)
        return Following(following.written)(made, None, later=True)

    @cached_property
    def _halves(self) -> tuple[Sequence[Any], Plan | None] | None:
        """What to call, and the plan of the other parts, which is recorded; None if all is.

        What makes a Pillow image is called, if the image remembers all of it.
        """
        plan, head, begin = self.alike, self.alike.head, self.begin
        if begin is None or self.taking_bytes or begin.quality != "exact" or plan.is_recordable:
            return None
        if not isinstance(head, Recipe) or head.augments_pixels:
            return None
        if plan.form == "pil" and not plan.steps:
            return self.written, None
        for count in range(1, len(self.written)):
            following = compile_parts(self.written[count:], begin)
            if following.alike.is_recordable:
                return self.written[:count], following
        return None

    @property
    def is_recordable(self) -> bool:
        """Whether an image that has not been decoded yet becomes a tensor that is recorded."""
        return not self.steps and self._recordable is not None

    def record(
        self, image: PillowImage.Image, generator: SampleGenerator | None = None
    ) -> LazyTensor | None:
        """Return the result as a tensor whose values are made later; None if that cannot be."""
        plan = self.alike if generator is None else self
        begin = None if plan.steps else plan.recording_of(image)
        if begin is None:
            return None
        try:
            return begin(cast("Recipe", plan.head).draw(*image.size, generator))
        except Impossible:
            return None

    def recording_of(self, image: PillowImage.Image) -> Callable[[DrawnSample], LazyTensor] | None:
        """Return what records a sample of an image; None if it is decoded, or cannot be."""
        recipe = self._recordable
        file = None if recipe is None else unmade(image)
        if recipe is None or file is None or math.prod(file.sides) > DEFAULT_MAX_PIXELS:
            return None  # too large ones are refused
        done = [Operation(*one) for one in file.done]  # type: ignore[arg-type]

        def record(drawn: DrawnSample) -> LazyTensor:
            whole = drawn.behind(done, file.sides) if done else drawn
            return LazyTensor.of_sample(file.data, file.name, whole, recipe, self.image)

        return record

    @cached_property
    def _recordable(self) -> Recipe | None:
        """The recipe of the head, if the core makes all of its result."""
        recipe = self.head
        exact = isinstance(recipe, Recipe) and type(recipe).draw is Recipe.draw
        if self.form != "tensor" or not exact or not isinstance(recipe, Recipe):
            return None
        return recipe if may_be_of(self.image) else None

    # ---- saying what is done where ----

    def lines(self) -> list[str]:
        """Return where each step runs, and what would change that."""
        return self.lines_with(self.steps, self.alike)

    def lines_with(self, steps: Iterable[Called | Following], alike: Plan) -> list[str]:
        names = self.names
        first = list(takewhile(_recognise.WHILE_DECODING.__contains__, names))
        parts = ("while decoding", first), ("in the core", names[len(first) :])
        lines = [f"{where}: {', '.join(found)}" for where, found in parts if found]
        quality = getattr(self.head, "quality", "exact")
        if first and quality != "exact":
            lines[0] += f" ({quality=})"
        lines += [line for step in steps for line in step.lines()]
        lines += [f"  ({self.reason})"] if self.rest and self.reason else []
        if alike is not self and alike.rest:
            called = ", ".join(map(_recognise.name_of, alike.rest))
            lines.append(f"outside a Loader in Python, for its own draws: {called}")
        return lines

    def __repr__(self) -> str:
        return "\n".join(["Plan(", *(f"  {line}" for line in self.lines()), ")"])


def _through(parts: Sequence[Any], image: Any) -> Any:
    for part in parts:
        image = part(image)
    return image


def _form_of(head: EncodedTransform) -> tuple[Literal["tensor", "pil", "array"], Any]:
    """Return the form in which the next step, or the caller, gets a result, and its class."""
    if not isinstance(head, Recipe):
        return "tensor", None
    if head.form == "pil":
        return "pil", head.image
    return ("array" if head.image is np.ndarray else "tensor"), head.image


# ---- compiling ----


def compile_parts(parts: Sequence[Any], begin: Recipe, taking_bytes: int = 0) -> Plan:
    """Compile the parts of a pipeline; `begin` is what those do that take bytes."""
    written = parts
    # As written, a Compose of albumentations draws for all that it holds.
    if parts and isinstance(parts[0], OfImage) and not begin.draws_alike:
        parts = [*steps_of(parts[0]), *parts[1:]]
    recipe, count, reason = _recognise.read_pipeline(parts[taking_bytes:], begin)
    head = recipe if count or not taking_bytes else parts[0]
    count += taking_bytes
    how: dict[str, Any] = {"begin": begin, "taking_bytes": taking_bytes, "written": written}
    return Plan(head, parts, count, reason, **how)


def compile_pipeline(transform: _T, options: DecodeOptions) -> Plan | _T:
    """Compile a pipeline; return it as it is if it takes bytes, or if nothing of it is known.

    The images that it takes are in the form that a dataset's `output` names.
    """
    if transform is None or isinstance(transform, EncodedTransform):
        return transform
    forget()
    transform = as_transform(transform)
    if not callable(transform):
        raise TypeError(f"transform must be callable with an image, not {transform!r}")
    parts = list(_recognise.flatten(transform))
    head = _recognise.encoded_head(transform)
    if head is not None:
        return _extend(head, parts[1:])
    plan = compile_parts(parts, first_recipe(options))
    program = plan.head.program if isinstance(plan.head, Recipe) else ()
    known = len(plan.parts) > 1 and any(map(_recognise.row_of, plan.parts))
    return plan if program or known or not plan.steps else transform


def first_recipe(options: DecodeOptions, *, joint: bool = False) -> Recipe:
    """Return the recipe before the first part, which gets a Pillow image or a tensor."""
    recipe = Recipe(quality=options.quality, headroom=options.headroom)
    form: Literal["pil", "uint8"] = "uint8" if options.output in ("tensor", "array") else "pil"
    image = np.ndarray if options.output == "array" else None
    return recipe.but(form=form, image=image, joint=joint)


def uncompiled(transform: Any, options: DecodeOptions) -> Plan:
    """Return a plan that calls a pipeline with the decoded image."""
    reason = not_fused_reason(transform, options, joint=False)
    return Plan(first_recipe(options), [as_transform(transform)], 0, reason)


def not_fused_reason(transform: Any, options: DecodeOptions, *, joint: bool) -> str:
    """Explain in words why the first part of a pipeline is called."""
    begin = first_recipe(options, joint=joint)
    return _recognise.read_pipeline(list(_recognise.flatten(transform)), begin)[2]


def _extend(head: EncodedTransform, rest: list[Any]) -> Plan:
    """Extend a transform of the package with the parts after it that are known."""
    _check_normalised_once(head, rest)
    recipe = _recipe_of(head)
    if recipe is None:
        return Plan(head, [head, *rest], 1)
    if rest and _recognise.wants_pillow(rest[0]):
        name = type(rest[0]).__name__
        raise ValueError(
            f"{name} takes Pillow images, and {type(head).__name__} makes tensors: leave {name} "
            "out; dtype=torch.float32 makes values of 0 to 1"
        )
    return compile_parts([head, *rest], recipe, 1)


def _check_normalised_once(head: EncodedTransform, rest: Sequence[Any]) -> None:
    """Raise if a part would normalise floats that the head has normalised already."""
    plan = getattr(head, "plan", None)
    made_by, following = (head, rest) if plan is None else (plan.head, [*plan.rest, *rest])
    normalize = made_by.normalize if isinstance(made_by, Recipe) else None
    if normalize is None or getattr(normalize, "mean", None) is None:
        return
    second = _recognise.second_normalize(following)
    if second is not None:
        raise ValueError(
            f"{type(made_by).__name__} has normalised the image already, and {second!r} would do "
            "it again: leave that out, or use a transform without a mean"
        )


def _recipe_of(head: EncodedTransform) -> Recipe | None:
    """Return the recipe of a transform of the package, or None if the user modified it."""
    if type(head) not in _OWN or not isinstance(head, Recipe):
        return None
    if type(head.normalize) not in (Normalize, type(None)) or any(
        callable(value) for name, value in vars(head).items() if name != "normalize"
    ):
        return None
    shared = ("program", "shape", "dtype", "normalize", "quality", "headroom", "form")
    return Recipe().but(**{name: getattr(head, name) for name in shared})


def _copy_result(result: Any, out: torch.Tensor) -> torch.Tensor:
    """Copy the result of the last step into the caller's tensor; raise if it does not fit."""
    if not isinstance(result, torch.Tensor):
        raise ValueError(f"out is a tensor, but the result is {type(result).__name__}")  # noqa: TRY004
    if out.shape != result.shape or out.dtype != result.dtype:
        raise ValueError(
            f"out must be {tuple(result.shape)} of {result.dtype}, "
            f"not {tuple(out.shape)} of {out.dtype}"
        )
    return out.copy_(result)


def transform_for_slot(transform: EncodedTransform, dtype: torch.dtype | None) -> Any:
    """Return the transform for a slot of a batch: without normalising, if the slot is uint8."""
    if dtype in (None, transform.dtype) or dtype != torch.uint8:
        return transform
    if isinstance(transform, Plan):
        return transform.in_bytes()
    if isinstance(transform, Recipe) and type(transform.normalize) is Normalize:
        return transform.in_bytes()
    return transform
