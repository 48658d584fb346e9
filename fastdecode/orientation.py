"""EXIF orientation, in one place: turning pictures, turning them back, and turning boxes.

Notes
-----
CIPA DC-008 (Exif 2.3), 4.6.4.A, tag 0x0112: the value says on which side of the picture as seen the
stored first row and first column lie.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fastdecode.types import Box, Image

__all__ = ["apply", "seen_size", "stored_box", "undo"]

# How the picture as seen follows from the stored one: transpose, then flip rows, flip columns.
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


def apply(image: Image, orientation: int) -> Image:
    """Turn stored pixels into the picture as seen.

    Parameters
    ----------
    image : ndarray, (H, W) or (H, W, C)
    orientation : int
        EXIF value, 1-8.

    Returns
    -------
    ndarray
        A view, (H, W, …) or (W, H, …).
    """
    transpose, rows, columns = _STEPS[orientation]
    if transpose:
        image = image.swapaxes(0, 1)
    return image[:: -1 if rows else 1, :: -1 if columns else 1]


def undo(image: Image, orientation: int) -> Image:
    """Turn a picture as seen back into stored pixels; the inverse of `apply`, also a view."""
    transpose, rows, columns = _STEPS[orientation]
    image = image[:: -1 if rows else 1, :: -1 if columns else 1]
    return image.swapaxes(0, 1) if transpose else image


def seen_size(width: int, height: int, orientation: int) -> tuple[int, int]:
    """(width, height) in pixels of the picture as seen, from those of the stored one."""
    return (height, width) if _STEPS[orientation][0] else (width, height)


def stored_box(box: Box, width: int, height: int, orientation: int) -> Box:
    """Find the stored pixels behind a box of the picture as seen.

    Parameters
    ----------
    box : tuple
        (left, top, right, bottom) in pixels of the picture as seen.
    width, height : int
        Size of the picture as seen, in pixels.
    orientation : int
        EXIF value, 1-8.

    Returns
    -------
    tuple
        (left, top, right, bottom) in pixels of the stored picture.
    """
    left, top, right, bottom = box
    transpose, rows, columns = _STEPS[orientation]
    if rows:
        top, bottom = height - bottom, height - top
    if columns:
        left, right = width - right, width - left
    return (top, left, bottom, right) if transpose else (left, top, right, bottom)
