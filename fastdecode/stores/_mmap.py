"""Ranges of a file: mapped into memory where it is a local one, else by request."""

from __future__ import annotations

import io
import mmap
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from fastdecode._files import WAY_OUT, NotRegular, open_regular
from fastdecode.errors import StoreError
from fastdecode.outages import of_the_whole
from fastdecode.types import Buffer

if TYPE_CHECKING:
    from fastdecode.stores._remote import Remote

_LOCAL = ("file://", "local://")  # as fsspec has them
_BUFFER = 1 << 20
"""Of a stream: the next header of a tar, and small files, come along."""

_WILL_NEED = getattr(mmap, "MADV_WILLNEED", None)


class Mapped:
    """Read-only ranges of a file. Any number of threads may read at once.

    Touching a mapping where its file has been cut kills the process (SIGBUS, see mmap(2)), so each
    read first asks how long the file is now: about half a microsecond. Whoever cuts a file while
    somebody decodes from it is not helped by that; replace files by renaming.
    """

    def __init__(self, location: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.location = location
        self._map: mmap.mmap | None = None
        self._remote: Remote | None = None
        self._closed = False
        if is_uri(location):
            from fastdecode.stores._remote import Remote, without_query

            self._remote = Remote(location, storage_options)
            size = self._remote.size(self._remote.path)
            if size is None:
                # Do not read what cannot be checked for being whole.
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
            self.size = os.fstat(file.fileno()).st_size
            if self.size:  # nothing can be mapped of an empty file
                self._map = mmap.mmap(file.fileno(), self.size, access=mmap.ACCESS_READ)

    @property
    def is_local(self) -> bool:
        """Whether ranges are views of a mapping, rather than requests."""
        return self._remote is None

    def read(self, offset: int, size: int) -> Buffer:
        """Return a range: of a local file a read-only view, which outlives `close`."""
        if offset < 0 or size < 0 or offset + size > self.size:
            places = f"bytes {offset} to {offset + size}"
            raise StoreError(f"{self.location}: {places} are past its end at {self.size}")
        mapping = self._map  # another thread may close meanwhile
        if self._closed:
            raise ValueError(f"{self.location}: the file has been closed")
        if self._remote is not None:
            return self._fetched(self._remote, offset, size)
        if mapping is None:
            return b""
        now = mapping.size()
        if now < offset + size:
            raise self._cut(now)
        return memoryview(mapping)[offset : offset + size]

    def _fetched(self, remote: Remote, offset: int, size: int) -> bytes:
        try:
            data = remote.read(remote.path, offset, offset + size) if size else b""
        except FileNotFoundError as error:
            raise of_the_whole(error)  # noqa: B904 - it is the same one
        if len(data) != size:
            raise self._cut(offset + len(data))
        return data

    def check(self) -> None:
        """Raise a StoreError if a local file has been cut since it was opened."""
        self.read(self.size, 0)

    def will_need(self, offset: int, size: int) -> None:
        """Ask the system to fetch a range that has been read, and is to be used as a whole.

        Whoever uses it would else wait for it piece by piece, or, where the system has seen leaps,
        page by page. For a file that is in the system's cache the call costs a microsecond.
        """
        mapping = self._map
        if mapping is not None and size > mmap.PAGESIZE and _WILL_NEED is not None:
            start = offset - offset % mmap.PAGESIZE
            mapping.madvise(_WILL_NEED, start, offset + size - start)

    def close(self) -> None:
        """Release the file; views that were handed out keep what they need."""
        # The mapping is released, not closed: `mmap.close` fails while there are views.
        self._closed = True
        self._map = None

    def _cut(self, now: int) -> StoreError:
        error = StoreError(
            f"{self.location}: the file has been cut to {now} bytes since it was opened, when it "
            f"had {self.size}"
        )
        return of_the_whole(error)  # all items behind the cut are lost, not this one alone


def is_uri(location: str) -> bool:
    """Whether a location is a URI that is not a local file."""
    return "://" in location and not location.startswith(_LOCAL)


def open_stream(
    location: str,
    storage_options: Mapping[str, Any] | None = None,
    *,
    way_out: str = WAY_OUT,
    **caching: Any,
) -> BinaryIO:
    """Open a file for reading, by default once and forwards; one behind a URI may not seek."""
    if not is_uri(location):
        return io.BufferedReader(open_regular(local_path(location), way_out=way_out), _BUFFER)
    from fastdecode.stores._remote import Remote

    there = Remote(location, storage_options)
    return there.open(there.path, **{"cache_type": "readahead", **caching})


def exists(location: str, storage_options: Mapping[str, Any] | None = None) -> bool:
    """Whether something is there, behind a URI or not."""
    if not is_uri(location):
        return Path(local_path(location)).exists()
    from fastdecode.stores._remote import Remote

    there = Remote(location, storage_options)
    return there.exists(there.path)


def local_path(location: str) -> str:
    """Return the path of a local file, which may be written as a URI."""
    return location.partition("://")[2] if location.startswith(_LOCAL) else location
