"""Pictures in MXNet RecordIO: a ``.rec`` and its ``.idx``; see `recordio_format` for the bytes."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastdecode.errors import StoreError
from fastdecode.stores.base import Store
from fastdecode.stores.index import Index
from fastdecode.stores.mapped import Mapped, is_uri, local_path
from fastdecode.stores.recordio_format import Picture, picture, read_record
from fastdecode.stores.recordio_index import Places, read_lines, scan
from fastdecode.stores.recordio_writer import COLUMNS, RecordWriter, index_location, labels_of
from fastdecode.types import Buffer

__all__ = ["RecordStore", "RecordWriter"]


class RecordStore(Store):
    """A RecordIO file as a store, as ``im2rec`` or `RecordWriter` makes it.

    Where things lie is said by ``NAME.rec.fdx``, which `RecordWriter` leaves; else by ``NAME.idx``;
    else the whole file is gone through once. The target of a foreign file is the label in a record:
    an int if it is a whole number, else a float, or a list of floats. The key is that in the
    ``.idx``, or the item's number. Items come in the order of the ``.idx``.

    Pictures in one part are not copied; nearly all are.

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
        If it is damaged or cut short, or if the files do not belong together.
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
        self._load()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_contents"], state["classes"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._load()

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
                self._picture(self._handle(), index)  # whose labels are compared
            return contents.target(index)
        found = self._picture(self._handle(), index)
        if found.listed:
            return list(found.labels)
        label = found.labels[0]
        return int(label) if label.is_integer() else label

    def _load(self) -> None:
        closed, self._closed = self._closed, False
        records: Mapped = self._handle()
        self._contents: Index | Places
        index = _own_index(records, self._storage_options) if self._lines is None else None
        if index is not None:
            self._contents = index
            self.classes = index.classes
        else:
            lines = _opened(self._lines or index_location(self.location), self._storage_options)
            if lines is None and self._lines is not None:
                raise FileNotFoundError(f"{self._lines}: there is no such index")
            if lines is None:
                self._contents = scan(records)
            else:
                self._contents = read_lines(lines, records, all_of_it=self._lines is None)
            self.classes = ()
        if closed:
            self.close()

    def _open(self) -> Mapped:
        return Mapped(self.location, self._storage_options)

    def _read(self, opened: Mapped, index: int) -> Buffer:
        return self._picture(opened, index).data

    def _picture(self, records: Mapped, index: int) -> Picture:
        contents = self._contents
        try:
            if isinstance(contents, Index):
                contents.check(index)
                offset, length = int(contents["offset"][index]), int(contents["length"][index])
                payload, end = read_record(records, offset, length)
                found = picture(payload)
                known = length, index, int(contents["size"][index])
                same = known == (end - offset, found.id, len(found.data))
            else:
                found = picture(read_record(records, int(contents.offsets[index]))[0])
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

    def _compare(self, found: Picture, contents: Index, index: int) -> None:
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


def _opened(location: str, storage_options: Mapping[str, Any]) -> Mapped | None:
    """Open a file that need not be there."""
    try:
        return Mapped(location, storage_options)
    except FileNotFoundError:
        return None


def _own_index(records: Mapped, storage_options: Mapping[str, Any]) -> Index | None:
    """Return the index that `RecordWriter` leaves, if it is there and belongs to the file."""
    name = f"{records.location}.fdx"
    if is_uri(name):
        file = _opened(name, storage_options)
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
    if not is_uri(name) and lines.exists() and _told(lines) != index.about.get("lines"):
        raise StoreError(f"{lines} is not the one that {name} was written with: remove either")
    return index


def _told(lines: Path) -> list[int]:
    text = Mapped(str(lines))
    return [text.size, zlib.crc32(text.read(0, text.size))]
