"""Pictures that are decoded, in their place on the device: as they are, or resized.

On the CPU all of this is done by NumPy and Pillow, in threads, and pictures are arrays until they
are handed out. A thread that has once worked with PyTorch's own threads cannot fork any more: its
child would wait for them for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode._arrays import in_threads
from fastdecode.device.resize import resized

if TYPE_CHECKING:
    from fastdecode.types import Image

__all__ = ["from_host", "on_device", "stacked", "tensor_of"]


def on_device(
    images: Sequence[torch.Tensor],
    device: torch.device,
    size: tuple[int, int] | None,
    threads: int,
) -> Sequence[Any]:
    """Copy pictures that are on the device, for their memory may be a library's.

    Parameters
    ----------
    images : sequence of tensor (C, H, W)
        uint8, with any strides.
    device : torch.device
    size : (height, width) or None
        Resize to this.
    threads : int
        How many to use on the CPU.

    Returns
    -------
    sequence of tensor, or of ndarray for the CPU
        (C, H, W), contiguous.
    """
    if device.type == "cpu":
        return _arrays_of([image.permute(1, 2, 0).numpy() for image in images], size, threads)
    if size is None:
        return [image.clone(memory_format=torch.contiguous_format) for image in images]
    return resized(images, size).unbind(0) if images else []


def from_host(
    arrays: list[Any], device: torch.device, size: tuple[int, int] | None, threads: int
) -> list[Any]:
    """Bring arrays to the device; errors among them stay as they are.

    Parameters
    ----------
    arrays : list of ndarray (H, W, C) or (H, W), or Exception
    device, size, threads
        As for `on_device`.

    Returns
    -------
    list of tensor, or of ndarray for the CPU, or Exception
        (C, H, W), contiguous.
    """
    good = [array for array in arrays if isinstance(array, np.ndarray)]
    placed: Sequence[Any]
    if device.type == "cpu":
        placed = _arrays_of(good, size, threads)
    else:
        placed = [_planes(image) for image in _copied(good, device, threads)]
        if size is not None and placed:
            placed = resized(placed, size).unbind(0)
    left = iter(placed)
    return [next(left) if isinstance(array, np.ndarray) else array for array in arrays]


def tensor_of(image: Any) -> torch.Tensor:
    """Return what `on_device` or `from_host` gave as a tensor."""
    return image if isinstance(image, torch.Tensor) else torch.from_numpy(image)


def stacked(
    images: Sequence[Any], shape: tuple[int, int, int], device: torch.device
) -> torch.Tensor:
    """Make one batch of pictures of that shape, (C, H, W)."""
    if device.type == "cpu":
        return torch.from_numpy(np.stack(images) if images else np.empty((0, *shape), np.uint8))
    if not images:
        return torch.empty((0, *shape), dtype=torch.uint8, device=device)
    return torch.stack(list(images))


def _arrays_of(
    arrays: Sequence[Image], size: tuple[int, int] | None, threads: int
) -> Sequence[Image]:
    return in_threads(threads, partial(_array_of, size=size), arrays)


def _array_of(array: Image, size: tuple[int, int] | None) -> Image:
    """Make (C, H, W) of (H, W, C) or (H, W)."""
    wide = array if array.ndim == 3 else array[:, :, None]
    if size is not None:
        flat = wide[:, :, 0] if wide.shape[2] == 1 else wide
        small = PillowImage.fromarray(np.ascontiguousarray(flat)).resize(
            (size[1], size[0]), PillowImage.Resampling.BILINEAR
        )
        wide = np.asarray(small).reshape(*size, -1)
    return np.array(wide.transpose(2, 0, 1), order="C")


def _copied(arrays: Sequence[Image], device: torch.device, threads: int) -> Sequence[torch.Tensor]:
    """Copy to a device that is not the CPU: to CUDA in one go, because each copy would wait."""
    host = [torch.from_numpy(array) for array in arrays]
    if device.type != "cuda" or not all(image.dtype == torch.uint8 for image in host):
        return [image.to(device) for image in host]
    sizes = [image.numel() for image in host]
    flat = torch.empty(sum(sizes), dtype=torch.uint8, device="cpu", pin_memory=True)
    in_threads(
        threads,
        lambda both: np.copyto(both[0].numpy(), both[1].reshape(-1)),
        list(zip(torch.split(flat, sizes), arrays, strict=True)),
    )
    there = torch.split(flat.to(device, non_blocking=True), sizes)
    return [part.view(image.shape) for part, image in zip(there, host, strict=True)]


def _planes(image: torch.Tensor) -> torch.Tensor:
    wide = image if image.ndim == 3 else image[:, :, None]
    return wide.permute(2, 0, 1).contiguous()
