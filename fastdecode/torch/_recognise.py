"""Recognises the transforms of torchvision and timm by module and class; imports neither.

`TABLE`, at the end, holds a `Row` for each known class. To teach `fuse` another one, write its step
and add a row.

Notes
-----
Written from torchvision 0.29 and timm 1.0. torchvision draws everything from torch's generator: a
box's area, shape, top and left, and ``torch.rand(1)`` for a flip.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
import torch

from fastdecode._resizing import Interpolation
from fastdecode.native._augment import Program
from fastdecode.torch import _albumentations
from fastdecode.torch._albumentations import OfImage, is_of_albumentations
from fastdecode.torch._probes import Form, affine_of, does_as, does_nothing
from fastdecode.torch._processors import PixelValues, crop_of
from fastdecode.torch._programs import (
    Maker,
    Unsupported,
    as_range,
    as_ratio,
    as_sides,
    check_program,
    erasure_of,
    float_program_of,
    is_unmodified,
    modules_of,
    program_of,
    size_after,
    tensor_program_of,
)
from fastdecode.torch.transforms.base import Crop, interpolation_name
from fastdecode.torch.transforms.crops import (
    RandomResizedCrop,
    RandomResizedCropAndInterpolation,
    RandomShortestSize,
    Resize,
    ResizeCenterCrop,
    ScaleJitter,
    Unresized,
)
from fastdecode.torch.transforms.normalize import Normalize, three_values

_V1 = "torchvision.transforms.transforms"
_AUTO = "torchvision.transforms.autoaugment"
_V2 = "torchvision.transforms.v2."
_WEIGHTS = "torchvision.transforms._presets"
_REFERENCES = "presets"  # references/classification/presets.py, which scripts import by this name
_TIMM = "timm.data.transforms"


@dataclass(frozen=True)
class Recipe:
    """The result of the first parts of a pipeline, applied to an RGB Pillow image."""

    options: dict[str, Any] = field(default_factory=dict)
    """Options of the equivalent crop: quality and headroom."""
    crop: Crop | None = None
    """The crop with the same geometry and values; None until a part crops or resizes."""
    flip: float | None = None
    """Probability of RandomHorizontalFlip; None without one."""
    form: Literal["pil", "uint8", "float", "levels", "normalised", "erased"] = "pil"
    """The result: a Pillow image, or a tensor of bytes, of floats from 0 to 1 or 0 to 255, or
    normalised; or one in which boxes may be erased, which comes last."""
    image: Any = None
    """torchvision's ``tv_tensors.Image`` if the tensor is one, ``numpy.ndarray`` if the values are
    an array (H, W, C) instead; None for a plain tensor."""
    augments: bool = False
    """Whether random augmentations are done, too, with draws of the core's own."""
    idle: tuple[Any, ...] = ()
    """The parts that were passed over, because they do nothing to an image."""
    joint: bool = False
    """Whether the pipeline is called with an image and its target, which must follow the crop."""

    def floats(self, mean: Any = None, std: Any = None) -> Recipe:
        """Return the recipe with values as floats from 0 to 1, or normalised."""
        crop = copy.copy(self.crop)
        if crop is not None:
            crop.dtype, crop.normalize = torch.float32, Normalize(mean, std)
        return replace(self, crop=crop, form="float" if mean is None else "normalised")

    @property
    def channels(self) -> int:
        """Of the result: 3, or 1 if it is grey."""
        return 3 if self.crop is None else self.crop.channels

    def followed_by(self, part: Any, make: Maker) -> Recipe | None:
        """Return the recipe with the program of a part; None if the core has none."""
        crop = copy.copy(self.crop)
        if not self.augments or crop is None:
            return None
        before = crop.shape and crop.shape[1:]
        try:
            made = make(part, before)
            if crop.channels == 1:
                _check_grey(made, of_tensors=self.form != "pil")
            crop.program = Program([*crop.program, *made])
            check_program(crop.program, before)
            after = size_after(made, before) or size_after(crop.program, None)
        except Unsupported:
            return None
        if type(part).__qualname__ == "Grayscale":
            crop.channels = part.num_output_channels
        crop.shape = None if after is None else (crop.channels, *after)
        return replace(self, crop=crop)


def _check_grey(made: Program, *, of_tensors: bool) -> None:
    """Raise `Unsupported` if a program does not do the same to a grey image of one channel."""
    for operation in (step.operation for step in made if step.operation):
        by_colour = operation.kind in ("saturation", "contrast", "grey", "hue")
        if len({*operation.fill}) > 1 or (of_tensors and by_colour):
            raise Unsupported("it is not possible for one channel")


Step: TypeAlias = Callable[[Recipe, Any], "Recipe | None"]
"""Returns the recipe after a transform; None if it cannot be done while decoding there."""


@dataclass(frozen=True)
class Row:
    """What is known about a class of transforms."""

    step: Step | None = None
    """How it is done while decoding; None if it never is. Augmentations are only in a `Loader`."""
    parts: str = ""
    """The attribute with the transforms that it calls in turn; empty if it is no pipeline."""
    in_place: bool = False
    """Whether every pixel stays where it is."""
    only_pillow: bool = False
    """Whether it takes Pillow images but no tensors."""


def row_of(part: Any) -> Row | None:
    """Return what is known about a transform; None if its class or the object itself is unknown."""
    row = TABLE.get((_module(part), type(part).__qualname__))
    return row if row is not None and _is_unmodified(part, row) else None


def _module(part: Any) -> str:
    module = type(part).__module__
    return _V2 if module.startswith(_V2) else module


def _is_unmodified(part: Any, row: Row) -> bool:
    """Return whether the object has no hooks and no replaced methods."""
    if not is_unmodified(part):
        return False
    # Many projects have a copy of this file, which might do something besides.
    return _module(part) != _REFERENCES or type(part).__call__.__code__.co_names == (row.parts,)


def flatten(transform: Any) -> Iterator[Any]:
    """Yield the parts of a pipeline, including those of nested pipelines.

    Any transform that is not a known pipeline is a pipeline with one part.
    """
    row = row_of(transform)
    held = getattr(transform, row.parts) if row is not None and row.parts else None
    if isinstance(held, Mapping):
        held = list(held.values())
    elif row_of(held) is not None:
        held = [held]
    if not isinstance(held, (list, tuple)):
        yield transform
        return
    for part in held:
        yield from flatten(part)


def read_pipeline(parts: Sequence[Any], recipe: Recipe) -> tuple[Recipe, int, str]:
    """Follow a pipeline as long as every part is known for certain.

    Return the recipe after these parts, their number, and the reason in words why the next part
    does not follow.
    """
    for count, part in enumerate(parts):
        row = row_of(part)
        step = None if row is None else row.step
        if row is None and recipe.augments:
            step = _step_of_own(recipe, part)
        if recipe.image is np.ndarray:
            step = step if type(part).__name__ in _OF_ARRAYS else None
        elif recipe.image and not {_V1, _AUTO}.isdisjoint(modules_of(part)):
            step = None  # a v1 transform of a tv_tensors.Image may or may not keep the class
        if recipe.joint and _module(part) != _V2:
            step = None  # it takes no target
        following = step(recipe, part) if step else None
        if following is None and step in (_augment, _erase):
            name = type(part).__name__
            why = f"{name} is done in the core only in a Loader, and if the core knows every part"
            return recipe, count, why
        if following is None:
            return recipe, count, _reason_not_fused(part, recipe, known=step is not None)
        recipe = following
    return recipe, len(parts), "" if recipe.crop else "nothing in it crops or resizes"


def _step_of_own(recipe: Recipe, part: Any) -> Step | None:
    """Return the step of a class or function of the user's, found out by trying it."""
    form: Form = recipe.form if recipe.form in ("pil", "uint8") else "floats"
    if recipe.image is None and does_nothing(part, form, recipe.channels):
        return _pass_over
    if recipe.form in ("float", "normalised") and recipe.image is None:
        scaled = affine_of(part)
        return None if scaled is None else partial(_scaled, by=scaled)
    known = [
        kind for kind in type(part).__mro__[1:] if (kind.__module__, kind.__qualname__) in TABLE
    ]
    if known and recipe.image is None and is_unmodified(part):
        row = TABLE[known[0].__module__, known[0].__qualname__]
        if row.in_place and does_as(part, known[0], form, recipe.channels):
            return row.step
    return None


def _scaled(recipe: Recipe, _part: Any, *, by: tuple[float, float]) -> Recipe | None:
    """Accept a function such as ``x * 2 - 1``, as a part of the normalisation."""
    normalize = recipe.crop and recipe.crop.normalize
    if not normalize:
        return None
    factor, summand = by
    means, stds = normalize.mean or (0.0,) * 3, normalize.std or (1.0,) * 3
    mean = [m - summand * s / factor for m, s in zip(means, stds, strict=True)]
    return recipe.floats(mean, [s / factor for s in stds])


def _pass_over(recipe: Recipe, part: Any) -> Recipe:
    return replace(recipe, idle=(*recipe.idle, part))


def second_normalize(parts: Sequence[Any]) -> Any:
    """Return the first Normalize after normalised floats; None if an unknown part precedes it."""
    for part in parts:
        if isinstance(part, Normalize) or type(part).__name__ == "Normalize":
            return part
        if row_of(part) is None and _module(part) not in (_V1, _V2, _TIMM):
            return None
    return None


def name_of(part: Any) -> str:
    """Return the name of a part's class as its library has it."""
    return type(part.transform if isinstance(part, OfImage) else part).__name__


def wants_pillow(part: Any) -> bool:
    """Return whether a part takes Pillow images but not tensors."""
    row = row_of(part)
    return row is not None and row.only_pillow


def keeps_geometry(part: Any) -> bool:
    """Return whether a transform is known to leave every pixel where it is."""
    row = row_of(part)
    return row is not None and row.in_place


def draws_nothing(part: Any) -> bool:
    """Return whether a transform of torchvision is known to draw no random numbers."""
    known = _module(part) in (_V1, _V2) and type(part).__qualname__ in _DRAW_NOTHING
    return known and is_unmodified(part)


_OF_ARRAYS = ("LetterBox", "OfImage", "OpenCVResize", "ToImage", "ToPILImage", "ToTensor")
WHILE_DECODING = frozenset(
    [
        "CenterCrop",
        "RandomCrop",
        "RandomHorizontalFlip",
        "RandomResizedCrop",
        "Resize",
        "RandomResizedCropAndInterpolation",
        "RandomShortestSize",
        "ScaleJitter",
    ]
)
"""What costs no pass of its own at the beginning of a pipeline."""
_DRAW_NOTHING = {
    *("CenterCrop", "ClampBoundingBoxes", "ClampKeyPoints", "ConvertBoundingBoxFormat"),
    *("ConvertImageDtype", "Grayscale", "Identity", "Normalize", "PILToTensor", "Pad", "RGB"),
    *("Resize", "SanitizeBoundingBoxes", "SanitizeKeyPoints", "ToDtype", "ToImage", "ToPILImage"),
    *("ToPureTensor", "ToTensor"),
}


# ---- the steps: each takes the recipe so far, and returns the recipe after its part ----


def _accept(recipe: Recipe, _part: Any) -> Recipe | None:
    """Accept a transform that leaves an RGB image as it is."""
    return recipe


def _set_crop(recipe: Recipe, kind: Callable[..., Crop], **arguments: Any) -> Recipe | None:
    """Set the crop, if it is the first one and all of its arguments are known."""
    before = recipe.crop
    if before is not None and (type(before) is not Unresized or before.program):
        return None
    if recipe.form not in ("pil", "uint8") or not all(arguments.values()):
        return None
    crop = kind(**arguments, **recipe.options)
    crop.of_tensors = recipe.form != "pil"
    if before is not None and before.flip:
        # A flip commutes with resizing; with a random crop only where the draws are the loader's.
        exact = recipe.augments and crop.interpolation != "bilinear"
        if exact or not (isinstance(crop, Resize) or recipe.augments):
            return None
        crop.flip = before.flip
        if isinstance(crop, Resize):
            crop.flips_first = True
    return replace(recipe, crop=crop)


def _random_resized_crop(recipe: Recipe, part: Any) -> Recipe | None:
    first = _set_crop(
        recipe,
        RandomResizedCrop,
        size=as_sides(part.size),
        scale=as_range(part.scale),
        ratio=as_ratio(part),
        interpolation=_interpolation(recipe, part),
    )
    return first or _augment(recipe, part)


def _timm_random_resized_crop(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept timm's crop, which has one interpolation, or draws one of two for each image."""
    size = as_sides(part.size)
    modes = part.interpolation if isinstance(part.interpolation, tuple) else (part.interpolation,)
    names = tuple(map(interpolation_name, modes))
    either = names == ("bilinear", "bicubic")
    return _set_crop(
        recipe,
        RandomResizedCropAndInterpolation if either else RandomResizedCrop,
        size=isinstance(size, tuple) and recipe.form == "pil" and size,
        scale=as_range(part.scale),
        ratio=as_range(part.ratio),
        interpolation=names[0] if either or len(names) == 1 else None,
    )


def _resize(recipe: Recipe, part: Any) -> Recipe | None:
    size, longest = as_sides(part.size), part.max_size
    arguments: dict[str, Any] = {"interpolation": _interpolation(recipe, part)}
    if longest is not None:
        one_side = part.size is None or (type(size) is int and type(longest) is int)
        arguments["max_size"] = one_side and (size or 0) < longest and as_sides(longest)
    if part.size is None:
        first = _set_crop(recipe, partial(Resize, None), **arguments)
    else:
        first = _set_crop(recipe, Resize, size=size, **arguments)
    return first or _augment(recipe, part)


def _random_shortest_size(recipe: Recipe, part: Any) -> Recipe | None:
    sides, longest = tuple(part.min_size), part.max_size
    known = all(type(side) is int and side > 0 for side in (*sides, *filter(None, [longest])))
    return _set_crop(
        recipe,
        partial(RandomShortestSize, max_size=longest),
        min_size=known and sides,
        interpolation=_interpolation(recipe, part),
    )


def _scale_jitter(recipe: Recipe, part: Any) -> Recipe | None:
    target = as_sides(part.target_size)
    return _set_crop(
        recipe,
        ScaleJitter,
        target_size=isinstance(target, tuple) and target,
        scale_range=as_range(part.scale_range),
        interpolation=_interpolation(recipe, part),
    )


def _center_crop(recipe: Recipe, part: Any) -> Recipe | None:
    return _center_of_resize(recipe, part) or _augment(recipe, part)


def _center_of_resize(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept it only right after Resize: after a flip, an odd margin is on the other side.

    What was done to the pixels between the two cannot be done after the crop: a blur looks beyond
    it, and a crop larger than the image is padded with black. A target would not follow the crop.
    """
    size, whole = as_sides(part.size), recipe.crop
    if type(whole) is not Resize or whole.size is None or whole.max_size is not None:
        return None
    if not size or recipe.flip is not None or recipe.form in ("normalised", "levels"):
        return None
    if whole.program or recipe.joint:
        return None
    options = {name: getattr(whole, name) for name in ("dtype", "quality", "headroom")}
    crop = ResizeCenterCrop(whole.size, size, whole.interpolation, **options)
    crop.of_tensors = whole.of_tensors
    return replace(recipe, crop=crop)


def _image_classification(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept the preset of torchvision's weights: resize, crop, convert to floats, normalise."""
    std = three_values(part.std)
    made = _set_crop(
        recipe,
        ResizeCenterCrop,
        resize=as_sides(part.resize_size),
        size=as_sides(part.crop_size),
        interpolation=recipe.form == "pil" and _interpolation(recipe, part),
        mean=three_values(part.mean),
        std=std and 0 not in std and std,
    )
    return made and replace(made, form="normalised")


def _pixel_values(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept an image processor of transformers as the only part."""
    alone = recipe.crop is None and recipe.form == "pil" and not recipe.joint
    crop = crop_of(part.processor, recipe.options) if alone else None
    return None if crop is None else replace(recipe, crop=crop, form="normalised")


def _flip(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept one flip anywhere after the crop: it commutes with all parts but augmentations."""
    known = isinstance(part.p, (int, float)) and 0 <= part.p <= 1
    if recipe.flip is not None or not known or (recipe.crop is not None and recipe.crop.program):
        return _augment(recipe, part)
    if recipe.crop is None and not (recipe.joint and recipe.form in ("pil", "uint8")):
        return None
    crop = Unresized(**recipe.options) if recipe.crop is None else copy.copy(recipe.crop)
    crop.flip = float(part.p)
    return replace(recipe, crop=crop, flip=crop.flip)


def _augment(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept a part that the core can draw and do to bytes, which may become floats later."""
    makers: Mapping[str, Maker] = {"pil": program_of, "uint8": tensor_program_of}
    if recipe.form == "erased" or (recipe.form in ("levels", "normalised") and _fills(part)):
        return None
    if recipe.form not in makers and getattr(part, "fill", None):
        return None
    return recipe.followed_by(part, makers.get(recipe.form, float_program_of))


def _fills(part: Any) -> bool:
    """Return whether a part may fill a border, whose value would be normalised afterwards."""
    pads = getattr(part, "padding", None) or getattr(part, "pad_if_needed", False)
    return type(part).__qualname__ in ("CenterCrop", "Pad") or bool(pads)


def _erase(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept RandomErasing as the last part, after the values are floats."""
    floats = recipe.form in ("float", "levels", "normalised")
    made = recipe.followed_by(part, erasure_of) if floats else None
    return made and replace(made, form="erased")


def _holds_image(recipe: Recipe) -> bool:
    """Return whether a recipe makes a Pillow image, or an array of bytes."""
    return recipe.form == "pil" or (recipe.form == "uint8" and recipe.image is np.ndarray)


def _to_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    known = _holds_image(recipe) and torch.get_default_dtype() == torch.float32
    return replace(recipe, image=None).floats() if known else None


def _to_pil(recipe: Recipe, _part: Any) -> Recipe | None:
    """Accept ToPILImage of an array."""
    known = _part.mode in (None, "RGB") and recipe.image is np.ndarray and recipe.form == "uint8"
    return replace(recipe, form="pil", image=None) if known else None


def _maybe_to_tensor(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept timm's MaybeToTensor, which leaves tensors unchanged."""
    return _to_tensor(recipe, part) if recipe.form == "pil" else recipe


def _unscaled_to_tensor(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept timm's ToTensor."""
    known = recipe.form == "pil" and part.dtype is torch.float32
    return _as_levels(recipe) if known else None


def _pil_to_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    return replace(recipe, form="uint8") if recipe.form == "pil" else None


def _maybe_pil_to_tensor(recipe: Recipe, part: Any) -> Recipe | None:
    return _pil_to_tensor(recipe, part) if recipe.form == "pil" else recipe


def _to_image(recipe: Recipe, part: Any) -> Recipe | None:
    image = getattr(sys.modules.get("torchvision.tv_tensors"), "Image", None)
    known = _holds_image(recipe) or recipe.image is not np.ndarray
    made = _maybe_pil_to_tensor(recipe, part) if known else None
    return replace(made, image=image) if image and made else None


def _to_pure_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    """Accept ToPureTensor, unless it would change the types of a target."""
    return None if recipe.joint else replace(recipe, image=None)


def _to_float(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept ToDtype, and ConvertImageDtype, which always scales."""
    if recipe.form == "pil" or part.dtype is not torch.float32:
        return None
    if recipe.form != "uint8":
        return recipe  # already floats
    return recipe.floats() if getattr(part, "scale", True) is True else _as_levels(recipe)


def _as_levels(recipe: Recipe) -> Recipe:
    """Return the recipe with floats from 0 to 255, which this mean and std produce."""
    return replace(recipe.floats((0.0,), (1 / 255,)), form="levels")


def _convert_dtype(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept ConvertImageDtype, unless it would convert the masks of a target as well."""
    return None if recipe.joint else _to_float(recipe, part)


def _normalize(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept Normalize, also with `inplace`: the tensor is new, and nothing else refers to it."""
    given = [[one] if isinstance(one, (int, float)) else one for one in (part.mean, part.std)]
    mean, std = (three_values(one) for one in given)
    if mean is None or std is None or 0 in std:
        return None
    if recipe.channels == 1 and any(len(one) != 1 for one in given):
        return None  # torchvision raises an error
    if recipe.form == "erased":
        return _normalise_erased(recipe, mean, std)
    if recipe.form == "levels":
        return recipe.floats([one / 255 for one in mean], [one / 255 for one in std])
    return recipe.floats(mean, std) if recipe.form == "float" else None


def _normalise_erased(recipe: Recipe, mean: Sequence[float], std: Sequence[float]) -> Recipe | None:
    """Normalise the levels of erased boxes with the image, where they are constants."""
    crop = copy.copy(recipe.crop)
    if crop is None or crop.normalize is None or crop.normalize.mean is not None:
        return None
    steps = []
    for step in crop.program:
        erasure = step.erasure if step.kind == "erasure" else None
        if erasure is not None:
            if erasure.noise != "none":
                return None
            red, green, blue = (
                (level - m) / s for level, m, s in zip(erasure.level, mean, std, strict=True)
            )
            step = step._replace(erasure=erasure._replace(level=(red, green, blue)))  # noqa: PLW2901
        steps.append(step)
    crop.program = Program(steps)
    return replace(replace(recipe, crop=crop).floats(mean, std), form="erased")


def _of_albumentations(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept a transform of arrays, to which a Pillow image is converted."""
    transform = part.transform
    if not recipe.augments or not (recipe.form == "pil" or recipe.image is np.ndarray):
        return None
    recipe = replace(
        recipe, image=np.ndarray, form="uint8" if recipe.form == "pil" else recipe.form
    )
    if not _albumentations.is_known(transform) or recipe.channels != 3:
        return None
    name, bytes_ = type(transform).__name__, recipe.form == "uint8"
    if name == "ToTensorV2":
        return replace(recipe, image=None) if transform.p >= 1 else None
    scaled = _albumentations.scale_of(transform) if bytes_ else None
    if scaled is not None:
        return recipe.floats(*scaled)
    programs = _albumentations.program_of if bytes_ else _albumentations.float_program_of
    return recipe.followed_by(transform, programs)


def _fastdecode_normalize(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept fastdecode's Normalize, which takes bytes, too, and returns plain tensors."""
    if recipe.form == "float" and part.mean is None:
        return recipe
    recipe = replace(recipe, image=None)
    if recipe.form == "uint8":
        recipe = recipe.floats()
    return recipe if recipe.form == "float" and part.mean is None else _normalize(recipe, part)


def _reason_not_fused(part: Any, recipe: Recipe, *, known: bool) -> str:
    """Return, in words, why a part is not done while decoding."""
    name = getattr(part, "__name__", type(part).__name__)
    begun = recipe.crop is not None
    if known and begun:
        return f"{name} cannot follow what comes before it"
    if known:
        mode = interpolation_name(getattr(part, "interpolation", "bilinear"))
        why = "its arguments, or what comes before it, are" if mode else "its interpolation is"
        return f"{why} not among those that are done while decoding: {part!r}"
    if any(map(is_of_albumentations, getattr(part, "__dict__", {}).values())):
        return (
            f"{name} does more than to return compose(image=image)['image'], or albumentations' "
            "transforms that are not known begin it"
        )
    if recipe.image is np.ndarray and not begun:
        return f"with output='array' it gets arrays, and {name} is none of the transforms of those"
    which = name if begun else f"it begins with {name}, which"
    return f"{which} is not one of the transforms that are done while decoding"


def _interpolation(recipe: Recipe, part: Any) -> Interpolation | None:
    """Return the interpolation if the part resizes bytes with antialiasing, else None.

    Pillow antialiases whatever `antialias` says. Tensors are antialiased only with True: None and
    "warn", the default of 0.15 and 0.16, mean no.
    """
    mode = part.interpolation
    if isinstance(mode, str) and _module(part) == _V1:
        return None  # torchvision's v1 would raise an error
    if recipe.form == "uint8" and _module(part) == _V1 and interpolation_name(mode) == "bicubic":
        return None  # v1 resizes floats here, and v2 bytes, whose result differs by up to 20 levels
    if recipe.form == "pil" or (recipe.form == "uint8" and part.antialias is True):
        return interpolation_name(mode)
    return None


# ---- the table ----


def _rows(modules: Sequence[str], rows: dict[str, Row]) -> dict[tuple[str, str], Row]:
    """Return the rows of classes that are alike in several modules."""
    return {(module, name): row for module in modules for name, row in rows.items()}


_VALUES = Row(in_place=True)  # changes values only, and runs as written
_COLOURS = Row(_augment, in_place=True)
_MOVES = Row(_augment)

TABLE: dict[tuple[str, str], Row] = {
    **_rows(
        (_V1, _V2),
        {
            "CenterCrop": Row(_center_crop),
            "Pad": _MOVES,
            "RandomCrop": _MOVES,
            "RandomPerspective": _MOVES,
            "ColorJitter": _COLOURS,
            "Compose": Row(parts="transforms"),
            "ConvertImageDtype": Row(_convert_dtype, in_place=True),
            "GaussianBlur": _COLOURS,
            "GaussianNoise": _VALUES,
            "Grayscale": _COLOURS,
            "Identity": Row(_accept, in_place=True),
            "Normalize": Row(_normalize, in_place=True),
            "PILToTensor": Row(_pil_to_tensor, in_place=True, only_pillow=True),
            "RGB": Row(_accept, in_place=True),
            "RandomAdjustSharpness": _COLOURS,
            "RandomAutocontrast": _COLOURS,
            "RandomChannelPermutation": _COLOURS,
            "RandomEqualize": _COLOURS,
            "RandomAffine": _MOVES,
            "RandomApply": _MOVES,
            "RandomChoice": _MOVES,
            "RandomErasing": Row(_erase, in_place=True),
            "RandomGrayscale": _COLOURS,
            "RandomHorizontalFlip": Row(_flip),
            "RandomInvert": _COLOURS,
            "RandomOrder": _MOVES,
            "RandomPhotometricDistort": _COLOURS,
            "RandomPosterize": _COLOURS,
            "RandomResizedCrop": Row(_random_resized_crop),
            "RandomRotation": _MOVES,
            "RandomShortestSize": Row(_random_shortest_size),
            "RandomSolarize": _COLOURS,
            "RandomVerticalFlip": _MOVES,
            "Resize": Row(_resize),
            "ScaleJitter": Row(_scale_jitter),
            "ToDtype": Row(_to_float, in_place=True),
            "ToImage": Row(_to_image, in_place=True),
            "ToPILImage": Row(_to_pil, in_place=True),
            "ToPureTensor": Row(_to_pure_tensor, in_place=True),
            "ToTensor": Row(_to_tensor, in_place=True),
        },
    ),
    **_rows(
        (_AUTO, _V2),
        {
            "AugMix": _MOVES,
            "AutoAugment": _MOVES,
            "RandAugment": _MOVES,
            "TrivialAugmentWide": _MOVES,
        },
    ),
    (_V1, "ToTensor"): Row(_to_tensor, in_place=True, only_pillow=True),
    (_WEIGHTS, "ImageClassification"): Row(_image_classification),
    (_REFERENCES, "ClassificationPresetTrain"): Row(parts="transforms"),
    (_REFERENCES, "ClassificationPresetEval"): Row(parts="transforms"),
    (_REFERENCES, "DetectionPresetTrain"): Row(parts="transforms"),
    (_REFERENCES, "DetectionPresetEval"): Row(parts="transforms"),
    (_REFERENCES, "SegmentationPresetTrain"): Row(parts="transforms"),
    (_REFERENCES, "SegmentationPresetEval"): Row(parts="transforms"),
    (_TIMM, "MaybePILToTensor"): Row(_maybe_pil_to_tensor, in_place=True),
    (_TIMM, "MaybeToTensor"): Row(_maybe_to_tensor, in_place=True),
    (_TIMM, "RandomResizedCropAndInterpolation"): Row(_timm_random_resized_crop),
    ("fastdecode.torch.transforms.blur", "GaussianBlur"): _COLOURS,
    ("fastdecode.torch.transforms.opencv", "LetterBox"): _MOVES,
    ("fastdecode.torch.transforms.opencv", "OpenCVResize"): _MOVES,
    ("timm.data.auto_augment", "AugMixAugment"): _MOVES,
    ("timm.data.auto_augment", "AutoAugment"): _MOVES,
    ("timm.data.auto_augment", "RandAugment"): _MOVES,
    ("timm.data.random_erasing", "RandomErasing"): Row(_erase, in_place=True),
    (PixelValues.__module__, "PixelValues"): Row(_pixel_values),
    (OfImage.__module__, "OfImage"): Row(_of_albumentations),
    (_TIMM, "ToTensor"): Row(_unscaled_to_tensor, in_place=True, only_pillow=True),
    ("torch.nn.modules.container", "Sequential"): Row(parts="_modules"),
    ("torch.nn.modules.linear", "Identity"): Row(_accept, in_place=True),
    (Normalize.__module__, "Normalize"): Row(_fastdecode_normalize, in_place=True),
}
"""What is known, by the module and the name of a class."""
