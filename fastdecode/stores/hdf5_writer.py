"""Writing pictures to HDF5."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import h5py
import numpy as np

from fastdecode.stores.file_writer import FileWriter, reserve
from fastdecode.stores.fingerprint import fingerprint
from fastdecode.stores.index import Index, IndexBuilder

__all__ = ["FORMAT", "INDEX", "Hdf5Writer"]

FORMAT = "fastdecode"
"""Attribute of the file: the version of its layout."""

INDEX = "fastdecode_index"
_VERSION = 1
_BATCH = 16 << 20
_ROWS = 1024
_ROW = 4096 + 64
"""Bytes that a row may need besides its own: a heap collection's least size, and its reference
(HDF5 File Format Specification 3.0, III.E)."""

_MARGIN = 1 << 20
"""Bytes that the tables' own structures need at most between two writes."""

_END = slice(28, 36)
"""Where the file says how long it is: "End of File Address" (ibid., II.A, version 3)."""

_BYTES = h5py.vlen_dtype(np.uint8)
_TEXT = h5py.string_dtype()


class Hdf5Writer(FileWriter):
    """Writes one HDF5 file, which HDF5 1.10 and later read.

    The same items make the same bytes.

    Parameters
    ----------
    location : str
    classes : sequence of str
    """

    kind = "hdf5"

    def __init__(self, location: str, classes: Sequence[str] = ()) -> None:
        super().__init__(location, classes)
        self._builder = IndexBuilder(classes, ("size", "fingerprint"))
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._final.parent.mkdir(parents=True, exist_ok=True)
        self._partial.touch(exist_ok=False)
        try:
            reserve(self._partial, 0, _MARGIN)
        except OSError:
            self._partial.unlink()
            raise
        # Metadata of this version have checksums; nothing in the file is a time.
        self._file: Any = h5py.File(self._partial, "w", libver=("v110", "v110"))
        reserve(self._partial, 0, _MARGIN)  # which "w" has given back
        self._images = self._table("images", _BYTES)

    def _append(self, key: str, data: memoryview, target: Any) -> None:
        self._builder.add(key, target, size=len(data), fingerprint=fingerprint(data))
        self._waiting.append(bytes(data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _BATCH or len(self._waiting) == _ROWS:
            self._write_waiting()

    def _write_waiting(self) -> None:
        images = [np.frombuffer(data, np.uint8) for data in self._waiting]
        self._extend(self._images, images, _BYTES)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _finish(self) -> None:
        self._write_waiting()
        data = self._builder.to_bytes()
        index = Index(data, self.location)
        self._reserve(len(data))
        self._write_texts("keys", (index.key(place) for place in range(len(index))))
        self._write_labels(index)
        if self.classes:
            self._write_classes()
        self._reserve(len(data))
        self._file.create_dataset(INDEX, data=np.frombuffer(data, np.uint8), track_times=False)
        self._file.attrs[FORMAT] = _VERSION
        self._let_go()

    def _write_labels(self, index: Index) -> None:
        """Write the targets for those who read the file without this package."""
        targets = (index.target(place) for place in range(len(index)))
        kinds = {type(target) for target in targets}
        if kinds <= {type(None)}:
            return
        targets = (index.target(place) for place in range(len(index)))
        if kinds == {int}:
            labels = self._table("labels", np.int64)
            for rows in _batches(targets):
                self._reserve(len(rows) * 8)
                labels.resize(len(labels) + len(rows), 0)
                labels[-len(rows) :] = rows
            return
        labels = self._write_texts("labels", (json.dumps(each) for each in targets))
        labels.attrs["encoding"] = "json"

    def _write_classes(self) -> None:
        """Write the names; as JSON, like labels, where one is no text that HDF5 can hold."""
        try:
            plain = all("\0" not in name and name.encode() is not None for name in self.classes)
        except UnicodeEncodeError:
            plain = False
        if plain:
            self._write_texts("classes", self.classes)
        else:
            table = self._write_texts("classes", map(json.dumps, self.classes))
            table.attrs["encoding"] = "json"

    def _write_texts(self, name: str, texts: Iterable[str]) -> Any:
        table = self._table(name, _TEXT)
        for rows in _batches(iter(texts)):
            self._extend(table, [row.encode() for row in rows], _TEXT)
        return table

    def _table(self, name: str, kind: Any) -> Any:
        return self._file.create_dataset(
            name, (0,), kind, maxshape=(None,), chunks=(_ROWS,), track_times=False
        )

    def _extend(self, table: Any, rows: Sequence[Any], kind: Any) -> None:
        """Append rows of any length each."""
        if not rows:
            return
        self._reserve(sum(len(row) for row in rows) + len(rows) * _ROW)
        values = np.empty(len(rows), object)
        for place, row in enumerate(rows):  # at once, equal lengths make two dimensions here, too
            values[place] = row
        start, count = len(table), len(rows)
        table.resize(start + count, 0)
        where = table.id.get_space()
        where.select_hyperslab((start,), (count,))
        # h5py's own assignment takes rows of the same length for one array with two dimensions.
        table.id.write(h5py.h5s.create_simple((count,)), where, values, h5py.h5t.py_create(kind))

    def _reserve(self, size: int) -> None:
        """Make sure of room first: where HDF5 finds none, it may take the process with it."""
        self._file.flush()
        reserve(self._partial, self._file.id.get_filesize(), size + _MARGIN)

    def _let_go(self) -> None:
        """Close the file, and cut off the room that was not needed."""
        if not self._file:
            return
        self._file.close()
        with self._partial.open("rb") as file:
            end = int.from_bytes(file.read(_END.stop)[_END], "little")
        if self._partial.stat().st_size > end:
            os.truncate(self._partial, end)


def _batches(values: Iterator[Any]) -> Iterator[list[Any]]:
    while rows := list(islice(values, _ROWS)):
        yield rows
