"""`ImageTransform`: what the transforms of this package that take images have in common."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode.native._augment import Program, augment
from fastdecode.torch._programs import with_library
from fastdecode.torch.transforms._random_crop import draw_program

AnyMode: TypeAlias = str | int | Enum
"""An interpolation as a string, Pillow's constant or an enumeration."""

AnyImage = TypeVar("AnyImage", PillowImage.Image, np.ndarray, torch.Tensor)
_DIMENSIONS, _GREY, _RGB = 3, 1, 3


class ImageTransform:
    """A transform of images; in a `Loader` the core does it while it decodes.

    Parameters
    ----------
    program : Program
        What is done to an image.
    """

    def __init__(self, program: Program) -> None:
        self.program = program

    def __call__(self, image: AnyImage) -> AnyImage:
        """Return the transformed image.

        Parameters
        ----------
        image : PIL.Image.Image, ndarray (H, W, C) or tensor (C, H, W)
            Of bytes, with three channels or one.

        Returns
        -------
        The same kind of image.

        Raises
        ------
        ValueError
            It is another kind of image, or too small.
        """
        return transformed(image, self.program)


def transformed(image: AnyImage, program: Program) -> AnyImage:
    """Return an image of any kind after a program, with Pillow's pixels, or OpenCV's."""
    pixels = pixels_of(image)
    height, width, channels = pixels.shape
    operations = [step.operation for step in program if step.operation]
    if channels == _GREY and any(len(set(one.fill)) > 1 for one in operations):
        raise ValueError("an image of one channel cannot be filled with three levels")
    drawn = draw_program(with_library(program, "pillow"), width, height, None)
    colours = np.broadcast_to(pixels, (height, width, _RGB))
    made = augment(colours, drawn.operations, drawn.size)[..., :channels]
    given: AnyImage = _as_given(np.ascontiguousarray(made), image)
    return given


def _as_given(made: np.ndarray, image: Any) -> Any:
    """Return pixels (H, W, C) as the kind of image that `image` is."""
    if isinstance(image, torch.Tensor):
        return torch.from_numpy(made).permute(2, 0, 1).contiguous().as_subclass(type(image))
    if not isinstance(image, PillowImage.Image):
        return made
    new = PillowImage.fromarray(made[..., 0] if made.shape[2] == _GREY else made)
    new.info = dict(image.info)
    return new


def is_image(data: Any) -> bool:
    """Return whether something is a decoded image, and not the bytes of a file."""
    several = isinstance(data, (np.ndarray, torch.Tensor)) and data.ndim > 1
    return several or isinstance(data, PillowImage.Image)


def pixels_of(image: Any) -> np.ndarray:
    """Return the pixels (H, W, C) of an image of bytes."""
    if isinstance(image, PillowImage.Image):
        pixels = np.asarray(image) if image.mode in ("RGB", "L") else np.empty(0)
        pixels = pixels[..., None] if image.mode == "L" else pixels
    elif isinstance(image, torch.Tensor):
        plain = image.ndim == _DIMENSIONS and not image.requires_grad
        pixels = image.permute(1, 2, 0).cpu().numpy() if plain else np.empty(0)
    else:
        pixels = np.asarray(image)
    known = pixels.dtype == np.uint8 and pixels.ndim == _DIMENSIONS
    if not known or pixels.shape[2] not in (_GREY, _RGB):
        form = f"{tuple(getattr(image, 'shape', ()))} of {getattr(image, 'dtype', type(image))}"
        what = f"mode {image.mode}" if isinstance(image, PillowImage.Image) else form
        raise ValueError(f"image must be RGB or grey, in bytes, not {what}")
    return pixels


def as_tensor(image: Any) -> torch.Tensor:
    """Return a Pillow image or an array (H, W, C) or (H, W) as a tensor (C, H, W)."""
    if not isinstance(image, (PillowImage.Image, np.ndarray)):
        raise TypeError(f"image must be a Pillow image or an array, not {type(image).__name__}")
    pixels = np.array(image)
    if pixels.ndim not in (2, 3):
        raise ValueError(f"image must be of shape (H, W, C) or (H, W), not {pixels.shape}")
    rows = pixels if pixels.ndim == _DIMENSIONS else pixels[..., None]
    return torch.from_numpy(rows.transpose(2, 0, 1).copy())
