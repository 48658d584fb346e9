"""torchvision.io: libjpeg-turbo into a tensor; deprecated since 0.29 in favour of torchcodec."""

from __future__ import annotations

import warnings

import torch

with warnings.catch_warnings():
    # Its import warns of optional parts (libpng, libjpeg) that say nothing about JPEG.
    warnings.simplefilter("ignore")
    from torchvision import io

from fastdecode.adapters.base import Backend, Support
from fastdecode.types import Box, Buffer, Header, Image, PixelLayout, Reduce

__all__ = ["Torchvision"]

_MODE = {"RGB": io.ImageReadMode.RGB, "L": io.ImageReadMode.GRAY}


class Torchvision(Backend):
    """JPEG only: ``torchvision.io.decode_jpeg``.

    Its PNG decoder is not declared: 0.29.2 crashes on damaged files.
    """

    distribution = "torchvision"
    supports = {
        "jpeg": (
            Support(
                layouts=frozenset({"RGB", "L"}),
                codings=frozenset({"baseline", "progressive", "arithmetic"}),
                colors=frozenset({"gray", "ycc", "rgb"}),
            ),
        ),
    }

    def decode(
        self,
        data: Buffer,
        header: Header,
        *,
        reduce: Reduce,
        layout: PixelLayout,
        window: Box | None,
        out: Image | None,
        strict: bool,
    ) -> Image:
        source = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        tensor = io.decode_jpeg(source, mode=_MODE[layout])
        image: Image = tensor.permute(1, 2, 0).numpy()
        return image[:, :, 0] if layout == "L" else image
