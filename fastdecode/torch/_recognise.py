"""Reading torchvision's and timm's transforms by class name and attributes, importing neither.

Notes
-----
Written from torchvision 0.29 and timm 1.0. torchvision's random draws all come from torch's
generator: a box's area, shape, top and left, and ``torch.rand(1)`` for a flip, whatever its
probability. timm's boxes come from Python's ``random``.
"""

from __future__ import annotations

import copy
import inspect
import opcode
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from dis import get_instructions
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Literal, TypeAlias

import torch

from fastdecode.resizing import Interpolation
from fastdecode.torch.transforms.base import Crop, Layout, interpolation_name
from fastdecode.torch.transforms.crops import (
    RandomResizedCrop,
    RandomResizedCropAndInterpolation,
    Resize,
    ResizeCenterCrop,
)
from fastdecode.torch.transforms.normalize import Normalize, three_values

_V1 = "torchvision.transforms.transforms"
_V2 = "torchvision.transforms.v2."
_PRESETS = "torchvision.transforms._presets"
_TIMM = "timm.data.transforms"

_FIRST, _LAST = Layout(), Layout(channels_last=True)

# They change values only; where a pixel lies stays as it is.
_KEEP_GEOMETRY = {
    *("ColorJitter", "ConvertImageDtype", "GaussianBlur", "GaussianNoise", "Grayscale", "Identity"),
    *("MaybePILToTensor", "MaybeToTensor", "Normalize", "PILToTensor", "RandomAdjustSharpness"),
    *("RandomAutocontrast", "RandomChannelPermutation", "RandomEqualize", "RandomErasing"),
    *("RandomGrayscale", "RandomInvert", "RandomPhotometricDistort", "RandomPosterize"),
    *("RandomSolarize", "RGB", "ToDtype", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor"),
}


@dataclass(frozen=True)
class Recipe:
    """What the first parts of a pipeline make of an RGB Pillow image."""

    options: dict[str, Any] = field(default_factory=dict)
    """Of the crop that does the same: its quality and headroom."""
    crop: Crop | None = None
    """What does the same, as far as the geometry and values go; None before there is a geometry."""
    flip: float | None = None
    """Probability of RandomHorizontalFlip; None without one."""
    form: Literal["pil", "uint8", "float", "normalised"] = "pil"
    """What there is then: a Pillow image, or a tensor of bytes, of 0 to 1, or normalised."""
    image: Any = None
    """torchvision's ``tv_tensors.Image`` where the tensor is one, None where it is a plain one."""
    layout: Layout = _FIRST
    """How torchvision's tensor lies in memory."""

    def floats(self, mean: Any = None, std: Any = None) -> Recipe:
        """Let values be floats of 0 to 1, or normalised."""
        crop = copy.copy(self.crop)
        if crop is not None:
            crop.dtype, crop.normalize = torch.float32, Normalize(mean, std)
        return replace(self, crop=crop, form="float" if mean is None else "normalised")


def flatten(transform: Any) -> Iterator[Any]:
    """List the parts of a pipeline, those of a pipeline inside another included.

    A pipeline is a Compose, an nn.Sequential, or an object that does nothing but call one, as the
    presets of torchvision's references. Any other transform is a pipeline of one part.
    """
    version, name = _named(transform)
    parts = transform.transforms if name == "Compose" else None
    if type(transform) is torch.nn.Sequential and _as_built(transform):
        parts = list(transform)
    elif not version:
        called = _called_by(transform)
        parts = None if called is None else [called]
    if not isinstance(parts, (list, tuple)):
        yield transform
        return
    for part in parts:
        yield from flatten(part)


def read(parts: Sequence[Any], recipe: Recipe) -> tuple[Recipe, int, str]:
    """Follow a pipeline as far as every part is known for certain.

    Return what the first so many parts do after `recipe`, how many, and why not more, in words.
    """
    for count, part in enumerate(parts):
        known = _step_of(part, recipe)
        following = known(recipe, part) if known else None
        if following is None:
            return recipe, count, _complaint(part, recipe, known=known is not None)
        recipe = following
    return recipe, len(parts), "nothing in it crops or resizes"


def normalised_again(parts: Sequence[Any]) -> Any:
    """Find a Normalize among what follows normalised floats, if nothing unknown comes before it."""
    for part in parts:
        version, name = _named(part)
        if name == "Normalize" or isinstance(part, Normalize):
            return part
        if not version:
            return None
    return None


def wants_pillow(part: Any) -> bool:
    """Tell whether a part takes Pillow images, and no tensors."""
    return _named(part) in (
        (_V1, "ToTensor"),
        (_V1, "PILToTensor"),
        (_V2, "PILToTensor"),
        (_TIMM, "ToTensor"),
    )


def is_albumentations(transform: Any) -> bool:
    """Tell whether a transform is one of that library's, which take ``image=`` and give a dict."""
    return type(transform).__module__.partition(".")[0] == "albumentations"


def keeps_geometry(part: Any) -> bool:
    """Tell whether a transform is known to leave every pixel where it is."""
    return _named(part)[1] in _KEEP_GEOMETRY or isinstance(part, Normalize)


def _named(part: Any) -> tuple[str, str]:
    """Give a known library, or torchvision's version, and the class; ("", "") for all else."""
    kind = type(part)
    module = _V2 if kind.__module__.startswith(_V2) else kind.__module__
    if module in (_V1, _V2, _PRESETS, _TIMM) and _as_built(part):
        return module, kind.__qualname__
    return "", ""


def _as_built(part: Any) -> bool:
    """Tell that nobody hung a hook or a method of his own on the object."""
    own = getattr(part, "__dict__", {})
    replaced = {"forward", "transform", "make_params", "_get_params", "get_params"} & own.keys()
    return not (replaced or own.get("_forward_hooks") or own.get("_forward_pre_hooks"))


# ---- code that can be known for certain: it is, to the instruction, one of these ----


def _identity(image: Any) -> Any:
    return image


def _to_rgb(image: Any) -> Any:
    return image.convert("RGB")


_ALSO_TO_RGB = lambda image: image.convert("RGB")  # noqa: E731 - its constants are others


class _Calling:
    def __call__(self, image: Any) -> Any:
        return self.attribute(image)  # type: ignore[attr-defined]


@lru_cache(maxsize=256)
def _instructions(code: CodeType) -> tuple[Any, ...]:
    """List what a function does, whatever its variables are called, wherever its constants lie."""
    told = (*opcode.hasconst, *opcode.hasname)
    return (
        code.co_argcount,
        code.co_kwonlyargcount,
        code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR),
        *(
            (one.opname, one.argval if one.opcode in told else one.arg)
            for one in get_instructions(code)
        ),
    )


def _does_as(function: Any, *known: Callable[..., Any]) -> bool:
    """Tell whether a function has the very instructions of a known one."""
    if type(function) is not FunctionType:
        return False
    found = _instructions(function.__code__)
    return any(found == _instructions(one.__code__) for one in known)


@lru_cache(maxsize=256)
def _called_attribute(code: CodeType) -> str | None:
    """Return the attribute that a method calls with its argument, if it does nothing else."""
    if len(code.co_names) != 1:
        return None
    usual = _Calling.__call__.__code__.replace(co_names=code.co_names)
    return code.co_names[0] if _instructions(code) == _instructions(usual) else None


def _called_by(transform: Any) -> Any:
    """Return what an object calls with the image, if it does nothing else."""
    call, modules = _of_class(transform, "__call__"), {}
    if isinstance(transform, torch.nn.Module):
        if call is not _CALL_OF_MODULE or not _as_built(transform):
            return None
        call, modules = _of_class(transform, "forward"), transform._modules
    if type(call) is not FunctionType or type(transform).__getattribute__ is not _LOOK_UP:
        return None
    name = _called_attribute(call.__code__)
    if name is None:
        return None
    by_class = _of_class(transform, name)
    called = getattr(transform, "__dict__", {}).get(name, modules.get(name, by_class))
    # A property or a method of its own may do anything.
    own = hasattr(type(by_class), "__get__") or called is transform
    return None if own else called


def _of_class(thing: Any, name: str) -> Any:
    """Look an attribute up in a class and its bases, as it is written there."""
    kinds = type(thing).__mro__
    return next((vars(kind)[name] for kind in kinds if name in vars(kind)), None)


_LOOK_UP: Any = object.__getattribute__
_CALL_OF_MODULE = vars(torch.nn.Module)["__call__"]


# ---- the steps: each takes what was made so far, and says what its part makes of it ----


def _step_of(part: Any, recipe: Recipe) -> _Step | None:
    library, name = _named(part)
    if library == _V1 and recipe.image:
        return None  # an operation of v1 on a tv_tensors.Image may or may not keep the class
    function = part.lambd if name == "Lambda" and library in (_V1, _V2) else part
    if (type(part) is torch.nn.Identity and _as_built(part)) or _does_as(function, _identity):
        return _nothing
    if _does_as(function, _to_rgb, _ALSO_TO_RGB):
        return _converted
    return _normalize_ours if type(part) is Normalize else _STEPS.get((library, name))


def _nothing(recipe: Recipe, _part: Any) -> Recipe | None:
    return recipe


def _converted(recipe: Recipe, _part: Any) -> Recipe | None:
    """Pillow images are RGB already; tensors cannot be converted."""
    return recipe if recipe.form == "pil" else None


def _begun(recipe: Recipe, part: Any, kind: type[Crop], **arguments: Any) -> Recipe | None:
    """Begin with a geometry, if it is the first one and all of its arguments are known."""
    if recipe.crop is not None or not all(arguments.values()):
        return None
    layout = recipe.layout
    if recipe.form != "pil":  # Pillow images have no layout yet
        layout = layout._replace(resized_by=1 if _named(part)[0] == _V1 else 2)
    return replace(recipe, crop=kind(**arguments, **recipe.options), layout=layout)


def _random_resized_crop(recipe: Recipe, part: Any) -> Recipe | None:
    drawn_from = getattr(part, "_log_ratio", None)  # v2 draws from this, whatever `ratio` says now
    ratio = _range(part.ratio)
    if (
        ratio
        and _named(part)[0] == _V2
        and not (
            isinstance(drawn_from, torch.Tensor)
            and torch.equal(drawn_from, torch.log(torch.tensor(part.ratio)))
        )
    ):
        return None
    return _begun(
        recipe,
        part,
        RandomResizedCrop,
        size=_sides(part.size),
        scale=_range(part.scale),
        ratio=ratio,
        interpolation=_interpolation(recipe, part),
    )


def _timm_random_resized_crop(recipe: Recipe, part: Any) -> Recipe | None:
    size = _sides(part.size)
    modes = part.interpolation if isinstance(part.interpolation, tuple) else (part.interpolation,)
    known = {("bilinear", "bicubic"): "random", ("bilinear",): "bilinear", ("bicubic",): "bicubic"}
    return _begun(
        recipe,
        part,
        RandomResizedCropAndInterpolation,
        size=isinstance(size, tuple) and recipe.form == "pil" and size,
        scale=_range(part.scale),
        ratio=_range(part.ratio),
        interpolation=known.get(tuple(map(interpolation_name, modes))),  # type: ignore[arg-type]
    )


def _resize(recipe: Recipe, part: Any) -> Recipe | None:
    if part.max_size is not None:
        return None
    interpolation = _interpolation(recipe, part)
    return _begun(recipe, part, Resize, size=_sides(part.size), interpolation=interpolation)


def _center_crop(recipe: Recipe, part: Any) -> Recipe | None:
    """Only right after Resize: once flipped, an odd margin lies on the other side.

    The padding of a crop that is too large is black only before Normalize.
    """
    size, whole = _sides(part.size), recipe.crop
    if type(whole) is not Resize or whole.size is None or whole.max_size is not None:
        return None
    if not size or recipe.flip is not None or recipe.form == "normalised":
        return None
    options = {name: getattr(whole, name) for name in ("dtype", "quality", "headroom")}
    crop = ResizeCenterCrop(whole.size, size, whole.interpolation, **options)
    layout = recipe.layout._replace(cropped=recipe.form != "pil")
    return replace(recipe, crop=crop, layout=layout)


def _image_classification(recipe: Recipe, part: Any) -> Recipe | None:
    """Read the preset of torchvision's weights: resized, cropped, made floats and normalised."""
    std = three_values(part.std)
    made = _begun(
        recipe,
        part,
        ResizeCenterCrop,
        resize=_sides(part.resize_size),
        size=_sides(part.crop_size),
        interpolation=recipe.form == "pil" and _interpolation(recipe, part),
        mean=three_values(part.mean),
        std=std and 0 not in std and std,
    )
    return made and replace(made, form="normalised", layout=_LAST)


def _flip(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept one flip, wherever it stands after the geometry: it commutes with all that follows."""
    known = isinstance(part.p, (int, float)) and 0 <= part.p <= 1
    if recipe.crop is None or recipe.flip is not None or not known:
        return None
    crop = copy.copy(recipe.crop)
    crop.flip = float(part.p)
    return replace(recipe, crop=crop, flip=crop.flip)


def _to_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    known = recipe.form == "pil" and torch.get_default_dtype() == torch.float32
    return replace(recipe.floats(), layout=_FIRST) if known else None


def _maybe_to_tensor(recipe: Recipe, part: Any) -> Recipe | None:
    """timm's: tensors it leaves as they are."""
    return _to_tensor(recipe, part) if recipe.form == "pil" else recipe


def _unscaled_to_tensor(recipe: Recipe, part: Any) -> Recipe | None:
    """Timm's ToTensor: floats of 0 to 255, which is what this mean and std make."""
    if recipe.form != "pil" or part.dtype is not torch.float32:
        return None
    return replace(recipe.floats((0.0,), (1 / 255,)), layout=_LAST)


def _pil_to_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    return replace(recipe, form="uint8", layout=_LAST) if recipe.form == "pil" else None


def _maybe_pil_to_tensor(recipe: Recipe, part: Any) -> Recipe | None:
    return _pil_to_tensor(recipe, part) if recipe.form == "pil" else recipe


def _to_image(recipe: Recipe, part: Any) -> Recipe | None:
    image = getattr(sys.modules.get("torchvision.tv_tensors"), "Image", None)
    made = _maybe_pil_to_tensor(recipe, part)
    return replace(made, image=image) if image and made else None


def _to_pure_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    return replace(recipe, image=None)


def _to_float(recipe: Recipe, part: Any) -> Recipe | None:
    """ToDtype and ConvertImageDtype; the latter always scales."""
    if recipe.form == "pil" or part.dtype is not torch.float32:
        return None
    if recipe.form != "uint8":
        return recipe  # they are floats already
    return recipe.floats() if getattr(part, "scale", True) is True else None


def _normalize(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept `inplace` as well: the tensor is a new one, which nobody else sees."""
    mean, std = three_values(part.mean), three_values(part.std)
    if recipe.form != "float" or mean is None or std is None or 0 in std:
        return None
    return recipe.floats(mean, std)


def _normalize_ours(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept bytes, which the package's own makes floats by itself."""
    if recipe.form == "uint8":
        recipe = recipe.floats()
    return recipe if part.mean is None and recipe.form == "float" else _normalize(recipe, part)


_Step: TypeAlias = Callable[[Recipe, Any], Recipe | None]

_STEPS: dict[tuple[str, str], _Step] = {
    (_PRESETS, "ImageClassification"): _image_classification,
    (_TIMM, "MaybePILToTensor"): _maybe_pil_to_tensor,
    (_TIMM, "MaybeToTensor"): _maybe_to_tensor,
    (_TIMM, "RandomResizedCropAndInterpolation"): _timm_random_resized_crop,
    (_TIMM, "ToTensor"): _unscaled_to_tensor,
}
for _name, _step in {
    "CenterCrop": _center_crop,
    "ConvertImageDtype": _to_float,
    "Identity": _nothing,
    "Normalize": _normalize,
    "PILToTensor": _pil_to_tensor,
    "RGB": _nothing,
    "RandomHorizontalFlip": _flip,
    "RandomResizedCrop": _random_resized_crop,
    "Resize": _resize,
    "ToDtype": _to_float,
    "ToImage": _to_image,
    "ToPureTensor": _to_pure_tensor,
    "ToTensor": _to_tensor,
}.items():
    _STEPS[_V1, _name] = _STEPS[_V2, _name] = _step


def _complaint(part: Any, recipe: Recipe, *, known: bool) -> str:
    """Say in words why a part is not done while decoding."""
    name = getattr(part, "__name__", type(part).__name__)
    if known and recipe.crop is not None:
        return f"{name} cannot follow what comes before it"
    if known:
        mode = interpolation_name(getattr(part, "interpolation", "bilinear"))
        why = "its arguments, or what comes before it, are" if mode else "its interpolation is"
        return f"{why} not among those that are done while decoding: {part!r}"
    if any(map(is_albumentations, (part, *getattr(part, "__dict__", {}).values()))):
        return (
            f"{name} is albumentations', which draws from generators that its transforms keep from "
            "image to image, and resizes without antialiasing: fused, it would give "
            "other draws and other pixels"
        )
    return f"it begins with {name}, which is not one of the transforms known here"


def _interpolation(recipe: Recipe, part: Any) -> Interpolation | None:
    """Name the interpolation, if it resizes bytes, antialiased.

    Pillow antialiases whatever `antialias` says. Tensors are antialiased with True alone: None,
    and the "warn" that 0.15 and 0.16 have by default, mean no there.
    """
    mode = part.interpolation
    if isinstance(mode, str) and _named(part)[0] == _V1:
        return None  # it would be an error
    if recipe.form == "pil" or (recipe.form == "uint8" and part.antialias is True):
        return interpolation_name(mode)
    return None


def _sides(size: Any) -> int | tuple[int, int] | None:
    """Read a size as the package's own transforms take it: one number, or (height, width)."""
    sides = tuple(size) if isinstance(size, (list, tuple)) else (size,)
    if not 1 <= len(sides) <= 2 or not all(type(side) is int and side > 0 for side in sides):
        return None
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _range(values: Any) -> tuple[float, float] | None:
    if not isinstance(values, (list, tuple)) or len(values) != 2:
        return None
    # NumPy's numbers would make torchvision draw in another precision.
    if not all(type(value) in (int, float) for value in values) or not 0 < values[0] <= values[1]:
        return None
    return float(values[0]), float(values[1])
