"""Hugging Face's image processors as transforms of one image; transformers is not imported.

Notes
-----
Written from transformers 5.23, whose processors without "Pil" in their names resize tensors.
"""

from __future__ import annotations

from typing import Any

import torch

from fastdecode.torch._albumentations import OfImage, is_of_albumentations
from fastdecode.torch.transforms.base import Crop, interpolation_name
from fastdecode.torch.transforms.crops import Resize, ResizeCenterCrop
from fastdecode.torch.transforms.normalize import three_values

_MODELS = ("Bit", "CLIP", "ConvNext", "DeiT", "Siglip", "ViT")
_KNOWN = {f"{model}ImageProcessor{way}" for model in _MODELS for way in ("", "Fast", "Pil")}
_OF_TENSORS = {"TorchvisionBackend", "BaseImageProcessorFast"}
_STEPS = ("resize", "center_crop", "rescale", "normalize", "pad")
_WARPED = 384  # from this side on, ConvNeXt's processor makes squares without a crop


class PixelValues:
    """An image processor as a transform: from an image to its ``pixel_values``."""

    def __init__(self, processor: Any) -> None:
        self.processor = processor

    def __call__(self, image: Any) -> torch.Tensor:
        """Return the processed image (3, H, W)."""
        made: torch.Tensor = self.processor(image, return_tensors="pt")["pixel_values"][0]
        return made

    def __repr__(self) -> str:
        return f"{type(self.processor).__name__}(...)"


class ProcessorCrop(ResizeCenterCrop):
    """`ResizeCenterCrop` with the margins of image processors, which round them down."""

    def _margins(self, canvas: tuple[int, int]) -> tuple[int, int]:
        return (canvas[0] - self.size[0]) // 2, (canvas[1] - self.size[1]) // 2

    def front(self) -> None:
        """Return None: the core rounds margins as torchvision does."""
        return


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


def crop_of(processor: Any, options: dict[str, Any]) -> Crop | None:
    """Return the crop that does what a processor does; None if it may do anything else."""
    name = type(processor).__name__
    if name not in _KNOWN or not type(processor).__module__.startswith("transformers.models."):
        return None
    steps = {one: bool(getattr(processor, f"do_{one}", False)) for one in _STEPS}
    mode = interpolation_name(processor.resample)
    sizes = _sizes(processor, crops=steps["center_crop"])
    if not (steps["resize"] and steps["rescale"]) or steps["pad"] or mode is None or sizes is None:
        return None
    if processor.rescale_factor != 1 / 255 or getattr(processor, "device", None) is not None:
        return None
    values: dict[str, Any] = {"dtype": torch.float32}
    if steps["normalize"]:
        mean, std = three_values(processor.image_mean), three_values(processor.image_std)
        if mean is None or std is None or 0 in std:
            return None
        values = {"mean": mean, "std": std}
    resize, size = sizes
    if resize == size:
        crop: Crop = Resize(size, mode, **values, **options)
    else:
        crop = ProcessorCrop(resize, size, mode, **values, **options)
    bases = {kind.__name__ for kind in type(processor).__mro__}
    crop.of_tensors = not bases.isdisjoint(_OF_TENSORS)
    return crop


def _sizes(processor: Any, *, crops: bool) -> Any:
    """Return what a processor resizes to, as `ResizeCenterCrop`, and the size of its result.

    None if the crop may exceed the resized image, or if results differ in size.
    """
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
