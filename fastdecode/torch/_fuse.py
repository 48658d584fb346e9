"""`fuse`: the first steps of an image pipeline as one transform of encoded bytes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode._arguments import check_word
from fastdecode._buffers import without_row
from fastdecode._decode import api
from fastdecode._decode.lazy import encoded, unmade
from fastdecode._decode.opening import info_of, open_rgb
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS
from fastdecode.geometry import Geometry
from fastdecode.native._augment import Impossible, Operation
from fastdecode.torch import _recognise
from fastdecode.torch._albumentations import OfImage, steps_of
from fastdecode.torch._options import DecodeOptions
from fastdecode.torch._processors import as_transform
from fastdecode.torch._recorded import LazyTensor, may_be_of
from fastdecode.torch._snapshot import Snapshot
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


class Fused(EncodedTransform):
    """A pipeline whose first steps run while decoding, and whose other steps run as written.

    `fuse` creates it.

    Parameters
    ----------
    head : EncodedTransform
        Replaces the first steps of the pipeline.
    rest : sequence of callables
        The other steps. Each is called with the result of the previous one.
    form : {"tensor", "pil", "array"}
        The form in which the first step of `rest`, or the caller, gets the result of the head:
        ``"pil"`` is a Pillow image, made from its torch.uint8 values, ``"array"`` a NumPy array
        (H, W, C).
    image : type, optional
        The tensor class of that result, such as torchvision's ``tv_tensors.Image``.
    fused : sequence of str
        Names of the first steps, for `repr`.
    reason : str
        Why the first step of `rest` is not among them, for `repr`.
    in_loader : Fused, optional
        Does more of the pipeline in the core. A `Loader` uses it, with draws of its own; elsewhere
        it is used if it does all of it, and if it is known how the libraries draw.
    written : callable, optional
        The whole pipeline, for images that have been decoded already.

    Attributes
    ----------
    head : EncodedTransform
    rest : tuple of callables
    shape, dtype
        Those of the head. The shape is None if there are other steps, or if the result is no
        tensor.
    isolated : bool
        Whether a `Loader` can make samples in threads: there are no other steps, whose random draws
        may come from global generators, or `in_loader` does them.

    Raises
    ------
    ValueError
        `form` is ``"pil"``, but the head does not return torch.uint8. Or `form` is invalid.

    Examples
    --------
    >>> from fastdecode.torch import Fused
    >>> from fastdecode.torch.transforms import RandomResizedCrop
    >>> transform = Fused(RandomResizedCrop(224), [lambda pixels: pixels.float() / 255])
    >>> transform(data).shape
    torch.Size([3, 224, 224])
    """

    def __init__(
        self,
        head: EncodedTransform,
        rest: Sequence[Callable[[Any], Any]] = (),
        *,
        form: Literal["tensor", "pil", "array"] = "tensor",
        image: type[torch.Tensor] | None = None,
        fused: Sequence[str] = (),
        reason: str = "",
        in_loader: Fused | None = None,
        written: Callable[[Any], Any] | None = None,
    ) -> None:
        check_word("form", form, ("tensor", "pil", "array"))
        if form == "pil" and head.dtype != torch.uint8:
            raise ValueError(f"a Pillow image is made of torch.uint8, not {head.dtype}")
        self.head = head
        self.rest: tuple[Any, ...] = tuple(rest)
        self.form = form
        self.image = image
        self.fused = tuple(fused)
        self.reason = reason
        self.in_loader = in_loader
        self.written = written
        made_by = head if in_loader is None else in_loader
        as_written = in_loader is None and (self.rest or form != "tensor")
        self.shape = None if as_written else made_by.shape
        self.dtype = made_by.dtype
        known = in_loader is not None or all(_is_isolated(part) for part in self.rest)
        self.isolated = is_isolated(made_by) and known
        self._source: Source | None = None

    def __call__(self, data: Data, **options: Unpack[TransformOptions]) -> Any:
        """Decode and transform an image, and return the result of the last step.

        `data` may also be an image that `fastdecode.open` has opened, or any other Pillow image, on
        which `written` is called.
        """
        if isinstance(data, PillowImage.Image) and unmade(data) is None:
            return self._written(data)
        if not isinstance(options.get("generator"), SampleGenerator):
            self._renew()
        if isinstance(data, PillowImage.Image):
            if not options and (made := self._recorded(data)) is not None:
                return made
            file = encoded(data)
            if file is None:
                return self._written(data)
            data = file
        return self._run(without_row(data), **options)[0]

    def _recorded(
        self, image: PillowImage.Image, generator: SampleGenerator | None = None
    ) -> LazyTensor | None:
        """Return the result as a tensor whose values are made later; None if that cannot be."""
        way = self._way
        record = None if way.rest else way.recording_of(image)
        if record is None:
            return None
        try:
            return record(cast("Recipe", way.head).draw(*image.size, generator))
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
        if self.form != "tensor" or not exact or not isinstance(recipe, Recipe) or recipe.by_torch:
            return None
        return recipe if may_be_of(self.image) else None

    @property
    def _is_recordable(self) -> bool:
        """Whether an image that has not been decoded yet becomes a tensor that is recorded."""
        return not self._way.rest and self._way._recordable is not None

    @property
    def _way(self) -> Fused:
        """What makes an image outside of a `Loader`."""
        return self.in_loader if self.in_loader is not None and self._draws_alike else self

    def _of_drawn(self, image: Any, draw: Callable[[], int]) -> Any:
        """Return the result for an image that is not decoded yet, with a seed that is drawn.

        None if the image is another one; nothing is drawn then.
        """
        if unmade(image) is None:
            return None
        generator = SampleGenerator("cpu").manual_seed(draw())
        made = self._recorded(image, generator)
        data = encoded(image) if made is None else None
        return made if data is None else self._run(data, generator=generator)[0]

    @property
    def _draws_alike(self) -> bool:
        """Whether `in_loader` does all of it, and is known to draw what is drawn as written."""
        way = self.in_loader
        if way is None or way.rest or not isinstance(way.head, Recipe):
            return False
        return bool(way.head.parts) or not way.head.program

    def _renew(self) -> None:
        """Follow what has been changed in the pipeline."""
        renewed = self.renewed()
        if renewed is not self:
            self.__dict__ = dict(vars(renewed))

    def renewed(self, *, for_epoch: bool = False) -> Fused:
        """Return this object, or another one if the pipeline has changed since it was fused."""
        source = self._source
        if source is None:
            return self
        made = source.made
        current = made.is_current_for_epoch() if for_epoch else made.is_current()
        return self if current else source.fused()

    def _written(self, image: PillowImage.Image) -> Any:
        if self.written is None:
            raise TypeError(
                f"{self.head!r} takes the bytes of a file, or an image from fastdecode.open that "
                "has not been changed"
            )
        return self.written(image)

    def with_geometry(
        self, data: Data, **options: Unpack[TransformOptions]
    ) -> tuple[Any, Geometry]:
        """Decode and transform an image, and return where the result lies in it.

        Raises
        ------
        ValueError
            A step of `rest` is not known to keep every pixel in its place.
        """
        if self.moving_part is not None:
            raise ValueError(
                f"{self.moving_part!r} may move pixels, so where the result lies is not known; "
                "`head.with_geometry` tells it for the parts before"
            )
        return self._run(data, **options)

    @property
    def moving_part(self) -> Any:
        """The first part of `rest` that is not known to keep every pixel in its place, or None."""
        return next((part for part in self.rest if not _recognise.keeps_geometry(part)), None)

    def _run(
        self,
        data: Data,
        *,
        generator: torch.Generator | None = None,
        out: torch.Tensor | None = None,
        **decoding: Any,
    ) -> tuple[Any, Geometry]:
        alike = generator is None and self._draws_alike
        if self.in_loader is not None and (alike or isinstance(generator, SampleGenerator)):
            with suppress(Impossible):
                return self.in_loader._run(data, generator=generator, out=out, **decoding)
            with as_written(generator):
                return self._run_here(data, generator, out, **decoding)
        return self._run_here(data, generator, out, **decoding)

    def _run_here(
        self,
        data: Data,
        generator: torch.Generator | None,
        out: torch.Tensor | None,
        **decoding: Any,
    ) -> tuple[Any, Geometry]:
        """Run the head, and then the other steps."""
        direct = not self.rest and self.form == "tensor"
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
        result = self._through_rest(result, generator)
        return (result if out is None else _copy_result(result, out)), geometry

    def finish(
        self, pixels: torch.Tensor, generator: torch.Generator | None = None, data: Any = None
    ) -> Any:
        """Return the result of the last step from that of the head, with `data` for `as_output`."""
        return self._through_rest(self.as_output(pixels, data), generator)

    @property
    def _opens(self) -> bool:
        """Whether the head hands on the whole image, and code of the user's decides what to use."""
        whole = type(self.head) is Recipe and not self.head.program
        return whole and self.form == "pil" and self.rest_is_users

    @cached_property
    def rest_is_users(self) -> bool:
        """Whether code of the user's is among `rest`, or gets the result."""
        return not self.rest or not all(map(_is_librarys, self.rest))

    def _through_rest(self, result: Any, generator: torch.Generator | None) -> Any:
        for part in self.rest:
            staged = isinstance(part, (Called, Following))
            result = part(result, generator) if staged else part(result)
        return result

    @property
    def draws_later(self) -> bool:
        """Whether what `finish` draws does not depend on how much the head has drawn."""
        return self.isolated and not self.rest_is_users

    def as_output(self, pixels: torch.Tensor, data: Any = None) -> Any:
        """Return the result of the head in the form that the next step, or the caller, gets.

        A Pillow image for code of the user's has the `info` of the file, if that is given.
        """
        image = self.image or (np.ndarray if self.form == "array" else None)
        made = as_image(pixels, self.form, image)
        if data is not None and isinstance(made, PillowImage.Image) and self.rest_is_users:
            made.info = info_of(data)
        return made

    def __repr__(self) -> str:
        lines = ["Fused("]
        if self.fused:
            lines.append(f"  fused: {', '.join(self.fused)}")
        lines.append(f"  decoded by: {self.head!r}")
        if self.in_loader is not None:
            lines += self.in_loader.loader_lines()
            if self._draws_alike:
                return "\n".join([*lines, "  elsewhere: with the draws of its library", ")"])
        where = "as written" if self.in_loader is None else "elsewhere, as written"
        lines.extend(f"  {where}: {part!r}" for part in self.rest)
        if self.reason and (self.in_loader is None or self.in_loader.rest):
            lines.append(f"  reason: {self.reason}")
        return "\n".join([*lines, ")"])

    def loader_lines(self) -> list[str]:
        """Return the lines of `repr` that say where a `Loader` does each step, and why there."""
        whole = "all of it in the core, without worker processes"
        lines = [f"  in a Loader: {'in parts' if self.rest else whole}"]
        done = list(self.fused)
        first = list(takewhile(_recognise.WHILE_DECODING.__contains__, done))
        for where, names in (("while decoding", first), ("in the core", done[len(first) :])):
            lines += [f"    {where}: {', '.join(names)}"] if names else []
        for stage in self.rest:
            lines += [f"    {line}" for line in stage.lines()]
        return lines


class Source(NamedTuple):
    """What a `Fused` was made of by `fuse`."""

    transform: Any
    made: Snapshot
    options: DecodeOptions
    kind: type[Fused]

    def fused(self) -> Fused:
        """Return the pipeline as it is now, also if none of it is known any more."""
        made = fuse_for(self.transform, self.options)
        whole = made if isinstance(made, Fused) else unfused(self.transform, self.options)
        return self._replace(made=Snapshot(self.transform)).complete(whole)

    def complete(self, fused: Fused) -> Fused:
        """Return a new `Fused` with what it was made of."""
        fused.__class__ = self.kind
        fused._source = self
        if _recognise.encoded_head(self.transform) is None:
            fused.written = as_transform(self.transform)
        return fused


def fuse_for(transform: _T, options: DecodeOptions) -> Fused | _T:
    """Do what `fuse` does, for images in the form that a dataset's `output` names."""
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
    begin = first_recipe(options)
    recipe, count, reason = _recognise.read_pipeline(parts, begin)
    recipe, count = (recipe, count) if recipe.program else (begin, 0)
    fused = build_fused(recipe, parts, count, reason)
    if fused.rest or not recipe.program:
        fused = _with_augmentations(fused, begin, parts)
    return fused if recipe.program or fused.in_loader is not None else transform


def first_recipe(options: DecodeOptions, *, joint: bool = False) -> Recipe:
    """Return the recipe before the first part, which gets a Pillow image or a tensor."""
    recipe = Recipe(quality=options.quality, headroom=options.headroom)
    form: Literal["pil", "uint8"] = "uint8" if options.output in ("tensor", "array") else "pil"
    image = np.ndarray if options.output == "array" else None
    return recipe.but(form=form, image=image, joint=joint)


def unfused(transform: Any, options: DecodeOptions) -> Fused:
    """Return a pipeline that is called as written with the decoded image."""
    begin, parts = first_recipe(options), [as_transform(transform)]
    return build_fused(begin, parts, 0, not_fused_reason(transform, options, joint=False))


def _with_augmentations(fused: Fused, begin: Recipe, parts: list[Any]) -> Fused:
    """Let the core do as much of the pipeline in a Loader as it can, from the whole image on."""
    if parts and isinstance(parts[0], OfImage):
        parts = [*steps_of(parts[0]), *parts[1:]]
    recipe, count, _ = _recognise.read_pipeline(parts, begin.but(augments=True))
    in_loader = build_fused(recipe, [*parts[:count], *stages_of(parts[count:])], count, "")
    more = recipe.program and (count > len(fused.fused) or in_loader.isolated)
    known = any(_recognise.row_of(part) is not None for part in parts)
    if in_loader.rest and not (more or (known and len(parts) > 1)):
        return fused
    return Fused(
        fused.head,
        fused.rest,
        form=fused.form,
        image=fused.image,
        fused=fused.fused,
        reason=fused.reason,
        in_loader=in_loader,
    )


def not_fused_reason(transform: Any, options: DecodeOptions, *, joint: bool) -> str:
    """Explain in words why `fuse_for` returns a transform unchanged."""
    begin = first_recipe(options, joint=joint)
    return _recognise.read_pipeline(list(_recognise.flatten(transform)), begin)[2]


def build_fused(recipe: Recipe, parts: Sequence[Any], count: int, reason: str) -> Fused:
    """Return the first `count` parts as a recipe, followed by the rest."""
    in_rows: Any = "pil" if recipe.form == "pil" else "array" if recipe.image is np.ndarray else ""
    return Fused(
        recipe,
        parts[count:],
        form=in_rows or "tensor",
        image=recipe.image,
        fused=list(map(_recognise.name_of, parts[:count])),
        reason=reason,
    )


def _extend(head: EncodedTransform, rest: list[Any]) -> Fused:
    """Extend a transform of the package with the recognised parts after it."""
    _check_normalised_once(head, rest)
    recipe = _recipe_of(head)
    if recipe is None:
        return Fused(head, rest)
    if rest and _recognise.wants_pillow(rest[0]):
        name = type(rest[0]).__name__
        raise ValueError(
            f"{name} takes Pillow images, and {type(head).__name__} makes tensors: leave {name} "
            "out; dtype=torch.float32 makes values of 0 to 1"
        )
    recipe, count, reason = _recognise.read_pipeline(rest, recipe)
    if not count:
        return Fused(head, rest, reason=reason)
    return build_fused(recipe, [head, *rest], 1 + count, reason)


def _check_normalised_once(head: EncodedTransform, rest: Sequence[Any]) -> None:
    """Raise if a part would normalise floats that the head has normalised already."""
    made_by, following = head, list(rest)
    if isinstance(head, Fused):
        made_by, following = head.head, [*head.rest, *rest]
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


def _is_librarys(part: Any) -> bool:
    """Return whether a step, or all those after one, are known classes of a library's."""
    if isinstance(part, Following):
        return all(map(_is_librarys, part.parts))
    return _recognise.is_known(part.part if isinstance(part, Called) else part)


def _is_isolated(part: Any) -> bool:
    return isinstance(part, (Called, Following)) and part.isolated


def _copy_result(result: Any, out: torch.Tensor) -> torch.Tensor:
    """Copy the result of the rest into the caller's tensor; raise if it does not fit."""
    if not isinstance(result, torch.Tensor):
        raise ValueError(f"out is a tensor, but the result is {type(result).__name__}")  # noqa: TRY004
    if out.shape != result.shape or out.dtype != result.dtype:
        raise ValueError(
            f"out must be {tuple(result.shape)} of {result.dtype}, "
            f"not {tuple(out.shape)} of {out.dtype}"
        )
    return out.copy_(result)


def transform_for_slot(transform: EncodedTransform, out: torch.Tensor | None) -> Any:
    """Return the transform for a slot of a batch: without normalising, if the slot is uint8."""
    if out is None or out.dtype == transform.dtype or out.dtype != torch.uint8:
        return transform
    if isinstance(transform, Fused) and transform.in_loader is not None:
        return transform_for_slot(transform.in_loader, out)
    if isinstance(transform, Fused) and not transform.rest and transform.form == "tensor":
        return Fused(transform_for_slot(transform.head, out))
    if isinstance(transform, Recipe) and type(transform.normalize) is Normalize:
        return transform.in_bytes()
    return transform
