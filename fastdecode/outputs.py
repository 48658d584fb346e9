"""What pixels are handed out as: an ndarray, a PyTorch tensor or a Pillow image."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fastdecode.errors import UnsupportedFormat

if TYPE_CHECKING:
    from fastdecode.types import Image, Output

__all__ = ["converter"]


def converter(output: Output) -> Callable[[Image], Any]:
    """Return what makes the output of decoded pixels.

    Parameters
    ----------
    output : {"array", "tensor", "pil"}

    Returns
    -------
    callable
        From (H, W, C) or (H, W): the ndarray itself; a tensor (C, H, W) or (H, W) that shares its
        memory; a Pillow image of its own memory. Of pixels for which Pillow has no mode, such as
        16-bit colour, it raises `UnsupportedFormat`.

    Raises
    ------
    ImportError
        If tensors are asked for and PyTorch is not installed.
    """
    if output == "array":
        return _same
    if output == "pil":
        return _pillow
    import torch

    def tensor(image: Image) -> Any:
        shared = torch.from_numpy(image)
        return shared.permute(2, 0, 1) if image.ndim == 3 else shared

    return tensor


def _same(image: Image) -> Image:
    return image


def _pillow(image: Image) -> Any:
    from PIL import Image as PillowImage

    try:
        return PillowImage.fromarray(image)
    except TypeError as error:
        raise UnsupportedFormat(
            f"Pillow has no mode for pixels {image.shape} of {image.dtype}: take output='array', "
            "or mode='RGB'"
        ) from error
