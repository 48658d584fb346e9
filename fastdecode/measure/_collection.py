"""The images that are measured: found under folders and in stores, and listed if unreadable."""

from __future__ import annotations

import io
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

from fastdecode._files import open_regular, read_image
from fastdecode.api import probe
from fastdecode.errors import DecodeError, StoreError, UnsupportedFormat, without_advice
from fastdecode.measure import result
from fastdecode.measure._text import visible
from fastdecode.samples import photo
from fastdecode.stores import Store, kind_of, open_store
from fastdecode.stores._scan import is_readable_file
from fastdecode.stores.folder import EXTENSIONS
from fastdecode.types import Buffer, Header

SAMPLES = photo.parent
"""Where the photos are that the package carries."""

USUAL_LIMIT = 200
"""Images of a run, unless another number is asked for: a data set has millions."""

_HEAD = 1 << 20  # read first, so that a film or an archive is not read whole to be passed over


@dataclass(frozen=True)
class Photo:
    """One image; its bytes stay where they are until it is decoded."""

    name: str  # its path as the user would say it, or its key in a store; printable
    path: Path  # of the file, or of the store
    header: Header
    size: int  # in bytes
    store: Store | None = None  # where it is, if it is no file of its own
    index: int = 0  # in the store
    data: bytes | None = None  # its bytes, if it was given by them

    @classmethod
    def of(cls, data: bytes) -> Photo:
        """Make one of bytes."""
        return cls("", Path(), probe(data), len(data), data=data)

    @property
    def pixels(self) -> int:
        """Stored ones, full size."""
        return self.header.width * self.header.height

    @property
    def source(self) -> str | Photo:
        """Where who reads by itself finds it: the path of a file; else this, which is read."""
        return str(self.path) if self.store is None and self.data is None else self

    def read(self) -> Buffer:
        """Read it: of a store whatever that gives, which need not be in memory yet."""
        if self.data is not None:
            return self.data
        return read_image(self.path) if self.store is None else self.store.read(self.index)


@dataclass
class Collection:
    """What was found under the paths."""

    photos: list[Photo] = field(default_factory=list)  # by name
    # why a file that should be an image cannot be used, by name
    unreadable: dict[str, str] = field(default_factory=dict)
    not_images: int = 0  # files passed over because they are something else
    left_out: int = 0  # files not looked at because `limit` images were reached
    samples: bool = False  # these are the photos that the package carries

    def summary(self) -> result.Collection:
        """Count it, as it stands in results."""
        return result.Collection(
            images=len(self.photos),
            bytes=sum(photo.size for photo in self.photos),
            pixels=sum(photo.pixels for photo in self.photos),
            formats=dict(Counter(str(photo.header.format) for photo in self.photos).most_common()),
            unreadable=dict(self.unreadable),
            not_images=self.not_images,
            left_out=self.left_out,
            samples=self.samples,
        )


def collect(paths: Sequence[str | Path], *, limit: int | None = None) -> Collection:
    """Find every image under the paths, and read its header.

    Folders are searched to any depth, but for what is hidden; a folder without images but with tar
    shards is a store. What `limit` leaves is drawn at random, always the same: the first ones of a
    data set are often all of one class.
    """
    collection = Collection()
    root = Path(paths[0]) if len(paths) == 1 and _is_folder(paths[0]) else None

    def note(error: OSError) -> None:
        """Name a folder that cannot be searched."""
        path = Path(error.filename)
        name = visible(str(path.relative_to(root) if root and path != root else path))
        collection.unreadable[name] = error.strerror or str(error)

    found, stores = _files_and_stores(paths, note)
    ends = list(accumulate(len(store) for store in stores))
    total = len(found) + (ends[-1] if ends else 0)
    order = array("q", range(total))  # a list of a store's millions would be large
    random.Random(0).shuffle(order)
    for count, drawn in enumerate(order):
        if limit is not None and len(collection.photos) >= limit:
            collection.left_out = total - count
            break
        if drawn < len(found):
            path = found[drawn]
            name = visible(str(path.relative_to(root) if root else path))
            _take(collection, name, partial(_load, path, name))
        else:
            at = bisect_right(ends, drawn - len(found))
            index = drawn - len(found) - (ends[at] - len(stores[at]))
            name = _name(stores[at], index, alone=len(paths) == 1)
            _take(collection, name, partial(_load_item, stores[at], index, name))
    collection.photos.sort(key=lambda photo: photo.name)
    return collection


def _take(collection: Collection, name: str, load: Callable[[], Photo]) -> None:
    """Add an image, or why there is none."""
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
                stores[location] = _opened(location)
            continue
        below = list(_files(Path(given), note))
        if _are_shards(Path(given), below):
            stores.setdefault(location, _opened(location))
        else:
            files.update(dict.fromkeys(below))
    return list(files), list(stores.values())


def _is_store(location: str) -> bool:
    """Whether a path's end says so; a folder of files is none."""
    if not _is_folder(location):
        try:
            return kind_of(location) != "folder" or "://" in location
        except (FileNotFoundError, ValueError):  # `_files` says so
            return False
    by_lmdb = os.path.exists(os.path.join(location, "data.mdb"))  # noqa: PTH110, PTH118 - no errors
    return by_lmdb or kind_of(location) != "folder"


def _is_folder(path: str | Path) -> bool:
    """Whether it is a folder; no error where it cannot be one, unlike `Path.is_dir`."""
    return os.path.isdir(path)  # noqa: PTH112


def _are_shards(folder: Path, files: Sequence[Path]) -> bool:
    """Whether there are tar files in a folder, and no images below it."""
    names = [str(path).lower() for path in files]
    shards = any(path.parent == folder and path.suffix.lower() == ".tar" for path in files)
    return shards and not any(name.endswith(EXTENSIONS) for name in names)


def _opened(location: str) -> Store:
    try:
        return open_store(location)
    except FileNotFoundError:
        raise
    except OSError as error:  # which must not be taken for one of standard output
        raise StoreError(f"{location}: {error.strerror or error}") from error


def _name(store: Store, index: int, *, alone: bool) -> str:
    try:
        key = store.key(index)
    except StoreError:  # reading it says why
        key = f"item {index}"
    return visible(key if alone else f"{store.location}, {key}")


def _files(path: Path, note: Callable[[OSError], None] | None) -> Iterator[Path]:
    if _is_folder(path):
        for folder, folders, names in os.walk(path, onerror=note):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            files = (os.path.join(folder, name) for name in sorted(names) if name[0] != ".")  # noqa: PTH118
            yield from (Path(file) for file in files if is_readable_file(file))
    elif os.path.lexists(path):
        yield path
    else:
        raise FileNotFoundError(f"there is no file or folder {visible(str(path))!r}")


def _load(path: Path, name: str) -> Photo:
    """Read the header of one image."""
    with io.BufferedReader(open_regular(path)) as file:
        data = file.read(_HEAD)
        try:
            header = probe(data)
        except DecodeError:
            if len(data) < _HEAD:
                raise
            header = probe(data + file.read())  # TIFF, for one, may keep its header at the end
        return Photo(name, path, header, os.fstat(file.fileno()).st_size)


def _load_item(store: Store, index: int, name: str) -> Photo:
    """Read the header of one image in a store."""
    data = store.read(index)
    return Photo(name, Path(store.location), probe(data), len(data), store, index)
