"""The pipelines from encoded images to training batches that the protocol ``train`` compares.

All return batches of (images, labels), with images as float32 (N, 3, size, size): a random crop,
resized, randomly flipped, and normalised with ImageNet's mean and standard deviation. For a recipe,
images are what that makes, or lists of such batches, one for each view. Each pipeline follows its
library's documentation, and reads the files or items itself. None applies the EXIF orientation.
All need PyTorch.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from fastdecode.measure._recipes import MEAN, RECIPES, STD, Several
from fastdecode.torch import DecodeDataset, Views
from fastdecode.torch import Loader as OwnLoader
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

if TYPE_CHECKING:
    from fastdecode.measure._collection import Photo
    from fastdecode.measure.result import Pipeline

SIZE = 224  # side in pixels of the images in a batch
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
    size: int  # side in pixels
    train: bool = True  # random crops in random order; else central crops in this order
    recipe: str = ""  # the name in `RECIPES`


def recipe_setup(
    recipe: str, samples: Sequence[tuple[Source, int]], batch: int, workers: int
) -> Setup:
    """Return the setup of a recipe."""
    known = RECIPES[recipe]
    return Setup(samples, batch, workers, known.size, known.train, recipe)


def _recipe_transform(setup: Setup, together: Callable[[list[Any]], Any]) -> Any:
    """Return the transform of a recipe; `together` joins several views."""
    made = RECIPES[setup.recipe].make()
    return together(made) if isinstance(made, list) else made


def _data(source: Source) -> Any:
    """Return the input of a decoder: a path or bytes."""
    return source if isinstance(source, str) else source.read()


class OwnDataset(DecodeDataset):
    """A dataset as users of this package write it."""

    def __init__(self, setup: Setup) -> None:
        plain = RandomResizedCropFlipNormalize(setup.size)
        super().__init__(_recipe_transform(setup, Views) if setup.recipe else plain)
        self.samples = setup.samples

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int) -> tuple[Any, Any]:
        """Return the encoded image of a sample and its label."""
        source, label = self.samples[index]
        return _data(source), label


class Decoded(Dataset[tuple[Any, int]]):
    """A plain dataset that calls a function to make a tensor, or several, of each source."""

    def __init__(self, setup: Setup, make: Callable[[Any], Any]) -> None:
        self._samples, self._make = setup.samples, make

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        source, label = self._samples[index]
        return self._make(_data(source)), label


def draw_random_box(
    height: int, width: int, generator: torch.Generator | None = None
) -> tuple[int, int, int, int]:
    """Draw a box (left, top, right, bottom) in pixels, as torchvision's RandomResizedCrop does."""
    low, high = torch.log(torch.tensor(RATIO)).tolist()
    for _ in range(10):
        area = height * width * torch.empty(1).uniform_(*SCALE, generator=generator).item()
        ratio = torch.empty(1).uniform_(low, high, generator=generator).exp().item()
        columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < columns <= width and 0 < rows <= height:
            top = int(torch.randint(0, height - rows + 1, (1,), generator=generator))
            left = int(torch.randint(0, width - columns + 1, (1,), generator=generator))
            return left, top, left + columns, top + rows
    columns, rows = width, height
    if width / height < RATIO[0]:
        rows = round(width / RATIO[0])
    elif width / height > RATIO[1]:
        columns = round(height * RATIO[1])
    left, top = (width - columns) // 2, (height - rows) // 2
    return left, top, left + columns, top + rows


def open_with_pillow(data: Any) -> Image.Image:
    """Decode a path or bytes with Pillow."""
    with Image.open(data if isinstance(data, str) else BytesIO(data)) as file:
        image: Image.Image = file.convert("RGB")
    return image


def crop_with_pillow(image: Image.Image, size: int) -> Image.Image:
    """Crop at random, resize, and flip with probability 0.5."""
    box = draw_random_box(image.height, image.width)
    image = image.resize((size, size), Image.Resampling.BILINEAR, box=box)
    if torch.rand(1) < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return image


def normalise(image: Image.Image) -> torch.Tensor:
    """Return an image as normalised float32 (3, H, W)."""
    values = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)
    return (values - _MEAN) / _STD


class PillowTransform:
    """The baseline: decode the whole image, crop and resize it with Pillow."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __call__(self, data: Any) -> torch.Tensor:
        return normalise(crop_with_pillow(open_with_pillow(data), self._size))


class TorchvisionTransform:
    """torchvision's v2 transforms, on tensors from its own decoder."""

    def __init__(self, size: int) -> None:
        from torchvision.transforms import v2

        self._transform = torchvision_v2(
            v2.RandomResizedCrop(size, antialias=True), v2.RandomHorizontalFlip()
        )

    def __call__(self, data: Any) -> torch.Tensor:
        result: torch.Tensor = self._transform(decode_with_torchvision(data))
        return result


class RecipeTransform:
    """A recipe as written, on the images that torchvision's datasets open with Pillow."""

    def __init__(self, setup: Setup) -> None:
        self._transform = _recipe_transform(setup, Several)

    def __call__(self, data: Any) -> Any:
        return self._transform(open_with_pillow(data))


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


def torch_loader(setup: Setup, dataset: Dataset[Any], **options: Any) -> Any:
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
    shuffle = setup.train
    return OwnLoader(
        OwnDataset(setup), setup.batch, shuffle=shuffle, threads=setup.workers, **device
    )


def _torchvision_loader(setup: Setup) -> Any:
    make = RecipeTransform(setup) if setup.recipe else TorchvisionTransform(setup.size)
    return torch_loader(setup, Decoded(setup, make))


class OnDevice:
    """`Loader` with batches that a CUDA device decodes."""

    def __init__(self, setup: Setup) -> None:
        self._loader = _own_loader(setup, device="cuda", decode="gpu")

    def __iter__(self) -> Iterator[Any]:
        yield from self._loader
        torch.cuda.synchronize()  # the epoch ends when the last batch is there


MAKERS: dict[Pipeline, Callable[[Setup], Iterable[Any]]] = {
    "fastdecode": _own_loader,
    "device": OnDevice,
    "pillow": lambda setup: torch_loader(setup, Decoded(setup, PillowTransform(setup.size))),
    "torchvision": _torchvision_loader,
}
"""The functions that make the loader of each pipeline; an iterator of a loader is an epoch."""
