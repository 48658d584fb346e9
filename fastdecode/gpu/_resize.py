"""Resizing on a device, by the CPU path's rule: antialiased, bilinear; rounded once."""

from __future__ import annotations

import torch

_MOST_SHRUNK = 128.0
"""Of both axes together: PyTorch's kernel for CUDA has the weights of a block in 48 KB, and refuses
to shrink by more than about 180."""


def resize_into(
    out: torch.Tensor,
    image: torch.Tensor,
    canvas: tuple[int, int] | None = None,
    *,
    top: int = 0,
    left: int = 0,
    flip: bool = False,
) -> None:
    """Resize uint8 (C, H, W) to a canvas, and write what of it begins at `top`, `left` to `out`.

    `out` is (C, h, w), with any strides; where it reaches beyond the canvas it becomes black. With
    `flip` it is mirrored. On CUDA nothing waits for the device, unless an image is shrunk so much
    that the CPU has to do it. The levels are within 1 of those of Pillow's `Image.resize`.
    """
    height, width = out.shape[1:]
    down, across = canvas or (height, width)
    pixels = image if image.shape[1:] == (down, across) else _resized(image, (down, across))
    if flip:
        pixels, left = pixels.flip(-1), across - left - width
    shown = pixels[:, max(0, top) : max(0, top + height), max(0, left) : max(0, left + width)]
    if shown.shape != out.shape:
        out.zero_()
        out = out[:, max(0, -top) :, max(0, -left) :][:, : shown.shape[1], : shown.shape[2]]
    out.copy_(shown)


def _resized(image: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    height, width = size
    shrunk = image.shape[1] / height + image.shape[2] / width
    here = image if image.device.type == "cpu" or shrunk <= _MOST_SHRUNK else image.cpu()
    pixels = here[None].float()
    if width == 1:
        # Of results of one column, PyTorch's kernel for the CPU gives all rows the first one's
        # levels (2.13): so there are two columns when it comes to the rows.
        pixels = _interpolated(pixels, (image.shape[1], 1)).repeat(1, 1, 1, 2)
        levels = _interpolated(pixels, (height, 2))[0, :, :, :1]
    else:
        levels = _interpolated(pixels, size)[0]
    return levels.round_().to(image.device)


def _interpolated(pixels: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    return torch.nn.functional.interpolate(pixels, size, mode="bilinear", antialias=True)
