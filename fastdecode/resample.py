"""The one box filter by which everything that no decoder can shrink is shrunk."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from PIL import Image as PillowImage

if TYPE_CHECKING:
    from fastdecode.types import Color, Image, Reduce

__all__ = ["box_reduce", "sample_reduce"]


def box_reduce(image: Image, reduce: Reduce, *, color: Color = "rgb") -> Image:
    """Average blocks of `reduce` x `reduce` pixels; blocks at the far edges may be smaller.

    Parameters
    ----------
    image : ndarray, (H, W) or (H, W, C)
        uint8 with 1 to 4 channels is averaged by Pillow itself, other types by its filter for each
        channel.
    reduce : {1, 2, 4, 8}
    color : Color
        With ``"cmyk"`` a fourth channel is ink, else it is alpha; so is a second one. With
        ``"palette"`` the values are indices, which cannot be averaged.

    Returns
    -------
    ndarray, (ceil(H / reduce), ceil(W / reduce)[, C])
        Same dtype.

    Notes
    -----
    Equal to `PIL.Image.Image.reduce`, which weights colours by their alpha.
    """
    if reduce == 1:
        return image
    if image.dtype == np.bool_ or color == "palette":
        return sample_reduce(image, reduce)
    if image.ndim == 2:
        return _reduce_plane(image, reduce)
    if image.dtype == np.uint8 and image.shape[2] in (2, 3, 4):
        mode = "CMYK" if color == "cmyk" else {2: "LA", 3: "RGB", 4: "RGBA"}[image.shape[2]]
        height, width = image.shape[:2]
        source = PillowImage.frombytes(mode, (width, height), np.ascontiguousarray(image).data)
        return np.array(source.reduce(reduce))
    if image.shape[2] in (2, 4) and color != "cmyk" and image.dtype.kind in "uf":
        return _reduce_by_alpha(image, reduce)
    planes = [_reduce_plane(image[:, :, c], reduce) for c in range(image.shape[2])]
    return np.stack(planes, axis=2)


def _reduce_by_alpha(image: Image, reduce: Reduce) -> Image:
    """Weight each colour by its alpha, the last channel, as Pillow does in 8 bits."""
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
    """One channel, in a type that Pillow's filter computes in: uint8, int32 or float32."""
    working = (
        np.uint8 if plane.dtype == np.uint8 else np.float32 if plane.dtype.kind == "f" else np.int32
    )
    image = PillowImage.fromarray(np.ascontiguousarray(plane, dtype=working))
    return np.array(image.reduce(reduce)).astype(plane.dtype, copy=False)


def sample_reduce(image: Image, reduce: Reduce) -> Image:
    """Take the middle pixel of each block: what is left of palette indices and masks.

    An average of two class numbers would be a third class. Parameters as in `box_reduce`.
    """
    height, width = image.shape[:2]
    rows = np.minimum(np.arange(0, height, reduce) + reduce // 2, height - 1)
    columns = np.minimum(np.arange(0, width, reduce) + reduce // 2, width - 1)
    return image[np.ix_(rows, columns)]
