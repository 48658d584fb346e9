"""The rows of a job: its options, images decoded in portions of bounded size, the bad ones.

Notes
-----
Images of one size are resized by the filter of Pillow's BILINEAR and of torch's ``antialias=True``,
by the native core where it is there, else by Pillow; they agree to one level. Only a JPEG is
reduced first: its decoder does less work then, where any other format is decoded in full and
averaged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
from ray.data.extensions import ArrowTensorArray, ArrowVariableShapedTensorArray

from fastdecode import _headers
from fastdecode._arguments import check_options, check_sides, is_int
from fastdecode._batch import decode_batch
from fastdecode._pixels import seen_size
from fastdecode.api import decode, read_file
from fastdecode.errors import FastDecodeError
from fastdecode.geometry import Geometry
from fastdecode.native import _library
from fastdecode.native._batch import Items, Pool
from fastdecode.outages import is_the_items
from fastdecode.plan import DEFAULT_MAX_PIXELS, plan_options, reduce_for, reduce_for_box
from fastdecode.resizing import (
    FloatBox,
    ResizePlan,
    by_core,
    by_pillow,
    core_is_on,
    core_may_decode,
    core_takes,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdecode.native._batch import Headers
    from fastdecode.ray.skipped import Skipped
    from fastdecode.types import Box, Buffer, Header, Image, Mode, Reduce

__all__ = [
    "PORTION",
    "OnError",
    "Options",
    "Portion",
    "image_column",
    "or_empty",
    "portions",
    "rows_at_once",
]

OnError: TypeAlias = Literal["raise", "skip", "return"]
"""What becomes of a row whose image is damaged, or cannot be read."""

PORTION = 16 << 20
"""Bytes of pixels that are decoded at once; larger images come one by one."""

_MOST_ROWS = 64
_CHANNELS = {"RGB": (3,), "RGBA": (4,), "L": ()}
_pool = cache(Pool)
_executor = cache(ThreadPoolExecutor)
_logger = logging.getLogger("fastdecode.ray")


@dataclass(frozen=True)
class Options:
    """How a job decodes, sent to every task; `read_images` says what each option means."""

    size: tuple[int, int] | None = None
    reduce: Reduce = 1
    min_size: int | tuple[int, int] | None = None
    region: Box | None = None
    mode: Mode = "RGB"
    orient: bool = False
    max_pixels: int | None = DEFAULT_MAX_PIXELS
    backend: str | None = None
    on_error: OnError = "raise"
    skipped: Skipped | None = None
    threads: int = 1

    @classmethod
    def checked(cls, size: Any, num_cpus: Any, **others: Any) -> Options:
        """Make options; refuse what is wrong whatever the images are."""
        if others.get("mode") == "stored":
            raise ValueError(
                "mode='stored' gives images of several types, and a column has one: "
                "use 'RGB', 'RGBA' or 'L'"
            )
        whole = is_int(num_cpus) or (isinstance(num_cpus, float) and num_cpus.is_integer())
        if not whole or num_cpus < 1:
            raise ValueError(f"num_cpus must be a positive whole number, not {num_cpus!r}")
        sides = None if size is None else check_sides(size, "size")
        options = cls(size=sides, threads=int(num_cpus), **others)
        check_options(**options.decoding())
        if options.on_error not in ("raise", "skip", "return"):
            raise ValueError(
                f"on_error must be 'raise', 'skip' or 'return', not {options.on_error!r}"
            )
        if options.skipped is not None and options.on_error != "skip":
            raise ValueError("skipped= counts the rows that on_error='skip' leaves out")
        return options

    def decoding(self) -> dict[str, Any]:
        """Return the arguments of `decode`."""
        return {
            "reduce": self.reduce,
            "min_size": self.min_size,
            "region": self.region,
            "mode": self.mode,
            "orient": self.orient,
            "max_pixels": self.max_pixels,
            "backend": self.backend,
        }

    @property
    def channels(self) -> tuple[int, ...]:
        """What follows height and width in the shape of an image."""
        return _CHANNELS[self.mode]

    @property
    def row_bytes(self) -> int | None:
        """Bytes of an image in the column; None where each has its own size."""
        return None if self.size is None else self.pixel_bytes(*self.size)

    def pixel_bytes(self, height: int, width: int) -> int:
        return height * width * (self.channels or (1,))[0]


class Portion(NamedTuple):
    """Rows that are done, of the sources from `start` to `stop`."""

    start: int
    stop: int
    kept: list[int]  # the sources that are rows of the dataset, counted from the first of all
    images: Any  # of each of `kept`: an ndarray (N, H, W[, C]), or a list of ndarray
    errors: list[str | None]  # of each of `kept`


def portions(
    sources: Sequence[str | Buffer | Exception], names: Sequence[str], options: Options
) -> Iterator[Portion]:
    """Decode images, in order; an error among the sources stands for what could not be read.

    The same sources always make the same portions, of about `PORTION` bytes: when a node is lost,
    Ray runs a task again and relies on that. `names` is what errors call the sources.
    """
    make = _Resized(options) if options.size is not None else _AsTheyAre(options)
    for start, stop, images, errors in make.portions(sources, names):
        bad = [at for at, error in enumerate(errors) if error is not None]
        if bad and options.on_error == "raise":
            raise _named(errors[bad[0]], names[start + bad[0]])  # type: ignore[arg-type]
        told = [None if error is None else f"{type(error).__name__}: {error}" for error in errors]
        kept = list(range(len(errors)))
        if bad and options.on_error == "skip":
            _tell({names[start + at]: str(told[at]) for at in bad}, options)
            kept = [at for at in kept if errors[at] is None]
        rows = [start + at for at in kept]
        yield Portion(start, stop, rows, _some(images, kept), [told[at] for at in kept])


def rows_at_once(options: Options) -> int:
    """Return how many sources make a portion at most: no use in reading more ahead."""
    return max(1, min(_MOST_ROWS, PORTION // (options.row_bytes or 1)))


def or_empty(tables: Iterable[Any], table: Callable[[Portion], Any]) -> Iterator[Any]:
    """Yield tables; if there are none, one of no rows, made by `table`: a block has a schema."""
    some = False
    for made in tables:
        some = True
        yield made
    if not some:
        yield table(Portion(0, 0, [], [], []))


def image_column(images: Any, options: Options) -> Any:
    """Make a tensor column of an array of images, which is not copied, or of a list of arrays.

    It has one fixed shape if the options have a size, else variable shapes, even if all of them
    happen to be equal, and so if there are none: all blocks have one schema.
    """
    if len(images) == 0:
        some = np.zeros((1, *(options.size or (1, 1)), *options.channels), np.uint8)
        return image_column(some, options)[:0]
    if options.size is not None:
        return ArrowTensorArray.from_numpy(images)
    return ArrowVariableShapedTensorArray.from_numpy(images)


def _some(images: Any, kept: list[int]) -> Any:
    """Take some images, without a copy if it is all of them."""
    if len(kept) == len(images):
        return images
    return images[kept] if isinstance(images, np.ndarray) else [images[at] for at in kept]


def _named(error: Exception, name: str) -> Exception:
    """Name the image in an error, unless it does so already."""
    named = name and name not in str(error)
    if named and not isinstance(error, OSError) and error.args:
        error.args = (f"{name}: {error.args[0]}", *error.args[1:])
    return error


def _tell(reasons: dict[str, str], options: Options) -> None:
    """Report the images that are left out: to `Skipped`, else to the log."""
    if options.skipped is not None:
        options.skipped.add(reasons)
        return
    name, reason = next(iter(reasons.items()))
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    _logger.warning("left out %s: %s%s (Skipped counts them)", name, reason, more)


_Made = tuple[int, int, Any, list[Exception | None]]


class _AsTheyAre:
    """Images of their own sizes, as `decode` gives them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._nothing = np.zeros((0, 0, *options.channels), np.uint8)

    def portions(self, sources: Sequence[Any], names: Sequence[str]) -> Iterator[_Made]:
        start, size = 0, 0
        some: list[Any] = []
        for at, source in enumerate(sources):
            data, needed = self._probed(source, names[at])
            if some and (size + needed > PORTION or len(some) == _MOST_ROWS):
                yield start, at, *self._decoded(some)
                start, size, some = at, 0, []
            some.append(data)
            size += needed
        if some:
            yield start, len(sources), *self._decoded(some)

    def _probed(self, source: Any, name: str) -> tuple[Any, int]:
        """Return the bytes of an image, or what is wrong with it, and the bytes of its pixels."""
        if isinstance(source, Exception):
            return source, 0
        options = self._options
        try:
            data = read_file(source) if isinstance(source, str) else source
            header = _headers.probe(data)
        except (FastDecodeError, OSError) as error:
            if not is_the_items(error):
                raise
            return error, 0
        try:
            height, width = _size(header, options)
        except ValueError as error:
            raise _named(error, name) from None
        return data, options.pixel_bytes(height, width)

    def _decoded(self, some: Sequence[Any]) -> tuple[list[Any], list[Exception | None]]:
        whole = [data for data in some if not isinstance(data, Exception)]
        options = self._options
        answers = iter(
            decode_batch(whole, threads=options.threads, on_error="return", **options.decoding())
        )
        results = [data if isinstance(data, Exception) else next(answers) for data in some]
        errors = [each if isinstance(each, Exception) else None for each in results]
        for error in errors:
            if error is not None and not is_the_items(error):
                raise error
        images = [self._nothing if isinstance(each, Exception) else each for each in results]
        return images, errors


def _size(header: Header, options: Options) -> tuple[int, int]:
    """Return (height, width) of what `decode` will give; ValueError for a region outside."""
    return plan_options(header, options.decoding() | {"max_pixels": None}).shape(header)


class _Resized:
    """Images of one size, in one array: reduced, then resized. It serves one thread at a time."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._size = cast("tuple[int, int]", options.size)
        self._least = check_sides(options.min_size or self._size)
        decodes = options.mode == "RGB" and core_may_decode(options.backend)
        self._items = Items() if decodes else None

    def portions(self, sources: Sequence[Any], names: Sequence[str]) -> Iterator[_Made]:
        rows = rows_at_once(self._options)
        for start in range(0, len(sources), rows):
            some = sources[start : start + rows]
            images, errors = self._make(some, names[start : start + rows])
            yield start, start + len(some), images, errors

    def _make(
        self, sources: Sequence[Any], names: Sequence[str]
    ) -> tuple[NDArray[np.uint8], list[Exception | None]]:
        """Decode and resize; where there is an error, the image is black."""
        out = np.empty((len(sources), *self._size, *self._options.channels), np.uint8)
        errors: list[Exception | None] = [
            source if isinstance(source, Exception) else None for source in sources
        ]
        made = self._by_core(sources, out) if self._items is not None else set()
        left = [at for at, error in enumerate(errors) if error is None and at not in made]

        def one(at: int) -> Exception | None:
            try:
                return self._one(cast("str | Buffer", sources[at]), out[at])
            except ValueError as error:  # a region outside the image
                raise _named(error, names[at]) from None

        some = len(left) > 1 and self._options.threads > 1
        answers = _executor(self._options.threads).map(one, left) if some else map(one, left)
        for at, error in zip(left, answers, strict=True):
            errors[at] = error
        for at, error in enumerate(errors):
            if error is not None:
                out[at] = 0
        return out, errors

    def _by_core(self, sources: Sequence[Any], out: NDArray[np.uint8]) -> set[int]:
        """Decode what the core can, from file to pixels; return the places of those."""
        items, pool = cast("Items", self._items), _pool(self._options.threads)
        try:
            headers = items.read(
                pool, [None if isinstance(each, Exception) else each for each in sources]
            )
            widths, heights = headers.width.tolist(), headers.height.tolist()
            eligible = np.flatnonzero(self._eligible(headers)).tolist()
            plans = {at: self._plan(widths[at], heights[at]) for at in eligible}
            planned = {at: plan for at, plan in plans.items() if plan is not None}
            if not planned:
                return set()
            pixels, place = _library.stored(None, channels_first=False), out.ctypes.data
            resizes = list(planned.values())
            done = items.resize(pool, list(planned), resizes, pixels, place, out.strides[0])
            return {at for at, whole in zip(planned, done, strict=True) if whole}
        finally:
            items.clear()

    def _eligible(self, headers: Headers) -> NDArray[np.bool_]:
        """Mark the files that the core decodes as every other backend would, as they are stored."""
        options = self._options
        good: NDArray[np.bool_] = headers.readable & core_takes(headers, options.max_pixels)
        if options.orient:
            good &= headers.has_exif == 0
        if options.region is not None:  # one that lies outside is refused elsewhere
            left, top, right, bottom = options.region
            good &= (headers.width >= right) & (headers.height >= bottom)
            good &= 0 <= left < right and 0 <= top < bottom
        return good

    def _plan(self, width: int, height: int) -> _library.Resize | None:
        """Plan what the core does with an image of that size; None if it cannot."""
        box = self._options.region or (0, 0, width, height)
        reduce = self._options.reduce
        if reduce == 1:
            reduce = reduce_for_box(box, self._least)
        plan = ResizePlan(box, self._size, 0, 0, self._size, flip=False)
        return plan.for_core(width, height, reduce)

    def _one(self, source: str | Buffer, out: NDArray[np.uint8]) -> Exception | None:
        """Decode an image by whatever backend there is; return what is wrong with it."""
        options = self._options
        region, orient = options.region, options.orient
        try:
            data = read_file(source) if isinstance(source, str) else source
            header = _headers.probe(data)
            reduce: Reduce = 1
            if header.format == "jpeg":
                reduce = options.reduce
                if reduce == 1:
                    reduce = reduce_for(header, self._least, region=region, orient=orient)
            asked = options.decoding() | {"reduce": reduce, "min_size": None}
            image = decode(data, **asked)
        except (FastDecodeError, OSError) as error:
            if not is_the_items(error):
                raise
            return error
        applied = header.orientation if orient else 1
        wanted = region or (0, 0, *seen_size(header.width, header.height, applied))
        # The outermost pixels of what was decoded may reach further than what is wanted.
        shown = Geometry.of_decode(header, reduce, region=region, orient=orient)
        left, top, right, bottom = shown.boxes(wanted).tolist()
        _resize(image, (left, top, right, bottom), out)
        return None


def _resize(image: Image, box: FloatBox, out: NDArray[np.uint8]) -> None:
    canvas = out.shape[:2]
    whole = (0, 0, canvas[1], canvas[0])
    if box == whole == (0, 0, image.shape[1], image.shape[0]):
        out[...] = image
        return
    resized = None
    if core_is_on() and image.ndim == 3 and image.shape[2] == 3:
        resized = by_core(image, box, canvas, whole)
    out[...] = by_pillow(image, box, canvas, whole) if resized is None else resized
