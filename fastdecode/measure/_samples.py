"""The images to measure with: the user's own files, or images made from the package's photos."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from io import BytesIO
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from PIL import Image as PillowImage

from fastdecode._buffers import as_buffer
from fastdecode.api import read_file
from fastdecode.errors import FastDecodeError
from fastdecode.measure._collection import Photo
from fastdecode.ranking import size_class
from fastdecode.samples import photos

if TYPE_CHECKING:
    from fastdecode.types import Format, SizeClass

_MAX_FILES = 8
_MIN_SHARE = 0.5  # a backend that reads a smaller share of the files is not compared
_MAX_PIXELS = 12_000_000  # of one sample: a round of all backends must stay well below a second
_SIZES: dict[SizeClass, tuple[int, int]] = {
    "small": (200, 150),
    "medium": (500, 333),
    "large": (2000, 1500),
    "huge": (3264, 2448),
}
_SLOW_TO_ENCODE = (1184, 888)  # "large" for the formats that take Pillow longest to write
_OPTIONS: dict[str, dict[str, Any]] = {"jpeg": {"quality": 92}, "webp": {"quality": 80}}
_FEW = 1  # images of the slowest formats
_BLOCK = 16  # pixels: side of a JPEG's MCU with 4:2:0


class Sample(NamedTuple):
    """Encoded images of one format and size class, which are decoded one after another."""

    format: Format
    size: SizeClass
    photos: tuple[Photo, ...]

    @property
    def pixels(self) -> int:
        """The number of pixels of all images at full size."""
        return sum(photo.pixels for photo in self.photos)


def built_in(wanted: Iterable[tuple[Format, SizeClass]]) -> list[Sample]:
    """Make samples from the package's photos.

    Large images are mosaics, not enlargements: an enlarged photo has less detail per pixel than a
    large one, and decodes faster.
    """
    # Use only colour photos: grey ones are a third of the work.
    colours = [path for path in photos if not path.stem.endswith("_gray")]
    opened = [PillowImage.open(path).convert("RGB") for path in colours]
    made = []
    for format, size in wanted:
        width, height = _SIZES[size]
        if size == "large" and format != "jpeg":
            width, height = _SLOW_TO_ENCODE
        if size in ("small", "medium"):
            few = opened if format == "jpeg" else opened[:_FEW]
            images = [photo.resize((width, height)) for photo in few]
        else:
            images = [_mosaic(opened, width, height)]
        made.append(
            Sample(format, size, tuple(Photo.of(_encode(image, format)) for image in images))
        )
    return made


def _mosaic(photos: list[PillowImage.Image], width: int, height: int) -> PillowImage.Image:
    """Lay photos side by side until the area is full."""
    step_x, step_y = _SIZES["medium"]
    tiles = [photo.resize((step_x, step_y)) for photo in photos]
    whole = PillowImage.new("RGB", (width, height))
    places = product(range(0, height, step_y), range(0, width, step_x))
    for number, (top, left) in enumerate(places):
        whole.paste(tiles[number % len(tiles)], (left, top))
    return whole


def _encode(image: PillowImage.Image, format: Format) -> bytes:
    """Encode an image whose bottom right corner is white.

    If an image ends in mid-grey, as one photo in fifty does, its end may be missing. A decoder
    without warnings then decodes it twice, which would distort the comparison.
    """
    width, height = image.size
    image.paste("white", (width - _BLOCK, height - _BLOCK, width, height))
    file = BytesIO()
    image.save(file, format.upper(), **_OPTIONS.get(format, {}))
    return file.getvalue()


def group_samples(samples: Iterable[Any]) -> list[Sample]:
    """Sort the user's files into samples: at most eight of each format and size class."""
    groups: dict[tuple[Format, SizeClass], list[Photo]] = {}
    for photo in _photos_of(samples):
        groups.setdefault((photo.header.format, size_class(photo.pixels)), []).append(photo)
    if not groups:
        raise ValueError("there are no samples to measure with")
    found = []
    for (format, size), members in groups.items():
        chosen = members[:: -(-len(members) // _MAX_FILES)]
        while len(chosen) > 1 and sum(photo.pixels for photo in chosen) > _MAX_PIXELS:
            chosen.pop()
        found.append(Sample(format, size, tuple(chosen)))
    return found


def with_indices(samples: Iterable[Sample]) -> Iterator[tuple[Sample, range]]:
    """Yield the samples with the range of their indices among the photos of all samples."""
    end = 0
    for sample in samples:
        start, end = end, end + len(sample.photos)
        yield sample, range(start, end)


def comparable_files(read: Mapping[str, set[int]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the backends to compare, and the files that all of these read.

    A backend that reads less than half of the readable files is left out, because it would leave
    hardly any files for the comparison. So a single odd file excludes no fast backend.
    """
    readable: set[int] = set().union(*read.values())
    able = tuple(
        name for name, own in read.items() if readable and len(own) >= _MIN_SHARE * len(readable)
    )
    return able, tuple(sorted(set.intersection(readable, *(read[name] for name in able))))


def _photos_of(samples: Iterable[Any]) -> Iterator[Photo]:
    for index, sample in enumerate(samples):
        is_path = isinstance(sample, (str, os.PathLike))
        data = read_file(os.fspath(sample)) if is_path else bytes(as_buffer(sample))
        try:
            yield Photo.of(data)
        except FastDecodeError as error:
            name = os.fspath(sample) if is_path else f"sample {index}"
            error.args = (f"{name}: {error.args[0]}", *error.args[1:])
            raise
