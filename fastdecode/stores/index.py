"""An index: where each item of a store lies, its key and its target, in a file that is mapped.

A million items open as fast as ten: nothing is parsed, and memory is that of the system's cache.

Format, all numbers little-endian: 8 bytes ``FDINDEX1``; the CRC-32 of all that follows (uint64);
the length of the header (uint64); the header, JSON in UTF-8; then its columns, each at a multiple
of 8 bytes. The header holds ``count``, ``columns`` (name to type, offset from the first column, and
length), ``classes``, and ``about`` (what the store says of itself).
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdecode.errors import StoreError
from fastdecode.types import Buffer

__all__ = ["Index", "IndexBuilder", "header_of"]

_MAGIC = b"FDINDEX1"
_ALIGNED = 8
_CHUNK = 1 << 20
_BEGINNING = 1 << 16
_INT, _OTHER, _NONE = 0, 1, 2
"""How a target is kept: as a number in its column, as JSON among the texts, or not at all."""


class IndexBuilder:
    """Collects items, and writes an index of them.

    Parameters
    ----------
    classes : sequence of str
    columns : sequence of str
        Names of further columns of integers from 0, such as ``"offset"`` and ``"size"``.
    """

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
        """Append an item.

        Raises
        ------
        ValueError
            If the target is none that JSON can hold, or infinite or no number.
        """
        kind, number, text = _kept(target)
        for name, column in self._numbers.items():
            column.append(numbers[name])
        if kind == _OTHER:
            number = len(self._texts)
            self._texts += len(text).to_bytes(4, "little") + text
        self._keys += key.encode()
        self._key_ends.append(len(self._keys))
        self._targets.append(number)
        self._kinds.append(kind)

    def to_bytes(self, about: Mapping[str, Any] | None = None) -> bytes:
        """Return the index as a file would hold it.

        Parameters
        ----------
        about : mapping, optional
            Whatever the store wants to know again; JSON can hold it.
        """
        columns: dict[str, tuple[str, bytearray | array[int]]] = {
            "keys": ("u1", self._keys),
            "key_ends": ("<u8", self._key_ends),
            "targets": ("<i8", self._targets),
            "kinds": ("u1", self._kinds),
            "texts": ("u1", self._texts),
            **{name: ("<u8", column) for name, column in self._numbers.items()},
        }
        body = bytearray()
        places = {}
        for name, (kind, values) in columns.items():
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
        words = json.dumps(header, ensure_ascii=False, sort_keys=True).encode()
        words += b" " * (-len(words) % _ALIGNED)
        rest = b"".join((len(words).to_bytes(8, "little"), words, body))
        return b"".join((_MAGIC, zlib.crc32(rest).to_bytes(8, "little"), rest))

    def write(self, path: str | os.PathLike[str], about: Mapping[str, Any] | None = None) -> None:
        """Write the index to a file; it is there as a whole, or not at all.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        target = Path(path)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            with partial.open("wb") as file:
                file.write(self.to_bytes(about))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(target)
        except BaseException:  # Ctrl-C included: no half of a file is left behind
            partial.unlink(missing_ok=True)
            raise


class Index:
    """An index, as it lies in memory or in a file.

    Parameters
    ----------
    data : bytes-like
        All of it. It is not copied.
    name : str
        What errors call it.

    Attributes
    ----------
    classes : list of str
    about : dict

    Raises
    ------
    StoreError
        If it is none, or damaged, or cut short.
    """

    def __init__(self, data: Buffer | mmap.mmap, name: str) -> None:
        self.name = name
        self._data, self._path = data, ""
        header, body = _parts(memoryview(data), name)
        try:
            self._count = int(header["count"])
            self.classes = [str(each) for each in header["classes"]]
            self.about = dict(header["about"])
            self._columns = {
                column: np.frombuffer(body[place : place + size], kind)
                for column, (kind, place, size) in header["columns"].items()
            }
            lengths = {len(self[column]) for column in self._columns if column not in _OTHERS}
            whole = lengths == {self._count} and len(self["key_ends"]) == self._count + 1
        except (KeyError, TypeError, ValueError) as error:
            raise _broken(name) from error
        if not whole:
            raise _broken(name)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Index:
        """Map the index in a file.

        Raises
        ------
        OSError
            If it cannot be read.
        StoreError
            See above.
        """
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise _broken(os.fspath(path))
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        index = cls(mapped, os.fspath(path))
        index._path = os.path.abspath(path)  # noqa: PTH100 - str
        return index

    def __reduce__(self) -> tuple[Any, ...]:
        # One that lies in a file is mapped again, wherever it goes: not carried there.
        if self._path:
            return Index.load, (self._path,)
        return Index, (bytes(self._data), self.name)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, column: str) -> NDArray[Any]:
        """Return a column."""
        return self._columns[column]

    def key(self, index: int) -> str:
        """Return an item's key."""
        start, end = self["key_ends"][index : index + 2].tolist()
        return str(self["keys"][start:end].tobytes(), "utf-8")

    def target(self, index: int) -> Any:
        """Return an item's target."""
        kind, number = int(self["kinds"][index]), int(self["targets"][index])
        if kind == _NONE:
            return None
        if kind == _INT:
            return number
        start = number + 4
        length = int.from_bytes(self["texts"][number:start].tobytes(), "little")
        return json.loads(self["texts"][start : start + length].tobytes())


def header_of(read: Callable[[int, int], Buffer], size: int, name: str) -> dict[str, Any]:
    """Read the header of an index alone.

    Parameters
    ----------
    read : callable
        Gives so many bytes from an offset.
    size : int
        Of the whole index, in bytes.
    name : str
        What errors call it.

    Returns
    -------
    dict
        Not checked: the checksum would mean reading all. What is wrong in it is found out when the
        index is loaded.

    Raises
    ------
    StoreError
        If it is no index.
    """
    start = bytes(read(0, min(size, _BEGINNING)))
    first = len(_MAGIC) + 16
    end = first + int.from_bytes(start[first - 8 : first], "little")
    if start.startswith(_MAGIC) and len(start) < end <= size:
        start = bytes(read(0, end))
    try:
        header = json.loads(start[first:end])
    except ValueError as error:
        raise _broken(name) from error
    if not isinstance(header, dict):
        raise _broken(name)
    return header


_OTHERS = ("keys", "key_ends", "texts")
"""Columns that have not one number for each item."""


def _kept(target: Any) -> tuple[int, int, bytes]:
    """Say how a target is kept."""
    if target is None:
        return _NONE, 0, b""
    if type(target) is int and -(1 << 63) <= target < 1 << 63:
        return _INT, target, b""
    try:
        text = json.dumps(target, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"a target must be None, a number, a text, or a list or dict of them, not {target!r}"
        ) from error
    return _OTHER, 0, text


def _parts(view: memoryview, name: str) -> tuple[Any, memoryview]:
    """Return the header and the columns."""
    start = len(_MAGIC) + 8
    checksum, rest = int.from_bytes(view[len(_MAGIC) : start], "little"), view[start:]
    if view[: len(_MAGIC)] != _MAGIC or _checksum(rest) != checksum:
        raise _broken(name)
    end = 8 + int.from_bytes(rest[:8], "little")
    try:
        return json.loads(bytes(rest[8:end])), rest[end:]
    except ValueError as error:
        raise _broken(name) from error


def _checksum(data: memoryview) -> int:
    found = 0
    for at in range(0, len(data), _CHUNK):
        found = zlib.crc32(data[at : at + _CHUNK], found)
    return found


def _broken(name: str) -> StoreError:
    return StoreError(f"{name}: the index is damaged or cut short; remove it and make it anew")
