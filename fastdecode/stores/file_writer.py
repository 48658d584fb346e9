"""What all writers of a store in one file do: keys that are valid, and nothing but whole stores."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from fastdecode.stores.base import Writer
from fastdecode.types import Buffer

__all__ = ["FileWriter", "flush", "flush_folder"]


class FileWriter(Writer):
    """Writes to ``.NAME.PID.partial`` beside the store, which takes its name at the end.

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
        self._partial = self._final.with_name(f".{self._final.name}.{os.getpid()}.partial")
        self._keys: set[str] = set()
        self._ended = False

    def add(self, key: str, data: Buffer, target: Any = None) -> None:
        """Append a picture; see `Writer.add`."""
        if self._ended:
            raise ValueError(f"{self.location}: the writer has been closed")
        path = PurePosixPath(key)
        if not path.parts or path.is_absolute() or ".." in path.parts or "\\" in key or "\0" in key:
            raise ValueError(f"a key must be a relative path with '/' between folders, not {key!r}")
        if key in self._keys:
            raise ValueError(f"{self.location}: the key {key!r} is there already")
        self._append(key, memoryview(data).cast("B"), target)
        self._keys.add(key)

    def close(self) -> None:
        """Write what is left, make sure that it is on the disk, and rename."""
        if self._ended:
            return
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
        self._let_go()
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
