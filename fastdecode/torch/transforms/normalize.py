"""From bytes 0 to 255 to the floats that a network was trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Normalize", "three_values"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Means of red, green and blue over ImageNet, 0 to 1, as the field's models were trained with."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Their standard deviations."""


class Normalize:
    """``(value - mean) / std`` for values of 0 to 1, or straight from uint8 pixels of 0 to 255.

    Floats are normalised as torchvision's class of this name does it. uint8 pixels, which that one
    refuses, are brought to a scale of 0 to 1 on the way. It works on whatever device they are.

    Parameters
    ----------
    mean, std : sequence or tensor of 3 floats, or of 1 for all channels; or None
        On a scale of 0 to 1. With a mean of None values stay on that scale.
    inplace : bool
        Change a float tensor itself, and return it.

    Attributes
    ----------
    affine : (factors, summands)
        Of red, green and blue, for values of 0 to 255: float32 numbers.

    Notes
    -----
    Of uint8 pixels it makes what torchvision's ``ToDtype(float32, scale=True)`` and ``Normalize``
    make, in one multiplication and one addition, each rounded to float32: the same bits on any
    device.

    Examples
    --------
    >>> import torch
    >>> from fastdecode.torch.transforms import Normalize
    >>> pixels = torch.full((1, 3, 2, 2), 255, dtype=torch.uint8)
    >>> Normalize()(pixels)[0, :, 0, 0]
    tensor([2.2489, 2.4286, 2.6400])
    """

    def __init__(
        self,
        mean: Sequence[float] | None = IMAGENET_MEAN,
        std: Sequence[float] | None = IMAGENET_STD,
        inplace: bool = False,
    ) -> None:
        self.mean = None if mean is None else _three("mean", mean)
        self.std = None if mean is None else _three("std", std)
        self.inplace = inplace
        if self.std is not None and 0 in self.std:
            raise ValueError(f"std must not hold a zero, but is {self.std}")
        means = torch.tensor(self.mean or (0.0, 0.0, 0.0), dtype=torch.float64, device="cpu")
        stds = torch.tensor(self.std or (1.0, 1.0, 1.0), dtype=torch.float64, device="cpu")
        factor = (1 / (255 * stds)).float().view(3, 1, 1)
        bias = (-means / stds).float().view(3, 1, 1)
        self.affine: tuple[tuple[float, ...], tuple[float, ...]] = (
            tuple(factor.flatten().tolist()),
            tuple(bias.flatten().tolist()),
        )
        self._on = {factor.device: (factor, bias)}

    def __call__(self, pixels: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        """Normalise.

        Parameters
        ----------
        pixels : tensor of uint8 or of floats, (..., 3, H, W)
        out : tensor, (..., 3, H, W), optional
            Where to write, with any strides: float32 for uint8 pixels, else of their type.

        Returns
        -------
        tensor, (..., 3, H, W)
            On the device of `pixels`; float32 for uint8 pixels, else of their type.

        Raises
        ------
        ValueError
            If `pixels` are not such, or `out` does not fit them.
        """
        floats = pixels.is_floating_point()
        if not (floats or pixels.dtype == torch.uint8) or pixels.shape[-3:-2] != (3,):
            raise ValueError(
                "Normalize takes uint8 pixels or floats of shape (..., 3, H, W), not "
                f"{tuple(pixels.shape)} of {pixels.dtype}"
            )
        made = pixels.dtype if floats else torch.float32
        if out is not None and (out.shape != pixels.shape or out.dtype != made):
            raise ValueError(
                f"out must be {tuple(pixels.shape)} of {made}, "
                f"not {tuple(out.shape)} of {out.dtype}"
            )
        if floats:
            return self._of_floats(pixels, out)
        factor, bias = self._constants(pixels.device)
        if out is None and pixels.device.type != "cpu":
            # By promotion the bytes become floats on the way: no kernel for that alone.
            values = torch.empty_like(pixels, dtype=torch.float32)
            return torch.mul(pixels, factor, out=values).add_(bias)
        # On the CPU converting first is faster than a multiplication of mixed types.
        values = pixels.float() if out is None else out.copy_(pixels)
        return values.mul_(factor).add_(bias)

    def _of_floats(self, pixels: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Subtract and divide in the values' own type, as torchvision does."""
        if out is not None:
            values = out.copy_(pixels)
        else:
            values = pixels if self.inplace else pixels.clone()
        if self.mean is None or self.std is None:
            return values
        mean, std = (
            torch.tensor(three, dtype=pixels.dtype, device=pixels.device).view(3, 1, 1)
            for three in (self.mean, self.std)
        )
        return values.sub_(mean).div_(std)

    def undone(self, values: torch.Tensor) -> torch.Tensor:
        """Return the bytes that these floats were made of.

        Parameters
        ----------
        values : tensor, (..., 3, H, W)

        Returns
        -------
        tensor of uint8, (..., 3, H, W)
            The nearest level of each.
        """
        factor, bias = self._constants(values.device)
        return ((values - bias) / factor).round_().clamp_(0, 255).to(torch.uint8)

    def _constants(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Keep them on each device, as threads may normalise on several at once.

        Bringing them there waits for it, so they may be used on any stream.
        """
        if device not in self._on:
            factor, bias = self._on[torch.device("cpu")]
            with torch.inference_mode(mode=False):  # or they would be of no use outside of such
                self._on[device] = factor.to(device), bias.to(device)
        return self._on[device]

    def __getstate__(self) -> dict[str, Any]:
        # A process that this is sent to may have no business with the device.
        cpu = torch.device("cpu")
        return {**self.__dict__, "_on": {cpu: self._on[cpu]}}

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


def three_values(values: Any) -> tuple[float, float, float] | None:
    """Read a value for each channel, or one for all; None for all but 1 or 3 finite numbers."""
    listed = values.tolist() if isinstance(values, (torch.Tensor, np.ndarray)) else values
    if not isinstance(listed, Iterable) or isinstance(listed, (str, bytes)):
        return None
    numbers = tuple(listed)
    known = all(isinstance(number, (Real, np.generic, torch.Tensor)) for number in numbers)
    if len(numbers) not in (1, 3) or not known:
        return None
    red, green, blue = three = [float(number) for number in numbers * (3 // len(numbers))]
    return (red, green, blue) if all(map(math.isfinite, three)) else None


def _three(name: str, values: Any) -> tuple[float, float, float]:
    numbers = three_values(values)
    if numbers is None:
        raise ValueError(
            f"{name} must be three numbers, for red, green and blue, or one for all, not {values!r}"
        )
    return numbers
