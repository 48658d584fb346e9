"""The transforms of image training: a random crop, a central crop, the whole image."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypedDict

import torch

from fastdecode._arguments import is_int
from fastdecode.native import _library
from fastdecode.plan import DEFAULT_MAX_PIXELS
from fastdecode.resizing import ResizePlan
from fastdecode.torch.transforms._random_crop import (
    PythonDraws,
    center_crop,
    draw_box,
    draw_flip,
    resized,
)
from fastdecode.torch.transforms.base import AnyInterpolation, Crop, Quality, is_number
from fastdecode.torch.transforms.normalize import IMAGENET_MEAN, IMAGENET_STD

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fastdecode.resizing import Interpolation
    from fastdecode.types import Box

__all__ = [
    "RandomResizedCrop",
    "RandomResizedCropAndInterpolation",
    "RandomResizedCropFlipNormalize",
    "Resize",
    "ResizeCenterCrop",
    "ResizeCenterCropNormalize",
]

_RANDOM, _CENTRAL = 1, 2  # of ``fd_crop``
_DECIDE = ("plan", "core_resize", "_jpegs_reduction", "described")
_Size = int | Sequence[int]
_EITHER: tuple[Interpolation, Interpolation] = ("bilinear", "bicubic")


class QualityOptions(TypedDict, total=False):
    """How closely a JPEG is decoded; `RandomResizedCrop` says what each is."""

    quality: Quality
    headroom: float


class CropOptions(QualityOptions, total=False):
    """What all of these take by name; `RandomResizedCrop` says what each is."""

    flip: float
    mean: Sequence[float] | None
    std: Sequence[float] | None
    dtype: torch.dtype | None


class RandomResizedCrop(Crop):
    """A random box, resized: torchvision's transform of this name, for a file's bytes.

    Parameters
    ----------
    size : int or (height, width)
        Of the result, in pixels; an int is both.
    scale : (low, high)
        Of the box's area, as a share of the image's.
    ratio : (low, high)
        Of the box's width to its height.
    interpolation : {"bilinear", "bicubic"}
        Or torchvision's enumeration, or Pillow's constant. The native core does the first alone.
    antialias : bool
        True; there for torchvision's sake.
    flip : float
        Probability of a flip from left to right.
    mean, std : sequence of 3 floats, or None
        To normalise with, on a scale of 0 to 1. Results are then torch.float32.
    dtype : torch.uint8 or torch.float32
        ``torch.float32`` without a mean gives values of 0 to 1. By default bytes, as torchvision
        makes them of a decoded image, or floats where there is a mean.
    quality : {"fast", "exact"}
        ``"fast"`` lets the JPEG decoder shrink by up to 8 first. ``"exact"`` never does, and
        gives torchvision's pixels.
    headroom : float
        How many times larger than the result the box must still be after that, at least 1.

    Raises
    ------
    ValueError
        If an argument is none of these, or bytes are to be normalised.

    Notes
    -----
    The boxes and flips are those of torchvision's RandomResizedCrop and RandomHorizontalFlip for
    the same state of a generator. In a `Loader` they follow from the loader's own seed.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomResizedCrop
    >>> transform = RandomResizedCrop(224, scale=(0.2, 1.0), flip=0.5)
    >>> pixels = transform(data)
    >>> pixels.shape, pixels.dtype
    (torch.Size([3, 224, 224]), torch.uint8)
    """

    def __init__(
        self,
        size: _Size,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: AnyInterpolation = "bilinear",
        antialias: bool = True,
        **options: Unpack[CropOptions],
    ) -> None:
        super().__init__(interpolation, antialias, **options)
        self.size = _both_sides("size", size)
        self.scale = _range("scale", scale)
        self.ratio = _range("ratio", ratio)
        self.shape = (3, *self.size)

    def plan(self, width: int, height: int, generator: torch.Generator | None) -> ResizePlan:
        """Draw a box, then whether to flip."""
        box, interpolation = self._drawn(width, height, generator)
        return self._plan(box, interpolation, flip=draw_flip(self.flip, generator))

    def _drawn(
        self, width: int, height: int, generator: torch.Generator | None
    ) -> tuple[Box, Interpolation]:
        return draw_box(width, height, self.scale, self.ratio, generator), self.interpolation

    def _plan(self, box: Box, interpolation: Interpolation, *, flip: bool) -> ResizePlan:
        return ResizePlan(box, self.size, 0, 0, self.size, flip, interpolation)

    def described(self, *, orient: bool) -> Any:
        """Describe what is done with a seed to the native core; None if it cannot do the same."""
        if not _decides_as(self, RandomResizedCrop):
            return None
        drawn = (self.scale, self.ratio)
        return _core_crop(self.size, self.flip, self._least_headroom, orient, drawn=drawn)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(size={self.size}, scale={self.scale}, "
            f"ratio={_short(self.ratio)}, flip={self.flip}, {self._options()})"
        )


class RandomResizedCropAndInterpolation(RandomResizedCrop):
    """timm's transform of this name, for a file's bytes: `fuse` makes it.

    The interpolation "random" is one of the two, drawn for each image. Without a generator all
    draws are timm's from Python's ``random``; with one, those of `RandomResizedCrop`, and then the
    interpolation.
    """

    from_python = True

    def __init__(
        self,
        size: _Size,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: Any = "bilinear",
        **options: Unpack[CropOptions],
    ) -> None:
        either = interpolation == "random"
        super().__init__(size, scale, ratio, "bicubic" if either else interpolation, **options)
        self.either = either

    def _drawn(
        self, width: int, height: int, generator: torch.Generator | None
    ) -> tuple[Box, Interpolation]:
        if generator is None:
            box = draw_box(width, height, self.scale, self.ratio, PythonDraws())
            drawn = random.choice(_EITHER) if self.either else self.interpolation  # noqa: S311
            return box, drawn
        box, interpolation = super()._drawn(width, height, generator)
        return box, _EITHER[draw_flip(0.5, generator)] if self.either else interpolation


class RandomResizedCropFlipNormalize(RandomResizedCrop):
    """`RandomResizedCrop`, a flip, and ImageNet's normalising: what networks are trained on.

    Parameters
    ----------
    size, scale, ratio, interpolation, antialias
        As for `RandomResizedCrop`.
    flip : float
        Probability of a flip from left to right.
    mean, std : sequence of 3 floats
        On a scale of 0 to 1.
    quality, headroom
        As for `RandomResizedCrop`.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomResizedCropFlipNormalize
    >>> image = RandomResizedCropFlipNormalize(224)(data)
    >>> image.shape, image.dtype
    (torch.Size([3, 224, 224]), torch.float32)
    """

    def __init__(
        self,
        size: _Size,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: AnyInterpolation = "bilinear",
        antialias: bool = True,
        *,
        flip: float = 0.5,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        **options: Unpack[QualityOptions],
    ) -> None:
        super().__init__(
            size,
            scale,
            ratio,
            interpolation,
            antialias,
            flip=flip,
            mean=mean,
            std=std,
            dtype=torch.float32,
            **options,
        )


class ResizeCenterCrop(Crop):
    """The centre of the resized image: torchvision's Resize and CenterCrop, for a file's bytes.

    Parameters
    ----------
    resize : int or (height, width)
        What the whole is resized to; an int is the shorter side.
    size : int or (height, width)
        Of the crop. Where it is larger than the resized image it is padded with black.
    interpolation, antialias, flip, mean, std, dtype, quality, headroom
        As for `RandomResizedCrop`.

    Notes
    -----
    Sides and margins are rounded as by torchvision's Resize and CenterCrop.

    Examples
    --------
    >>> from fastdecode.torch.transforms import ResizeCenterCrop
    >>> ResizeCenterCrop(256, 224)(data).shape
    torch.Size([3, 224, 224])
    """

    def __init__(
        self,
        resize: _Size,
        size: _Size,
        interpolation: AnyInterpolation = "bilinear",
        antialias: bool = True,
        **options: Unpack[CropOptions],
    ) -> None:
        super().__init__(interpolation, antialias, **options)
        self.resize = _one_or_both("resize", resize)
        self.size = _both_sides("size", size)
        self.shape = (3, *self.size)

    def plan(self, width: int, height: int, generator: torch.Generator | None) -> ResizePlan:
        """Resize the whole, keep the centre."""
        canvas = resized(width, height, self.resize)
        top, left = center_crop(canvas, self.size)
        flip = draw_flip(self.flip, generator)
        box = _whole(width, height)
        return ResizePlan(box, canvas, top, left, self.size, flip, self.interpolation)

    def described(self, *, orient: bool) -> Any:
        """Describe what is done with a seed to the native core; None if it cannot do the same."""
        if not _decides_as(self, ResizeCenterCrop):
            return None
        return _core_crop(self.size, self.flip, self._least_headroom, orient, resize=self.resize)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(resize={self.resize}, size={self.size}, flip={self.flip}, "
            f"{self._options()})"
        )


class ResizeCenterCropNormalize(ResizeCenterCrop):
    """`ResizeCenterCrop` and ImageNet's normalising: what networks are tested on.

    Parameters
    ----------
    resize, size, interpolation, antialias, flip, quality, headroom
        As for `ResizeCenterCrop`.
    mean, std : sequence of 3 floats
        On a scale of 0 to 1.

    Examples
    --------
    >>> from fastdecode.torch.transforms import ResizeCenterCropNormalize
    >>> ResizeCenterCropNormalize(256, 224)(data).dtype
    torch.float32
    """

    def __init__(
        self,
        resize: _Size,
        size: _Size,
        interpolation: AnyInterpolation = "bilinear",
        antialias: bool = True,
        *,
        flip: float = 0.0,
        mean: Sequence[float] = IMAGENET_MEAN,
        std: Sequence[float] = IMAGENET_STD,
        **options: Unpack[QualityOptions],
    ) -> None:
        super().__init__(
            resize,
            size,
            interpolation,
            antialias,
            flip=flip,
            mean=mean,
            std=std,
            dtype=torch.float32,
            **options,
        )


class Resize(Crop):
    """The whole image, resized: torchvision's transform of this name, for a file's bytes.

    Parameters
    ----------
    size : int, (height, width) or None
        An int is the shorter side; the results then differ in shape. None: see `max_size`.
    interpolation
        As for `RandomResizedCrop`.
    max_size : int, optional
        The most that the longer side may have: the shorter one is then less than `size`. With a
        size of None the longer side has just that.
    antialias, flip, mean, std, dtype, quality, headroom
        As for `RandomResizedCrop`.

    Notes
    -----
    Sides are rounded as by torchvision's Resize.

    Examples
    --------
    >>> from fastdecode.torch.transforms import Resize
    >>> Resize(240)(data).shape  # the shorter side
    torch.Size([3, 240, 320])
    """

    def __init__(
        self,
        size: _Size | None,
        interpolation: AnyInterpolation = "bilinear",
        max_size: int | None = None,
        antialias: bool = True,
        **options: Unpack[CropOptions],
    ) -> None:
        super().__init__(interpolation, antialias, **options)
        self.max_size = None if max_size is None else _longest(size, max_size)
        by_longest = size is None and self.max_size is not None
        self.size = None if by_longest else _one_or_both("size", size)
        self.shape = (3, *self.size) if isinstance(self.size, tuple) else None

    def plan(self, width: int, height: int, generator: torch.Generator | None) -> ResizePlan:
        """Resize the whole."""
        canvas = resized(width, height, self.size, self.max_size)
        flip = draw_flip(self.flip, generator)
        return ResizePlan(_whole(width, height), canvas, 0, 0, canvas, flip, self.interpolation)

    def described(self, *, orient: bool) -> Any:
        """Describe what is done with a seed to the native core; None if it cannot do the same."""
        if not isinstance(self.size, tuple) or not _decides_as(self, Resize):
            return None
        return _core_crop(self.size, self.flip, self._least_headroom, orient, resize=self.size)

    def __repr__(self) -> str:
        longest = "" if self.max_size is None else f"max_size={self.max_size}, "
        return (
            f"{type(self).__name__}(size={self.size}, {longest}flip={self.flip}, {self._options()})"
        )


def _whole(width: int, height: int) -> Box:
    return 0, 0, width, height


def _one_or_both(name: str, size: _Size | None) -> int | tuple[int, int]:
    """Check a size; one number, alone or in a list, stays one."""
    sides: tuple[Any, ...] = tuple(size) if isinstance(size, Sequence) else (size,)
    if not 1 <= len(sides) <= 2 or not all(is_int(side) and side > 0 for side in sides):
        raise ValueError(f"{name} must be a positive integer or (height, width), not {size!r}")
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def _both_sides(name: str, size: _Size) -> tuple[int, int]:
    checked = _one_or_both(name, size)
    return (checked, checked) if isinstance(checked, int) else checked


def _longest(size: _Size | None, max_size: Any) -> int:
    """Check what the longer side may have."""
    longest = _one_or_both("max_size", max_size)
    if not isinstance(longest, int):
        raise ValueError(f"max_size must be one positive integer, not {max_size!r}")  # noqa: TRY004
    if size is None:
        return longest
    shorter = _one_or_both("size", size)
    if not isinstance(shorter, int):
        raise ValueError(f"max_size goes with one side as size, not with both, {size!r}")  # noqa: TRY004
    if longest <= shorter:
        raise ValueError(f"max_size={longest} must be more than size={shorter}, the shorter side")
    return longest


def _range(name: str, values: Sequence[float]) -> tuple[float, float]:
    numbers = tuple(values) if isinstance(values, Iterable) else ()
    if (
        len(numbers) != 2
        or not all(is_number(number) for number in numbers)
        or not 0 < numbers[0] <= numbers[1] < math.inf
    ):
        raise ValueError(f"{name} must be (low, high) with 0 < low <= high, not {values!r}")
    return float(numbers[0]), float(numbers[1])


def _short(ratio: tuple[float, float]) -> str:
    return f"({ratio[0]:.4g}, {ratio[1]:.4g})"


def _decides_as(crop: Crop, kind: type[Crop]) -> bool:
    """Whether a transform does as this class of the package's, and the core can do the same."""
    own = type(crop)
    if crop.interpolation != "bilinear":  # the core knows no other
        return False
    return crop.__dict__.keys().isdisjoint(_DECIDE) and all(
        getattr(own, name) is getattr(kind, name) for name in _DECIDE
    )


@cache
def _core_crop(
    size: tuple[int, int],
    flip: float,
    headroom: float,
    upright: bool,  # leave files alone that Exif data might turn
    *,
    drawn: tuple[tuple[float, float], tuple[float, float]] | None = None,
    resize: int | tuple[int, int] = 0,
) -> Any:
    """Return the core's ``fd_crop *``, not to be changed: a box of `drawn`, or the centre."""
    made = _library.ffi.new("fd_crop *")
    made.upright = upright
    made.height, made.width = size
    made.flip = flip
    made.headroom = headroom
    made.pixels = DEFAULT_MAX_PIXELS
    if drawn is None:
        made.kind = _CENTRAL
        made.resize_height, made.resize_width = (0, resize) if isinstance(resize, int) else resize
        return made
    made.kind = _RANDOM
    scale, ratio = drawn
    made.area, made.area_range = scale[0], scale[1] - scale[0]
    low, high = math.log(ratio[0]), math.log(ratio[1])
    made.aspect, made.aspect_range = low, high - low
    made.narrowest, made.widest = min(ratio), max(ratio)
    return made
