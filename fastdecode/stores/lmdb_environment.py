"""LMDB environments that are open in this process: one for each file, as LMDB demands.

The library finds where a value lies. The bytes are then read from a mapping of our own, so that
they stay valid whatever becomes of the environment, and that a damaged length is noticed before
memory is touched that is not there.

Notes
-----
The layout of a page that is relied on here is that of LMDB 0.9 (``struct MDB_page`` in its mdb.c):
a header of 16 bytes, which begins with the page's number (8 bytes), padding (2) and flags (2). A
value that does not fit into a leaf follows the header of a page of its own, whose header has the
flag 0x04 and ends with how many pages (4 bytes) it goes over.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import re
import struct
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path

import lmdb
import numpy as np

from fastdecode.errors import StoreError
from fastdecode.files import reopened
from fastdecode.stores.mapped import Mapped
from fastdecode.types import Buffer

__all__ = ["Environment", "environment"]

_PAGE = struct.Struct("=QHHI")
_OVERFLOW = 0x04


class Environment:
    """An LMDB file or folder, open for reading. Any number of threads may read at once.

    Parameters
    ----------
    path : str

    Attributes
    ----------
    file : Mapped
    state : tuple
        Tells the file from another that is at the same place later.

    Raises
    ------
    OSError
        If it is not there, or cannot be read.
    StoreError
        If it is no LMDB file, or cut short, or open elsewhere in this process.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        data = _data_file(path)
        self.state = _state(data)
        self.file = Mapped(data)
        self._base: int | None = None
        try:
            with reopened(data) as name:
                self._lmdb = lmdb.open(
                    name,
                    subdir=False,
                    create=False,
                    readonly=True,
                    lock=False,
                    readahead=True,  # a picture is many pages, and the library touches each of them
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
            # Those that no thread uses just now: a transaction is for one thread at a time.
            self._idle = [self._lmdb.begin(buffers=True)]
        except lmdb.Error as error:
            raise StoreError(f"{path}: {_why(error)}") from error

    def __len__(self) -> int:
        return int(self._lmdb.stat()["entries"])

    def get(self, key: bytes) -> Buffer | None:
        """Return a value, or None if there is none.

        Raises
        ------
        StoreError
            If the file is damaged there, or has been cut.
        """
        self._check()
        try:
            transaction = self._idle.pop()
        except IndexError:
            transaction = self._lmdb.begin(buffers=True)
        try:
            value = transaction.get(key)
        except lmdb.Error as error:  # after which a transaction gives nothing any more
            raise StoreError(f"{self.path}: {_why(error)}") from error
        owned = None if value is None else self._owned(value)
        self._idle.append(transaction)
        return owned

    def keys(self) -> Iterator[bytes]:
        """List the keys, sorted.

        Raises
        ------
        StoreError
            See above.
        """
        self._check()
        try:
            with self._lmdb.begin() as transaction, transaction.cursor() as cursor:
                yield from cursor.iternext(keys=True, values=False)
        except lmdb.Error as error:
            raise StoreError(f"{self.path}: {_why(error)}") from error

    def _check(self) -> None:
        """Make sure that the file has not been cut since it was opened."""
        self.file.read(self.file.size, 0)

    def _owned(self, value: memoryview) -> Buffer:
        """Return a value as bytes that depend neither on the transaction nor on the environment."""
        size = len(value)
        if size == 0:
            return b""
        address = int(np.frombuffer(value, np.uint8).__array_interface__["data"][0])
        if self._page != mmap.PAGESIZE:
            # Made on a machine with other pages: where it lies is not to be seen from the address.
            if size > self.file.size:
                raise self._damaged()
            return bytes(value)
        header = address - _PAGE.size
        if header % self._page:  # inside a leaf
            if address % self._page + size > self._page:
                raise self._damaged()
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
            raise self._damaged()
        return self.file.read(number * self._page + _PAGE.size, size)

    def _damaged(self) -> StoreError:
        return StoreError(f"{self.path}: the file is damaged; make it anew")


_open: weakref.WeakValueDictionary[str, Environment] = weakref.WeakValueDictionary()
_opening = threading.Lock()


def environment(path: str) -> Environment:
    """Return the environment of a file or folder in this process, and open it if it is not.

    A forked process goes on with what it inherits. That is sound without LMDB's lock file: reading
    then is nothing but looking into a mapping that both processes have.

    Raises
    ------
    OSError, StoreError
        See `Environment`.
    """
    place = os.path.realpath(path)
    with _opening:
        found = _open.get(place)
        if found is None:
            found = _open[place] = Environment(path)
        elif found.state != _state(_data_file(path)):
            raise StoreError(
                f"{path} has been replaced or written to while it is open in this process: close "
                "the stores that read it first"
            )
        return found


def _data_file(path: str) -> str:
    return str(Path(path) / "data.mdb") if Path(path).is_dir() else path


def _state(path: str) -> tuple[int, int, int, int]:
    found = Path(path).stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _why(error: Exception) -> str:
    """Say in words what the library says in its own."""
    if "already open" in str(error):
        return (
            "the lmdb library has it open elsewhere in this process, which LMDB does not allow "
            "twice: close that first"
        )
    said = re.sub("^/proc/self/fd/[0-9]+: ", "", str(error))  # the name of `reopened`
    return f"the file is damaged, or no LMDB file ({said})"


def _after_fork() -> None:
    """Keep what is inherited open as long as the process lives.

    The library may believe that a thread, which only the parent has, is still reading, and would
    wait for it for ever before it closes; and it opens nothing twice.
    """
    global _opening
    _opening = threading.Lock()  # whoever held it has stayed behind
    for each in list(_open.values()):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
