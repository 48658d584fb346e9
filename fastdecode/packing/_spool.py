"""`Spool`: holds packed items until all of them are done, in files that only grow.

For a tar store, the files are the shards themselves, without the end of the last one. For any other
kind there is one file with the bytes of the images one after another. The spool refuses items that
the kind of store cannot hold, before hours of work go into the rest.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fastdecode._files import sync_folder
from fastdecode.packing._lock import open_own
from fastdecode.stores._items import Keys
from fastdecode.stores._ranges import Ranges
from fastdecode.stores.folder import INDEX
from fastdecode.stores.recordio import target_labels
from fastdecode.stores.tar import END, append_members
from fastdecode.stores.tar.format import RangeSource, members
from fastdecode.stores.tar.names import Names

if TYPE_CHECKING:
    from fastdecode.packing._journal import Item
    from fastdecode.types import Buffer

_NAME = "spool-"
_PIECE = 1 << 20
"""Bytes per read of a file of which only the checksum is needed."""


def part_path(folder: Path, shard: int) -> Path:
    return folder / f"{_NAME}{shard:05d}"


def list_parts(folder: Path) -> list[Path]:
    return [path for path in folder.glob(f"{_NAME}*") if path.name[len(_NAME) :].isdecimal()]


def _create(path: str, flags: int) -> int:
    return open_own(path, flags | os.O_CREAT)


class Spool:
    """Appends items to shards of at most `limit` bytes; an item that is larger has its own shard.

    The spool was last flushed to the disk at the offset `end` of `shard`. Anything after that is
    discarded; `keys` are those of the items before it.
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
        for path in list_parts(folder):
            if int(path.name.removeprefix(_NAME)) > shard:
                path.unlink()
        self._file: BinaryIO = self._open(end)

    def _open(self, end: int) -> BinaryIO:
        path = part_path(self._folder, self._shard)
        file = open(path, "r+b", opener=_create)  # noqa: SIM115 - see `finish`
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
        if self._kind == "tar" and end:  # the headers tell which names are taken
            for member in members(RangeSource(Ranges(str(path))), ended=False):
                self._names.add(member)
        sync_folder(path)
        return file

    def add(self, key: str, data: Buffer, target: Any) -> tuple[int, int, int]:
        """Append an item; return its shard, and the offset and size of its image there, in bytes.

        A ValueError says why this kind of store cannot hold the item.
        """
        self._keys.check(key)
        if self._kind == "recordio":
            target_labels(target)
        start = self._file.tell()
        try:
            offset, size = self._append(key, data, target)
        except ValueError:
            self._cut(start)
            raise
        if self._limit and start and self._file.tell() + len(self._end) > self._limit:
            # It goes to the next shard. So the same items end each shard on every run.
            self._cut(start)
            self.finish()
            self._shard += 1
            self._file = self._open(0)
            offset, size = self._append(key, data, target)
        self._keys.add(key)
        return self._shard, offset, size

    def _append(self, key: str, data: Buffer, target: Any) -> tuple[int, int]:
        """Write an item; return the offset and size of its image in bytes."""
        if self._kind == "tar":
            return append_members(self._file, key, data, target, self._names)
        offset = self._file.tell()
        self._file.write(data)  # the journal has its key and target
        return offset, len(data)

    def _cut(self, end: int) -> None:
        """Discard everything from the offset `end` on."""
        self._file.seek(end)
        self._file.truncate()

    def sync(self) -> tuple[int, int]:
        """Wait until everything is on the disk; return the shard and its end in bytes."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._shard, self._file.tell()

    def finish(self) -> None:
        """Write the end of the current shard, and close it."""
        self._file.write(self._end)
        self.sync()
        self._file.close()

    def close(self) -> None:
        """Close the file without writing the end of its shard."""
        self._file.close()


def read_back(
    path: Path, items: Iterable[Item], whole: hashlib._Hash
) -> Iterator[tuple[Item, bytes]]:
    """Yield the items of a part with their bytes, and add the whole part to a checksum."""
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
    """Add the rest of a file to a checksum, and return its hexadecimal digits."""
    while piece := file.read(_PIECE):
        whole.update(piece)
    return whole.hexdigest()
