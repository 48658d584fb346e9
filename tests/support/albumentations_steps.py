"""Steps of albumentations that draw nothing that matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import albumentations as A  # noqa: N812 - as everybody calls it
import numpy as np
from albumentations.pytorch import ToTensorV2

__all__ = [
    "MOVES",
    "NO",
    "SAME",
    "SCALED",
    "STEPS",
    "A",
    "ToTensorV2",
    "axes",
]

NO = (0.0, 0.0)
SAME = (1.0, 1.0)
JITTER = {"brightness": SAME, "contrast": SAME, "saturation": SAME, "hue": NO}
AREA = {"area_for_downscale": "image"}


class Step(NamedTuple):
    """A step that draws nothing that matters, and how much a difference grows with it."""

    make: Callable[[], Any]
    gain: float = 1.0  # infinite if one level may become many
    error: float = 1.0


def blur(size: int, sigma: float) -> Any:
    return A.GaussianBlur(blur_limit=(size, size), sigma_limit=(sigma, sigma), p=1)


def axes(x: float, y: float) -> dict[str, tuple[float, float]]:
    return {"x": (x, x), "y": (y, y)}


def warp(**how: Any) -> Any:
    return A.Affine(**{"scale": axes(1, 1), "shear": axes(0, 0), "rotate": NO, **how}, p=1)


def levels(brightness: float, contrast: float, **how: Any) -> Any:
    limits = {"brightness_limit": (brightness,) * 2, "contrast_limit": (contrast,) * 2}
    return A.RandomBrightnessContrast(**limits, **how, p=1)


def shift(hue: float, saturation: float, value: float) -> Any:
    names = ("hue_shift_limit", "sat_shift_limit", "val_shift_limit")
    limits = zip(names, ((hue,) * 2, (saturation,) * 2, (value,) * 2), strict=True)
    return A.HueSaturationValue(**dict(limits), p=1)


MOVES = {
    "HorizontalFlip": Step(lambda: A.HorizontalFlip(p=1), 1, 0),
    "VerticalFlip": Step(lambda: A.VerticalFlip(p=1), 1, 0),
    "VerticalFlip never": Step(lambda: A.VerticalFlip(p=0), 1, 0),
    "Transpose": Step(lambda: A.Transpose(p=1), 1, 0),
    "NoOp": Step(lambda: A.NoOp(p=1), 1, 0),
    "CenterCrop": Step(lambda: A.CenterCrop(27, 30), 1, 0),
}
STEPS = {
    **MOVES,
    "CenterCrop padded": Step(lambda: A.CenterCrop(71, 33, pad_if_needed=True), 1, 0),
    "Resize": Step(lambda: A.Resize(40, 30)),
    "Resize larger": Step(lambda: A.Resize(90, 81)),
    "Resize nearest": Step(lambda: A.Resize(33, 47, interpolation=0), 1, 0),
    "Resize area": Step(lambda: A.Resize(13, 11, interpolation=3)),
    "Resize area where smaller": Step(lambda: A.Resize(15, 20, **AREA)),
    "LongestMaxSize": Step(lambda: A.LongestMaxSize(max_size=41)),
    "LongestMaxSize area": Step(lambda: A.LongestMaxSize(max_size=21, **AREA)),
    "LongestMaxSize of both": Step(lambda: A.LongestMaxSize(max_size_hw=(30, 70))),
    "SmallestMaxSize": Step(lambda: A.SmallestMaxSize(max_size=35)),
    "SmallestMaxSize of one": Step(lambda: A.SmallestMaxSize(max_size_hw=(None, 50))),
    "RandomResizedCrop": Step(
        lambda: A.Compose(
            [A.CenterCrop(24, 24), A.RandomResizedCrop(size=(28, 36), scale=SAME, ratio=SAME)]
        )
    ),
    "PadIfNeeded": Step(lambda: A.PadIfNeeded(min_height=61, min_width=70, fill=114.0), 1, 0),
    "PadIfNeeded reflect": Step(
        lambda: A.PadIfNeeded(min_height=55, min_width=30, border_mode=4, position="top_left"), 1, 0
    ),
    "PadIfNeeded to multiples": Step(
        lambda: A.PadIfNeeded(
            min_height=None,
            min_width=None,
            pad_height_divisor=32,
            pad_width_divisor=20,
            border_mode=1,
            position="bottom_right",
        ),
        *(1, 0),
    ),
    "Rotate": Step(lambda: A.Rotate(limit=(30.0, 30.0), p=1, fill=99.0)),
    "Rotate reflect": Step(lambda: A.Rotate(limit=(-50.0, -50.0), p=1, border_mode=4)),
    "Rotate to the edge": Step(lambda: A.Rotate(limit=(70.0, 70.0), p=1, border_mode=1)),
    "Rotate symmetric": Step(lambda: A.Rotate(limit=(160.0, 160.0), p=1, border_mode=2)),
    "Rotate nearest": Step(lambda: A.Rotate(limit=(20.0, 20.0), p=1, interpolation=0), 1, 0),
    "Affine smaller": Step(lambda: warp(scale=axes(0.3, 0.4), rotate=(33.0, 33.0)), 1),
    "Affine": Step(
        lambda: warp(
            rotate=(12.0, 12.0),
            shear=axes(5, -3),
            scale=axes(0.9, 1.2),
            translate_percent=axes(0.11, -0.13),
        )
    ),
    "Affine by pixels": Step(lambda: warp(translate_px=axes(-3, 5), border_mode=2), 1, 0),
    "RandomBrightnessContrast": Step(lambda: levels(0.1, -0.3), 1),
    "RandomBrightnessContrast by mean": Step(
        lambda: levels(-0.2, 0.4, brightness_by_max=False), 1.6
    ),
    "brightness": Step(lambda: A.ColorJitter(**{**JITTER, "brightness": (1.5, 1.5)}, p=1), 1.5),
    "contrast": Step(lambda: A.ColorJitter(**{**JITTER, "contrast": (0.6, 0.6)}, p=1)),
    "saturation": Step(lambda: A.ColorJitter(**{**JITTER, "saturation": (1.4, 1.4)}, p=1), 1.8),
    "hue": Step(lambda: A.ColorJitter(**{**JITTER, "hue": (-0.1, -0.1)}, p=1), np.inf),
    "HueSaturationValue": Step(lambda: shift(10, -20.5, 15.5), np.inf),
    "ToGray": Step(lambda: A.ToGray(p=1)),
    "InvertImg": Step(lambda: A.InvertImg(p=1), 1, 0),
    "GaussianBlur": Step(lambda: blur(5, 1.3)),
    "GaussianBlur of an even size": Step(lambda: blur(4, 0.8)),
    "GaussianBlur by sigma": Step(lambda: blur(0, 1.7)),
    "Blur": Step(lambda: A.Blur(blur_limit=(5, 5), p=1)),
    "MotionBlur": Step(
        lambda: A.MotionBlur(
            blur_limit=(3, 3),
            angle_range=(45.0, 45.0),
            direction_range=NO,
            allow_shifted=False,
            p=1,
        )
    ),
    "MedianBlur": Step(lambda: A.MedianBlur(blur_limit=(5, 5), p=1), 1, 0),
    "RandomGamma": Step(lambda: A.RandomGamma(gamma_limit=(70.0, 70.0), p=1), np.inf),
    "RGBShift": Step(lambda: A.RGBShift(*((one, one) for one in (20.7, -30.2, 0.0)), p=1)),
    "Sharpen": Step(
        lambda: A.Sharpen(alpha=(0.3, 0.3), lightness=(0.7, 0.7), method="kernel", p=1), 5.2
    ),
    "Emboss": Step(lambda: A.Emboss(alpha=(0.4, 0.4), strength=(0.6, 0.6), p=1), 4),
    "Posterize": Step(lambda: A.Posterize(num_bits=(3, 3), p=1), np.inf, 0),
    "Solarize": Step(lambda: A.Solarize(threshold_range=(0.4, 0.4), p=1), np.inf, 0),
    "Equalize": Step(lambda: A.Equalize(p=1), np.inf),
    "AutoContrast": Step(lambda: A.AutoContrast(p=1), np.inf),
    "Downscale": Step(lambda: A.Downscale(scale_range=(0.3, 0.3), p=1), 1, 0),
    "MultiplicativeNoise": Step(
        lambda: A.MultiplicativeNoise(
            multiplier=(1.3, 1.3), per_channel=True, elementwise=False, p=1
        ),
        1.3,
    ),
    "RandomScale": Step(lambda: A.RandomScale(scale_limit=(-0.3, -0.3), p=1)),
    "RandomScale area": Step(lambda: A.RandomScale(scale_limit=(-0.6, -0.6), **AREA, p=1)),
    "OpticalDistortion": Step(lambda: A.OpticalDistortion((0.4, 0.4), p=1, fill=70.0), 1, 2),
    "OpticalDistortion fisheye": Step(
        lambda: A.OpticalDistortion((-0.3, -0.3), mode="fisheye", p=1, border_mode=4), 1, 2
    ),
    "GridDistortion": Step(lambda: A.GridDistortion(5, (0.2, 0.2), p=1), 1, 2),
    "GridDistortion beyond": Step(
        lambda: A.GridDistortion(3, (0.4, 0.4), normalized=False, border_mode=1, p=1), 1, 2
    ),
    "Perspective of nothing": Step(lambda: A.Perspective(scale=NO, p=1), 1, 0),
    "CLAHE": Step(lambda: A.CLAHE(clip_limit=(3.0, 3.0), tile_grid_size=(4, 3), p=1), np.inf),
}
SCALED = {
    "Normalize": Step(lambda: A.Normalize(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.5)), 1 / 51),
    "ToFloat": Step(lambda: A.ToFloat(max_value=255.0), 1 / 255),
}
