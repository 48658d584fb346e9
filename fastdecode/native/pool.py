"""The core's threads: they read and decode whole batches while Python does something else."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, NamedTuple

from fastdecode.native import library

__all__ = ["Pool"]


class _Threads(NamedTuple):
    """Those of one process; they end with the last reference to them.

    Reading has threads of its own: while those of one batch decode, the next one is read, and
    nobody waits for the other.
    """

    process: int
    reading: Any
    decoding: Any


class Pool:
    """Threads that are started when they are first needed, and again in a forked child.

    Any number of Python threads may use it at once.

    Parameters
    ----------
    threads : int
        How many decode; as many read.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._threads: _Threads | None = None

    def read(self, items: Any, count: int) -> None:
        """Read the files and the headers of items; the GIL is released meanwhile.

        Parameters
        ----------
        items : cffi's ``fd_item *``
        count : int
            How many.

        Raises
        ------
        MemoryError
            If there are no threads to be had.
        """
        threads = self._running()
        library.lib.fd_pool_open(threads.reading, items, count)

    def decode(self, items: Any, count: int) -> None:
        """Decode the items that are wanted, likewise.

        Parameters
        ----------
        items : cffi's ``fd_item *``
        count : int
            How many.
        """
        threads = self._running()  # which lives, though somebody may close the pool meanwhile
        library.lib.fd_pool_decode(threads.decoding, items, count, library.ffi.NULL)

    def resize(
        self, items: Any, count: int, which: Any, plans: Any, pixels: Any, out: int, stride: int
    ) -> None:
        """Decode and resize some of the items, likewise; see ``fd_pool_resize``.

        Parameters
        ----------
        items : cffi's ``fd_item *``
        count : int
            How many.
        which : ndarray of int32, (M,)
        plans : ndarray of float64, (M, 16)
        pixels : cffi's ``fd_pixels *``
        out : int
            An address.
        stride : int
            Bytes.
        """
        threads, ffi = self._running(), library.ffi
        library.lib.fd_pool_resize(
            threads.decoding,
            items,
            count,
            ffi.from_buffer("int32_t[]", which),
            ffi.from_buffer("double[]", plans),
            len(which),
            pixels,
            ffi.cast("void *", out),
            stride,
        )

    def crop(
        self, items: Any, count: int, seeds: Any, crop: Any, pixels: Any, out: int, stride: int
    ) -> Any:
        """Read all items, and make those that the core can plan, likewise; see ``fd_pool_crop``.

        Parameters
        ----------
        items : cffi's ``fd_item *``
        count : int
            How many.
        seeds : array of uint64, (count,)
        crop : cffi's ``fd_crop *``
        pixels, out, stride
            As for `resize`.

        Returns
        -------
        cffi's ``fd_cropped``
        """
        threads, ffi = self._running(), library.ffi
        return library.lib.fd_pool_crop(
            threads.reading,
            threads.decoding,
            items,
            count,
            ffi.from_buffer("uint64_t[]", seeds),
            crop,
            pixels,
            ffi.cast("void *", out),
            stride,
        )

    def close(self) -> None:
        """End the threads, as soon as they have done what they are at. A later call starts anew."""
        self._threads = None

    def _running(self) -> _Threads:
        threads, process = self._threads, os.getpid()
        if threads is None or threads.process != process:
            threads = _Threads(process, _started(self.threads), _started(self.threads))
            self._threads = threads
        return threads


def _started(count: int) -> Any:
    made = library.lib.fd_pool_create(count)
    if made == library.ffi.NULL:
        raise MemoryError(f"there are no {count} threads to be had")
    return library.ffi.gc(made, partial(_end, os.getpid(), os.getpid, library.lib))


def _end(process: int, current: Any, lib: Any, made: Any) -> None:
    """End threads where they are: in a forked child there is nothing to wait for."""
    if current() == process:
        lib.fd_pool_destroy(made)
