"""`Geometry`: map boxes, points and masks of the full image into a reduced or cropped one."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from fastdecode import _pixels
from fastdecode._arguments import (
    check_header,
    check_kinds,
    check_options,
    is_int,
    region_inside,
    shown,
    wrong_kind,
)

if TYPE_CHECKING:
    from fastdecode.types import Box, Header


@dataclass(frozen=True)
class Geometry:
    """How the pixels of a result lie in the full-size image.

    Coordinates are continuous: the left edge of the first pixel is 0, its centre 0.5, its right
    edge 1, as for the boxes of COCO, Pascal VOC and torchvision.

    Attributes
    ----------
    box : (left, top, right, bottom)
        The part that the result shows, in pixels of the full-size image. It may extend beyond the
        image, because the last column of a reduced image covers fewer pixels, or because a crop is
        padded.
    size : (height, width)
        Size of the result, in pixels.
    flipped : bool
        Whether the result is then mirrored from left to right.
    full_size : (height, width) or None
        Size of the full-size image; `mask` checks masks against it. Every geometry that fastdecode
        returns has it. It is ignored when two geometries are compared.

    Examples
    --------
    >>> from fastdecode import Geometry
    >>> Geometry((0, 0, 640, 480), (120, 160)).boxes([[64, 48, 128, 96]])
    array([[16., 12., 32., 24.]])
    """

    box: tuple[float, float, float, float]
    size: tuple[int, int]
    flipped: bool = False
    full_size: tuple[int, int] | None = field(default=None, compare=False)

    @classmethod
    def of_decode(
        cls, header: Header, reduce: int = 1, *, region: Box | None = None, orient: bool = False
    ) -> Geometry:
        """Return the geometry of ``decode(data, reduce, region=region, orient=orient)``.

        Parameters
        ----------
        header : Header
            From `probe`.
        reduce : {1, 2, 4, 8}
            If you decode with ``min_size``, `reduce_for` returns this.
        region : (left, top, right, bottom), optional
            As for `decode`.
        orient : bool
            As for `decode`. If true, boxes, points and masks refer to the upright image; otherwise
            to the stored pixels.

        Returns
        -------
        Geometry
            Its scale is exactly ``1 / reduce``, even if a side is not a multiple of `reduce`.

        Raises
        ------
        TypeError, ValueError
            `header` is not a `Header`, or `decode` would refuse `reduce` or `region`.

        Notes
        -----
        The stored image is reduced in blocks that start at its first pixel. If a side is not a
        multiple of `reduce`, the last block extends beyond the image. If the EXIF orientation then
        turns the image round, that block comes first, and the box begins below zero.
        """
        check_header(header)
        check_options(reduce=reduce, region=region, orient=orient)
        applied = header.orientation if orient else 1
        width, height = _pixels.seen_size(header.width, header.height, applied)
        whole = (0, 0, width, height)
        left, top, right, bottom = whole if region is None else region_inside(region, width, height)
        left, top, right, bottom = (
            left // reduce,
            top // reduce,
            -(-right // reduce),
            -(-bottom // reduce),
        )
        begin, above = _first_block(header, reduce, applied)
        box = (
            begin + left * reduce,
            above + top * reduce,
            begin + right * reduce,
            above + bottom * reduce,
        )
        return cls(box, (bottom - top, right - left), full_size=(height, width))

    @property
    def scale(self) -> tuple[float, float]:
        """(vertical, horizontal): pixels of the result per pixel of the full-size image."""
        left, top, right, bottom = self.box
        return self.size[0] / (bottom - top), self.size[1] / (right - left)

    @property
    def offset(self) -> tuple[float, float]:
        """(top, left) corner of the result, in pixels of the full-size image."""
        return self.box[1], self.box[0]

    @property
    def region(self) -> Box:
        """(left, top, right, bottom): the whole pixels of the full-size image that `box` touches.

        To decode only this part of a mask that is stored as an image:
        ``geometry.mask(decode_file(path, mode="stored", region=geometry.region))``. It has at least
        one pixel, even if the result shows only padding.

        Raises
        ------
        ValueError
            `full_size` is not known.
        """
        if self.full_size is None:
            raise ValueError("region needs the full_size of the image")
        height, width = self.full_size
        left = min(max(math.floor(self.box[0]), 0), width - 1)
        top = min(max(math.floor(self.box[1]), 0), height - 1)
        right = min(max(math.ceil(self.box[2]), left + 1), width)
        bottom = min(max(math.ceil(self.box[3]), top + 1), height)
        return left, top, right, bottom

    def points(self, points: Any) -> Any:
        """Map points of the full-size image into the result.

        Parameters
        ----------
        points : array_like or tensor, (..., 2)
            (x, y) in pixels.

        Returns
        -------
        ndarray or tensor of floats, (..., 2)
            Points outside the result are kept; they are negative or exceed its size.
        """
        mapped = _as_floats("points", points, 2)
        vertical, horizontal = self.scale
        mapped[..., 0] = (mapped[..., 0] - self.box[0]) * horizontal
        mapped[..., 1] = (mapped[..., 1] - self.box[1]) * vertical
        if self.flipped:
            mapped[..., 0] = self.size[1] - mapped[..., 0]
        return mapped

    @overload
    def boxes(self, boxes: Any, *, clip: bool = True, keep: Literal[False] = False) -> Any: ...

    @overload
    def boxes(self, boxes: Any, *, clip: bool = True, keep: Literal[True]) -> tuple[Any, Any]: ...

    def boxes(self, boxes: Any, *, clip: bool = True, keep: bool = False) -> Any:
        """Map boxes of the full-size image into the result.

        Parameters
        ----------
        boxes : array_like or tensor, (..., 4)
            (left, top, right, bottom) in pixels.
        clip : bool
            Clip the boxes to the result. A box completely outside becomes empty: its right edge is
            not greater than its left edge, or its bottom is not greater than its top.
        keep : bool
            Also return which boxes still have an area inside the result. The first return value
            contains all boxes in either case, so that one mask selects boxes and labels.

        Returns
        -------
        ndarray or tensor of floats, (..., 4)
            With `keep`, a tuple of the boxes and a mask, which is an ndarray or tensor of bool,
            (...).

        Examples
        --------
        Crop the left half, and drop the boxes of the right half with their labels:

        >>> import numpy as np
        >>> from fastdecode import Geometry
        >>> half = Geometry((0, 0, 320, 480), (120, 80))
        >>> boxes, kept = half.boxes([[64, 48, 128, 96], [400, 48, 500, 96]], keep=True)
        >>> boxes[kept]
        array([[16., 12., 32., 24.]])
        >>> np.array([3, 7])[kept]
        array([3])
        """
        check_kinds({"clip": clip, "keep": keep})
        mapped = _as_floats("boxes", boxes, 4)
        corners = self.points(mapped.reshape(*mapped.shape[:-1], 2, 2))
        mapped[..., :2], mapped[..., 2:] = corners[..., 0, :], corners[..., 1, :]
        if self.flipped:
            mapped[..., 0], mapped[..., 2] = corners[..., 1, 0], corners[..., 0, 0]
        height, width = self.size
        across, down = mapped[..., 0::2].clip(0, width), mapped[..., 1::2].clip(0, height)
        if clip:
            mapped[..., 0::2], mapped[..., 1::2] = across, down
        if not keep:
            return mapped
        return mapped, (across[..., 1] > across[..., 0]) & (down[..., 1] > down[..., 0])

    def mask(self, mask: Any, *, fill: int = 0) -> Any:
        """Crop, shrink and flip a mask in the same way as the image.

        Parameters
        ----------
        mask : ndarray or tensor, (H, W)
            Class numbers of the full-size image, or of its `region`. Each result pixel takes the
            nearest one. They are never averaged, because the mean of two class numbers would be a
            third class.
        fill : int
            The value of pixels outside the image.

        Returns
        -------
        ndarray or tensor, `size`
            The mask of the result, with the type of `mask`.

        Raises
        ------
        ValueError
            `mask` does not have two dimensions, or its size is neither `full_size` nor that of
            `region`.
        """
        if not is_int(fill):
            raise wrong_kind("fill", "an integer", fill)
        if getattr(mask, "ndim", None) != 2:
            raise ValueError("mask must be an array or tensor of two dimensions, (H, W)")
        height, width = mask.shape if self.full_size is None else self.full_size
        first_row = first_column = 0
        if tuple(mask.shape) != (height, width):
            first_column, first_row, end_column, end_row = self.region
            if tuple(mask.shape) != (end_row - first_row, end_column - first_column):
                raise ValueError(
                    f"the mask is {mask.shape[1]} wide and {mask.shape[0]} high, but the image is "
                    f"{width} wide and {height} high"
                )
        left, top, right, bottom = self.box
        rows, no_row = _nearest(top, bottom, self.size[0], height)
        columns, no_column = _nearest(left, right, self.size[1], width)
        picked = mask[rows[:, None] - first_row, columns - first_column]
        try:
            picked[no_row] = fill
            picked[:, no_column] = fill
        except (OverflowError, RuntimeError) as error:
            raise ValueError(f"fill={shown(fill)} does not fit into {mask.dtype}") from error
        if not self.flipped:
            return picked
        return picked.flip(-1) if hasattr(picked, "flip") else np.ascontiguousarray(picked[:, ::-1])


def _first_block(header: Header, reduce: int, applied: int) -> tuple[int, int]:
    """Return where the first block of the upright image begins: (left, top), each 0 or negative."""
    width, height = header.width, header.height
    blocks = (0, 0, -(-width // reduce) * reduce, -(-height // reduce) * reduce)
    # The inverse of `stored_box`: from the stored image to the upright one.
    back = {6: 8, 8: 6}.get(applied, applied)
    return _pixels.stored_box(blocks, width, height, back)[:2]


def _as_floats(name: str, values: Any, last: int) -> Any:
    """Copy into floats; tensors stay tensors, on their device."""
    if hasattr(values, "is_floating_point"):
        floats = values.clone() if values.is_floating_point() else values.float()
    else:
        try:
            array = np.asarray(values)
            floats = np.array(array, np.float32 if array.dtype == np.float32 else np.float64)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name} must be numbers: {error}") from error
    if floats.shape == (0,):  # an empty list, from an image without objects
        return floats.reshape(0, last)
    if floats.ndim == 0 or floats.shape[-1] != last:
        shape = tuple(floats.shape)
        raise ValueError(f"the last dimension of {name} must be {last}, but the shape is {shape}")
    return floats


def _nearest(start: float, stop: float, count: int, limit: int) -> tuple[Any, Any]:
    """Return the source index under the centre of each result pixel, and which lie outside."""
    centres = start + (np.arange(count) + 0.5) * ((stop - start) / count)
    indices = np.floor(centres).astype(np.int64)
    outside = (indices < 0) | (indices >= limit)
    return indices.clip(0, limit - 1), outside
