"""`Spool`: where packed items wait until all are there, in files that only grow.

For a tar store these are the shards themselves, of which only the last lines are missing; for any
other kind one file with the images' bytes behind each other. What a kind of store cannot hold is
refused here, before hours of work are put into the rest.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

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

_NAME = "spool-"
_PIECE = 1 << 20
"""How much of a file is read at once, in bytes, where only its checksum is wanted."""


def part(folder: Path, shard: int) -> Path:
    return folder / f"{_NAME}{shard:05d}"


def parts(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{_NAME}*") if path.name[len(_NAME) :].isdecimal()]


def _created(path: str, flags: int) -> int:
    return open_own(path, flags | os.O_CREAT)


class Spool:
    """Appends items to shards of at most `limit` bytes, as far as its items allow.

    What follows the offset `end` of the shard, where it was last made sure of, is cut off; `keys`
    are those of the items before that.
    """

    def __init__(
        self,
        folder: Path,
        kind: str,
        limit: int | None = None,
        shard: int = 0,
        end: int = 0,
        keys: Iterable[str] = (),
    ) -> None:
        self._folder = folder
        self._kind = kind
        self._end = END if kind == "tar" else b""
        self._limit = limit
        self._shard = shard
        self._keys = Keys(files=kind == "folder", reserved=INDEX)
        for key in keys:
            self._keys.add(key)
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
        self._names = Names()
        if self._kind == "tar" and end:  # which names are taken, from the headers alone
            for member in members(MappedSource(Mapped(str(path))), ended=False):
                self._names.add(member)
        flush_folder(path)
        return file

    def add(self, key: str, data: Buffer, target: Any) -> tuple[int, int, int]:
        """Append an item; return its shard, and its image's offset and size there, in bytes.

        A ValueError says why such a store cannot hold the item.
        """
        self._keys.check(key)
        if self._kind == "recordio":
            labels_of(target)
        start = self._file.tell()
        try:
            offset, size = self._append(key, data, target)
        except ValueError:
            self._cut(start)
            raise
        if self._limit and start and self._file.tell() + len(self._end) > self._limit:
            # It belongs to the next one. Whatever the sizes are, the same items end each shard.
            self._cut(start)
            self.finish()
            self._shard += 1
            self._file = self._opened(0)
            offset, size = self._append(key, data, target)
        self._keys.add(key)
        return self._shard, offset, size

    def _append(self, key: str, data: Buffer, target: Any) -> tuple[int, int]:
        """Write an item, and return the offset and the size of its image in bytes."""
        if self._kind == "tar":
            return append_members(self._file, key, data, target, self._names)
        offset = self._file.tell()
        self._file.write(data)  # the journal has its key and target
        return offset, len(data)

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
        self._file.write(self._end)
        self.sync()
        self._file.close()

    def close(self) -> None:
        """Close the file as it is, without the end of its shard."""
        self._file.close()


def read_back(
    path: Path, items: Iterable[Item], whole: hashlib._Hash
) -> Iterator[tuple[Item, bytes]]:
    """Yield the items of a part, each with its bytes, and take all of the part into a checksum."""
    with open(path, "rb", opener=open_own) as file:
        end = 0
        for item in items:
            whole.update(file.read(item.offset - end))
            data = file.read(item.size)
            whole.update(data)
            end = item.offset + item.size
            if hashlib.sha256(data).hexdigest() != item.sha256:
                raise OSError(
                    f"{path}: the bytes of {item.key} are not those that were written: "
                    "begin again with --start-over, on a disk that keeps them"
                )
            yield item, data
        checksum(file, whole)


def checksum(file: BinaryIO, whole: hashlib._Hash) -> str:
    """Take what is left of a file into a SHA-256, and return that."""
    while piece := file.read(_PIECE):
        whole.update(piece)
    return whole.hexdigest()
