"""The package's transforms: a random crop, a central crop, and resizing the whole image."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypedDict

import torch

from fastdecode._arguments import check_names
from fastdecode.native._augment import (
    Program,
    Resampling,
    central_crop,
    flipped,
    random_box,
    resized_to,
)
from fastdecode.torch._programs import as_it_says, resampling
from fastdecode.torch.transforms.base import (
    Quality,
    Recipe,
    SizeLike,
    TransformOptions,
    check_size,
    check_size_pair,
    is_number,
)
from fastdecode.torch.transforms.images import AnyMode, as_tensor, is_image, transformed
from fastdecode.torch.transforms.normalize import IMAGENET_MEAN, IMAGENET_STD

if TYPE_CHECKING:
    from typing_extensions import Unpack


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


class _Crop(Recipe):
    """What the transforms below have in common: how they resize, and a flip."""

    _shown: tuple[str, ...] = ()

    def __init__(
        self,
        interpolation: AnyMode,
        antialias: object,
        *,
        flip: float = 0.0,
        **options: Any,
    ) -> None:
        name = getattr(interpolation, "value", interpolation)
        self._filter = resampling(name)
        if antialias is not True:
            raise ValueError(
                f"antialias must be True, not {antialias!r}: resizing is always antialiased here"
            )
        # True most likely means "with flips", but as a number it would flip every image.
        if not is_number(flip) or not 0 <= flip <= 1:
            raise ValueError(f"flip must be a probability from 0 to 1, not {flip!r}")
        self.interpolation: str = name if isinstance(name, str) else self._filter
        self.flip = float(flip)
        super().__init__(**options)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name != "program":
            vars(self).pop("program", None)  # it follows from the others
        if name not in ("program", "shape") and "shape" in vars(self):
            self.shape = self._shape_after(self.program)

    @cached_property
    def program(self) -> Program:  # type: ignore[override]
        """Both steps and the flip."""
        filter_: Resampling = "own" if self._filter == "bilinear" else self._filter
        return Program([*self._steps(filter_), *flipped(self.flip)])

    def _transformed(self, data: Any, **options: Unpack[TransformOptions]) -> Any:
        if not is_image(data):
            return super()._transformed(data, **options)
        made = transformed(data, as_it_says(self, None))
        if self.normalize is None:
            return made
        tensor = isinstance(made, torch.Tensor)
        return self.normalize(made if tensor else as_tensor(made))

    @abstractmethod
    def _steps(self, filter: Resampling) -> Program: ...

    def __repr__(self) -> str:
        shown = {name: getattr(self, name) for name in (*self._shown, "flip")}
        if self.interpolation != "bilinear":
            shown["interpolation"] = self.interpolation
        words = [f"{name}={value!r}" for name, value in shown.items() if value is not None]
        return f"{type(self).__name__}({', '.join(words)}, {self._describe_options()})"


class RandomResizedCrop(_Crop):
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
    interpolation : {"bilinear", "bicubic", "nearest", "box", "hamming", "lanczos"}
        As a string, torchvision's enumeration or Pillow's constant. All but bilinear pixels are
        Pillow's, bit for bit.
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
        ``"exact"`` gives torchvision's pixels, within one level. ``"fast"`` lets the JPEG decoder
        first shrink the image by up to 8, which gains nothing for small photos, and changes the
        pixels: [how much](../benchmarks.md#how-near).
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

    _shown = ("size", "scale", "ratio")

    def __init__(
        self,
        size: SizeLike,
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3 / 4, 4 / 3),
        interpolation: AnyMode = "bilinear",
        antialias: bool = True,
        **options: Unpack[CropOptions],
    ) -> None:
        check_names(type(self), options, CropOptions)
        self.size = check_size_pair("size", size)
        self.scale = _check_range("scale", scale)
        self.ratio = _check_range("ratio", ratio)
        super().__init__(interpolation, antialias, **options)

    def _steps(self, filter: Resampling) -> Program:
        box = random_box(self.scale, self.ratio)
        return Program([*box, *resized_to(self.size, filter)])


def RandomResizedCropFlipNormalize(  # noqa: N802 - it was a class
    size: SizeLike,
    scale: Sequence[float] = (0.08, 1.0),
    ratio: Sequence[float] = (3 / 4, 4 / 3),
    interpolation: AnyMode = "bilinear",
    antialias: bool = True,
    *,
    flip: float = 0.5,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    **options: Unpack[QualityOptions],
) -> RandomResizedCrop:
    """Return `RandomResizedCrop` with a random flip and ImageNet's normalisation, for training.

    Parameters
    ----------
    size, scale, ratio, interpolation, antialias, flip, mean, std, quality, headroom
        As for `RandomResizedCrop`.

    Returns
    -------
    RandomResizedCrop

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomResizedCropFlipNormalize
    >>> image = RandomResizedCropFlipNormalize(224)(data)
    >>> image.shape, image.dtype
    (torch.Size([3, 224, 224]), torch.float32)
    """
    check_names(RandomResizedCropFlipNormalize, options, QualityOptions)
    more: CropOptions = {"dtype": torch.float32, "flip": flip, "mean": mean, "std": std, **options}
    return RandomResizedCrop(size, scale, ratio, interpolation, antialias, **more)


class ResizeCenterCrop(_Crop):
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

    _shown = ("resize", "size")

    def __init__(
        self,
        resize: SizeLike,
        size: SizeLike,
        interpolation: AnyMode = "bilinear",
        antialias: bool = True,
        **options: Unpack[CropOptions],
    ) -> None:
        check_names(type(self), options, CropOptions)
        self.resize = check_size("resize", resize)
        self.size = check_size_pair("size", size)
        super().__init__(interpolation, antialias, **options)

    def _steps(self, filter: Resampling) -> Program:
        return Program([*resized_to(self.resize, filter), *central_crop(self.size, pads=True)])


def ResizeCenterCropNormalize(  # noqa: N802 - it was a class
    resize: SizeLike,
    size: SizeLike,
    interpolation: AnyMode = "bilinear",
    antialias: bool = True,
    *,
    flip: float = 0.0,
    mean: Sequence[float] = IMAGENET_MEAN,
    std: Sequence[float] = IMAGENET_STD,
    **options: Unpack[QualityOptions],
) -> ResizeCenterCrop:
    """Return `ResizeCenterCrop` with ImageNet's normalisation, for evaluation.

    Parameters
    ----------
    resize, size, interpolation, antialias, flip, mean, std, quality, headroom
        As for `ResizeCenterCrop`.

    Returns
    -------
    ResizeCenterCrop

    Examples
    --------
    >>> from fastdecode.torch.transforms import ResizeCenterCropNormalize
    >>> ResizeCenterCropNormalize(256, 224)(data).dtype
    torch.float32
    """
    check_names(ResizeCenterCropNormalize, options, QualityOptions)
    more: CropOptions = {"dtype": torch.float32, "flip": flip, "mean": mean, "std": std, **options}
    return ResizeCenterCrop(resize, size, interpolation, antialias, **more)


class Resize(_Crop):
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

    _shown = ("size", "max_size")

    def __init__(
        self,
        size: SizeLike | None,
        interpolation: AnyMode = "bilinear",
        max_size: int | None = None,
        antialias: bool = True,
        **options: Unpack[CropOptions],
    ) -> None:
        check_names(type(self), options, CropOptions)
        self.max_size = None if max_size is None else _check_max_size(size, max_size)
        by_longest = size is None and self.max_size is not None
        self.size = None if by_longest else check_size("size", size)
        super().__init__(interpolation, antialias, **options)

    def _steps(self, filter: Resampling) -> Program:
        return resized_to(self.size, filter, self.max_size)


def _check_max_size(size: SizeLike | None, max_size: Any) -> int:
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
