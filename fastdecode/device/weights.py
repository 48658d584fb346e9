"""The triangle filter along one axis: which pixels a result is made of, as a matrix.

Notes
-----
The rule of Pillow's `Image.resize(size, BILINEAR, box=box)` and of the native core: result i has
its centre at ``start + (i + 0.5) * step`` and reaches ``max(|step|, 1)`` pixels to each side. It
ends where the picture ends, and its weights add up to 1. A negative step mirrors.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

__all__ = ["NUMBERS", "Axis", "axis_of", "matrices", "rounded_up"]

NUMBERS = 4
"""How many numbers a device is told of an axis."""

_STEP = 8
"""Rows of matrices begin at multiples of so many elements, as tensor cores like them."""


class Axis(NamedTuple):
    """One axis of one picture.

    Attributes
    ----------
    first, end : int
        The pixels that results are made of.
    start : float
        The edge of the box at which results begin, in pixels from `first`.
    step : float
        From one result to the next, in pixels; negative where the picture is mirrored.
    taps : int
        How many pixels one result is made of, at most.
    sticks_out : bool
        Whether the box reaches beyond the picture.
    """

    first: int
    end: int
    start: float
    step: float
    taps: int
    sticks_out: bool

    @property
    def side(self) -> int:
        """How many pixels results are made of."""
        return self.end - self.first

    @property
    def numbers(self) -> tuple[float, float, float, float]:
        """Start, from pixel centre to pixel centre; step; support; and the last pixel's index."""
        return self.start - 0.5, self.step, max(abs(self.step), 1.0), float(self.side - 1)


def axis_of(low: float, high: float, side: int, results: int, *, flip: bool) -> Axis:
    """Describe how pixels become results.

    Parameters
    ----------
    low, high : float
        Edges of the box, in pixels.
    side : int
        Of the picture, in pixels.
    results : int
        How many there are to be.
    flip : bool
        Whether the first result is to be the last.
    """
    scale = (high - low) / results
    support = max(scale, 1.0)
    reach = support - scale / 2  # beyond the edges of the box
    first = min(max(math.floor(low - reach), 0), side - 1)
    end = max(min(math.ceil(high + reach), side), first + 1)
    start, step = (high, -scale) if flip else (low, scale)
    # A box may be so much larger than the picture that most of its pixels are not there.
    taps = min(math.ceil(2 * support) + 1, end - first)
    return Axis(first, end, start - first, step, taps, low < 0 or high > side)


def matrices(
    numbers: torch.Tensor, axes: list[Axis], results: int, side: int, dtype: torch.dtype
) -> torch.Tensor:
    """Make the weights of an axis for many pictures.

    Parameters
    ----------
    numbers : tensor of float64, (N, NUMBERS)
        The `numbers` of the axes, on the device where the weights are to be.
    axes : list of Axis
    results : int
        How many results each picture has.
    side : int
        How many pixels a padded picture has.
    dtype : torch.dtype
        Of the weights.

    Returns
    -------
    tensor, (N, R, side)
        Row i has the weights of result i; R is `results` or a little more, with rows of zeros.
        A result whose centre lies outside of its picture has nothing but zeros: it becomes black.

    Notes
    -----
    What is computed for each result are a few taps, in double precision: the distance to a centre
    far from the first pixel is a small difference of large numbers. They are then put in their
    places in a matrix of zeros.
    """
    device = numbers.device
    start, step, support, last = numbers[:, :, None].unbind(1)
    count = max(axis.taps for axis in axes)
    halves = torch.arange(results, dtype=torch.float64, device=device).add_(0.5)
    taps = torch.arange(count, dtype=torch.float64, device=device)
    centre = torch.addcmul(start, step, halves)
    first = (centre - support).add_(1.0).floor_().relu_().minimum(last)
    place = first[..., None] + taps
    weights = (place - centre[..., None]).abs_().div_(support[..., None]).neg_().add_(1.0).relu_()
    weights.masked_fill_(place > last[..., None], 0.0)
    weights /= weights.sum(-1, keepdim=True)
    if any(axis.sticks_out for axis in axes):
        outside = (centre < -0.5) | (centre > last + 0.5)
        weights.masked_fill_(outside[..., None], 0.0)
    # Taps beyond the last pixel, which weigh nothing, have places of their own behind it: so no
    # two go to the same place, and it does not matter which is written last.
    shape = (len(axes), rounded_up(results), rounded_up(side + count))
    matrix = torch.zeros(shape, dtype=dtype, device=device)
    matrix[:, :results].scatter_(2, place.long(), weights.to(dtype))
    return matrix[:, :, :side]


def rounded_up(count: int) -> int:
    """Return the next multiple of the length at which matrices are fast."""
    return -(-count // _STEP) * _STEP
