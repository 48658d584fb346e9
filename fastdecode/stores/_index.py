"""The index of a store: positions, keys and targets of all items, in a mapped file.

A million items open as fast as ten, because nothing is parsed, and the memory is that of the
system's file cache.

The format, in which all numbers are little-endian: 8 bytes ``FDINDEX1``; the CRC-32 of all that
follows (uint64); the length of the header (uint64); the header, JSON in UTF-8; the columns, each at
a multiple of 8 bytes. The header has ``count``, ``columns`` (name to type, offset from the first
column, and length), ``classes``, and ``about`` (details about the store).
"""

from __future__ import annotations

import json
import os
import zlib
from abc import abstractmethod
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fastdecode._system.files import write_bytes
from fastdecode.errors import StoreError
from fastdecode.stores._items import dump_target, plain_target
from fastdecode.stores._ranges import Ranges, exists, is_uri, local_path
from fastdecode.stores.base import Store
from fastdecode.types import Buffer

_ALIGNED = 8
_INT, _OTHER, _NONE = 0, 1, 2
"""The form of a target: a number in its column, JSON among the texts, or None."""


MAGIC = b"FDINDEX1"
_FIRST_READ = 1 << 16
_MIN_ITEM_BYTES = 8
"""Least bytes that an item takes in an index: those of one column."""

_TYPES = {"keys": "u1", "key_ends": "<u8", "targets": "<i8", "kinds": "u1", "texts": "u1"}
"""Columns of every index, with their types; all others have the type `_NUMBERS`."""

_NUMBERS = "<u8"
_ANY_LENGTH = ("keys", "texts")


class IndexBuilder:
    """Collects items and writes their index; `columns` are additional, for integers from 0."""

    def __init__(self, classes: Sequence[str] = (), columns: Sequence[str] = ()) -> None:
        self.classes = list(classes)
        self._numbers = {name: array("Q") for name in columns}
        self._keys = bytearray()
        self._key_ends = array("Q", [0])
        self._targets = array("q")
        self._kinds = bytearray()
        self._texts = bytearray()

    def __len__(self) -> int:
        return len(self._kinds)

    def add(self, key: str, target: Any = None, **numbers: int) -> None:
        target, text = plain_target(target), b""
        if target is None:
            kind, number = _NONE, 0
        elif type(target) is int and -(1 << 63) <= target < 1 << 63:
            kind, number = _INT, target
        else:
            kind, number, text = _OTHER, len(self._texts), dump_target(target)
        # The name of a file may not be UTF-8: its bytes are kept, as Python's own functions do.
        name_bytes = key.encode("utf-8", "surrogateescape")
        for name, column in self._numbers.items():
            column.append(numbers[name])
        if kind == _OTHER:
            self._texts += len(text).to_bytes(4, "little") + text
        self._keys += name_bytes
        self._key_ends.append(len(self._keys))
        self._targets.append(number)
        self._kinds.append(kind)

    def to_bytes(self, about: Mapping[str, Any] | None = None) -> bytes:
        """Return the content of the index file; `about` holds details about the store."""
        columns: dict[str, bytearray | array[int]] = {
            "keys": self._keys,
            "key_ends": self._key_ends,
            "targets": self._targets,
            "kinds": self._kinds,
            "texts": self._texts,
            **self._numbers,
        }
        body = bytearray()
        places = {}
        for name, values in columns.items():
            kind = _TYPES.get(name, _NUMBERS)
            data = np.frombuffer(values, np.dtype(kind).newbyteorder("=")).astype(kind).tobytes()
            places[name] = (kind, len(body), len(data))
            body += data
            body += bytes(-len(body) % _ALIGNED)
        header = {
            "count": len(self),
            "columns": places,
            "classes": self.classes,
            "about": dict(about or {}),
        }
        words = dump_json(header).encode()
        words += b" " * (-len(words) % _ALIGNED)
        rest = b"".join((len(words).to_bytes(8, "little"), words, body))
        return b"".join((MAGIC, zlib.crc32(rest).to_bytes(8, "little"), rest))

    def write(self, path: str | os.PathLike[str], about: Mapping[str, Any] | None = None) -> None:
        """Write the index to a file, atomically, which may replace another index."""
        write_bytes(path, self.to_bytes(about), MAGIC, durable=True)


class Index:
    """An index in memory or in a mapped file, whose data is not copied.

    It must outlive its store, whose keys and targets are known after `close`: if it lies in the
    store's own file, give a copy.

    The index must have `columns` in addition to those of every index. `guard` is called before
    `data` is accessed. If `data` maps a file that has been cut, it raises a StoreError, because the
    access would kill the process.
    """

    def __init__(
        self,
        data: Buffer,
        name: str,
        columns: Sequence[str] = (),
        guard: Callable[[], object] | None = None,
    ) -> None:
        self.name = name
        self._data, self._path, self._needed = data, "", tuple(columns)
        self._guard = guard
        header, body = _split(memoryview(data), name)
        self._count, self.classes, self.about = _parse_summary(header, name)
        try:
            self._columns = _parse_columns(header["columns"], body, self._count)
            for column in columns:
                self._columns[column]
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError) as error:
            raise _index_error(name) from error

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        columns: Sequence[str] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> Index:
        """Map the index in a file, or read the one behind a URI."""
        name = os.fspath(path)
        file = Ranges(name, storage_options, descriptor=False)
        data = file.read(0, file.size)
        index = cls(data, name, columns, file.check if file.is_mapped else None)
        if file.is_local:
            index._path = os.path.abspath(local_path(name))  # noqa: PTH100 - str
        return index

    @classmethod
    def load_if_exists(
        cls,
        path: str,
        columns: Sequence[str] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> Index | None:
        """Load an index, or return None if there is none."""
        if not is_uri(path) and not exists(path):
            return None
        try:
            return cls.load(path, columns, storage_options)
        except FileNotFoundError:
            return None

    def __reduce__(self) -> tuple[Any, ...]:
        # An index in a local file is mapped again where it is unpickled, instead of copied there.
        if self._path:
            return Index.load, (self._path, self._needed)
        return Index, (bytes(self._data), self.name, self._needed)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, column: str) -> NDArray[Any]:
        """Return a column. Call `check` before accessing its values."""
        return self._columns[column]

    def has(self, column: str) -> bool:
        return column in self._columns

    def check(self, index: int) -> None:
        """Raise a StoreError if the index lies in a mapping of a file that has been cut."""
        if self._guard is None:
            return
        try:
            self._guard()
        except StoreError as error:
            raise StoreError(f"{self.name}, item {index}: {error}") from error

    def key(self, index: int) -> str:
        self.check(index)
        start, end = self["key_ends"][index : index + 2].tolist()
        if not start <= end <= len(self["keys"]):
            raise self._entry_error(index)
        return str(self["keys"][start:end].tobytes(), "utf-8", "surrogateescape")

    def target(self, index: int) -> Any:
        self.check(index)
        kind, number = int(self["kinds"][index]), int(self["targets"][index])
        if kind == _NONE:
            return None
        if kind == _INT:
            return number
        start, texts = number + 4, self["texts"]
        length = int.from_bytes(texts[max(number, 0) : start].tobytes(), "little")
        if kind != _OTHER or not 4 <= start <= start + length <= len(texts):
            raise self._entry_error(index)
        try:
            return json.loads(texts[start : start + length].tobytes())
        except (RecursionError, ValueError) as error:
            raise self._entry_error(index) from error

    def outside(self, classes: Sequence[str]) -> bool:
        """Return whether any integer target is not the index of one of these classes."""
        numbers = self["targets"][self["kinds"] == _INT]
        return bool(((numbers < 0) | (numbers >= len(classes))).any())

    def has_items_of(self, other: Index) -> bool:
        """Return whether another index says the same of the items, as far as this one does."""
        return all(
            other.has(name) and np.array_equal(values, other[name])
            for name, values in self._columns.items()
        )

    def _entry_error(self, index: int) -> StoreError:
        return StoreError(
            f"{self.name}, item {index}: its entry in the index is damaged; remove the index and "
            "create it again"
        )


class IndexedStore(Store):
    """A store whose keys and targets come from its contents, an index or an object like one."""

    _contents: Any

    def __len__(self) -> int:
        return len(self._contents)

    def key(self, index: int) -> str:
        self._check(index)
        return str(self._contents.key(index))

    def target(self, index: int) -> Any:
        self._check(index)
        return self._contents.target(index)


class SelfDescribed(IndexedStore):
    """A store that reads its contents from its own file when it is created or unpickled.

    A subclass implements `_load`, and calls `_reload` at the end of its ``__init__``.
    """

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        del state["_contents"], state["classes"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._reload()

    @abstractmethod
    def _load(self, opened: Any) -> None:
        """Set `_contents` and `classes` from the file."""

    def _reload(self) -> None:
        """Read the contents from the file, also for a store that has been closed."""
        closed, self._closed = self._closed, False
        self.classes = ()
        self._load(self._handle())
        if closed:
            self.close()

    def _check_size(self, index: int, data: Buffer) -> None:
        """Raise a StoreError unless an item has as many bytes as its index says."""
        contents = self._contents
        if isinstance(contents, Index) and len(data) != contents["size"][index]:
            raise self._damage_error(index, "it has not the size that was written")


def dump_json(value: Any, indent: int | None = None) -> str:
    """Return JSON that can be encoded as UTF-8, also if the name of a folder in it is not UTF-8."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, sort_keys=True)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, sort_keys=True)
    return text


class Summary(NamedTuple):
    """The header of an index."""

    items: int
    classes: list[str]
    about: dict[str, Any]


def summary(path: str, storage_options: Mapping[str, Any] | None = None) -> Summary:
    """Read only the header of an index.

    The checksum is not compared, because that would take reading the whole index. Damage is found
    when the index is loaded.
    """
    file = Ranges(path, storage_options)
    start = bytes(file.read(0, min(file.size, _FIRST_READ)))
    first = len(MAGIC) + 16
    end = first + int.from_bytes(start[first - 8 : first], "little")
    if start.startswith(MAGIC) and len(start) < end <= file.size:
        start = bytes(file.read(0, end))
    found = _parse_summary(_parse_header(start[first:end], path), path)
    if not 0 <= found.items * _MIN_ITEM_BYTES <= file.size:
        raise StoreError(f"{path}: the index cannot hold {found.items} items: create it again")
    return found


def _parse_header(text: Buffer, name: str) -> dict[str, Any]:
    try:
        header = json.loads(bytes(text))
    except (RecursionError, ValueError) as error:
        raise _index_error(name) from error
    if not isinstance(header, dict):
        raise _index_error(name)
    return header


def _parse_summary(header: Mapping[str, Any], name: str) -> Summary:
    try:
        classes = [str(each) for each in header["classes"]]
        return Summary(int(header["count"]), classes, dict(header["about"]))
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise _index_error(name) from error


def _split(view: memoryview, name: str) -> tuple[dict[str, Any], memoryview]:
    """Return the header of an index, and the bytes that hold its columns; check both."""
    start = len(MAGIC) + 8
    checksum, rest = int.from_bytes(view[len(MAGIC) : start], "little"), view[start:]
    if view[: len(MAGIC)] != MAGIC or zlib.crc32(rest) != checksum:
        raise _index_error(name)
    end = 8 + int.from_bytes(rest[:8], "little")
    return _parse_header(rest[8:end], name), rest[end:]


def _parse_columns(
    places: Mapping[str, Any], body: memoryview, count: int
) -> Mapping[str, NDArray[Any]]:
    """Return the columns by name; raise a ValueError or KeyError if the header is wrong."""
    found = {}
    for name, (kind, place, size) in places.items():
        expected = _TYPES.get(name, _NUMBERS)
        if kind != expected or not 0 <= place <= place + size <= len(body):
            raise ValueError(name)
        found[name] = np.frombuffer(body[place : place + size], expected)
        length = count + 1 if name == "key_ends" else count
        if name not in _ANY_LENGTH and len(found[name]) != length:
            raise ValueError(name)
    if not found.keys() >= _TYPES.keys():
        raise KeyError("a column is missing")
    return found


def _index_error(name: str) -> StoreError:
    return StoreError(f"{name}: the index is damaged or truncated; remove it and create it again")
