"""The transforms of colours that have torchvision's names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from fastdecode._arguments import is_int
from fastdecode.native._augment import Kind, Operation, Program, do
from fastdecode.torch.transforms._random_crop import TorchDraws
from fastdecode.torch.transforms.base import is_number
from fastdecode.torch.transforms.images import (
    ImageTransform,
    check_number,
    check_pair,
    check_probability,
)

Limits: TypeAlias = "float | Sequence[float] | None"

_FACTORS: tuple[Kind, ...] = ("brightness", "contrast", "saturation", "hue")


@dataclass(eq=False)
class ColorJitter(ImageTransform):
    """Change brightness, contrast, saturation and hue at random, as torchvision's ``ColorJitter``.

    Parameters
    ----------
    brightness, contrast, saturation : float or (low, high), optional
        Range of the factor; one number stands for 1 less and 1 plus it.
    hue : float or (low, high), optional
        Range of what is added to the hue, of which 1 is the full circle; at most half of it.

    Raises
    ------
    ValueError
        A range is out of its limits.

    Examples
    --------
    >>> from fastdecode.torch.transforms import ColorJitter
    >>> ColorJitter(0.4, hue=0.1)
    ColorJitter(brightness=(0.6, 1.4), contrast=None, saturation=None, hue=(-0.1, 0.1))
    """

    brightness: Limits = None
    contrast: Limits = None
    saturation: Limits = None
    hue: Limits = None

    def __post_init__(self) -> None:
        for name in _FACTORS[:3]:
            setattr(self, name, _limits(name, getattr(self, name), 1.0, 0.0, math.inf))
        self.hue = _limits("hue", self.hue, 0.0, -0.5, 0.5)

    def _draw(self, _: tuple[int, int]) -> Program:
        order = torch.randperm(len(_FACTORS), device="cpu").tolist()
        draws, steps = TorchDraws(), []
        for kind in _FACTORS:
            ends = getattr(self, kind)
            steps.append(do(Operation(kind, (draws.uniform(*ends),))) if ends else Program())
        return Program([step for at in order for step in steps[at]])


def _limits(
    name: str, value: Any, centre: float, low: float, high: float
) -> tuple[float, float] | None:
    """Return the range of a factor; None if it always is the one that changes nothing."""
    if value is None:
        return None
    if is_number(value) and value >= 0:
        value = (max(centre - value, low) if centre else -value, centre + value)
    ends = check_pair(name, value, low, high)
    return None if ends == (centre, centre) else ends


@dataclass(eq=False)
class Grayscale(ImageTransform):
    """Make an image grey, as torchvision's ``Grayscale`` does.

    Parameters
    ----------
    num_output_channels : {1, 3}
        Of one channel, a Pillow image has the mode L.

    Examples
    --------
    >>> from fastdecode.torch.transforms import Grayscale
    >>> Grayscale()
    Grayscale(num_output_channels=1)
    """

    num_output_channels: int = 1

    def __post_init__(self) -> None:
        given = self.num_output_channels
        if not is_int(given) or given not in (1, 3):
            raise ValueError(f"num_output_channels must be 1 or 3, not {given!r}")


@dataclass(eq=False)
class _Sometimes(ImageTransform):
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self.p)


@dataclass(eq=False)
class RandomGrayscale(_Sometimes):
    """Make an image grey with a probability, as torchvision's ``RandomGrayscale`` does.

    Parameters
    ----------
    p : float
        Probability.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomGrayscale
    >>> RandomGrayscale()
    RandomGrayscale(p=0.1)
    """

    p: float = 0.1


class RandomInvert(_Sometimes):
    """Invert all levels with a probability, as torchvision's ``RandomInvert`` does.

    Parameters
    ----------
    p : float
        Probability.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomInvert
    >>> RandomInvert()
    RandomInvert(p=0.5)
    """


class RandomAutocontrast(_Sometimes):
    """Stretch each channel to all levels with a probability, as ``RandomAutocontrast`` does.

    Parameters
    ----------
    p : float
        Probability.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomAutocontrast
    >>> RandomAutocontrast()
    RandomAutocontrast(p=0.5)
    """


class RandomEqualize(_Sometimes):
    """Equalise the histograms with a probability, as torchvision's ``RandomEqualize`` does.

    Parameters
    ----------
    p : float
        Probability.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomEqualize
    >>> RandomEqualize()
    RandomEqualize(p=0.5)
    """


@dataclass(eq=False)
class RandomPosterize(ImageTransform):
    """Keep the highest bits with a probability, as torchvision's ``RandomPosterize`` does.

    Parameters
    ----------
    bits : int
        How many, from 0 to 8.
    p : float
        Probability.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomPosterize
    >>> RandomPosterize(3)
    RandomPosterize(bits=3, p=0.5)
    """

    bits: int
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self.p)
        if not is_int(self.bits) or not 0 <= self.bits <= 8:
            raise ValueError(f"bits must be a whole number from 0 to 8, not {self.bits!r}")


@dataclass(eq=False)
class RandomSolarize(ImageTransform):
    """Invert high levels with a probability, as torchvision's ``RandomSolarize`` does.

    Parameters
    ----------
    threshold : float
        The lowest level that is inverted.
    p : float
        Probability.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomSolarize
    >>> RandomSolarize(128)
    RandomSolarize(threshold=128, p=0.5)
    """

    threshold: float
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self.p)
        check_number("threshold", self.threshold, -1e5, 1e5)


@dataclass(eq=False)
class RandomAdjustSharpness(ImageTransform):
    """Sharpen or blur with a probability, as torchvision's ``RandomAdjustSharpness`` does.

    Parameters
    ----------
    sharpness_factor : float
        0 blurs, 1 changes nothing, 2 sharpens.
    p : float
        Probability.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomAdjustSharpness
    >>> RandomAdjustSharpness(2)
    RandomAdjustSharpness(sharpness_factor=2, p=0.5)
    """

    sharpness_factor: float
    p: float = 0.5

    def __post_init__(self) -> None:
        check_probability(self.p)
        check_number("sharpness_factor", self.sharpness_factor, 0, 1e5)
