"""What torch's generator draws after a seed, for a random crop, without asking torch each time.

Notes
-----
NumPy's legacy seeding and torch's ``manual_seed`` start the same Mersenne twister (torch with the
lower 32 bits). Of its numbers torch makes floats from 24 bits, and integers by a remainder. Each of
torch's functions takes microseconds and lets go of the GIL; here none is called, but in the rare
case that rounding might decide. The native core does the same once more (``crop.c``).
"""

from __future__ import annotations

import threading
from functools import cache
from math import exp, sqrt

import numpy as np
import torch

from fastdecode.torch.transforms.boxes import ATTEMPTS, logarithms, nearest_box
from fastdecode.types import Box

__all__ = ["as_float32", "box_and_flip", "constants", "generator_of", "same_as_torch"]

_BITS = (1 << 32) - 1
_FRACTION = (1 << 24) - 1
_STEP = 2.0**-24
_TOLERANCE = 3e-7
"""How much, relatively, a product of two float32 draws may differ from what is computed here."""

_LARGEST_SIDE = 1 << 24
_CHECKED = 0x1234_5678_9ABC_DEF0


class _Twister(threading.local):
    """Generators of each thread, seeded anew for each picture: torch's own, and NumPy's."""

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
        None where it takes torch to be sure: about once in 300 pictures.
    """
    if not same_as_torch() or width >= _LARGEST_SIDE or height >= _LARGEST_SIDE:
        return None
    start, draw = _twister.seed_and_draw
    start(seed & _BITS)
    smallest, scale_step, low, ratio_step, unsure = constants(scale, ratio)
    area = height * width
    for _ in range(ATTEMPTS):
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
