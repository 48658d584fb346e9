"""Writing pictures to LMDB."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import lmdb

from fastdecode.stores.file_writer import FileWriter, reserve
from fastdecode.stores.fingerprint import fingerprint
from fastdecode.stores.index import IndexBuilder

__all__ = ["INDEX", "LmdbWriter", "item_key"]

INDEX = b"__fastdecode__"
"""The key of the index; it comes after all items."""

_BATCH = 16 << 20
"""Bytes in a transaction: as many are held in memory at once, or a little more."""

_FIRST_MAP = 64 << 20
_MOST_ITEMS = 10**8
_MARGIN = 256 << 10
"""Zeros after the last page. A damaged offset in a page leads the library up to three times 64 KiB
astray; it then reads these, where it would else run past the end, and kill the process."""

_MOST_VALUE = (1 << 32) - 1


class LmdbWriter(FileWriter):
    """Writes one LMDB file, with neither a folder nor a lock file.

    The same items make the same bytes.

    Parameters
    ----------
    location : str
    classes : sequence of str
    """

    kind = "lmdb"

    def __init__(self, location: str, classes: Sequence[str] = ()) -> None:
        super().__init__(location, classes)
        self._builder = IndexBuilder(classes, ("size", "fingerprint"))
        self._waiting: list[tuple[bytes, bytes]] = []
        self._waiting_bytes = 0
        self._map = _FIRST_MAP
        self._final.parent.mkdir(parents=True, exist_ok=True)
        self._partial.touch(exist_ok=False)
        self._lmdb: Any = lmdb.open(
            os.fspath(self._partial),
            subdir=False,
            map_size=self._map,
            lock=False,
            sync=False,  # once, at the end
            metasync=False,
        )
        self._page_size = int(self._lmdb.stat()["psize"])

    def _append(self, key: str, data: memoryview, target: Any) -> None:
        if len(self._builder) == _MOST_ITEMS:
            raise ValueError(f"{self.location}: an LMDB store holds {_MOST_ITEMS} items at most")
        if len(data) > _MOST_VALUE:
            raise ValueError(f"{key}: LMDB holds no values of 4 GiB or more")
        number = len(self._builder)
        self._builder.add(key, target, size=len(data), fingerprint=fingerprint(data))
        self._put(item_key(number), bytes(data))

    def _put(self, key: bytes, value: bytes) -> None:
        self._waiting.append((key, value))
        self._waiting_bytes += len(value)
        if self._waiting_bytes >= _BATCH:
            self._commit()

    def _commit(self) -> None:
        """Write what waits, with a larger map as long as it does not fit."""
        while self._waiting:
            self._reserve()
            try:
                with self._lmdb.begin(write=True) as transaction:
                    for key, value in self._waiting:
                        transaction.put(key, value, append=True)
                self._waiting.clear()
                self._waiting_bytes = 0
            except lmdb.MapFullError:
                self._map *= 2
                self._lmdb.set_mapsize(self._map)
            except lmdb.Error as error:
                raise OSError(f"{self.location} cannot be written: {error}") from error

    def _reserve(self) -> None:
        """Make sure of room first: LMDB says of a full disk only that something went wrong."""
        page = self._page_size
        needed = self._waiting_bytes + 2 * page * len(self._waiting) + _MARGIN
        reserve(self._partial, self._used(), needed)

    def _used(self) -> int:
        """Return how far the pages go, in bytes."""
        return (int(self._lmdb.info()["last_pgno"]) + 1) * self._page_size

    def _finish(self) -> None:
        self._commit()
        index = self._builder.to_bytes()
        if len(index) > _MOST_VALUE:
            raise ValueError(f"{self.location}: too many items: make several stores of them")
        self._put(INDEX, index)
        self._commit()
        used = self._used()
        self._let_go()
        os.truncate(self._partial, used)  # what was set aside may hold anything
        reserve(self._partial, used, _MARGIN)
        os.truncate(self._partial, used + _MARGIN)

    def _let_go(self) -> None:
        self._lmdb.close()


def item_key(index: int) -> bytes:
    """Return the key of an item: sorted, the keys are in the order of the items."""
    return b"%08d" % index
