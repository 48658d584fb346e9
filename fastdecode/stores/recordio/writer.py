"""Writing images to MXNet RecordIO."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastdecode._files import flush
from fastdecode.stores._index import IndexBuilder
from fastdecode.stores._items import plain
from fastdecode.stores.base import Writer
from fastdecode.stores.recordio.format import record

__all__ = ["COLUMNS", "RecordWriter", "index_location", "labels_of"]

COLUMNS = ("offset", "length", "size")
"""Where a record lies, how long it is, and how long the image in it."""

_VERSION = 1


class RecordWriter(Writer):
    """Writes ``NAME.rec``, ``NAME.idx``, and ``NAME.rec.fdx`` with what the other two cannot hold.

    The header of each record has a number or a list of numbers: these are the targets that can be
    written, and None, in whose place other readers find the label 0. Labels are float32 there, as
    MXNet's are; the index (see `_index`) keeps them as they were, besides the keys
    and the names of the classes. The same items make the same bytes.
    """

    kind = "recordio"

    def __init__(self, location: str, classes: Sequence[str] = ()) -> None:
        super().__init__(location, classes)
        self._index_at = Path(index_location(os.fspath(self._final)))
        self._check_places()
        self._builder = IndexBuilder(classes, COLUMNS)
        self._final.parent.mkdir(parents=True, exist_ok=True)
        self._lines = self._partial.with_name(f"{self._partial.name}.idx")
        self._file = self._partial.open("xb")
        self._index = self._lines.open("xb")
        self._checksum = 0
        self._offset = 0

    def _append(self, key: str, data: memoryview, target: Any) -> None:
        number = len(self._builder)
        made = record(*labels_of(target), number, data)
        self._builder.add(key, target, offset=self._offset, length=len(made), size=len(data))
        line = b"%d\t%d\n" % (number, self._offset)
        self._file.write(made)
        self._index.write(line)
        self._checksum = zlib.crc32(line, self._checksum)
        self._offset += len(made)

    def _finish(self) -> None:
        self._release()

    def _settle(self) -> None:
        self._check_places()  # before anything is put in place
        flush(self._lines)
        self._lines.replace(self._index_at)
        try:
            about = {
                "version": _VERSION,
                "bytes": self._offset,
                "lines": [self._index_at.stat().st_size, self._checksum],
            }
            self._builder.write(f"{self._final}.fdx", about)
            super()._settle()  # the records come last: there is no store before
        except BaseException:
            self._index_at.unlink(missing_ok=True)
            raise

    def _check_places(self) -> None:
        """Make sure that neither the records nor an ``.idx``, which may be others', are there."""
        for path in (self._final, self._index_at):
            if path.exists():
                raise FileExistsError(
                    f"{path} is there already: remove it, or choose another place"
                )

    def _release(self) -> None:
        try:
            self._file.close()
        finally:
            self._index.close()

    def _remove(self) -> None:
        super()._remove()
        self._lines.unlink(missing_ok=True)


def index_location(location: str) -> str:
    """Return where MXNet's tools keep the index of a file."""
    return location.removesuffix(".rec") + ".idx"


def labels_of(target: Any) -> tuple[list[float], bool]:
    """Return what the header of a record says of a target, and whether it is a list."""
    target = plain(target)
    if target is None:
        return [0.0], False
    numbers = target if isinstance(target, list) else [target]
    if not numbers or not all(isinstance(number, (int, float)) for number in numbers):
        raise ValueError(
            f"RecordIO holds numbers or lists of numbers as targets, not {target!r}: write a tar, "
            "LMDB or HDF5 store instead"
        )
    for number in numbers:
        if isinstance(number, int) and _as_float32(number) != number:
            raise ValueError(
                f"RecordIO keeps labels as float32, which would make another class of {number}: "
                "write a tar, LMDB or HDF5 store instead"
            )
    return [_as_float32(number) for number in numbers], isinstance(target, list)


def _as_float32(number: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        raise ValueError(f"RecordIO keeps labels as float32, and {number} is beyond that") from None
