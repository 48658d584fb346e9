"""Steps of torchvision and timm that draw, made for either version of torchvision's transforms."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import timm.data.auto_augment as timm_policies
import timm.data.random_erasing as timm_erasing
from torchvision import transforms as v1
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import v2

from fastdecode.torch.transforms import GaussianBlur

MODULES: dict[str, Any] = {"v1": v1, "v2": v2}
CUBIC: Any = {"interpolation": Mode.BICUBIC}
Step = Callable[[Any], Any]

STEPS: dict[str, Step] = {
    "jitter": lambda m: m.ColorJitter(0.4, (0.5, 1.6), 0.4, 0.1),
    "only some jitter": lambda m: m.ColorJitter(0, 0.3, 0, 0.4),
    "rotation": lambda m: m.RandomRotation((-40, 70)),
    "larger rotation": lambda m: m.RandomRotation(30, Mode.BILINEAR, expand=True),
    "affine": lambda m: m.RandomAffine(30, (0.2, 0.1), (0.5, 1.5), (-9, 9, -5, 7), fill=[1, 2, 3]),
    "perspective": lambda m: m.RandomPerspective(0.6, 0.7),
    "grey sometimes": lambda m: m.RandomGrayscale(0.4),
    "grey": lambda m: m.Grayscale(3),
    "flip": lambda m: m.RandomHorizontalFlip(0.3),
    "no flip": lambda m: m.RandomHorizontalFlip(0),
    "upside down": lambda m: m.RandomVerticalFlip(1.0),
    "invert": lambda m: m.RandomInvert(0.3),
    "posterize": lambda m: m.RandomPosterize(3, 0.6),
    "solarize": lambda m: m.RandomSolarize(100, 0.6),
    "sharpness": lambda m: m.RandomAdjustSharpness(2, 0.6),
    "autocontrast": lambda m: m.RandomAutocontrast(0.6),
    "equalize": lambda m: m.RandomEqualize(0.6),
    "padded crop": lambda m: m.RandomCrop((24, 32), 4, padding_mode="reflect"),
    "crop if needed": lambda m: m.RandomCrop((60, 20), pad_if_needed=True, fill=(9, 8, 7)),
    "resize": lambda m: m.Resize((40, 37), Mode.BICUBIC),
    "apply": lambda m: m.RandomApply([m.ColorJitter(0.4), m.Compose([m.RandomRotation(9)])], 0.6),
    "choice": lambda m: m.RandomChoice([m.ColorJitter(0.4), m.RandomVerticalFlip()]),
    "weighted choice": lambda m: m.RandomChoice([m.RandomInvert(), m.RandomAffine(9)], [0.2, 0.8]),
    "choice of several steps": lambda m: m.RandomChoice(
        [m.RandomCrop(19, padding=4), m.RandomResizedCrop(9, **CUBIC), m.Pad(2)]
    ),
    "order": lambda m: m.RandomOrder([m.ColorJitter(0.4), m.RandomSolarize(99), m.RandomInvert()]),
    "trivial": lambda m: m.TrivialAugmentWide(),
    "few magnitudes": lambda m: m.TrivialAugmentWide(5, Mode.BILINEAR, [9, 128, 200]),
    "rand": lambda m: m.RandAugment(),
    "rand, 3": lambda m: m.RandAugment(3, 13, interpolation=Mode.BILINEAR, fill=128),
    "auto": lambda m: m.AutoAugment(),
    "svhn": lambda m: m.AutoAugment(m.AutoAugmentPolicy.SVHN),
    "cifar10": lambda m: m.AutoAugment(m.AutoAugmentPolicy.CIFAR10, Mode.BILINEAR, 7),
}
"""The core has Pillow's own pixels."""
WITHIN_LEVELS: dict[str, Step] = {
    "blur": lambda m: m.GaussianBlur((3, 5), (0.1, 2.0)),
    "mix": lambda m: m.AugMix(),
    "short mix": lambda m: m.AugMix(1, 2, 2, 0.7, all_ops=False),
}
ALONE: dict[str, Callable[[], Any]] = {
    "shortest size": lambda: v2.RandomShortestSize([40, 50, 60], 90, **CUBIC),
    "scale jitter": lambda: v2.ScaleJitter((60, 70), (0.8, 1.4), **CUBIC),
    "distort": lambda: v2.Compose([v2.CenterCrop(40), v2.RandomPhotometricDistort()]),
    "channels": v2.RandomChannelPermutation,
    "DINO's blur": lambda: GaussianBlur(0.6, 0.5, 2.0),
}

TIMM_POLICIES = (
    *("rand-m9-mstd0.5-inc1", "rand-m7-n3-mstd101-inc1", "rand-m6-n2-p0.7-mstd1-t3a"),
    *("rand-m9-n3-mstd0.5-tweights-inc1", "original-mstd0.5", "v0-mstd0.5"),
)


def timm_policy(name: str) -> Any:
    """Return a policy as `create_transform` has it: with a size for moves, and a fill."""
    options = {"translate_const": 100, "img_mean": (124, 116, 104)}
    makers = {
        "rand": timm_policies.rand_augment_transform,
        "augmix": timm_policies.augment_and_mix_transform,
    }
    return makers.get(name.partition("-")[0], timm_policies.auto_augment_transform)(name, options)


def timm_operation(name: str, magnitude: float, most: float | None, spread: float) -> Any:
    """Return a policy of one operation that always comes."""
    how = {"magnitude_max": most, "magnitude_std": spread}
    return timm_policies.AutoAugment([[timm_policies.AugmentOp(name, 1.0, magnitude, how)]])


TimmErasing: Any = partial(timm_erasing.RandomErasing, device="cpu")
