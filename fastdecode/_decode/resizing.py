"""Resize a part of an image, and decide what the core may decode."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, inf
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from PIL import Image as PillowImage

from fastdecode._backends.selection import disabled, preferred
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.native import _library

if TYPE_CHECKING:
    from fastdecode.types import Box, Image

FloatBox: TypeAlias = tuple[float, float, float, float]

_IN_PILLOW = (
    *("BILINEAR", "BILINEAR", "BICUBIC", "LANCZOS", "HAMMING", "BOX"),
    *("BILINEAR", "BICUBIC", "LANCZOS"),
)
"""What each ``fd_resize_filter`` is there."""
_NATIVE = "native"
THUMBNAIL_GAP = 2.0
"""How many times the final size is left to the last filter, as in Pillow's `thumbnail`."""
HUFFMAN_SOFS = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive
PNG_SOF = 0  # FD_PNG: it has no such marker


class ResizePlan(NamedTuple):
    """Resize a box of an image to a canvas, and keep a window of the canvas as the result."""

    box: Box  # the part to resize, in pixels of the image
    canvas: tuple[int, int]  # (height, width) that the box is resized to
    top: int  # where the result begins on the canvas; negative if it is padded
    left: int
    size: tuple[int, int]  # (height, width) of the result
    flip: bool
    filter: int = 0  # an ``fd_resize_filter``

    @classmethod
    def from_core(cls, resize: _library.CoreResize) -> ResizePlan:
        """Return the plan for which `for_core`, without a reduction, returns this."""
        left, top, right, bottom = map(int, resize[1:5])
        canvas, size = (resize.canvas_height, resize.canvas_width), (resize.height, resize.width)
        placed = (left, top, right, bottom), canvas, resize.y, resize.x
        return cls(*placed, size, bool(resize.flip), resize.filter)

    def for_core(self, width: int, height: int, reduce: int) -> _library.CoreResize | None:
        """Return the plan as the core's `Resize`, for an image of that full size and `reduce`.

        Return None if the core cannot do it: outside the image, or too large.
        """
        left, top, right, bottom = self.box
        down, across = self.canvas
        rows, columns = self.size
        inside = 0 <= left < right <= width and 0 <= top < bottom <= height
        if max(self.canvas) > _library.LARGEST_SIDE or not inside:
            return None
        # fmt: off
        return _library.CoreResize(
            reduce, left / reduce, top / reduce, right / reduce, bottom / reduce,
            int(left // reduce), int(top // reduce), ceil(right / reduce), ceil(bottom / reduce),
            across, down, self.left, self.top, columns, rows, self.flip, self.filter,
        )
        # fmt: on


def core_may_decode(backend: str | None) -> bool:
    """Return whether the core may decode for a caller who passed this `backend`."""
    try:
        asked = preferred() if backend is None else backend
    except (BackendUnavailable, UnknownBackend):
        return False  # the decoding that follows raises this error
    return asked == _NATIVE if isinstance(asked, str) else _NATIVE not in disabled()


def core_can_decode(header: Any, max_pixels: int | None = DEFAULT_MAX_PIXELS) -> Any:
    """Return whether the core decodes an image, or each of an array of them, as the others would.

    Other backends decode JPEGs of CMYK, or without an end marker, and unusual PNGs.
    """
    sof, components = header.sof, header.components
    jpeg = (
        ((sof == HUFFMAN_SOFS[0]) | (sof == HUFFMAN_SOFS[1]) | (sof == HUFFMAN_SOFS[2]))
        & ((components == 1) | (components == 3))
        & (header.bits == 8)
    )
    taken = (jpeg | (sof == PNG_SOF)) & (header.ended == 1)
    if max_pixels is None:
        return taken
    # Sides are at most 65535, but their product may exceed 32 bits.
    return taken & (header.width * 1.0 * header.height <= max_pixels)


def resize(image: Image, size: tuple[int, int], box: FloatBox | None = None) -> Image:
    """Resize uint8 (H, W[, C]), or a box of it, to (height, width): antialiased, bilinear.

    The core resizes RGB, Pillow all else. An image of that size is returned unchanged.
    """
    whole = (0, 0, image.shape[1], image.shape[0])
    canvas = (0, 0, size[1], size[0])
    box = whole if box is None else box
    if box == whole == canvas:
        return image
    made = None
    if image.ndim == 3 and image.shape[2] == 3:
        made = resize_in_core(image, box, size, canvas)
    return resize_with_pillow(image, box, size, canvas) if made is None else made


def resize_in_core(
    image: Image,
    box: FloatBox,
    canvas: tuple[int, int],
    window: Box,
    filter: int = 0,
) -> Image | None:
    """Resize a box of (H, W, 3) pixels to a canvas as the core resizes JPEGs; None if it cannot.

    The edges of the box may be fractions. Only the window of the canvas is computed and returned.
    """
    if max(*image.shape[:2], *canvas) > _library.LARGEST_SIDE:
        return None
    if image.strides[1:] != (3, 1):  # turned by the EXIF orientation
        image = np.ascontiguousarray(image)
    left, top, right, bottom = window
    result = np.empty((bottom - top, right - left, 3), np.uint8)
    height, width = image.shape[:2]
    # fmt: off
    resize = _library.CoreResize(
        1, *box, 0, 0, width, height, canvas[1], canvas[0], left, top, right - left, bottom - top,
        False, filter,
    )
    # fmt: on
    pixels = _library.stored(None, channels_first=False)
    return result if _library.resize_pixels(image, resize, pixels, result.ctypes.data) else None


def thumbnail_size(width: int, height: int, max_side: int) -> tuple[int, int]:
    """Return the (width, height) to which Pillow's ``thumbnail((max_side, max_side))`` shrinks."""
    if max(width, height) <= max_side:
        return width, height
    aspect = width / height
    if aspect <= 1:
        return _nearest(max_side * aspect, lambda side: abs(aspect - side / max_side)), max_side
    return max_side, _nearest(
        max_side / aspect, lambda side: abs(aspect - max_side / (side or inf))
    )


def _nearest(exact: float, distance: Callable[[int], float]) -> int:
    return max(1, min(floor(exact), ceil(exact), key=distance))


def shrink(image: Image, size: tuple[int, int], box: FloatBox) -> Image:
    """Resize a box of uint8 pixels to (width, height) with the filters of Pillow's `thumbnail`."""
    if image.shape[1::-1] == size:
        return image
    pixels = PillowImage.fromarray(image)
    bicubic = PillowImage.Resampling.BICUBIC
    return np.array(pixels.resize(size, bicubic, box=box, reducing_gap=THUMBNAIL_GAP))


def resize_unchanged(width: int, height: int) -> _library.CoreResize:
    """Return the core's resize of an image of this size to itself."""
    sides = (width, height)
    return _library.CoreResize(1, 0, 0, *sides, 0, 0, *sides, *sides, 0, 0, *sides, flip=False)


def resize_with_pillow(
    image: Image,
    box: FloatBox,
    canvas: tuple[int, int],
    window: Box,
    filter: int = 0,
) -> Image:
    """Resize with Pillow, only the window of the canvas; parameters as in `resize_in_core`."""
    across, down = (box[2] - box[0]) / canvas[1], (box[3] - box[1]) / canvas[0]
    left, top, right, bottom = window
    part = (
        max(0.0, box[0] + left * across),
        max(0.0, box[1] + top * down),
        min(float(image.shape[1]), box[0] + right * across),
        min(float(image.shape[0]), box[1] + bottom * down),
    )
    resized = PillowImage.fromarray(image).resize(
        (right - left, bottom - top), PillowImage.Resampling[_IN_PILLOW[filter]], box=part
    )
    return np.array(resized)
