"""`Compose` and `ToTensor`: pipelines without torchvision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import indent
from typing import Any

import numpy as np
import torch
from PIL import Image as PillowImage

from fastdecode._decode import lazy
from fastdecode.torch.transforms.images import as_tensor


class Compose:
    """Call several transforms in turn, as torchvision's ``Compose`` does.

    All transforms of this package take Pillow images in it, also those that take files elsewhere.
    As the `transform` of a dataset, it decodes only what it uses.

    Parameters
    ----------
    transforms : sequence of callables
        Of this package, torchvision, timm or your own.

    Raises
    ------
    TypeError, ValueError
        There is no transform, or one is not callable.

    Examples
    --------
    >>> from fastdecode.torch import transforms
    >>> transform = transforms.Compose([transforms.LetterBox(640), transforms.ToTensor()])
    >>> transform(data).shape
    torch.Size([3, 640, 640])
    """

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        held = self.transforms = transforms
        if isinstance(held, (str, dict)) or not callable(getattr(held, "__iter__", None)):
            raise TypeError(f"transforms must be a sequence of callables, not {held!r}")
        if not list(held) or not all(map(callable, held)):
            raise ValueError(f"transforms must be callables, and at least one, not {held!r}")

    def __call__(self, image: Any) -> Any:
        """Return what the transforms make of an image, or of the bytes of a file."""
        if isinstance(image, (bytes, bytearray, memoryview)):
            image = lazy.open(image).convert("RGB")
        for part in self.transforms:
            image = part(image)
        return image

    def __repr__(self) -> str:
        lines = "".join(indent(f"{part!r}\n", "    ") for part in self.transforms)
        return f"Compose(\n{lines})"


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
