"""More pipelines for `pipeline.py`: torchvision's and DALI's, where they are installed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from pipeline_peers import Peer, Setup, StockLoader
from reference import MEAN, RATIO, RESIZE, SCALE, SIZE, STD, photos_in
from torch.utils.data import Dataset

_PREFETCH = 2  # batches: DALI's default


class TorchvisionV1(StockLoader):
    """torchvision's transforms of the first version, on Pillow's images."""

    title = "torchvision v1, PIL"

    def dataset(self) -> Dataset[Any]:
        from torchvision import datasets, transforms

        chosen = (
            [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()]
            if self.train
            else [transforms.Resize(RESIZE), transforms.CenterCrop(SIZE)]
        )
        last = [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
        return datasets.ImageFolder(self.setup.folder, transforms.Compose([*chosen, *last]))


class TorchvisionV2(StockLoader):
    """torchvision's transforms of the second version, on tensors from its own decoder."""

    title = "torchvision v2, tensors"

    def dataset(self) -> Dataset[Any]:
        from torchvision import datasets
        from torchvision.transforms import v2

        chosen = (
            [v2.RandomResizedCrop(SIZE, antialias=True), v2.RandomHorizontalFlip()]
            if self.train
            else [v2.Resize(RESIZE, antialias=True), v2.CenterCrop(SIZE)]
        )
        last = [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
        return datasets.ImageFolder(
            self.setup.folder, v2.Compose([*chosen, *last]), loader=decode_by_torchvision
        )


def decode_by_torchvision(path: str) -> torch.Tensor:
    """Read a file; (3, H, W) uint8."""
    from torchvision.io import ImageReadMode, decode_image

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # there is another library for it now
        return decode_image(path, ImageReadMode.RGB)


class Dali(Peer):
    """DALI's pipeline on the CPU, its batches made tensors as its plugin for PyTorch makes them."""

    title = "DALI, CPU"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        from nvidia.dali import pipeline_def

        paths = [str(path) for path in photos_in(Path(setup.folder))]
        names = [Path(path).parent.name for path in paths]
        classes = sorted(set(names))
        labels = [classes.index(name) for name in names]
        self._count = -(-len(paths) // setup.batch)
        self._ahead = min(_PREFETCH, self._count)
        self._pipeline = pipeline_def(
            dali_graph,
            batch_size=setup.batch,
            num_threads=setup.workers,
            device_id=None,
            prefetch_queue_depth=self._ahead,
            seed=0,
        )(paths, labels, train=self.train)
        self._pipeline.build()
        self._begun = False

    def batches(self) -> Iterator[torch.Tensor]:
        # Left to itself it would work ahead into the next epoch, before the clock is started.
        pipeline = self._pipeline
        for _ in range(self._ahead if self._begun else 1):  # the very first fills the queue
            pipeline.schedule_run()
        self._begun = True
        for number in range(self._count):
            images, _labels = pipeline.share_outputs()
            batch = torch.from_dlpack(images.as_tensor())
            pipeline.release_outputs()
            if number + self._ahead < self._count:
                pipeline.schedule_run()
            yield batch


def dali_graph(paths: list[str], labels: list[int], *, train: bool) -> Any:
    """Define DALI's operations."""
    from nvidia.dali import fn, types

    files, label = fn.readers.file(files=paths, labels=labels, shuffle_after_epoch=train)
    if train:
        images = fn.decoders.image_random_crop(
            files, random_area=SCALE, random_aspect_ratio=RATIO, adjust_orientation=False
        )
        images = fn.resize(images, size=(SIZE, SIZE))
        mirror = fn.random.coin_flip()
    else:
        images = fn.resize(
            fn.decoders.image(files, adjust_orientation=False), resize_shorter=RESIZE
        )
        mirror = 0
    images = fn.crop_mirror_normalize(
        images,
        crop=(SIZE, SIZE),
        dtype=types.FLOAT,
        output_layout="CHW",
        mean=[255 * value for value in MEAN],
        std=[255 * value for value in STD],
        mirror=mirror,
    )
    return images, label
