"""Finds the images to be measured, under folders and in stores, and lists unreadable ones."""

from __future__ import annotations

import hashlib
import io
import math
import os
import random
from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path

from fastdecode._decode.api import probe
from fastdecode._system.files import open_regular, read_regular
from fastdecode.errors import (
    DecodeError,
    StoreError,
    UnsupportedFormat,
    visible,
    without_advice,
)
from fastdecode.measure import result
from fastdecode.samples import photo
from fastdecode.stores import Store, kind_of, open_store
from fastdecode.stores._scan import EXTENSIONS, found, is_folder
from fastdecode.types import Buffer, Header

SAMPLES = photo.parent
"""Folder of the photos that come with the package."""

USUAL_LIMIT = 200
"""Default number of images in a run, because a data set may have millions."""

USUAL_PIXELS = 100_000_000
"""Default number of pixels in a short run: fifty images of two megapixels."""

_MIN_IMAGES = 8  # however large they are

_HEAD = 1 << 20  # bytes to read first, so that films and archives are not read whole


@dataclass(frozen=True)
class Photo:
    """One image. Its bytes are not loaded until it is decoded."""

    name: str  # its path as the user gave it, or its key in a store; printable
    path: Path  # of the file, or of the store
    header: Header
    size: int  # in bytes
    store: Store | None = None  # the store that contains it; None for a file
    index: int = 0  # its index in the store

    @property
    def pixels(self) -> int:
        """Number of stored pixels, at full size."""
        return self.header.width * self.header.height

    @property
    def source(self) -> str | Photo:
        """The path of a file, for code that reads files itself; else this object, with `read`."""
        return str(self.path) if self.store is None else self

    def read(self) -> Buffer:
        """Read the bytes. A store may return a view that is not in memory yet."""
        return read_regular(self.path) if self.store is None else self.store.read(self.index)


@dataclass
class Collection:
    """The files that were found under the paths."""

    photos: list[Photo] = field(default_factory=list)  # sorted by name
    # why a file that should be an image cannot be used, by name
    unreadable: dict[str, str] = field(default_factory=dict)
    not_images: int = 0  # files skipped because they are something else
    left_out: int = 0  # files not read because there were already `limit` images
    samples: bool = False  # these are the photos that come with the package

    def summary(self) -> result.CollectionSummary:
        """Return the counts that a result contains."""
        facts = "\n".join(f"{photo.name} {photo.size}" for photo in self.photos)
        return result.CollectionSummary(
            images=len(self.photos),
            bytes=sum(photo.size for photo in self.photos),
            pixels=sum(photo.pixels for photo in self.photos),
            digest=hashlib.blake2b(facts.encode(), digest_size=8).hexdigest(),
            formats=dict(Counter(str(photo.header.format) for photo in self.photos).most_common()),
            unreadable=dict(self.unreadable),
            not_images=self.not_images,
            left_out=self.left_out,
            samples=self.samples,
        )


def collect(
    paths: Sequence[str | Path], *, limit: int | None = None, pixels: int | None = None
) -> Collection:
    """Find every image under the paths, and read its header.

    Folders are searched to any depth, except hidden files and folders. A folder with tar shards and
    no images is a store. At most `limit` images are taken, and few more than have so many `pixels`.
    They are drawn at random, because the first ones of a data set are often all of one class. The
    draw is the same in each call.
    """
    collection = Collection()
    root = Path(paths[0]) if len(paths) == 1 and _is_folder(paths[0]) else None

    def note(error: OSError) -> None:
        """Add a folder that cannot be searched to the unreadable files."""
        path = Path(error.filename)
        name = visible(str(path.relative_to(root) if root and path != root else path))
        collection.unreadable[name] = error.strerror or str(error)

    files, stores = _files_and_stores(paths, note)
    ends = list(accumulate(len(store) for store in stores))
    total = len(files) + (ends[-1] if ends else 0)
    order = array("q", range(total))  # a list would be large for a store with millions
    random.Random(0).shuffle(order)
    room = math.inf if pixels is None else pixels
    for count, drawn in enumerate(order):
        enough = room <= 0 and len(collection.photos) >= _MIN_IMAGES
        if enough or (limit is not None and len(collection.photos) >= limit):
            collection.left_out = total - count
            break
        before = len(collection.photos)
        if drawn < len(files):
            path = files[drawn]
            name = visible(str(path.relative_to(root) if root else path))
            _take(collection, name, partial(_load, path, name))
        else:
            at = bisect_right(ends, drawn - len(files))
            index = drawn - len(files) - (ends[at] - len(stores[at]))
            name = _name(stores[at], index, alone=len(paths) == 1)
            _take(collection, name, partial(_load_item, stores[at], index, name))
        room -= sum(photo.pixels for photo in collection.photos[before:])
    collection.photos.sort(key=lambda photo: photo.name)
    return collection


def _take(collection: Collection, name: str, load: Callable[[], Photo]) -> None:
    """Add an image, or the reason why it cannot be used."""
    try:
        collection.photos.append(load())
    except UnsupportedFormat:
        collection.not_images += 1
    except (DecodeError, StoreError, OSError) as error:
        collection.unreadable[name] = getattr(error, "strerror", None) or without_advice(error)


def _files_and_stores(
    paths: Sequence[str | Path], note: Callable[[OSError], None] | None = None
) -> tuple[list[Path], list[Store]]:
    files: dict[Path, None] = {}  # in order, each once
    stores: dict[str, Store] = {}
    for given in paths:
        location = str(given)
        if _is_store(location):
            if location not in stores:
                stores[location] = _open_store(location)
            continue
        below = list(_files(Path(given), note))
        if _are_shards(Path(given), below):
            stores.setdefault(location, _open_store(location))
        else:
            files.update(dict.fromkeys(below))
    return list(files), list(stores.values())


def _is_store(location: str) -> bool:
    """Return whether a location names a store, and not a folder of files."""
    if not _is_folder(location):
        try:
            return kind_of(location) != "folder" or "://" in location
        except (FileNotFoundError, ValueError):  # `_files` raises the error
            return False
    by_lmdb = os.path.exists(os.path.join(location, "data.mdb"))  # noqa: PTH110, PTH118 - no errors
    return by_lmdb or kind_of(location) != "folder"


def _is_folder(path: str | Path) -> bool:
    """Return whether a path is a folder. Unlike `Path.is_dir`, this raises no error."""
    return os.path.isdir(path)  # noqa: PTH112


def _are_shards(folder: Path, files: Sequence[Path]) -> bool:
    """Return whether a folder contains tar files, and no images below it."""
    names = [str(path).lower() for path in files]
    shards = any(path.parent == folder and path.suffix.lower() == ".tar" for path in files)
    return shards and not any(name.endswith(EXTENSIONS) for name in names)


def _open_store(location: str) -> Store:
    try:
        return open_store(location)
    except FileNotFoundError:
        raise
    except OSError as error:  # otherwise it would look like an error of standard output
        raise StoreError(f"{location}: {error.strerror or error}") from error


def _name(store: Store, index: int, *, alone: bool) -> str:
    try:
        key = store.key(index)
    except StoreError:  # reading the item raises the error
        key = f"item {index}"
    return visible(key if alone else f"{store.location}, {key}")


def _files(path: Path, note: Callable[[OSError], None] | None) -> Iterator[Path]:
    if _is_folder(path):
        listed = found(str(path), note=note, leave_out=_is_left_out)
        yield from (path / name for name in listed.files)
    elif os.path.lexists(path):
        yield path
    else:
        raise FileNotFoundError(f"there is no file or folder {visible(str(path))!r}")


def _is_left_out(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is hidden, or a link to a folder, which may be searched already."""
    return entry.name.startswith(".") or (entry.is_symlink() and is_folder(entry))


def _load(path: Path, name: str) -> Photo:
    """Read the header of one image."""
    with io.BufferedReader(open_regular(path)) as file:
        data = file.read(_HEAD)
        try:
            header = probe(data)
        except DecodeError:
            if len(data) < _HEAD:
                raise
            header = probe(data + file.read())  # TIFF, for example, may have its header at the end
        return Photo(name, path, header, os.fstat(file.fileno()).st_size)


def _load_item(store: Store, index: int, name: str) -> Photo:
    """Read the header of one image in a store."""
    data = store.read(index)
    return Photo(name, Path(store.location), probe(data), len(data), store, index)
