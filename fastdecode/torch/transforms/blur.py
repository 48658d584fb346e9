"""`GaussianBlur`: the blur of DINO's, MoCo's and BYOL's pipelines."""

from __future__ import annotations

from typing import Any

import torch
from PIL import ImageFilter

from fastdecode.torch.transforms.base import is_number

_LARGEST_RADIUS = 1000


class GaussianBlur:
    """Blur an image by a random amount, as ``utils.GaussianBlur`` of DINO does.

    Parameters
    ----------
    p : float
        Probability.
    radius_min, radius_max : float
        Range of the radius of ``PIL.ImageFilter.GaussianBlur``, in pixels.

    Raises
    ------
    ValueError
        An argument is out of its range.

    Notes
    -----
    In a `Loader` the core blurs, with the same bytes as Pillow.

    Examples
    --------
    >>> from fastdecode.torch.transforms import GaussianBlur
    >>> GaussianBlur(p=0.1, radius_max=1.5)
    GaussianBlur(p=0.1, radius_min=0.1, radius_max=1.5)
    """

    def __init__(self, p: float = 0.5, radius_min: float = 0.1, radius_max: float = 2.0) -> None:
        if not is_number(p) or not 0 <= p <= 1:
            raise ValueError(f"p must be a probability from 0 to 1, not {p!r}")
        known = is_number(radius_min) and is_number(radius_max)
        if not known or not 0 <= radius_min <= radius_max <= _LARGEST_RADIUS:
            limits = f"0 <= radius_min <= radius_max <= {_LARGEST_RADIUS}"
            raise ValueError(f"it must be {limits}, not {radius_min!r} and {radius_max!r}")
        self.p, self.radius_min, self.radius_max = p, radius_min, radius_max

    def __call__(self, image: Any) -> Any:
        """Return a Pillow image, blurred or not."""
        if torch.rand(1).item() >= self.p:
            return image
        radius = torch.empty(1).uniform_(self.radius_min, self.radius_max).item()
        return image.filter(ImageFilter.GaussianBlur(radius))

    def __repr__(self) -> str:
        held = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"GaussianBlur({held})"
