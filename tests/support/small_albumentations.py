"""Doubles of albumentations' transforms that also do what these do, by OpenCV.

They take albumentations' arguments by name, and use the lower end of each range that it draws from.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import torch


class _Double:
    """A transform; `given` are its arguments that have defaults."""

    given: dict[str, Any] = {}

    def __init__(self, *sides: int, p: float = 1.0, **attributes: Any) -> None:
        names = dict(zip(("height", "width"), sides, strict=False))
        vars(self).update({**self.given, "p": p, **names, **attributes})

    def __call__(self, *, image: Any, force_apply: bool = False) -> dict[str, Any]:
        done = force_apply or self.p > 0
        return {"image": np.ascontiguousarray(self.apply(image)) if done else image}

    def set_random_seed(self, _: int) -> None:
        """Own generators, as albumentations' do."""


RESIZE = {"interpolation": 1, "area_for_downscale": None}
FILL = {"fill": 0.0, "border_mode": 0}


class Resize(_Double):
    given = RESIZE

    def apply(self, image: Any) -> Any:
        return self.to(image, self.height, self.width)

    def to(self, image: Any, height: int, width: int) -> Any:
        if image.shape[:2] == (height, width):
            return image
        shrinks = height < image.shape[0] or width < image.shape[1]
        how = cv2.INTER_AREA if self.area_for_downscale and shrinks else self.interpolation
        return cv2.resize(image, (width, height), interpolation=how)


class LongestMaxSize(Resize):
    given = {**RESIZE, "max_size": None, "max_size_hw": None}
    chosen = min

    def apply(self, image: Any) -> Any:
        given = self.max_size_hw or (self.max_size, self.max_size)
        sides = zip(given, image.shape, strict=False)
        factor = type(self).chosen([wanted / side for wanted, side in sides if wanted])
        return self.to(image, *(max(1, round(side * factor)) for side in image.shape[:2]))


class SmallestMaxSize(LongestMaxSize):
    chosen = max


class RandomResizedCrop(Resize):
    given = {**RESIZE, "ratio": (0.75, 4 / 3), "scale": (0.08, 1.0)}

    def apply(self, image: Any) -> Any:
        return self.to(image, *self.size)


class PadIfNeeded(_Double):
    given = {
        **FILL, "position": "center", "min_height": None, "min_width": None,
        "pad_height_divisor": None, "pad_width_divisor": None,
    }  # fmt: skip

    def apply(self, image: Any) -> Any:
        least = (self.min_height, self.min_width)
        divisors = (self.pad_height_divisor, self.pad_width_divisor)
        borders: list[int] = []
        for side, wanted, divisor in zip(image.shape, least, divisors, strict=False):
            missing = -side % divisor if divisor else max(0, wanted - side)
            first = {"center": missing // 2, "top_left": 0, "bottom_right": missing}[self.position]
            borders += [first, missing - first]
        return cv2.copyMakeBorder(image, *borders, self.border_mode, value=[self.fill] * 3)


class CenterCrop(_Double):
    given = {**FILL, "pad_if_needed": False, "pad_position": "center"}

    def apply(self, image: Any) -> Any:
        sides = {"min_height": self.height, "min_width": self.width}
        image = PadIfNeeded(**sides).apply(image) if self.pad_if_needed else image
        top, left = (image.shape[0] - self.height) // 2, (image.shape[1] - self.width) // 2
        if min(top, left) < 0:
            raise ValueError("the crop is larger than the image")
        return image[top : top + self.height, left : left + self.width]


class HorizontalFlip(_Double):
    def apply(self, image: Any) -> Any:
        return image[:, ::-1]


class VerticalFlip(_Double):
    def apply(self, image: Any) -> Any:
        return image[::-1]


class Transpose(_Double):
    def apply(self, image: Any) -> Any:
        return image.transpose(1, 0, 2)


class NoOp(_Double):
    def apply(self, image: Any) -> Any:
        return image


class Affine(_Double):
    given = {
        **FILL, "interpolation": 1, "fit_output": False, "keep_ratio": False,
        "balanced_scale": False, "translate_px": None, "translate_percent": None,
        "scale": {"x": (1.0, 1.0), "y": (1.0, 1.0)}, "shear": {"x": (0.0, 0.0), "y": (0.0, 0.0)},
        "rotate": (0.0, 0.0),
    }  # fmt: skip

    def apply(self, image: Any) -> Any:
        height, width = image.shape[:2]
        moved = self.translate_px or {"x": (0,), "y": (0,)}
        moves = {axis: limits[0] for axis, limits in moved.items()}
        if self.translate_percent:
            sides = {"x": width, "y": height}
            moves = {a: int(sides[a] * limits[0]) for a, limits in self.translate_percent.items()}
        turn = np.deg2rad(self.rotate[0])
        shears = [np.tan(np.deg2rad(-self.shear[axis][0])) for axis in "xy"]
        matrix = np.array([[1, shears[0]], [shears[1], 1]])
        matrix = matrix @ [[np.cos(turn), np.sin(turn)], [-np.sin(turn), np.cos(turn)]]
        matrix = matrix @ np.diag([self.scale[axis][0] for axis in "xy"])
        centre = np.array([width / 2 - 0.5, height / 2 - 0.5])
        shift = centre + np.array([moves["x"], moves["y"]]) - matrix @ centre
        how = {"flags": self.interpolation, "borderMode": self.border_mode}
        full = np.column_stack([matrix, shift])
        if np.allclose(full, np.eye(2, 3)):
            return image
        return cv2.warpAffine(image, full, (width, height), borderValue=[self.fill] * 3, **how)


class Rotate(Affine):
    given = {**Affine.given, "crop_border": False}

    def apply(self, image: Any) -> Any:
        self.rotate = self.limit
        return super().apply(image)


def _limited(levels: Any) -> Any:
    return np.clip(levels, 0, 255).astype(np.uint8)


def _grey(image: Any) -> Any:
    return cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)


def _shifted(image: Any, hue: float, saturation: float, value: float) -> Any:
    if hue == saturation == value == 0:
        return image
    h, s, v = cv2.split(cv2.cvtColor(image, cv2.COLOR_RGB2HSV))
    h = np.mod(h + np.float64(hue), 180).astype(np.uint8)
    s = np.where(s == 0, s, np.clip(np.int32(s) + int(saturation), 0, 255).astype(np.uint8))
    v = np.clip(np.int32(v) + int(value), 0, 255).astype(np.uint8)
    return cv2.cvtColor(cv2.merge((h, s, v)), cv2.COLOR_HSV2RGB)


class RandomBrightnessContrast(_Double):
    given = {"brightness_by_max": True, "ensure_safe_range": False}

    def apply(self, image: Any) -> Any:
        scale = 255 if self.brightness_by_max else image.mean()
        factor, summand = 1 + self.contrast_limit[0], scale * self.brightness_limit[0]
        return _limited(image.astype(np.float32) * np.float32(factor) + np.float32(summand))


class HueSaturationValue(_Double):
    def apply(self, image: Any) -> Any:
        limits = (self.hue_shift_limit, self.sat_shift_limit, self.val_shift_limit)
        return _shifted(image, *(one[0] for one in limits))


class ColorJitter(_Double):
    """Only one of its parts may change anything, because their order is drawn."""

    def apply(self, image: Any) -> Any:
        levels = image.astype(np.float32) * np.float32(self.brightness[0])
        image = _limited(levels)
        factor = np.float32(self.contrast[0])
        if factor != 1:
            image = _limited(image * factor + np.float32((1 - factor) * _grey(image).mean()))
        if self.saturation[0] != 1:
            grey = cv2.merge([_grey(image)] * 3)
            image = cv2.addWeighted(image, self.saturation[0], grey, 1 - self.saturation[0], 0)
        return _shifted(image, 180 * self.hue[0], 0, 0)


class ToGray(_Double):
    given = {"num_output_channels": 3, "method": "weighted_average"}

    def apply(self, image: Any) -> Any:
        return cv2.merge([_grey(image)] * 3)


class InvertImg(_Double):
    def apply(self, image: Any) -> Any:
        return 255 - image


class GaussianBlur(_Double):
    def apply(self, image: Any) -> Any:
        sigma, size = self.sigma_limit[0], self.blur_limit[0]
        size = size or int(sigma * 3.5) * 2 + 1
        size += size % 2 == 0
        places = np.arange(size) - size // 2
        kernel = np.exp(-0.5 * (places / sigma) ** 2)
        return cv2.sepFilter2D(image, -1, kernel / kernel.sum(), kernel / kernel.sum())


class RandomCrop(CenterCrop):
    """Drawn, so only its program is tried, like those of the next three."""


class RandomRotate90(_Double):
    pass


class GaussNoise(_Double):
    pass


class CoarseDropout(_Double):
    given = {"fill": 0.0}


class Blur(_Double):
    def apply(self, image: Any) -> Any:
        return cv2.blur(image, (self.blur_limit[0],) * 2)


class MotionBlur(_Double):
    """With one line: from the left below to the right above, and its middle at the centre."""

    def apply(self, image: Any) -> Any:
        kernel = np.eye(self.blur_limit[0], dtype=np.float32)
        return cv2.filter2D(image, -1, kernel / kernel.sum())


class MedianBlur(_Double):
    def apply(self, image: Any) -> Any:
        return cv2.medianBlur(image, self.blur_limit[0])


class RandomGamma(_Double):
    def apply(self, image: Any) -> Any:
        return _limited(255 * (image / 255) ** (self.gamma_limit[0] / 100) + 1e-4)


class RGBShift(_Double):
    def __init__(self, *limits: tuple[float, float], p: float) -> None:
        ranges = [tuple(one / 255 for one in limit) for limit in limits]
        super().__init__(p=p, noise_params={"ranges": ranges})

    def apply(self, image: Any) -> Any:
        return _limited(
            image + np.array([int(255 * one[0]) for one in self.noise_params["ranges"]])
        )


class MultiplicativeNoise(_Double):
    def apply(self, image: Any) -> Any:
        return _limited(image * np.float32(self.multiplier[0]))


class Sharpen(_Double):
    def apply(self, image: Any) -> Any:
        effect = np.full((3, 3), -1.0)
        effect[1, 1] = 8 + self.lightness[0]
        return self.blended(image, effect)

    def blended(self, image: Any, effect: Any) -> Any:
        kernel = self.alpha[0] * effect
        kernel[1, 1] += 1 - self.alpha[0]
        return cv2.filter2D(image, -1, kernel.astype(np.float32))


class Emboss(Sharpen):
    def apply(self, image: Any) -> Any:
        diagonal = np.array([[-1, 0, 0], [0, 1, 0], [0, 0, 1]])
        slope = np.array([[-1, -1, 0], [-1, 0, 1], [0, 1, 1]])
        return self.blended(image, diagonal + self.strength[0] * slope)


class Posterize(_Double):
    def apply(self, image: Any) -> Any:
        lost = 8 - self.num_bits[0]
        return image >> lost << lost


class Solarize(_Double):
    def apply(self, image: Any) -> Any:
        return np.where(image >= 255 * self.threshold_range[0], 255 - image, image)


class Equalize(_Double):
    given = {"mode": "cv", "by_channels": True, "mask": None}

    def apply(self, image: Any) -> Any:
        return cv2.merge([cv2.equalizeHist(one) for one in cv2.split(image)])


class AutoContrast(_Double):
    given = {"cutoff": 0, "ignore": None, "method": "cdf"}

    def apply(self, image: Any) -> Any:
        return cv2.merge([_spread(one) for one in cv2.split(image)])


def _spread(channel: Any) -> Any:
    """Give each level below white the share of the darker ones; white is not among them."""
    counts = cv2.calcHist([channel], [0], None, [256], [0, 255]).ravel()
    (found,) = counts.nonzero()
    if len(found) < 2:
        return channel
    sums = counts.cumsum() - counts[found[0]]
    return np.rint(np.clip(sums * (255 / sums[-1]), 0, 255)).astype(np.uint8)[channel]


class ChannelDropout(_Double):
    """Drawn, so only its program is tried, like that of the next one."""


class RandomSizedCrop(_Double):
    given = {**RESIZE, "w2h_ratio": 1.0}


class Downscale(_Double):
    given = {"interpolation_pair": {"upscale": 0, "downscale": 0}}

    def apply(self, image: Any) -> Any:
        scale, size = self.scale_range[0], image.shape[1::-1]
        small = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_NEAREST)
        return cv2.resize(small, size, interpolation=cv2.INTER_NEAREST)


class RandomScale(Resize):
    def apply(self, image: Any) -> Any:
        return self.to(image, *(int(one * (1 + self.scale_limit[0])) for one in image.shape[:2]))


class OpticalDistortion(_Double):
    given = {**FILL, "interpolation": 1, "mode": "camera"}

    def __init__(self, distort_limit: Any = (-0.05, 0.05), **how: Any) -> None:
        super().__init__(distort_limit=distort_limit, **how)

    def apply(self, image: Any) -> Any:
        rows, columns = image.shape[:2]
        half = 0.0 if self.mode == "fisheye" else 0.5
        centre = np.array([rows / 2 - half, columns / 2 - half])
        y, x = np.mgrid[:rows, :columns] - centre.reshape(2, 1, 1)
        far = (x / columns) ** 2 + (y / rows) ** 2
        lens = 1 + self.distort_limit[0] * (far + far**2)
        if self.mode == "fisheye":
            lens = 1 + self.distort_limit[0] * 4 * (x**2 + y**2) / (rows**2 + columns**2)
        return self.mapped(image, x * lens + columns / 2, y * lens + rows / 2)

    def mapped(self, image: Any, x: Any, y: Any) -> Any:
        how = {"borderMode": self.border_mode, "borderValue": self.fill}
        places = (x.astype(np.float32), y.astype(np.float32))
        return cv2.remap(image, *places, self.interpolation, **how)


class GridDistortion(OpticalDistortion):
    """All steps of an axis are equally long, so a grid that fills the image changes little."""

    given = {**FILL, "interpolation": 1, "normalized": True}

    def __init__(self, num_steps: int, distort_limit: Any, **how: Any) -> None:
        super().__init__(distort_limit, num_steps=num_steps, **how)

    def apply(self, image: Any) -> Any:
        y, x = (self.places(count) for count in image.shape[:2])
        return self.mapped(image, *np.meshgrid(x, y))

    def places(self, count: int) -> Any:
        side = count // self.num_steps
        cells = [min(side, count - at) for at in range(0, side * (self.num_steps + 1), side)]
        whole = np.array([1.0] * self.num_steps + [cells[-1] / side])
        steps = whole * count / whole.sum() if self.normalized else [side * 1.0] * len(cells)
        steps = steps if self.normalized else np.array(steps) * (1 + self.distort_limit[0])
        ends = np.cumsum([0.0, *steps])
        made = [np.linspace(*ends[at : at + 2], cell) for at, cell in enumerate(cells) if cell > 0]
        return np.concatenate([*made, np.zeros(count)])[:count]


class ElasticTransform(_Double):
    given = {
        **FILL, "interpolation": 1, "approximate": False, "same_dxdy": False,
        "noise_distribution": "gaussian",
    }  # fmt: skip


class Perspective(_Double):
    """Of a scale of 0, which changes nothing."""

    given = {**FILL, "interpolation": 1, "keep_size": True, "fit_output": False}

    def apply(self, image: Any) -> Any:
        return image


class CLAHE(_Double):
    def apply(self, image: Any) -> Any:
        made = cv2.createCLAHE(clipLimit=self.clip_limit[0], tileGridSize=self.tile_grid_size)
        lab = cv2.cvtColor(image, cv2.COLOR_RGB2LAB)
        lab[..., 0] = made.apply(lab[..., 0])
        return cv2.cvtColor(lab, cv2.COLOR_LAB2RGB)


class Normalize(_Double):
    given = {"max_pixel_value": 255.0, "normalization": "standard"}

    def apply(self, image: Any) -> Any:
        mean, std = (np.array(one, np.float32) * 255 for one in (self.mean, self.std))
        return (image.astype(np.float32) - mean) / std


class ToFloat(_Double):
    given = {"max_value": None}

    def apply(self, image: Any) -> Any:
        return image.astype(np.float32) / np.float32(self.max_value or 255)


class ToTensorV2(_Double):
    def __call__(self, *, image: Any, force_apply: bool = False) -> dict[str, Any]:
        return {"image": torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))}


class Compose(_Double):
    def __init__(self, transforms: Any, p: float = 1.0) -> None:
        super().__init__(p=p, transforms=transforms, processors={})

    def __call__(self, *, image: Any, force_apply: bool = False) -> dict[str, Any]:
        for one in self.transforms:
            image = one(image=image)["image"]
        return {"image": image}


class Sequential(Compose):
    pass


class OneOf(Compose):
    def __init__(self, transforms: Any, p: float = 1.0) -> None:
        super().__init__(transforms, p=p)
        self.transforms_ps = [one.p / sum(each.p for each in transforms) for one in transforms]

    def __call__(self, *, image: Any, force_apply: bool = False) -> dict[str, Any]:
        chosen = next(one for one in self.transforms if one.p)
        made: dict[str, Any] = chosen(image=image, force_apply=True)
        return made


class OneOrOther(Compose):
    def __call__(self, *, image: Any, force_apply: bool = False) -> dict[str, Any]:
        made: dict[str, Any] = self.transforms[0](image=image, force_apply=True)
        return made


for _kind in [one for one in vars().copy().values() if isinstance(one, type)]:
    if issubclass(_kind, _Double):
        _kind.__module__ = "albumentations.doubles"
