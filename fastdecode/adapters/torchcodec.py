"""torchcodec: PyTorch's own image decoders, which took over from torchvision's."""

from __future__ import annotations

import torchcodec.decoders

from fastdecode import orientation
from fastdecode.adapters.base import Backend, Support
from fastdecode.types import Box, Buffer, Header, Image, PixelLayout, Reduce

__all__ = ["Torchcodec"]

_MODE = {"RGB": "RGB", "L": "GRAY"}


class Torchcodec(Backend):
    """JPEG and PNG: ``torchcodec.decoders.decode_jpeg`` and ``decode_png``."""

    distribution = "torchcodec"
    supports = {
        "jpeg": (
            Support(
                layouts=frozenset({"RGB", "L"}),
                codings=frozenset({"baseline", "progressive", "arithmetic"}),
                colors=frozenset({"gray", "ycc", "rgb"}),
            ),
        ),
        "png": (Support(animated=False),),
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
        decoders = torchcodec.decoders
        decoder = decoders.decode_jpeg if header.format == "jpeg" else decoders.decode_png
        tensor = decoder(bytes(data), mode=_MODE[layout])
        # It always applies the EXIF orientation: take it back.
        image = orientation.undo(tensor.permute(1, 2, 0).numpy(), header.orientation)
        return image[:, :, 0] if layout == "L" else image
