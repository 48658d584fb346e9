"""More pipelines for `pipeline.py`: torchvision's, timm's and DALI's, where they are installed."""

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


class Preset:
    """What torchvision's training reference builds, as it does: an object with its own Compose."""

    def __init__(self, *, train: bool) -> None:
        from torchvision import transforms

        chosen = (
            [transforms.RandomResizedCrop(SIZE), transforms.RandomHorizontalFlip()]
            if train
            else [transforms.Resize(RESIZE), transforms.CenterCrop(SIZE)]
        )
        last = [
            transforms.PILToTensor(),
            transforms.ConvertImageDtype(torch.float),
            transforms.Normalize(MEAN, STD),
        ]
        self.transforms = transforms.Compose([*chosen, *last])

    def __call__(self, image: Any) -> Any:
        return self.transforms(image)


def timm_transform(*, train: bool, interpolation: str) -> Any:
    """Make what timm's script makes without colour jitter, which costs most of the rest."""
    from timm.data import create_transform

    how: dict[str, Any] = {"interpolation": interpolation, "mean": MEAN, "std": STD}
    if train:
        return create_transform(SIZE, is_training=True, color_jitter=None, **how)
    return create_transform(SIZE, crop_pct=SIZE / RESIZE, **how)


class StockPreset(StockLoader):
    """The reference's preset, torchvision's ImageFolder and PyTorch's DataLoader."""

    title = "reference's preset, PIL"

    def dataset(self) -> Dataset[Any]:
        from torchvision import datasets

        return datasets.ImageFolder(self.setup.folder, self.transform())

    def transform(self) -> Any:
        return Preset(train=self.train)


class OwnPreset(Peer):
    """The same preset in this package's `ImageFolder` and `Loader`."""

    title = "its preset, Loader"
    fuse = True

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        from fastdecode.torch import ImageFolder, Loader

        dataset = ImageFolder(setup.folder, transform=self.transform(), fuse=self.fuse)
        how = {"threads": setup.workers} if dataset.isolated else {"workers": setup.workers}
        self._loader = Loader(dataset, setup.batch, shuffle=self.train, **how)

    def transform(self) -> Any:
        return Preset(train=self.train)

    def batches(self) -> Iterator[torch.Tensor]:
        for images, _ in self._loader:
            yield images


class OwnPresetUnfused(OwnPreset):
    """The same, as it was before presets were fused: with the preset called as it is."""

    title = "its preset, not fused"
    fuse = False


class StockTimm(StockPreset):
    """timm's transform with one filter, torchvision's ImageFolder and PyTorch's DataLoader."""

    title = "timm, bilinear, PIL"
    interpolation = "bilinear"

    def transform(self) -> Any:
        return timm_transform(train=self.train, interpolation=self.interpolation)


class OwnTimm(OwnPreset):
    """The same transform in this package's `ImageFolder` and `Loader`."""

    title = "timm, bilinear, Loader"
    interpolation = "bilinear"

    def transform(self) -> Any:
        return timm_transform(train=self.train, interpolation=self.interpolation)


class StockTimmUsual(StockTimm):
    """With what its script takes: either filter in training, the bicubic one for most models."""

    title = "timm, its default, PIL"

    @property
    def interpolation(self) -> str:  # type: ignore[override]
        return "random" if self.train else "bicubic"


class OwnTimmUsual(OwnTimm):
    """The same in this package's `ImageFolder` and `Loader`."""

    title = "timm, its default, Loader"

    @property
    def interpolation(self) -> str:  # type: ignore[override]
        return "random" if self.train else "bicubic"


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
