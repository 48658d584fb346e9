"""`OpenCVResize` and `LetterBox`: resizes with OpenCV's results, which are not antialiased."""

from __future__ import annotations

from typing import Any, Literal

from fastdecode._arguments import FLAG, check_kinds, check_word
from fastdecode.native._augment import Operation, Program, do, fitted, padded_to
from fastdecode.torch.transforms.base import check_size, check_size_pair, is_number
from fastdecode.torch.transforms.images import ImageTransform

_FILTERS = ("linear", "area", "nearest")
_Filter = Literal["linear", "area", "nearest"]


class OpenCVResize(ImageTransform):
    """Resize an image as ``cv2.resize`` does, within one level.

    In a `Loader` the core does so while it decodes, or wherever it stands in a pipeline.

    Parameters
    ----------
    size : int or (height, width)
        Size of the result in pixels; an int is the shorter side, and the other one is rounded.
    interpolation : {"linear", "area", "nearest"}
        OpenCV's ``INTER_LINEAR``, ``INTER_AREA`` or ``INTER_NEAREST``.

    Raises
    ------
    ValueError
        An argument is invalid; or, when called, ``"area"`` would shrink one side and enlarge the
        other.

    Examples
    --------
    >>> import numpy as np
    >>> from fastdecode.torch.transforms import OpenCVResize
    >>> OpenCVResize((32, 48))(np.zeros((240, 320, 3), np.uint8)).shape
    (32, 48, 3)
    """

    def __init__(self, size: Any, interpolation: _Filter = "linear") -> None:
        self.size = check_size("size", size)
        check_word("interpolation", interpolation, _FILTERS)
        self.interpolation = interpolation
        if isinstance(self.size, tuple):
            sides = self.size[::-1]
            self.program = do(Operation("resize", sides, interpolation, library="opencv"))
        else:
            self.program = fitted((self.size, self.size), interpolation, covers=True)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(size={self.size}, interpolation={self.interpolation!r})"


class LetterBox(OpenCVResize):
    """Fit an image into a size, and pad it there, as ultralytics' ``LetterBox`` does.

    Parameters
    ----------
    size : int or (height, width)
        Size of the result in pixels; an int is used for both sides.
    fill : int
        The level of the padding.
    enlarges : bool
        Whether a smaller image is enlarged; ``scaleup`` in ultralytics.
    center : bool
        Whether the image is in the middle, and not at the left and the top.

    Raises
    ------
    ValueError
        An argument is invalid.

    Examples
    --------
    >>> import numpy as np
    >>> from fastdecode.torch.transforms import LetterBox
    >>> boxed = LetterBox(64)(np.zeros((240, 320, 3), np.uint8))
    >>> boxed.shape, int(boxed[0, 0, 0])
    ((64, 64, 3), 114)
    """

    def __init__(
        self, size: Any = 640, fill: int = 114, *, enlarges: bool = True, center: bool = True
    ) -> None:
        self.size = height, width = check_size_pair("size", size)
        flags = {"enlarges": enlarges, "center": center}
        check_kinds(flags, dict.fromkeys(flags, FLAG))
        if not is_number(fill) or not 0 <= fill <= 255 or fill != int(fill):
            raise ValueError(f"fill must be a level from 0 to 255, not {fill!r}")
        self.fill, self.enlarges, self.center = int(fill), enlarges, center
        share = 0.5 if center else 0.0
        fits = fitted((height, width), most=0.0 if enlarges else 1.0)
        pads = padded_to((height, width), fill=(self.fill,) * 3, before=(share, share))
        self.program = Program([*fits, *pads])

    def __repr__(self) -> str:
        how = f"enlarges={self.enlarges}, center={self.center}"
        return f"{type(self).__name__}(size={self.size}, fill={self.fill}, {how})"
