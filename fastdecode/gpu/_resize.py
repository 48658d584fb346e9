"""Resizing on a device, by the same rule as on the CPU: antialiased, bilinear, rounded once."""

from __future__ import annotations

import torch

_MAX_SHRUNK = 128.0
"""The sum of the factors of both axes. PyTorch's kernel for CUDA keeps the weights of a block in
48 KB, and refuses to shrink by more than about 180."""


def resize_into(
    out: torch.Tensor,
    image: torch.Tensor,
    canvas: tuple[int, int] | None = None,
    *,
    top: int = 0,
    left: int = 0,
    flip: bool = False,
) -> None:
    """Resize uint8 (C, H, W) to a canvas, and write the part from `top`, `left` on to `out`.

    `out` is (C, h, w), with any strides. It becomes black where it reaches beyond the canvas. With
    `flip` the result is mirrored. On CUDA nothing waits for the device, unless an image is shrunk
    so much that the CPU must do it. The levels are within 1 of those of Pillow's `Image.resize`.
    """
    height, width = out.shape[1:]
    down, across = canvas or (height, width)
    pixels = image if image.shape[1:] == (down, across) else _resize(image, (down, across))
    if flip:
        pixels, left = pixels.flip(-1), across - left - width
    shown = pixels[:, max(0, top) : max(0, top + height), max(0, left) : max(0, left + width)]
    if shown.shape != out.shape:
        out.zero_()
        out = out[:, max(0, -top) :, max(0, -left) :][:, : shown.shape[1], : shown.shape[2]]
    out.copy_(shown)


def _resize(image: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    height, width = size
    shrunk = image.shape[1] / height + image.shape[2] / width
    here = image if image.device.type == "cpu" or shrunk <= _MAX_SHRUNK else image.cpu()
    pixels = here[None].float()
    if width == 1:
        # In a result of one column, PyTorch's kernel for the CPU gives every row the levels of the
        # first row (2.13). So resize the rows of two equal columns.
        pixels = _interpolate(pixels, (image.shape[1], 1)).repeat(1, 1, 1, 2)
        levels = _interpolate(pixels, (height, 2))[0, :, :, :1]
    else:
        levels = _interpolate(pixels, size)[0]
    return levels.round_().to(image.device)


def _interpolate(pixels: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    return torch.nn.functional.interpolate(pixels, size, mode="bilinear", antialias=True)
