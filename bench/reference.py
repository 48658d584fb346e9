"""The reference that pictures are held against: torchvision v2's rules, written out in plain torch.

A file is decoded by Pillow, as RGB, the EXIF orientation left alone. It is resized as a uint8
tensor by ``torch.nn.functional.interpolate(mode="bilinear", antialias=True)``, which is what
torchvision v2 does. How the long side is rounded, where a crop lies and in which order random
numbers are drawn is taken from torchvision's source: ``transforms/_functional``'s
``_compute_resized_output_size`` and ``center_crop``, ``RandomResizedCrop.get_params`` and
``RandomHorizontalFlip``.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
RESIZE, SIZE = 256, 224
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
PHOTOS = (".bmp", ".jpeg", ".jpg", ".png", ".webp")


def photos_in(folder: Path) -> list[Path]:
    """List the photos under a folder, sorted."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in PHOTOS)


def pixels(path: Path) -> torch.Tensor:
    """Decode a file: (3, H, W) uint8."""
    with Image.open(path) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).contiguous()


def resized(image: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """Resize (3, H, W) uint8 to (3, height, width) uint8."""
    return torch.nn.functional.interpolate(
        image[None], (height, width), mode="bilinear", antialias=True
    )[0]


def evaluation(image: torch.Tensor) -> torch.Tensor:
    """Do Resize(256) and CenterCrop(224)."""
    height, width = image.shape[1:]
    short, long = min(height, width), max(height, width)
    long = int(RESIZE * long / short)
    height, width = (RESIZE, long) if height <= width else (long, RESIZE)
    top, left = round((height - SIZE) / 2), round((width - SIZE) / 2)
    return resized(image, height, width)[:, top : top + SIZE, left : left + SIZE]


def random_box(
    height: int, width: int, generator: torch.Generator | None = None
) -> tuple[int, int, int, int]:
    """Draw RandomResizedCrop's box: left, top, right, bottom in pixels."""
    low, high = torch.log(torch.tensor(RATIO)).tolist()
    for _ in range(10):
        area = height * width * torch.empty(1).uniform_(*SCALE, generator=generator).item()
        ratio = torch.empty(1).uniform_(low, high, generator=generator).exp().item()
        columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < columns <= width and 0 < rows <= height:
            top = int(torch.randint(0, height - rows + 1, (1,), generator=generator))
            left = int(torch.randint(0, width - columns + 1, (1,), generator=generator))
            return left, top, left + columns, top + rows
    columns, rows = width, height
    if width / height < RATIO[0]:
        rows = round(width / RATIO[0])
    elif width / height > RATIO[1]:
        columns = round(height * RATIO[1])
    left, top = (width - columns) // 2, (height - rows) // 2
    return left, top, left + columns, top + rows


def training(image: torch.Tensor, seed: int) -> torch.Tensor:
    """Do RandomResizedCrop(224) and RandomHorizontalFlip()."""
    generator = torch.Generator().manual_seed(seed)
    left, top, right, bottom = random_box(*image.shape[1:], generator)
    result = resized(image[:, top:bottom, left:right].contiguous(), SIZE, SIZE)
    return result.flip(-1) if torch.rand(1, generator=generator) < 0.5 else result
