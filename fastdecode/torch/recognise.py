"""Reading torchvision's transforms by class name and attributes, without importing torchvision.

Notes
-----
Written from torchvision 0.29. Its random draws all come from torch's generator: a box's area,
shape, top and left, and ``torch.rand(1)`` for a flip, whatever its probability.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import torch

from fastdecode.torch.transforms import Normalize

__all__ = ["Recipe", "flatten", "keeps_geometry", "read"]

_V1 = "torchvision.transforms.transforms"
_V2 = "torchvision.transforms.v2."

# They change values only; where a pixel lies stays as it is.
_KEEP_GEOMETRY = frozenset(
    {
        "ColorJitter",
        "ConvertImageDtype",
        "GaussianBlur",
        "GaussianNoise",
        "Grayscale",
        "Identity",
        "Normalize",
        "PILToTensor",
        "RandomAdjustSharpness",
        "RandomAutocontrast",
        "RandomChannelPermutation",
        "RandomEqualize",
        "RandomErasing",
        "RandomGrayscale",
        "RandomInvert",
        "RandomPhotometricDistort",
        "RandomPosterize",
        "RandomSolarize",
        "RGB",
        "ToDtype",
        "ToImage",
        "ToPILImage",
        "ToPureTensor",
        "ToTensor",
    }
)


@dataclass(frozen=True)
class Recipe:
    """What the first parts of a pipeline make of an RGB Pillow image.

    Attributes
    ----------
    geometry : {"", "RandomResizedCrop", "Resize", "ResizeCenterCrop"}
        Which of the package's transforms does the same; empty before there is one.
    arguments : dict
        Of that transform.
    flip : float or None
        Probability of RandomHorizontalFlip; None without one.
    form : {"pil", "uint8", "float", "normalised"}
        What there is at that point: a Pillow image, or a tensor of bytes, of 0 to 1, or normalised.
    image : type or None
        torchvision's ``tv_tensors.Image`` where the tensor is one, None where it is a plain tensor.
    mean, std : tuple of 3 floats, or None
    """

    geometry: Literal["", "RandomResizedCrop", "Resize", "ResizeCenterCrop"] = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    flip: float | None = None
    form: Literal["pil", "uint8", "float", "normalised"] = "pil"
    image: Any = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None


def flatten(transform: Any) -> Iterator[Any]:
    """List the parts of a pipeline, those of a Compose or nn.Sequential inside another included.

    Parameters
    ----------
    transform : callable
        A transform that is neither is a pipeline of one part.

    Yields
    ------
    callable
    """
    _, name = _named(transform)
    parts = transform.transforms if name == "Compose" else None
    if type(transform) is torch.nn.Sequential and _as_built(transform):
        parts = list(transform)
    if not isinstance(parts, (list, tuple)):
        yield transform
        return
    for part in parts:
        yield from flatten(part)


def read(parts: Sequence[Any]) -> tuple[Recipe, int] | None:
    """Follow a pipeline as far as every part is known for certain.

    Parameters
    ----------
    parts : sequence of callables

    Returns
    -------
    (Recipe, int) or None
        What the first so many parts do; None if there is no geometry among them.
    """
    recipe = Recipe()
    count = 0
    for part in parts:
        version, name = _named(part)
        # An operation of v1 on a tv_tensors.Image may or may not keep the class.
        known = None if recipe.image and version == 1 else _STEPS.get(name)
        following = known(recipe, part) if known else None
        if following is None:
            break
        recipe = following
        count += 1
    return (recipe, count) if recipe.geometry else None


def keeps_geometry(part: Any) -> bool:
    """Tell whether a transform is known to leave every pixel where it is."""
    return _named(part)[1] in _KEEP_GEOMETRY or isinstance(part, Normalize)


def _named(part: Any) -> tuple[int, str]:
    """Give torchvision's version of transforms (1 or 2) and the class; (0, "") for all else."""
    kind = type(part)
    if kind.__module__ == _V1 and _as_built(part):
        return 1, kind.__qualname__
    if kind.__module__.startswith(_V2) and _as_built(part):
        return 2, kind.__qualname__
    return 0, ""


def _as_built(part: Any) -> bool:
    """Tell that nobody hung a hook or a method of his own on the object."""
    own = getattr(part, "__dict__", {})
    replaced = {"forward", "transform", "make_params", "_get_params", "get_params"} & own.keys()
    return not (replaced or own.get("_forward_hooks") or own.get("_forward_pre_hooks"))


def _random_resized_crop(recipe: Recipe, part: Any) -> Recipe | None:
    size, scale, ratio = _sides(part.size), _range(part.scale), _range(part.ratio)
    if recipe.geometry or not size or not scale or not ratio or not _resizes(recipe, part):
        return None
    drawn_from = getattr(part, "_log_ratio", None)  # v2 draws from this, whatever `ratio` says now
    if _named(part)[0] == 2 and not (
        isinstance(drawn_from, torch.Tensor)
        and torch.equal(drawn_from, torch.log(torch.tensor(part.ratio)))
    ):
        return None
    arguments = {"size": size, "scale": scale, "ratio": ratio}
    return replace(recipe, geometry="RandomResizedCrop", arguments=arguments)


def _resize(recipe: Recipe, part: Any) -> Recipe | None:
    size = _sides(part.size)
    if recipe.geometry or not size or part.max_size is not None:
        return None
    if not _resizes(recipe, part):
        return None
    return replace(recipe, geometry="Resize", arguments={"size": size})


def _center_crop(recipe: Recipe, part: Any) -> Recipe | None:
    """Only right after Resize: once flipped, an odd margin lies on the other side.

    The padding of a crop that is too large is black only before Normalize.
    """
    size = _sides(part.size)
    if recipe.geometry != "Resize" or not size:
        return None
    if recipe.flip is not None or recipe.form == "normalised":
        return None
    arguments = {"resize": recipe.arguments["size"], "size": size}
    return replace(recipe, geometry="ResizeCenterCrop", arguments=arguments)


def _flip(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept one flip, wherever it stands after the geometry: it commutes with all that follows."""
    known = isinstance(part.p, (int, float)) and 0 <= part.p <= 1
    if not recipe.geometry or recipe.flip is not None or not known:
        return None
    return replace(recipe, flip=float(part.p))


def _to_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    known = recipe.form == "pil" and torch.get_default_dtype() == torch.float32
    return replace(recipe, form="float") if known else None


def _pil_to_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    return replace(recipe, form="uint8") if recipe.form == "pil" else None


def _to_image(recipe: Recipe, _part: Any) -> Recipe | None:
    image = getattr(sys.modules.get("torchvision.tv_tensors"), "Image", None)
    form = "uint8" if recipe.form == "pil" else recipe.form
    return replace(recipe, form=form, image=image) if image else None


def _to_pure_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    return replace(recipe, image=None)


def _to_float(recipe: Recipe, part: Any) -> Recipe | None:
    """ToDtype and ConvertImageDtype; the latter always scales."""
    if recipe.form == "pil" or part.dtype is not torch.float32:
        return None
    if recipe.form != "uint8":
        return recipe  # they are floats already
    return replace(recipe, form="float") if getattr(part, "scale", True) is True else None


def _normalize(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept `inplace` as well: the tensor is a new one, which nobody else sees."""
    mean, std = _three(part.mean), _three(part.std)
    if recipe.form != "float" or mean is None or std is None or 0 in std:
        return None
    return replace(recipe, form="normalised", mean=mean, std=std)


_Step: TypeAlias = Callable[[Recipe, Any], Recipe | None]

_STEPS: dict[str, _Step] = {
    "CenterCrop": _center_crop,
    "ConvertImageDtype": _to_float,
    "Normalize": _normalize,
    "PILToTensor": _pil_to_tensor,
    "RandomHorizontalFlip": _flip,
    "RandomResizedCrop": _random_resized_crop,
    "Resize": _resize,
    "ToDtype": _to_float,
    "ToImage": _to_image,
    "ToPureTensor": _to_pure_tensor,
    "ToTensor": _to_tensor,
}


def _resizes(recipe: Recipe, part: Any) -> bool:
    """Tell that it resizes bytes, bilinear and antialiased.

    Pillow antialiases whatever `antialias` says. Tensors are antialiased with True alone: None,
    and the "warn" that 0.15 and 0.16 have by default, mean no there.
    """
    mode = part.interpolation
    if type(mode).__module__ == "torchvision.transforms.functional":
        mode = mode.value
    elif isinstance(mode, str) and _named(part)[0] == 1:
        return False  # it would be an error
    if mode not in ("bilinear", 2):  # 2: Pillow's constant
        return False
    return recipe.form == "pil" or (recipe.form == "uint8" and part.antialias is True)


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


def _three(values: Any) -> tuple[float, ...] | None:
    """One value for each channel; a single one is for all three, as torch broadcasts it."""
    if not isinstance(values, (list, tuple)) or len(values) not in (1, 3):
        return None
    if not all(isinstance(value, (int, float)) for value in values):
        return None
    return tuple(float(value) for value in values) * (3 // len(values))
