"""`SmartResize` and `PadToSquare`: how vision-language models size their images."""

from __future__ import annotations

from typing import Any

from fastdecode._arguments import is_int
from fastdecode.native._augment import in_multiples, squared
from fastdecode.torch.transforms.images import ImageTransform

_LEVELS = 255
_CHANNELS = 3


class SmartResize(ImageTransform):
    """Resize an image as Qwen2-VL's ``smart_resize`` says, with Pillow's bicubic filter.

    Both sides become multiples of `factor`, with the aspect ratio and the number of pixels as near
    to the image's as the limits allow. In a `Loader` the core does so while it decodes.

    Parameters
    ----------
    factor : int
        What both sides are multiples of: 28 for Qwen2-VL and Qwen2.5-VL, 32 for Qwen3-VL.
    min_pixels, max_pixels : int
        The limits of the number of pixels.

    Raises
    ------
    ValueError
        An argument is invalid; or, when called, one side is more than 200 times the other.

    Examples
    --------
    >>> import numpy as np
    >>> from fastdecode.torch.transforms import SmartResize
    >>> SmartResize()(np.zeros((480, 645, 3), np.uint8)).shape
    (476, 644, 3)
    """

    def __init__(
        self, factor: int = 28, min_pixels: int = 56 * 56, max_pixels: int = 28 * 28 * 1280
    ) -> None:
        numbers = (factor, min_pixels, max_pixels)
        if not all(is_int(one) and one > 0 for one in numbers) or min_pixels > max_pixels:
            raise ValueError(
                "factor, min_pixels and max_pixels must be positive integers, and max_pixels the "
                f"larger one, not {factor!r}, {min_pixels!r} and {max_pixels!r}"
            )
        self.factor, self.min_pixels, self.max_pixels = numbers
        super().__init__(in_multiples(factor, (min_pixels, max_pixels), "bicubic"))

    def __repr__(self) -> str:
        limits = f"min_pixels={self.min_pixels}, max_pixels={self.max_pixels}"
        return f"{type(self).__name__}(factor={self.factor}, {limits})"


class PadToSquare(ImageTransform):
    """Pad an image to a square, in whose middle it then is, as LLaVA's ``expand2square`` does.

    Parameters
    ----------
    fill : int or (red, green, blue)
        The levels of the border; by default the mean of CLIP's images.

    Raises
    ------
    ValueError
        An argument is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> from fastdecode.torch.transforms import PadToSquare
    >>> PadToSquare()(np.zeros((240, 320, 3), np.uint8)).shape
    (320, 320, 3)
    """

    def __init__(self, fill: Any = (122, 116, 104)) -> None:
        levels = (fill,) * _CHANNELS if is_int(fill) else fill
        known = isinstance(levels, (tuple, list)) and len(levels) == _CHANNELS
        if not known or not all(is_int(one) and 0 <= one <= _LEVELS for one in levels):
            raise ValueError(f"fill must be one level from 0 to 255, or three, not {fill!r}")
        red, green, blue = map(int, levels)
        self.fill = red, green, blue
        super().__init__(squared(self.fill))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(fill={self.fill})"
