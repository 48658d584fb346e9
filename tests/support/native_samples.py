"""Files of all kinds in one dataset, and a look at which of them the native core made."""

from __future__ import annotations

import io
import mmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from encoded import with_orientation
from PIL import Image

import fastdecode
from fastdecode.native._batch import Items
from fastdecode.torch.dataset import DecodeDataset
from fastdecode.torch.transforms import RandomResizedCropFlipNormalize

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
CROP = RandomResizedCropFlipNormalize(40)


def encoded(kind: str = "JPEG", mode: str = "RGB", **options: Any) -> bytes:
    stream = io.BytesIO()
    with Image.open(PHOTOS[0]) as image:
        image.convert(mode).save(stream, kind, **options)
    return stream.getvalue()


PLAIN = PHOTOS[0].read_bytes()
TORN = PLAIN[: len(PLAIN) // 2] + b"\xff\xd9"
CUT = PLAIN[: len(PLAIN) // 2]
NO_END = PLAIN[:-2]
# What stands for a file, and whether the core makes it.
SOURCES: list[tuple[Any, bool]] = [
    *((str(path), True) for path in PHOTOS),
    (PLAIN, True),
    (encoded("PNG"), False),
    (memoryview(PLAIN), True),
    (encoded(mode="CMYK"), False),
    (encoded(mode="L"), True),
    (bytearray(PLAIN), True),
    (NO_END, False),
    (np.frombuffer(PLAIN, np.uint8), True),
    (encoded(exif=with_orientation(6)), True),
    (torch.frombuffer(bytearray(PLAIN), dtype=torch.uint8), True),
    (encoded("WEBP"), False),
    (PHOTOS[1], True),
    (encoded(progressive=True), True),
    (encoded(exif=with_orientation(1)), True),
]


class Sources(DecodeDataset):
    """Encoded images or their paths, with their numbers as targets."""

    def __init__(self, *sources: Any, transform: Any = CROP, **options: Any) -> None:
        super().__init__(transform, **options)
        self.sources = sources

    def __len__(self) -> int:
        return len(self.sources)

    def read(self, index: int) -> tuple[Any, Any]:
        return self.sources[index], index


class Boxes(Sources):
    """With a box in the middle of each image as the target, and the image's size below it."""

    def read(self, index: int) -> tuple[Any, Any]:
        return self.sources[index], [[100.0, 100.0, 200.0, 200.0 + index]]

    def map_target(self, target: Any, geometry: Any) -> Any:
        return torch.as_tensor([*geometry.boxes(target).tolist(), [*geometry.full_size] * 2])


def mixed(kind: type[Sources] = Sources, **options: Any) -> Sources:
    return kind(*(source for source, _ in SOURCES), **options)


def mapped(path: Path) -> mmap.mmap:
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


class Made(list[tuple[int, int]]):
    """For each call of the core: how many items it was given, and how many it has made."""

    @property
    def given(self) -> int:
        return sum(given for given, _ in self)

    @property
    def total(self) -> int:
        return sum(done for _, done in self)


@pytest.fixture(name="made")
def _made(monkeypatch: pytest.MonkeyPatch) -> Made:
    """Note what the core makes in batches, in this process, whoever has drawn."""
    noted = Made()
    crop, resize = Items.crop, Items.resize

    def cropped(self: Items, *rest: Any) -> Any:
        done, left = crop(self, *rest)
        noted.append((int(self._rows["wanted"][: self._count].sum()), len(done)))
        return done, left

    def resized(self: Items, pool: Any, wanted: Any, *rest: Any) -> list[bool]:
        done = resize(self, pool, wanted, *rest)
        noted.append((len(wanted), sum(done)))
        return done

    monkeypatch.setattr(Items, "crop", cropped)
    monkeypatch.setattr(Items, "resize", resized)
    return noted
