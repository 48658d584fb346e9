"""torchcodec: PyTorch's own image decoders, the successors of torchvision's."""

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
        # torchcodec always applies the EXIF orientation.
        image = _pixels.undo_orientation(tensor.permute(1, 2, 0).numpy(), header.orientation)
        return image[:, :, 0] if layout == "L" else image


class TorchcodecBatch(BatchBackend):
    """JPEG on CUDA: ``torchcodec.decoders.decode_jpeg`` of a list, with nvJPEG.

    Its pixels differ because it does not interpolate chroma. It allocates and decodes on PyTorch's
    current stream, and returns when the images are decoded.
    """

    distribution = "torchcodec"
    frees_in_order = True  # PyTorch allocates the memory
    supports = {"jpeg": (NVJPEG,)}

    def __init__(self, device: torch.device, threads: int) -> None:
        need_device(device)
        self._device = device
        try_out(self)  # torchcodec may be built without nvJPEG

    def decode(
        self, items: Sequence[BatchItem], layout: Literal["RGB", "L"]
    ) -> Sequence[torch.Tensor | None]:
        # With "UNCHANGED", a grey image has one channel, which `expand` repeats for RGB.
        mode = "GRAY" if layout == "L" else "UNCHANGED"
        sources = [_without_exif(item) for item in items]
        images = torchcodec.decoders.decode_jpeg(sources, mode=mode, device=self._device)
        channels = 1 if layout == "L" else 3
        return [image.expand(channels, -1, -1) for image in images]


def _without_exif(item: BatchItem) -> bytes:
    """Return the file without its EXIF orientation, which torchcodec would always apply."""
    if item.header.orientation == 1:
        return bytes(item.data)
    scan = item.header.scan_offset
    return bytes(item.data[:scan]).replace(b"Exif\0\0", b"exif\0\0") + bytes(item.data[scan:])
