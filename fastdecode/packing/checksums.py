"""Checksums of what has been packed, of each item and of all files, in one pass over the data."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdecode.packing.lock import open_own
from fastdecode.stores.folder import INDEX

if TYPE_CHECKING:
    from fastdecode.packing.results import Item

__all__ = ["Content", "Spooled", "file_entries"]

_PIECE = 1 << 20


class Content:
    """A checksum of all pictures and their keys, whatever kind of store they are in.

    It is the SHA-256 of the lines ``SHA256  KEY``, as ``sha256sum`` prints them, in order.
    """

    def __init__(self) -> None:
        self._sum = hashlib.sha256()

    def add(self, item: Item) -> None:
        """Take in an item."""
        self._sum.update(f"{item.sha256}  {item.key}\n".encode())

    def hexdigest(self) -> str:
        """Return it in hexadecimal."""
        return self._sum.hexdigest()


class Spooled:
    """Reads a shard of the spool from its beginning to its end.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sum = hashlib.sha256()
        self.size = 0

    def items(self, items: Iterable[Item]) -> Iterator[tuple[Item, bytes]]:
        """Yield each item with its bytes, and go through what lies between, and after them.

        Raises
        ------
        OSError
            If bytes are not those that were written: the disk has lost them.
        """
        with open(self._path, "rb", opener=open_own) as file:
            for item in items:
                self._take(file.read(item.offset - self.size))
                data = self._take(file.read(item.size))
                if hashlib.sha256(data).hexdigest() != item.sha256:
                    raise OSError(
                        f"{self._path}: the bytes of {item.key} are not those that were written: "
                        "begin again with --restart, on a disk that keeps them"
                    )
                yield item, data
            while self._take(file.read(_PIECE)):
                pass

    def _take(self, data: bytes) -> bytes:
        self._sum.update(data)
        self.size += len(data)
        return data

    def hexdigest(self) -> str:
        """Return the SHA-256 of what was gone through."""
        return self._sum.hexdigest()


def file_entries(folder: Path) -> list[dict[str, Any]]:
    """Describe the files in a folder, in order: name, size in bytes and SHA-256.

    Of a store that is a folder it is the index alone: the items have their own checksum.
    """
    entries = []
    files = [each for each in folder.iterdir() if each.is_file()]
    for path in sorted([*files, *folder.glob(f"*/{INDEX}")]):
        with path.open("rb") as file:
            found = hashlib.sha256()
            while piece := file.read(_PIECE):
                found.update(piece)
        entries.append(
            {
                "name": path.relative_to(folder).as_posix(),
                "bytes": path.stat().st_size,
                "sha256": found.hexdigest(),
            }
        )
    return entries
