"""The pipelines that `pipeline.py` compares: each a class, each made in a process of its own.

All give batches of (images, labels), images as float32 (N, 3, 224, 224), normalised by ImageNet's
mean and standard deviation. "train" is RandomResizedCrop(224) and a flip, in random order; "eval"
is Resize(256) and CenterCrop(224), in the folder's order. Each is written as its own documentation
says. None applies the EXIF orientation; DALI would by default, and is told not to.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from os import getpid
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from processes import cpu_seconds
from reference import MEAN, RESIZE, SIZE, STD, photos_in, random_box
from torch.utils.data import DataLoader, Dataset

_PREFETCH = 2  # batches, for each worker: DataLoader's default


class Setup(NamedTuple):
    """What to do.

    Attributes
    ----------
    folder : str
        Holds a folder for each class.
    kind : {"train", "eval"}
    batch : int
    workers : int
        Worker processes, or threads.
    """

    folder: str
    kind: str
    batch: int
    workers: int


class Epoch(NamedTuple):
    """What an epoch took: from asking for the first batch to having the last, in seconds."""

    images: int
    seconds: float
    cpu_seconds: float


class Peer(ABC):
    """One way to make batches."""

    title = ""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.train = setup.kind == "train"

    @abstractmethod
    def batches(self) -> Iterator[torch.Tensor]:
        """Yield the images of an epoch."""

    def pid(self) -> int:
        """Say which process this is."""
        return getpid()

    def epoch(self) -> Epoch:
        """Go through an epoch."""
        cpu, start, images = cpu_seconds(getpid()), time.perf_counter(), 0
        for batch in self.batches():
            assert batch.shape[1:] == (3, SIZE, SIZE)
            assert batch.dtype == torch.float32
            images += len(batch)
        seconds = time.perf_counter() - start
        return Epoch(images, seconds, cpu_seconds(getpid()) - cpu)

    def difference(self, reference: str) -> float:
        """Compare with (N, 3, 224, 224) uint8 in a file; mean absolute, in levels of 255."""
        expected = torch.from_numpy(np.load(reference))
        seen, total = 0, 0.0
        for batch in self.batches():
            values = batch * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
            part = expected[seen : seen + len(batch)]
            total += float((255 * values[: len(part)] - part).abs().double().sum())
            seen += len(part)
        assert seen == len(expected)
        return total / expected.numel()


class OwnLoader(Peer):
    """This package's `Loader`: threads, over its own `ImageFolder` and transforms."""

    title = "fastdecode Loader"
    quality = "default"

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        from fastdecode.torch import Loader

        self._loader = Loader(
            own_folder(setup, self.quality),
            setup.batch,
            shuffle=self.train,
            threads=setup.workers,
        )

    def batches(self) -> Iterator[torch.Tensor]:
        for images, _ in self._loader:
            yield images


class OwnLoaderExact(OwnLoader):
    """The same without reduced decoding: the pixels of torchvision v2."""

    title = "fastdecode Loader, exact"
    quality = "exact"


class OwnLoaderWithoutCore(OwnLoader):
    """The same without the native core, as where it was not built."""

    title = "Loader without the core"

    def __init__(self, setup: Setup) -> None:
        from fastdecode.native import library

        library.require()
        os.environ["FASTDECODE_DISABLE"] = "native"  # this process is for nothing else
        super().__init__(setup)


class StockLoader(Peer):
    """A data set in PyTorch's DataLoader, whose workers live as long as it does."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(setup)
        self._loader = DataLoader(
            self.dataset(),
            batch_size=setup.batch,
            shuffle=self.train,
            num_workers=setup.workers,
            prefetch_factor=_PREFETCH,
            persistent_workers=True,
        )

    @abstractmethod
    def dataset(self) -> Dataset[Any]:
        """Make the data set."""

    def batches(self) -> Iterator[torch.Tensor]:
        for images, _ in self._loader:
            yield images


class OwnFolder(StockLoader):
    """This package's `ImageFolder` and transforms in PyTorch's DataLoader."""

    title = "fastdecode + DataLoader"

    def dataset(self) -> Dataset[Any]:
        return own_folder(self.setup)


class Pillow(StockLoader):
    """Pillow in PyTorch's DataLoader, written out plainly: the baseline."""

    title = "Pillow + DataLoader"

    def dataset(self) -> Dataset[Any]:
        return PillowFolder(self.setup.folder, train=self.train)


class PillowFolder(Dataset[tuple[torch.Tensor, int]]):
    """A folder of classes, read by Pillow."""

    def __init__(self, folder: str, *, train: bool) -> None:
        paths = photos_in(Path(folder))
        classes = sorted({path.parent.name for path in paths})
        self._samples = [(path, classes.index(path.parent.name)) for path in paths]
        self._train = train
        self._mean = torch.tensor(MEAN).view(3, 1, 1)
        self._std = torch.tensor(STD).view(3, 1, 1)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        from PIL import Image

        path, label = self._samples[index]
        with Image.open(path) as file:
            image = file.convert("RGB")
        image = self._training(image) if self._train else self._evaluation(image)
        values = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)
        return (values - self._mean) / self._std, label

    def _training(self, image: Any) -> Any:
        from PIL import Image

        box = random_box(image.height, image.width)
        image = image.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=box)
        if torch.rand(1) < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return image

    def _evaluation(self, image: Any) -> Any:
        from PIL import Image

        short = min(image.size)
        width, height = (int(RESIZE * side / short) for side in image.size)
        image = image.resize((width, height), Image.Resampling.BILINEAR)
        left, top = round((width - SIZE) / 2), round((height - SIZE) / 2)
        return image.crop((left, top, left + SIZE, top + SIZE))


def own_folder(setup: Setup, quality: str = "default") -> Dataset[Any]:
    """Make this package's data set."""
    from fastdecode.torch import ImageFolder
    from fastdecode.torch.transforms import (
        RandomResizedCropFlipNormalize,
        ResizeCenterCropNormalize,
    )

    transform = (
        RandomResizedCropFlipNormalize(SIZE, quality=quality)
        if setup.kind == "train"
        else ResizeCenterCropNormalize(RESIZE, SIZE, quality=quality)
    )
    return ImageFolder(setup.folder, transform=transform)
