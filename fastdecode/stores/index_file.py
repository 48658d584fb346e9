"""The bytes of an index, see `index`: its header and its columns, of which nothing is believed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fastdecode.errors import StoreError
from fastdecode.types import Buffer

__all__ = ["MAGIC", "broken", "columns_of", "header_of", "split"]

MAGIC = b"FDINDEX1"

_CHUNK = 1 << 20
_BEGINNING = 1 << 16

_TYPES = {"keys": "u1", "key_ends": "<u8", "targets": "<i8", "kinds": "u1", "texts": "u1"}
"""Columns that each index has; all others are of `_NUMBERS`."""

_NUMBERS = "<u8"
_ANY_LENGTH = ("keys", "texts")


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
    first = len(MAGIC) + 16
    end = first + int.from_bytes(start[first - 8 : first], "little")
    if start.startswith(MAGIC) and len(start) < end <= size:
        start = bytes(read(0, end))
    try:
        header = json.loads(start[first:end])
    except (RecursionError, ValueError) as error:
        raise broken(name) from error
    if not isinstance(header, dict):
        raise broken(name)
    return header


def split(view: memoryview, name: str) -> tuple[dict[str, Any], memoryview]:
    """Return the header of a whole index, and what its columns are in.

    Raises
    ------
    StoreError
        If the checksum does not fit, or there is no header.
    """
    start = len(MAGIC) + 8
    checksum, rest = int.from_bytes(view[len(MAGIC) : start], "little"), view[start:]
    if view[: len(MAGIC)] != MAGIC or _checksum(rest) != checksum:
        raise broken(name)
    end = 8 + int.from_bytes(rest[:8], "little")
    try:
        header = json.loads(bytes(rest[8:end]))
    except (RecursionError, ValueError) as error:
        raise broken(name) from error
    if not isinstance(header, dict):
        raise broken(name)
    return header, rest[end:]


def columns_of(
    places: Mapping[str, Any], body: memoryview, count: int
) -> Mapping[str, NDArray[Any]]:
    """Return the columns, whatever the header says of them.

    Parameters
    ----------
    places : mapping
        Name to type, offset and length.
    body : memoryview
    count : int
        Of the items.

    Raises
    ------
    AttributeError, KeyError, TypeError, ValueError
        If one is missing, of another type or length, or not in the body.
    """
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


def broken(name: str) -> StoreError:
    """Return the error for an index that is damaged."""
    return StoreError(f"{name}: the index is damaged or cut short; remove it and make it anew")


def _checksum(data: memoryview) -> int:
    found = 0
    for at in range(0, len(data), _CHUNK):
        found = zlib.crc32(data[at : at + _CHUNK], found)
    return found
