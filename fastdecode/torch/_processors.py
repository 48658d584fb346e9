"""Hugging Face's image processors as transforms of one image; transformers is not imported.

Notes
-----
Written from transformers 5.23, whose processors without "Pil" in their names resize tensors.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import torch

from fastdecode.native._augment import (
    Library,
    Program,
    Resampling,
    central_crop,
    in_multiples,
    resized_to,
)
from fastdecode.torch._albumentations import OfImage, is_of_albumentations
from fastdecode.torch.transforms.base import Recipe, interpolation_name
from fastdecode.torch.transforms.multimodal import PadToSquare
from fastdecode.torch.transforms.normalize import three_values

_MODELS = (
    *("Beit", "Bit", "CLIP", "ConvNext", "DPT", "DeiT", "Detr", "Llava", "MobileNetV1"),
    *("MobileNetV2", "Pvt", "Qwen2VL", "Segformer", "Siglip", "ViT"),
)
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


class PaddedPixelValues:
    """A processor of LLaVA's that pads an image to a square first, as two steps."""

    def __init__(self, processor: Any) -> None:
        rest = copy.copy(processor)
        rest.do_pad = False
        fill = tuple(int(one * 255) for one in processor.image_mean)
        self.parts = (PadToSquare(fill), PixelValues(rest))

    def __call__(self, image: Any) -> torch.Tensor:
        """Return the processed image (3, H, W)."""
        pads, processes = self.parts
        made: torch.Tensor = processes(pads(image))
        return made


@dataclass(frozen=True)
class Patches:
    """How a processor of Qwen2-VL's divides an image, in squares of `merged` x `merged` patches."""

    side: int
    merged: int
    repeated: int  # as if an image were that many frames of a video

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """Return the patches (count, values) of an image (3, H, W)."""
        channels, height, width = image.shape
        squares = self.side * self.merged
        down, across = height // squares, width // squares
        split = (self.merged, self.side)
        parts = image.reshape(channels, down, *split, across, *split).permute(1, 4, 2, 5, 0, 3, 6)
        frames = parts.unsqueeze(5).expand(*parts.shape[:5], self.repeated, *parts.shape[5:])
        return frames.reshape(down * across * self.merged**2, -1)


def as_transform(transform: Any) -> Any:
    """Return a processor of transformers, or what albumentations calls by name, as a function.

    Anything else is returned as it is.
    """
    if is_of_albumentations(transform):
        return OfImage(transform)
    names = {(kind.__module__.split(".")[0], kind.__name__) for kind in type(transform).__mro__}
    if ("transformers", "ImageProcessingMixin") not in names:
        return transform
    pads = type(transform).__name__.startswith("Llava") and _is_known(transform)
    if pads and transform.do_pad and three_values(transform.image_mean):
        return PaddedPixelValues(transform)
    return PixelValues(transform)


def _is_known(processor: Any) -> bool:
    """Return whether a processor is transformers' own, and none of its methods is replaced."""
    kind = type(processor)
    if kind.__name__ not in _KNOWN or not kind.__module__.startswith("transformers.models."):
        return False
    return not any(callable(getattr(kind, name, None)) for name in vars(processor))


def after_processor(processor: Any, recipe: Recipe) -> Recipe | None:
    """Return the recipe after what a processor does; None if it may do anything else."""
    if not _is_known(processor):
        return None
    name = type(processor).__name__
    steps = {one: bool(getattr(processor, f"do_{one}", False)) for one in _STEPS}
    if name.startswith("Detr"):  # it pads the images of a batch, and here there is one
        steps["pad"] = getattr(processor, "pad_size", None) is not None
    if name.startswith("Segformer") or name == "DPTImageProcessorPil":
        steps["center_crop"] = False  # which they ignore
    if name.startswith("DPT") and not _keeps_size(processor):
        return None
    mode = interpolation_name(processor.resample)
    if not (steps["resize"] and steps["rescale"]) or steps["pad"] or mode is None:
        return None
    if processor.rescale_factor != 1 / 255 or getattr(processor, "device", None) is not None:
        return None
    mean, std = None, None
    if steps["normalize"]:
        mean, std = three_values(processor.image_mean), three_values(processor.image_std)
        if mean is None or std is None or 0 in std:
            return None
    of_tensors = not _OF_TENSORS.isdisjoint(kind.__name__ for kind in type(processor).__mro__)
    library: Library = "torchvision" if of_tensors else "pillow"
    filter_: Resampling = "own" if mode == "bilinear" else mode
    patches = _patches(processor) if name.startswith("Qwen2VL") else None
    program = _resized(processor, filter_, library, patches, crops=steps["center_crop"])
    if program is None or (recipe.program and (filter_, library) == ("bicubic", "torchvision")):
        return None
    following = recipe.doing(Program([*recipe.program, *program])).floats(mean, std)
    return following.but(form="normalised", image=patches)


def _resized(
    processor: Any, filter_: Resampling, library: Library, patches: Patches | None, *, crops: bool
) -> Program | None:
    """Return the program with which a processor resizes and crops."""
    if type(processor).__name__.startswith("Qwen2VL"):
        limits = _given(processor.size)
        least, most = limits.get("shortest_edge"), limits.get("longest_edge")
        if patches is None or len(limits) != 2 or not least or not most or least > most:
            return None
        return in_multiples(patches.side * patches.merged, (least, most), filter_, library)
    sizes = _sizes(processor, crops=crops)
    if sizes is None:
        return None
    resize, size = sizes
    if isinstance(size, int):
        return resized_to(resize, filter_, size, library, rounds=True)
    program = resized_to(resize, filter_, None, library)
    cropped = central_crop(size, rounds_down=True)
    return program if resize == size else Program([*program, *cropped])


def _patches(processor: Any) -> Patches | None:
    sides = (processor.patch_size, processor.merge_size, processor.temporal_patch_size)
    known = all(type(one) is int and one > 0 for one in sides)
    return Patches(*sides) if known else None


def _keeps_size(processor: Any) -> bool:
    """Return whether a processor of DPT resizes to just the size that it is given."""
    return processor.ensure_multiple_of == 1 and not processor.keep_aspect_ratio


def _sizes(processor: Any, *, crops: bool) -> Any:
    """Return what a processor resizes to, as for `resized_to`, and the size of its result.

    None if the crop may exceed the resized image, or if results differ in size; but of DETR, the
    limits of both sides.
    """
    if type(processor).__name__.startswith("Detr"):
        limits = _given(processor.size)
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


def _given(size: Any) -> dict[str, Any]:
    return {name: value for name, value in dict(size or {}).items() if value is not None}


def _size(given: Any) -> int | tuple[int, int] | None:
    """Return a processor's dictionary as the shorter side or (height, width); None if other."""
    sides = _given(given)
    if not all(type(value) is int and value > 0 for value in sides.values()):
        return None
    if sides.keys() == {"shortest_edge"}:
        return int(sides["shortest_edge"])
    return (sides["height"], sides["width"]) if sides.keys() == {"height", "width"} else None
