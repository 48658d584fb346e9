"""From bytes 0 to 255 to the floats that a network was trained on."""

from __future__ import annotations

from collections.abc import Sequence

import torch

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "Normalize"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Means of red, green and blue over ImageNet, 0 to 1, as the field's models were trained with."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Their standard deviations."""


class Normalize:
    """``(value / 255 - mean) / std`` for uint8 pixels, on whatever device they are.

    Parameters
    ----------
    mean, std : sequence of 3 floats, or None
        On a scale of 0 to 1. A mean of None leaves values of 0 to 1.

    Notes
    -----
    The same as torchvision's ``ToDtype(float32, scale=True)`` and ``Normalize``, in one
    multiplication and one addition.
    """

    def __init__(
        self,
        mean: Sequence[float] | None = IMAGENET_MEAN,
        std: Sequence[float] | None = IMAGENET_STD,
    ) -> None:
        self.mean = None if mean is None else _three("mean", mean)
        self.std = None if mean is None else _three("std", std)
        if self.std is not None and 0 in self.std:
            raise ValueError(f"std must not hold a zero, but is {self.std}")
        means = torch.tensor(self.mean or (0.0, 0.0, 0.0), dtype=torch.float64)
        stds = torch.tensor(self.std or (1.0, 1.0, 1.0), dtype=torch.float64)
        self._factor = (1 / (255 * stds)).float().view(3, 1, 1)
        self._bias = (-means / stds).float().view(3, 1, 1)

    def __call__(self, pixels: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
        """Normalise.

        Parameters
        ----------
        pixels : tensor of uint8, (..., 3, H, W)
        out : tensor of float32, (..., 3, H, W), optional
            Where to write, with any strides.

        Returns
        -------
        tensor of float32, (..., 3, H, W)
            On the device of `pixels`.
        """
        if pixels.dtype != torch.uint8 or pixels.ndim < 3 or pixels.shape[-3] != 3:
            raise ValueError(
                "Normalize takes uint8 pixels of shape (..., 3, H, W), not "
                f"{tuple(pixels.shape)} of {pixels.dtype}"
            )
        if self._factor.device != pixels.device:  # once, when batches begin to come on a device
            self._factor, self._bias = self._factor.to(pixels.device), self._bias.to(pixels.device)
        return torch.mul(pixels, self._factor, out=out).add_(self._bias)

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


def _three(name: str, values: Sequence[float] | None) -> tuple[float, float, float]:
    numbers = tuple(float(value) for value in values or ())
    if len(numbers) != 3:
        raise ValueError(f"{name} must be three numbers, for red, green and blue, not {values!r}")
    return numbers
