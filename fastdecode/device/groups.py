"""Which pictures lie side by side in one padded buffer: so that it is not mostly padding."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

__all__ = ["grouped", "in_parts"]

_NOTHING = 1 << 22
"""So many pixels take a GPU no longer than it takes to begin another group."""


def grouped(sides: Sequence[tuple[int, int]]) -> list[list[int]]:
    """Put pictures of like size together.

    Parameters
    ----------
    sides : sequence of (height, width)
        Of each picture, in pixels.

    Returns
    -------
    list of lists of int
        Each picture's index once, ascending within a group. If all pictures of a group are padded
        to its largest height and its largest width, that at most doubles the pixels, unless they
        are few.
    """
    return list(_split(sides, list(range(len(sides))))) if sides else []


def _split(sides: Sequence[tuple[int, int]], group: list[int]) -> Iterator[list[int]]:
    heights, widths = zip(*(sides[index] for index in group), strict=True)
    padded = len(group) * max(heights) * max(widths)
    own = sum(height * width for height, width in zip(heights, widths, strict=True))
    if padded <= max(2 * own, _NOTHING):
        yield group
        return
    # Along the axis on which they differ more, at the geometric mean of its extremes.
    tall = max(heights) * min(widths) > max(widths) * min(heights)
    along = heights if tall else widths
    limit = math.sqrt(max(along) * min(along))
    for small in (True, False):
        part = zip(group, along, strict=True)
        yield from _split(sides, [index for index, side in part if (side <= limit) == small])


def in_parts(group: Sequence[int], most: int) -> Iterator[Sequence[int]]:
    """Cut a group into parts of at most so many, which are about equal; at least one each."""
    count = math.ceil(len(group) / max(1, most))
    size = math.ceil(len(group) / count)
    for begin in range(0, len(group), size):
        yield group[begin : begin + size]
