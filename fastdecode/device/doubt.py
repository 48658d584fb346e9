"""Whether pictures of a batch may hold pixels for which their files had no data."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fastdecode._truncation import is_filling
from fastdecode.adapters.batch_base import BatchItem

__all__ = ["doubtful"]

_BLOCK = 8


def doubtful(images: Sequence[torch.Tensor], items: Sequence[BatchItem]) -> list[bool]:
    """Look at the end of each JPEG, as `decode` does where a library does not report damage.

    Parameters
    ----------
    images : sequence of tensor (C, H, W)
        uint8, on one device, all with one C.
    items : sequence of BatchItem
        What they were made of.

    Returns
    -------
    list of bool
        Whether the block that was decoded last has the one grey that a decoder puts where it has
        no data. Of honest photos that is one in hundreds; they are decoded once more, on the CPU.

    Notes
    -----
    On CUDA this waits until the pictures are decoded: a file whose data ends early is known only
    then. Only corners of the block are looked at, all of them by one launch.
    """
    if not images:
        return []
    corners = [_corners(image, item) for image, item in zip(images, items, strict=True)]
    pixels = torch.stack(corners).flatten(2).transpose(1, 2).tolist()
    return [
        item.header.format == "jpeg" and all(map(is_filling, some))
        for some, item in zip(pixels, items, strict=True)
    ]


def _corners(image: torch.Tensor, item: BatchItem) -> torch.Tensor:
    """Return the corners of what the picture shows of its last block: (C, 2, 2), a view."""
    _, _, right, bottom = item.window or (0, 0, item.header.width, item.header.height)
    _, height, width = image.shape
    rows = _two(image, 1, min((bottom - 1) % _BLOCK, height - 1))
    return _two(rows, 2, min((right - 1) % _BLOCK, width - 1))


def _two(image: torch.Tensor, dim: int, apart: int) -> torch.Tensor:
    """Return the last of a dimension, and the one that stands so far before it."""
    if not apart:
        sizes = [2 if at == dim else -1 for at in range(image.ndim)]
        return image.narrow(dim, image.shape[dim] - 1, 1).expand(sizes)
    last = image.narrow(dim, image.shape[dim] - 1 - apart, apart + 1)
    return last[:, ::apart] if dim == 1 else last[:, :, ::apart]
