"""`Journal`: records that survive a kill at any moment, in a file that only grows.

Each record is a line: the CRC-32 of its text in hexadecimal, a space, and JSON. It is on the disk
before `Journal.append` returns. What follows the last whole record is the half of one that a kill
has left: it is cut off, and never was.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fastdecode.packing.lock import open_own
from fastdecode.stores.file_writer import flush_folder

__all__ = ["Journal"]


class Journal:
    """Records in their order.

    Parameters
    ----------
    path : Path
        Of the file; made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        end = sum(length for _, length in _lines(path))
        self._file = open(path, "ab", buffering=0, opener=open_own)  # noqa: SIM115 - see `close`
        self._file.truncate(end)
        flush_folder(path)

    def append(self, record: Any) -> None:
        """Add a record, which JSON can hold, and wait until it is on the disk.

        Raises
        ------
        OSError
            If it cannot be written. It will not be found again.
        """
        text = json.dumps(record, sort_keys=True).encode()
        line = memoryview(b"%08x %s\n" % (zlib.crc32(text), text))
        while line:  # a disk that is nearly full takes a part
            line = line[self._file.write(line) :]
        os.fsync(self._file.fileno())

    def __iter__(self) -> Iterator[Any]:
        """Read the records again, from the file: there may be more than memory holds."""
        for record, _ in _lines(self.path):
            yield record

    def cut(self, beyond: Callable[[Any], bool]) -> None:
        """Forget the first record of which `beyond` is true, and all after it, for ever."""
        end = 0
        for record, length in _lines(self.path):
            if beyond(record):
                break
            end += length
        self._file.truncate(end)
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()


def _lines(path: Path) -> Iterator[tuple[Any, int]]:
    """Yield the whole records, with the length of each in bytes, up to the first that is not."""
    try:
        file = open(path, "rb", opener=open_own)  # noqa: SIM115 - a missing one is none
    except FileNotFoundError:
        return
    with file:
        for line in file:
            sum_, _, text = line[:-1].partition(b" ")
            if line[-1:] != b"\n" or sum_ != b"%08x" % zlib.crc32(text):
                return
            yield _parsed(text), len(line)


def _parsed(text: bytes) -> Any:
    """Return what a whole record says; None, which is no record, of one that is not JSON."""
    try:
        return json.loads(text)
    except (RecursionError, ValueError):
        return None
