"""The images of a batch as an array for the core, and the core's threads.

The core takes an array of ``fd_item``, which Python fills column by column, in a few microseconds
per image. To set the thirty numbers of an item one by one would cost a tenth of that for each. The
path of `Loader` uses Python lists and C rather than NumPy: many operations of NumPy release the
GIL, and may then have to wait to get it back.
"""

from __future__ import annotations

import os
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from fastdecode._arguments import as_buffer, without_row
from fastdecode.errors import ThreadsUnavailable
from fastdecode.native._library import CoreResize, ffi, lib

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdecode.types import Buffer

_Columns: TypeAlias = "Sequence[list[int] | int]"

_MAX_KEPT = 64 << 20
_PARTS, _MIN_PART = 128, 16

# Each column by its first member. The numbers of a column with several lie next to each other.
_COLUMNS: dict[str, tuple[str, Any]] = {
    "path": ("path", np.uintp),
    "data": ("data", np.uintp),
    "size": ("size", np.uintp),
    "file": ("file", np.int32),
    "offset": ("offset", np.int64),
    "header": ("header.width", (np.int32, 8)),
    "wanted": ("wanted", np.int32),
    "resized": ("resized", np.int32),
    "part": ("request.left", (np.int32, 7)),
    "limits": ("request.limits.pixels", (np.int64, 2)),
    "scans": ("request.limits.scans", np.int32),
    "box": ("resize.left", (np.float64, 4)),
    "window": ("resize.in_left", (np.int32, 12)),
    "out": ("out", np.uintp),
    "stride": ("stride", np.intp),
    "status": ("status", np.int32),
    "capacity": ("capacity", np.uintp),
}


class Headers(NamedTuple):
    """``fd_header`` of some items, one column per member; meaningless unless `readable`."""

    readable: NDArray[np.bool_]
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    components: NDArray[np.int32]
    bits: NDArray[np.int32]
    sof: NDArray[np.int32]
    restart_interval: NDArray[np.int32]
    may_turn: NDArray[np.int32]
    ended: NDArray[np.int32]


class Recorded(NamedTuple):
    """What is done to an image of this size: the bytes of an ``fd_operation[]``.

    A result may have an address of its own, `out`, and then has this `size` (height, width).
    """

    width: int
    height: int
    operations: bytes
    out: int = 0
    size: tuple[int, int] = (0, 0)


def _drawn(draws: Sequence[Any]) -> tuple[Any, Any, Any]:
    """Return the seeds of the core, or what is recorded for it, and what to keep alive."""
    if not draws or not isinstance(draws[0], Recorded):
        return ffi.from_buffer("uint64_t[]", array("Q", draws)), ffi.NULL, None
    size, kept = ffi.sizeof("fd_operation"), []
    recorded = ffi.new("fd_recorded[]", len(draws))
    for at, (width, height, operations, out, made) in enumerate(draws):
        held = ffi.from_buffer("fd_operation[]", operations)
        kept.append(held)
        one = recorded[at]
        one.width, one.height, one.count = width, height, len(operations) // size
        one.operations, one.out = held, ffi.cast("void *", out)
        one.out_height, one.out_width = made
    return ffi.NULL, recorded, kept


class Items:
    """The images of one batch at a time, in memory that is reused, for one thread at a time.

    Call `read`, then `resize` or `decode`, or only `make`; then `clear`. These calls release the
    GIL.
    """

    def __init__(self) -> None:
        self._items: Any = None
        self._owner: Any = None
        self._rows: NDArray[Any] = np.empty(0, np.uint8)
        self._count = 0
        self._held: int | None = None  # bytes in the buffers of the items, if known
        self._sources: tuple[Any, ...] = ()

    def read(self, pool: Pool, sources: Sequence[str | bytes | Buffer | None]) -> Headers:
        """Read files and headers. A source is a path, a file's bytes, or None if not readable."""
        self._take(sources)
        threads = pool.running()
        lib.fd_pool_open(threads.reading, self._items, self._count)
        return self.headers()

    def headers(self) -> Headers:
        """Return the headers of the items that were read."""
        rows = self._rows[: self._count]
        return Headers(rows["status"] == 0, *rows["header"].T)

    def data(self, at: int) -> memoryview:
        """Return the bytes of a readable item, until the next call of `read` or `clear`."""
        item = self._items[at]
        return memoryview(ffi.buffer(item.data, item.size))

    def make(
        self,
        pool: Pool,
        sources: Sequence[str | bytes | Buffer | None],
        draws: Sequence[int] | Sequence[Recorded],
        recipe: Any,
        pixels: Any,
        out: int,
        stride: int,
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Read files and headers, and make the samples that the core can plan itself.

        The random draws of an item follow from its seed, an unsigned number of 64 bits, or are
        recorded. `recipe` is an ``fd_recipe *``; `pixels`, `out` and `stride` are as for `resize`;
        `out` may be 0 if all recorded ones have addresses of their own.
        Return two lists of items: those that were made, and those that were read and that the core
        leaves to others. All others failed.
        """
        self._take(sources)
        count, (_, reading, decoding) = self._count, pool.running()
        seeds, recorded, _kept = _drawn(draws)
        place = ffi.cast("void *", out)
        done = lib.fd_pool_make(
            reading, decoding, self._items, count, seeds, recorded, recipe, pixels, place, stride
        )
        if count == len(self._rows):  # else other items may still hold buffers of a larger batch
            self._held = done.held
        if done.made == count:
            return range(count), ()
        rows = self._rows[:count]
        good = (rows["status"] == 0).tolist()
        wanted = rows["wanted"].tolist()
        made: list[int] = []
        left: list[int] = []
        for at, (whole, planned) in enumerate(zip(good, wanted, strict=True)):
            if whole:
                (made if planned else left).append(at)
        return made, left

    def resize(
        self,
        pool: Pool,
        wanted: Sequence[int],
        resizes: Sequence[CoreResize],
        pixels: Any,
        out: int,
        stride: int,
    ) -> list[bool]:
        """Decode, resize and finish the wanted items, of which there is at least one.

        `out` is the address of the result of item 0, even if that is not wanted. The results of the
        items are `stride` bytes apart. Return for each of `wanted` whether it was made without a
        warning of the codec.
        """
        rows, some = self._rows[: self._count], list(wanted)
        rows["resized"] = 1
        rows["part"][some] = [(0, 0, 0, 0, resize.reduce, lib.FD_RGB, 0) for resize in resizes]
        rows["box"][some] = [resize[1:5] for resize in resizes]
        rows["window"][some] = [resize[5:] for resize in resizes]
        rows["out"][some] = [out + at * stride for at in some]
        return self._decode(pool, some, pixels)

    def decode(
        self,
        pool: Pool,
        wanted: Sequence[int],
        parts: Sequence[Sequence[int]],
        outs: Sequence[NDArray[np.uint8]],
    ) -> list[bool]:
        """Decode each of the wanted items, at least one, into its own C-contiguous array.

        A part is (left, top, right, bottom, reduce, layout) of ``fd_request``. Return the same as
        `resize`.
        """
        rows, some = self._rows[: self._count], list(wanted)
        rows["resized"] = 0
        rows["part"][some, :6] = parts
        rows["part"][some, 6] = 1
        rows["out"][some] = [out.ctypes.data for out in outs]
        rows["stride"][some] = [out.strides[0] for out in outs]
        return self._decode(pool, some, ffi.NULL)

    def _decode(self, pool: Pool, wanted: list[int], pixels: Any) -> list[bool]:
        rows = self._rows[: self._count]
        rows["wanted"] = 0
        rows["wanted"][wanted] = 1
        lib.fd_pool_decode(pool.running().decoding, self._items, self._count, pixels)
        made: list[bool] = (rows["status"][wanted] == 0).tolist()
        return made

    def clear(self) -> None:
        """Release the sources, and the buffers of the items if they are large."""
        self._sources = ()
        if self._items is None:
            return
        held = int(self._rows["capacity"].sum()) if self._held is None else self._held
        if held > _MAX_KEPT:
            lib.fd_items_free(self._items, len(self._rows))

    def _take(self, sources: Sequence[Any]) -> None:
        """Fill the items with the sources; first make more items if there are too few."""
        self._count, self._held = len(sources), None
        room = max(self._count, 1)
        if len(self._rows) < room:
            made = self._items = ffi.new("fd_item[]", room)
            # At exit, this may run when the globals of this module are None already.
            self._owner = ffi.gc(made, lambda items, free=lib.fd_items_free: free(items, room))
            self._rows = np.frombuffer(ffi.buffer(made), _layout())
            self._rows["scans"] = lib.FD_SCANS
        rows = self._rows[: self._count]
        columns, self._sources = _addresses(sources)
        rows["path"], rows["data"], rows["size"], rows["file"], rows["offset"] = columns


@cache
def _layout() -> np.dtype[Any]:
    """Return the NumPy type of ``fd_item``, with the offsets that the compiler chose."""
    return np.dtype(
        {
            "names": list(_COLUMNS),
            "formats": [kind for _, kind in _COLUMNS.values()],
            "offsets": [ffi.offsetof("fd_item", *name.split(".")) for name, _ in _COLUMNS.values()],
            "itemsize": ffi.sizeof("fd_item"),
        }
    )


class _Threads(NamedTuple):
    """The threads of one process. With two groups, one batch is read while another is decoded."""

    process: int
    reading: Any
    decoding: Any


class Pool:
    """Threads of the core, started on first use, and again in a forked child.

    Any number of Python threads may use a pool at once. `threads` is the number of threads that
    decode, and also of those that read; `part` is how many images to make in one call.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.part = max(_MIN_PART, _PARTS // threads)
        self._threads: _Threads | None = None
        self._spare: deque[Items] = deque()

    @contextmanager
    def items(self) -> Iterator[Items]:
        """Lend the items for one batch, and clear them afterwards.

        They stay with the pool, whose epochs are many: to allocate their buffers again for each
        costs more than to copy files into them.
        """
        try:
            items = self._spare.pop()
        except IndexError:
            items = Items()
        try:
            yield items
        finally:
            items.clear()
            self._spare.append(items)

    def running(self) -> _Threads:
        """Return this process's threads; raise `ThreadsUnavailable` if they cannot start."""
        threads, process = self._threads, os.getpid()
        if threads is None or threads.process != process:
            threads = _Threads(process, _started(self.threads), _started(self.threads))
            self._threads = threads
        return threads

    def close(self) -> None:
        """End the threads after their current work. A later call starts new ones."""
        self._threads = None
        self._spare.clear()


def _started(count: int) -> Any:
    made = lib.fd_pool_create(count)
    if made == ffi.NULL:
        raise ThreadsUnavailable(count)
    return ffi.gc(made, partial(_end, os.getpid(), os.getpid, lib))


def _end(process: int, current: Any, lib: Any, made: Any) -> None:
    """End the threads, except in a forked child, which has none of them to wait for."""
    if current() == process:
        lib.fd_pool_destroy(made)


def as_source(source: Any) -> Any:
    """Return bytes, or a path as a string; None for anything else, or a released buffer."""
    if type(source) is bytes or type(source) is str:
        return source
    try:
        if isinstance(source, (str, os.PathLike)):
            return os.fsdecode(source)
        inside = without_row(source)
        return as_buffer(source) if inside is source else as_source(inside)
    except (TypeError, ValueError):
        return None


def _addresses(sources: Sequence[Any]) -> tuple[_Columns, tuple[Any, ...]]:
    """Return the columns path, data, size, file and offset, 0 for none; and what to keep alive.

    A view of a mapping that has a descriptor, such as one of a local store, is read from the file.
    """
    named = [source for source in sources if isinstance(source, str)]
    paths, view = _paths(named)
    if len(named) == len(sources):
        return (paths, 0, 0, 0, 0), (view,)
    rest = iter(paths)
    views: list[Any] = [view]
    columns = []
    for source in sources:
        if isinstance(source, str):
            columns.append((next(rest), 0, 0, 0, 0))
        elif source is None:
            columns.append((0, 0, 0, 0, 0))
        else:
            view = ffi.from_buffer(source)
            views.append(view)
            place = _address(view)
            mapping: Any = getattr(source, "obj", None)
            file = getattr(mapping, "descriptor", 0)
            offset = place - mapping.address if file else 0
            columns.append((0, place, len(view), file, offset))
    return [list(column) for column in zip(*columns, strict=True)], (*views, sources)


def _paths(paths: Sequence[str]) -> tuple[list[int], Any]:
    """Return the addresses of zero-terminated names, and the buffer that contains them."""
    text = "\0".join(paths)
    if text.isascii() and text.count("\0") == len(paths) - 1:
        names, lengths = text.encode(), map(len, paths)
    else:
        encoded = [_file_name(path) for path in paths]
        names, lengths = b"\0".join(encoded), map(len, encoded)
    view = ffi.from_buffer(names)  # a bytes object ends with a zero itself
    return list(accumulate(lengths, _next_address, initial=_address(view)))[:-1], view


def _next_address(address: int, length: int) -> int:
    return address + length + 1


def _address(view: Any) -> int:
    return int(ffi.cast("uintptr_t", view))


def _file_name(path: str) -> bytes:
    """Encode a path. One that no file can have becomes empty, which no file can have either."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        return b""
    return b"" if b"\0" in name else name
