"""The transforms with torchvision's names that make tensors, or take them alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode.torch.transforms._random_crop import TorchDraws
from fastdecode.torch.transforms._tensors import scaled
from fastdecode.torch.transforms.base import is_number
from fastdecode.torch.transforms.images import check_pair, check_probability

_MOST_BOXES = 10


class ToTensor:
    """Make a tensor of floats from 0 to 1, as torchvision's ``ToTensor`` does.

    Examples
    --------
    >>> import numpy as np
    >>> from fastdecode.torch.transforms import ToTensor
    >>> ToTensor()(np.full((32, 48, 3), 255, np.uint8)).max()
    tensor(1.)
    """

    def __call__(self, image: PillowImage.Image | np.ndarray) -> torch.Tensor:
        """Return a Pillow image or an array (H, W, C) of bytes as floats (C, H, W).

        Other arrays and modes keep their values.
        """
        tensor = as_tensor(image)
        if tensor.dtype == torch.bool:  # of mode 1
            return tensor.float()
        return tensor.div(255) if tensor.dtype == torch.uint8 else tensor

    def __repr__(self) -> str:
        return "ToTensor()"


class PILToTensor:
    """Make a tensor of bytes of a Pillow image, as torchvision's ``PILToTensor`` does.

    Examples
    --------
    >>> from fastdecode.torch.transforms import PILToTensor
    >>> PILToTensor()
    PILToTensor()
    """

    def __call__(self, image: PillowImage.Image) -> torch.Tensor:
        """Return the pixels (C, H, W)."""
        if not isinstance(image, PillowImage.Image):
            raise TypeError(f"image must be a Pillow image, not {type(image).__name__}")
        return as_tensor(image)

    def __repr__(self) -> str:
        return "PILToTensor()"


def as_tensor(image: Any) -> torch.Tensor:
    if not isinstance(image, (PillowImage.Image, np.ndarray)):
        raise TypeError(f"image must be a Pillow image or an array, not {type(image).__name__}")
    pixels = np.array(image)
    if pixels.ndim not in (2, 3):
        raise ValueError(f"image must be of shape (H, W, C) or (H, W), not {pixels.shape}")
    rows = pixels if pixels.ndim == 3 else pixels[..., None]
    return torch.from_numpy(rows.transpose(2, 0, 1).copy())


@dataclass(eq=False)
class ToDtype:
    """Convert a tensor, as torchvision's ``ToDtype`` does.

    Parameters
    ----------
    dtype : torch.dtype
        torch.uint8, or of floats.
    scale : bool
        Whether 0 to 255 in bytes becomes 0 to 1 in floats, and back.

    Examples
    --------
    >>> from fastdecode.torch.transforms import ToDtype
    >>> ToDtype()
    ToDtype(dtype=torch.float32, scale=False)
    """

    dtype: torch.dtype = torch.float32
    scale: bool = False

    def __post_init__(self) -> None:
        known = isinstance(self.dtype, torch.dtype)
        if not known or not (self.dtype == torch.uint8 or self.dtype.is_floating_point):
            raise ValueError(f"dtype must be torch.uint8 or of floats, not {self.dtype!r}")

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """Return the tensor with another dtype."""
        if not isinstance(image, torch.Tensor):
            raise TypeError(f"image must be a tensor, not {type(image).__name__}")
        plain = image.as_subclass(torch.Tensor)
        made = scaled(plain, self.dtype) if self.scale else plain.to(self.dtype)
        return made.as_subclass(type(image))


class ConvertImageDtype(ToDtype):
    """Convert a tensor and scale it, as torchvision's ``ConvertImageDtype`` does.

    Parameters
    ----------
    dtype : torch.dtype
        torch.uint8, or of floats.

    Examples
    --------
    >>> from fastdecode.torch.transforms import ConvertImageDtype
    >>> ConvertImageDtype()
    ConvertImageDtype(dtype=torch.float32)
    """

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__(dtype, scale=True)

    def __repr__(self) -> str:
        return f"ConvertImageDtype(dtype={self.dtype})"


@dataclass(eq=False)
class RandomErasing:
    """Replace a random box of a tensor with a probability, as torchvision's ``RandomErasing``.

    Parameters
    ----------
    p : float
        Probability.
    scale : (low, high)
        Range of the area of the box, as a share of the image's.
    ratio : (low, high)
        Range of the box's height to its width.
    value : float, one for each channel, or "random"
        What the box becomes; ``"random"`` is normal noise.
    inplace : bool
        Whether the tensor itself is changed.

    Raises
    ------
    ValueError
        An argument is invalid.

    Examples
    --------
    >>> from fastdecode.torch.transforms import RandomErasing
    >>> RandomErasing()
    RandomErasing(p=0.5, scale=(0.02, 0.33), ratio=(0.3, 3.3), value=0.0, inplace=False)
    """

    p: float = 0.5
    scale: Sequence[float] = (0.02, 0.33)
    ratio: Sequence[float] = (0.3, 3.3)
    value: Any = 0.0
    inplace: bool = False

    def __post_init__(self) -> None:
        check_probability(self.p)
        self.scale = check_pair("scale", self.scale, 0, 1)
        self.ratio = check_pair("ratio", self.ratio, 1e-5, 1e5)
        levels = self.value if isinstance(self.value, (list, tuple)) else [self.value]
        if self.value != "random" and not (levels and all(map(is_number, levels))):
            raise ValueError(f"value must be numbers or 'random', not {self.value!r}")

    def __call__(self, image: torch.Tensor) -> torch.Tensor:
        """Return the tensor (..., C, H, W), erased or not."""
        if not isinstance(image, torch.Tensor):
            raise TypeError(f"image must be a tensor, not {type(image).__name__}")
        draws = TorchDraws()
        if not draws.flip(self.p):
            return image
        channels, height, width = image.shape[-3:]
        levels = self.value if isinstance(self.value, (list, tuple)) else [self.value]
        if len(levels) not in (1, channels):
            raise ValueError(f"value must be for {channels} channels, not {self.value!r}")
        for _ in range(_MOST_BOXES):
            down, across = draws.sides(height * width, self.scale, self.ratio)
            if down < height and across < width:
                break
        else:
            return image
        if self.value == "random":
            colour = torch.empty(channels, down, across).normal_()
        else:
            colour = torch.tensor(levels)[:, None, None]
        top, left = draws.below(height - down + 1), draws.below(width - across + 1)
        made = image if self.inplace else image.clone().as_subclass(type(image))
        made[..., top : top + down, left : left + across] = colour
        return made
