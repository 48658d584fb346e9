"""Images in HDF5: a dataset of variable-length byte strings, and their labels.

`Hdf5Writer` makes these datasets, so that ``file["images"][i]`` is an image for anyone with h5py:

- ``images``: variable-length uint8;
- ``keys``: texts;
- ``labels``: int64 or texts; there is no such dataset if the targets are neither.

This package reads the images, and the index (see `_index`) in ``fastdecode_index`` instead of the
other datasets.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import h5py
import numpy as np

from fastdecode._error_policy import is_item_error
from fastdecode.errors import StoreError, with_advice
from fastdecode.stores._index import Index, IndexBuilder, SelfDescribed
from fastdecode.stores._ranges import RangeFile, Ranges, local_path
from fastdecode.stores.base import Writer, reserve_space
from fastdecode.types import Buffer

_DAMAGE = (OSError, RuntimeError, ValueError, TypeError, KeyError, IndexError, MemoryError)
"""What h5py raises for a damaged file."""


FORMAT = "fastdecode"
"""Attribute of the file that holds the version of its layout."""

INDEX = "fastdecode_index"
_VERSION = 1
_BATCH = 16 << 20
_ROWS = 1024
_ROW = 4096 + 64
"""Bytes that a row may need in addition to its data: the least size of a heap collection, and a
reference (HDF5 File Format Specification 3.0, III.E)."""

_MARGIN = 1 << 20
"""Most bytes that HDF5's own structures need between two writes."""

_END = slice(28, 36)
"""Where the file holds its length: "End of File Address" (ibid., II.A, version 3)."""

_BYTES = h5py.vlen_dtype(np.uint8)
_TEXT = h5py.string_dtype()


class _OpenFile(NamedTuple):
    """What a process has opened."""

    file: Any
    images: Any
    ranges: Ranges


class Hdf5Store(SelfDescribed):
    """An HDF5 file as a store.

    Files that other programs have made can be read, too, if one dataset has an encoded image in
    each row, as variable-length uint8 or as opaque bytes. The options name the datasets.

    Datasets that lie in other files (external links, external and virtual storage) are refused.

    h5py allows one thread at a time to use HDF5, and copies what it reads.

    Parameters
    ----------
    location : str
        Local path or URI.
    images : str, optional
        The dataset with the images of a foreign file; by default ``"images"``.
    targets : str, optional
        The dataset with a number, a text or an array for each image; by default ``"labels"``, if
        there is one.
    keys : str, optional
        The dataset with the names of the images; by default the keys are numbers.
    storage_options : mapping, optional
        For the file system of a URI.

    Notes
    -----
    HDF5 has checksums for its metadata only. The index has one, too, and the size of each image is
    compared with it. Foreign files have no such check.
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
        self._reload()

    def _load(self, opened: _OpenFile) -> None:
        with self._naming_item(None):
            self._is_own = self._names == (None, None, None) and FORMAT in opened.file.attrs
            if self._is_own:
                data = _dataset(opened.file, INDEX, self.location)[()].tobytes()
                index = Index(data, self.location, ("size",))
            else:
                index = Index(self._describe(opened).to_bytes(), self.location)
        if len(index) != len(opened.images):
            raise StoreError(f"{self.location}: the index does not belong to the images")
        self._contents, self.classes = index, index.classes

    def _describe(self, opened: _OpenFile) -> IndexBuilder:
        """Collect the keys and targets of a foreign file."""
        _, targets, keys = self._names
        if targets is None and _member(opened.file, "labels", self.location) is not None:
            targets = "labels"
        builder, count = IndexBuilder(), len(opened.images)
        columns = [_column(opened.file, name, count, self.location) for name in (keys, targets)]
        for index, (key, target) in enumerate(zip(*columns, strict=True)):
            builder.add(f"{index:08d}" if keys is None else str(key), target)
        return builder

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
            data = np.asarray(opened.images[index]).tobytes()
        if self._is_own and len(data) != self._contents["size"][index]:
            raise self._damage_error(index, "it has not the size that was written")
        return data

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


class Hdf5Writer(Writer):
    """Writes an HDF5 file, which HDF5 1.10 and later can read.

    The same items always give the same bytes.
    """

    kind = "hdf5"

    def __init__(self, location: str, classes: Sequence[str] = ()) -> None:
        super().__init__(location, classes)
        self._builder = IndexBuilder(classes, ("size",))
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._partial.touch(exist_ok=False)
        try:
            reserve_space(self._partial, 0, _MARGIN)
        except OSError:
            self._partial.unlink()
            raise
        # Metadata of this version has checksums. Times would make the bytes differ.
        self._file: Any = h5py.File(self._partial, "w", libver=("v110", "v110"))
        reserve_space(self._partial, 0, _MARGIN)  # mode "w" has released the first reservation
        self._images = self._table("images", _BYTES)

    def _append(self, key: str, data: memoryview, target: Any) -> None:
        self._builder.add(key, target, size=len(data))
        self._waiting.append(bytes(data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _BATCH or len(self._waiting) == _ROWS:
            self._write_batch()

    def _write_batch(self) -> None:
        self._extend(self._images, [np.frombuffer(data, np.uint8) for data in self._waiting])
        self._waiting.clear()
        self._waiting_bytes = 0

    def _finish(self) -> None:
        self._write_batch()
        data = self._builder.to_bytes()
        index = Index(data, self.location)
        self._reserve(len(data))
        every = range(len(index))
        self._write_column("keys", _TEXT, map(index.key, every))
        if all(_is_int64(index.target(at)) for at in every):
            self._write_column("labels", np.int64, map(index.target, every))
        elif all(_is_text(index.target(at)) for at in every):
            self._write_column("labels", _TEXT, map(index.target, every))
        self._reserve(len(data))
        self._file.create_dataset(INDEX, data=np.frombuffer(data, np.uint8), track_times=False)
        self._file.attrs[FORMAT] = _VERSION
        self._release()

    def _write_column(self, name: str, kind: Any, values: Iterator[Any]) -> None:
        """Write numbers or texts for readers without this package."""
        table = self._table(name, kind)
        while rows := list(islice(values, _ROWS)):
            self._extend(table, rows if kind is np.int64 else [row.encode() for row in rows])

    def _table(self, name: str, kind: Any) -> Any:
        return self._file.create_dataset(
            name, (0,), kind, maxshape=(None,), chunks=(_ROWS,), track_times=False
        )

    def _extend(self, table: Any, rows: Sequence[Any]) -> None:
        """Append numbers, texts in UTF-8, or bytes."""
        if not rows:
            return
        is_int = table.dtype == np.int64
        self._reserve(len(rows) * _ROW + (0 if is_int else sum(map(len, rows))))
        values = np.empty(len(rows), np.int64 if is_int else object)
        # One by one: in one assignment, rows of equal length would make an array of two dimensions.
        for place, row in enumerate(rows):
            values[place] = row
        start, count = len(table), len(rows)
        table.resize(start + count, 0)
        where = table.id.get_space()
        where.select_hyperslab((start,), (count,))
        # h5py's own assignment, too, makes two dimensions of rows of equal length.
        memory = h5py.h5s.create_simple((count,))
        table.id.write(memory, where, values, h5py.h5t.py_create(table.dtype))

    def _reserve(self, size: int) -> None:
        """Reserve disk space first: on a full disk, HDF5 may crash the process."""
        self._file.flush()
        reserve_space(self._partial, self._file.id.get_filesize(), size + _MARGIN)

    def _release(self) -> None:
        """Close the file, and cut off the reserved space that it does not need."""
        if not self._file:
            return
        self._file.close()
        with self._partial.open("rb") as file:
            end = int.from_bytes(file.read(_END.stop)[_END], "little")
        if self._partial.stat().st_size > end:
            os.truncate(self._partial, end)


def _is_int64(value: Any) -> bool:
    return type(value) is int and -(1 << 63) <= value < 1 << 63


def _is_text(value: Any) -> bool:
    """Return whether a value is a text that HDF5 can hold."""
    try:
        return isinstance(value, str) and "\0" not in value and value.encode() is not None
    except UnicodeEncodeError:
        return False
