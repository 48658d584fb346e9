"""Reads ranges of a file: a local one from a mapping, a remote one by requests.

A mapping keeps its file open, and so does every view of it, in batches that are being made and
wherever a caller keeps one. If many are alive, further files are opened for each read instead.
"""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np

from fastdecode._error_policy import mark_fatal, retry
from fastdecode._system.files import NotRegular, open_regular, read_regular
from fastdecode.errors import StoreError
from fastdecode.types import Buffer

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from fastdecode.stores._remote import Remote

_LOCAL = ("file://", "local://")  # as fsspec has them
_MOST_COPIED = 1 << 30
"""An item of more bytes is not copied, which one call might not do."""

_WILL_NEED = getattr(mmap, "MADV_WILLNEED", None)

_WINDOWS_LIMIT = 8192
"""The limit on open files there, which is that of the C library."""


class FileMap(mmap.mmap):
    """A mapping that lets the native core read a range from its file instead.

    Accessing a mapping past the end of a file that has been cut kills the process (SIGBUS, see
    mmap(2)). So the core, whose batches are decoded long after their ranges were looked up, reads
    from `descriptor`, in its own threads; others call `copy`. `address` is where the mapping begins
    in memory.
    """

    descriptor = 0
    address = 0
    location = ""

    @classmethod
    def of(cls, file: io.FileIO, size: int, location: str, *, descriptor: bool) -> FileMap:
        mapped = cls(file.fileno(), size, access=mmap.ACCESS_READ)
        mapped.location = location
        if descriptor:
            mapped.address = np.frombuffer(mapped, np.uint8).ctypes.data
            mapped.descriptor = os.dup(file.fileno())
        _maps.add(mapped)
        return mapped

    def copy(self, view: memoryview) -> Buffer:
        """Return the bytes of a view, read from the file; raise a StoreError if it has been cut."""
        # Where `pread` is missing, a mapped file cannot be cut.
        if not self.descriptor or not hasattr(os, "pread") or len(view) > _MOST_COPIED:
            return view
        place = np.frombuffer(view, np.uint8).ctypes.data - self.address
        data = os.pread(self.descriptor, len(view), place)
        if len(data) < len(view):
            raise _cut_error(self.location, self.size(), len(self))
        return data

    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if self.descriptor:
            close(self.descriptor)


_maps: WeakSet[FileMap] = WeakSet()
"""The mappings of this process that are alive, each of which holds one or two files open."""


def max_maps() -> int:
    """Return how many mappings may be alive; half of the files are left to other code."""
    if resource is None:
        return _WINDOWS_LIMIT // 4
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 18 if limit == resource.RLIM_INFINITY else max(8, limit // 4)


class Ranges:
    """Read-only ranges of a file. Any number of threads may read at the same time.

    Those of a local file are views of a `FileMap`; it takes one open file less without
    `descriptor`. Each read first checks the length of the file, which takes about half a
    microsecond. If there are too many mappings already, a range is a copy instead, for which the
    file is opened again.
    """

    def __init__(
        self,
        location: str,
        storage_options: Mapping[str, Any] | None = None,
        *,
        descriptor: bool = True,
    ) -> None:
        self.location = location
        self._map: FileMap | None = None
        self._remote: Remote | None = None
        self._closed = False
        if is_uri(location):
            from fastdecode.stores._remote import Remote, without_query

            self._remote = Remote(location, storage_options)
            size = self._remote.size(self._remote.path)
            if size is None:
                # Without its size, a file cannot be checked for being complete.
                raise StoreError(
                    f"{without_query(location)}: its server does not say how long it is: copy the "
                    "file to a local disk"
                )
            self.size = size
            return
        try:
            opened = open_regular(local_path(location))
        except NotRegular as error:
            raise StoreError(f"{location}: {error.strerror}") from error
        with opened as file:
            status = os.fstat(file.fileno())
            self.size, self._identity = status.st_size, (status.st_dev, status.st_ino)
            if self.size and len(_maps) < max_maps():  # an empty file cannot be mapped
                self._map = FileMap.of(file, self.size, location, descriptor=descriptor)

    @property
    def is_local(self) -> bool:
        """Whether ranges come from a file of this machine, rather than by requests."""
        return self._remote is None

    @property
    def is_mapped(self) -> bool:
        """Whether ranges are views of a mapping."""
        return self._map is not None

    def read(self, offset: int, size: int) -> Buffer:
        """Return a range, which outlives `close`; of a mapping it is a read-only view."""
        if offset < 0 or size < 0 or offset + size > self.size:
            places = f"bytes {offset} to {offset + size}"
            raise StoreError(f"{self.location}: {places} are past its end at {self.size}")
        mapping = self._map  # another thread may call `close` meanwhile
        if self._closed:
            raise ValueError(f"{self.location}: the file has been closed")
        if self._remote is not None:
            return self._fetch(self._remote, offset, size)
        if mapping is None:
            return self._read_again(offset, size) if self.size else b""
        now = mapping.size()
        if now < offset + size:
            raise _cut_error(self.location, now, self.size)
        return memoryview(mapping)[offset : offset + size]

    def _read_again(self, offset: int, size: int) -> bytes:
        """Read from a file that is not held open, if it is still the same one."""

        def attempt() -> tuple[os.stat_result, bytes]:
            with io.BufferedReader(open_regular(local_path(self.location))) as file:
                file.seek(offset)
                return os.fstat(file.fileno()), file.read(size)

        try:
            now, data = retry(attempt)
        except OSError as error:  # it concerns all items
            raise mark_fatal(error)  # noqa: B904 - it returns the same error
        if (now.st_dev, now.st_ino) != self._identity:
            raise mark_fatal(StoreError(f"{self.location}: it has been replaced: open it again"))
        if now.st_size < offset + size or len(data) < size:
            raise _cut_error(self.location, now.st_size, self.size)
        return data

    def _fetch(self, remote: Remote, offset: int, size: int) -> bytes:
        try:
            data = remote.read_range(remote.path, offset, offset + size) if size else b""
        except FileNotFoundError as error:
            raise mark_fatal(error)  # noqa: B904 - it returns the same error
        if len(data) != size:
            raise _cut_error(self.location, offset + len(data), self.size)
        return data

    def check(self) -> None:
        """Raise a StoreError if a local file has been cut since it was opened."""
        self.read(self.size, 0)

    def will_need(self, offset: int, size: int) -> None:
        """Ask the system to load a range that will be used as a whole.

        Otherwise the thread that uses it waits for one piece after another; after random access,
        the system even loads it page by page. If the file is in the system's cache, the call takes
        a microsecond.
        """
        mapping = self._map
        if mapping is not None and size > mmap.PAGESIZE and _WILL_NEED is not None:
            start = offset - offset % mmap.PAGESIZE
            mapping.madvise(_WILL_NEED, start, offset + size - start)

    def close(self) -> None:
        """Release the file. Views that have been returned stay valid."""
        # The mapping is released, not closed: `mmap.close` fails while there are views.
        self._closed = True
        self._map = None


class RangeFile(io.RawIOBase):
    """Ranges as a file for libraries: they are read in blocks, the last of which are kept."""

    def __init__(self, ranges: Ranges, block: int = 1 << 20, kept: int = 32) -> None:
        self._size, self._block, self._position = ranges.size, block, 0
        self._read = lru_cache(kept)(
            lambda start: bytes(ranges.read(start, min(block, self._size - start)))
        )

    def readinto(self, buffer: Any) -> int:
        view, begin = memoryview(buffer).cast("B"), self._position
        while (done := self._position - begin) < len(view) and self._position < self._size:
            start = self._position % self._block
            data = self._read(self._position - start)[start : start + len(view) - done]
            view[done : done + len(data)] = data
            self._position += len(data)
        return done

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True


def _cut_error(location: str, now: int, size: int) -> StoreError:
    error = StoreError(
        f"{location}: the file has been cut to {now} bytes since it was opened, when it had {size}"
    )
    return mark_fatal(error)  # the cut affects all later items, not only this one


def is_uri(location: str) -> bool:
    """Return whether a location is a URI that is not a local file."""
    return "://" in location and not location.startswith(_LOCAL)


def read_file(location: str, storage_options: Mapping[str, Any] | None = None) -> bytes:
    """Read all of a local or remote file."""
    if not is_uri(location):
        return read_regular(local_path(location))
    from fastdecode.stores._remote import Remote

    there = Remote(location, storage_options)
    return there.read(there.path)


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
