"""Where a reduced or cropped image lies in the full one: mapping boxes, points and masks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from fastdecode import _pixels
from fastdecode._arguments import check_header, check_options, checked_region

if TYPE_CHECKING:
    from fastdecode.types import Box, Header

__all__ = ["Geometry"]


@dataclass(frozen=True)
class Geometry:
    """How the pixels of a result lie in the full-size image.

    Coordinates are continuous: the left edge of the first pixel is 0, its centre 0.5, its right
    edge 1, as for the boxes of COCO, Pascal VOC and torchvision.

    Attributes
    ----------
    box : (left, top, right, bottom)
        What the result shows, in pixels of the full-size image. It may reach beyond it: the last
        column of a reduced image stands for fewer pixels, and a crop may be padded.
    size : (height, width)
        Of the result, in pixels.
    flipped : bool
        Mirrored from left to right after that.
    full_size : (height, width) or None
        Of the full-size image, by which `mask` knows its own; all that is made here has it. It
        makes no difference to whether two are equal.

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
        """Describe what ``decode(data, reduce, region=region, orient=orient)`` returns.

        Parameters
        ----------
        header : Header
            From `probe`.
        reduce : {1, 2, 4, 8}
            With ``min_size``, ask `reduce_for`.
        region : (left, top, right, bottom), optional
        orient : bool
            With it, boxes, points and masks are those of the image as seen, upright; without, those
            of the stored pixels.

        Returns
        -------
        Geometry
            Its scale is exactly ``1 / reduce``, also where a side is no multiple of it.

        Raises
        ------
        TypeError, ValueError
            If `header` is none, or `decode` would refuse `reduce` or `region`.

        Notes
        -----
        Images are reduced as they are stored, in blocks from their first pixel on. Where a side
        is no multiple of `reduce`, the last block reaches beyond the image; once the EXIF
        orientation has turned the image round, that block comes first, and the box begins below
        zero.
        """
        check_header(header)
        check_options(reduce=reduce)
        applied = header.orientation if orient else 1
        width, height = _pixels.seen_size(header.width, header.height, applied)
        whole = (0, 0, width, height)
        left, top, right, bottom = (
            whole if region is None else checked_region(region, width, height)
        )
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
        """(vertical, horizontal): pixels of the result for each pixel of the full-size image."""
        left, top, right, bottom = self.box
        return self.size[0] / (bottom - top), self.size[1] / (right - left)

    @property
    def offset(self) -> tuple[float, float]:
        """(top, left): where the result begins, in pixels of the full-size image."""
        return self.box[1], self.box[0]

    def points(self, points: Any) -> Any:
        """Map points of the full-size image into the result.

        Parameters
        ----------
        points : array_like or tensor, (..., 2)
            (x, y) in pixels.

        Returns
        -------
        ndarray or tensor of floats, (..., 2)
            Points outside the result are kept: they are negative or beyond its size.
        """
        mapped = _as_floats(points, 2)
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
            Cut them at the edges of the result. A box that lies outside is then empty: its right
            is not beyond its left, or its bottom not beyond its top.

        keep : bool
            Also return which boxes are left: those of which the result shows any area. All boxes
            are still in the first answer, so that the same mask picks boxes and labels.

        Returns
        -------
        ndarray or tensor of floats, (..., 4)
            With `keep` a tuple of this, and of the mask, an ndarray or tensor of bool, (...).

        Examples
        --------
        Crop the left half, and drop what lies in the other with its label:

        >>> import numpy as np
        >>> from fastdecode import Geometry
        >>> half = Geometry((0, 0, 320, 480), (120, 80))
        >>> boxes, left = half.boxes([[64, 48, 128, 96], [400, 48, 500, 96]], keep=True)
        >>> boxes[left]
        array([[16., 12., 32., 24.]])
        >>> np.array([3, 7])[left]
        array([3])
        """
        mapped = _as_floats(boxes, 4)
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
        """Crop, shrink and flip a mask as the image was.

        Parameters
        ----------
        mask : ndarray or tensor, (H, W)
            Class numbers at the image's full size. They are picked, never averaged: the mean of
            two class numbers would be a third class.
        fill : int
            For what lies outside the image.

        Returns
        -------
        ndarray or tensor, `size`
            Of the same type.

        Raises
        ------
        ValueError
            If `mask` has not two dimensions, or not `full_size`.
        """
        if getattr(mask, "ndim", None) != 2:
            raise ValueError("mask must be an array or tensor of two dimensions, (H, W)")
        if self.full_size is not None and tuple(mask.shape) != self.full_size:
            height, width = self.full_size
            raise ValueError(
                f"the mask is {mask.shape[1]} wide and {mask.shape[0]} high, but the image is "
                f"{width} wide and {height} high"
            )
        left, top, right, bottom = self.box
        rows, no_row = _nearest(top, bottom, self.size[0], mask.shape[0])
        columns, no_column = _nearest(left, right, self.size[1], mask.shape[1])
        picked = mask[rows[:, None], columns]
        picked[no_row] = fill
        picked[:, no_column] = fill
        if not self.flipped:
            return picked
        return picked.flip(-1) if hasattr(picked, "flip") else np.ascontiguousarray(picked[:, ::-1])


def _first_block(header: Header, reduce: int, applied: int) -> tuple[int, int]:
    """Where the first block of the image as seen begins: (left, top), each 0 or negative."""
    width, height = header.width, header.height
    blocks = (0, 0, -(-width // reduce) * reduce, -(-height // reduce) * reduce)
    # From the stored image to the one as seen: the way of `stored_box`, backwards.
    back = {6: 8, 8: 6}.get(applied, applied)
    return _pixels.stored_box(blocks, width, height, back)[:2]


def _as_floats(values: Any, last: int) -> Any:
    """Copy into floats of the same kind: tensors stay tensors, on their device."""
    if hasattr(values, "is_floating_point"):
        floats = values.clone() if values.is_floating_point() else values.float()
    else:
        array = np.asarray(values)
        floats = np.array(array, np.float32 if array.dtype == np.float32 else np.float64)
    if floats.shape == (0,):  # an empty list, of an image in which there is nothing
        return floats.reshape(0, last)
    if floats.ndim == 0 or floats.shape[-1] != last:
        shape = tuple(floats.shape)
        raise ValueError(f"the last dimension must be {last}, but the shape is {shape}")
    return floats


def _nearest(start: float, stop: float, count: int, limit: int) -> tuple[Any, Any]:
    """Source index below the centre of each result pixel, and which of them lie outside."""
    centres = start + (np.arange(count) + 0.5) * ((stop - start) / count)
    indices = np.floor(centres).astype(np.int64)
    outside = (indices < 0) | (indices >= limit)
    return indices.clip(0, limit - 1), outside
