"""torchcodec: PyTorch's own image decoders, the successors of torchvision's."""

from __future__ import annotations

import torchcodec.decoders

from fastdecode import _pixels
from fastdecode.adapters.base import JPEG, Backend, Support
from fastdecode.types import Buffer, Header, Image, PixelLayout

__all__ = ["Torchcodec"]

_MODE = {"RGB": "RGB", "L": "GRAY"}


class Torchcodec(Backend):
    """JPEG and PNG: ``torchcodec.decoders.decode_jpeg`` and ``decode_png``."""

    distribution = "torchcodec"
    supports = {
        "jpeg": (JPEG,),
        "png": (Support(animated=False),),
    }

    def decode(self, data: Buffer, header: Header, *, layout: PixelLayout, **_: object) -> Image:
        decoders = torchcodec.decoders
        decoder = decoders.decode_jpeg if header.format == "jpeg" else decoders.decode_png
        tensor = decoder(bytes(data), mode=_MODE[layout])
        # torchcodec always applies the EXIF orientation.
        image = _pixels.undo_orientation(tensor.permute(1, 2, 0).numpy(), header.orientation)
        return image[:, :, 0] if layout == "L" else image
