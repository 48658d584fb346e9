"""`ImageTransform`: what the transforms with torchvision's names have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode._arguments import is_int
from fastdecode.native._augment import Operation, Program, augment
from fastdecode.torch._programs import OPERATIONS, with_library
from fastdecode.torch.transforms._random_crop import TorchDraws, draw_program
from fastdecode.torch.transforms._tensors import changed as on_tensor
from fastdecode.torch.transforms.base import is_number

Fill: TypeAlias = float | Sequence[float] | None
AnyMode: TypeAlias = str | int | Enum
"""An interpolation as a string, Pillow's constant or an enumeration."""

AnyImage = TypeVar("AnyImage", PillowImage.Image, np.ndarray, torch.Tensor)
_DIMENSIONS, _GREY, _RGB = 3, 1, 3


class InterpolationMode(Enum):
    """How pixels are interpolated; the strings are taken, too, also where this is torchvision's.

    ``NEAREST``, ``NEAREST_EXACT``, ``BILINEAR``, ``BICUBIC``, ``BOX``, ``HAMMING`` or ``LANCZOS``.

    Examples
    --------
    >>> from fastdecode.torch.transforms import InterpolationMode
    >>> InterpolationMode.LANCZOS.value
    'lanczos'
    """

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class ImageTransform:
    """A transform of images with the name, the arguments and the results of torchvision's.

    Called with a Pillow image, it gives Pillow's own pixels, and draws the same numbers from
    torch's global generator as ``torchvision.transforms.v2``. With a tensor, the result is that of
    torchvision's for tensors, to the bit. In a `Loader` the core does it, tensors within a level.

    Examples
    --------
    >>> from fastdecode.torch.transforms import ImageTransform, RandomInvert
    >>> isinstance(RandomInvert(), ImageTransform)
    True
    """

    def __call__(self, image: AnyImage) -> AnyImage:
        """Return the transformed image.

        Parameters
        ----------
        image : PIL.Image.Image, ndarray (H, W, C) or tensor (C, H, W)
            Of bytes, with three channels or one. A tensor may also hold floats.

        Returns
        -------
        The same kind of image.

        Raises
        ------
        ValueError
            It is another kind of image, or too small.
        """
        if hasattr(self, "p") and not TorchDraws().flip(self.p):
            return image
        return transformed(image, self._draw, getattr(self, "num_output_channels", 0))

    def _draw(self, size: tuple[int, int]) -> Program:
        """Return what is done to an image of this (height, width), after the draw for `p`."""
        kinds = (kind.__qualname__ for kind in type(self).__mro__)
        make = next(OPERATIONS[name] for name in kinds if name in OPERATIONS)
        first, *others = make(self, size)
        certain = 1.0 if hasattr(self, "p") else first.probability
        return Program([first._replace(probability=certain), *others])


def transformed(
    image: AnyImage, draw: Callable[[tuple[int, int]], Program], channels: int = 0
) -> AnyImage:
    """Return an image after a program for its size; 0 `channels` are as many as it has."""
    pixels = pixels_of(image)
    height, width = pixels.shape[:2]
    channels = channels or pixels.shape[2]
    program = draw((height, width))
    operations: list[Operation] = [step.operation for step in program if step.operation]
    if pixels.shape[2] == _GREY and any(map(_fills_colours, operations)):
        raise ValueError("an image of one channel cannot be filled with three levels")
    if isinstance(image, torch.Tensor) and all(one.library != "opencv" for one in operations):
        drawn = draw_program(program, width, height, None)
        changed = on_tensor(image.as_subclass(torch.Tensor), drawn.operations)
        changed = changed.expand(channels, -1, -1) if len(changed) != channels else changed
        return changed.as_subclass(type(image))
    if pixels.dtype != np.uint8:
        raise ValueError("OpenCV's results are of bytes, not of floats")
    drawn = draw_program(with_library(program, "pillow"), width, height, None)
    colours = np.broadcast_to(pixels, (height, width, _RGB))
    made = augment(colours, drawn.operations, drawn.size)[..., :channels]
    given: AnyImage = _as_given(np.ascontiguousarray(made), image)
    return given


def through_tensor(image: AnyImage, change: Callable[[torch.Tensor], torch.Tensor]) -> AnyImage:
    """Return an image after what torchvision does to it as a tensor, also if it is none."""
    if isinstance(image, torch.Tensor):
        return change(image)
    tensor = torch.from_numpy(pixels_of(image).copy()).permute(2, 0, 1)
    given: AnyImage = _as_given(change(tensor).permute(1, 2, 0).contiguous().numpy(), image)
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


def _fills_colours(operation: Operation) -> bool:
    """Return whether an operation may show its fill, and in a colour."""
    shown = operation.kind not in ("pad", "crop") or operation.filter == "constant"
    return shown and len(set(operation.fill)) > 1


def is_image(data: Any) -> bool:
    """Return whether something is a decoded image, and not the bytes of a file."""
    several = isinstance(data, (np.ndarray, torch.Tensor)) and data.ndim > 1
    return several or isinstance(data, PillowImage.Image)


def pixels_of(image: Any) -> np.ndarray:
    """Return the pixels (H, W, C) of an image: bytes, or the floats of a tensor."""
    if isinstance(image, PillowImage.Image):
        known = image.mode in ("RGB", "L")
        pixels = np.asarray(image) if known else np.empty(0)
        pixels = pixels[..., None] if image.mode == "L" else pixels
    elif isinstance(image, torch.Tensor):
        known = image.dtype == torch.uint8 or image.is_floating_point()
        known = known and image.ndim == _DIMENSIONS and not image.requires_grad
        pixels = image.permute(1, 2, 0).cpu().numpy() if known else np.empty(0)
    else:
        pixels = np.asarray(image)
        known = pixels.dtype == np.uint8
    if not known or pixels.ndim != _DIMENSIONS or pixels.shape[2] not in (_GREY, _RGB):
        what = getattr(image, "mode", f"{getattr(image, 'shape', '?')} of {type(image).__name__}")
        raise ValueError(f"image must be RGB or grey, in bytes, not {what}")
    return pixels


# ---- checks ----


def check_probability(p: Any) -> None:
    if not is_number(p) or not 0 <= p <= 1:
        raise ValueError(f"p must be a probability from 0 to 1, not {p!r}")


def check_number(name: str, value: Any, low: float, high: float) -> None:
    if not is_number(value) or not low <= value <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}, not {value!r}")


def check_pair(name: str, value: Any, low: float, high: float) -> tuple[float, float]:
    """Return two numbers in rising order, within limits."""
    numbers = tuple(value) if isinstance(value, (list, tuple)) else ()
    known = len(numbers) == 2 and all(map(is_number, numbers))
    if not known or not low <= numbers[0] <= numbers[1] <= high:
        limits = f"{low:g} <= low <= high <= {high:g}"
        raise ValueError(f"{name} must be (low, high) with {limits}, not {value!r}")
    return float(numbers[0]), float(numbers[1])


def check_angles(name: str, value: Any) -> tuple[float, float]:
    """Return a range of degrees; one number stands for both signs."""
    if is_number(value) and value >= 0:
        value = (-value, value)
    return check_pair(name, value, -1e5, 1e5)


def check_fill(fill: Any) -> None:
    levels = fill if isinstance(fill, (list, tuple)) else [0 if fill is None else fill]
    if len(levels) not in (_GREY, _RGB) or not all(
        is_number(level) and 0 <= level <= 255 and level == int(level) for level in levels
    ):
        raise ValueError(f"fill must be a whole level from 0 to 255, or three, not {fill!r}")


def check_padding(padding: Any) -> None:
    sides = padding if isinstance(padding, (list, tuple)) else [padding]
    if len(sides) not in (1, 2, 4) or not all(is_int(side) and side >= 0 for side in sides):
        raise ValueError(f"padding must be 1, 2 or 4 numbers of pixels, not {padding!r}")
