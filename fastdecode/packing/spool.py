"""`Spool`: where packed items wait until all are there, in files that only grow.

For a tar store these are the shards themselves, of which only the last lines are missing; for any
other kind one file with the pictures' bytes behind each other.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from fastdecode.packing.lock import open_own
from fastdecode.stores.file_writer import flush_folder

if TYPE_CHECKING:
    from fastdecode.types import Buffer

__all__ = ["PLAIN", "Layout", "Spool", "part", "parts"]


class Layout(Protocol):
    """How items lie in a file.

    Attributes
    ----------
    end : bytes
        What follows the last item.
    """

    end: bytes

    def begin(self, path: Path) -> None:
        """Take note of what is in a shard already, of which no half item is left."""

    def append(self, file: BinaryIO, key: str, data: Buffer, target: Any) -> tuple[int, int]:
        """Write an item, and return the offset and the size of its picture, in bytes."""


class _Plain:
    """Bytes behind each other."""

    end = b""

    def begin(self, path: Path) -> None:
        """There is nothing to know."""

    def append(self, file: BinaryIO, key: str, data: Buffer, target: Any) -> tuple[int, int]:  # noqa: ARG002 - the journal has them
        offset = file.tell()
        file.write(data)
        return offset, len(data)


_NAME = "spool-"
PLAIN: Layout = _Plain()


def part(folder: Path, shard: int) -> Path:
    """Return the path of a shard's file."""
    return folder / f"{_NAME}{shard:05d}"


def parts(folder: Path) -> list[Path]:
    """List the shards' files."""
    return [path for path in folder.glob(f"{_NAME}*") if path.name[len(_NAME) :].isdecimal()]


def _created(path: str, flags: int) -> int:
    return open_own(path, flags | os.O_CREAT)


class Spool:
    """Appends items to shards.

    Parameters
    ----------
    folder : Path
    layout : Layout
    limit : int or None
        How large a shard may become, in bytes, as far as its items allow; None for a single one.
    shard, end : int
        How far it was written when that was last made sure of: what follows is cut off.

    Raises
    ------
    OSError
        If the file cannot be opened.
    """

    def __init__(
        self, folder: Path, layout: Layout, limit: int | None, shard: int = 0, end: int = 0
    ) -> None:
        self._folder = folder
        self._layout = layout
        self._limit = limit
        self._shard = shard
        for path in parts(folder):
            if int(path.name.removeprefix(_NAME)) > shard:
                path.unlink()
        self._file: BinaryIO = self._opened(end)

    def _opened(self, end: int) -> BinaryIO:
        path = part(self._folder, self._shard)
        file = open(path, "r+b", opener=_created)  # noqa: SIM115 - see `finish`
        size = os.fstat(file.fileno()).st_size
        if size < end:
            file.close()
            raise OSError(
                f"{path} has become shorter than it was ({size} bytes, not {end}): "
                "begin again with --restart"
            )
        file.truncate(end)
        file.seek(end)
        self._layout.begin(path)
        flush_folder(path)
        return file

    def add(self, key: str, data: Buffer, target: Any) -> tuple[int, int, int]:
        """Append an item.

        Returns
        -------
        tuple of int
            The shard, and the offset and size of the picture in it, in bytes.

        Raises
        ------
        OSError
            If there is no room.
        ValueError
            If the kind of store cannot hold such a key or target.
        """
        start = self._file.tell()
        try:
            offset, size = self._layout.append(self._file, key, data, target)
        except ValueError:
            self._cut(start)
            raise
        if self._limit and start and self._file.tell() + len(self._layout.end) > self._limit:
            # It belongs to the next one. Whatever the sizes are, the same items end each shard.
            self._cut(start)
            self.finish()
            self._shard += 1
            self._file = self._opened(0)
            offset, size = self._layout.append(self._file, key, data, target)
        return self._shard, offset, size

    def _cut(self, end: int) -> None:
        """Take back what was written last."""
        self._file.seek(end)
        self._file.truncate()

    def sync(self) -> tuple[int, int]:
        """Wait until all is on the disk; return the shard and its end in bytes."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._shard, self._file.tell()

    def finish(self) -> None:
        """Write the end of the last shard, and let go of it."""
        self._file.write(self._layout.end)
        self.sync()
        self._file.close()

    def close(self) -> None:
        """Let go of the file, as it is."""
        self._file.close()
