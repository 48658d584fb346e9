"""Images in HDF5: a dataset with an encoded image in each row, and datasets of labels and keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import h5py
import numpy as np

from fastdecode._error_policy import is_item_error
from fastdecode.errors import StoreError, with_advice
from fastdecode.stores._index import Index, IndexBuilder, IndexedStore
from fastdecode.stores._ranges import RangeFile, Ranges, local_path
from fastdecode.types import Buffer

_DAMAGE = (OSError, RuntimeError, ValueError, TypeError, KeyError, IndexError, MemoryError)
"""What h5py raises for a damaged file."""


class _OpenFile(NamedTuple):
    """What a process has opened."""

    file: Any
    images: Any
    ranges: Ranges


class Hdf5Store(IndexedStore):
    """An HDF5 file as a store.

    One dataset has an encoded image in each row, as variable-length uint8 or as opaque bytes.
    Datasets that lie in other files (external links, external and virtual storage) are refused.

    h5py allows one thread at a time to use HDF5, and copies what it reads.

    Parameters
    ----------
    location : str
        Local path or URI.
    images : str, optional
        The dataset with the images; by default ``"images"``.
    targets : str, optional
        The dataset with a number, a text or an array for each image; by default ``"labels"``, if
        there is one.
    keys : str, optional
        The dataset with the names of the images; by default ``"keys"``, if there is one, and else
        the keys are numbers.
    storage_options : mapping, optional
        For the file system of a URI.

    Notes
    -----
    HDF5 has checksums for its metadata only, and only if the writer asked for them.
    """

    kind = "hdf5"

    def __init__(
        self,
        location: str,
        *,
        images: str | None = None,
        targets: str | None = None,
        keys: str | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(location)
        self._names = images, targets, keys
        self._storage_options = dict(storage_options or {})
        self._contents = self._describe(self._handle())

    def _describe(self, opened: _OpenFile) -> Index:
        """Return the keys and targets."""
        file, count, builder = opened.file, len(opened.images), IndexBuilder()
        _, targets, keys = self._names
        with self._naming_item(None):
            if keys is None and _member(file, "keys", self.location) is not None:
                keys = "keys"
            if targets is None and _member(file, "labels", self.location) is not None:
                targets = "labels"
            columns = [_column(file, name, count, self.location) for name in (keys, targets)]
            for index, (key, target) in enumerate(zip(*columns, strict=True)):
                builder.add(f"{index:08d}" if keys is None else str(key), target)
        return Index(builder.to_bytes(), self.location)

    def _open(self) -> _OpenFile:
        ranges = Ranges(self.location, self._storage_options, descriptor=False)
        with self._naming_item(None):
            if ranges.is_local:
                # Nothing writes to it, and a lock would fail on file systems without locks.
                file = h5py.File(local_path(self.location), "r", locking=False)
            else:
                file = h5py.File(RangeFile(ranges), "r")
            table = _dataset(file, self._names[0] or "images", self.location)
            if not _has_bytes(table):
                raise StoreError(
                    f"{self.location}: {table.name!r} of type {table.dtype} and shape "
                    f"{table.shape} does not hold an encoded image in each row; name the dataset "
                    "that does with images="
                )
            return _OpenFile(file, table, ranges)

    def _read(self, opened: _OpenFile, index: int) -> Buffer:
        with self._naming_item(index):
            opened.ranges.check()  # past the end of a file that has been cut, HDF5 returns zeros
            return np.asarray(opened.images[index]).tobytes()

    def _close(self, opened: _OpenFile) -> None:
        opened.file.close()

    @contextmanager
    def _naming_item(self, index: int | None) -> Iterator[None]:
        """Turn errors of h5py into a StoreError that names the file and the item."""
        try:
            yield
        except _DAMAGE as error:
            if self._closed:  # another thread has closed it meanwhile
                raise ValueError(f"{self.location}: the store has been closed") from error
            if isinstance(error, OSError) and not is_item_error(error):  # of a disk or a server
                raise
            what = f"{self.location}, item {index}" if index is not None else self.location
            if isinstance(error, StoreError) and index is None:
                raise
            raise StoreError(f"{what}: it is damaged or truncated ({error})") from error


def _dataset(file: Any, name: str, location: str) -> Any:
    found = _member(file, name, location)
    if isinstance(found, h5py.Dataset):
        if found.external is not None or found.is_virtual:
            raise _external_error(location, name)
        return found
    there = ", ".join(key for key in file if _is_internal(file, key))
    error = StoreError(f"{location}: there is no dataset {name!r}, only: {there or 'none'}")
    raise with_advice(error, "; name it with images=, targets= or keys=")


def _member(group: Any, path: str, location: str) -> Any:
    """Return what a group has at a path, or None; refuse links, which may lead elsewhere.

    HDF5 itself opens any file that an external link names, even a FIFO or the file of another user.
    """
    for part in filter(None, path.split("/")):
        name = part.encode("utf-8", "surrogateescape")
        if not isinstance(group, h5py.Group) or not group.id.links.exists(name):
            return None
        if group.id.links.get_info(name).type != h5py.h5l.TYPE_HARD:
            raise _external_error(location, path)
        group = group[part]
    return group


def _is_internal(file: Any, name: str) -> bool:
    """Return whether a dataset of that name lies in the file itself."""
    try:
        return isinstance(_member(file, name, ""), h5py.Dataset)
    except StoreError:
        return False


def _external_error(location: str, name: str) -> StoreError:
    return StoreError(
        f"{location}: {name!r} is a link, or lies in another file, and is not followed: name the "
        "dataset itself, or copy it into this file (h5copy, h5repack)"
    )


def _has_bytes(table: Any) -> bool:
    kind = h5py.check_vlen_dtype(table.dtype)
    opaque = table.dtype.kind == "V" and table.dtype.names is None
    return table.ndim == 1 and (kind in (np.dtype("u1"), np.dtype("i1")) or opaque)


def _column(file: Any, name: str | None, count: int, location: str) -> list[Any]:
    """Return the values of a dataset as numbers, texts or lists; None for each if there is none."""
    if name is None:
        return [None] * count
    table = _dataset(file, name, location)
    if table.shape[:1] != (count,):
        raise StoreError(f"{location}: {table.name!r} does not have a row for each image")
    values = [
        each.tolist() if isinstance(each, np.ndarray) else each for each in table[()].tolist()
    ]
    return [
        each.decode("utf-8", "backslashreplace") if isinstance(each, bytes) else each
        for each in values
    ]
