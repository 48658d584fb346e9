"""The transforms with torchvision's names that move pixels; crops that resize are in `crops`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, get_args

from fastdecode._arguments import check_word
from fastdecode.native._augment import Operation, Padding, Program, do
from fastdecode.torch._programs import Look, borders, padded
from fastdecode.torch.transforms._random_crop import TorchDraws
from fastdecode.torch.transforms.base import check_size_pair, is_number
from fastdecode.torch.transforms.images import (
    AnyMode,
    Fill,
    ImageTransform,
    check_angles,
    check_fill,
    check_padding,
    check_pair,
    check_probability,
)

if TYPE_CHECKING:
    Mode = Literal["constant", "edge", "reflect", "symmetric"]


@dataclass(eq=False)
class CenterCrop(ImageTransform):
    """Crop the centre, padded with black if it is larger, as torchvision's ``CenterCrop`` does.

    Parameters
    ----------
    size : int or (height, width)
        Of the result, in pixels; an int is used for both sides.

    Examples
    --------
    >>> from fastdecode.torch.transforms import CenterCrop
    >>> CenterCrop(32)
    CenterCrop(size=(32, 32))
    """

    size: Any

    def __post_init__(self) -> None:
        self.size = check_size_pair("size", self.size)


@dataclass(eq=False)
class Pad(ImageTransform):
    """Add pixels around an image, as torchvision's ``Pad`` does.

    Parameters
    ----------
    padding : int, or sequence of 1, 2 or 4 ints
        Pixels on all sides; left and right, then top and bottom; or left, top, right, bottom.
    fill : level, or three levels
        Of the new pixels with ``"constant"``.
    padding_mode : {"constant", "edge", "reflect", "symmetric"}
        What the new pixels are.

    Raises
    ------
    ValueError
        An argument is invalid; or, when called, the image is too small to be reflected.

    Examples
    --------
    >>> from fastdecode.torch.transforms import Pad
    >>> Pad(4)
    Pad(padding=4, fill=0, padding_mode='constant')
    """

    padding: Any
    fill: Fill = 0
    padding_mode: Mode = "constant"

    def __post_init__(self) -> None:
        check_padding(self.padding)
        check_fill(self.fill)
        check_word("padding_mode", self.padding_mode, get_args(Padding))


@dataclass(eq=False)
class RandomCrop(ImageTransform):
    """Crop a random box of a size, perhaps after padding, as torchvision's ``RandomCrop`` does.

    Parameters
    ----------
    size : int or (height, width)
        Of the result, in pixels; an int is used for both sides.
    padding, fill, padding_mode
        As for `Pad`; with None nothing is added.
    pad_if_needed : bool
        Whether a smaller image is padded, on both sides by all that is missing.

    Raises
    ------
    ValueError
        An argument is invalid; or, when called, the image is too small.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomCrop
    >>> RandomCrop(32, 4)
    RandomCrop(size=(32, 32), padding=4, pad_if_needed=False, fill=0, ...)
    """

    size: Any
    padding: Any = None
    pad_if_needed: bool = False
    fill: Fill = 0
    padding_mode: Mode = "constant"

    def __post_init__(self) -> None:
        self.size = check_size_pair("size", self.size)
        check_padding(0 if self.padding is None else self.padding)
        check_fill(self.fill)
        check_word("padding_mode", self.padding_mode, get_args(Padding))

    def _draw(self, size: tuple[int, int]) -> Program:
        down, across = self.size
        left, top, right, bottom = borders(self.padding or 0)
        height, width = size[0] + top + bottom, size[1] + left + right
        if self.pad_if_needed:
            below, beside = max(0, down - height), max(0, across - width)
            top, bottom, height = top + below, bottom + below, height + 2 * below
            left, right, width = left + beside, right + beside, width + 2 * beside
        if height < down or width < across:
            raise ValueError(f"a crop of {self.size} is larger than the image, {(height, width)}")
        draws = TorchDraws()
        y = draws.below(height - down + 1) if height > down else 0
        x = draws.below(width - across + 1) if width > across else 0
        sides = (left, top, right, bottom)
        crop = do(Operation("crop", (x, y, across, down), "constant"))
        return Program([*(do(padded(sides, self)) if any(sides) else []), *crop])


@dataclass(eq=False)
class RandomHorizontalFlip(ImageTransform):
    """Mirror an image with a probability, as torchvision's ``RandomHorizontalFlip`` does.

    Parameters
    ----------
    p : float
        Probability.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomHorizontalFlip
    >>> RandomHorizontalFlip()
    RandomHorizontalFlip(p=0.5)
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self.p)


class RandomVerticalFlip(RandomHorizontalFlip):
    """Turn an image upside down with a probability, as ``RandomVerticalFlip`` does.

    Parameters
    ----------
    p : float
        Probability.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomVerticalFlip
    >>> RandomVerticalFlip()
    RandomVerticalFlip(p=0.5)
    """


@dataclass(eq=False)
class RandomRotation(ImageTransform):
    """Rotate an image about its centre or another point, as torchvision's ``RandomRotation`` does.

    Parameters
    ----------
    degrees : float or (low, high)
        Range of the angle, counter-clockwise; one number stands for both signs.
    interpolation : {"nearest", "bilinear", "bicubic"}
        As a string, torchvision's enumeration or Pillow's constant.
    expand : bool
        Whether the result becomes large enough for the whole image.
    center : (x, y), optional
        About which it turns, in pixels; by default the middle.
    fill : level, or three levels
        Of the pixels outside of the image.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomRotation
    >>> RandomRotation(30)
    RandomRotation(degrees=(-30.0, 30.0), interpolation='nearest', expand=False, ...)
    """

    degrees: Any
    interpolation: AnyMode = "nearest"
    expand: bool = False
    center: Sequence[float] | None = None
    fill: Fill = 0

    def __post_init__(self) -> None:
        self.degrees = check_angles("degrees", self.degrees)
        _check_warp(self)


@dataclass(eq=False)
class RandomAffine(ImageTransform):
    """Rotate, move, scale and shear an image, as torchvision's ``RandomAffine`` does.

    Parameters
    ----------
    degrees : float or (low, high)
        Range of the angle; one number stands for both signs.
    translate : (horizontal, vertical), optional
        The most by which it moves, as shares of its width and height.
    scale : (low, high), optional
        Range of the factor.
    shear : float, (low, high) or four numbers, optional
        Range of the angle along the width; and of that along the height.
    interpolation, fill, center
        As for `RandomRotation`.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomAffine
    >>> RandomAffine(30)
    RandomAffine(degrees=(-30.0, 30.0), translate=None, scale=None, shear=None, ...)
    """

    degrees: Any
    translate: Sequence[float] | None = None
    scale: Sequence[float] | None = None
    shear: Any = None
    interpolation: AnyMode = "nearest"
    fill: Fill = 0
    center: Sequence[float] | None = None

    def __post_init__(self) -> None:
        self.degrees = check_angles("degrees", self.degrees)
        if self.translate is not None:
            shares = tuple(self.translate) if isinstance(self.translate, (list, tuple)) else ()
            if len(shares) != 2 or not all(is_number(one) and 0 <= one <= 1 for one in shares):
                raise ValueError(f"translate must be two shares, not {self.translate!r}")
        if self.scale is not None:
            self.scale = check_pair("scale", self.scale, 1e-5, 1e5)
        if self.shear is not None:
            several = isinstance(self.shear, (list, tuple)) and len(self.shear) == 4
            pairs = [self.shear[:2], self.shear[2:]] if several else [self.shear]
            self.shear = [end for pair in pairs for end in check_angles("shear", pair)]
        _check_warp(self)


@dataclass(eq=False)
class RandomPerspective(ImageTransform):
    """Look at an image from a random side, as torchvision's ``RandomPerspective`` does.

    Parameters
    ----------
    distortion_scale : float
        How far the corners move at most, as a share of half of each side.
    p : float
        Probability.
    interpolation, fill
        As for `RandomRotation`.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomPerspective
    >>> RandomPerspective()
    RandomPerspective(distortion_scale=0.5, p=0.5, interpolation='bilinear', fill=0)
    """

    distortion_scale: float = 0.5
    p: float = 0.5
    interpolation: AnyMode = "bilinear"
    fill: Fill = 0

    def __post_init__(self) -> None:
        check_probability(self.p)
        if not is_number(self.distortion_scale) or not 0 <= self.distortion_scale <= 1:
            raise ValueError(f"distortion_scale must be a share, not {self.distortion_scale!r}")
        _check_warp(self)

    def _draw(self, size: tuple[int, int]) -> Program:
        numbers = TorchDraws().perspective(*size[::-1], self.distortion_scale)
        look = Look.of(self.interpolation, self.fill)
        return do(Operation("perspective", tuple(numbers), *look))


def _check_warp(transform: Any) -> None:
    check_fill(transform.fill)
    Look.of(transform.interpolation, transform.fill)
    center = getattr(transform, "center", None)
    if center is not None:
        place = tuple(center) if isinstance(center, (list, tuple)) else ()
        if len(place) != 2 or not all(is_number(one) and abs(one) <= 1e5 for one in place):
            raise ValueError(f"center must be (x, y), in pixels, not {center!r}")
