"""Images in LMDB: a B+tree in one mapped file, read by the lmdb library.

`LmdbWriter` stores each encoded image unchanged in the main database, under the keys
``b"00000000"``, ``b"00000001"`` and so on. The index (see `_index`) is the value of
``b"__fastdecode__"``.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lmdb

from fastdecode._system.process import after_fork
from fastdecode.errors import StoreError
from fastdecode.stores._index import Index, IndexBuilder, IndexedStore
from fastdecode.stores._ranges import Ranges, is_uri, local_path
from fastdecode.stores.base import Writer

INDEX = b"__fastdecode__"
"""The key of the index, which sorts after all items."""

_AS_NAMES = "utf-8", "surrogateescape"
_BATCH = 16 << 20
"""Bytes per transaction; about so many are held in memory at once."""

_FIRST_MAP = 64 << 20
_MAX_ITEMS = 10**8
_MAX_VALUE = (1 << 32) - 1


class LmdbStore(IndexedStore):
    """An LMDB file, or a folder with ``data.mdb``, as a store.

    The file is opened read-only and without LMDB's lock file, so it may be on a read-only file
    system. Nothing may write to it meanwhile. All stores of one file share one environment per
    process.

    Files that other programs have made can be read, too, such as those of LSUN. Their values must
    be encoded images; they come in the order of their keys, without targets. Keys that begin and
    end with two underscores (``__len__``, ``__keys__``) are left out.

    Parameters
    ----------
    location : str
        Local path.

    Notes
    -----
    LMDB trusts its file: damage in it can return other bytes or kill the process, as in every
    program that reads LMDB. The size of each image is compared with the index.
    """

    kind = "lmdb"

    def __init__(self, location: str) -> None:
        if is_uri(location):
            raise ValueError(f"{location}: LMDB can only be mapped; copy it to a local disk first")
        super().__init__(location)
        opened = self._handle()
        found = opened.get(INDEX)
        self._is_own = found is not None
        if found is not None:
            self._contents = Index(found, self.location, ("size",))
        else:
            self._contents = Index(_list_keys(opened).to_bytes(), self.location)
        self.classes = self._contents.classes

    def _open(self) -> Environment:
        return open_environment(local_path(self.location))

    def _read(self, opened: Environment, index: int) -> bytes:
        contents = self._contents
        key = item_key(index) if self._is_own else contents.key(index).encode(*_AS_NAMES)
        try:
            data = opened.get(key)
        except StoreError as error:
            raise self._damage_error(index, str(error)) from error
        if data is None:
            raise self._damage_error(index, "it is missing; create the store again")
        if self._is_own and len(data) != contents["size"][index]:
            raise self._damage_error(index, "it has not the size that was written")
        return data


def _list_keys(opened: Environment) -> IndexBuilder:
    """Collect the keys of a foreign LMDB, as texts that stand for any bytes."""
    builder, most = IndexBuilder(), len(opened)
    for key in opened.keys():  # noqa: SIM118 - an environment is not a mapping
        if not (key.startswith(b"__") and key.endswith(b"__")):
            builder.add(key.decode(*_AS_NAMES))
        if len(builder) > most:  # a damaged tree may lead in circles
            raise StoreError(f"{opened.path}: the file is damaged; it has too many items")
    return builder


class Environment:
    """An LMDB file or folder, open for reading. Any number of threads may read at once."""

    def __init__(self, path: str) -> None:
        self.path = path
        data = _data_file(path)
        self.state = _file_identity(data)  # differs if another file takes its place
        self.file = Ranges(data, descriptor=False)
        try:
            self._lmdb = lmdb.open(
                data,
                subdir=False,
                create=False,
                readonly=True,
                lock=False,
                readahead=True,  # an image spans many pages, and the library touches each one
                max_spare_txns=0,
                map_size=self.file.size,
            )
            needed = (self._lmdb.info()["last_pgno"] + 1) * self._lmdb.stat()["psize"]
            # Pages past the end would kill the process when the library reads them.
            if self.file.size < needed:
                raise StoreError(
                    f"{path}: the file has been cut: it has {self.file.size} bytes of {needed}"
                )
            # Transactions that no thread is using: only one thread at a time may use one.
            self._idle = [self._lmdb.begin()]
        except lmdb.Error as error:
            raise StoreError(f"{path}: {_message(error)}") from error

    def __len__(self) -> int:
        return int(self._lmdb.stat()["entries"])

    def get(self, key: bytes) -> bytes | None:
        """Return a copy of the value of a key, or None if there is no such key."""
        self.file.check()
        try:
            transaction = self._idle.pop()
        except IndexError:
            transaction = self._lmdb.begin()
        try:
            value: bytes | None = transaction.get(key)
        except lmdb.Error as error:  # the transaction cannot be used again
            raise StoreError(f"{self.path}: {_message(error)}") from error
        self._idle.append(transaction)
        return value

    def keys(self) -> Iterator[bytes]:
        """Yield the keys, sorted."""
        self.file.check()
        try:
            with self._lmdb.begin() as transaction, transaction.cursor() as cursor:
                yield from cursor.iternext(keys=True, values=False)
        except lmdb.Error as error:
            raise StoreError(f"{self.path}: {_message(error)}") from error


_open: weakref.WeakValueDictionary[str, Environment] = weakref.WeakValueDictionary()
_opening = threading.Lock()
_inherited: list[Environment] = []


def open_environment(path: str) -> Environment:
    """Return the environment of a file or folder in this process; open it if it is not open yet.

    A forked process goes on using what it inherits. Without LMDB's lock file this is safe: reading
    only accesses a mapping that both processes have.
    """
    place = os.path.realpath(path)
    with _opening:
        found = _open.get(place)
        if found is None:
            found = _open[place] = Environment(path)
        elif found.state != _file_identity(_data_file(path)):
            raise StoreError(
                f"{path} has been replaced or written to while it is open in this process: first "
                "close the stores that read it"
            )
        return found


def _data_file(path: str) -> str:
    return str(Path(path) / "data.mdb") if Path(path).is_dir() else path


def _file_identity(path: str) -> tuple[int, int, int, int]:
    found = Path(path).stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _message(error: Exception) -> str:
    """Return the message for an error of the lmdb library."""
    if "already open" in str(error):
        return (
            "other code in this process has it open with the lmdb library, and LMDB cannot open a "
            "file twice: close that first"
        )
    return f"the file is damaged, or not an LMDB file ({error})"


@after_fork
def _after_fork() -> None:
    """Keep inherited environments open, because the library cannot open a file twice."""
    global _opening
    _opening = threading.Lock()  # a thread of the parent may have held the old one
    _inherited.extend(_open.values())


class LmdbWriter(Writer):
    """Writes a single LMDB file, without a folder and a lock file.

    The same items always give the same bytes.
    """

    kind = "lmdb"

    def __init__(self, location: str, classes: Sequence[str] = ()) -> None:
        super().__init__(location, classes)
        self._builder = IndexBuilder(classes, ("size",))
        self._waiting: list[tuple[bytes, bytes]] = []
        self._waiting_bytes = 0
        self._map = _FIRST_MAP
        self._partial.touch(exist_ok=False)
        try:
            self._lmdb: Any = lmdb.open(
                os.fspath(self._partial),
                subdir=False,
                map_size=self._map,
                lock=False,
                sync=False,  # the base class syncs once, at the end
                metasync=False,
            )
        except lmdb.Error as error:
            raise OSError(f"{self.location} cannot be written: {error}") from error

    def _append(self, key: str, data: memoryview, target: Any) -> None:
        if len(self._builder) == _MAX_ITEMS:
            raise ValueError(f"{self.location}: an LMDB store holds {_MAX_ITEMS} items at most")
        if len(data) > _MAX_VALUE:
            raise ValueError(f"{key}: LMDB cannot hold values of 4 GiB or more")
        number = len(self._builder)
        self._builder.add(key, target, size=len(data))
        self._put(item_key(number), bytes(data))

    def _put(self, key: bytes, value: bytes) -> None:
        self._waiting.append((key, value))
        self._waiting_bytes += len(value)
        if self._waiting_bytes >= _BATCH:
            self._commit()

    def _commit(self) -> None:
        """Write the waiting items; enlarge the map until they fit."""
        while self._waiting:
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
                # LMDB says of a full disk only that there was an error.
                raise OSError(
                    f"{self.location} cannot be written: is the disk full? ({error})"
                ) from error

    def _finish(self) -> None:
        self._commit()
        index = self._builder.to_bytes()
        if len(index) > _MAX_VALUE:
            raise ValueError(f"{self.location}: too many items: divide them into several stores")
        self._put(INDEX, index)
        self._commit()
        size = (int(self._lmdb.info()["last_pgno"]) + 1) * int(self._lmdb.stat()["psize"])
        self._release()
        os.truncate(self._partial, size)

    def _release(self) -> None:
        self._lmdb.close()


def item_key(index: int) -> bytes:
    """Return the key of an item. The keys sort in the order of the items."""
    return b"%08d" % index
