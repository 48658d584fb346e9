"""Reference implementation of the training transforms: torchvision's rules in torch and Pillow.

The rules are those of torchvision 0.29, `transforms/v2/functional/_geometry.py` and
`transforms/v2/_geometry.py`: Pillow decodes an image, which is then cropped, resized as uint8 by
``torch.nn.functional.interpolate(antialias=True)``, flipped, converted to float and normalised.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

import fastdecode

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
"""The sample photos, among them a grey, a 4:2:2 and a progressive one."""

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pixels(data: bytes, *, orient: bool = False) -> torch.Tensor:
    """Decode with Pillow to (3, H, W) uint8."""
    image = Image.open(io.BytesIO(data))
    seen = ImageOps.exif_transpose(image) if orient else image
    return torch.from_numpy(np.array(seen.convert("RGB"))).permute(2, 0, 1).contiguous()


def resize(
    image: torch.Tensor, size: int | tuple[int, int], mode: str = "bilinear"
) -> torch.Tensor:
    """Resize to (height, width), or the shorter side to this length."""
    height, width = image.shape[-2:]
    if isinstance(size, int):
        if height < width:
            size = size, int(size * width / height)
        else:
            size = int(size * height / width), size
    if (height, width) == size:
        return image
    return torch.nn.functional.interpolate(image[None], size, mode=mode, antialias=True)[0]


def center_crop(image: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """Pad an image that is too small with black, then cut out the centre."""
    height, width = image.shape[-2:]
    lacking = [max(0, want - have) for want, have in zip(size, (height, width), strict=True)]
    below, right = ((lack + 1) // 2 for lack in lacking)
    above, left = (lack // 2 for lack in lacking)
    image = torch.nn.functional.pad(image, (left, right, above, below))
    height, width = image.shape[-2:]
    top = int(round((height - size[0]) / 2.0))  # noqa: RUF046 - as torchvision has it
    left = int(round((width - size[1]) / 2.0))  # noqa: RUF046
    return image[:, top : top + size[0], left : left + size[1]]


def crop_params(
    height: int, width: int, scale: Any, ratio: Any, generator: torch.Generator | None = None
) -> tuple[int, int, int, int]:
    """Draw the (top, left, height, width) of a random crop."""
    area = height * width
    log_ratio = torch.log(torch.tensor(ratio))
    for _ in range(10):
        target_area = area * torch.empty(1).uniform_(*scale, generator=generator).item()
        low, high = log_ratio[0].item(), log_ratio[1].item()
        aspect = torch.exp(torch.empty(1).uniform_(low, high, generator=generator)).item()
        w = round(math.sqrt(target_area * aspect))
        h = round(math.sqrt(target_area / aspect))
        if 0 < w <= width and 0 < h <= height:
            i = torch.randint(0, height - h + 1, size=(1,), generator=generator).item()
            j = torch.randint(0, width - w + 1, size=(1,), generator=generator).item()
            return int(i), int(j), h, w
    in_ratio = float(width) / float(height)
    if in_ratio < min(ratio):
        w, h = width, round(width / min(ratio))
    elif in_ratio > max(ratio):
        w, h = round(height * max(ratio)), height
    else:
        w, h = width, height
    return (height - h) // 2, (width - w) // 2, h, w


def flip(image: torch.Tensor, probability: float, generator: torch.Generator) -> torch.Tensor:
    """Flip horizontally with a probability; 0 draws no random number."""
    if not probability:
        return image
    return image.flip(-1) if torch.rand(1, generator=generator) < probability else image


def random_resized_crop(
    image: torch.Tensor,
    size: tuple[int, int],
    seed: int,
    *,
    scale: Any = (0.08, 1.0),
    ratio: Any = (3 / 4, 4 / 3),
    probability: float = 0.5,
) -> torch.Tensor:
    generator = seeded(seed)
    top, left, height, width = crop_params(*image.shape[-2:], scale, ratio, generator)
    part = image[:, top : top + height, left : left + width].contiguous()
    return flip(resize(part, size), probability, generator)


def normalized(image: torch.Tensor, mean: Any = MEAN, std: Any = STD) -> torch.Tensor:
    """Convert uint8 pixels to normalised floats."""
    means, stds = (torch.tensor(values).view(3, 1, 1) for values in (mean, std))
    return (image.float() / 255 - means) / stds


def levels(result: torch.Tensor, expected: torch.Tensor) -> int:
    """Return the largest difference between two uint8 tensors."""
    assert result.dtype == expected.dtype == torch.uint8
    assert result.shape == expected.shape
    return int((result.int() - expected.int()).abs().max())


def decibels(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the peak signal-to-noise ratio of two uint8 tensors; infinite if they are equal."""
    square = (result.double() - expected.double()).square().mean().item()
    return 10 * math.log10(255**2 / square) if square else math.inf
