"""Decode many images to arrays in threads: `decode_batch` and `decode_iter`.

Files for which the native backend is chosen go to the native core in parts, and are decoded in its
own threads.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Sequence
from functools import cache
from itertools import compress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np

from fastdecode import _formats
from fastdecode._arguments import check_out, region_inside
from fastdecode._backends import selection
from fastdecode._backends.selection import Want
from fastdecode._decode.api import decode, decode_file, read_item
from fastdecode._decode.plan import plan_options, reduce_for_resize
from fastdecode._decode.resizing import (
    THUMBNAIL_GAP,
    ResizePlan,
    core_can_decode,
    core_may_decode,
    resize,
    shrink,
    thumbnail_size,
)
from fastdecode._error_policy import is_item_error
from fastdecode._pixels import apply_orientation, deliver, seen_size, stored_box
from fastdecode._system.threads import map_in_order, map_in_threads
from fastdecode.errors import FastDecodeError, begin_with
from fastdecode.geometry import Geometry
from fastdecode.native import _library
from fastdecode.native._pool import Headers, Items, Pool, as_source
from fastdecode.types import Header

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdecode.types import Buffer, Image, Reduce

_Made: TypeAlias = "Iterable[tuple[int, Image]]"  # the index of each image, and the image
_NAME = "native"
_core_pool = cache(Pool)


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
    on_error: Literal["raise", "return", "return all"],
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


def name_item(error: Exception, place: int) -> Exception:
    """Add the item's index to an error's message; an OSError already names its file."""
    if error.args and isinstance(error.args[0], str) and not isinstance(error, OSError):
        begin_with(error, f"item {place}")
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
    core = _InCore(options, _core_pool(count), size, exact)
    if not core.accepts(work[0]):
        return [None] * len(work)
    parts = [slice(at, at + core.pool.part) for at in range(0, len(work), core.pool.part)]
    done = map_in_threads(count, lambda at: core.make(work[at], targets[at]), parts)
    return [result for part in done for result in part]


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
        header = _formats.probe(data)
        turn = header.orientation if options.pop("orient", False) else 1
        region = options.pop("region", None)
        if region is not None:
            seen = seen_size(header.width, header.height, turn)
            region = stored_box(region_inside(region, *seen), *seen, turn)
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
            begin_with(error, os.fspath(item))
        raise
    box = Geometry.of_decode(header, reduce, region=region).boxes(part).tolist()
    return deliver(apply_orientation(shrink(image, size, box), turn), out)


def _resize_exactly(item: Any, options: dict[str, Any], size: tuple[int, int]) -> Image:
    """Decode an item, and resize exactly the part that was asked for."""
    data = read_item(item)
    header = _formats.probe(data)
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


class _InCore(NamedTuple):
    """Decodes lists of files as `decode_arrays` does, where the core is chosen for them."""

    options: dict[str, Any]
    pool: Pool
    size: tuple[int, int] | None
    exact: bool

    def accepts(self, source: Any) -> bool:
        """Return whether the core is chosen for this file, and so most likely for the others."""
        options, mode = self.options, self.options.get("mode", "RGB")
        if "max_side" in options or options.get("strict"):
            return False
        if self.size is not None:  # the core is always the fastest here
            return mode == "RGB" and core_may_decode(options.get("backend"))
        if options.get("backend") not in (None, _NAME) or mode not in ("RGB", "L"):
            return False
        try:
            data = read_item(source)
        except (OSError, TypeError, ValueError):
            return False
        return self._request(data, None) is not None

    def make(self, sources: Sequence[Any], targets: Sequence[Any]) -> list[Image | None]:
        """Decode bytes or paths, each with its `out`; return None for those left to `decode`."""
        made: list[Image | None] = [None] * len(sources)
        with self.pool.items() as items:
            headers = items.read(self.pool, [as_source(source) for source in sources])
            ask = self._decode if self.size is None else self._resize
            for at, image in ask(items, headers, targets):
                made[at] = image
        return made

    def _decode(self, items: Items, headers: Headers, targets: Sequence[Any]) -> _Made:
        """Decode the files that were read and that the core takes."""
        found: dict[int, tuple[tuple[int, ...], Image]] = {}
        for at in np.flatnonzero(headers.readable & (headers.ended == 1)).tolist():
            request = self._request(items.data(at), targets[at])
            if request is not None:
                found[at] = request
        if not found:
            return ()
        numbers, outs = zip(*found.values(), strict=True)
        done = items.decode(self.pool, list(found), numbers, outs)
        return compress(zip(found, outs, strict=True), done)

    def _request(self, data: Buffer, out: Any) -> tuple[tuple[int, ...], Image] | None:
        """Plan a file as `decode` does; return the numbers of ``fd_request``, and the array.

        Return None if the core does not take the file, or on errors.
        """
        options = self.options
        mode = options.get("mode", "RGB")
        try:
            header = _formats.probe(data)
            plan = plan_options(header, options)
            reduce, window, orientation = plan
            if orientation != 1:
                return None
            want = Want(mode, reduce, strict=False, complete=True)
            choice = selection.first(options.get("backend"), header, want)
            if (choice.name, choice.layout, choice.reduce) != (_NAME, mode, reduce):
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
        return (*window, reduce, _library.LAYOUTS[mode]), out

    def _resize(self, items: Items, headers: Headers, targets: Any) -> _Made:
        """Decode and resize the files that were read and that the core takes, into one array."""
        found: dict[int, _library.CoreResize] = {}
        eligible = headers.readable & core_can_decode(headers, None)
        if self.options.get("orient"):
            eligible &= headers.may_turn == 0
        for at in np.flatnonzero(eligible).tolist():
            resize = self._resize_of(int(headers.width[at]), int(headers.height[at]))
            if resize is not None:
                found[at] = resize
        if not found:
            return ()
        pixels, place = _library.stored(None, channels_first=False), targets.ctypes.data
        wanted, plans = list(found), list(found.values())
        done = items.resize(self.pool, wanted, plans, pixels, place, targets.strides[0])
        return ((at, targets[at]) for at in compress(wanted, done))

    def _resize_of(self, width: int, height: int) -> _library.CoreResize | None:
        """Plan a JPEG of that size; return None on errors, which `decode` raises again."""
        header, size = Header("jpeg", width, height), cast("tuple[int, int]", self.size)
        try:
            plan = plan_options(header, self.options)
        except (FastDecodeError, ValueError):
            return None
        rows, columns = plan.shape(header)
        box = plan.window or (0, 0, columns, rows)  # in reduced pixels
        if self.exact:
            box = self.options.get("region") or (0, 0, width, height)
        whole = (width, height, plan.reduce) if self.exact else (box[2], box[3], 1)
        made = ResizePlan(box, size, 0, 0, size, flip=False).for_core(*whole)
        return None if made is None else made._replace(reduce=plan.reduce)
