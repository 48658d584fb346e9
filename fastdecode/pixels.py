"""From what a backend hands out to what the caller asked for: colours, size, window, ownership."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image as PillowImage

from fastdecode.errors import DecodeError

if TYPE_CHECKING:
    from fastdecode.types import Box, Header, Image, Mode, PixelLayout, Reduce

__all__ = ["convert", "crop", "deliver"]


def convert(image: Image, layout: PixelLayout, mode: Mode, header: Header) -> Image:
    """Convert a backend's pixel layout into a mode.

    Parameters
    ----------
    image : ndarray, (H, W) or (H, W, C)
        As the backend gave it.
    layout : PixelLayout
        What the backend was asked for.
    mode : Mode
        What the caller asked for.
    header : Header
        Its bits say which value is white.

    Returns
    -------
    ndarray
        uint8 (H, W, 3), (H, W) or (H, W, 4) for ``"RGB"``, ``"L"``, ``"RGBA"``; for ``"native"``
        the image itself.

    Raises
    ------
    DecodeError
        If there are more channels than make a colour.

    Notes
    -----
    Conversions are Pillow's own: CMYK without a profile, grey by ITU-R 601-2. More than 8 bits are
    cut to the high 8, as libpng's ``png_set_strip_16`` and Pillow's 16-bit colour do.
    """
    if mode == "native" or layout == mode:
        return image
    if layout == "native" and image.ndim == 3 and image.shape[2] > 4:
        raise DecodeError(f"{image.shape[2]} channels make no {mode}: mode='native' gives them")
    if layout == "native":
        image = _eight_bits(image, header)
        if image.ndim == 3 and image.shape[2] == 1:
            image = image[:, :, 0]
    source = _pillow_mode(image, layout, header)
    if mode == "RGBA" and source == "RGB":
        return np.dstack([image, np.full(image.shape[:2], 255, np.uint8)])
    if source == mode:
        return image
    if source == "CMYK" and mode == "L":
        return np.array(_pillow(image, "CMYK").convert("RGB").convert("L"))
    return np.array(_pillow(image, source).convert(mode))


def _pillow_mode(image: Image, layout: PixelLayout, header: Header) -> str:
    if layout != "native":
        return layout
    if header.color == "cmyk" and image.ndim == 3 and image.shape[2] == 4:
        return "CMYK"
    return "L" if image.ndim == 2 else {2: "LA", 3: "RGB", 4: "RGBA"}[image.shape[2]]


def _pillow(image: Image, mode: str) -> PillowImage.Image:
    height, width = image.shape[:2]
    return PillowImage.frombytes(mode, (width, height), np.ascontiguousarray(image).data)


def _eight_bits(image: Image, header: Header) -> Image:
    """Scale samples of any type to uint8."""
    if image.dtype == np.uint8 and (header.bits >= 8 or header.format == "jxl"):
        return image
    if image.dtype.kind == "f":
        scaled: Image = np.clip(image * 255 + 0.5, 0, 255)
        return scaled.astype(np.uint8)
    if image.dtype == np.bool_:
        white: Image = np.where(image, np.uint8(255), np.uint8(0))
        return white
    # Samples keep the file's own range, unless its header says less than they can hold.
    bits = header.bits if header.bits > 8 or image.dtype == np.uint8 else 8 * image.dtype.itemsize
    if bits < 8:
        spread: Image = image.astype(np.uint16) * 255 // ((1 << bits) - 1)
        return spread.astype(np.uint8)
    high: Image = image >> (bits - 8)
    return high.astype(np.uint8)


def crop(image: Image, window: Box, reduce: Reduce) -> Image:
    """Cut out what a window of the reduced picture is made from.

    Parameters
    ----------
    image : ndarray, (H, W) or (H, W, C)
        The whole picture, not yet reduced.
    window : tuple
        (left, top, right, bottom) in pixels of the *reduced* picture.
    reduce : {1, 2, 4, 8}
        By how much it will still be reduced: blocks start at multiples of it, so that reducing
        this equals slicing the reduced whole.

    Returns
    -------
    ndarray
        A view.
    """
    left, top, right, bottom = (edge * reduce for edge in window)
    return image[top:bottom, left:right]


def deliver(image: Image, out: Image | None) -> Image:
    """Hand the pixels over: in the caller's array, or in one that nobody else holds.

    Parameters
    ----------
    image : ndarray
    out : ndarray or None
        Where they are to go; it may be `image` itself.

    Returns
    -------
    ndarray
        `out`, or a C-contiguous, writable array.

    Raises
    ------
    ValueError
        If `out` has another shape or dtype; nothing is written then.
    """
    if out is None:
        flags = image.flags
        base = image.base
        # A view that is much smaller than what it views would keep all of that alive.
        spare = 0 if base is None else getattr(base, "nbytes", 0) - image.nbytes
        if flags.c_contiguous and flags.writeable and spare <= 0:
            return image
        return np.array(image, order="C")
    if out is not image:
        if out.shape != image.shape or out.dtype != image.dtype:
            raise ValueError(
                f"out must have shape {image.shape} and dtype {image.dtype}, "
                f"not {out.shape} and {out.dtype}"
            )
        np.copyto(out, image)
    return out
