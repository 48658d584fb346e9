"""torchvision.io: libjpeg-turbo to a tensor; deprecated since 0.29 in favour of torchcodec."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal

with warnings.catch_warnings():
    # The import warns about optional parts (libpng, libjpeg), which says nothing about JPEG.
    warnings.simplefilter("ignore")
    from torchvision import io

# After torchvision: if that is missing, this import, which takes seconds, is not needed.
import torch

from fastdecode.adapters.base import JPEG_ON_CPU, Backend
from fastdecode.adapters.batch_base import NVJPEG, BatchBackend, BatchItem, need_device, try_out
from fastdecode.types import Buffer, Header, Image, PixelLayout

__all__ = ["Torchvision", "TorchvisionBatch"]

_cuda: Any = torch.cuda  # only partly annotated
_MODE = {"RGB": io.ImageReadMode.RGB, "L": io.ImageReadMode.GRAY}


class Torchvision(Backend):
    """JPEG only: ``torchvision.io.decode_jpeg``.

    Its PNG decoder is not declared: 0.29.2 crashes on damaged files.
    """

    distribution = "torchvision"
    supports = {"jpeg": (JPEG_ON_CPU,)}

    def decode(self, data: Buffer, header: Header, *, layout: PixelLayout, **_: object) -> Image:
        source = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        tensor = io.decode_jpeg(source, mode=_MODE[layout])
        image: Image = tensor.permute(1, 2, 0).numpy()
        return image[:, :, 0] if layout == "L" else image


class TorchvisionBatch(BatchBackend):
    """JPEG on CUDA: ``torchvision.io.decode_jpeg`` of a list, with nvJPEG.

    Its pixels differ because it does not interpolate chroma.

    torchvision writes on its own stream and does not wait for the caller's stream. It may write
    into memory blocks that PyTorch reuses while the caller's stream still reads the images in them
    (pytorch/vision#9606). So this class allocates the blocks on a stream that does nothing else.
    PyTorch then reuses a block only after every stream recorded for it (`record_stream`) is done.
    """

    distribution = "torchvision"
    frees_in_order = True  # PyTorch allocates the memory, and the caller's stream is recorded
    supports = {"jpeg": (NVJPEG,)}

    def __init__(self, device: torch.device, threads: int) -> None:
        need_device(device)
        self._device = device
        self._blocks = _cuda.Stream(device)
        try_out(self)  # torchvision may be built without nvJPEG

    def decode(
        self, items: Sequence[BatchItem], layout: Literal["RGB", "L"]
    ) -> Sequence[torch.Tensor | None]:
        caller = _cuda.current_stream(self._device)
        with _cuda.device(self._device), _cuda.stream(self._blocks):
            # PyTorch has 32 streams and assigns them in turn. So other code may use this stream as
            # well, and free blocks on it that are still read.
            self._blocks.synchronize()
            images = self._decode(items, layout)
        caller.wait_stream(self._blocks)
        for image in images:
            image.record_stream(caller)
        return images

    def _decode(self, items: Sequence[BatchItem], layout: str) -> list[torch.Tensor]:
        made: dict[int, torch.Tensor] = {}
        for mode in ("L", "RGB"):
            # A grey image is decoded as grey, and `expand` repeats its one channel for RGB.
            places = [
                at
                for at, item in enumerate(items)
                if (layout == "L" or item.header.color == "gray") == (mode == "L")
            ]
            sources = [
                torch.frombuffer(bytearray(items[at].data), dtype=torch.uint8) for at in places
            ]
            if sources:
                images = io.decode_jpeg(sources, mode=_MODE[mode], device=self._device)
                made.update(zip(places, images, strict=True))
        channels = 1 if layout == "L" else 3
        return [made[at].expand(channels, -1, -1) for at in range(len(items))]
