"""The format of MXNet's RecordIO: records, their parts, and the header of an image.

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

import struct
from collections.abc import Iterator
from typing import NamedTuple

from fastdecode.errors import StoreError
from fastdecode.stores._ranges import Ranges
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
