"""Resize a part of an image, by the native core or by Pillow, and tell what the core may do."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from PIL import Image as PillowImage

from fastdecode._selection import disabled, preferred
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.native import _library
from fastdecode.plan import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from fastdecode.types import Box, Image

__all__ = [
    "FloatBox",
    "Interpolation",
    "ResizePlan",
    "by_core",
    "by_pillow",
    "core_is_on",
    "core_may_decode",
    "core_takes",
    "resized",
]

Interpolation: TypeAlias = Literal["bilinear", "bicubic"]
FloatBox: TypeAlias = tuple[float, float, float, float]

_NATIVE = "native"
_HUFFMAN_SOFS = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive


class ResizePlan(NamedTuple):
    """What is resized of an image, and what is kept of the result."""

    box: Box  # the part that is resized, in pixels of the image
    canvas: tuple[int, int]  # what it is resized to: (height, width)
    top: int  # where the result begins on the canvas; negative where it is padded
    left: int
    size: tuple[int, int]  # of the result: (height, width)
    flip: bool
    interpolation: Interpolation = "bilinear"

    @classmethod
    def of_core(cls, resize: _library.Resize) -> ResizePlan:
        """Return the plan of which `for_core` makes this."""
        edges = (resize.left, resize.top, resize.right, resize.bottom)
        left, top, right, bottom = (int(edge * resize.reduce) for edge in edges)
        canvas = (resize.canvas_height, resize.canvas_width)
        size = (resize.height, resize.width)
        return cls((left, top, right, bottom), canvas, resize.y, resize.x, size, bool(resize.flip))

    def for_core(self, width: int, height: int, reduce: int) -> _library.Resize | None:
        """Return the plan for an image of that size, reduced so, in the core's terms.

        None where it is not for the core: bicubic, padded, out of the image, or a giant.
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
            or max(self.canvas) > _library.LARGEST_SIDE
            or not (0 <= left < right <= width and 0 <= top < bottom <= height)
        ):
            return None
        # fmt: off
        return _library.Resize(
            reduce, left / reduce, top / reduce, right / reduce, bottom / reduce,
            int(left // reduce), int(top // reduce), ceil(right / reduce), ceil(bottom / reduce),
            across, down, self.left, self.top, columns, rows, self.flip,
        )
        # fmt: on


def core_is_on() -> bool:
    """Whether the core is there, and not left out by ``FASTDECODE_DISABLE``."""
    return _library.lib is not None and _NATIVE not in disabled()


def core_may_decode(backend: str | None) -> bool:
    """Whether the core may decode for somebody who asked for this backend, or for none."""
    if _library.lib is None:
        return False
    try:
        asked = preferred() if backend is None else backend
    except (BackendUnavailable, UnknownBackend):
        return False  # whoever decodes in another way says so
    return asked == _NATIVE if isinstance(asked, str) else _NATIVE not in disabled()


def core_takes(header: Any, max_pixels: int | None = DEFAULT_MAX_PIXELS) -> Any:
    """Whether the core decodes such a JPEG, or each of many, as every other backend would.

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


def resized(image: Image, size: tuple[int, int], box: FloatBox | None = None) -> Image:
    """Resize uint8 (H, W[, C]), or a box of it, to (height, width): antialiased, bilinear.

    By the core where it is on, else by Pillow. What has that size already is returned as it is.
    """
    whole = (0, 0, image.shape[1], image.shape[0])
    canvas = (0, 0, size[1], size[0])
    box = whole if box is None else box
    if box == whole == canvas:
        return image
    made = None
    if core_is_on() and image.ndim == 3 and image.shape[2] == 3:
        made = by_core(image, box, size, canvas)
    return by_pillow(image, box, size, canvas) if made is None else made


def by_core(image: Image, box: FloatBox, canvas: tuple[int, int], window: Box) -> Image | None:
    """Resize a box of (H, W, 3) pixels to a canvas as the core resizes JPEGs; None if it cannot.

    Edges of the box may be fractions. Only what the window shows of the canvas is returned.
    """
    if max(*image.shape[:2], *canvas) > _library.LARGEST_SIDE:
        return None
    if image.strides[1:] != (3, 1):  # turned by the EXIF orientation
        image = np.ascontiguousarray(image)
    left, top, right, bottom = window
    result = np.empty((bottom - top, right - left, 3), np.uint8)
    height, width = image.shape[:2]
    # fmt: off
    resize = _library.Resize(
        1, *box, 0, 0, width, height, canvas[1], canvas[0], left, top, right - left, bottom - top,
        False,
    )
    # fmt: on
    pixels = _library.stored(None, channels_first=False)
    return result if _library.resize_pixels(image, resize, pixels, result.ctypes.data) else None


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
