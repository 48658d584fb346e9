"""The pipelines from encoded images to training batches that the protocol ``train`` compares.

All return batches of (images, labels), with images as float32 (N, 3, size, size): a random crop,
resized, randomly flipped, and normalised with ImageNet's mean and standard deviation. Each pipeline
follows its library's documentation, and reads the files or items itself. None applies the EXIF
orientation. All need PyTorch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from fastdecode.torch import DecodeDataset
from fastdecode.torch import Loader as OwnLoader
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize
from fastdecode.torch.transforms._random_crop import TorchDraws

if TYPE_CHECKING:
    from fastdecode.measure._collection import Photo
    from fastdecode.measure.result import Pipeline

MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
_MEAN, _STD = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
PREFETCH = 2  # batches per worker: the default of DataLoader

Source: TypeAlias = "str | Photo"
"""A file's path, or an item of a store."""


class Setup(NamedTuple):
    """The samples of a pipeline, and how to make batches of them."""

    samples: Sequence[tuple[Source, int]]  # with their labels
    batch: int
    workers: int
    size: int = 224  # side in pixels
    train: bool = True  # random crops in random order; else central crops in this order


def _data(source: Source) -> Any:
    """Return the input of a decoder: a path or bytes."""
    return source if isinstance(source, str) else source.read()


class OwnDataset(DecodeDataset):
    """A dataset as users of this package write it."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(RandomResizedCropFlipNormalize(setup.size))
        self.samples = setup.samples

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int) -> tuple[Any, Any]:
        """Return the encoded image of a sample and its label."""
        source, label = self.samples[index]
        return _data(source), label


class Decoded(Dataset[tuple[Any, int]]):
    """A plain dataset that calls a function to make a tensor, or several, of each source."""

    def __init__(self, setup: Any, make: Callable[[Any], Any]) -> None:
        self._samples, self._make = setup.samples, make

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        source, label = self._samples[index]
        return self._make(_data(source)), label


def open_with_pillow(data: Any) -> Image.Image:
    """Decode a path or bytes with Pillow."""
    with Image.open(data if isinstance(data, str) else BytesIO(data)) as file:
        image: Image.Image = file.convert("RGB")
    return image


def crop_with_pillow(image: Image.Image, size: int) -> Image.Image:
    """Crop at random, resize, and flip with probability 0.5."""
    box = TorchDraws().box(*image.size, SCALE, RATIO)
    image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    if torch.rand(1) < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return image


def normalise(image: Image.Image) -> torch.Tensor:
    """Return an image as normalised float32 (3, H, W)."""
    values = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)
    return (values - _MEAN) / _STD


def torchvision_v2(*crops: Any) -> Any:
    """Return a pipeline of crops, conversion to float and normalisation."""
    from torchvision.transforms import v2

    return v2.Compose([*crops, v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)])


def decode_with_torchvision(data: Any) -> torch.Tensor:
    """Decode a path or bytes with torchvision to uint8 (3, H, W)."""
    from torchvision.io import ImageReadMode, decode_image

    if not isinstance(data, str):
        data = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # in favour of torchcodec
        image: torch.Tensor = decode_image(data, ImageReadMode.RGB)
    return image


def torch_loader(setup: Any, dataset: Dataset[Any], **options: Any) -> Any:
    """Return PyTorch's DataLoader with persistent workers."""
    return DataLoader(
        dataset,
        batch_size=setup.batch,
        shuffle=setup.train,
        num_workers=setup.workers,
        prefetch_factor=PREFETCH,
        persistent_workers=True,
        **options,
    )


def _own_loader(setup: Setup, **device: Any) -> Any:
    dataset = OwnDataset(setup)
    return OwnLoader(dataset, setup.batch, shuffle=True, threads=setup.workers, **device)


def _pillow_sample(size: int, data: Any) -> torch.Tensor:
    """Decode the whole image, crop and resize it with Pillow: the baseline."""
    return normalise(crop_with_pillow(open_with_pillow(data), size))


def _torchvision_sample(transform: Any, data: Any) -> torch.Tensor:
    """Apply transforms of torchvision's v2 to a tensor from its own decoder."""
    result: torch.Tensor = transform(decode_with_torchvision(data))
    return result


def _pillow_loader(setup: Setup) -> Any:
    return torch_loader(setup, Decoded(setup, partial(_pillow_sample, setup.size)))


def _torchvision_loader(setup: Setup) -> Any:
    from torchvision.transforms import v2

    crop = v2.RandomResizedCrop(setup.size, antialias=True)
    transform = torchvision_v2(crop, v2.RandomHorizontalFlip())
    return torch_loader(setup, Decoded(setup, partial(_torchvision_sample, transform)))


MAKERS: dict[Pipeline, Callable[[Setup], Iterable[Any]]] = {
    "fastdecode": _own_loader,
    "device": partial(_own_loader, device="cuda", decode="gpu"),
    "pillow": _pillow_loader,
    "torchvision": _torchvision_loader,
}
"""The functions that make the loader of each pipeline; an iterator of a loader is an epoch."""
