"""The images of a batch as the core sees them, and the core's threads, which make them.

The core takes an array of ``fd_item``, filled column by column: an image costs Python a few
microseconds so. Taken one by one, each of an item's thirty numbers would cost a tenth of that. What
`Loader` needs is put together from Python's lists and in C: NumPy releases the GIL in many of its
operations, and may then have to wait for it.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Sequence
from functools import cache, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from fastdecode._buffers import as_buffer
from fastdecode._headers import jpeg_stream
from fastdecode.native._library import Resize, ffi, lib

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdecode.types import Buffer

_Columns: TypeAlias = "tuple[list[int], list[int] | int, list[int] | int]"

_MOST_KEPT = 64 << 20

# Columns by the first member of each; those of several numbers lie one after another.
_COLUMNS: dict[str, tuple[str, Any]] = {
    "path": ("path", np.uintp),
    "data": ("data", np.uintp),
    "size": ("size", np.uintp),
    "header": ("header.width", (np.int32, 8)),
    "wanted": ("wanted", np.int32),
    "resized": ("resized", np.int32),
    "part": ("request.left", (np.int32, 7)),
    "limits": ("request.limits.pixels", (np.int64, 2)),
    "scans": ("request.limits.scans", np.int32),
    "out": ("out", np.uintp),
    "stride": ("stride", np.intp),
    "status": ("status", np.int32),
    "capacity": ("capacity", np.uintp),
}


class Headers(NamedTuple):
    """``fd_header`` of some items, a column each: nothing where an item is not `readable`."""

    readable: NDArray[np.bool_]
    width: NDArray[np.int32]
    height: NDArray[np.int32]
    components: NDArray[np.int32]
    bits: NDArray[np.int32]
    sof: NDArray[np.int32]
    restart_interval: NDArray[np.int32]
    has_exif: NDArray[np.int32]
    ended: NDArray[np.int32]


class Items:
    """Images of one batch after another, in memory that is used again, for one thread at a time.

    The order is `read`, then `resize` or `decode`, then `clear`; `crop` is `read` and most of
    `resize` in one call. The GIL is released meanwhile.
    """

    def __init__(self) -> None:
        self._items: Any = None
        self._owner: Any = None
        self._rows: NDArray[Any] = np.empty(0, np.uint8)
        self._count = 0
        self._held: int | None = None  # bytes in the items' buffers, where they are known
        self._sources: tuple[Any, ...] = ()

    def read(self, pool: Pool, sources: Sequence[str | bytes | Buffer | None]) -> Headers:
        """Read files and headers; a source is a path, a file's bytes, or None: not readable."""
        self._take(sources)
        threads = pool.running()
        lib.fd_pool_open(threads.reading, self._items, self._count)
        return self.headers()

    def headers(self) -> Headers:
        """Return the headers of what was read."""
        rows = self._rows[: self._count]
        return Headers(rows["status"] == 0, *rows["header"].T)

    def data(self, at: int) -> memoryview:
        """Return the bytes of a readable item, until the next call of `read` or `clear`."""
        item = self._items[at]
        return memoryview(ffi.buffer(item.data, item.size))

    def crop(
        self,
        pool: Pool,
        sources: Sequence[str | bytes | Buffer | None],
        seeds: Sequence[int],
        crop: Any,
        pixels: Any,
        out: int,
        stride: int,
    ) -> tuple[Sequence[int], Sequence[int]]:
        """Read files and headers, and make what the core knows how to make.

        What is drawn for an item follows from its seed, of 64 bits and not negative. `crop` is an
        ``fd_crop *``; `pixels`, `out` and `stride` are as for `resize`. Two lists of items are
        returned: those that were made, and those that can be read, and are for `resize` to make.
        All others have failed.
        """
        self._take(sources)
        count, (_, reading, decoding) = self._count, pool.running()
        drawn, place = ffi.from_buffer("uint64_t[]", array("Q", seeds)), ffi.cast("void *", out)
        done = lib.fd_pool_crop(
            reading, decoding, self._items, count, drawn, crop, pixels, place, stride
        )
        if count == len(self._rows):  # else there may be more, of a larger batch before
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

    def resize_of(self, at: int) -> Resize:
        """Return what an item was resized by, until `clear`."""
        item = self._items[at]
        resize = item.resize
        return Resize(item.request.reduce, *(getattr(resize, name) for name in Resize._fields[1:]))

    def resize(
        self,
        pool: Pool,
        wanted: Sequence[int],
        resizes: Sequence[Resize],
        pixels: Any,
        out: int,
        stride: int,
    ) -> list[bool]:
        """Decode, resize and finish the wanted items, at least one, by a resize each.

        `out` is the address of the first item's result, be it wanted or not; from one item's
        result to the next one's there are `stride` bytes. For each of `wanted` the answer is
        whether it was made, without any complaint of the codec.
        """
        which = ffi.from_buffer("int32_t[]", np.array(wanted, np.int32))
        plans = ffi.from_buffer("double[]", np.array(resizes, np.float64))
        threads, count, place = pool.running(), self._count, ffi.cast("void *", out)
        lib.fd_pool_resize(
            threads.decoding, self._items, count, which, plans, len(wanted), pixels, place, stride
        )
        status = self._rows["status"][:count].tolist()
        return [status[at] == 0 for at in wanted]

    def decode(
        self,
        pool: Pool,
        wanted: Sequence[int],
        parts: Sequence[Sequence[int]],
        outs: Sequence[NDArray[np.uint8]],
    ) -> list[bool]:
        """Decode the wanted items, at least one, into a C-contiguous array each.

        A part is (left, top, right, bottom, reduce, layout) of ``fd_request``. The answer is that
        of `resize`.
        """
        rows = self._rows[: self._count]
        some = list(wanted)
        rows["wanted"] = 0
        rows["wanted"][some] = 1
        rows["resized"] = 0
        rows["part"][some, :6] = parts
        rows["part"][some, 6] = 1
        rows["out"][some] = [out.ctypes.data for out in outs]
        rows["stride"][some] = [out.strides[0] for out in outs]
        threads = pool.running()
        lib.fd_pool_decode(threads.decoding, self._items, self._count, ffi.NULL)
        made: list[bool] = (rows["status"][some] == 0).tolist()
        return made

    def clear(self) -> None:
        """Release the sources, and of what large files have been read into."""
        self._sources = ()
        if self._items is None:
            return
        held = int(self._rows["capacity"].sum()) if self._held is None else self._held
        if held > _MOST_KEPT:
            lib.fd_items_free(self._items, len(self._rows))

    def _take(self, sources: Sequence[Any]) -> None:
        """Say where the files are, in at least so many items."""
        self._count, self._held = len(sources), None
        room = max(self._count, 1)
        if len(self._rows) < room:
            made = self._items = ffi.new("fd_item[]", room)
            self._owner = ffi.gc(made, lambda items: lib.fd_items_free(items, room))
            self._rows = np.frombuffer(ffi.buffer(made), _layout())
            self._rows["scans"] = jpeg_stream.MAX_SCANS
        rows = self._rows[: self._count]
        columns, self._sources = _addresses(sources)
        rows["path"], rows["data"], rows["size"] = columns


@cache
def _layout() -> np.dtype[Any]:
    """Describe ``fd_item`` to NumPy, as the compiler has laid it out."""
    return np.dtype(
        {
            "names": list(_COLUMNS),
            "formats": [kind for _, kind in _COLUMNS.values()],
            "offsets": [ffi.offsetof("fd_item", *name.split(".")) for name, _ in _COLUMNS.values()],
            "itemsize": ffi.sizeof("fd_item"),
        }
    )


class _Threads(NamedTuple):
    """Those of one process, until the last reference; one batch is read while another decodes."""

    process: int
    reading: Any
    decoding: Any


class Pool:
    """Threads that are started when they are first needed, and again in a forked child.

    Any number of Python threads may use it at once. So many `threads` decode, and as many read.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._threads: _Threads | None = None

    def running(self) -> _Threads:
        """Return this process's threads; a `MemoryError` says that there are none to be had."""
        threads, process = self._threads, os.getpid()
        if threads is None or threads.process != process:
            threads = _Threads(process, _started(self.threads), _started(self.threads))
            self._threads = threads
        return threads

    def close(self) -> None:
        """End the threads, as soon as they have done what they are at. A later call starts anew."""
        self._threads = None


def _started(count: int) -> Any:
    made = lib.fd_pool_create(count)
    if made == ffi.NULL:
        raise MemoryError(f"there are no {count} threads to be had")
    return ffi.gc(made, partial(_end, os.getpid(), os.getpid, lib))


def _end(process: int, current: Any, lib: Any, made: Any) -> None:
    """End threads where they are: in a forked child there is nothing to wait for."""
    if current() == process:
        lib.fd_pool_destroy(made)


def as_source(source: Any) -> Any:
    """Return the bytes, or the path as a string."""
    if type(source) is bytes or type(source) is str:
        return source
    if isinstance(source, (str, os.PathLike)):
        return os.fsdecode(source)
    return as_buffer(source)


def _addresses(sources: Sequence[Any]) -> tuple[_Columns, tuple[Any, ...]]:
    """Say where files are: paths, data and sizes, 0 for none; and what has to live as long."""
    named = [source for source in sources if isinstance(source, str)]
    paths, view = _paths(named)
    if len(named) == len(sources):
        return (paths, 0, 0), (view,)
    rest = iter(paths)
    views: list[Any] = [view]
    columns = []
    for source in sources:
        if isinstance(source, str):
            columns.append((next(rest), 0, 0))
        elif source is None:
            columns.append((0, 0, 0))
        else:
            views.append(ffi.from_buffer(source))
            columns.append((0, _address(views[-1]), len(views[-1])))
    paths, places, sizes = map(list, zip(*columns, strict=True))
    return (paths, places, sizes), (*views, sources)


def _paths(paths: Sequence[str]) -> tuple[list[int], Any]:
    """Return the addresses of names, and what they lie in: one after another, a zero after each."""
    text = "\0".join(paths)
    if text.isascii() and text.count("\0") == len(paths) - 1:
        names, lengths = text.encode(), map(len, paths)
    else:
        encoded = [_file_name(path) for path in paths]
        names, lengths = b"\0".join(encoded), map(len, encoded)
    view = ffi.from_buffer(names)  # bytes end with a zero of their own
    return list(accumulate(lengths, _next_address, initial=_address(view)))[:-1], view


def _next_address(address: int, length: int) -> int:
    return address + length + 1


def _address(view: Any) -> int:
    return int(ffi.cast("uintptr_t", view))


def _file_name(path: str) -> bytes:
    """Encode a path; what can be no file's name becomes empty, which is no file's name either."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:
        return b""
    return b"" if b"\0" in name else name
