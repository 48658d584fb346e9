"""torchcodec: PyTorch's own image decoders, which took over from torchvision's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torchcodec.decoders

from fastdecode import _pixels
from fastdecode.adapters.base import JPEG_ON_CPU, Backend, Support
from fastdecode.adapters.batch_base import NVJPEG, BatchBackend, BatchItem, need_device, try_out
from fastdecode.types import Buffer, Header, Image, PixelLayout

if TYPE_CHECKING:
    import torch

__all__ = ["Torchcodec", "TorchcodecBatch"]

_MODE = {"RGB": "RGB", "L": "GRAY"}


class Torchcodec(Backend):
    """JPEG and PNG: ``torchcodec.decoders.decode_jpeg`` and ``decode_png``."""

    distribution = "torchcodec"
    supports = {
        "jpeg": (JPEG_ON_CPU,),
        "png": (Support(animated=False),),
    }

    def decode(self, data: Buffer, header: Header, *, layout: PixelLayout, **_: object) -> Image:
        decoders = torchcodec.decoders
        decoder = decoders.decode_jpeg if header.format == "jpeg" else decoders.decode_png
        tensor = decoder(bytes(data), mode=_MODE[layout])
        # It always applies the EXIF orientation: take it back.
        image = _pixels.undo_orientation(tensor.permute(1, 2, 0).numpy(), header.orientation)
        return image[:, :, 0] if layout == "L" else image


class TorchcodecBatch(BatchBackend):
    """JPEG on CUDA: ``torchcodec.decoders.decode_jpeg`` of a list, by nvJPEG.

    It does not interpolate chroma, which is what its pixels differ by. It allocates and decodes on
    PyTorch's current stream, and returns when that is done.
    """

    distribution = "torchcodec"
    frees_in_order = True  # it is PyTorch's memory
    supports = {"jpeg": (NVJPEG,)}

    def __init__(self, device: torch.device, threads: int) -> None:
        need_device(device)
        self._device = device
        try_out(self)  # it may be built without nvJPEG

    def decode(
        self, items: Sequence[BatchItem], layout: Literal["RGB", "L"]
    ) -> Sequence[torch.Tensor | None]:
        # A grey image comes with one channel, and has no chroma to make RGB of.
        mode = "GRAY" if layout == "L" else "UNCHANGED"
        sources = [_without_exif(item) for item in items]
        images = torchcodec.decoders.decode_jpeg(sources, mode=mode, device=self._device)
        channels = 1 if layout == "L" else 3
        return [image.expand(channels, -1, -1) for image in images]


def _without_exif(item: BatchItem) -> bytes:
    """Make it a file that is not turned: it always applies the EXIF orientation."""
    if item.header.orientation == 1:
        return bytes(item.data)
    scan = item.header.scan_offset
    return bytes(item.data[:scan]).replace(b"Exif\0\0", b"exif\0\0") + bytes(item.data[scan:])
