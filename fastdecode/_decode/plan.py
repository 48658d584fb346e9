"""Plan which part of an image is decoded, and at which reduction, from its header and the options.

`decode`, `decode_batch`, transforms, devices and Ray all use these plans. `resizing`
plans the resize that follows, and whether the native core may do everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fastdecode import _pixels
from fastdecode._arguments import (
    check_edges,
    check_header,
    check_kinds,
    check_sides,
    region_inside,
)
from fastdecode.errors import ImageTooLarge, with_advice
from fastdecode.types import REDUCES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastdecode.types import Box, Header, Reduce

DEFAULT_MAX_PIXELS = 178_956_970
"""How many pixels a header may promise: Pillow's limit for its DecompressionBombError."""

_LARGEST_FIRST: tuple[Reduce, ...] = tuple(sorted(REDUCES, reverse=True))


class DecodePlan(NamedTuple):
    """Which part of an image is decoded, and how."""

    reduce: Reduce
    window: Box | None  # in pixels of the reduced stored image; None is all of it
    orientation: int  # the EXIF orientation to apply; 1 keeps the stored pixels

    def shape(self, header: Header) -> tuple[int, int]:
        """Return (height, width) of the result, after the orientation is applied."""
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
    """Plan a call of `decode`; refuse an image that is too large, and a region outside it.

    All other checks of the arguments are `check_options`.
    """
    if max_pixels is not None and header.width * header.height > max_pixels:
        error = ImageTooLarge(
            f"the {header.format} header promises {header.width} x {header.height} = "
            f"{header.width * header.height:,} pixels, over max_pixels={max_pixels:,}"
        )
        raise with_advice(error, "; if the file can be trusted, pass a larger max_pixels, or None")
    applied = header.orientation if orient else 1
    if min_size is None and region is None:
        return DecodePlan(cast("Reduce", reduce), None, applied)
    width, height = _pixels.seen_size(header.width, header.height, applied)
    box = (0, 0, width, height) if region is None else region_inside(region, width, height)
    if min_size is not None:
        sides = min_size if isinstance(min_size, (tuple, list)) else (min_size, min_size)
        reduce = reduce_for_box(box, sides)
    window = None
    if region is not None:
        seen = _reduced(box, reduce)
        window = _pixels.stored_box(seen, -(-width // reduce), -(-height // reduce), applied)
    return DecodePlan(cast("Reduce", reduce), window, applied)


def plan_options(header: Header, options: Mapping[str, Any]) -> DecodePlan:
    """Plan a call of `decode` with these keyword arguments, all of which are optional."""
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
    """Return the largest reduction whose result still has at least the given sides.

    ``decode(data, min_size=…)`` uses this reduction. Pass it to `Geometry.of_decode` to map boxes.

    Parameters
    ----------
    header : Header
        From `probe`.
    min_size : int or (height, width)
        In pixels; an int stands for both sides.
    region : (left, top, right, bottom), optional
        Apply `min_size` to this part of the image instead of all of it.
    orient : bool
        Whether height, width and region refer to the upright image.

    Returns
    -------
    {1, 2, 4, 8}
        1 if even the full image is smaller.

    Raises
    ------
    TypeError, ValueError
        `header` is not a `Header`, `min_size` is not one or two positive integers, or `region` lies
        outside the image.

    Examples
    --------
    >>> from fastdecode import probe, reduce_for
    >>> reduce_for(probe(data), min_size=224)  # 640 x 480 pixels become 320 x 240
    2
    """
    check_header(header)
    check_kinds({"orient": orient})
    sides = check_sides(min_size)
    if region is not None:
        check_edges(region)
    return plan_decode(header, min_size=sides, region=region, orient=orient, max_pixels=None).reduce


def reduce_for_box(box: Box, sides: tuple[int, int]) -> Reduce:
    """Return the largest reduction in which a box has at least (height, width) pixels."""
    for reduce in _LARGEST_FIRST:
        left, top, right, bottom = _reduced(box, reduce)
        if bottom - top >= sides[0] and right - left >= sides[1]:
            return reduce
    return 1


def reduce_for_resize(box: Box, canvas: tuple[int, int], headroom: float) -> Reduce:
    """Return the largest reduction that leaves a box at least `headroom` times its canvas."""
    left, top, right, bottom = box
    height, width = canvas[0] * headroom, canvas[1] * headroom
    for reduce in _LARGEST_FIRST:
        if bottom - top >= height * reduce and right - left >= width * reduce:
            return reduce
    return 1


def _reduced(box: Box, reduce: int) -> Box:
    """Return the box of reduced pixels that cover any part of `box`."""
    left, top, right, bottom = box
    return left // reduce, top // reduce, -(-right // reduce), -(-bottom // reduce)
