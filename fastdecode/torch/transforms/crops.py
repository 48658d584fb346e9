"""The three transforms of image training: a random crop, a central crop, the whole picture."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from fastdecode.arguments import is_int
from fastdecode.torch.transforms import seeded
from fastdecode.torch.transforms.base import Crop, Plan, Quality, is_number
from fastdecode.torch.transforms.boxes import center_crop, draw_box, draw_flip, resized
from fastdecode.torch.transforms.described import (
    central_crop,
    decides_as,
    headroom_of,
    random_crop,
)
from fastdecode.torch.transforms.normalize import IMAGENET_MEAN, IMAGENET_STD

if TYPE_CHECKING:
    from fastdecode.types import Box

__all__ = ["RandomResizedCrop", "Resize", "ResizeCenterCrop"]

_Size = int | Sequence[int]


class RandomResizedCrop(Crop):
    """A random box, resized and perhaps flipped: what networks are trained on.

    Parameters
    ----------
    size : int or (height, width)
        Of the result, in pixels; an int is both.
    scale : (low, high)
        Of the box's area, as a share of the picture's.
    ratio : (low, high)
        Of the box's width to its height.
    flip : float
        Probability of a flip from left to right.
    mean, std : sequence of 3 floats, or None
        To normalise with; ImageNet's by default. ``mean=None``: values of 0 to 1.
    dtype : torch.float32 or torch.uint8
        ``torch.uint8`` gives plain bytes, to be normalised on the device by `Normalize`.
    quality : {"default", "exact"}
        ``"default"`` lets the JPEG decoder shrink by up to 8 first. ``"exact"`` never does, and
        gives torchvision's pixels.
    headroom : float
        How many times larger than the result the box must still be after that, at least 1.

    Notes
    -----
    The boxes and flips are those of torchvision's RandomResizedCrop and RandomHorizontalFlip for
    the same seed.
    """

    def __init__(
        self,
        size: _Size,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
        *,
        mean: Sequence[float] | None = IMAGENET_MEAN,
        std: Sequence[float] | None = IMAGENET_STD,
        dtype: torch.dtype = torch.float32,
        quality: Quality = "default",
        headroom: float = 1.0,
    ) -> None:
        super().__init__(mean, std, dtype, quality, headroom)
        self.size = _both_sides("size", size)
        self.scale = _range("scale", scale)
        self.ratio = _range("ratio", ratio)
        self.flip = _probability(flip)
        self.shape = (3, *self.size)

    def plan(self, width: int, height: int, generator: torch.Generator | None) -> Plan:
        """Draw a box, then whether to flip."""
        box = draw_box(width, height, self.scale, self.ratio, generator)
        return Plan(box, self.size, 0, 0, self.size, draw_flip(self.flip, generator))

    def seeded_plan(self, width: int, height: int, seed: int) -> Plan:
        """Draw the same as `plan` with a generator of that seed."""
        if type(self).plan is RandomResizedCrop.plan:
            drawn = seeded.box_and_flip(width, height, self.scale, self.ratio, self.flip, seed)
            if drawn is not None:
                return Plan(drawn[0], self.size, 0, 0, self.size, drawn[1])
        return super().seeded_plan(width, height, seed)

    def described(self, *, orient: bool) -> Any:
        """Describe what is done with a seed to the native core; None if it cannot do the same."""
        if not (decides_as(self, RandomResizedCrop) and seeded.same_as_torch()):
            return None
        how = (self.scale, self.ratio, self.flip, headroom_of(self))
        return random_crop(self.size, *how, upright=orient)

    def __repr__(self) -> str:
        return (
            f"RandomResizedCrop(size={self.size}, scale={self.scale}, ratio={_short(self.ratio)}, "
            f"flip={self.flip}, {self._options()})"
        )


class ResizeCenterCrop(Crop):
    """The centre of the resized picture: what networks are tested on.

    Parameters
    ----------
    resize : int or (height, width)
        What the whole is resized to; an int is the shorter side.
    size : int or (height, width)
        Of the crop. Where it is larger than the resized picture it is padded with black.
    flip : float
        Probability of a flip from left to right.
    mean, std, dtype, quality, headroom
        As for `RandomResizedCrop`.

    Notes
    -----
    Sides and margins are rounded as by torchvision's Resize and CenterCrop.
    """

    def __init__(
        self,
        resize: _Size,
        size: _Size,
        flip: float = 0.0,
        *,
        mean: Sequence[float] | None = IMAGENET_MEAN,
        std: Sequence[float] | None = IMAGENET_STD,
        dtype: torch.dtype = torch.float32,
        quality: Quality = "default",
        headroom: float = 1.0,
    ) -> None:
        super().__init__(mean, std, dtype, quality, headroom)
        self.resize = _one_or_both("resize", resize)
        self.size = _both_sides("size", size)
        self.flip = _probability(flip)
        self.shape = (3, *self.size)

    def plan(self, width: int, height: int, generator: torch.Generator | None) -> Plan:
        """Resize the whole, keep the centre."""
        canvas = resized(width, height, self.resize)
        top, left = center_crop(canvas, self.size)
        flip = draw_flip(self.flip, generator)
        return Plan(_whole(width, height), canvas, top, left, self.size, flip)

    def described(self, *, orient: bool) -> Any:
        """Describe what is done with a seed to the native core; None if it cannot do the same."""
        if not (decides_as(self, ResizeCenterCrop) and seeded.same_as_torch()):
            return None
        how = (self.flip, headroom_of(self))
        return central_crop(self.resize, self.size, *how, upright=orient)

    def __repr__(self) -> str:
        return (
            f"ResizeCenterCrop(resize={self.resize}, size={self.size}, flip={self.flip}, "
            f"{self._options()})"
        )


class Resize(Crop):
    """The whole picture, resized.

    Parameters
    ----------
    size : int or (height, width)
        An int is the shorter side; the results then differ in shape.
    flip : float
        Probability of a flip from left to right.
    mean, std, dtype, quality, headroom
        As for `RandomResizedCrop`.

    Notes
    -----
    The longer side is rounded as by torchvision's Resize.
    """

    def __init__(
        self,
        size: _Size,
        flip: float = 0.0,
        *,
        mean: Sequence[float] | None = IMAGENET_MEAN,
        std: Sequence[float] | None = IMAGENET_STD,
        dtype: torch.dtype = torch.float32,
        quality: Quality = "default",
        headroom: float = 1.0,
    ) -> None:
        super().__init__(mean, std, dtype, quality, headroom)
        self.size = _one_or_both("size", size)
        self.flip = _probability(flip)
        self.shape = None if isinstance(self.size, int) else (3, *self.size)

    def plan(self, width: int, height: int, generator: torch.Generator | None) -> Plan:
        """Resize the whole."""
        canvas = resized(width, height, self.size)
        flip = draw_flip(self.flip, generator)
        return Plan(_whole(width, height), canvas, 0, 0, canvas, flip)

    def described(self, *, orient: bool) -> Any:
        """Describe what is done with a seed to the native core; None if it cannot do the same."""
        if not (decides_as(self, Resize) and seeded.same_as_torch()) or isinstance(self.size, int):
            return None
        how = (self.flip, headroom_of(self))
        return central_crop(self.size, self.size, *how, upright=orient)

    def __repr__(self) -> str:
        return f"Resize(size={self.size}, flip={self.flip}, {self._options()})"


def _whole(width: int, height: int) -> Box:
    return 0, 0, width, height


def _one_or_both(name: str, size: _Size) -> int | tuple[int, int]:
    """Check a size; one number, alone or in a list, stays one."""
    sides = tuple(size) if isinstance(size, Sequence) else (size,)
    if not 1 <= len(sides) <= 2 or not all(is_int(side) and side > 0 for side in sides):
        raise ValueError(f"{name} must be a positive integer or (height, width), not {size!r}")
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def _both_sides(name: str, size: _Size) -> tuple[int, int]:
    checked = _one_or_both(name, size)
    return (checked, checked) if isinstance(checked, int) else checked


def _range(name: str, values: Sequence[float]) -> tuple[float, float]:
    numbers = tuple(values) if isinstance(values, Iterable) else ()
    if (
        len(numbers) != 2
        or not all(is_number(number) for number in numbers)
        or not 0 < numbers[0] <= numbers[1] < math.inf
    ):
        raise ValueError(f"{name} must be (low, high) with 0 < low <= high, not {values!r}")
    return float(numbers[0]), float(numbers[1])


def _probability(value: Any) -> float:
    # True is most likely meant to say "with flips", but would mean that all are flipped.
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"flip must be a probability from 0 to 1, not {value!r}")
    return float(value)


def _short(ratio: tuple[float, float]) -> str:
    return f"({ratio[0]:.4g}, {ratio[1]:.4g})"
