"""The package's transforms: a random crop, a central crop, and resizing the whole image."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
import torch

from fastdecode._arguments import check_names, is_int
from fastdecode._resizing import Interpolation, ResizePlan
from fastdecode.native._augment import (
    Program,
    Resampling,
    central_crop,
    flipped,
    random_box,
    resized_to,
)
from fastdecode.torch.transforms._random_crop import (
    center_crop,
    draw_box,
    draw_factor,
    draw_flip,
    draw_one_of,
    resized_size,
)
from fastdecode.torch.transforms.base import AnyInterpolation, Crop, Quality, is_number
from fastdecode.torch.transforms.normalize import IMAGENET_MEAN, IMAGENET_STD

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fastdecode.types import Box

_PLANNING_METHODS = ("plan", "core_resize", "_jpeg_reduction", "front")
_CORE_NAMES: dict[Interpolation, Resampling] = {"bilinear": "own", "bicubic": "bicubic"}
_Size = int | Sequence[int]
_BOTH_MODES: tuple[Interpolation, Interpolation] = ("bilinear", "bicubic")


class QualityOptions(TypedDict, total=False):
    """How closely a JPEG is decoded; `RandomResizedCrop` describes the options."""

    quality: Quality
    headroom: float


class CropOptions(QualityOptions, total=False):
    """The keyword arguments of all crops; `RandomResizedCrop` describes them."""

    flip: float
    mean: Sequence[float] | None
    std: Sequence[float] | None
    dtype: torch.dtype | None


class RandomResizedCrop(Crop):
    """Crop a random box and resize it, as torchvision's ``RandomResizedCrop`` does.

    It takes the bytes of a file, and decodes only what the box needs.

    Parameters
    ----------
    size : int or (height, width)
        Size of the result in pixels; an int is used for both sides.
    scale : (low, high)
        Range of the area of the box, as a fraction of the image's area.
    ratio : (low, high)
        Range of the aspect ratio of the box, width to height.
    interpolation : {"bilinear", "bicubic"}
        As a string, torchvision's enumeration or Pillow's constant. Bicubic pixels are Pillow's,
        bit for bit.
    antialias : bool
        Must be True; torchvision has this argument, too.
    flip : float
        Probability of a horizontal flip.
    mean, std : sequence of 3 floats, or None
        Mean and standard deviation to normalise with, on a scale of 0 to 1. The result is then
        torch.float32.
    dtype : torch.uint8 or torch.float32
        dtype of the result. By default torch.float32 if there is a mean, and otherwise torch.uint8.
        torch.float32 without a mean gives values of 0 to 1.
    quality : {"exact", "fast"}
        ``"exact"`` gives torchvision's pixels. ``"fast"`` lets the JPEG decoder first shrink the
        image by up to 8, which gains nothing for photos of 500 x 375, a factor of 1.3 for 2
        megapixels and of 1.5 to 1.6 for 17 megapixels, and changes the pixels by 43 to 47 dB on
        average where it shrinks; the worst seen is 28.9 dB, for a result of 96 pixels.
    headroom : float
        With ``quality="fast"``, how many times larger than the result the box must still be after
        the decoder has shrunk it, at least 1.

    Raises
    ------
    ValueError
        An argument is invalid, or uint8 results should be normalised.

    Notes
    -----
    Boxes and flips are the same as those of torchvision's RandomResizedCrop and
    RandomHorizontalFlip for the same generator state. In a `Loader` they follow from the loader's
    seed.

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
        check_names(type(self), options, CropOptions)
        super().__init__(interpolation, antialias, **options)
        self.size = check_size_pair("size", size)
        self.scale = _check_range("scale", scale)
        self.ratio = _check_range("ratio", ratio)
        self.shape = (3, *self.size)

    def plan(self, width: int, height: int, generator: torch.Generator | None) -> ResizePlan:
        """Draw a box, and then whether to flip."""
        box, interpolation = self._draw_box(width, height, generator)
        return self._plan(box, interpolation, flip=draw_flip(self.flip, generator))

    def _draw_box(
        self, width: int, height: int, generator: torch.Generator | None
    ) -> tuple[Box, Interpolation]:
        return draw_box(width, height, self.scale, self.ratio, generator), self.interpolation

    def _plan(self, box: Box, interpolation: Interpolation, *, flip: bool) -> ResizePlan:
        return ResizePlan(box, self.size, 0, 0, self.size, flip, interpolation)

    def front(self) -> Program | None:
        """Return the plan as a program of the core; None if the core cannot do the same."""
        if not _plans_like(self, RandomResizedCrop):
            return None
        scaled = resized_to(self.size, _CORE_NAMES[self.interpolation])
        return Program([*random_box(self.scale, self.ratio), *scaled, *flipped(self.flip)])

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(size={self.size}, scale={self.scale}, "
            f"ratio={_format_ratio(self.ratio)}, flip={self.flip}, {self._describe_options()})"
        )


class RandomResizedCropAndInterpolation(RandomResizedCrop):
    """`RandomResizedCrop` that also draws the interpolation, after the box; `fuse` creates it.

    It is timm's transform of this name, where that has two interpolations.
    """

    def _draw_box(
        self, width: int, height: int, generator: torch.Generator | None
    ) -> tuple[Box, Interpolation]:
        box, _ = super()._draw_box(width, height, generator)
        return box, _BOTH_MODES[draw_flip(0.5, generator)]

    def front(self) -> None:
        """Return None: the core has one interpolation only."""
        return


class RandomResizedCropFlipNormalize(RandomResizedCrop):
    """`RandomResizedCrop` with a random flip and ImageNet's normalisation, for training.

    Parameters
    ----------
    size, scale, ratio, interpolation, antialias
        As for `RandomResizedCrop`.
    flip : float
        Probability of a horizontal flip.
    mean, std : sequence of 3 floats
        Mean and standard deviation, on a scale of 0 to 1.
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
    """Resize the image and crop its centre, as torchvision's ``Resize`` and ``CenterCrop`` do.

    It takes the bytes of a file.

    Parameters
    ----------
    resize : int or (height, width)
        Size to which the whole image is resized; an int is the shorter side.
    size : int or (height, width)
        Size of the crop; an int is used for both sides. Where the crop exceeds the resized image,
        it is padded with black.
    interpolation, antialias, flip, mean, std, dtype, quality, headroom
        As for `RandomResizedCrop`.

    Notes
    -----
    Sides and margins are rounded as in torchvision's Resize and CenterCrop.

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
        check_names(type(self), options, CropOptions)
        super().__init__(interpolation, antialias, **options)
        self.resize = check_size("resize", resize)
        self.size = check_size_pair("size", size)
        self.shape = (3, *self.size)

    def plan(self, width: int, height: int, generator: torch.Generator | None) -> ResizePlan:
        """Resize the whole image and keep the centre."""
        canvas = resized_size(width, height, self.resize)
        top, left = self._margins(canvas)
        flip = draw_flip(self.flip, generator)
        box = _whole_box(width, height)
        return ResizePlan(box, canvas, top, left, self.size, flip, self.interpolation)

    def _margins(self, canvas: tuple[int, int]) -> tuple[int, int]:
        return center_crop(canvas, self.size)

    def front(self) -> Program | None:
        """Return the plan as a program of the core; None if the core cannot do the same."""
        if not _plans_like(self, ResizeCenterCrop):
            return None
        scaled = resized_to(self.resize, _CORE_NAMES[self.interpolation])
        return Program([*scaled, *central_crop(self.size), *flipped(self.flip)])

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(resize={self.resize}, size={self.size}, flip={self.flip}, "
            f"{self._describe_options()})"
        )


class ResizeCenterCropNormalize(ResizeCenterCrop):
    """`ResizeCenterCrop` with ImageNet's normalisation, for evaluation.

    Parameters
    ----------
    resize, size, interpolation, antialias, flip, quality, headroom
        As for `ResizeCenterCrop`.
    mean, std : sequence of 3 floats
        Mean and standard deviation, on a scale of 0 to 1.

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
    """Resize the whole image, as torchvision's ``Resize`` does.

    It takes the bytes of a file.

    Parameters
    ----------
    size : int, (height, width) or None
        Size of the result. An int is the shorter side, so results differ in shape. None is allowed
        together with `max_size`.
    interpolation
        As for `RandomResizedCrop`.
    max_size : int, optional
        The maximum of the longer side. If the longer side would exceed it, it becomes `max_size`,
        and the shorter side becomes less than `size`. If `size` is None, the longer side always is
        `max_size`.
    antialias, flip, mean, std, dtype, quality, headroom
        As for `RandomResizedCrop`.

    Notes
    -----
    Sides are rounded as in torchvision's Resize.

    Examples
    --------
    >>> from fastdecode.torch.transforms import Resize
    >>> Resize(240)(data).shape  # the shorter side
    torch.Size([3, 240, 320])
    """

    flips_first = False  # in the order of draws

    def __init__(
        self,
        size: _Size | None,
        interpolation: AnyInterpolation = "bilinear",
        max_size: int | None = None,
        antialias: bool = True,
        **options: Unpack[CropOptions],
    ) -> None:
        check_names(type(self), options, CropOptions)
        super().__init__(interpolation, antialias, **options)
        self.max_size = None if max_size is None else _check_max_size(size, max_size)
        by_longest = size is None and self.max_size is not None
        self.size = None if by_longest else check_size("size", size)
        self.shape = (3, *self.size) if isinstance(self.size, tuple) else None

    def plan(self, width: int, height: int, generator: torch.Generator | None) -> ResizePlan:
        """Resize the whole image."""
        flip = self.flips_first and draw_flip(self.flip, generator)
        canvas = self._canvas(width, height, generator)
        flip = flip if self.flips_first else draw_flip(self.flip, generator)
        return ResizePlan(_whole_box(width, height), canvas, 0, 0, canvas, flip, self.interpolation)

    def _canvas(
        self,
        width: int,
        height: int,
        generator: torch.Generator | None,  # noqa: ARG002 - for subclasses
    ) -> tuple[int, int]:
        return resized_size(width, height, self.size, self.max_size)

    def front(self) -> Program | None:
        """Return the plan as a program of the core; None if the core cannot do the same."""
        if type(self)._canvas is not Resize._canvas or not _plans_like(self, Resize):
            return None
        scaled = resized_to(self.size, _CORE_NAMES[self.interpolation], self.max_size)
        return Program([*scaled, *flipped(self.flip)])

    def __repr__(self) -> str:
        longest = "" if self.max_size is None else f"max_size={self.max_size}, "
        return (
            f"{type(self).__name__}(size={self.size}, {longest}flip={self.flip}, "
            f"{self._describe_options()})"
        )


class Unresized(Resize):
    """The whole image in its own size; `fuse` creates it for what does not begin with a crop."""

    resizes = False

    def __init__(self, **options: Unpack[CropOptions]) -> None:
        super().__init__(1, **options)
        self.size = None

    def front(self) -> Program | None:
        """Return the plan as a program of the core."""
        return Program(flipped(self.flip))

    def _canvas(
        self,
        width: int,
        height: int,
        generator: torch.Generator | None,  # noqa: ARG002
    ) -> tuple[int, int]:
        return height, width


class RandomShortestSize(Resize):
    """Resize to a random shorter side, as torchvision's RandomShortestSize; `fuse` creates it."""

    def __init__(
        self,
        min_size: Sequence[int],
        max_size: int | None,
        interpolation: AnyInterpolation,
        **options: Unpack[CropOptions],
    ) -> None:
        super().__init__(1, interpolation, **options)
        self.size, self.min_size, self.longest = None, tuple(min_size), max_size

    def _canvas(
        self, width: int, height: int, generator: torch.Generator | None
    ) -> tuple[int, int]:
        scale = draw_one_of(self.min_size, generator) / min(height, width)
        if self.longest is not None:
            scale = min(scale, self.longest / max(height, width))
        return max(1, int(height * scale)), max(1, int(width * scale))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(min_size={self.min_size}, max_size={self.longest}, "
            f"flip={self.flip}, {self._describe_options()})"
        )


class ScaleJitter(Resize):
    """Resize by a random factor, as torchvision's ScaleJitter; `fuse` creates it."""

    def __init__(
        self,
        target_size: tuple[int, int],
        scale_range: tuple[float, float],
        interpolation: AnyInterpolation,
        **options: Unpack[CropOptions],
    ) -> None:
        super().__init__(1, interpolation, **options)
        self.size, self.target_size, self.scale_range = None, target_size, scale_range

    def _canvas(
        self, width: int, height: int, generator: torch.Generator | None
    ) -> tuple[int, int]:
        # torchvision takes the target's height for the width, and computes in float32.
        fitted = min(self.target_size[1] / height, self.target_size[0] / width)
        scale = np.float32(fitted) * draw_factor(self.scale_range, generator)
        return max(1, int(np.float32(height) * scale)), max(1, int(np.float32(width) * scale))

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(target_size={self.target_size}, "
            f"scale_range={self.scale_range}, flip={self.flip}, {self._describe_options()})"
        )


def _whole_box(width: int, height: int) -> Box:
    return 0, 0, width, height


def check_size(name: str, size: _Size | None) -> int | tuple[int, int]:
    """Check a size; return an int if it is one number, alone or in a list."""
    sides: tuple[Any, ...] = tuple(size) if isinstance(size, Sequence) else (size,)
    if not 1 <= len(sides) <= 2 or not all(is_int(side) and side > 0 for side in sides):
        raise ValueError(f"{name} must be a positive integer or (height, width), not {size!r}")
    return int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))


def check_size_pair(name: str, size: _Size) -> tuple[int, int]:
    checked = check_size(name, size)
    return (checked, checked) if isinstance(checked, int) else checked


def _check_max_size(size: _Size | None, max_size: Any) -> int:
    """Check `max_size` against `size`, and return it."""
    longest = check_size("max_size", max_size)
    if not isinstance(longest, int):
        raise ValueError(f"max_size must be one positive integer, not {max_size!r}")  # noqa: TRY004
    if size is None:
        return longest
    shorter = check_size("size", size)
    if not isinstance(shorter, int):
        raise ValueError(f"max_size needs one integer as size, not both sides, {size!r}")  # noqa: TRY004
    if longest <= shorter:
        raise ValueError(f"max_size={longest} must be more than size={shorter}, the shorter side")
    return longest


def _check_range(name: str, values: Sequence[float]) -> tuple[float, float]:
    numbers = tuple(values) if isinstance(values, Iterable) else ()
    if (
        len(numbers) != 2
        or not all(is_number(number) for number in numbers)
        or not 0 < numbers[0] <= numbers[1] < math.inf
    ):
        raise ValueError(f"{name} must be (low, high) with 0 < low <= high, not {values!r}")
    return float(numbers[0]), float(numbers[1])


def _format_ratio(ratio: tuple[float, float]) -> str:
    return f"({ratio[0]:.4g}, {ratio[1]:.4g})"


def _plans_like(crop: Crop, kind: type[Crop]) -> bool:
    """Return whether a transform decides as this class of the package, so the core can do it."""
    own = type(crop)
    if crop.of_tensors and crop.interpolation != "bilinear":  # the core has Pillow's only
        return False
    return crop.__dict__.keys().isdisjoint(_PLANNING_METHODS) and all(
        getattr(own, name) is getattr(kind, name) for name in _PLANNING_METHODS
    )
