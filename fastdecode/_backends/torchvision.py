"""torchvision.io: libjpeg-turbo to a tensor; deprecated since 0.29 in favour of torchcodec."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # The import warns about optional parts (libpng, libjpeg), which says nothing about JPEG.
    warnings.simplefilter("ignore")
    from torchvision import io

# After torchvision: if that is missing, this import, which takes seconds, is not needed.
import torch

from fastdecode._backends.base import JPEG, Backend
from fastdecode.types import Buffer, Header, Image, PixelLayout

if not hasattr(torch.ops.image, "decode_jpeg"):
    raise ImportError("torchvision's compiled extension, which decodes, cannot be loaded")

_MODE = {"RGB": io.ImageReadMode.RGB, "L": io.ImageReadMode.GRAY}


class Torchvision(Backend):
    """JPEG only: ``torchvision.io.decode_jpeg``.

    Its PNG decoder is not declared: 0.29.2 crashes on damaged files.
    """

    distribution = "torchvision"
    supports = {"jpeg": (JPEG,)}

    def decode(self, data: Buffer, header: Header, *, layout: PixelLayout, **_: object) -> Image:
        source = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        tensor = io.decode_jpeg(source, mode=_MODE[layout])
        image: Image = tensor.permute(1, 2, 0).numpy()
        return image[:, :, 0] if layout == "L" else image
