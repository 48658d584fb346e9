"""Decode many images to arrays in threads: `decode_batch` and `decode_iter`.

Files for which the native backend is chosen go to the native core in chunks, and are decoded in its
own threads.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from fastdecode import _headers, _selection
from fastdecode._arguments import check_out, checked_region
from fastdecode._error_policy import is_item_error
from fastdecode._pixels import apply_orientation, deliver, seen_size, stored_box
from fastdecode._process import after_fork
from fastdecode._resizing import (
    THUMBNAIL_GAP,
    ResizePlan,
    core_can_decode,
    core_may_decode,
    resize,
    shrink,
    thumbnail_size,
)
from fastdecode._selection import Want
from fastdecode.api import decode, decode_file, name_file, read_item
from fastdecode.errors import FastDecodeError, ThreadsUnavailable
from fastdecode.geometry import Geometry
from fastdecode.native import _library
from fastdecode.native._batch import Headers, Items, Pool, as_source
from fastdecode.plan import plan_options, reduce_for_resize
from fastdecode.types import Header

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdecode.types import Box, Buffer, Image, Reduce

_T = TypeVar("_T")
_S = TypeVar("_S")
_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()
_AHEAD = 4
"""By default, so many results per thread may wait for a slow one before them."""


def decode_arrays(
    work: list[Any],
    options: dict[str, Any],
    threads: int,
    *,
    on_error: Literal["raise", "return", "return all"] = "raise",
    targets: Sequence[Any] | NDArray[Any] | None = None,
    size: tuple[int, int] | None = None,
    exact: bool = False,
) -> list[Any]:
    """Decode many images, in order; return arrays, and errors if `on_error` says so.

    `options` are checked arguments of `decode`, and `targets` holds each image's `out`. With `size`
    each image is resized, and `targets` is a single array. ``"return all"`` also returns errors
    that are not about an item. A returned error does not name its item.

    What is resized is what `decode` returns. If `exact`, it is exactly the part that was asked for,
    whose edges may lie between reduced pixels, and only JPEGs are reduced before; then the core
    decodes for one thread too.
    """
    outs: Any = [None] * len(work) if targets is None else targets
    make = _ItemDecoder(options, size, on_error, exact)

    def one(index: int) -> Any:
        return make(index, work[index], outs[index])

    if len(work) <= 1 or (threads == 1 and not exact):
        return [one(index) for index in range(len(work))]
    results = _decode_in_core(work, outs, options, threads, size, exact=exact)
    left = [index for index, result in enumerate(results) if result is None]
    for index, result in zip(left, map_in_threads(threads, one, left), strict=True):
        results[index] = result
    return results


def decode_each(
    items: Iterable[Any],
    options: dict[str, Any],
    threads: int,
    *,
    ahead: int,
    on_error: Literal["raise", "return"],
    size: tuple[int, int] | None,
) -> Generator[Any, None, None]:
    """Yield the results of `decode_arrays`, taking items as results are wanted."""
    make = _ItemDecoder(options, size, on_error)
    return map_in_order(lambda numbered: make(*numbered), enumerate(items), threads, ahead)


class _ItemDecoder(NamedTuple):
    """Decodes and resizes one item, in any thread."""

    options: dict[str, Any]
    size: tuple[int, int] | None
    on_error: Literal["raise", "return", "return all"]
    exact: bool = False

    def __call__(self, place: int, item: Any, out: Any = None) -> Any:
        """Return an item's image, or its error."""
        try:
            if "max_side" in self.options:
                return _decode_shrunk(item, **self.options, out=out)
            if self.size is None:
                return _decode_item(item, {**self.options, "out": out})
            if self.exact:
                image = _resize_exactly(item, self.options, self.size)
            else:
                image = resize(_decode_item(item, self.options), self.size)
        except (FastDecodeError, OSError, TypeError, ValueError) as error:
            if self.on_error == "return all" or (
                self.on_error == "return" and is_item_error(error)
            ):
                return _drop_tracebacks(error)
            name_item(error, place)
            raise
        if out is None:
            return image
        out[...] = image
        return out


def map_in_order(
    make: Callable[[_S], _T], things: Iterable[_S], threads: int, ahead: int | None = None
) -> Generator[_T, None, None]:
    """Yield `make` of each thing in order, computed in threads; take things as results are wanted.

    Up to `ahead` results (by default four per thread) are pending or wait to be yielded. An error,
    also one of `things` itself, is raised in its turn. Closing the generator waits until no call
    runs. With one thread, the calling thread makes each result when it is wanted.
    """
    if threads == 1:
        yield from map(make, things)
        return
    source, most = iter(things), ahead or _AHEAD * threads
    waiting: deque[tuple[_S, Future[_T]]] = deque()
    failed: Exception | None = None
    process, more = os.getpid(), True
    try:
        while True:
            if os.getpid() != process:  # the threads of the pool do not exist after a fork
                process = os.getpid()
                waiting = deque((one, _submit(threads, make, one)) for one, _ in waiting)
            while more and len(waiting) < most:
                try:
                    thing = next(source)
                except StopIteration:
                    more = False
                except Exception as error:
                    failed, more = error, False
                else:
                    waiting.append((thing, _submit(threads, make, thing)))
                    del thing
            if not waiting:
                break
            yield waiting.popleft()[1].result()
        if failed is not None:
            raise failed
    finally:
        failed = None  # its traceback refers to this frame: a reference cycle
        if os.getpid() == process:
            _cancel([future for _, future in waiting])


def map_in_threads(threads: int, make: Callable[[_S], _T], things: Iterable[_S]) -> list[_T]:
    """Return `make` of each thing, in order, or raise the first error; 1 is the calling thread."""
    if threads == 1:
        return [make(thing) for thing in things]
    return _in_threads(threads, make, things)


def name_item(error: Exception, place: int) -> Exception:
    """Add the item's index to an error's message; an OSError already names its file."""
    if error.args and isinstance(error.args[0], str) and not isinstance(error, OSError):
        error.args = (f"item {place}: {error.args[0]}", *error.args[1:])
    return error


def _decode_in_core(
    work: list[Any],
    targets: Sequence[Any],
    options: dict[str, Any],
    count: int,
    size: tuple[int, int] | None,
    *,
    exact: bool,
) -> list[Any]:
    """Decode in the native core where it is chosen; return None for all other items and errors."""
    if not _core_is_candidate(options):
        return [None] * len(work)
    some = _CoreArrays(options, count)
    if size is not None:
        some = _CoreResizes(options, count, size, exact=exact)
    if not some.accepts(work[0]):
        return [None] * len(work)
    chunks = [slice(at, at + some.chunk) for at in range(0, len(work), some.chunk)]
    done = map_in_threads(count, lambda at: some.make(work[at], targets[at]), chunks)
    return [result for chunk in done for result in chunk]


def _drop_tracebacks(error: Exception) -> Exception:
    """Remove the tracebacks of an error: their frames keep all images of the batch alive."""
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = None
        one = one.__cause__ or one.__context__
    return error


def _decode_item(item: Any, options: dict[str, Any]) -> Any:
    if isinstance(item, (str, os.PathLike)):
        return decode_file(item, **options)
    return decode(item, **options)


def _decode_shrunk(item: Any, *, max_side: int, out: Image | None, **options: Any) -> Image:
    """Decode an item, and shrink it as Pillow's `thumbnail` does, of which each step is here.

    A JPEG is first reduced in its decoder. The thumbnail is turned upright, not the whole image.
    """
    data = read_item(item)
    try:
        header = _headers.probe(data)
        turn = header.orientation if options.pop("orient", False) else 1
        region = options.pop("region", None)
        if region is not None:
            seen = seen_size(header.width, header.height, turn)
            region = stored_box(checked_region(region, *seen), *seen, turn)
        part = region or (0, 0, header.width, header.height)
        size = thumbnail_size(part[2] - part[0], part[3] - part[1], max_side)
        if out is not None:
            check_out(out, data, options.get("mode", "RGB"), seen_size(*size, turn)[::-1])
        reduce: Reduce = 1
        if header.format == "jpeg":
            reduce = reduce_for_resize(part, (max_side, max_side), THUMBNAIL_GAP)
        image = decode(data, reduce, region=region, **options)
    except FastDecodeError as error:
        if isinstance(item, (str, os.PathLike)):
            name_file(error, item)
        raise
    box = Geometry.of_decode(header, reduce, region=region).boxes(part).tolist()
    return deliver(apply_orientation(shrink(image, size, box), turn), out)


def _resize_exactly(item: Any, options: dict[str, Any], size: tuple[int, int]) -> Image:
    """Decode an item, and resize exactly the part that was asked for."""
    data = read_item(item)
    header = _headers.probe(data)
    whole = header.format != "jpeg"
    how = options | ({"reduce": 1, "min_size": None} if whole else {})
    plan = plan_options(header, how)
    image = decode(data, **how | {"reduce": plan.reduce, "min_size": None})
    region, orient = how.get("region"), how.get("orient", False)
    part = region or (0, 0, *seen_size(header.width, header.height, plan.orientation))
    # The outermost decoded pixels may reach beyond the part.
    shown = Geometry.of_decode(header, plan.reduce, region=region, orient=orient)
    left, top, right, bottom = shown.boxes(part).tolist()
    return resize(image, size, (left, top, right, bottom))


def _in_threads(threads: int, make: Callable[[_S], _T], things: Iterable[_S]) -> list[_T]:
    """Collect the results; on the first error or Ctrl-C, cancel the rest."""
    futures: list[Future[_T]] = []
    try:
        futures.extend(_submit(threads, make, thing) for thing in things)
        return [future.result() for future in futures]
    except BaseException:
        _cancel(futures)
        raise


def _cancel(futures: list[Future[_T]]) -> None:
    """Cancel pending calls and wait for running ones: nothing may write to `out` afterwards."""
    for future in futures:
        future.cancel()
    wait(futures)


def _submit(threads: int, make: Callable[[_S], _T], thing: _S) -> Future[_T]:
    """Begin a call in the pool of that size; raise `ThreadsUnavailable` if no thread can start."""
    try:
        return _pool(threads).submit(make, thing)
    except RuntimeError as error:
        if "start new thread" not in str(error):  # the interpreter is shutting down
            raise
        with _pools_lock:
            _pools.pop(threads, None)  # it has queued the call all the same
        raise ThreadsUnavailable(threads) from error


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return the pool of that size. Pools persist, since starting threads is slow."""
    with _pools_lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="fastdecode")
        return _pools[threads]


@after_fork
def _forget_pools() -> None:
    """Forget the pools in a forked child, where the parent's threads do not exist."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()


_NAME = "native"
_CHUNK, _MIN_CHUNK = 128, 16
_core_pool = cache(Pool)


class _CoreItem(NamedTuple):
    """One file to decode: the numbers of ``fd_request``, and the result's array."""

    numbers: tuple[int, ...]
    out: Image


def _core_is_candidate(options: dict[str, Any]) -> bool:
    """Return whether the core may be chosen with these arguments of `decode`."""
    return (
        options.get("backend") in (None, _NAME)
        and options.get("mode", "RGB") in ("RGB", "L")
        and not options.get("strict")
        and "max_side" not in options
    )


class _CoreArrays:
    """Decodes lists of files as `decode` does, where the core is chosen for them.

    `options` are checked arguments of `decode`; `chunk` is the number of files per call.
    """

    def __init__(self, options: dict[str, Any], threads: int) -> None:
        self._options = options
        self._pool = _core_pool(threads)
        self.chunk = max(_MIN_CHUNK, _CHUNK // threads)

    def accepts(self, source: Any) -> bool:
        """Return whether the core is chosen for this file, and so most likely for the others."""
        try:
            data = read_item(source)
        except (OSError, TypeError, ValueError):
            return False
        return self._part(data, None) is not None

    def make(self, sources: Sequence[Any], targets: Sequence[Any]) -> list[Image | None]:
        """Decode bytes or paths, each with its `out`; return None for those left to `decode`."""
        made: list[Image | None] = [None] * len(sources)
        with self._pool.items() as items:
            headers = items.read(self._pool, [_as_source(source) for source in sources])
            self._fill(items, headers, targets, made)
        return made

    def _fill(
        self, items: Items, headers: Headers, targets: Sequence[Any], made: list[Image | None]
    ) -> None:
        """Decode the files that were read and that the core takes."""
        parts: dict[int, _CoreItem] = {}
        for at in np.flatnonzero(headers.readable & (headers.ended == 1)).tolist():
            part = self._part(items.data(at), targets[at])
            if part is not None:
                parts[at] = part
        if parts:
            numbers, outs = zip(*parts.values(), strict=True)
            done = items.decode(self._pool, list(parts), numbers, outs)
            for at, out, whole in zip(parts, outs, done, strict=True):
                made[at] = out if whole else None

    def _part(self, data: Buffer, out: Any) -> _CoreItem | None:
        """Plan a file as `decode` does; return None if the core does not take it, or on errors."""
        options = self._options
        mode = options.get("mode", "RGB")
        try:
            header = _headers.probe(data)
            plan = plan_options(header, options)
            reduce, window, orientation = plan
            if orientation != 1:
                return None
            part = window is not None
            want = Want(mode, reduce, strict=False, complete=True, part=part)
            choice = _selection.first(options.get("backend"), header, want)
            if (choice.name, choice.layout, choice.reduce) != (_NAME, mode, reduce):
                return None
            if header.coding == "arithmetic":  # missing data needs further checks
                return None
            sides = plan.shape(header)
            if out is not None:
                check_out(out, data, mode, sides)
        except (FastDecodeError, TypeError, ValueError):
            return None
        if out is None:
            channels = () if mode == "L" else (3,)
            out = np.empty((*sides, *channels), np.uint8)
        window = window or (0, 0, sides[1], sides[0])
        return _CoreItem((*window, reduce, _library.LAYOUTS[mode]), out)


class _CoreResizes(_CoreArrays):
    """Decodes and resizes lists of files in the core, into one array."""

    def __init__(
        self, options: dict[str, Any], threads: int, size: tuple[int, int], *, exact: bool
    ) -> None:
        super().__init__(options, threads)
        self._size, self._exact = size, exact

    def accepts(self, source: Any) -> bool:  # noqa: ARG002 - the core is always the fastest here
        """Return whether the core is on, and no other backend was asked for."""
        return self._options.get("mode", "RGB") == "RGB" and core_may_decode(
            self._options.get("backend")
        )

    def _fill(self, items: Items, headers: Headers, targets: Any, made: list[Image | None]) -> None:
        resizes: dict[int, _library.CoreResize] = {}
        eligible = headers.readable & core_can_decode(headers, None)
        if self._options.get("orient"):
            eligible &= headers.may_turn == 0
        for at in np.flatnonzero(eligible).tolist():
            resize = self._resize(int(headers.width[at]), int(headers.height[at]))
            if resize is not None:
                resizes[at] = resize
        if resizes:
            pixels, place = _library.stored(None, channels_first=False), targets.ctypes.data
            wanted, plans = list(resizes), list(resizes.values())
            done = items.resize(self._pool, wanted, plans, pixels, place, targets.strides[0])
            for at, whole in zip(wanted, done, strict=True):
                made[at] = targets[at] if whole else None

    def _resize(self, width: int, height: int) -> _library.CoreResize | None:
        """Plan a JPEG of that size; return None on errors, which `decode` raises again."""
        header = Header("jpeg", width, height)
        try:
            plan = plan_options(header, self._options)
        except (FastDecodeError, ValueError):
            return None
        if self._exact:
            box = self._options.get("region") or (0, 0, width, height)
            return self._resize_of(box).for_core(width, height, plan.reduce)
        rows, columns = plan.shape(header)
        box = plan.window or (0, 0, columns, rows)
        made = self._resize_of(box).for_core(box[2], box[3], 1)  # the box is in reduced pixels
        return None if made is None else made._replace(reduce=plan.reduce)

    def _resize_of(self, box: Box) -> ResizePlan:
        return ResizePlan(box, self._size, 0, 0, self._size, flip=False)


def _as_source(source: Any) -> Any:
    """Return bytes, or a path as a string; None for anything else, or a released buffer."""
    try:
        return as_source(source)
    except (TypeError, ValueError):
        return None
