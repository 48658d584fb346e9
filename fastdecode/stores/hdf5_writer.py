"""Writing pictures to HDF5."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import h5py
import numpy as np

from fastdecode.stores.file_writer import FileWriter
from fastdecode.stores.fingerprint import fingerprint
from fastdecode.stores.index import Index, IndexBuilder

__all__ = ["FORMAT", "INDEX", "Hdf5Writer"]

FORMAT = "fastdecode"
"""Attribute of the file: the version of its layout."""

INDEX = "fastdecode_index"
_VERSION = 1
_BATCH = 16 << 20
_ROWS = 1024
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
        # Metadata of this version have checksums; nothing in the file is a time.
        self._file: Any = h5py.File(self._partial, "w", libver=("v110", "v110"))
        self._images = self._table("images", _BYTES)

    def _append(self, key: str, data: memoryview, target: Any) -> None:
        self._builder.add(key, target, size=len(data), fingerprint=fingerprint(data))
        self._waiting.append(bytes(data))
        self._waiting_bytes += len(data)
        if self._waiting_bytes >= _BATCH or len(self._waiting) == _ROWS:
            self._write_waiting()

    def _write_waiting(self) -> None:
        _extend(self._images, [np.frombuffer(data, np.uint8) for data in self._waiting], _BYTES)
        self._waiting.clear()
        self._waiting_bytes = 0

    def _finish(self) -> None:
        self._write_waiting()
        data = self._builder.to_bytes()
        index = Index(data, self.location)
        self._write_texts("keys", (index.key(place) for place in range(len(index))))
        self._write_labels(index)
        if self.classes:
            self._write_texts("classes", self.classes)
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
                labels.resize(len(labels) + len(rows), 0)
                labels[-len(rows) :] = rows
            return
        labels = self._write_texts("labels", (json.dumps(each) for each in targets))
        labels.attrs["encoding"] = "json"

    def _write_texts(self, name: str, texts: Iterable[str]) -> Any:
        table = self._table(name, _TEXT)
        for rows in _batches(iter(texts)):
            _extend(table, [row.encode() for row in rows], _TEXT)
        return table

    def _table(self, name: str, kind: Any) -> Any:
        return self._file.create_dataset(
            name, (0,), kind, maxshape=(None,), chunks=(_ROWS,), track_times=False
        )

    def _let_go(self) -> None:
        self._file.close()


def _extend(table: Any, rows: Sequence[Any], kind: Any) -> None:
    """Append rows of any length each."""
    if not rows:
        return
    values = np.empty(len(rows), object)
    for place, row in enumerate(rows):  # all at once, equal lengths make two dimensions here, too
        values[place] = row
    start = len(table)
    table.resize(start + len(rows), 0)
    where = table.id.get_space()
    where.select_hyperslab((start,), (len(rows),))
    # h5py's own assignment takes rows of the same length for one array with two dimensions.
    table.id.write(h5py.h5s.create_simple((len(rows),)), where, values, h5py.h5t.py_create(kind))


def _batches(values: Iterator[Any]) -> Iterator[list[Any]]:
    while rows := list(islice(values, _ROWS)):
        yield rows
