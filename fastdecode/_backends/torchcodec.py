"""torchcodec: PyTorch's own image decoders, the successors of torchvision's."""

from __future__ import annotations

import torchcodec.decoders

from fastdecode._backends.base import JPEG, Backend, Support
from fastdecode._formats import jpeg
from fastdecode.types import Buffer, Header, Image, PixelLayout

_MODE = {"RGB": "RGB", "L": "GRAY"}


class Torchcodec(Backend):
    """JPEG and PNG: ``torchcodec.decoders.decode_jpeg`` and ``decode_png``."""

    distribution = "torchcodec"
    supports = {
        "jpeg": (JPEG,),
        "png": (Support(animated=False, colors=frozenset({"gray", "rgb"})),),
    }

    def decode(self, data: Buffer, header: Header, *, layout: PixelLayout, **_: object) -> Image:
        decoders = torchcodec.decoders
        if header.format == "jpeg":  # a PNG comes without metadata
            # torchcodec always applies the EXIF orientation, as it understands it.
            tensor = decoders.decode_jpeg(jpeg.without_exif(data), mode=_MODE[layout])
        else:
            tensor = decoders.decode_png(bytes(data), mode=_MODE[layout])
        image: Image = tensor.permute(1, 2, 0).numpy()
        return image[:, :, 0] if layout == "L" else image
