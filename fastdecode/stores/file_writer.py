"""What all writers of a store in one file do: keys that are valid, and nothing but whole stores."""

from __future__ import annotations

import errno
import os
import shutil
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

from fastdecode.stores.base import Writer
from fastdecode.stores.keys import Keys
from fastdecode.types import Buffer

__all__ = ["FileWriter", "broken", "flush", "flush_folder", "reserve"]

_NOT_THERE = tuple(
    getattr(errno, name) for name in ("EINVAL", "ENOSYS", "EOPNOTSUPP") if hasattr(errno, name)
)
"""What systems say where room cannot be set aside."""


class FileWriter(Writer):
    """Writes to ``.NAME.RANDOM.partial`` beside the store, which takes its name at the end.

    A subclass writes `_append`, `_finish` and `_let_go`.

    Parameters
    ----------
    location : str
    classes : sequence of str
    """

    def __init__(self, location: str, classes: Sequence[str] = ()) -> None:
        if "://" in location:
            raise ValueError(f"{location}: stores are written to local paths; copy it when done")
        super().__init__(location, classes)
        self._final = Path(location)
        # Not the process's number: after it is killed another one may have the same.
        self._partial = self._final.with_name(f".{self._final.name}.{token_hex(4)}.partial")
        self._keys = Keys()
        self._ended = False
        self._broken = False

    def add(self, key: str, data: Buffer, target: Any = None) -> None:
        """Append a picture; see `Writer.add`."""
        if self._ended:
            raise ValueError(f"{self.location}: the writer has been closed")
        if self._broken:
            raise broken(self.location)
        try:
            self._keys.check(key)
        except ValueError as error:
            raise ValueError(f"{self.location}: {error}") from None
        view = memoryview(data).cast("B")
        try:
            self._append(key, view, target)
        except ValueError:
            raise
        except BaseException:  # a full disk, Ctrl-C: nobody knows how much of the item is there
            self._broken = True
            raise
        self._keys.add(key)

    def close(self) -> None:
        """Write what is left, make sure that it is on the disk, and rename."""
        if self._ended:
            return
        if self._broken:
            self.abort()
            raise broken(self.location)
        try:
            self._finish()
            self._settle()
        except BaseException:  # Ctrl-C included: no half of a store is left behind
            self.abort()
            raise
        self._ended = True

    def abort(self) -> None:
        """Remove what has been written, unless it is at its place."""
        if self._ended:
            return
        self._ended = True
        try:
            with suppress(OSError):  # of a disk that is full, which has been told
                self._let_go()
        finally:
            self._remove()

    @abstractmethod
    def _append(self, key: str, data: memoryview, target: Any) -> None:
        """Write an item whose key is valid and new; a ValueError leaves all as it was."""

    @abstractmethod
    def _finish(self) -> None:
        """Write the rest, and close the files."""

    @abstractmethod
    def _let_go(self) -> None:
        """Close the files, if they are open."""

    def _settle(self) -> None:
        """Put what is finished at its place."""
        if self._final.exists():
            raise FileExistsError(f"{self.location} is there already")
        flush(self._partial)
        self._partial.replace(self._final)
        flush_folder(self._final)

    def _remove(self) -> None:
        self._partial.unlink(missing_ok=True)


def broken(location: str) -> ValueError:
    """Return the error for going on with a writer that has failed within an item."""
    return ValueError(f"{location}: an item before could not be written: begin the store anew")


def reserve(path: Path, start: int, size: int) -> None:
    """Make sure of room on the disk for a part of a file, for libraries that die without.

    Parameters
    ----------
    path : Path
        The file; it may become as long as the part needs.
    start, size : int
        The part, in bytes.

    Raises
    ------
    OSError
        If there is no such room. The file is as it was, or longer.
    """
    if hasattr(os, "posix_fallocate"):
        with path.open("rb+") as file:
            try:
                os.posix_fallocate(file.fileno(), start, size)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise
            else:
                return
    if shutil.disk_usage(path.parent).free < size:  # nobody else may write: all that can be known
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def flush(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    """Wait until it is on the disk that a file is there."""
    if os.name == "nt":  # folders cannot be opened there, and need not be
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
