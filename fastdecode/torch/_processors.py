"""Hugging Face's image processors as transforms of one image; transformers is not imported.

Notes
-----
Written from transformers 5.23, whose processors without "Pil" in their names resize tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from fastdecode.native._augment import Library, Program, Resampling, central_crop, resized_to
from fastdecode.torch._albumentations import OfImage, is_of_albumentations
from fastdecode.torch.transforms.base import Recipe, interpolation_name
from fastdecode.torch.transforms.normalize import three_values

_MODELS = ("Beit", "Bit", "CLIP", "ConvNext", "DPT", "DeiT", "Detr", "Llava", "Siglip", "ViT")
_KNOWN = {f"{model}ImageProcessor{way}" for model in _MODELS for way in ("", "Fast", "Pil")}
_OF_TENSORS = {"TorchvisionBackend", "BaseImageProcessorFast"}
_STEPS = ("resize", "center_crop", "rescale", "normalize", "pad")
_DIMENSIONS_OF_PATCHES = 2  # Qwen-VL's: (patches, values)
_WARPED = 384  # from this side on, ConvNeXt's processor makes squares without a crop


class PixelValues:
    """An image processor as a transform: from an image to its ``pixel_values``."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, image: Any) -> torch.Tensor:
        """Return the processed image (3, H, W); of a processor that makes patches, all of them."""
        made: torch.Tensor = self.processor(image, return_tensors="pt")["pixel_values"]
        return made[0] if made.ndim > _DIMENSIONS_OF_PATCHES else made

    def __repr__(self) -> str:
        return f"{type(self.processor).__name__}(...)"


def as_transform(transform: Any) -> Any:
    """Return a processor of transformers, or what albumentations calls by name, as a function.

    Anything else is returned as it is.
    """
    if is_of_albumentations(transform):
        return OfImage(transform)
    names = {(kind.__module__.split(".")[0], kind.__name__) for kind in type(transform).__mro__}
    return (
        PixelValues(transform) if ("transformers", "ImageProcessingMixin") in names else transform
    )


def after_processor(processor: Any, recipe: Recipe) -> Recipe | None:
    """Return the recipe after what a processor does; None if it may do anything else."""
    name = type(processor).__name__
    if name not in _KNOWN or not type(processor).__module__.startswith("transformers.models."):
        return None
    if any(callable(getattr(type(processor), name, None)) for name in vars(processor)):
        return None  # a method has been replaced
    steps = {one: bool(getattr(processor, f"do_{one}", False)) for one in _STEPS}
    if name.startswith("Detr"):  # it pads the images of a batch, and here there is one
        steps["pad"] = getattr(processor, "pad_size", None) is not None
    if name.startswith("DPT") and not _keeps_size(processor):
        return None
    mode = interpolation_name(processor.resample)
    sizes = _sizes(processor, crops=steps["center_crop"])
    if not (steps["resize"] and steps["rescale"]) or steps["pad"] or mode is None or sizes is None:
        return None
    if processor.rescale_factor != 1 / 255 or getattr(processor, "device", None) is not None:
        return None
    mean, std = None, None
    if steps["normalize"]:
        mean, std = three_values(processor.image_mean), three_values(processor.image_std)
        if mean is None or std is None or 0 in std:
            return None
    resize, size = sizes
    of_tensors = not _OF_TENSORS.isdisjoint(kind.__name__ for kind in type(processor).__mro__)
    library: Library = "torchvision" if of_tensors else "pillow"
    filter_: Resampling = "own" if mode == "bilinear" else mode
    if isinstance(size, int):
        program = resized_to(resize, filter_, size, library, rounds=True)
    else:
        program = resized_to(resize, filter_, None, library)
        cropped = central_crop(size, rounds_down=True)
        program = program if resize == size else Program([*program, *cropped])
    return recipe.doing(program).floats(mean, std).but(form="normalised")


def _keeps_size(processor: Any) -> bool:
    """Return whether a processor of DPT resizes to just the size that it is given."""
    return processor.ensure_multiple_of == 1 and not processor.keep_aspect_ratio


def _sizes(processor: Any, *, crops: bool) -> Any:
    """Return what a processor resizes to, as for `resized_to`, and the size of its result.

    None if the crop may exceed the resized image, or if results differ in size; but of DETR, the
    limits of both sides.
    """
    if type(processor).__name__.startswith("Detr"):
        limits = {name: value for name, value in dict(processor.size).items() if value is not None}
        shorter, longer = limits.get("shortest_edge", 0), limits.get("longest_edge", 0)
        limited = limits.keys() == {"shortest_edge", "longest_edge"} and not crops
        return (shorter, longer) if limited and 0 < shorter < longer else None
    resize = _size(processor.size)
    crop = _size(processor.crop_size) if crops else resize
    if type(processor).__name__.startswith("ConvNext"):
        if crops or not isinstance(resize, int):
            return None
        crop = (resize, resize)
        return (int(resize / processor.crop_pct) if resize < _WARPED else crop), crop
    if resize is None or not isinstance(crop, tuple):
        return None
    sides = (resize, resize) if isinstance(resize, int) else resize
    return None if crop[0] > sides[0] or crop[1] > sides[1] else (resize, crop)


def _size(given: Any) -> int | tuple[int, int] | None:
    """Return a processor's dictionary as the shorter side or (height, width); None if other."""
    sides = {name: value for name, value in dict(given or {}).items() if value is not None}
    if not all(type(value) is int and value > 0 for value in sides.values()):
        return None
    if sides.keys() == {"shortest_edge"}:
        return int(sides["shortest_edge"])
    return (sides["height"], sides["width"]) if sides.keys() == {"height", "width"} else None
