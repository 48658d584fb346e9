"""`GaussianBlur`: torchvision's, and that of DINO's and MoCo's pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import torch
from PIL import ImageFilter

from fastdecode.torch.transforms.base import check_size_pair, is_number
from fastdecode.torch.transforms.images import (
    ImageTransform,
    check_pair,
    check_probability,
    through_tensor,
)

_LARGEST_KERNEL, _LARGEST_RADIUS = 255, 1000


class GaussianBlur(ImageTransform):
    """Blur an image by a random amount: as torchvision's ``GaussianBlur``, or as DINO's.

    Parameters
    ----------
    kernel_size : odd int, at most 255, or (across, down)
        Of the kernel, in pixels; with it, this is torchvision's blur.
    sigma : float or (low, high)
        Range of the standard deviation, in pixels; 0.1 to 2 by default.
    p : float
        Probability; without a kernel, this is ``utils.GaussianBlur`` of DINO, which calls
        ``PIL.ImageFilter.GaussianBlur``, and the first argument.
    radius_min, radius_max : float
        Range of the radius, in pixels.

    Raises
    ------
    ValueError
        An argument is out of its range.

    Notes
    -----
    In a `Loader` the core blurs, with the same bytes as Pillow, as it does for most such classes of
    your own.

    Examples
    --------
    >>> from fastdecode.torch.transforms import GaussianBlur
    >>> GaussianBlur(p=0.1, radius_max=1.5)
    GaussianBlur(p=0.1, radius_min=0.1, radius_max=1.5)
    >>> GaussianBlur(23, sigma=(0.1, 2.0))
    GaussianBlur(kernel_size=(23, 23), sigma=(0.1, 2.0))
    """

    @overload
    def __init__(
        self, kernel_size: int | Sequence[int], sigma: float | Sequence[float] = (0.1, 2.0)
    ) -> None: ...

    @overload
    def __init__(
        self, p: float = 0.5, radius_min: float = 0.1, radius_max: float = 2.0
    ) -> None: ...

    def __init__(self, *given: Any, **named: Any) -> None:
        # DINO's probability is the first argument of its class, and may be written as an int.
        kernel = given[0] if given else named.get("kernel_size", 0)
        by_radius = "kernel_size" not in named and (isinstance(kernel, float) or kernel in (0, 1))
        self.kernel_size: tuple[int, int] | None = None
        (self._with_radius if by_radius else self._with_kernel)(*given, **named)

    def _with_kernel(self, kernel_size: Any, sigma: Any = (0.1, 2.0)) -> None:
        self.kernel_size = check_size_pair("kernel_size", kernel_size)
        if any(side % 2 == 0 or side > _LARGEST_KERNEL for side in self.kernel_size):
            raise ValueError(f"kernel_size must be odd, and at most 255, not {kernel_size}")
        self.sigma = check_pair("sigma", (sigma, sigma) if is_number(sigma) else sigma, 1e-5, 1e5)

    def _with_radius(self, p: Any = 0.5, radius_min: Any = 0.1, radius_max: Any = 2.0) -> None:
        check_probability(p)
        check_pair("radius_min and radius_max", (radius_min, radius_max), 0, _LARGEST_RADIUS)
        self.p, self.radius_min, self.radius_max = p, radius_min, radius_max

    def __call__(self, image: Any) -> Any:
        """Return the image, blurred or not; DINO's blur takes Pillow images."""
        if self.kernel_size is not None:
            return through_tensor(image, super().__call__)
        if torch.rand(1).item() >= self.p:
            return image
        radius = torch.empty(1).uniform_(self.radius_min, self.radius_max).item()
        return image.filter(ImageFilter.GaussianBlur(radius))

    def __repr__(self) -> str:
        held = {name: value for name, value in vars(self).items() if value is not None}
        return f"GaussianBlur({', '.join(f'{name}={value!r}' for name, value in held.items())})"
