"""Recognises transforms of torchvision and timm by class name and attributes; imports neither.

Notes
-----
Written from torchvision 0.29 and timm 1.0. torchvision draws everything from torch's generator: a
box's area, shape, top and left, and ``torch.rand(1)`` for a flip, whatever its probability. timm
draws boxes from Python's ``random``.
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

from fastdecode._resizing import Interpolation
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

_CHANNELS_FIRST, _CHANNELS_LAST = Layout(), Layout(channels_last=True)

# These transforms change values but move no pixel.
_KEEP_GEOMETRY = {
    *("ColorJitter", "ConvertImageDtype", "GaussianBlur", "GaussianNoise", "Grayscale", "Identity"),
    *("MaybePILToTensor", "MaybeToTensor", "Normalize", "PILToTensor", "RandomAdjustSharpness"),
    *("RandomAutocontrast", "RandomChannelPermutation", "RandomEqualize", "RandomErasing"),
    *("RandomGrayscale", "RandomInvert", "RandomPhotometricDistort", "RandomPosterize"),
    *("RandomSolarize", "RGB", "ToDtype", "ToImage", "ToPILImage", "ToPureTensor", "ToTensor"),
}


@dataclass(frozen=True)
class Recipe:
    """The result of the first parts of a pipeline, applied to an RGB Pillow image."""

    options: dict[str, Any] = field(default_factory=dict)
    """Options of the equivalent crop: quality and headroom."""
    crop: Crop | None = None
    """The crop with the same geometry and values; None until a part crops or resizes."""
    flip: float | None = None
    """Probability of RandomHorizontalFlip; None without one."""
    form: Literal["pil", "uint8", "float", "normalised"] = "pil"
    """The result: a Pillow image, or a tensor of bytes, of floats from 0 to 1, or normalised."""
    image: Any = None
    """torchvision's ``tv_tensors.Image`` if the tensor is one; None for a plain tensor."""
    layout: Layout = _CHANNELS_FIRST
    """The memory layout of torchvision's tensor."""

    def floats(self, mean: Any = None, std: Any = None) -> Recipe:
        """Return the recipe with values as floats from 0 to 1, or normalised."""
        crop = copy.copy(self.crop)
        if crop is not None:
            crop.dtype, crop.normalize = torch.float32, Normalize(mean, std)
        return replace(self, crop=crop, form="float" if mean is None else "normalised")


def flatten(transform: Any) -> Iterator[Any]:
    """Yield the parts of a pipeline, including those of nested pipelines.

    A pipeline is a Compose, an nn.Sequential, or an object that only calls one, such as the presets
    in torchvision's references. Any other transform is a pipeline with one part.
    """
    version, name = _library_and_class(transform)
    parts = transform.transforms if name == "Compose" else None
    if type(transform) is torch.nn.Sequential and _is_unmodified(transform):
        parts = list(transform)
    elif not version:
        called = _wrapped_transform(transform)
        parts = None if called is None else [called]
    if not isinstance(parts, (list, tuple)):
        yield transform
        return
    for part in parts:
        yield from flatten(part)


def read_pipeline(parts: Sequence[Any], recipe: Recipe) -> tuple[Recipe, int, str]:
    """Follow a pipeline as long as every part is known for certain.

    Return the recipe after these parts, their number, and the reason in words why the next part
    does not follow.
    """
    for count, part in enumerate(parts):
        step = _find_step(part, recipe)
        following = step(recipe, part) if step else None
        if following is None:
            return recipe, count, _reason_not_fused(part, recipe, known=step is not None)
        recipe = following
    return recipe, len(parts), "nothing in it crops or resizes"


def second_normalize(parts: Sequence[Any]) -> Any:
    """Return the first Normalize after normalised floats; None if an unknown part precedes it."""
    for part in parts:
        version, name = _library_and_class(part)
        if name == "Normalize" or isinstance(part, Normalize):
            return part
        if not version:
            return None
    return None


def wants_pillow(part: Any) -> bool:
    """Return whether a part takes Pillow images but not tensors."""
    return _library_and_class(part) in (
        (_V1, "ToTensor"),
        (_V1, "PILToTensor"),
        (_V2, "PILToTensor"),
        (_TIMM, "ToTensor"),
    )


def is_albumentations(transform: Any) -> bool:
    """Return whether a transform is from albumentations: it takes ``image=`` and returns a dict."""
    return type(transform).__module__.partition(".")[0] == "albumentations"


def keeps_geometry(part: Any) -> bool:
    """Return whether a transform is known to leave every pixel where it is."""
    return _library_and_class(part)[1] in _KEEP_GEOMETRY or isinstance(part, Normalize)


def _library_and_class(part: Any) -> tuple[str, str]:
    """Return the library (or torchvision's version) and the class; ("", "") if it is unknown."""
    kind = type(part)
    module = _V2 if kind.__module__.startswith(_V2) else kind.__module__
    if module in (_V1, _V2, _PRESETS, _TIMM) and _is_unmodified(part):
        return module, kind.__qualname__
    return "", ""


def _is_unmodified(part: Any) -> bool:
    """Return whether the object has no hooks and no replaced methods."""
    own = getattr(part, "__dict__", {})
    replaced = {"forward", "transform", "make_params", "_get_params", "get_params"} & own.keys()
    return not (replaced or own.get("_forward_hooks") or own.get("_forward_pre_hooks"))


# ---- functions that are known for certain, because their instructions equal one of these ----


def _identity(image: Any) -> Any:
    return image


def _to_rgb(image: Any) -> Any:
    return image.convert("RGB")


_TO_RGB_LAMBDA = lambda image: image.convert("RGB")  # noqa: E731 - a lambda has other constants


class _CallsAttribute:
    def __call__(self, image: Any) -> Any:
        return self.attribute(image)  # type: ignore[attr-defined]


@lru_cache(maxsize=256)
def _instructions(code: CodeType) -> tuple[Any, ...]:
    """List a function's instructions, without names of variables and indices of constants."""
    named_operands = (*opcode.hasconst, *opcode.hasname)
    return (
        code.co_argcount,
        code.co_kwonlyargcount,
        code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_GENERATOR),
        *(
            (
                instruction.opname,
                instruction.argval if instruction.opcode in named_operands else instruction.arg,
            )
            for instruction in get_instructions(code)
        ),
    )


def _has_known_code(function: Any, *known: Callable[..., Any]) -> bool:
    """Return whether a function has the same instructions as a known one."""
    if type(function) is not FunctionType:
        return False
    found = _instructions(function.__code__)
    return any(found == _instructions(one.__code__) for one in known)


@lru_cache(maxsize=256)
def _called_attribute(code: CodeType) -> str | None:
    """Return the attribute that a method calls with its argument; None if it does more."""
    if len(code.co_names) != 1:
        return None
    usual = _CallsAttribute.__call__.__code__.replace(co_names=code.co_names)
    return code.co_names[0] if _instructions(code) == _instructions(usual) else None


def _wrapped_transform(transform: Any) -> Any:
    """Return the transform that an object calls with the image; None if it does more."""
    call, modules = _class_attribute(transform, "__call__"), {}
    if isinstance(transform, torch.nn.Module):
        if call is not _MODULE_CALL or not _is_unmodified(transform):
            return None
        call, modules = _class_attribute(transform, "forward"), transform._modules
    if (
        type(call) is not FunctionType
        or type(transform).__getattribute__ is not _DEFAULT_GETATTRIBUTE
    ):
        return None
    name = _called_attribute(call.__code__)
    if name is None:
        return None
    class_value = _class_attribute(transform, name)
    called = getattr(transform, "__dict__", {}).get(name, modules.get(name, class_value))
    # A property, or a method of the class itself, may do anything.
    may_do_more = hasattr(type(class_value), "__get__") or called is transform
    return None if may_do_more else called


def _class_attribute(thing: Any, name: str) -> Any:
    """Return a class attribute from the class or its bases, without calling descriptors."""
    kinds = type(thing).__mro__
    return next((vars(kind)[name] for kind in kinds if name in vars(kind)), None)


_DEFAULT_GETATTRIBUTE: Any = object.__getattribute__
_MODULE_CALL = vars(torch.nn.Module)["__call__"]


# ---- the steps: each takes the recipe so far, and returns the recipe after its part ----


def _find_step(part: Any, recipe: Recipe) -> _Step | None:
    library, name = _library_and_class(part)
    if library == _V1 and recipe.image:
        return None  # a v1 transform of a tv_tensors.Image may or may not keep the class
    function = part.lambd if name == "Lambda" and library in (_V1, _V2) else part
    if (type(part) is torch.nn.Identity and _is_unmodified(part)) or _has_known_code(
        function, _identity
    ):
        return _accept
    if _has_known_code(function, _to_rgb, _TO_RGB_LAMBDA):
        return _convert_rgb
    return _fastdecode_normalize if type(part) is Normalize else _STEPS.get((library, name))


def _accept(recipe: Recipe, _part: Any) -> Recipe | None:
    return recipe


def _convert_rgb(recipe: Recipe, _part: Any) -> Recipe | None:
    """Accept Pillow images, which are RGB already; tensors cannot be converted."""
    return recipe if recipe.form == "pil" else None


def _set_crop(recipe: Recipe, part: Any, kind: type[Crop], **arguments: Any) -> Recipe | None:
    """Set the crop, if it is the first one and all of its arguments are known."""
    if recipe.crop is not None or not all(arguments.values()):
        return None
    layout = recipe.layout
    if recipe.form != "pil":  # Pillow images have no layout yet
        layout = layout._replace(resized_by=1 if _library_and_class(part)[0] == _V1 else 2)
    return replace(recipe, crop=kind(**arguments, **recipe.options), layout=layout)


def _random_resized_crop(recipe: Recipe, part: Any) -> Recipe | None:
    log_ratio = getattr(part, "_log_ratio", None)  # v2 draws from this and ignores `ratio`
    ratio = _as_range(part.ratio)
    if (
        ratio
        and _library_and_class(part)[0] == _V2
        and not (
            isinstance(log_ratio, torch.Tensor)
            and torch.equal(log_ratio, torch.log(torch.tensor(part.ratio)))
        )
    ):
        return None
    return _set_crop(
        recipe,
        part,
        RandomResizedCrop,
        size=_as_sides(part.size),
        scale=_as_range(part.scale),
        ratio=ratio,
        interpolation=_interpolation(recipe, part),
    )


def _timm_random_resized_crop(recipe: Recipe, part: Any) -> Recipe | None:
    size = _as_sides(part.size)
    modes = part.interpolation if isinstance(part.interpolation, tuple) else (part.interpolation,)
    known = {("bilinear", "bicubic"): "random", ("bilinear",): "bilinear", ("bicubic",): "bicubic"}
    return _set_crop(
        recipe,
        part,
        RandomResizedCropAndInterpolation,
        size=isinstance(size, tuple) and recipe.form == "pil" and size,
        scale=_as_range(part.scale),
        ratio=_as_range(part.ratio),
        interpolation=known.get(tuple(map(interpolation_name, modes))),  # type: ignore[arg-type]
    )


def _resize(recipe: Recipe, part: Any) -> Recipe | None:
    if part.max_size is not None:
        return None
    interpolation = _interpolation(recipe, part)
    return _set_crop(recipe, part, Resize, size=_as_sides(part.size), interpolation=interpolation)


def _center_crop(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept it only right after Resize: after a flip, an odd margin is on the other side.

    A crop larger than the image is padded, and the padding is black only before Normalize.
    """
    size, whole = _as_sides(part.size), recipe.crop
    if type(whole) is not Resize or whole.size is None or whole.max_size is not None:
        return None
    if not size or recipe.flip is not None or recipe.form == "normalised":
        return None
    options = {name: getattr(whole, name) for name in ("dtype", "quality", "headroom")}
    crop = ResizeCenterCrop(whole.size, size, whole.interpolation, **options)
    layout = recipe.layout._replace(cropped=recipe.form != "pil")
    return replace(recipe, crop=crop, layout=layout)


def _image_classification(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept the preset of torchvision's weights: resize, crop, convert to floats, normalise."""
    std = three_values(part.std)
    made = _set_crop(
        recipe,
        part,
        ResizeCenterCrop,
        resize=_as_sides(part.resize_size),
        size=_as_sides(part.crop_size),
        interpolation=recipe.form == "pil" and _interpolation(recipe, part),
        mean=three_values(part.mean),
        std=std and 0 not in std and std,
    )
    return made and replace(made, form="normalised", layout=_CHANNELS_LAST)


def _flip(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept one flip anywhere after the crop: it commutes with all parts that may follow."""
    known = isinstance(part.p, (int, float)) and 0 <= part.p <= 1
    if recipe.crop is None or recipe.flip is not None or not known:
        return None
    crop = copy.copy(recipe.crop)
    crop.flip = float(part.p)
    return replace(recipe, crop=crop, flip=crop.flip)


def _to_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    known = recipe.form == "pil" and torch.get_default_dtype() == torch.float32
    return replace(recipe.floats(), layout=_CHANNELS_FIRST) if known else None


def _maybe_to_tensor(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept timm's MaybeToTensor, which leaves tensors unchanged."""
    return _to_tensor(recipe, part) if recipe.form == "pil" else recipe


def _unscaled_to_tensor(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept timm's ToTensor: floats from 0 to 255, which this mean and std produce."""
    if recipe.form != "pil" or part.dtype is not torch.float32:
        return None
    return replace(recipe.floats((0.0,), (1 / 255,)), layout=_CHANNELS_LAST)


def _pil_to_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    return replace(recipe, form="uint8", layout=_CHANNELS_LAST) if recipe.form == "pil" else None


def _maybe_pil_to_tensor(recipe: Recipe, part: Any) -> Recipe | None:
    return _pil_to_tensor(recipe, part) if recipe.form == "pil" else recipe


def _to_image(recipe: Recipe, part: Any) -> Recipe | None:
    image = getattr(sys.modules.get("torchvision.tv_tensors"), "Image", None)
    made = _maybe_pil_to_tensor(recipe, part)
    return replace(made, image=image) if image and made else None


def _to_pure_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    return replace(recipe, image=None)


def _to_float(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept ToDtype and ConvertImageDtype; the latter always scales."""
    if recipe.form == "pil" or part.dtype is not torch.float32:
        return None
    if recipe.form != "uint8":
        return recipe  # already floats
    return recipe.floats() if getattr(part, "scale", True) is True else None


def _normalize(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept Normalize, also with `inplace`: the tensor is new, and nothing else refers to it."""
    mean, std = three_values(part.mean), three_values(part.std)
    if recipe.form != "float" or mean is None or std is None or 0 in std:
        return None
    return recipe.floats(mean, std)


def _fastdecode_normalize(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept fastdecode's Normalize, which also takes bytes and makes them floats itself."""
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
    "Identity": _accept,
    "Normalize": _normalize,
    "PILToTensor": _pil_to_tensor,
    "RGB": _accept,
    "RandomHorizontalFlip": _flip,
    "RandomResizedCrop": _random_resized_crop,
    "Resize": _resize,
    "ToDtype": _to_float,
    "ToImage": _to_image,
    "ToPureTensor": _to_pure_tensor,
    "ToTensor": _to_tensor,
}.items():
    _STEPS[_V1, _name] = _STEPS[_V2, _name] = _step


def _reason_not_fused(part: Any, recipe: Recipe, *, known: bool) -> str:
    """Return, in words, why a part is not done while decoding."""
    name = getattr(part, "__name__", type(part).__name__)
    if known and recipe.crop is not None:
        return f"{name} cannot follow what comes before it"
    if known:
        mode = interpolation_name(getattr(part, "interpolation", "bilinear"))
        why = "its arguments, or what comes before it, are" if mode else "its interpolation is"
        return f"{why} not among those that are done while decoding: {part!r}"
    if any(map(is_albumentations, (part, *getattr(part, "__dict__", {}).values()))):
        return (
            f"{name} uses albumentations, whose transforms draw from generators that they keep "
            "from image to image, and resize without antialiasing: fused, it would give other "
            "draws and other pixels"
        )
    return f"it begins with {name}, which is not one of the transforms known here"


def _interpolation(recipe: Recipe, part: Any) -> Interpolation | None:
    """Return the interpolation if the part resizes bytes with antialiasing, else None.

    Pillow antialiases whatever `antialias` says. Tensors are antialiased only with True: None and
    "warn", the default of 0.15 and 0.16, mean no.
    """
    mode = part.interpolation
    if isinstance(mode, str) and _library_and_class(part)[0] == _V1:
        return None  # torchvision's v1 would raise an error
    if recipe.form == "pil" or (recipe.form == "uint8" and part.antialias is True):
        return interpolation_name(mode)
    return None


def _as_sides(size: Any) -> int | tuple[int, int] | None:
    """Return a size as one number or (height, width); None if it is not a valid size."""
    sides = tuple(size) if isinstance(size, (list, tuple)) else (size,)
    if not 1 <= len(sides) <= 2 or not all(type(side) is int and side > 0 for side in sides):
        return None
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def _as_range(values: Any) -> tuple[float, float] | None:
    if not isinstance(values, (list, tuple)) or len(values) != 2:
        return None
    # With NumPy's numbers, torchvision would draw in another precision.
    if not all(type(value) in (int, float) for value in values) or not 0 < values[0] <= values[1]:
        return None
    return float(values[0]), float(values[1])
