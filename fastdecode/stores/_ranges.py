"""Reads ranges of a file, local or remote; maps a local file."""

from __future__ import annotations

import io
import mmap
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fastdecode._error_policy import mark_fatal
from fastdecode._files import ADVICE, NotRegular, open_regular
from fastdecode.errors import StoreError
from fastdecode.types import Buffer

if TYPE_CHECKING:
    from fastdecode.stores._remote import Remote

_LOCAL = ("file://", "local://")  # as fsspec has them
_BUFFER = 1 << 20
"""Buffer of a stream: one read includes the next headers and small files of a tar."""


class _Descriptor:
    """An open file, closed when nobody reads from it any more.

    Another thread may still read when the store is closed. If the descriptor were closed then, its
    number could stand for another file.
    """

    def __init__(self, file: io.FileIO) -> None:
        self._number = os.dup(file.fileno())

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if hasattr(self, "_number"):
            close(self._number)

    @property
    def size(self) -> int:
        return os.fstat(self._number).st_size

    def read(self, offset: int, size: int) -> bytes:
        """Return a range, shorter than `size` if the file ends in it."""
        parts: list[bytes] = []
        while size and (part := _pread(self._number, size, offset)):
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def map(self) -> mmap.mmap:
        """Map the whole file, which must not be empty."""
        return mmap.mmap(self._number, 0, access=mmap.ACCESS_READ)


_seeking = threading.Lock()


def _seek_and_read(number: int, size: int, offset: int) -> bytes:
    with _seeking:
        os.lseek(number, offset, os.SEEK_SET)
        return os.read(number, size)


_pread: Callable[[int, int, int], bytes] = getattr(os, "pread", _seek_and_read)  # not on Windows


class Ranges:
    """Read-only ranges of a file. Any number of threads may read at the same time.

    Ranges are copied, not mapped: if a file is cut, accessing a mapping past its end kills the
    process (SIGBUS, see mmap(2)). Making batches takes as long either way.
    """

    def __init__(self, location: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.location = location
        self.is_local = not is_uri(location)
        self._file: _Descriptor | None = None
        self._map: mmap.mmap | None = None
        self._remote: Remote | None = None
        if not self.is_local:
            from fastdecode.stores._remote import Remote, without_query

            self._remote = Remote(location, storage_options)
            size = self._remote.size(self._remote.path)
            if size is None:
                # Without its size, a file cannot be checked for being complete.
                raise StoreError(
                    f"{without_query(location)}: its server does not say how long it is"
                )
            self.size = size
            return
        try:
            opened = open_regular(local_path(location))
        except NotRegular as error:
            raise StoreError(f"{location}: {error.strerror}") from error
        with opened as file:
            self._file = _Descriptor(file)
        self.size = self._file.size

    def read(self, offset: int, size: int) -> bytes:
        """Return a range."""
        if offset < 0 or size < 0 or offset + size > self.size:
            places = f"bytes {offset} to {offset + size}"
            raise StoreError(f"{self.location}: {places} are past its end at {self.size}")
        if not self.is_local:
            return self._fetch(offset, size)
        file = self._open_file()
        try:
            data = file.read(offset, size)
        except OSError as error:
            error.filename = self.location
            raise
        if len(data) != size:
            raise self._cut_error(file.size)
        return data

    def map(self) -> Buffer:
        """Return the whole file, a local one as a view whose memory processes share.

        The view outlives `close`. Call `check` before each access, and `read` never again.
        """
        if not self.is_local or not self.size:  # an empty file cannot be mapped
            return self.read(0, self.size)
        self._map = self._open_file().map()
        self._file = None  # the mapping holds the file open itself
        return memoryview(self._map)

    def _open_file(self) -> _Descriptor:
        file = self._file  # another thread may call `close` meanwhile
        if file is None:
            raise self._closed_error()
        return file

    def _fetch(self, offset: int, size: int) -> bytes:
        remote = self._remote
        if remote is None:
            raise self._closed_error()
        try:
            data = remote.read(remote.path, offset, offset + size) if size else b""
        except FileNotFoundError as error:
            raise mark_fatal(error)  # noqa: B904 - it returns the same error
        if len(data) != size:
            raise self._cut_error(offset + len(data))
        return data

    def check(self) -> None:
        """Raise a StoreError if a local file has been cut since it was opened."""
        if self.is_local:
            now = self._open_file().size if self._map is None else self._map.size()
            if now < self.size:
                raise self._cut_error(now)

    def close(self) -> None:
        """Release the file. Mappings stay valid."""
        self._file = self._remote = self._map = None

    def _closed_error(self) -> ValueError:
        return ValueError(f"{self.location}: the file has been closed")

    def _cut_error(self, now: int) -> StoreError:
        error = StoreError(
            f"{self.location}: the file has been cut to {now} bytes since it was opened, when it "
            f"had {self.size}"
        )
        return mark_fatal(error)  # the cut affects all later items, not only this one


def is_uri(location: str) -> bool:
    """Return whether a location is a URI that is not a local file."""
    return "://" in location and not location.startswith(_LOCAL)


def open_stream(
    location: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    advice: str = ADVICE,
    **caching: Any,
) -> BinaryIO:
    """Open a file, by default to read it once and forwards. A remote file may not be seekable."""
    if not is_uri(location):
        return io.BufferedReader(open_regular(local_path(location), advice=advice), _BUFFER)
    from fastdecode.stores._remote import Remote

    there = Remote(location, storage_options)
    return there.open(there.path, **{"cache_type": "readahead", **caching})


def exists(location: str, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Return whether a path or URI exists."""
    if not is_uri(location):
        return Path(local_path(location)).exists()
    from fastdecode.stores._remote import Remote

    there = Remote(location, storage_options)
    return there.exists(there.path)


def local_path(location: str) -> str:
    """Return the path of a local file, without ``file://`` or ``local://``."""
    return location.partition("://")[2] if location.startswith(_LOCAL) else location
