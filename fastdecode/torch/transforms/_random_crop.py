"""torchvision's geometry: which box is drawn, how sides are rounded, where a crop lies.

Notes
-----
The rules are those of torchvision 0.29: `RandomResizedCrop.get_params`, the size that `Resize`
computes from one side, and the margins of `CenterCrop`.

With a seed, what torch's generator would draw is computed without asking torch each time. NumPy's
legacy seeding and torch's ``manual_seed`` start the same Mersenne twister (torch with the lower 32
bits). Of its numbers torch makes floats from 24 bits, and integers by a remainder. Each of torch's
functions takes microseconds and releases the GIL; here none is called, but in the rare case that
rounding might decide. The native core does the same once more (``crop.c``).
"""

from __future__ import annotations

import math
import random
import threading
from functools import cache
from math import exp, sqrt

import numpy as np
import torch

from fastdecode.types import Box

__all__ = [
    "as_float32",
    "box_and_flip",
    "center_crop",
    "constants",
    "draw_box",
    "draw_box_by_python",
    "draw_flip",
    "generator_of",
    "resized",
    "same_as_torch",
]

_ATTEMPTS = 10
"""How often a box is drawn before the central one is taken."""

_BITS = (1 << 32) - 1
_FRACTION = (1 << 24) - 1
_STEP = 2.0**-24
_TOLERANCE = 3e-7
"""How much, relatively, a product of two float32 draws may differ from what is computed here."""

_LARGEST_SIDE = 1 << 24
_CHECKED = 0x1234_5678_9ABC_DEF0


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
        Of the image, in pixels.
    scale : (low, high)
        Of the box's area, as a share of the image's.
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

    for _ in range(_ATTEMPTS):
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
    for _ in range(_ATTEMPTS):
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


class _Twister(threading.local):
    """Generators of each thread, seeded anew for each image: torch's own, and NumPy's."""

    def __init__(self) -> None:
        self.generator = torch.Generator("cpu")
        numbers = np.random.MT19937(0)
        self.seed_and_draw = np.random.RandomState(numbers).seed, numbers.random_raw


_twister = _Twister()


def generator_of(seed: int) -> torch.Generator:
    """Return a CPU generator of that seed: this thread's, until its next call."""
    return _twister.generator.manual_seed(seed)


def box_and_flip(
    width: int,
    height: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    flip: float,
    seed: int,
) -> tuple[Box, bool] | None:
    """Draw what `draw_box` and then `draw_flip` draw with a CPU generator of that seed.

    Parameters
    ----------
    width, height, scale, ratio
        As for `draw_box`.
    flip : float
        Probability; 0 draws nothing.
    seed : int
        Of 64 bits, not negative.

    Returns
    -------
    tuple of box and bool, or None
        None where it takes torch to be sure: about once in 300 images.
    """
    if not same_as_torch() or width >= _LARGEST_SIDE or height >= _LARGEST_SIDE:
        return None
    start, draw = _twister.seed_and_draw
    start(seed & _BITS)
    smallest, scale_step, low, ratio_step, unsure = constants(scale, ratio)
    area = height * width
    for _ in range(_ATTEMPTS):
        target = area * (smallest + scale_step * (draw() & _FRACTION))
        aspect = exp(low + ratio_step * (draw() & _FRACTION))
        exact_across, exact_down = sqrt(target * aspect), sqrt(target / aspect)
        across, down = int(exact_across + 0.5), int(exact_down + 0.5)
        if (
            abs(exact_across - across) >= 0.5 - unsure * exact_across
            or abs(exact_down - down) >= 0.5 - unsure * exact_down
        ):
            return None
        if 0 < across <= width and 0 < down <= height:
            top = draw() % (height - down + 1)
            left = draw() % (width - across + 1)
            box = left, top, left + across, top + down
            break
    else:
        box = nearest_box(width, height, ratio)
    return box, bool(flip) and (draw() & _FRACTION) * _STEP < as_float32(flip)


@cache
def constants(
    scale: tuple[float, float], ratio: tuple[float, float]
) -> tuple[float, float, float, float, float]:
    """Return what boxes are drawn with.

    Parameters
    ----------
    scale, ratio : (low, high)

    Returns
    -------
    tuple of 5 floats
        Where the scale begins and the step of a draw, the same of the logarithm of the ratio, and
        how much of a side, relatively, is unsure.
    """
    low, high = logarithms(ratio)
    unsure = _TOLERANCE * (1 + abs(low) + abs(high))
    return scale[0], (scale[1] - scale[0]) * _STEP, low, (high - low) * _STEP, unsure


@cache
def as_float32(probability: float) -> float:
    """Return a probability as torch compares with it."""
    return float(np.float32(probability))


@cache
def same_as_torch() -> bool:
    """Whether this torch and this NumPy draw alike: in each process it is looked at once."""
    generator = torch.Generator("cpu").manual_seed(_CHECKED)
    number = torch.empty(1, dtype=torch.float32, device="cpu")
    theirs = [
        number.uniform_(generator=generator).item(),
        torch.randint(0, 999_983, (1,), generator=generator, device="cpu").item(),
        number.uniform_(generator=generator).item(),
    ]
    start, draw = _twister.seed_and_draw
    start(_CHECKED & _BITS)
    first, second, third = draw(), draw(), draw()
    return theirs == [(first & _FRACTION) * _STEP, second % 999_983, (third & _FRACTION) * _STEP]
