"""`Spool`: where packed items wait until all are there, in files that only grow.

For a tar store these are the shards themselves, of which only the last lines are missing; for any
other kind one file with the images' bytes behind each other. `Rules` says beforehand what a kind of
store can hold, and `Spooled` reads a shard again, and makes sure of its bytes.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Protocol

from fastdecode._files import flush_folder
from fastdecode.packing._lock import open_own
from fastdecode.stores._items import Keys
from fastdecode.stores._mmap import Mapped
from fastdecode.stores.folder import INDEX
from fastdecode.stores.recordio import labels_of
from fastdecode.stores.tar import END, append_members
from fastdecode.stores.tar.format import MappedSource, members
from fastdecode.stores.tar.names import Names

if TYPE_CHECKING:
    from fastdecode.packing._journal import Item
    from fastdecode.types import Buffer

__all__ = ["PIECE", "PLAIN", "Layout", "Members", "Rules", "Spool", "Spooled", "part", "parts"]

PIECE = 1 << 20
"""How much of a file is read at once, in bytes, where only its checksum is wanted."""


class Layout(Protocol):
    """How items lie in a file."""

    end: bytes
    """What follows the last item."""

    def begin(self, path: Path) -> None:
        """Take note of what is in a shard already, of which no half item is left."""

    def append(self, file: BinaryIO, key: str, data: Buffer, target: Any) -> tuple[int, int]:
        """Write an item, and return the offset and the size of its image, in bytes."""


class _Plain:
    """Bytes behind each other."""

    end = b""

    def begin(self, path: Path) -> None:
        """See `Layout`: there is nothing to know."""

    def append(self, file: BinaryIO, key: str, data: Buffer, target: Any) -> tuple[int, int]:  # noqa: ARG002 - the journal has them
        offset = file.tell()
        file.write(data)
        return offset, len(data)


class Members:
    """Lays items out as members of a tar."""

    end = END

    def __init__(self) -> None:
        self._names = Names()

    def begin(self, path: Path) -> None:
        """Learn which names are taken in a shard, from its headers alone."""
        self._names = Names()
        if path.stat().st_size:
            for member in members(MappedSource(Mapped(str(path))), ended=False):
                self._names.add(member)

    def append(self, file: BinaryIO, key: str, data: Buffer, target: Any) -> tuple[int, int]:
        return append_members(file, key, data, target, self._names)


_NAME = "spool-"
PLAIN: Layout = _Plain()


def part(folder: Path, shard: int) -> Path:
    return folder / f"{_NAME}{shard:05d}"


def parts(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{_NAME}*") if path.name[len(_NAME) :].isdecimal()]


def _created(path: str, flags: int) -> int:
    return open_own(path, flags | os.O_CREAT)


class Spool:
    """Appends items to shards of at most `limit` bytes, as far as its items allow.

    What follows the offset `end` of the shard, where it was last made sure of, is cut off.
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
                "begin again with --start-over"
            )
        file.truncate(end)
        file.seek(end)
        self._layout.begin(path)
        flush_folder(path)
        return file

    def add(self, key: str, data: Buffer, target: Any) -> tuple[int, int, int]:
        """Append an item; return its shard, and its image's offset and size there, in bytes."""
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
        """Write the end of the last shard, and close it."""
        self._file.write(self._layout.end)
        self.sync()
        self._file.close()

    def close(self) -> None:
        """Close the file as it is, without the end of its shard."""
        self._file.close()


class Rules:
    """The rules for the items of one store, with the keys that are in it so far."""

    def __init__(self, kind: str) -> None:
        self._records = kind == "recordio"
        self._keys = Keys(files=kind == "folder", reserved=INDEX)

    def check(self, key: str, target: Any) -> None:
        """Make sure that the store can hold a further item."""
        self._keys.check(key)
        if self._records:
            labels_of(target)

    def add(self, key: str) -> None:
        """Take note of an item that is in the spool."""
        self._keys.add(key)


class Spooled:
    """Reads a shard of the spool from its beginning to its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sum = hashlib.sha256()
        self.size = 0

    def items(self, items: Iterable[Item]) -> Iterator[tuple[Item, bytes]]:
        """Yield each item with its bytes, and go through what lies between, and after them."""
        with open(self._path, "rb", opener=open_own) as file:
            for item in items:
                self._take(file.read(item.offset - self.size))
                data = self._take(file.read(item.size))
                if hashlib.sha256(data).hexdigest() != item.sha256:
                    raise OSError(
                        f"{self._path}: the bytes of {item.key} are not those that were written: "
                        "begin again with --start-over, on a disk that keeps them"
                    )
                yield item, data
            while self._take(file.read(PIECE)):
                pass

    def _take(self, data: bytes) -> bytes:
        self._sum.update(data)
        self.size += len(data)
        return data

    def hexdigest(self) -> str:
        """Return the SHA-256 of what was gone through."""
        return self._sum.hexdigest()
