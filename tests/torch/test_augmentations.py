"""Random augmentations after a crop: drawn and done in the core, in a Loader."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from corpus import native_core
from PIL import Image as PillowImage
from same import assert_same
from torch_reference import MEAN, PHOTOS, STD

from fastdecode.errors import DecodeError
from fastdecode.native._augment import (
    Draw,
    Erasure,
    Operation,
    Program,
    augment,
    do,
    draw_operations,
    erase,
    group,
)
from fastdecode.testing import encode
from fastdecode.torch import ImageList, Loader
from fastdecode.torch._loader.order import sample_seed
from fastdecode.torch.transforms import RandomResizedCrop
from fastdecode.torch.transforms._random_crop import SampleGenerator

native_core()

SIDE = 48
COLOURS = group(
    "shuffle",
    [
        do(Operation("brightness", (1.0,)), Draw(0, 0.6, 0.8)),
        do(Operation("rotate", (0.0,), "bilinear", (9, 8, 7)), Draw(0, -90, 180)),
        group("choice", [do(Operation("equalize")), do(Operation("sharpness", (1.9,)))]),
    ],
)
NOISE = Erasure((0.1, 0.3), (0.5, 2.0), "pixel")
ERASED = Program([*COLOURS, *erase(NOISE, probability=0.5)])


def _transform(program: Program, **options: Any) -> RandomResizedCrop:
    """Return a transform that is done wholly in the core."""
    crop = RandomResizedCrop(SIDE, flip=0.5, mean=MEAN, std=STD, **options)
    return crop.but(program=Program([*crop.program, *program]))


def _batches(items: Any, transform: Any, **how: Any) -> torch.Tensor:
    dataset = ImageList(items, [0] * len(items), transform=transform)
    loader = Loader(dataset, 3, seed=5, **how)
    with loader:
        return torch.cat([images for images, _ in loader])


def _saved_as(kind: str, path: Path, folder: Path) -> Path:
    """Write the pixels of a photo as PNG, or as lossless WebP, which the core does not read."""
    made = folder / f"{path.stem}.{kind}"
    made.write_bytes(_encoded_as(kind, path))
    return made


@cache
def _encoded_as(kind: str, path: Path) -> bytes:
    return encode(_opened(path), kind, lossless=True)


def _opened(path: Path) -> PillowImage.Image:
    with PillowImage.open(path) as image:
        return image.convert("RGB")


@pytest.mark.parametrize("threads", [0, 1, 2, 4])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_files_that_python_decodes_get_the_same_draws(
    interpolation: Any, threads: int, tmp_path: Path
) -> None:
    """A PNG or a WebP is as if it were a JPEG; what replaces a damaged file draws after it."""
    transform = _transform(ERASED, interpolation=interpolation)
    files = [*PHOTOS, *PHOTOS]
    expected = _batches(files, transform, threads=2)
    kinds = [("png", "webp")[at % 2] if at % 3 else "jpg" for at in range(len(files))]
    mixed = [
        path if kind == "jpg" else _saved_as(kind, path, tmp_path)
        for path, kind in zip(files, kinds, strict=True)
    ]
    assert_same(_batches(mixed, transform, threads=threads), expected)

    broken = tmp_path / "broken.jpg"
    broken.write_bytes(files[0].read_bytes()[:9000])
    mixed[1] = mixed[6] = broken
    dataset = ImageList(mixed, list(range(len(mixed))), transform=transform, on_error="replace")
    with Loader(dataset, 3, seed=5, threads=threads) as loader:
        batches = [(images.clone(), targets) for images, targets in loader]
    images, targets = (torch.cat(parts) for parts in zip(*batches, strict=True))
    assert {failure.index for failure in dataset.errors} == {1, 6}
    for at, (image, target) in enumerate(zip(images, targets, strict=True)):
        if at == target:
            assert_same(image, expected[at], at)
            continue
        generator = SampleGenerator("cpu").manual_seed(sample_seed(5, 0, at))
        with pytest.raises(DecodeError):
            transform(broken.read_bytes(), generator=generator)  # it has drawn by then
        other = transform(files[target].read_bytes(), generator=generator)
        assert_same(image, other, at)


@pytest.mark.parametrize("by", ["the core", "png", "webp"])
def test_a_sample_is_crop_then_operations_then_normalise(by: str, tmp_path: Path) -> None:
    """A sample equals its parts, done one after another, whoever decodes it."""
    plain = RandomResizedCrop(SIDE, flip=0.5)
    files = PHOTOS if by == "the core" else [_saved_as(by, path, tmp_path) for path in PHOTOS]
    made = _batches(files, _transform(COLOURS), threads=2)
    mean, std = (torch.tensor(v).reshape(3, 1, 1) for v in (MEAN, STD))
    for at, path in enumerate(files):
        generator = SampleGenerator("cpu").manual_seed(sample_seed(5, 0, at))
        crop = plain(path.read_bytes(), generator=generator)
        operations, _ = draw_operations(COLOURS, generator.state, SIDE, SIDE)
        pixels = augment(crop.permute(1, 2, 0).numpy(), operations)
        levels = torch.from_numpy(pixels).permute(2, 0, 1)
        assert_same(made[at], (levels / 255 - mean) / std, path, within=1e-5)


def test_a_device_cannot_decode_or_normalise_later() -> None:
    """What the core does to pixels or values cannot be left to a device: an error says which."""
    dataset = ImageList(PHOTOS, [0] * len(PHOTOS), transform=_transform(ERASED))
    with pytest.raises(ValueError, match="RandomErasing"):
        Loader(dataset, normalize_on="device")
