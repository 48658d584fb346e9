"""Checks of what the caller passes: every wrong argument ends here, before anything is decoded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

import numpy as np

from fastdecode import _pixels
from fastdecode.errors import ImageTooLarge, advised
from fastdecode.types import MODES, REDUCES, Box, Buffer, Header, Image, Mode, Reduce

__all__ = [
    "check_disjoint",
    "check_options",
    "check_out",
    "check_sides",
    "is_int",
    "reduce_for",
    "too_large",
    "window_of",
]


def reduce_for(
    header: Header,
    min_size: int | tuple[int, int],
    *,
    region: Box | None = None,
    orient: bool = False,
) -> Reduce:
    """Find the largest reduction whose result still has at least the wanted sides.

    It is what ``decode(data, min_size=…)`` uses: `Geometry.of_decode` maps boxes by it.

    Parameters
    ----------
    header : Header
        From `probe`.
    min_size : int or (height, width)
        In pixels; an int stands for both.
    region : (left, top, right, bottom), optional
        Measure the result of this part instead of the whole.
    orient : bool
        Height, width and region are those of the image as seen.

    Returns
    -------
    {1, 2, 4, 8}
        1 where even the full image is smaller.

    Raises
    ------
    TypeError, ValueError
        If `header` is none, `min_size` is not one or two positive integers, or `region` lies
        outside.
    """
    if not isinstance(header, Header):
        raise TypeError(f"header must be what probe() returns, not {type(header).__name__}")
    sides = check_sides(min_size)
    applied = header.orientation if orient else 1
    width, height = _pixels.seen_size(header.width, header.height, applied)
    box = (0, 0, width, height) if region is None else _checked_region(region, width, height)
    factors: tuple[Reduce, ...] = (8, 4, 2)
    for reduce in factors:
        left, top, right, bottom = _reduced(box, reduce)
        if bottom - top >= sides[0] and right - left >= sides[1]:
            return reduce
    return 1


def too_large(header: Header, max_pixels: int) -> ImageTooLarge:
    """Say what the header promises, what is allowed, and the way out."""
    error = ImageTooLarge(
        f"the {header.format} header promises {header.width} x {header.height} = "
        f"{header.width * header.height:,} pixels, over max_pixels={max_pixels:,}"
    )
    return advised(error, "; if the file can be trusted, pass a larger max_pixels, or None")


def check_options(
    mode: object = "RGB",
    reduce: object = 1,
    min_size: object = None,
    region: object = None,
    max_pixels: object = None,
    backend: object = None,
    **_others: object,
) -> None:
    """Refuse what is wrong whatever the data is; other options take anything, or need the header.

    There is a scaled IDCT for each of the factors that `reduce` may be, and for no other.
    """
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    if not is_int(reduce) or reduce not in REDUCES:
        raise ValueError(f"reduce must be 1, 2, 4 or 8, not {reduce!r}")
    if min_size is not None:
        check_sides(min_size)
        if reduce != 1:
            raise ValueError("give reduce or min_size, not both")
    if region is not None:
        _checked_edges(region)
    if max_pixels is not None and not (is_int(max_pixels) and cast("int", max_pixels) > 0):
        raise ValueError(f"max_pixels must be a positive integer or None, not {max_pixels!r}")
    if backend is not None and not isinstance(backend, str):
        raise TypeError(f"backend must be a name, not {backend!r}")


def check_disjoint(outs: Sequence[object]) -> None:
    """Refuse arrays of which one would be written over another; `check_out` checks each alone."""
    spans = sorted(
        (out.__array_interface__["data"][0], out.nbytes, index)
        for index, out in enumerate(
            np.asarray(one) if isinstance(one, np.ndarray) else one for one in outs
        )
        if isinstance(out, np.ndarray) and out.flags.c_contiguous and out.nbytes
    )
    for (start, size, one), (other_start, _, other) in pairwise(spans):
        if start + size > other_start:
            first, second = sorted((one, other))
            raise ValueError(f"out[{first}] and out[{second}] overlap in memory")


def is_int(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_sides(given: object, name: str = "min_size") -> tuple[int, int]:
    """Refuse what is not (height, width), or an int for both."""
    sides = given if isinstance(given, (tuple, list)) else (given, given)
    if len(sides) != 2 or not all(is_int(side) and side > 0 for side in sides):
        raise ValueError(
            f"{name} must be a positive integer or (height, width) of them, not {given!r}"
        )
    return int(sides[0]), int(sides[1])


def _checked_edges(region: object) -> Box:
    """Refuse what is not four integers, wherever they lie."""
    if (
        not isinstance(region, Sequence | np.ndarray)
        or len(region) != 4
        or not all(is_int(edge) for edge in region)
    ):
        raise ValueError(f"region must be four integers (left, top, right, bottom), not {region!r}")
    left, top, right, bottom = (int(edge) for edge in region)
    return left, top, right, bottom


def _checked_region(region: Sequence[int], width: int, height: int) -> Box:
    """Refuse a region that is empty or reaches outside."""
    left, top, right, bottom = _checked_edges(region)
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ValueError(
            f"region {tuple(region)} (left, top, right, bottom) is empty or outside the image, "
            f"which is {width} wide and {height} high"
        )
    return left, top, right, bottom


def _reduced(box: Box, reduce: int) -> Box:
    """Pixels of the reduced image that show any of the box."""
    left, top, right, bottom = box
    return left // reduce, top // reduce, -(-right // reduce), -(-bottom // reduce)


def window_of(region: Box, header: Header, reduce: int, applied: int) -> Box:
    """Turn a region of the full image as seen into pixels of the reduced stored one."""
    width, height = _pixels.seen_size(header.width, header.height, applied)
    box = _reduced(_checked_region(region, width, height), reduce)
    return _pixels.stored_box(box, -(-width // reduce), -(-height // reduce), applied)


def check_out(
    out: Image,
    data: Buffer,
    header: Header,
    mode: Mode,
    reduce: int,
    window: Box | None,
    applied: int,
) -> None:
    """Refuse an array that the result cannot go into, before anything is decoded."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, not {type(out).__name__}")
    out = np.asarray(out)  # what a subclass says of itself may be wrong: backends trust it
    if type(data) is not bytes and np.may_share_memory(out, np.frombuffer(data, np.uint8)):
        raise ValueError("out must not lie in the memory of the data that is decoded into it")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError("out must be C-contiguous and writable")
    if mode == "native":
        return  # only the file knows its shape and type: `deliver` checks
    left, top, right, bottom = window or _reduced((0, 0, header.width, header.height), reduce)
    width, height = _pixels.seen_size(right - left, bottom - top, applied)
    shape = (height, width) if mode == "L" else (height, width, 3 if mode == "RGB" else 4)
    if out.shape != shape or out.dtype != np.uint8:
        raise ValueError(
            f"out must have shape {shape} and dtype uint8, not {out.shape} and {out.dtype}"
        )
