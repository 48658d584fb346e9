"""Plan what is decoded of an image: from its header, and what is wanted, to reduction and window.

`decode`, `decode_batch`, transforms, devices and Ray all ask here. What is resized then, and
whether the native core may do it all, is in `fastdecode.resizing`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from fastdecode import _pixels
from fastdecode._arguments import check_header, check_sides, checked_region
from fastdecode.errors import ImageTooLarge, advised
from fastdecode.types import REDUCES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastdecode.types import Box, Header, Reduce

__all__ = [
    "DEFAULT_MAX_PIXELS",
    "DecodePlan",
    "plan_decode",
    "plan_options",
    "reduce_for",
    "reduce_for_box",
    "reduce_for_resize",
]

DEFAULT_MAX_PIXELS = 178_956_970
"""Pixels that a header may promise: Pillow's limit for its DecompressionBombError."""

_LARGEST_FIRST: tuple[Reduce, ...] = tuple(sorted(REDUCES, reverse=True))


class DecodePlan(NamedTuple):
    """What is decoded of an image."""

    reduce: Reduce
    window: Box | None  # of the reduced image as it is stored; None is all of it
    orientation: int  # the EXIF orientation to apply; 1 leaves the pixels as they are stored

    def shape(self, header: Header) -> tuple[int, int]:
        """Return (height, width) of the result, as it is seen."""
        left, top, right, bottom = self.window or _reduced(
            (0, 0, header.width, header.height), self.reduce
        )
        width, height = _pixels.seen_size(right - left, bottom - top, self.orientation)
        return height, width


def plan_decode(
    header: Header,
    reduce: int = 1,
    *,
    min_size: int | tuple[int, int] | None = None,
    region: Box | None = None,
    orient: bool = False,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
) -> DecodePlan:
    """Plan what `decode` is asked for; refuse too large an image, and a region outside it."""
    if max_pixels is not None and header.width * header.height > max_pixels:
        error = ImageTooLarge(
            f"the {header.format} header promises {header.width} x {header.height} = "
            f"{header.width * header.height:,} pixels, over max_pixels={max_pixels:,}"
        )
        raise advised(error, "; if the file can be trusted, pass a larger max_pixels, or None")
    applied = header.orientation if orient else 1
    if min_size is not None:
        reduce = reduce_for(header, min_size, region=region, orient=orient)
    window = None
    if region is not None:
        width, height = _pixels.seen_size(header.width, header.height, applied)
        seen = _reduced(checked_region(region, width, height), reduce)
        window = _pixels.stored_box(seen, -(-width // reduce), -(-height // reduce), applied)
    return tuple.__new__(DecodePlan, (reduce, window, applied))  # `decode` has no time to lose


def plan_options(header: Header, options: Mapping[str, Any]) -> DecodePlan:
    """Plan what `decode` is asked for by these keyword arguments, of which any may be there."""
    return plan_decode(
        header,
        options.get("reduce", 1),
        min_size=options.get("min_size"),
        region=options.get("region"),
        orient=options.get("orient", False),
        max_pixels=options.get("max_pixels", DEFAULT_MAX_PIXELS),
    )


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

    Examples
    --------
    >>> from fastdecode import probe, reduce_for
    >>> reduce_for(probe(data), min_size=224)  # 640 x 480 pixels become 320 x 240
    2
    """
    check_header(header)
    sides = check_sides(min_size)
    applied = header.orientation if orient else 1
    width, height = _pixels.seen_size(header.width, header.height, applied)
    box = (0, 0, width, height) if region is None else checked_region(region, width, height)
    return reduce_for_box(box, sides)


def reduce_for_box(box: Box, sides: tuple[int, int]) -> Reduce:
    """Find the largest reduction in which at least (height, width) pixels show a box."""
    for reduce in _LARGEST_FIRST:
        left, top, right, bottom = _reduced(box, reduce)
        if bottom - top >= sides[0] and right - left >= sides[1]:
            return reduce
    return 1


def reduce_for_resize(box: Box, canvas: tuple[int, int], headroom: float) -> Reduce:
    """Find the largest reduction that leaves a box `headroom` times the canvas it is resized to."""
    left, top, right, bottom = box
    height, width = canvas[0] * headroom, canvas[1] * headroom
    for reduce in _LARGEST_FIRST:
        if bottom - top >= height * reduce and right - left >= width * reduce:
            return reduce
    return 1


def _reduced(box: Box, reduce: int) -> Box:
    """Return the pixels of the reduced image that show any of the box."""
    left, top, right, bottom = box
    return left // reduce, top // reduce, -(-right // reduce), -(-bottom // reduce)
