"""Images in LMDB: a B+tree in one mapped file, whose items are read without copies.

`LmdbWriter` stores each encoded image unchanged in the main database, under the keys
``b"00000000"``, ``b"00000001"`` and so on. The index (see `_index`) is the value of
``b"__fastdecode__"``.

The lmdb library finds the position of a value. The bytes are then read from a separate mapping, so
that they stay valid when the environment is closed, and so that a damaged length is noticed before
memory past the end of the file is touched. This relies on the page layout of LMDB 0.9 (``struct
MDB_page`` in its mdb.c). A page has a header of 16 bytes, which begins with the number of the page
(8 bytes), padding (2) and flags (2). A value that does not fit into a leaf follows the header of a
separate page. That header has the flag 0x04, and ends with the number of pages of the value (4
bytes).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import struct
import threading
import weakref
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np

from fastdecode._files import stable_name
from fastdecode._process import after_fork
from fastdecode.errors import StoreError
from fastdecode.stores._index import Index, IndexBuilder, SelfDescribed
from fastdecode.stores._items import fingerprint
from fastdecode.stores._ranges import Ranges, is_uri, local_path
from fastdecode.stores.base import Writer, reserve_space
from fastdecode.types import Buffer

__all__ = ["INDEX", "Environment", "LmdbStore", "LmdbWriter", "item_key", "open_environment"]


_PAGE = struct.Struct("=QHHI")
_OVERFLOW = 0x04
INDEX = b"__fastdecode__"
"""The key of the index, which sorts after all items."""

_BATCH = 16 << 20
"""Bytes per transaction; about so many are held in memory at once."""

_FIRST_MAP = 64 << 20
_MAX_ITEMS = 10**8
_MARGIN = 256 << 10
"""Zeros after the last page. A damaged offset in a page can lead the library up to three times 64
KiB astray. It then reads these zeros; past the end of the file, it would kill the process."""

_MAX_VALUE = (1 << 32) - 1


class LmdbStore(SelfDescribed):
    """An LMDB file, or a folder with ``data.mdb``, as a store.

    The file is opened read-only and without LMDB's lock file, so it may be on a read-only file
    system. Nothing may write to it meanwhile. All stores of one file share one environment per
    process. Images of more than about 2 KB are not copied.

    Files that other programs have made can be read, too, such as those of LSUN. Their values must
    be encoded images; they come in the order of their keys, without targets. Keys that begin and
    end with two underscores (``__len__``, ``__keys__``) are left out.

    Parameters
    ----------
    location : str
        Local path.

    Notes
    -----
    The size and some bytes of each image are compared with the index, so that damage in LMDB's tree
    never returns the bytes of another item. Files of other programs have no such check. LMDB trusts
    its file: in rare cases, damage in the tree can still kill the process, as in every program that
    reads LMDB.
    """

    kind = "lmdb"

    def __init__(self, location: str) -> None:
        if is_uri(location):
            raise ValueError(f"{location}: LMDB can only be mapped; copy it to a local disk first")
        super().__init__(location)
        self._reload()

    def _load(self, opened: Environment) -> None:
        found = opened.get(INDEX)
        if found is None:
            self._contents = _Keys(opened)
            return
        index = Index(found, self.location, ("size", "fingerprint"), opened.file.check)
        self._contents, self.classes = index, index.classes

    def _open(self) -> Environment:
        return open_environment(local_path(self.location))

    def _read(self, opened: Environment, index: int) -> Buffer:
        contents = self._contents
        foreign = isinstance(contents, _Keys)
        key = contents[index] if isinstance(contents, _Keys) else item_key(index)
        try:
            data = opened.get(key)
        except StoreError as error:
            raise self._damage_error(index, str(error)) from error
        if data is None:
            raise self._damage_error(index, "it is missing; create the store again")
        self._check_bytes(index, data)
        if foreign and _is_pickle(data):
            raise self._damage_error(
                index,
                "it is a pickled object, not an encoded image: unpickle it with the code that made "
                "it, and write the images with create_store",
            )
        return data


class _Keys:
    """The keys of a foreign LMDB, in one block of memory."""

    def __init__(self, opened: Environment) -> None:
        self._text = bytearray()
        self._ends = array("Q", [0])
        most = len(opened)
        for key in opened.keys():  # noqa: SIM118 - an environment is not a mapping
            if key.startswith(b"__") and key.endswith(b"__"):
                continue
            self._text += key
            self._ends.append(len(self._text))
            if len(self) > most:  # a damaged tree may lead in circles
                raise StoreError(f"{opened.path}: the file is damaged; it has too many items")

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._text[self._ends[index] : self._ends[index + 1]])

    def key(self, index: int) -> str:
        return self[index].decode("utf-8", "backslashreplace")

    def target(self, _: int) -> None:
        """Return None: a foreign LMDB has no targets."""


def _is_pickle(data: Buffer) -> bool:
    """Return whether data begins like a pickle of protocol 2 or later, as no image does."""
    return len(data) > 1 and data[0] == 0x80 and 2 <= data[1] <= 5


class Environment:
    """An LMDB file or folder, open for reading. Any number of threads may read at once."""

    def __init__(self, path: str) -> None:
        self.path = path
        data = _data_file(path)
        self.state = _file_identity(data)  # differs if another file takes its place
        self.file = Ranges(data)
        self._base: int | None = None
        try:
            with stable_name(data) as name:
                self._lmdb = lmdb.open(
                    name,
                    subdir=False,
                    create=False,
                    readonly=True,
                    lock=False,
                    readahead=True,  # an image spans many pages, and the library touches each one
                    max_spare_txns=0,
                    map_size=self.file.size,
                )
            self._page = self._lmdb.stat()["psize"]
            needed = (self._lmdb.info()["last_pgno"] + 1) * self._page
            # Pages past the end would kill the process when the library reads them.
            if self.file.size < needed:
                raise StoreError(
                    f"{path}: the file has been cut: it has {self.file.size} bytes of {needed}"
                )
            # Transactions that no thread is using: only one thread at a time may use one.
            self._idle = [self._lmdb.begin(buffers=True)]
        except lmdb.Error as error:
            raise StoreError(f"{path}: {_message(error)}") from error

    def __len__(self) -> int:
        return int(self._lmdb.stat()["entries"])

    def get(self, key: bytes) -> Buffer | None:
        """Return the value of a key as bytes that stay valid, or None if there is no such key."""
        self.file.check()
        try:
            transaction = self._idle.pop()
        except IndexError:
            transaction = self._lmdb.begin(buffers=True)
        try:
            value = transaction.get(key)
        except lmdb.Error as error:  # the transaction cannot be used again
            raise StoreError(f"{self.path}: {_message(error)}") from error
        owned = None if value is None else self._copy_value(value)
        self._idle.append(transaction)
        return owned

    def keys(self) -> Iterator[bytes]:
        """Yield the keys, sorted."""
        self.file.check()
        try:
            with self._lmdb.begin() as transaction, transaction.cursor() as cursor:
                yield from cursor.iternext(keys=True, values=False)
        except lmdb.Error as error:
            raise StoreError(f"{self.path}: {_message(error)}") from error

    def _copy_value(self, value: memoryview) -> Buffer:
        """Return a value as bytes that outlive both the transaction and the environment."""
        size = len(value)
        if size == 0:
            return b""
        address = int(np.frombuffer(value, np.uint8).__array_interface__["data"][0])
        if self._page != mmap.PAGESIZE:
            # Made on a machine with another page size: the address does not tell the position.
            if size > self.file.size:
                raise self._damage_error()
            return bytes(value)
        header = address - _PAGE.size
        if header % self._page:  # inside a leaf
            if address % self._page + size > self._page:
                raise self._damage_error()
            return bytes(value)
        number, _, flags, pages = _PAGE.unpack(ctypes.string_at(header, _PAGE.size))
        base = header - number * self._page
        if self._base is None:
            self._base = base
        if (
            base != self._base
            or not flags & _OVERFLOW
            or _PAGE.size + size > pages * self._page
            or (number + pages) * self._page > self.file.size
        ):
            raise self._damage_error()
        return self.file.read(number * self._page + _PAGE.size, size)

    def _damage_error(self) -> StoreError:
        return StoreError(f"{self.path}: the file is damaged; create it again")


_open: weakref.WeakValueDictionary[str, Environment] = weakref.WeakValueDictionary()
_opening = threading.Lock()


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
    said = re.sub("^/proc/self/fd/[0-9]+: ", "", str(error))  # the name of `stable_name`
    return f"the file is damaged, or not an LMDB file ({said})"


@after_fork
def _after_fork() -> None:
    """Keep inherited environments open until the process ends.

    The library may still count a thread of the parent process as a reader. Closing would then wait
    for that thread forever. Nor can the library open a file twice.
    """
    global _opening
    _opening = threading.Lock()  # a thread of the parent may have held the old one
    for each in list(_open.values()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


class LmdbWriter(Writer):
    """Writes a single LMDB file, without a folder and a lock file.

    The same items always give the same bytes.
    """

    kind = "lmdb"

    def __init__(self, location: str, classes: Sequence[str] = ()) -> None:
        super().__init__(location, classes)
        self._builder = IndexBuilder(classes, ("size", "fingerprint"))
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
        self._page_size = int(self._lmdb.stat()["psize"])

    def _append(self, key: str, data: memoryview, target: Any) -> None:
        if len(self._builder) == _MAX_ITEMS:
            raise ValueError(f"{self.location}: an LMDB store holds {_MAX_ITEMS} items at most")
        if len(data) > _MAX_VALUE:
            raise ValueError(f"{key}: LMDB cannot hold values of 4 GiB or more")
        number = len(self._builder)
        self._builder.add(key, target, size=len(data), fingerprint=fingerprint(data))
        self._put(item_key(number), bytes(data))

    def _put(self, key: bytes, value: bytes) -> None:
        self._waiting.append((key, value))
        self._waiting_bytes += len(value)
        if self._waiting_bytes >= _BATCH:
            self._commit()

    def _commit(self) -> None:
        """Write the waiting items; enlarge the map until they fit."""
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
        """Reserve disk space first: LMDB's error does not say that the disk is full."""
        page = self._page_size
        needed = self._waiting_bytes + 2 * page * len(self._waiting) + _MARGIN
        reserve_space(self._partial, self._used(), needed)

    def _used(self) -> int:
        """Return the end of the last page, in bytes."""
        return (int(self._lmdb.info()["last_pgno"]) + 1) * self._page_size

    def _finish(self) -> None:
        self._commit()
        index = self._builder.to_bytes()
        if len(index) > _MAX_VALUE:
            raise ValueError(f"{self.location}: too many items: divide them into several stores")
        self._put(INDEX, index)
        self._commit()
        used = self._used()
        self._release()
        os.truncate(self._partial, used)  # the reserved space may hold anything
        reserve_space(self._partial, used, _MARGIN)
        os.truncate(self._partial, used + _MARGIN)

    def _release(self) -> None:
        self._lmdb.close()


def item_key(index: int) -> bytes:
    """Return the key of an item. The keys sort in the order of the items."""
    return b"%08d" % index
