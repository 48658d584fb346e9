"""The pipelines that are compared, and the reference that their pixels are held against.

All give batches of (images, labels), images as float32 (N, 3, 224, 224), normalised by ImageNet's
mean and standard deviation. "train" is RandomResizedCrop(224) and a flip, in random order; "eval"
is Resize(256) and CenterCrop(224), in the folder's order. Each is written as its own documentation
says. None applies the EXIF orientation; DALI would by default, and is told not to.

The reference is torchvision v2's rules, written out in plain torch. A file is decoded by Pillow, as
RGB. It is resized as a uint8 tensor by ``torch.nn.functional.interpolate(mode="bilinear",
antialias=True)``, which is what torchvision v2 does. How the long side is rounded, where a crop
lies and in which order random numbers are drawn is taken from torchvision's source:
``transforms/_functional``'s ``_compute_resized_output_size`` and ``center_crop``,
``RandomResizedCrop.get_params`` and ``RandomHorizontalFlip``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from functools import partial
from os import getpid
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from _common import photos_in
from PIL import Image
from torch.utils.data import Dataset

from fastdecode.measure._pipelines import (
    MEAN,
    STD,
    Dali,
    by_torchvision,
    normalised,
    open_rgb,
    pillow_crop,
    random_box,
    stock_loader,
    torchvision_v2,
)
from fastdecode.measure._timing import cpu_seconds

RESIZE, SIZE = 256, 224


# The reference


def pixels(path: Path) -> torch.Tensor:
    """Decode a file: (3, H, W) uint8."""
    with Image.open(path) as image:
        return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).contiguous()


def _resized(image: torch.Tensor, height: int, width: int) -> torch.Tensor:
    return torch.nn.functional.interpolate(
        image[None], (height, width), mode="bilinear", antialias=True
    )[0]


def evaluation(image: torch.Tensor) -> torch.Tensor:
    """Do Resize(256) and CenterCrop(224)."""
    height, width = image.shape[1:]
    short, long = min(height, width), max(height, width)
    long = int(RESIZE * long / short)
    height, width = (RESIZE, long) if height <= width else (long, RESIZE)
    top, left = round((height - SIZE) / 2), round((width - SIZE) / 2)
    return _resized(image, height, width)[:, top : top + SIZE, left : left + SIZE]


def training(image: torch.Tensor, seed: int) -> torch.Tensor:
    """Do RandomResizedCrop(224) and RandomHorizontalFlip()."""
    generator = torch.Generator().manual_seed(seed)
    left, top, right, bottom = random_box(*image.shape[1:], generator)
    result = _resized(image[:, top:bottom, left:right].contiguous(), SIZE, SIZE)
    return result.flip(-1) if torch.rand(1, generator=generator) < 0.5 else result


# The pipelines


class Setup(NamedTuple):
    """What to do: of a folder with a folder for each class, by so many processes or threads."""

    folder: str
    kind: str  # "train" or "eval"
    batch: int
    workers: int

    size = SIZE

    @property
    def train(self) -> bool:
        return self.kind == "train"

    @property
    def samples(self) -> list[tuple[str, int]]:
        return labelled(self.folder)


class PillowFolder(Dataset[tuple[torch.Tensor, int]]):
    """A folder of classes, read by Pillow, written out plainly: the baseline."""

    def __init__(self, folder: str, *, train: bool) -> None:
        self._samples = labelled(folder)
        self._train = train

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self._samples[index]
        image = open_rgb(path)
        return normalised(pillow_crop(image, SIZE) if self._train else _evaluated(image)), label


def _evaluated(image: Image.Image) -> Image.Image:
    short = min(image.size)
    width, height = (int(RESIZE * side / short) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - SIZE) / 2), round((height - SIZE) / 2)
    return image.crop((left, top, left + SIZE, top + SIZE))


def labelled(folder: str) -> list[tuple[str, int]]:
    """List the photos of a folder, and the number of the class of each."""
    paths = photos_in(Path(folder))
    classes = sorted({path.parent.name for path in paths})
    return [(str(path), classes.index(path.parent.name)) for path in paths]


def own_folder(setup: Setup, quality: str = "fast") -> Any:
    """Make this package's `ImageFolder`, with its own transforms."""
    from fastdecode.torch import ImageFolder
    from fastdecode.torch import transforms as own

    transform = (
        own.RandomResizedCropFlipNormalize(SIZE, quality=quality)
        if setup.train
        else own.ResizeCenterCropNormalize(RESIZE, SIZE, quality=quality)
    )
    return ImageFolder(setup.folder, transform=transform)


def own_loader(setup: Setup, quality: str = "fast") -> Any:
    """Make this package's `Loader`: threads, over its own `ImageFolder` and transforms."""
    from fastdecode.torch import Loader

    dataset = own_folder(setup, quality)
    return Loader(dataset, setup.batch, shuffle=setup.train, threads=setup.workers)


def without_core(setup: Setup) -> Any:
    """Make the same as where the native core was not built."""
    from fastdecode.native import _library

    _library.require()
    os.environ["FASTDECODE_DISABLE"] = "native"  # this process is for nothing else
    return own_loader(setup)


def stock(setup: Setup, transform: Callable[..., Any], **options: Any) -> Any:
    """Take torchvision's ImageFolder and PyTorch's DataLoader."""
    from torchvision import datasets

    dataset = datasets.ImageFolder(setup.folder, transform(setup.train), **options)
    return stock_loader(setup, dataset)


def _crops(of: Any, train: bool, **options: Any) -> list[Any]:
    if train:
        return [of.RandomResizedCrop(SIZE, **options), of.RandomHorizontalFlip()]
    return [of.Resize(RESIZE, **options), of.CenterCrop(SIZE)]


def torchvision_v1(train: bool) -> Any:
    """Make torchvision's transforms of the first version, on Pillow's images."""
    from torchvision import transforms as v1

    return v1.Compose([*_crops(v1, train), v1.ToTensor(), v1.Normalize(MEAN, STD)])


def torchvision_second(train: bool) -> Any:
    """Make those of the second version, on tensors from torchvision's own decoder."""
    from torchvision.transforms import v2

    return torchvision_v2(*_crops(v2, train, antialias=True))


# What makes the loader of each pipeline, whose iterators are epochs.
PEERS: dict[str, Callable[[Setup], Iterable[Any]]] = {
    "loader": own_loader,
    "loader-exact": partial(own_loader, quality="exact"),
    "loader-without-core": without_core,
    "imagefolder": lambda setup: stock_loader(setup, own_folder(setup)),
    "pillow": lambda setup: stock_loader(setup, PillowFolder(setup.folder, train=setup.train)),
    "torchvision-v1": partial(stock, transform=torchvision_v1),
    "torchvision-v2": partial(stock, transform=torchvision_second, loader=by_torchvision),
    "dali": Dali,
}


class Pipeline:
    """A pipeline at work; `pipeline.py` makes each in a process of its own."""

    def __init__(self, name: str, setup: Setup) -> None:
        self.loader: Any = PEERS[name](setup)

    def pid(self) -> int:
        """Say which process this is."""
        return getpid()

    def epoch(self) -> dict[str, float]:
        """Go through an epoch, from asking for the first batch to having the last."""
        cpu, start, images = cpu_seconds(getpid()), time.perf_counter(), 0
        for batch, _ in self.loader:
            assert batch.shape[1:] == (3, SIZE, SIZE)
            assert batch.dtype == torch.float32
            images += len(batch)
        speed = images / (time.perf_counter() - start)
        cpu = cpu_seconds(getpid()) - cpu
        return {"images_per_s": speed, "cpu_s_per_1000": 1000 * cpu / images}

    def speed(self) -> float:
        """Go through the first epoch, once more; images/s."""
        self.loader.set_epoch(0)
        return self.epoch()["images_per_s"]

    def difference(self, reference: str) -> float:
        """Compare with (N, 3, 224, 224) uint8 in a file; mean absolute, in levels of 255."""
        expected = torch.from_numpy(np.load(reference))
        seen, total = 0, 0.0
        for batch, _ in self.loader:
            values = batch * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
            part = expected[seen : seen + len(batch)]
            total += float((255 * values[: len(part)] - part).abs().double().sum())
            seen += len(part)
        assert seen == len(expected)
        return total / expected.numel()
