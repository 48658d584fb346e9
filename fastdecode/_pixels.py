"""Convert decoded pixels: colours, size, orientation, and the type of the result.

Notes
-----
EXIF orientation is that of CIPA DC-008 (Exif 2.3), 4.6.4.A, tag 0x0112: the value says on which
side of the image as seen the stored first row and first column lie.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image as PillowImage

from fastdecode.errors import DecodeError, UnsupportedFormat, with_advice

if TYPE_CHECKING:
    from fastdecode.types import Box, Color, Header, Image, Mode, Output, PixelLayout, Reduce


def convert(image: Image, layout: PixelLayout, mode: Mode, header: Header) -> Image:
    """Convert pixels from a backend's layout to the mode that the caller asked for.

    Conversions are those of Pillow: CMYK without a profile, grey by ITU-R 601-2. More than four
    channels raise a `DecodeError`.
    """
    if mode == "stored" or layout == mode:
        return image
    if layout == "stored" and image.ndim == 3 and image.shape[2] > 4:
        problem = DecodeError(f"{image.shape[2]} channels make no {mode}")
        raise with_advice(problem, ": mode='stored' gives them")
    if layout == "stored":
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
    if layout != "stored":
        return layout
    if header.color == "cmyk" and image.ndim == 3 and image.shape[2] == 4:
        return "CMYK"
    return "L" if image.ndim == 2 else {2: "LA", 3: "RGB", 4: "RGBA"}[image.shape[2]]


def _pillow(image: Image, mode: str) -> PillowImage.Image:
    height, width = image.shape[:2]
    return PillowImage.frombytes(mode, (width, height), np.ascontiguousarray(image).data)


def _eight_bits(image: Image, header: Header) -> Image:
    """Turn unsigned integers of at most 16 bits, or booleans, into uint8.

    Of more than 8 bits the high 8 remain, as in libpng's ``png_set_strip_16`` and Pillow's 16-bit
    colour; fewer are spread, so that white is 255. If white is not the largest value of its bits
    (PNM), "the high 8" are those of the fraction ``sample / (white + 1)``.
    """
    eight = header.bits >= 8 or header.format == "jxl"  # deeper ones may be converted already
    if image.dtype == np.uint8 and eight and not header.maxval:
        return image
    # Samples use the range of `header.bits`, or of their type if the header says no more than 8.
    own = header.bits > 8 or image.dtype.itemsize == 1
    bits = header.bits if own else 8 * image.dtype.itemsize
    white = header.maxval or (1 << bits) - 1
    if white == 255:
        return image.astype(np.uint8, copy=False)
    if white < 255:
        if header.maxval:  # rounded, as Pillow does it
            spread: Image = np.rint(np.minimum(image, white) / white * 255)
        else:
            spread = image.astype(np.uint16) * 255 // white
        return spread.astype(np.uint8)
    if white == (1 << bits) - 1:
        high: Image = image >> (bits - 8)
    else:
        high = np.minimum(image, white).astype(np.uint32) * 256 // (white + 1)
    return high.astype(np.uint8)


def crop(image: Image, window: Box, reduce: Reduce) -> Image:
    """Return a view of the pixels behind a window, which is in pixels of the *reduced* image.

    `reduce` is the reduction that is still to come. Its blocks start at multiples of it, so
    reducing the view equals cropping the reduced image.
    """
    left, top, right, bottom = (edge * reduce for edge in window)
    return image[top:bottom, left:right]


def deliver(image: Image, out: Image | None) -> Image:
    """Return the pixels in the caller's array, or in a C-contiguous, writable one of their own.

    Raises ValueError, before anything is written, if `out` does not fit.
    """
    if out is None:
        flags = image.flags
        base = image.base
        # A view would keep the whole array under it alive.
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


def box_reduce(image: Image, reduce: Reduce, *, color: Color = "rgb") -> Image:
    """Average blocks of `reduce` x `reduce` pixels; blocks at the far edges may be smaller.

    For any dtype, the result equals that of `PIL.Image.Image.reduce`, which weights colours by
    alpha. With `color` ``"cmyk"`` the fourth channel is ink; otherwise a second or fourth channel
    is alpha. The values of a ``"palette"`` are indices, which cannot be averaged.
    """
    if reduce == 1:
        return image
    if image.dtype == np.bool_ or color == "palette":
        return sample_reduce(image, reduce)
    if image.ndim == 2:
        return _reduce_plane(image, reduce)
    if image.dtype == np.uint8 and image.shape[2] in (2, 3, 4):
        mode = "CMYK" if color == "cmyk" else {2: "LA", 3: "RGB", 4: "RGBA"}[image.shape[2]]
        return np.array(_pillow(image, mode).reduce(reduce))
    if image.shape[2] in (2, 4) and color != "cmyk" and image.dtype.kind in "uf":
        return _reduce_by_alpha(image, reduce)
    planes = [_reduce_plane(image[:, :, c], reduce) for c in range(image.shape[2])]
    return np.stack(planes, axis=2)


def _reduce_by_alpha(image: Image, reduce: Reduce) -> Image:
    """Reduce colours weighted by alpha, the last channel, as Pillow does for 8 bits."""
    alpha = image[:, :, -1].astype(np.float32)
    covered = _reduce_plane(alpha, reduce)
    planes = []
    for channel in range(image.shape[2] - 1):
        weighted = _reduce_plane(image[:, :, channel] * alpha, reduce)
        planes.append(np.divide(weighted, covered, out=weighted, where=covered > 0))
    reduced: Image = np.stack([*planes, covered], axis=2)
    if image.dtype.kind == "u":
        reduced += np.float32(0.5)
    return reduced.astype(image.dtype)


def _reduce_plane(plane: Image, reduce: Reduce) -> Image:
    """Reduce one channel with Pillow, in a type of its filter: uint8, int32 or float32."""
    working = (
        np.uint8 if plane.dtype == np.uint8 else np.float32 if plane.dtype.kind == "f" else np.int32
    )
    image = PillowImage.fromarray(np.ascontiguousarray(plane, dtype=working))
    return np.array(image.reduce(reduce)).astype(plane.dtype, copy=False)


def sample_reduce(image: Image, reduce: Reduce) -> Image:
    """Take the middle pixel of each block, for palette indices and masks.

    The average of two class numbers would be a third class.
    """
    height, width = image.shape[:2]
    rows = np.minimum(np.arange(0, height, reduce) + reduce // 2, height - 1)
    columns = np.minimum(np.arange(0, width, reduce) + reduce // 2, width - 1)
    return image[np.ix_(rows, columns)]


# From the stored image to the image as seen: transpose, then flip rows, then flip columns.
_STEPS = {
    1: (False, False, False),
    2: (False, False, True),
    3: (False, True, True),
    4: (False, True, False),
    5: (True, False, False),
    6: (True, False, True),
    7: (True, True, True),
    8: (True, True, False),
}


def apply_orientation(image: Image, orientation: int) -> Image:
    """Turn stored pixels into the image as seen: a view."""
    transpose, rows, columns = _STEPS[orientation]
    if transpose:
        image = image.swapaxes(0, 1)
    return image[:: -1 if rows else 1, :: -1 if columns else 1]


def seen_size(width: int, height: int, orientation: int) -> tuple[int, int]:
    """Return (width, height) of the image as seen, given those of the stored image."""
    return (height, width) if _STEPS[orientation][0] else (width, height)


def stored_box(box: Box, width: int, height: int, orientation: int) -> Box:
    """Return the stored pixels behind a box; all other arguments are of the image as seen."""
    left, top, right, bottom = box
    transpose, rows, columns = _STEPS[orientation]
    if rows:
        top, bottom = height - bottom, height - top
    if columns:
        left, right = width - right, width - left
    return (top, left, bottom, right) if transpose else (left, top, right, bottom)


def converter(output: Output) -> Callable[[Image], Any]:
    """Return the function that turns decoded pixels into an output.

    It returns the ndarray itself, a tensor (C, H, W) or (H, W) that shares its memory, or a Pillow
    image with its own memory. It raises `UnsupportedFormat` for pixels without a Pillow mode, such
    as 16-bit colour. Raises ImportError if PyTorch is needed and not installed.
    """
    if output == "array":
        return lambda image: image
    if output == "pil":
        return _pillow_image
    import torch

    def tensor(image: Image) -> Any:
        shared = torch.from_numpy(image)
        return shared.permute(2, 0, 1) if image.ndim == 3 else shared

    return tensor


def _pillow_image(image: Image) -> Any:
    try:
        return PillowImage.fromarray(image)
    except TypeError as error:
        problem = UnsupportedFormat(f"Pillow has no mode for pixels {image.shape} of {image.dtype}")
        raise with_advice(problem, ": take output='array', or mode='RGB'") from error
