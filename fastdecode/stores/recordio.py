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
import zlib
from array import array
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdecode.errors import StoreError, with_advice
from fastdecode.stores._index import Index, SelfDescribed
from fastdecode.stores._ranges import Ranges, exists, read_file
from fastdecode.types import Buffer

_COLUMNS = ("offset", "length", "size")
"""Offset and length of a record, and the size of its image, in bytes."""

_SAMPLES = 8
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
    id: int
    data: Buffer  # the encoded image


def read_record(file: Ranges, offset: int, guess: int = _GUESS) -> tuple[Buffer, int]:
    """Return a record and the offset of the next one. The first request asks for `guess` bytes.

    In a local file, which takes no requests, a record in one part is not copied.
    """
    rest = file.size - offset
    if rest < 0 or offset < 0:
        raise StoreError(f"there is no record at {offset}: the file ends at {file.size}")
    size = rest if file.is_local else min(guess, rest)
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
    flag, label, number, _ = _IMAGE.unpack_from(payload)
    begin = _IMAGE.size + 4 * flag
    if len(payload) < begin:
        raise StoreError(f"the record is too short for {flag} labels")
    labels = struct.unpack_from(f"<{flag}f", payload, _IMAGE.size) if flag else (label,)
    return ImageRecord(labels, flag > 0, number, memoryview(payload)[begin:])


def offsets(file: Ranges) -> Iterator[int]:
    """Yield the offsets of the records in a local file, going from one to the next."""
    view = memoryview(file.read(0, file.size))
    at = number = 0
    while at < len(view):
        try:
            magic, word = _PART.unpack_from(view, at)
        except struct.error:
            magic = b""
        if magic != _MAGIC:
            raise StoreError(
                f"{file.location}, item {number}: there is no record at {at}: the file is damaged"
            )
        if word >> 29 in (_WHOLE, _FIRST):
            yield at
            number += 1
        at += _PART.size + (word & _LENGTH) + -(word & _LENGTH) % 4
    if at > len(view):
        raise StoreError(f"{file.location}, item {number - 1}: the file ends within it")


class RecordStore(SelfDescribed):
    """A RecordIO file as a store, made by ``im2rec``.

    The positions of the records come from ``NAME.rec.fdx``, which fastdecode 0.2 made. Without
    that file they come from ``NAME.idx``, and without either the whole file is read once.

    In a file of another program, the target is the label in the record: an int if it is a whole
    number, else a float, or a list of floats. Items come in the order of the ``.idx``, and their
    keys are those in it; without an ``.idx`` the keys are numbers.

    Images that lie in one part of a record, as nearly all do, are not copied.

    Parameters
    ----------
    location : str
        Local path or URI of the ``.rec``.
    index : str, optional
        Path or URI of the ``.idx``, if it is elsewhere. ``NAME.rec.fdx`` is then ignored.
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
        self._lines = None if index is None else os.fspath(index)
        self._storage_options = dict(storage_options or {})
        self._reload()

    def target(self, index: int) -> Any:
        """Return the target of an item; in a foreign file, the label in its record."""
        self._check(index)
        contents, opened = self._contents, self._opened
        if isinstance(contents, Index):
            if opened is not None and opened.is_local:  # a remote file would take a request
                self._image_record(self._handle(), index)  # compares the labels
            return contents.target(index)
        found = self._image_record(self._handle(), index)
        if found.listed:
            return list(found.labels)
        label = found.labels[0]
        return int(label) if label.is_integer() else label

    def _load(self, opened: Ranges) -> None:
        self._contents: Index | _Places
        index = _load_index(opened, self._storage_options) if self._lines is None else None
        if index is not None:
            self._contents, self.classes = index, index.classes
            return
        try:
            at = self._lines or _index_location(self.location)
            text = read_file(at, self._storage_options)
        except FileNotFoundError as error:
            if self._lines is not None:
                raise FileNotFoundError(f"{self._lines}: there is no such index") from error
            self._contents = _scan(opened)
        else:
            self._contents = _read_lines(at, text, opened, all_of_it=self._lines is None)

    def _open(self) -> Ranges:
        return Ranges(self.location, self._storage_options)

    def _read(self, opened: Ranges, index: int) -> Buffer:
        return self._image_record(opened, index).data

    def _image_record(self, records: Ranges, index: int) -> ImageRecord:
        contents = self._contents
        try:
            if isinstance(contents, Index):
                contents.check(index)
                offset, length = int(contents["offset"][index]), int(contents["length"][index])
                payload, end = read_record(records, offset, length)
                found = parse_image(payload)
                known = length, index, int(contents["size"][index])
                same = known == (end - offset, found.id, len(found.data))
            else:
                found = parse_image(read_record(records, int(contents.offsets[index]))[0])
                same = not contents.has_ids or found.id == int(contents.keys[index])
        except StoreError as error:
            raise self._damage_error(index, str(error)) from error
        if same and isinstance(contents, Index):
            self._compare(found, contents, index)
        if not same:
            raise self._damage_error(
                index,
                "there is another record where the index says: the index belongs to another file",
            )
        return found

    def _compare(self, found: ImageRecord, contents: Index, index: int) -> None:
        """Check that the label of a record is the target in the index, rounded to float32."""
        target = contents.target(index)
        try:
            expected = _labels_of(target)
        except (struct.error, OverflowError) as error:
            raise self._damage_error(index, f"its index is damaged: {error}") from error
        if (found.labels, found.listed) != expected:
            raise self._damage_error(
                index,
                f"its label is {list(found.labels)}, but in the index it is {target!r}: one of the "
                f"two has been changed; if the records are right, remove {self.location}.fdx",
            )

    def _close(self, opened: Ranges) -> None:
        opened.close()


def _load_index(records: Ranges, storage_options: Mapping[str, Any]) -> Index | None:
    """Return the index that fastdecode 0.2 made, or None; raise if it is not that of the file."""
    name = f"{records.location}.fdx"
    index = Index.load_if_exists(name, _COLUMNS, storage_options)
    if index is None:
        return None
    if index.about.get("bytes") != records.size:
        raise StoreError(
            f"{records.location} has {records.size} bytes, but according to its index "
            f"{index.about.get('bytes')}: it has been cut; if it is another file, remove {name}"
        )
    lines = _index_location(records.location)
    if records.is_local and exists(lines):
        text = read_file(lines)
        if [len(text), zlib.crc32(text)] == index.about.get("lines"):
            return index
        raise StoreError(
            f"{lines} is not the one that {name} was written with: remove one of the two"
        )
    return index


class _Places:
    """The positions of the images in a foreign file."""

    def __init__(self, keys: NDArray[Any], offsets: NDArray[Any], *, has_ids: bool) -> None:
        self.keys, self.offsets = keys, offsets
        # Whether the records have the keys as their ids, so that each record can be checked.
        self.has_ids = has_ids

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, index: int) -> str:
        return str(self.keys[index])


def _read_lines(name: str, text: bytes, records: Ranges, *, all_of_it: bool) -> _Places:
    """Read an ``.idx``, which has a line with key and offset for each record.

    With `all_of_it`, the lines must name all records: the last one must end with the file.
    """
    found = np.empty((0, 2), np.int64)
    try:
        if text.strip():
            found = np.loadtxt(io.BytesIO(text), np.int64, comments=None, ndmin=2)
    except ValueError as error:
        raise StoreError(f"{name}: {error}") from error
    if found.shape[1] != 2 or found.min(initial=0) < 0:
        raise StoreError(f"{name}: each line must have a key and an offset, both numbers")
    keys, places = found.T.copy()
    if all_of_it:
        _check_end(name, records, int(places.max(initial=-1)))
    return _Places(keys, places, has_ids=_has_ids(records, keys, places))


def _scan(records: Ranges) -> _Places:
    """Find the records of a file that has no ``.idx``."""
    if not records.is_local:
        error = StoreError(
            f"{records.location}: there is no .idx next to it, and without one all of it would "
            "have to be downloaded; copy the file"
        )
        raise with_advice(error, ", or name the index with index=")
    places = np.array(array("q", offsets(records)), np.int64)
    return _Places(np.arange(len(places)), places, has_ids=False)


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


def _has_ids(records: Ranges, keys: NDArray[Any], places: NDArray[Any]) -> bool:
    """Return whether ids are keys, from some records: im2rec writes the key, others write 0."""
    chosen = sorted({int(place) for place in np.linspace(0, len(keys) - 1, _SAMPLES)})
    same = 0
    for place in chosen if len(keys) else ():
        with suppress(StoreError):  # reading the item raises it
            found = parse_image(read_record(records, int(places[place]))[0])
            same += found.id == keys[place]
    # Most of them, not all: one may be damaged, and the ids are there to find that out.
    return same * 2 > len(chosen)


def _index_location(location: str) -> str:
    """Return the path at which MXNet's tools keep the index of a file."""
    return location.removesuffix(".rec") + ".idx"


def _labels_of(target: Any) -> tuple[tuple[float, ...], bool]:
    """Return a target as the labels in a record, which are float32, and whether it is a list."""
    listed = isinstance(target, list)
    numbers = target if listed else [0 if target is None else target]
    packed = struct.pack(f"<{len(numbers)}f", *numbers)
    return struct.unpack(f"<{len(numbers)}f", packed), listed
