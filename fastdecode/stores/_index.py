"""The index of a store: keys, targets and positions of all items, in a mapped file.

A million items open as fast as ten, because nothing is parsed, and the memory is that of the
system's file cache.

The format, in which all numbers are little-endian: 8 bytes ``FDINDEX2``; the CRC-32 of all that
follows (uint64); the length of the header (uint64); the header, JSON in UTF-8; the columns, each at
a multiple of 8 bytes. The header has ``columns`` (name to offset from the first column, and
length), ``classes``, and ``about`` (details about the store). The column ``items`` has a JSON text
for each item, ``[key, target]``; ``ends`` says where each of them ends. Of these columns and all
others but ``items``, each value is a uint64.
"""

from __future__ import annotations

import json
import os
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdecode._system.files import write_bytes
from fastdecode.errors import StoreError
from fastdecode.stores._ranges import Ranges, local_path
from fastdecode.stores.base import Store, dump_target, plain_target
from fastdecode.types import Buffer

MAGIC = b"FDINDEX2"
_DECODER = json.JSONDecoder()
_ALIGNED = 8


class IndexBuilder:
    """Collects items and writes their index; `columns` are additional, for integers from 0."""

    def __init__(self, classes: Sequence[str] = (), columns: Sequence[str] = ()) -> None:
        self.classes = list(classes)
        self._numbers = {name: array("Q") for name in columns}
        self._items = bytearray()
        self._ends = array("Q", [0])

    def __len__(self) -> int:
        return len(self._ends) - 1

    def add(self, key: str, target: Any = None, **numbers: int) -> None:
        target = plain_target(target)
        if not key.isascii():  # the bytes of a file's name are kept, whatever the locale is
            key = str(key.encode("utf-8", "surrogateescape"), "utf-8", "surrogateescape")
        quoted = encode_basestring_ascii(key).encode()
        value = b"%d" % target if type(target) is int else dump_target(target)
        text = b"[%b,%b]" % (quoted, value)
        for name, column in self._numbers.items():
            column.append(numbers[name])
        self._items += text
        self._ends.append(len(self._items))

    def to_bytes(self, about: Mapping[str, Any] | None = None) -> bytes:
        """Return the content of the index file; `about` holds details about the store."""
        body, places = bytearray(), {}
        columns: dict[str, bytearray | array[int]] = {"items": self._items, "ends": self._ends}
        for name, values in {**columns, **self._numbers}.items():
            data = values if name == "items" else np.asarray(values, "<u8").tobytes()
            places[name] = (len(body), len(data))
            body += data
            body += bytes(-len(body) % _ALIGNED)
        header = {"columns": places, "classes": self.classes, "about": dict(about or {})}
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
        start = len(MAGIC) + 8
        view = memoryview(data)
        rest = view[start:]
        checksum = int.from_bytes(view[len(MAGIC) : start], "little")
        if view[: len(MAGIC)] != MAGIC or zlib.crc32(rest) != checksum:
            raise _index_error(name)
        end = 8 + int.from_bytes(rest[:8], "little")
        try:
            header = json.loads(bytes(rest[8:end]))
            self.classes = [str(each) for each in header["classes"]]
            self.about = dict(header["about"])
            parts = {name: _part(rest[end:], *place) for name, place in header["columns"].items()}
            self._items = parts.pop("items")
            self._columns = {name: np.frombuffer(part, "<u8") for name, part in parts.items()}
            self._ends = self._columns["ends"]
            self._count = len(self._ends) - 1
            sizes = {len(self._columns[name]) for name in columns}
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
            raise _index_error(name) from error
        if self._count < 0 or sizes - {self._count}:
            raise _index_error(name)

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
        """Return a column of numbers. Call `check` before accessing its values."""
        return self._columns[column]

    def check(self, index: int) -> None:
        """Raise a StoreError if the index lies in a mapping of a file that has been cut."""
        if self._guard is None:
            return
        try:
            self._guard()
        except StoreError as error:
            raise StoreError(f"{self.name}, item {index}: {error}") from error

    def key(self, index: int) -> str:
        return str(self._entry(index)[0])

    def target(self, index: int) -> Any:
        return self._entry(index)[1]

    def _entry(self, index: int) -> tuple[Any, Any]:
        """Return the key and the target of an item."""
        self.check(index)
        start, end = self._ends[index : index + 2].tolist()
        try:
            (key, target), _ = _DECODER.raw_decode(str(self._items[start:end], "utf-8"))
        except (RecursionError, TypeError, ValueError) as error:
            raise StoreError(
                f"{self.name}, item {index}: its entry in the index is damaged; remove the index "
                "and create it again"
            ) from error
        return key, target


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


def dump_json(value: Any, indent: int | None = None) -> str:
    """Return JSON that can be encoded as UTF-8, also if the name of a folder in it is not UTF-8."""
    text = json.dumps(value, ensure_ascii=False, indent=indent, sort_keys=True)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, indent=indent, sort_keys=True)
    return text


def _part(body: memoryview, place: int, size: int) -> memoryview:
    """Return the bytes of a column; raise a ValueError if it does not lie in the index."""
    if not 0 <= place <= place + size <= len(body):
        raise ValueError(place)
    return body[place : place + size]


def _index_error(name: str) -> StoreError:
    return StoreError(f"{name}: the index is damaged or truncated; remove it and create it again")
