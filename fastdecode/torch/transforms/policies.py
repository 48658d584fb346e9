"""The automatic augmentations that have torchvision's names, with the tables of their papers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

import torch

from fastdecode._arguments import check_word, is_int
from fastdecode.native._augment import Program, Step
from fastdecode.torch._programs import Look, Policy
from fastdecode.torch.transforms._random_crop import TorchDraws
from fastdecode.torch.transforms.base import is_number
from fastdecode.torch.transforms.images import (
    AnyImage,
    AnyMode,
    Fill,
    ImageTransform,
    check_fill,
    through_tensor,
    transformed,
)

_Levels = Callable[[int, int, int], torch.Tensor | None]
_Space = Mapping[str, tuple[_Levels, bool]]
"""By operation: the magnitudes for a number of bins, a height and a width; whether they are signed.

So have torchvision's own policies it.
"""


def _up_to(most: float) -> tuple[_Levels, bool]:
    return (lambda bins, _height, _width: torch.linspace(0.0, most, bins)), True


def _bits(most: int, fewer: int) -> _Levels:
    return lambda bins, _h, _w: (most - (torch.arange(bins) / ((bins - 1) / fewer))).round()


def _space(
    shear: float, degrees: float, factor: float, bits: _Levels, share: Callable[[int], float]
) -> _Space:
    """Return a table of all operations; v2 draws one of them in this order."""
    constant: tuple[_Levels, bool] = (lambda _bins, _height, _width: None), False
    return {
        "Identity": constant,
        **dict.fromkeys(("ShearX", "ShearY"), _up_to(shear)),
        "TranslateX": ((lambda bins, _h, w: torch.linspace(0.0, share(w), bins)), True),
        "TranslateY": ((lambda bins, h, _w: torch.linspace(0.0, share(h), bins)), True),
        "Rotate": _up_to(degrees),
        **dict.fromkeys(_COLOURS, _up_to(factor)),
        "Posterize": (bits, False),
        "Solarize": ((lambda bins, _h, _w: torch.linspace(1.0, 0.0, bins)), False),
        **dict.fromkeys(("AutoContrast", "Equalize"), constant),
    }


_COLOURS = ("Brightness", "Color", "Contrast", "Sharpness")
_OF_PAPER = _space(0.3, 30.0, 0.9, _bits(8, 4), lambda side: 150.0 / 331.0 * side)
_WIDE = _space(0.99, 135.0, 0.99, _bits(8, 6), lambda _: 32.0)
_MIXED = _space(0.3, 30.0, 0.9, _bits(4, 4), lambda side: side / 3.0)


@dataclass(eq=False)
class _Policy(ImageTransform):
    """What the policies have in common."""

    _AUGMENTATION_SPACE: ClassVar[_Space] = _OF_PAPER

    def __post_init__(self) -> None:
        given: Any = self
        check_fill(given.fill)
        Look.of(given.interpolation, given.fill)
        for name, least in _LEAST.items():
            number = getattr(self, name, least)
            if not is_int(number) or number < least:
                raise ValueError(f"{name} must be a whole number from {least} on, not {number!r}")

    def __call__(self, image: AnyImage) -> AnyImage:
        """Return the image after the drawn operations; a tensor holds bytes."""
        return super().__call__(_checked(image))


_LEAST = {
    "num_ops": 0,
    "magnitude": 0,
    "num_magnitude_bins": 2,
    "severity": 1,
    "mixture_width": 1,
}


def _checked(image: AnyImage) -> AnyImage:
    if isinstance(image, torch.Tensor) and image.is_floating_point():
        raise ValueError(f"image must hold bytes, not {image.dtype}: put ToTensor after it")
    return image


def _drawn(table: Policy, draws: TorchDraws, level: int | None = None, most: int = 0) -> Program:
    """Return one of the operations of a table, after v2's draws."""
    return table.drawn(table.names[draws.below(len(table.names))], draws, level, most)


@dataclass(eq=False)
class TrivialAugmentWide(_Policy):
    """One random operation of a random strength, as torchvision's ``TrivialAugmentWide``.

    Parameters
    ----------
    num_magnitude_bins : int
        How many strengths there are, at least 2.
    interpolation, fill
        As for `RandomRotation`; where pixels are blended, None leaves the fill out.

    Examples
    --------
    >>> from fastdecode.torch.transforms import TrivialAugmentWide
    >>> TrivialAugmentWide()
    TrivialAugmentWide(num_magnitude_bins=31, interpolation='nearest', fill=None)
    """

    num_magnitude_bins: int = 31
    interpolation: AnyMode = "nearest"
    fill: Fill = None

    _AUGMENTATION_SPACE = _WIDE

    def _draw(self, size: tuple[int, int]) -> Program:
        return _drawn(Policy(self, size, self.num_magnitude_bins), TorchDraws())


@dataclass(eq=False)
class RandAugment(_Policy):
    """Several random operations of one strength, as torchvision's ``RandAugment``.

    Parameters
    ----------
    num_ops : int
        How many.
    magnitude : int
        The strength, less than `num_magnitude_bins`.
    num_magnitude_bins, interpolation, fill
        As for `TrivialAugmentWide`.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandAugment
    >>> RandAugment()
    RandAugment(num_ops=2, magnitude=9, num_magnitude_bins=31, ...)
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    interpolation: AnyMode = "nearest"
    fill: Fill = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.magnitude >= self.num_magnitude_bins:
            bins = self.num_magnitude_bins
            raise ValueError(f"magnitude={self.magnitude} is none of num_magnitude_bins={bins}")

    def _draw(self, size: tuple[int, int]) -> Program:
        table, draws = Policy(self, size, self.num_magnitude_bins), TorchDraws()
        several = [_drawn(table, draws, self.magnitude) for _ in range(self.num_ops)]
        return Program([step for one in several for step in one])


class AutoAugmentPolicy(Enum):
    """For which images the operations of `AutoAugment` were found.

    ``IMAGENET``, ``CIFAR10`` or ``SVHN``.

    Examples
    --------
    >>> from fastdecode.torch.transforms import AutoAugmentPolicy
    >>> AutoAugmentPolicy.SVHN.value
    'svhn'
    """

    IMAGENET = "imagenet"
    CIFAR10 = "cifar10"
    SVHN = "svhn"


@dataclass(eq=False)
class AutoAugment(_Policy):
    """One of 25 pairs of operations that were found by search, as torchvision's ``AutoAugment``.

    Parameters
    ----------
    policy : AutoAugmentPolicy or str
        For which images.
    interpolation, fill
        As for `TrivialAugmentWide`.

    Examples
    --------
    >>> from fastdecode.torch.transforms import AutoAugment
    >>> AutoAugment()
    AutoAugment(policy=<AutoAugmentPolicy.IMAGENET: 'imagenet'>, ...)
    """

    policy: Any = AutoAugmentPolicy.IMAGENET
    interpolation: AnyMode = "nearest"
    fill: Fill = None

    _AUGMENTATION_SPACE = {
        **{name: levels for name, levels in _OF_PAPER.items() if name != "Identity"},
        "Invert": _OF_PAPER["Identity"],
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        name = getattr(self.policy, "value", self.policy)
        check_word("policy", name, [one.value for one in AutoAugmentPolicy])
        self.policy = AutoAugmentPolicy(name)
        lines = map(str.split, _PAIRS[self.policy].split(", "))
        self._policies = [
            [(name, int(p) / 10, None if at == "-" else int(at)) for name, p, at in pair]
            for pair in ((words[:3], words[3:]) for words in lines)
        ]

    def _draw(self, size: tuple[int, int]) -> Program:
        table, draws = Policy(self, size, 10), TorchDraws()
        steps: list[Step] = []
        for name, probability, level in self._policies[draws.below(len(self._policies))]:
            if draws.uniform(0, 1) <= probability:
                steps += table.drawn(name, draws, level or 0)
        return Program(steps)


@dataclass(eq=False)
class AugMix(_Policy):
    """A mixture of an image with augmented ones, as torchvision's ``AugMix``.

    Parameters
    ----------
    severity : int
        The strongest of the operations, from 1 to 10.
    mixture_width : int
        How many augmented images there are.
    chain_depth : int
        How many operations make each; from 1 to 3 by default.
    alpha : float
        How much the weights are alike.
    all_ops : bool
        Whether brightness, colour, contrast and sharpness are among the operations.
    interpolation, fill
        As for `TrivialAugmentWide`.

    Examples
    --------
    >>> from fastdecode.torch.transforms import AugMix
    >>> AugMix()
    AugMix(severity=3, mixture_width=3, chain_depth=-1, alpha=1.0, all_ops=True, ...)
    """

    severity: int = 3
    mixture_width: int = 3
    chain_depth: int = -1
    alpha: float = 1.0
    all_ops: bool = True
    interpolation: AnyMode = "bilinear"
    fill: Fill = None

    _PARAMETER_MAX: ClassVar[int] = 10
    _PARTIAL_AUGMENTATION_SPACE: ClassVar[_Space] = {
        name: levels for name, levels in _MIXED.items() if name not in ("Identity", *_COLOURS)
    }
    _AUGMENTATION_SPACE = {
        **_PARTIAL_AUGMENTATION_SPACE,
        **{name: _MIXED[name] for name in _COLOURS},
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.severity > self._PARAMETER_MAX or not is_int(self.chain_depth):
            raise ValueError("severity must be at most 10, and chain_depth a whole number")
        if not is_number(self.alpha) or not self.alpha > 0:
            raise ValueError(f"alpha must be a positive number, not {self.alpha!r}")

    def __call__(self, image: AnyImage) -> AnyImage:
        """Return the mixture; the parameters are those of a call of any `ImageTransform`."""
        return through_tensor(_checked(image), self._mixed)

    def _mixed(self, image: torch.Tensor) -> torch.Tensor:
        alphas = torch.full((2 + self.mixture_width,), self.alpha, device="cpu")
        kept, rest = torch._sample_dirichlet(alphas[None, :2])[0]
        weights = torch._sample_dirichlet(alphas[None, 2:])[0] * rest
        mixed: torch.Tensor = kept * image
        for weight in weights:
            mixed += weight * transformed(image, self._draw)
        return mixed.to(image.dtype).as_subclass(type(image))

    def _draw(self, size: tuple[int, int]) -> Program:
        """Return what is done for one of the augmented images."""
        draws = TorchDraws()
        table = Policy(self, size, self._PARAMETER_MAX, partial=not self.all_ops)
        depth = self.chain_depth if self.chain_depth > 0 else 1 + draws.below(3)
        several = [_drawn(table, draws, most=self.severity) for _ in range(depth)]
        return Program([step for one in several for step in one])


_PAIRS = {
    AutoAugmentPolicy.IMAGENET: (
        "Posterize 4 8 Rotate 6 9, Solarize 6 5 AutoContrast 6 -, Equalize 8 - Equalize 6 -, "
        "Posterize 6 7 Posterize 6 6, Equalize 4 - Solarize 2 4, Equalize 4 - Rotate 8 8, "
        "Solarize 6 3 Equalize 6 -, Posterize 8 5 Equalize 10 -, Rotate 2 3 Solarize 6 8, "
        "Equalize 6 - Posterize 4 6, Rotate 8 8 Color 4 0, Rotate 4 9 Equalize 6 -, "
        "Equalize 0 - Equalize 8 -, Invert 6 - Equalize 10 -, Color 6 4 Contrast 10 8, "
        "Rotate 8 8 Color 10 2, Color 8 8 Solarize 8 7, Sharpness 4 7 Invert 6 -, "
        "ShearX 6 5 Equalize 10 -, Color 4 0 Equalize 6 -, Equalize 4 - Solarize 2 4, "
        "Solarize 6 5 AutoContrast 6 -, Invert 6 - Equalize 10 -, Color 6 4 Contrast 10 8, "
        "Equalize 8 - Equalize 6 -"
    ),
    AutoAugmentPolicy.CIFAR10: (
        "Invert 1 - Contrast 2 6, Rotate 7 2 TranslateX 3 9, Sharpness 8 1 Sharpness 9 3, "
        "ShearY 5 8 TranslateY 7 9, AutoContrast 5 - Equalize 9 -, ShearY 2 7 Posterize 3 7, "
        "Color 4 3 Brightness 6 7, Sharpness 3 9 Brightness 7 9, Equalize 6 - Equalize 5 -, "
        "Contrast 6 7 Sharpness 6 5, Color 7 7 TranslateX 5 8, Equalize 3 - AutoContrast 4 -, "
        "TranslateY 4 3 Sharpness 2 6, Brightness 9 6 Color 2 8, Solarize 5 2 Invert 0 -, "
        "Equalize 2 - AutoContrast 6 -, Equalize 2 - Equalize 6 -, Color 9 9 Equalize 6 -, "
        "AutoContrast 8 - Solarize 2 8, Brightness 1 3 Color 7 0, "
        "Solarize 4 5 AutoContrast 9 -, TranslateY 9 9 TranslateY 7 9, "
        "AutoContrast 9 - Solarize 8 3, Equalize 8 - Invert 1 -, "
        "TranslateY 7 9 AutoContrast 9 -"
    ),
    AutoAugmentPolicy.SVHN: (
        "ShearX 9 4 Invert 2 -, ShearY 9 8 Invert 7 -, Equalize 6 - Solarize 6 6, "
        "Invert 9 - Equalize 6 -, Equalize 6 - Rotate 9 3, ShearX 9 4 AutoContrast 8 -, "
        "ShearY 9 8 Invert 4 -, ShearY 9 5 Solarize 2 6, Invert 9 - AutoContrast 8 -, "
        "Equalize 6 - Rotate 9 3, ShearX 9 4 Solarize 3 3, ShearY 8 8 Invert 7 -, "
        "Equalize 9 - TranslateY 6 6, Invert 9 - Equalize 6 -, Contrast 3 3 Rotate 8 4, "
        "Invert 8 - TranslateY 0 2, ShearY 7 6 Solarize 4 8, Invert 6 - Rotate 8 4, "
        "ShearY 3 7 TranslateX 9 3, ShearX 1 6 Invert 6 -, Solarize 7 2 TranslateY 6 7, "
        "ShearY 8 4 Invert 8 -, ShearX 7 9 TranslateY 8 3, ShearY 8 5 AutoContrast 7 -, "
        "ShearX 7 2 Invert 1 -"
    ),
}
"""The 25 pairs of operations, each with tenths of its probability, and its magnitude of 0 to 9."""
