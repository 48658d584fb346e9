"""Images in MXNet RecordIO: a ``.rec`` and its ``.idx``; see `format` for the bytes."""

from __future__ import annotations

import io
import os
import zlib
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdecode.errors import StoreError, advised
from fastdecode.stores._index import Index
from fastdecode.stores._mmap import Mapped, is_uri, local_path
from fastdecode.stores.base import SelfDescribed
from fastdecode.stores.recordio.format import ImageRecord, offsets, parse_image, read_record
from fastdecode.stores.recordio.writer import COLUMNS, RecordWriter, index_location, labels_of
from fastdecode.types import Buffer

__all__ = ["Places", "RecordStore", "RecordWriter", "read_lines", "scan"]


_CHUNK = 1 << 20
_SAMPLES = 8


class RecordStore(SelfDescribed):
    """A RecordIO file as a store, as ``im2rec`` or `RecordWriter` makes it.

    Where things lie is said by ``NAME.rec.fdx``, which `RecordWriter` leaves; else by ``NAME.idx``;
    else the whole file is gone through once. The target of a foreign file is the label in a record:
    an int if it is a whole number, else a float, or a list of floats. The key is that in the
    ``.idx``, or the item's number. Items come in the order of the ``.idx``.

    Images in one part are not copied; nearly all are.

    Parameters
    ----------
    location : str
        Local path or URI of the ``.rec``.
    index : str, optional
        Path or URI of the ``.idx``, if it is elsewhere. It then is what counts.
    storage_options : mapping, optional
        For the file systems of URIs.

    Raises
    ------
    OSError
        If it is not there, or cannot be read.
    StoreError
        If it is damaged or truncated, or if the files do not belong together.
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

    def __len__(self) -> int:
        contents = self._contents
        return len(contents) if isinstance(contents, Index) else len(contents.keys)

    def key(self, index: int) -> str:
        """Return an item's key; of a foreign file the one in its ``.idx``."""
        self._check(index)
        contents = self._contents
        return contents.key(index) if isinstance(contents, Index) else str(contents.keys[index])

    def target(self, index: int) -> Any:
        """Return an item's target; of a foreign file the label in its record."""
        self._check(index)
        contents, opened = self._contents, self._opened
        if isinstance(contents, Index):
            if opened is not None and opened.is_local:  # elsewhere it would cost a request
                self._image_record(self._handle(), index)  # whose labels are compared
            return contents.target(index)
        found = self._image_record(self._handle(), index)
        if found.listed:
            return list(found.labels)
        label = found.labels[0]
        return int(label) if label.is_integer() else label

    def _load(self, opened: Mapped) -> None:
        self._contents: Index | Places
        index = _own_index(opened, self._storage_options) if self._lines is None else None
        if index is not None:
            self._contents = index
            self.classes = index.classes
        else:
            lines = _opened_if_there(
                self._lines or index_location(self.location), self._storage_options
            )
            if lines is None and self._lines is not None:
                raise FileNotFoundError(f"{self._lines}: there is no such index")
            if lines is None:
                self._contents = scan(opened)
            else:
                self._contents = read_lines(lines, opened, all_of_it=self._lines is None)

    def _open(self) -> Mapped:
        return Mapped(self.location, self._storage_options)

    def _read(self, opened: Mapped, index: int) -> Buffer:
        return self._image_record(opened, index).data

    def _image_record(self, records: Mapped, index: int) -> ImageRecord:
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
            raise self._damaged(index, str(error)) from error
        if same and isinstance(contents, Index):
            self._compare(found, contents, index)
        if not same:
            raise self._damaged(
                index, "another record is where the index says: they do not belong together"
            )
        return found

    def _compare(self, found: ImageRecord, contents: Index, index: int) -> None:
        """Make sure that the label of a record is the one that the index keeps more exactly."""
        target = contents.target(index)
        try:
            labels, listed = labels_of(target)
        except ValueError as error:
            raise self._damaged(index, f"its index is damaged: {error}") from error
        if (found.listed, found.labels) != (listed, tuple(labels)):
            raise self._damaged(
                index,
                f"its label is {list(found.labels)}, but {target!r} by its index: one of the two "
                f"has been changed; if the records are right, remove {self.location}.fdx",
            )

    def _close(self, opened: Mapped) -> None:
        opened.close()


def _opened_if_there(location: str, storage_options: Mapping[str, Any]) -> Mapped | None:
    try:
        return Mapped(location, storage_options)
    except FileNotFoundError:
        return None


def _own_index(records: Mapped, storage_options: Mapping[str, Any]) -> Index | None:
    """Return the index that `RecordWriter` leaves, if it is there and belongs to the file."""
    name = f"{records.location}.fdx"
    if is_uri(name):
        file = _opened_if_there(name, storage_options)
        if file is None:
            return None
        index = Index(file.read(0, file.size), name, COLUMNS)
    elif Path(local_path(name)).exists():
        index = Index.load(local_path(name), COLUMNS)
    else:
        return None
    if index.about.get("bytes") != records.size:
        raise StoreError(
            f"{records.location} has {records.size} bytes, but {index.about.get('bytes')} by its "
            f"index: it has been cut; if it is another file, remove {name}"
        )
    lines = Path(local_path(index_location(records.location)))
    if (
        not is_uri(name)
        and lines.exists()
        and _size_and_checksum(lines) != index.about.get("lines")
    ):
        raise StoreError(f"{lines} is not the one that {name} was written with: remove either")
    return index


def _size_and_checksum(lines: Path) -> list[int]:
    text = Mapped(str(lines))
    return [text.size, zlib.crc32(text.read(0, text.size))]


class Places(NamedTuple):
    """Where the images of a file are."""

    keys: NDArray[Any]
    offsets: NDArray[Any]
    # whether the keys are also the ids in the records, by which a record can be told from others
    has_ids: bool


def read_lines(lines: Mapped, records: Mapped, *, all_of_it: bool) -> Places:
    """Read an ``.idx``: a line for each record with its key and its offset.

    Data sets of faces in InsightFace's layout have a record 0 without an image, whose two labels
    say up to where the keys of the images go; the records after that list who is on them. Of such
    a file the images are given.

    With `all_of_it`, the lines must be those of all records, and the last one end with the file.
    """
    chunks = [np.empty((0, 2), np.int64)]
    for number, text in _chunks(lines):
        try:
            chunk = np.loadtxt(io.BytesIO(text), np.int64, comments=None, ndmin=2)
        except ValueError as error:
            raise StoreError(f"{lines.location}, after line {number}: {error}") from error
        if chunk.shape[1] != 2 or chunk.min() < 0:
            raise StoreError(
                f"{lines.location}, after line {number}: each line must have a key and an offset, "
                "both numbers"
            )
        chunks.append(chunk)
    keys, places = np.concatenate(chunks).T.copy()
    if all_of_it:
        _check_end(lines, records, int(places.max(initial=-1)))
    first = _try_image(records, int(places[0])) if len(keys) and keys[0] == 0 else None
    if first is not None and not first.data and first.listed and len(first.labels) == 2:
        images = (keys >= 1) & (keys < first.labels[0])
        keys, places = keys[images], places[images]
    return Places(keys, places, _has_ids(records, keys, places))


def scan(records: Mapped) -> Places:
    """Find the records of a file that has no ``.idx``."""
    if not records.is_local:
        error = StoreError(
            f"{records.location}: there is no .idx beside it, without which all of it would have "
            "to be fetched; copy the file"
        )
        raise advised(error, ", or name the index by index=")
    places = np.array(array("q", offsets(records)), np.int64)
    return Places(np.arange(len(places)), places, has_ids=False)


def _chunks(lines: Mapped) -> Iterator[tuple[int, bytes]]:
    """Cut the text at the ends of lines, and count the lines before."""
    text = memoryview(lines.read(0, lines.size))
    at = number = 0
    while at < len(text):
        chunk = bytes(text[at : at + _CHUNK])
        if at + len(chunk) < len(text):
            chunk = chunk[: chunk.rfind(b"\n") + 1] or chunk
        if chunk.strip():
            yield number, chunk
        number += chunk.count(b"\n")
        at += len(chunk)


def _check_end(lines: Mapped, records: Mapped, last: int) -> None:
    """Raise a StoreError unless the file ends with the last record."""
    try:
        end = 0 if last < 0 else read_record(records, last)[1]
    except StoreError as error:
        raise StoreError(
            f"{records.location}: {error}; it is damaged or truncated, or {lines.location} belongs "
            "to another file"
        ) from error
    if end != records.size:
        wrong = StoreError(
            f"{lines.location} ends at {end}, but {records.location} at {records.size}: it has "
            "been cut, or belongs to another file"
        )
        raise advised(wrong, "; if it names some records on purpose, say so by index=")


def _has_ids(records: Mapped, keys: NDArray[Any], places: NDArray[Any]) -> bool:
    """Look at some records: im2rec writes the key as id, others write 0 everywhere."""
    chosen = sorted({int(place) for place in np.linspace(0, len(keys) - 1, _SAMPLES)})
    same = 0
    for place in chosen if len(keys) else ():
        found = _try_image(records, int(places[place]))
        same += found is not None and found.id == keys[place]
    # Most of them, for one may be what the ids are to find out.
    return same * 2 > len(chosen)


def _try_image(records: Mapped, offset: int) -> ImageRecord | None:
    try:
        return parse_image(read_record(records, offset)[0])
    except StoreError:
        return None
