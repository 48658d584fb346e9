"""Finds the images to be measured, under folders and in stores, and lists unreadable ones."""

from __future__ import annotations

import math
import os
import random
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path

from fastdecode._decode.api import probe
from fastdecode.errors import (
    DecodeError,
    StoreError,
    UnsupportedFormat,
    visible,
    without_advice,
)
from fastdecode.measure.result import CollectionSummary
from fastdecode.samples import photo
from fastdecode.stores import Store, kind_by_suffix, open_store
from fastdecode.stores.folder import FileStore, open_any
from fastdecode.types import Buffer, Header

SAMPLES = photo.parent
"""Folder of the photos that come with the package."""

USUAL_LIMIT = 200
"""Default number of images in a run, because a data set may have millions."""

USUAL_PIXELS = 100_000_000
"""Default number of pixels in a short run: fifty images of two megapixels."""

_MIN_IMAGES = 8  # however large they are


@dataclass(frozen=True)
class Photo:
    """One image. Its bytes are not loaded until it is decoded."""

    name: str  # its path as the user gave it, or its key in a store; printable
    header: Header
    size: int  # in bytes
    store: Store
    index: int  # in the store

    @property
    def pixels(self) -> int:
        """Number of stored pixels, at full size."""
        return self.header.width * self.header.height

    @property
    def source(self) -> str | Photo:
        """The path of a file, for code that reads files itself; else this object, with `read`."""
        source = self.store.source(self.index) if isinstance(self.store, FileStore) else self
        return source if isinstance(source, str) else self

    def read(self) -> Buffer:
        """Read the bytes. A store may return a view that is not in memory yet."""
        return self.store.read(self.index)


@dataclass
class Collection:
    """The images that were found under the paths."""

    photos: list[Photo] = field(default_factory=list)  # sorted by name
    counts: CollectionSummary = field(default_factory=CollectionSummary)

    def summary(self) -> CollectionSummary:
        """Return the counts that a result contains."""
        return replace(
            self.counts,
            images=len(self.photos),
            bytes=sum(photo.size for photo in self.photos),
            pixels=sum(photo.pixels for photo in self.photos),
            formats=dict(Counter(str(photo.header.format) for photo in self.photos).most_common()),
        )


def collect(
    paths: Sequence[str | Path], *, limit: int | None = None, pixels: int | None = None
) -> Collection:
    """Find the images of folders, stores and files, and read their headers.

    At most `limit` images are taken, and few more than have so many `pixels`. They are drawn at
    random, because the first ones of a data set are often all of one class. The draw is the same in
    each call.
    """
    photos: list[Photo] = []
    unreadable: dict[str, str] = {}
    not_images = left_out = 0
    stores = list(map(_open, dict.fromkeys(map(str, paths))))
    ends = list(accumulate(map(len, stores)))
    order = array("q", range(ends[-1]))  # a list would be large for a store with millions
    random.Random(0).shuffle(order)
    room = math.inf if pixels is None else pixels
    for count, drawn in enumerate(order):
        enough = room <= 0 and len(photos) >= _MIN_IMAGES
        if enough or (limit is not None and len(photos) >= limit):
            left_out = len(order) - count
            break
        at = bisect_right(ends, drawn)
        store, index = stores[at], drawn - (ends[at] - len(stores[at]))
        name = _name(store, index, alone=len(stores) == 1)
        if store.kind == "folder" and name.rpartition("/")[2].startswith("."):
            continue  # hidden, as what macOS keeps beside files
        try:
            data = store.read(index)
            photos.append(Photo(name, probe(data), len(data), store, index))
        except UnsupportedFormat:
            not_images += 1
        except (DecodeError, StoreError, OSError) as error:
            why = getattr(error, "strerror", None) or without_advice(error)
            unreadable[name] = why
        else:
            room -= photos[-1].pixels
    photos.sort(key=lambda photo: photo.name)
    counts = CollectionSummary(unreadable=unreadable, not_images=not_images, left_out=left_out)
    return Collection(photos, counts)


def _open(location: str) -> Store:
    """Open a folder, a store, or one image as a list."""
    single = "://" not in location and os.path.lexists(location) and not Path(location).is_dir()
    if single and kind_by_suffix(location) is None:
        return open_store([location])
    try:
        return open_any(location)
    except FileNotFoundError:
        raise
    except OSError as error:  # otherwise it would look like an error of standard output
        raise StoreError(f"{location}: {error.strerror or error}") from error


def _name(store: Store, index: int, *, alone: bool) -> str:
    """Return the key of an item in the only store; else its path, or its store and key."""
    try:
        key = store.key(index)
        if isinstance(store, FileStore) and not store.remote:
            return visible(key if alone and store.kind == "folder" else str(store.source(index)))
    except StoreError:  # reading the item raises the error
        key = f"item {index}"
    return visible(key if alone else f"{store.location}, {key}")
