"""`Normalize`: from uint8 pixels to the floats that a network was trained on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import torch

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Means of red, green and blue over ImageNet, on a scale of 0 to 1, as most models use them."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviations of red, green and blue over ImageNet, on a scale of 0 to 1."""


class Normalize:
    """Normalises images to ``(value - mean) / std``, from floats or straight from uint8 pixels.

    Floats are normalised as in torchvision's ``Normalize``. uint8 pixels, which torchvision
    refuses, are also scaled from 0..255 to 0..1. The images may be on any device; with one mean for
    all channels they may have one, too.

    Parameters
    ----------
    mean, std : sequence or tensor of 3 floats, or of 1 for all channels; or None
        Mean and standard deviation of each channel, on a scale of 0 to 1. If `mean` is None, values
        are scaled to 0..1 but not normalised.
    inplace : bool
        Change a float tensor in place, and return it.

    Attributes
    ----------
    affine : (factors, summands)
        What each value of 0 to 255 is multiplied by, and what is then added: float32 numbers for
        red, green and blue.

    Raises
    ------
    ValueError
        `mean` or `std` does not hold 1 or 3 finite numbers, or `std` holds a zero.

    Notes
    -----
    For uint8 pixels the result is that of torchvision's ``ToDtype(float32, scale=True)`` followed
    by ``Normalize``. It takes one multiplication and one addition, each rounded to float32, and is
    bit-identical on any device.

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
        self.mean = None if mean is None else _check_three_values("mean", mean)
        self.std = None if mean is None else _check_three_values("std", std)
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
        """Normalise an image or a batch of images.

        Parameters
        ----------
        pixels : tensor of uint8 or of floats, (..., 3, H, W)
        out : tensor, (..., 3, H, W), optional
            Where to write the result, with any strides; its dtype is that of the result.

        Returns
        -------
        tensor, (..., 3, H, W)
            On the device of `pixels`; float32 if these are uint8, and otherwise of their dtype.

        Raises
        ------
        ValueError
            `pixels` has another shape or dtype, or `out` does not fit.
        """
        floats = pixels.is_floating_point()
        alike = len({*zip(*self.affine, strict=True)}) == 1
        channels = (1, 3) if alike else (3,)
        known = floats or pixels.dtype == torch.uint8
        if not known or pixels.ndim < 3 or pixels.shape[-3] not in channels:
            raise ValueError(
                "Normalize takes uint8 pixels or floats of shape (..., 3, H, W), not "
                f"{tuple(pixels.shape)} of {pixels.dtype}"
            )
        dtype = pixels.dtype if floats else torch.float32
        if out is not None and (out.shape != pixels.shape or out.dtype != dtype):
            raise ValueError(
                f"out must be {tuple(pixels.shape)} of {dtype}, "
                f"not {tuple(out.shape)} of {out.dtype}"
            )
        if floats:
            return self._normalize_floats(pixels, out)
        factor, bias = (one[: pixels.shape[-3]] for one in self._constants(pixels.device))
        if out is None and pixels.device.type != "cpu":
            # Type promotion converts the bytes in the same kernel, without one just for that.
            values = torch.empty_like(pixels, dtype=torch.float32)
            return torch.mul(pixels, factor, out=values).add_(bias)
        # On the CPU, converting first is faster than a multiplication of mixed dtypes.
        values = pixels.float() if out is None else out.copy_(pixels)
        return values.mul_(factor).add_(bias)

    def _normalize_floats(self, pixels: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Subtract and divide in the dtype of the pixels, as torchvision does."""
        if out is not None:
            values = out.copy_(pixels)
        else:
            values = pixels if self.inplace else pixels.clone()
        if self.mean is None or self.std is None:
            return values
        mean, std = (
            torch.tensor(three[: pixels.shape[-3]], dtype=pixels.dtype, device=pixels.device)
            for three in (self.mean, self.std)
        )
        return values.sub_(mean.view(-1, 1, 1)).div_(std.view(-1, 1, 1))

    def undo(self, values: torch.Tensor) -> torch.Tensor:
        """Return the uint8 pixels from which normalised values were made.

        Parameters
        ----------
        values : tensor, (..., 3, H, W)

        Returns
        -------
        tensor of uint8, (..., 3, H, W)
            The nearest level of each value.
        """
        factor, bias = self._constants(values.device)
        return ((values - bias) / factor).round_().clamp_(0, 255).to(torch.uint8)

    def _constants(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """Return factor and bias on a device; keep a copy each, as threads may use several.

        The copy is synchronous, so any stream may use the result.
        """
        if device not in self._on:
            factor, bias = self._on[torch.device("cpu")]
            with torch.inference_mode(mode=False):  # inference tensors would fail outside it
                self._on[device] = factor.to(device), bias.to(device)
        return self._on[device]

    def __getstate__(self) -> dict[str, Any]:
        # A process that unpickles this should not initialise the device.
        cpu = torch.device("cpu")
        return {**self.__dict__, "_on": {cpu: self._on[cpu]}}

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


def three_values(values: Any) -> tuple[float, float, float] | None:
    """Return 3 floats from 3 values or from 1 for all; None for all but 1 or 3 finite numbers."""
    listed = values.tolist() if isinstance(values, (torch.Tensor, np.ndarray)) else values
    if not isinstance(listed, Iterable) or isinstance(listed, (str, bytes)):
        return None
    numbers = tuple(listed)
    known = all(isinstance(number, (Real, np.generic, torch.Tensor)) for number in numbers)
    if len(numbers) not in (1, 3) or not known:
        return None
    red, green, blue = three = [float(number) for number in numbers * (3 // len(numbers))]
    return (red, green, blue) if all(map(math.isfinite, three)) else None


def _check_three_values(name: str, values: Any) -> tuple[float, float, float]:
    numbers = three_values(values)
    if numbers is None:
        raise ValueError(
            f"{name} must be three numbers, for red, green and blue, or one for all, not {values!r}"
        )
    return numbers
