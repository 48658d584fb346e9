"""The pipelines that are compared, and the reference for their pixels.

All return batches of (images, labels). Images are float32 (N, 3, 224, 224), normalised with
ImageNet's mean and standard deviation. "train" is RandomResizedCrop(224) and a flip, in random
order; "eval" is Resize(256) and CenterCrop(224), in the folder's order. Each pipeline follows the
documentation of its library. None applies the EXIF orientation, as DALI would by default.

The reference is the one of the tests: torchvision v2's rules in plain torch
(`tests/support/torch_reference.py`), applied to what Pillow decodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from os import getpid
from pathlib import Path
from typing import Any, NamedTuple

import _common as bench  # first: it makes tests/support importable
import numpy as np
import torch
import torch_reference as reference
from _dali import DaliLoader
from _spdl_ffcv import FfcvLoader, SpdlLoader
from PIL import Image

from fastdecode.measure._pipelines import (
    MEAN,
    STD,
    Decoded,
    crop_with_pillow,
    decode_with_torchvision,
    normalise,
    open_with_pillow,
    torch_loader,
    torchvision_v2,
)

RESIZE, SIZE = 256, 224


# The reference


def evaluation(image: torch.Tensor) -> torch.Tensor:
    """Apply Resize(256) and CenterCrop(224)."""
    return reference.center_crop(reference.resize(image, RESIZE), (SIZE, SIZE))


def training(image: torch.Tensor, seed: int) -> torch.Tensor:
    """Apply RandomResizedCrop(224) and RandomHorizontalFlip()."""
    return reference.random_resized_crop(image, (SIZE, SIZE), seed)


# The pipelines


class Setup(NamedTuple):
    """The task: a folder with one folder per class, and how many processes or threads to use."""

    folder: str
    kind: str  # "train" or "eval"
    batch: int
    workers: int

    size = SIZE
    recipe = ""  # none of measure's: the crops above

    @property
    def train(self) -> bool:
        return self.kind == "train"

    @property
    def samples(self) -> list[tuple[str, int]]:
        return labelled(self.folder)


def make_with_pillow(data: Any, *, train: bool) -> torch.Tensor:
    """Decode and transform one image with Pillow: the baseline."""
    image = open_with_pillow(data)
    return normalise(crop_with_pillow(image, SIZE) if train else _evaluated(image))


def _evaluated(image: Image.Image) -> Image.Image:
    short = min(image.size)
    width, height = (int(RESIZE * side / short) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = round((width - SIZE) / 2), round((height - SIZE) / 2)
    return image.crop((left, top, left + SIZE, top + SIZE))


def pillow(setup: Setup, **options: Any) -> Any:
    """Make PyTorch's DataLoader over images that Pillow decodes and transforms."""
    dataset = Decoded(setup, partial(make_with_pillow, train=setup.train))
    return torch_loader(setup, dataset, **options)


def labelled(folder: str) -> list[tuple[str, int]]:
    """List the photos of a folder with the number of their class."""
    paths = bench.photos_in(Path(folder))
    classes = sorted({path.parent.name for path in paths})
    return [(str(path), classes.index(path.parent.name)) for path in paths]


def own_folder(setup: Setup, quality: str = "exact") -> Any:
    """Make this package's `ImageFolder`, with its own transforms."""
    from fastdecode.torch import ImageFolder
    from fastdecode.torch import transforms as own

    transform = (
        own.RandomResizedCropFlipNormalize(SIZE, quality=quality)
        if setup.train
        else own.ResizeCenterCropNormalize(RESIZE, SIZE, quality=quality)
    )
    return ImageFolder(setup.folder, transform=transform)


def own_loader(setup: Setup, quality: str = "exact") -> Any:
    """Make this package's `Loader`: threads, over its own `ImageFolder` and transforms."""
    from fastdecode.torch import Loader

    dataset = own_folder(setup, quality)
    return Loader(dataset, setup.batch, shuffle=setup.train, threads=setup.workers)


def stock(setup: Setup, transform: Callable[..., Any], **options: Any) -> Any:
    """Make torchvision's ImageFolder in PyTorch's DataLoader."""
    from torchvision import datasets

    dataset = datasets.ImageFolder(setup.folder, transform(setup.train), **options)
    return torch_loader(setup, dataset)


def _crops(of: Any, train: bool, **options: Any) -> list[Any]:
    if train:
        return [of.RandomResizedCrop(SIZE, **options), of.RandomHorizontalFlip()]
    return [of.Resize(RESIZE, **options), of.CenterCrop(SIZE)]


def torchvision_v1(train: bool) -> Any:
    """Make torchvision's v1 transforms, for Pillow images."""
    from torchvision import transforms as v1

    return v1.Compose([*_crops(v1, train), v1.ToTensor(), v1.Normalize(MEAN, STD)])


def torchvision_second(train: bool) -> Any:
    """Make torchvision's v2 transforms, for tensors from torchvision's own decoder."""
    from torchvision.transforms import v2

    return torchvision_v2(*_crops(v2, train, antialias=True))


# Makes the loader of each pipeline. Each of its iterators is one epoch.
PEERS: dict[str, Callable[[Setup], Iterable[Any]]] = {
    "loader": own_loader,
    "loader-fast": partial(own_loader, quality="fast"),
    "imagefolder": lambda setup: torch_loader(setup, own_folder(setup)),
    "pillow": pillow,
    "torchvision-v1": partial(stock, transform=torchvision_v1),
    "torchvision-v2": partial(stock, transform=torchvision_second, loader=decode_with_torchvision),
    "dali": DaliLoader,
    "spdl": SpdlLoader,
    "ffcv": FfcvLoader,
}


class Pipeline:
    """A running pipeline; `pipeline.py` makes each one in its own process."""

    def __init__(self, name: str, setup: Setup) -> None:
        self.loader: Any = PEERS[name](setup)

    def pid(self) -> int:
        """Return the id of this process."""
        return getpid()

    def epoch(self) -> dict[str, float]:
        """Run an epoch, timed from the request for the first batch to the arrival of the last."""
        return bench.work_done(self._images)

    def _images(self) -> int:
        images = 0
        for batch, _ in self.loader:
            assert batch.shape[1:] == (3, SIZE, SIZE)
            assert batch.dtype == torch.float32
            images += len(batch)
        return images

    def speed(self) -> float:
        """Run the first epoch again; return images/s."""
        self.loader.set_epoch(0)
        return self.epoch()["images_per_s"]

    def difference(self, reference: str) -> float:
        """Compare with (N, 3, 224, 224) uint8 in a file; mean absolute difference of levels."""
        expected = torch.from_numpy(np.load(reference))
        seen, total = 0, 0.0
        for batch, _ in self.loader:
            values = batch * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
            part = expected[seen : seen + len(batch)]
            total += float((255 * values[: len(part)] - part).abs().double().sum())
            seen += len(part)
        assert seen == len(expected)
        return total / expected.numel()
