"""Images in MXNet RecordIO: a ``.rec`` and its ``.idx``.

Notes
-----
A file is a sequence of records, each of which has one or more parts. A part consists of the magic
number (uint32); a uint32 with the kind of part in its 3 high bits and the length in the other 29;
the data; and zeros up to a multiple of 4. All numbers are little-endian. The kind is 0 for a whole
record, 1 for its first part, 2 for a middle one and 3 for the last. A record is split wherever its
data holds the magic number at a multiple of 4, and that number is left out. A search for the magic
number therefore finds only the beginnings of parts. The rules are those of dmlc-core
(include/dmlc/recordio.h).

The header of an image is MXNet's ``IRHeader`` (python/mxnet/recordio.py): flag (uint32), label
(float32), id and a second id (uint64). If the flag is not 0, as many labels (float32) follow.
"""

from __future__ import annotations

import io
import os
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdecode.errors import StoreError, with_advice
from fastdecode.stores._index import IndexedStore
from fastdecode.stores._ranges import Ranges, read_file
from fastdecode.types import Buffer

_LENGTH = (1 << 29) - 1
_MAGIC = (0xCED7230A).to_bytes(4, "little")
_PART = struct.Struct("<4sI")
_IMAGE = struct.Struct("<IfQQ")
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)
_GUESS = 64 << 10


class ImageRecord(NamedTuple):
    """The content of a record."""

    labels: tuple[float, ...]
    listed: bool  # whether the labels are a list, which may have one element
    data: Buffer  # the encoded image


def read_record(file: Ranges, offset: int) -> tuple[Buffer, int]:
    """Return a record and the offset of the next one. The first request asks for `_GUESS` bytes.

    In a local file, which takes no requests, a record in one part is not copied.
    """
    rest = file.size - offset
    if rest < 0 or offset < 0:
        raise StoreError(f"there is no record at {offset}: the file ends at {file.size}")
    size = rest if file.is_local else min(_GUESS, rest)
    while True:
        view = memoryview(file.read(offset, size))
        parts, needed = _parts(view, offset)
        if needed <= size:
            break
        if needed > rest:
            raise StoreError(
                f"the record at {offset} goes on to {offset + needed}, but the file ends at "
                f"{file.size}: it has been cut"
            )
        size = needed
    # Another record must follow: a damaged length would end anywhere.
    if view[needed : needed + 4].nbytes == 4 and view[needed : needed + 4] != _MAGIC:
        raise StoreError(f"no record follows the one at {offset}: its length is damaged")
    file.will_need(offset, needed)
    payload = parts[0] if len(parts) == 1 else _MAGIC.join(parts)
    return payload, offset + needed


def _parts(view: memoryview, offset: int) -> tuple[list[memoryview], int]:
    """Return the parts of the record at the start of `view`, and how many bytes that takes."""
    parts: list[memoryview] = []
    at = 0
    while True:
        if at + _PART.size > len(view):
            return parts, at + _PART.size
        magic, word = _PART.unpack_from(view, at)
        kind, length = word >> 29, word & _LENGTH
        expected = (_MIDDLE, _LAST) if parts else (_WHOLE, _FIRST)
        if magic != _MAGIC or kind not in expected or offset % 4:
            raise StoreError(f"there is no record at {offset}")
        begin = at + _PART.size
        parts.append(view[begin : begin + length])
        at = begin + length + -length % 4
        if kind in (_WHOLE, _LAST) or at > len(view):
            return parts, at


def parse_image(payload: Buffer) -> ImageRecord:
    """Parse the payload of a record."""
    if len(payload) < _IMAGE.size:
        raise StoreError("the record is too short for the header of an image")
    flag, label, _, _ = _IMAGE.unpack_from(payload)
    begin = _IMAGE.size + 4 * flag
    if len(payload) < begin:
        raise StoreError(f"the record is too short for {flag} labels")
    labels = struct.unpack_from(f"<{flag}f", payload, _IMAGE.size) if flag else (label,)
    return ImageRecord(labels, flag > 0, memoryview(payload)[begin:])


class RecordStore(IndexedStore):
    """A RecordIO file and its ``.idx`` as a store, as MXNet's ``im2rec`` makes them.

    The target is the label in the record: an int if it is a whole number, else a float, or a list
    of floats. Items come in the order of the ``.idx``, and their keys are those in it. Images that
    lie in one part of a record, as nearly all do, are not copied.

    Parameters
    ----------
    location : str
        Local path or URI of the ``.rec``.
    index : str, optional
        Path or URI of the ``.idx``, if it is elsewhere or names only some of the records.
    storage_options : mapping, optional
        For the file systems of URIs.
    """

    kind = "recordio"

    def __init__(
        self,
        location: str,
        *,
        index: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(location)
        self._storage_options = dict(storage_options or {})
        opened = self._handle()
        lines = location.removesuffix(".rec") + ".idx" if index is None else os.fspath(index)
        try:
            text = read_file(lines, self._storage_options)
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"{self.location}: its index {lines} is missing: make it with MXNet's "
                "tools/rec2idx.py, or name it with index="
            ) from error
        self._contents = _read_lines(lines, text)
        if index is None:
            _check_end(lines, opened, int(self._contents.offsets.max(initial=-1)))

    def target(self, index: int) -> Any:
        """Return the label in the record of an item."""
        self._check(index)
        found = self._image_record(self._handle(), index)
        if found.listed:
            return list(found.labels)
        label = found.labels[0]
        return int(label) if label.is_integer() else label

    def _open(self) -> Ranges:
        return Ranges(self.location, self._storage_options)

    def _read(self, opened: Ranges, index: int) -> Buffer:
        return self._image_record(opened, index).data

    def _image_record(self, records: Ranges, index: int) -> ImageRecord:
        try:
            return parse_image(read_record(records, int(self._contents.offsets[index]))[0])
        except StoreError as error:
            raise self._damage_error(index, str(error)) from error

    def _close(self, opened: Ranges) -> None:
        opened.close()


class _Lines:
    """The lines of an ``.idx``."""

    def __init__(self, keys: NDArray[Any], offsets: NDArray[Any]) -> None:
        self.keys, self.offsets = keys, offsets

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, index: int) -> str:
        return str(self.keys[index])


def _read_lines(name: str, text: bytes) -> _Lines:
    """Read an ``.idx``, which has a line with key and offset for each record."""
    found = np.empty((0, 2), np.int64)
    try:
        if text.strip():
            found = np.loadtxt(io.BytesIO(text), np.int64, comments=None, ndmin=2)
    except ValueError as error:
        raise StoreError(f"{name}: {error}") from error
    if found.shape[1] != 2 or found.min(initial=0) < 0:
        raise StoreError(f"{name}: each line must have a key and an offset, both numbers")
    return _Lines(*found.T.copy())


def _check_end(lines: str, records: Ranges, last: int) -> None:
    """Raise a StoreError unless the file ends with the last record."""
    try:
        end = 0 if last < 0 else read_record(records, last)[1]
    except StoreError as error:
        raise StoreError(
            f"{records.location}: {error}; it is damaged or truncated, or {lines} belongs "
            "to another file"
        ) from error
    if end != records.size:
        wrong = StoreError(
            f"{lines} ends at {end}, but {records.location} at {records.size}: it has "
            "been cut, or belongs to another file"
        )
        raise with_advice(wrong, "; if it leaves out records on purpose, pass it as index=")
