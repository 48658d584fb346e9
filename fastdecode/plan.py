"""Plan an image: from its header, and what is wanted, to what is decoded and how it is resized.

Whoever decodes or resizes asks here which reduction is enough, which window of the image is needed,
and whether the native core may do it: `decode`, `decode_batch`, transforms, devices and Ray.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from PIL import Image as PillowImage

from fastdecode import orientation
from fastdecode.arguments import check_sides, checked_region
from fastdecode.errors import BackendUnavailable, ImageTooLarge, UnknownBackend
from fastdecode.native import library, single
from fastdecode.preference import preferred
from fastdecode.selection import disabled
from fastdecode.types import REDUCES, Header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fastdecode.types import Box, Image, Reduce

__all__ = [
    "DEFAULT_MAX_PIXELS",
    "DecodePlan",
    "FloatBox",
    "Interpolation",
    "ResizePlan",
    "by_core",
    "by_pillow",
    "core_is_on",
    "core_may_decode",
    "core_takes",
    "plan_decode",
    "plan_options",
    "reduce_for",
    "reduce_for_box",
    "reduce_for_resize",
]

DEFAULT_MAX_PIXELS = 178_956_970
"""Pixels that a header may promise: Pillow's limit for its DecompressionBombError."""

Interpolation: TypeAlias = Literal["bilinear", "bicubic"]
FloatBox: TypeAlias = tuple[float, float, float, float]

_NATIVE = "native"
_HUFFMAN_SOFS = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive
_LARGEST_FIRST: tuple[Reduce, ...] = tuple(sorted(REDUCES, reverse=True))


class DecodePlan(NamedTuple):
    """What is decoded of an image.

    Attributes
    ----------
    reduce : {1, 2, 4, 8}
    window : (left, top, right, bottom) or None
        In pixels of the reduced image as it is stored; None is all of it.
    orientation : int
        The EXIF orientation to apply; 1 leaves the pixels as they are stored.
    """

    reduce: Reduce
    window: Box | None
    orientation: int

    def shape(self, header: Header) -> tuple[int, int]:
        """Return (height, width) of the result, as it is seen."""
        left, top, right, bottom = self.window or _reduced(
            (0, 0, header.width, header.height), self.reduce
        )
        width, height = orientation.seen_size(right - left, bottom - top, self.orientation)
        return height, width


class ResizePlan(NamedTuple):
    """What is resized of an image, and what is kept of the result.

    Attributes
    ----------
    box : (left, top, right, bottom)
        The part that is resized, in pixels of the image.
    canvas : (height, width)
        What it is resized to.
    top, left : int
        Where the result begins on the canvas; negative where it is padded.
    size : (height, width)
        Of the result.
    flip : bool
    interpolation : {"bilinear", "bicubic"}
    """

    box: Box
    canvas: tuple[int, int]
    top: int
    left: int
    size: tuple[int, int]
    flip: bool
    interpolation: Interpolation = "bilinear"

    @classmethod
    def of_core(cls, resize: single.Resize) -> ResizePlan:
        """Return the plan of which `for_core` makes this."""
        edges = (resize.left, resize.top, resize.right, resize.bottom)
        left, top, right, bottom = (int(edge * resize.reduce) for edge in edges)
        canvas = (resize.canvas_height, resize.canvas_width)
        size = (resize.height, resize.width)
        return cls((left, top, right, bottom), canvas, resize.y, resize.x, size, bool(resize.flip))

    def for_core(self, width: int, height: int, reduce: Reduce) -> single.Resize | None:
        """Return the plan for an image of that size, reduced so, in the core's terms.

        Returns
        -------
        Resize or None
            None where the plan is not for the core: it is bicubic, pads, reaches out of the image,
            or makes a giant of it.
        """
        left, top, right, bottom = self.box
        down, across = self.canvas
        rows, columns = self.size
        if (
            self.interpolation != "bilinear"
            or self.top < 0
            or self.left < 0
            or self.top + rows > down
            or self.left + columns > across
            or max(self.canvas) > single.LARGEST_SIDE
            or not (0 <= left < right <= width and 0 <= top < bottom <= height)
        ):
            return None
        # fmt: off
        return single.Resize(
            reduce, left / reduce, top / reduce, right / reduce, bottom / reduce,
            int(left // reduce), int(top // reduce), ceil(right / reduce), ceil(bottom / reduce),
            across, down, self.left, self.top, columns, rows, self.flip,
        )
        # fmt: on


def plan_decode(
    header: Header,
    reduce: Reduce = 1,
    *,
    min_size: int | tuple[int, int] | None = None,
    region: Box | None = None,
    orient: bool = False,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
) -> DecodePlan:
    """Plan what `decode` is asked for. Parameters as for that, checked as far as the types go.

    Raises
    ------
    ImageTooLarge
        The header promises more than `max_pixels`.
    ValueError
        The region is empty, or lies outside the image.
    """
    if max_pixels is not None and header.width * header.height > max_pixels:
        raise ImageTooLarge(
            f"the {header.format} header promises {header.width} x {header.height} = "
            f"{header.width * header.height:,} pixels, over max_pixels={max_pixels:,}; if the file "
            "can be trusted, pass a larger max_pixels, or None"
        )
    applied = header.orientation if orient else 1
    if min_size is not None:
        reduce = reduce_for(header, min_size, region=region, orient=orient)
    window = None
    if region is not None:
        width, height = orientation.seen_size(header.width, header.height, applied)
        seen = _reduced(checked_region(region, width, height), reduce)
        window = orientation.stored_box(seen, -(-width // reduce), -(-height // reduce), applied)
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
    """
    if not isinstance(header, Header):
        raise TypeError(f"header must be what probe() returns, not {type(header).__name__}")
    sides = check_sides(min_size)
    applied = header.orientation if orient else 1
    width, height = orientation.seen_size(header.width, header.height, applied)
    box = (0, 0, width, height) if region is None else checked_region(region, width, height)
    return reduce_for_box(box, sides)


def reduce_for_box(box: Box, sides: tuple[int, int]) -> Reduce:
    """Find the largest reduction in which at least (height, width) pixels show a box."""
    for reduce in _LARGEST_FIRST:
        left, top, right, bottom = _reduced(box, reduce)
        if bottom - top >= sides[0] and right - left >= sides[1]:
            return reduce
    return 1


def reduce_for_resize(plan: ResizePlan, headroom: float) -> Reduce:
    """Find the largest reduction that leaves the box itself `headroom` times the canvas."""
    left, top, right, bottom = plan.box
    height, width = plan.canvas[0] * headroom, plan.canvas[1] * headroom
    for reduce in _LARGEST_FIRST:
        if bottom - top >= height * reduce and right - left >= width * reduce:
            return reduce
    return 1


def _reduced(box: Box, reduce: int) -> Box:
    """Return the pixels of the reduced image that show any of the box."""
    left, top, right, bottom = box
    return left // reduce, top // reduce, -(-right // reduce), -(-bottom // reduce)


def core_is_on() -> bool:
    """Whether the core is there, and not left out by ``FASTDECODE_DISABLE``."""
    return library.lib is not None and _NATIVE not in disabled()


def core_may_decode(backend: str | None) -> bool:
    """Whether the core may decode for somebody who asked for this backend, or for none."""
    if library.lib is None:
        return False
    try:
        asked = preferred() if backend is None else backend
    except (BackendUnavailable, UnknownBackend):
        return False  # whoever decodes in another way says so
    return asked == _NATIVE if isinstance(asked, str) else _NATIVE not in disabled()


def core_takes(header: Any, max_pixels: int | None = DEFAULT_MAX_PIXELS) -> Any:
    """Whether the core decodes such a JPEG as every other backend would.

    Parameters
    ----------
    header : cffi's ``fd_header``, or Headers
        Of one file, or of many.
    max_pixels : int or None

    Returns
    -------
    bool, or ndarray of bool

    Notes
    -----
    Left to the others are four inks, arithmetic coding (which cannot run out of data, so that what
    is missing has to be searched for), and files without an end marker.
    """
    sof, components = header.sof, header.components
    taken = (
        ((sof == _HUFFMAN_SOFS[0]) | (sof == _HUFFMAN_SOFS[1]) | (sof == _HUFFMAN_SOFS[2]))
        & ((components == 1) | (components == 3))
        & (header.bits == 8)
        & (header.ended == 1)
    )
    if max_pixels is None:
        return taken
    # No side is over 65535, but their product need not fit 32 bits.
    return taken & (header.width * 1.0 * header.height <= max_pixels)


def by_core(image: Image, box: FloatBox, canvas: tuple[int, int], window: Box) -> Image | None:
    """Resize pixels in the way in which the core resizes JPEGs, so that a file's kind is no matter.

    Parameters
    ----------
    image : ndarray of uint8, (H, W, 3)
    box : (left, top, right, bottom)
        In pixels of the image; edges may be fractions.
    canvas : (height, width)
        What the box is resized to.
    window : (left, top, right, bottom)
        Which pixels of the canvas to return.

    Returns
    -------
    ndarray of uint8, (h, w, 3), or None
        None where the core cannot.
    """
    if max(*image.shape[:2], *canvas) > single.LARGEST_SIDE:
        return None
    if image.strides[1:] != (3, 1):  # turned by the EXIF orientation
        image = np.ascontiguousarray(image)
    left, top, right, bottom = window
    result = np.empty((bottom - top, right - left, 3), np.uint8)
    height, width = image.shape[:2]
    # fmt: off
    resize = single.Resize(
        1, *box, 0, 0, width, height, canvas[1], canvas[0], left, top, right - left, bottom - top,
        False,
    )
    # fmt: on
    pixels = single.stored(None, channels_first=False)
    return result if single.resize_pixels(image, resize, pixels, result.ctypes.data) else None


def by_pillow(
    image: Image,
    box: FloatBox,
    canvas: tuple[int, int],
    window: Box,
    interpolation: Interpolation = "bilinear",
) -> Image:
    """Resize by Pillow, and only what the window shows. Parameters are those of `by_core`."""
    across, down = (box[2] - box[0]) / canvas[1], (box[3] - box[1]) / canvas[0]
    left, top, right, bottom = window
    part = (
        max(0.0, box[0] + left * across),
        max(0.0, box[1] + top * down),
        min(float(image.shape[1]), box[0] + right * across),
        min(float(image.shape[0]), box[1] + bottom * down),
    )
    resized = PillowImage.fromarray(image).resize(
        (right - left, bottom - top), PillowImage.Resampling[interpolation.upper()], box=part
    )
    return np.array(resized)
