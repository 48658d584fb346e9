"""What `resized` is given: checked, with messages that say which picture is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import Any, TypeAlias

import torch

__all__ = ["FloatBox", "boxes_of", "check_images", "check_size", "flips_of", "result_of"]

FloatBox: TypeAlias = tuple[float, float, float, float]


def check_size(size: tuple[int, int]) -> None:
    """Refuse what is not a positive height and width."""
    sides = tuple(size)
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        raise ValueError(f"size must be (height, width) in pixels, not {size!r}")


def check_images(images: Sequence[torch.Tensor]) -> None:
    """Refuse pictures that are not uint8 (C, H, W), with one C and on one device."""
    for index, image in enumerate(images):
        if not isinstance(image, torch.Tensor):
            raise TypeError(f"images[{index}] must be a tensor, not {type(image).__name__}")
        if image.dtype != torch.uint8 or image.ndim != 3 or 0 in image.shape:
            raise ValueError(
                f"images[{index}] must be uint8 of shape (C, H, W), "
                f"not {tuple(image.shape)} of {image.dtype}"
            )
        first = images[0]
        if image.device != first.device or image.shape[0] != first.shape[0]:
            raise ValueError(
                f"images[{index}] has {image.shape[0]} channels on {image.device}, "
                f"but images[0] has {first.shape[0]} on {first.device}"
            )


def boxes_of(
    boxes: Sequence[FloatBox] | None, images: Sequence[torch.Tensor]
) -> Sequence[FloatBox]:
    """Return a box for each picture: all of it, if there are none."""
    if boxes is None:
        return [(0.0, 0.0, image.shape[2], image.shape[1]) for image in images]
    _check_count("boxes", boxes, images)
    for index, (box, image) in enumerate(zip(boxes, images, strict=True)):
        if len(box) != 4 or not all(isinstance(edge, Real) for edge in box):
            raise TypeError(f"boxes[{index}] must be four numbers, not {box!r}")
        left, top, right, bottom = box
        height, width = image.shape[1:]
        if not (0 < right - left < math.inf and 0 < bottom - top < math.inf):
            raise ValueError(f"boxes[{index}] must be (left, top, right, bottom), not {box}")
        if left >= width or top >= height or right <= 0 or bottom <= 0:
            raise ValueError(f"boxes[{index}] {box} lies outside of its image, {width} x {height}")
    return boxes


def flips_of(flips: Sequence[bool] | None, images: Sequence[torch.Tensor]) -> Sequence[bool]:
    """Return for each picture whether to mirror it: none, if it is not said."""
    if flips is None:
        return [False] * len(images)
    _check_count("flips", flips, images)
    return flips


def result_of(
    images: Sequence[torch.Tensor],
    size: tuple[int, int],
    out: torch.Tensor | None,
    *,
    channels_last: bool,
) -> torch.Tensor:
    """Return `out`, if it fits, or a fresh result."""
    if not images:
        channels, device = (3, torch.device("cpu")) if out is None else (out.shape[1], out.device)
    else:
        channels, device = images[0].shape[0], images[0].device
    shape = (len(images), channels, *size)
    if out is None:
        layout = torch.channels_last if channels_last else torch.contiguous_format
        return torch.empty(shape, dtype=torch.uint8, device=device, memory_format=layout)
    if out.shape != shape or out.dtype != torch.uint8 or out.device != device:
        raise ValueError(
            f"out must be {shape} of torch.uint8 on {device}, "
            f"not {tuple(out.shape)} of {out.dtype} on {out.device}"
        )
    return out


def _check_count(name: str, values: Sequence[Any], images: Sequence[torch.Tensor]) -> None:
    if len(values) != len(images):
        raise ValueError(f"there are {len(images)} images, but {len(values)} {name}")
