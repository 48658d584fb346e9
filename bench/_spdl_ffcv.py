"""SPDL's and FFCV's pipelines, which the scripts compare with, each as its documentation has it.

Both make the crops of `_pipelines.py`. SPDL decodes, crops, resizes and flips with FFmpeg in
threads, and PyTorch makes the floats of a batch. FFCV reads a file of its own, which is written
before the clock starts, with the photos as JPEGs of quality 90; Numba compiles the rest.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fastdecode.measure._pipelines import MEAN, PREFETCH, RATIO, SCALE, STD
from fastdecode.torch.transforms._random_crop import TorchDraws

_SHORT = 8 / 7  # Resize(256) before CenterCrop(224)


class SpdlLoader:
    """A pipeline of SPDL: threads decode, one of them collates."""

    def __init__(self, setup: Any) -> None:
        import spdl.io as spdl

        spdl.demux_image(setup.samples[0][0])  # raises what its threads do not: no FFmpeg
        self._setup = setup
        # Once a batch, on its channels: as SPDL's example for ImageNet does it on the GPU.
        self._scale = (1 / (255 * torch.tensor(STD))).view(1, 3, 1, 1)
        self._shift = (-torch.tensor(MEAN) / torch.tensor(STD)).view(1, 3, 1, 1)

    def _filters(self, width: int, height: int) -> str:
        size = self._setup.size
        if not self._setup.train:
            side = round(size * _SHORT)
            shorter = f"scale={side}:{side}:force_original_aspect_ratio=increase:flags=bilinear"
            return f"{shorter},crop={size}:{size},format=pix_fmts=rgb24"
        left, top, right, bottom = TorchDraws().box(width, height, SCALE, RATIO)
        crop = f"crop={right - left}:{bottom - top}:{left}:{top}:exact=1"
        flip = ",hflip" if random.random() < 0.5 else ""
        return f"{crop},scale={size}:{size}:flags=bilinear{flip},format=pix_fmts=rgb24"

    def _decode(self, sample: tuple[str, int]) -> tuple[Any, int]:
        import spdl.io as spdl

        packets = spdl.demux_image(sample[0])
        filters = self._filters(packets.width, packets.height)
        return spdl.decode_packets(packets, filter_desc=filters), sample[1]

    def _collate(self, samples: list[tuple[Any, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        import spdl.io as spdl

        frames, labels = zip(*samples, strict=True)
        images = spdl.to_torch(spdl.convert_frames(list(frames))).permute(0, 3, 1, 2)
        floats = images.to(torch.float32, memory_format=torch.contiguous_format)
        return floats.mul_(self._scale).add_(self._shift), torch.tensor(labels)

    def __iter__(self) -> Iterator[Any]:
        from spdl.pipeline import PipelineBuilder

        samples, workers = list(self._setup.samples), self._setup.workers
        if self._setup.train:
            random.shuffle(samples)
        pipeline = (
            PipelineBuilder()
            .add_source(samples)
            .pipe(self._decode, concurrency=workers, output_order="input")
            .aggregate(self._setup.batch)
            .pipe(self._collate)
            .add_sink(PREFETCH)
            .build(num_threads=workers)
        )
        with pipeline.auto_stop():
            yield from pipeline.get_iterator()


class FfcvLoader:
    """FFCV's loader over a file that its writer makes."""

    def __init__(self, setup: Any) -> None:
        from ffcv.fields import IntField, RGBImageField
        from ffcv.fields.basics import IntDecoder
        from ffcv.fields.rgb_image import (
            CenterCropRGBImageDecoder,
            RandomResizedCropRGBImageDecoder,
        )
        from ffcv.loader import Loader, OrderOption
        from ffcv.transforms import (
            NormalizeImage,
            RandomHorizontalFlip,
            Squeeze,
            ToTensor,
            ToTorchImage,
        )
        from ffcv.writer import DatasetWriter

        self._folder = tempfile.TemporaryDirectory()
        file, side = str(Path(self._folder.name, "photos.beton")), (setup.size, setup.size)
        fields = {"image": RGBImageField(write_mode="jpg", jpeg_quality=90), "label": IntField()}
        writer = DatasetWriter(file, fields, num_workers=1)
        writer.from_indexed_dataset(_Opened(setup.samples))
        normalised = NormalizeImage(255 * np.array(MEAN), 255 * np.array(STD), np.float32)
        if setup.train:
            crop: list[Any] = [RandomResizedCropRGBImageDecoder(side), RandomHorizontalFlip()]
        else:
            crop = [CenterCropRGBImageDecoder(side, 1 / _SHORT)]
        image = [*crop, normalised, ToTensor(), ToTorchImage(channels_last=False)]
        self._loader = partial(
            Loader,
            *(file, setup.batch),
            num_workers=setup.workers,
            order=OrderOption.RANDOM if setup.train else OrderOption.SEQUENTIAL,
            os_cache=True,
            drop_last=False,
            pipelines={"image": image, "label": [IntDecoder(), ToTensor(), Squeeze()]},
        )()

    def __iter__(self) -> Iterator[Any]:
        for images, labels in self._loader:
            yield images.contiguous(), labels


class _Opened:
    """The photos and labels that FFCV writes into its file."""

    def __init__(self, samples: Any) -> None:
        self._samples = samples

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        path, label = self._samples[index]
        with Image.open(path) as file:
            return file.convert("RGB"), label
