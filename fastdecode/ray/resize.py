"""Pictures of one size: decoded at the best reduction and resized, straight into their array.

Notes
-----
The filter is that of Pillow's BILINEAR and of torch's ``antialias=True``, by the native core where
it is there, else by Pillow; they agree to one level. Only a JPEG is reduced first: its decoder does
less work then, where any other format is decoded in full and averaged.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from math import ceil
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from PIL import Image as PillowImage

from fastdecode import _headers
from fastdecode._arguments import reduce_for
from fastdecode._pixels import seen_size
from fastdecode._preference import preferred
from fastdecode._selection import disabled
from fastdecode.api import decode, read_file
from fastdecode.errors import BackendUnavailable, FastDecodeError, UnknownBackend
from fastdecode.geometry import Geometry
from fastdecode.native import library, single
from fastdecode.native.batch import Items
from fastdecode.native.pool import Pool
from fastdecode.ray.errors import is_the_pictures, with_path
from fastdecode.types import REDUCES, Reduce

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdecode.native.batch import Headers
    from fastdecode.ray.options import Options
    from fastdecode.types import Box, Buffer, Header, Image

__all__ = ["Resizer"]

_FloatBox: TypeAlias = "tuple[float, float, float, float]"
_LARGEST_FIRST = tuple(sorted(REDUCES, reverse=True))
_NATIVE = "native"
_HUFFMAN = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive
_pool = cache(Pool)
_executor = cache(ThreadPoolExecutor)


class Resizer:
    """Makes pictures of one size. It serves one thread at a time.

    Parameters
    ----------
    options : Options
        With a size.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._size = cast("tuple[int, int]", options.size)
        self._least = options.min_size or self._size
        self._items = Items() if options.mode == "RGB" and _core_decodes(options.backend) else None

    def make(
        self, sources: Sequence[str | Buffer | Exception], names: Sequence[str]
    ) -> tuple[NDArray[np.uint8], list[Exception | None]]:
        """Decode and resize.

        Parameters
        ----------
        sources : sequence of path, bytes or error
            An error stands for what could not be read.
        names : sequence of str
            What a complaint about a region calls them.

        Returns
        -------
        images : ndarray of uint8, (N, H, W[, C])
            Black where there is an error.
        errors : list of Exception or None
            For each source what is wrong with it.
        """
        out = np.empty((len(sources), *self._size, *self._options.channels), np.uint8)
        errors: list[Exception | None] = [
            source if isinstance(source, Exception) else None for source in sources
        ]
        left = [at for at, error in enumerate(errors) if error is None]
        made = self._by_core(sources, out) if self._items is not None else set()
        left = [at for at in left if at not in made]

        def one(at: int) -> Exception | None:
            try:
                return self._one(cast("str | Buffer", sources[at]), out[at])
            except ValueError as error:  # a region outside the picture
                raise with_path(error, names[at]) from None

        some = len(left) > 1 and self._options.threads > 1
        answers = _executor(self._options.threads).map(one, left) if some else map(one, left)
        for at, error in zip(left, answers, strict=True):
            errors[at] = error
        for at, error in enumerate(errors):
            if error is not None:
                out[at] = 0
        return out, errors

    def _by_core(self, sources: Sequence[Any], out: NDArray[np.uint8]) -> set[int]:
        """Let the core make what it can, from file to pixels; return which those are."""
        items, pool = cast("Items", self._items), _pool(self._options.threads)
        try:
            headers = items.read(
                pool, [None if isinstance(each, Exception) else each for each in sources]
            )
            wanted = np.flatnonzero(self._fits(headers)).tolist()
            if not wanted:
                return set()
            widths, heights = headers.width.tolist(), headers.height.tolist()
            plans = [self._numbers(widths[at], heights[at]) for at in wanted]
            pixels = single.stored(None, channels_first=False)
            done = items.resize(pool, wanted, plans, pixels, out.ctypes.data, out.strides[0])
            return {at for at, whole in zip(wanted, done, strict=True) if whole}
        finally:
            items.clear()

    def _fits(self, headers: Headers) -> NDArray[np.bool_]:
        """Say which files the core decodes as every other backend would.

        Left to the others are four inks, arithmetic coding, files without an end marker, and those
        that Exif data may turn.
        """
        options = self._options
        good = (
            headers.readable & np.isin(headers.sof, _HUFFMAN) & np.isin(headers.components, (1, 3))
        )
        good &= (headers.bits == 8) & (headers.ended == 1)
        if options.max_pixels is not None:
            # No side is over 65535, but their product need not fit 32 bits.
            good &= headers.width * 1.0 * headers.height <= options.max_pixels
        if options.orient:
            good &= headers.has_exif == 0
        if options.region is not None:  # one that lies outside is refused elsewhere
            left, top, right, bottom = options.region
            good &= (headers.width >= right) & (headers.height >= bottom)
            good &= 0 <= left < right and 0 <= top < bottom
        return good

    def _numbers(self, width: int, height: int) -> tuple[float, ...]:
        """Return what the core is to do, see `fastdecode.native.single`."""
        box = self._options.region or (0, 0, width, height)
        reduce = self._options.reduce
        if reduce == 1:
            reduce = _reduction(box, self._least)
        left, top, right, bottom = box
        down, across = self._size
        # fmt: off
        return (
            reduce, left / reduce, top / reduce, right / reduce, bottom / reduce,
            left // reduce, top // reduce, ceil(right / reduce), ceil(bottom / reduce),
            across, down, 0, 0, across, down, 0,
        )
        # fmt: on

    def _one(self, source: str | Buffer, out: NDArray[np.uint8]) -> Exception | None:
        """Decode one by whatever backend there is; return what is wrong with it."""
        options = self._options
        try:
            data = read_file(source) if isinstance(source, str) else source
            asked = options.decoding() | {"min_size": None}
            header = _headers.probe(data)
            if header.format != "jpeg":
                asked["reduce"] = 1
            elif options.reduce == 1:
                asked["reduce"] = reduce_for(
                    header, self._least, region=options.region, orient=options.orient
                )
            image = decode(data, **asked)
        except (FastDecodeError, OSError) as error:
            if not is_the_pictures(error):
                raise
            return error
        _resize(image, self._box(header, asked["reduce"], image), out)
        return None

    def _box(self, header: Header, reduce: Reduce, image: Image) -> _FloatBox:
        """Say what of a decoded picture is wanted: its outermost pixels may reach further."""
        orient = self._options.orient
        seen = seen_size(header.width, header.height, header.orientation if orient else 1)
        region = self._options.region or (0, 0, *seen)
        shown = Geometry.of_decode(header, reduce, region=region, orient=orient)
        (left, top), (right, bottom) = shown.points([region[:2], region[2:]]).tolist()
        height, width = image.shape[:2]
        return max(left, 0.0), max(top, 0.0), min(right, width), min(bottom, height)


def _core_decodes(backend: str | None) -> bool:
    """Whether the core may decode for somebody who asked for this backend, or for none."""
    if library.lib is None:
        return False
    try:
        asked = preferred() if backend is None else backend
    except (BackendUnavailable, UnknownBackend):
        return False  # `decode` says so
    return asked == _NATIVE if isinstance(asked, str) else _NATIVE not in disabled()


def _reduction(box: Box, least: int | tuple[int, int]) -> Reduce:
    """Choose the largest reduction that leaves a box these sides, as `reduce_for` does."""
    down, across = least if isinstance(least, (tuple, list)) else (least, least)
    for reduce in _LARGEST_FIRST:
        left, top, right, bottom = box
        enough = -(-bottom // reduce) - top // reduce >= down
        if enough and -(-right // reduce) - left // reduce >= across:
            return reduce
    return 1


def _resize(image: Image, box: _FloatBox, out: NDArray[np.uint8]) -> None:
    """Resize a box of a picture into an array."""
    down, across = out.shape[:2]
    if box == (0, 0, across, down) == (0, 0, image.shape[1], image.shape[0]):
        out[...] = image
        return
    core = library.lib is not None and _NATIVE not in disabled()
    if core and image.ndim == 3 and image.shape[2] == 3:
        whole = (0, 0, image.shape[1], image.shape[0])
        numbers = (1, *box, *whole, across, down, 0, 0, across, down, 0)
        image = np.ascontiguousarray(image)
        pixels = single.stored(None, channels_first=False)
        if single.resize(image, numbers, pixels, out.ctypes.data):
            return
    picture = PillowImage.fromarray(image)
    resized = picture.resize((across, down), PillowImage.Resampling.BILINEAR, box=box)
    out[...] = np.asarray(resized)
