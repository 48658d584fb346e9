"""Antialiased resizing of uint8 pixels, by whichever library does it best.

Notes
-----
The filter is a triangle whose half-width is the scale, but at least one pixel: what Pillow calls
BILINEAR, and torch and torchvision ``antialias=True``. Pillow, torch and the native
core agree to one level. ``"bicubic"`` is Pillow's BICUBIC, and torch's with ``antialias=True``; the
core does not have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode.native import single
from fastdecode.torch.transforms import direct

if TYPE_CHECKING:
    from fastdecode.types import Box, Image

__all__ = ["FloatBox", "Interpolation", "resample"]

Interpolation: TypeAlias = Literal["bilinear", "bicubic"]
FloatBox: TypeAlias = tuple[float, float, float, float]

_LARGEST_CANVAS = 16
"""How many times the window's size a canvas may have that is made as a whole."""


def resample(
    image: Image,
    box: FloatBox,
    canvas: tuple[int, int],
    window: Box,
    interpolation: Interpolation = "bilinear",
) -> torch.Tensor:
    """Resize a box of an image to a canvas, and return a window of that.

    Parameters
    ----------
    image : ndarray of uint8, (H, W, 3)
    box : (left, top, right, bottom)
        In pixels of the image; edges may be fractions.
    canvas : (height, width)
        What the box is resized to.
    window : (left, top, right, bottom)
        Which pixels of the canvas to return.
    interpolation : {"bilinear", "bicubic"}

    Returns
    -------
    tensor of uint8, (3, h, w)
        Of the window's size. It may share the image's memory if there is nothing to resize.
    """
    whole = box == (0, 0, image.shape[1], image.shape[0])
    sides = (*image.shape[:2], *canvas)
    as_it_is = whole and image.shape[:2] == canvas
    cored = interpolation == "bilinear" and direct.available()
    if cored and not as_it_is and max(sides) <= single.LARGEST_SIDE:
        resized = _by_core(image, box, canvas, window)
        if resized is not None:
            return resized
    left, top, right, bottom = window
    # Of a strip one pixel wide the canvas may be gigabytes, of which hardly any is shown.
    huge = canvas[0] * canvas[1] > _LARGEST_CANVAS * (right - left) * (bottom - top)
    if whole and not huge:
        return _by_torch(image, canvas, window, interpolation)
    return _by_pillow(image, box, canvas, window, interpolation)


def _by_core(
    image: Image, box: FloatBox, canvas: tuple[int, int], window: Box
) -> torch.Tensor | None:
    """Resize in the way in which JPEGs are, so that a file's kind changes nothing."""
    if image.strides[1:] != (3, 1):  # turned by the EXIF orientation
        image = np.ascontiguousarray(image)
    left, top, right, bottom = window
    readable = (0, 0, image.shape[1], image.shape[0])
    part = (left, top, right - left, bottom - top)
    result = np.empty((bottom - top, right - left, 3), np.uint8)
    made = single.resize(
        image,
        (1, *box, *readable, canvas[1], canvas[0], *part, 0),
        single.stored(None, channels_first=False),
        result.ctypes.data,
    )
    return torch.from_numpy(result).permute(2, 0, 1) if made else None


def _by_torch(
    image: Image, canvas: tuple[int, int], window: Box, interpolation: Interpolation
) -> torch.Tensor:
    """Resize all of it: torch's kernel is the fastest for bytes, but knows no box."""
    if min(image.strides) < 0:  # turned by the EXIF orientation, which torch cannot view
        image = np.ascontiguousarray(image)
    source = torch.from_numpy(image).permute(2, 0, 1)
    left, top, right, bottom = window
    if image.shape[:2] != canvas:
        source = torch.nn.functional.interpolate(
            source[None], size=canvas, mode=interpolation, antialias=True
        )[0]
    return source[:, top:bottom, left:right]


def _by_pillow(
    image: Image,
    box: FloatBox,
    canvas: tuple[int, int],
    window: Box,
    interpolation: Interpolation,
) -> torch.Tensor:
    """Resize a box with fractional edges, and only as much of it as the window shows."""
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
    return torch.from_numpy(np.array(resized)).permute(2, 0, 1)
