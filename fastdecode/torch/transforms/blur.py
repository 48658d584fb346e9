"""`GaussianBlur`: the blur of DINO's and MoCo's pipelines."""

from __future__ import annotations

import torch
from PIL import Image, ImageFilter

from fastdecode.torch.transforms.base import is_number


class GaussianBlur:
    """Blur a Pillow image by a random radius, as ``utils.GaussianBlur`` of DINO does.

    It calls ``PIL.ImageFilter.GaussianBlur``. Use it in place of a class of your own, which `fuse`
    does not know: then a `Loader` blurs in the core, with the same bytes as Pillow. (For
    torchvision's GaussianBlur, which has a kernel, the `Loader` does so without this class.)

    Parameters
    ----------
    p : float
        Probability.
    radius_min, radius_max : float
        Range of the radius, in pixels.

    Raises
    ------
    ValueError
        An argument is out of its range.

    Examples
    --------
    >>> from fastdecode.torch.transforms import GaussianBlur
    >>> GaussianBlur(p=0.1, radius_max=1.5)
    GaussianBlur(p=0.1, radius_min=0.1, radius_max=1.5)
    """

    def __init__(self, p: float = 0.5, radius_min: float = 0.1, radius_max: float = 2.0) -> None:
        if not is_number(p) or not 0 <= p <= 1:
            raise ValueError(f"p must be a probability from 0 to 1, not {p!r}")
        if not (is_number(radius_min) and is_number(radius_max)) or not (
            0 <= radius_min <= radius_max <= 1000
        ):
            raise ValueError(
                f"radius_min and radius_max must be numbers from 0 to 1000, not {radius_min!r} "
                f"and {radius_max!r}"
            )
        self.p = p
        self.radius_min = radius_min
        self.radius_max = radius_max

    def __call__(self, image: Image.Image) -> Image.Image:
        """Return the image, blurred or not."""
        if torch.rand(1).item() >= self.p:
            return image
        radius = torch.empty(1).uniform_(self.radius_min, self.radius_max).item()
        return image.filter(ImageFilter.GaussianBlur(radius))

    def __repr__(self) -> str:
        name = type(self).__name__
        return f"{name}(p={self.p}, radius_min={self.radius_min}, radius_max={self.radius_max})"
