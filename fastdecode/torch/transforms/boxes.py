"""torchvision's geometry: which box is drawn, how sides are rounded, where a crop lies.

Notes
-----
The rules are those of torchvision 0.29: `RandomResizedCrop.get_params`, the size that `Resize`
computes from one side, and the margins of `CenterCrop`.
"""

from __future__ import annotations

import math
import random
import threading
from functools import cache

import numpy as np
import torch

from fastdecode.types import Box

__all__ = [
    "ATTEMPTS",
    "center_crop",
    "draw_box",
    "draw_box_by_python",
    "draw_flip",
    "logarithms",
    "nearest_box",
    "resized",
]

ATTEMPTS = 10
"""How often a box is drawn before the central one is taken."""


def draw_box(
    width: int,
    height: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    generator: torch.Generator | None,
) -> Box:
    """Draw a box of random area and aspect ratio.

    Parameters
    ----------
    width, height : int
        Of the picture, in pixels.
    scale : (low, high)
        Of the box's area, as a share of the picture's.
    ratio : (low, high)
        Of the box's width to its height.
    generator : torch.Generator or None
        None draws from torch's global one.

    Returns
    -------
    (left, top, right, bottom)
        In pixels.

    Notes
    -----
    The same draws in the same order as torchvision, computed in the same precision: area, then
    aspect ratio (uniform in its logarithm, as float32), at most ten times, then top and left. If
    no box fits, the central one whose ratio is nearest, of at least one pixel (torchvision's may
    have none, and fail).
    """
    area = height * width
    low, high = logarithms(ratio)
    where = _device(generator)
    number = _number(where)

    def draw_below(limit: int) -> int:
        return int(torch.randint(0, limit, (1,), generator=generator, device=where).item())

    for _ in range(ATTEMPTS):
        target = area * number.uniform_(scale[0], scale[1], generator=generator).item()
        aspect = torch.exp(number.uniform_(low, high, generator=generator)).item()
        across = round(math.sqrt(target * aspect))
        down = round(math.sqrt(target / aspect))
        if 0 < across <= width and 0 < down <= height:
            top = draw_below(height - down + 1)
            left = draw_below(width - across + 1)
            return left, top, left + across, top + down
    return nearest_box(width, height, ratio)


def draw_box_by_python(
    width: int, height: int, scale: tuple[float, float], ratio: tuple[float, float]
) -> Box:
    """Draw a box from Python's ``random``, as timm's RandomResizedCropAndInterpolation.

    Parameters and result are those of `draw_box`. Where timm's box would have no pixel, and fail,
    this one has one.
    """
    area = width * height
    low, high = math.log(ratio[0]), math.log(ratio[1])
    for _ in range(ATTEMPTS):
        target = random.uniform(*scale) * area  # noqa: S311 - timm's draws, as those that follow
        aspect = math.exp(random.uniform(low, high))  # noqa: S311
        across = round(math.sqrt(target * aspect))
        down = round(math.sqrt(target / aspect))
        if across <= width and down <= height:
            top = min(random.randint(0, height - down), height - 1)  # noqa: S311
            left = min(random.randint(0, width - across), width - 1)  # noqa: S311
            return left, top, left + max(1, across), top + max(1, down)
    return nearest_box(width, height, ratio)


def nearest_box(width: int, height: int, ratio: tuple[float, float]) -> Box:
    """Return the central box whose ratio is nearest to those that are allowed."""
    across, down = width, height
    if width / height < min(ratio):
        down = max(1, round(width / min(ratio)))
    elif width / height > max(ratio):
        across = max(1, round(height * max(ratio)))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def draw_flip(probability: float, generator: torch.Generator | None) -> bool:
    """Draw whether to flip, as torchvision's RandomHorizontalFlip; a probability of 0 draws not."""
    if not probability:
        return False
    drawn = _number(_device(generator)).uniform_(generator=generator)
    return drawn.item() < float(np.float32(probability))  # tensors compare in their own precision


def _device(generator: torch.Generator | None) -> torch.device:
    """Where to draw, whatever torch's default device is set to."""
    return torch.device("cpu") if generator is None else generator.device


class _Numbers(threading.local):
    """One number on each device, for a thread to draw into: a new tensor for each takes time."""

    def __init__(self) -> None:
        self.on: dict[torch.device, torch.Tensor] = {}


_numbers = _Numbers()


def _number(where: torch.device) -> torch.Tensor:
    number = _numbers.on.get(where)
    if number is None:
        with torch.inference_mode(mode=False):  # or it could not be drawn into outside of such
            number = _numbers.on[where] = torch.empty(1, dtype=torch.float32, device=where)
    return number


@cache
def logarithms(ratio: tuple[float, float]) -> tuple[float, float]:
    """Return the logarithms of both, as float32 has them."""
    low, high = torch.log(torch.tensor(ratio, dtype=torch.float32, device="cpu")).tolist()
    return low, high


def resized(
    width: int,
    height: int,
    size: int | tuple[int, int] | None,
    max_size: int | None = None,
) -> tuple[int, int]:
    """Compute the (height, width) that torchvision's Resize makes of an image.

    Parameters
    ----------
    width, height : int
    size : int, (height, width) or None
        An int is the shorter side; the longer one follows, cut to a whole pixel.
    max_size : int, optional
        The most that the longer side may have, and what it has where the size is None: the shorter
        one then follows, of at least one pixel (torchvision's may have none, and fail).
    """
    if isinstance(size, tuple):
        return size
    short, long = sorted((width, height))
    if size is not None:
        short, long = size, int(size * long / short)
    if max_size is not None and (size is None or long > max_size):
        short, long = max(1, int(max_size * short / long)), max_size
    return (long, short) if width <= height else (short, long)


def center_crop(canvas: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """Compute (top, left) of the central crop; negative where it must be padded.

    Parameters
    ----------
    canvas : (height, width)
    size : (height, width)
        Of the crop.

    Notes
    -----
    An odd margin is rounded to the even number, an odd padding is larger at the far side.
    """
    return _margin(canvas[0], size[0]), _margin(canvas[1], size[1])


def _margin(whole: int, part: int) -> int:
    return round((whole - part) / 2.0) if part <= whole else -((part - whole) // 2)
