"""Rows of a job: pictures decoded in portions of bounded size, and what becomes of the bad ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastdecode import _headers
from fastdecode._arguments import reduce_for, window_of
from fastdecode._batch import decode_batch
from fastdecode._pixels import seen_size
from fastdecode.api import read_file
from fastdecode.errors import FastDecodeError
from fastdecode.ray.errors import is_the_pictures, reason_of, with_path
from fastdecode.ray.resize import Resizer

if TYPE_CHECKING:
    from fastdecode.ray.options import Options
    from fastdecode.types import Buffer, Header

__all__ = ["PORTION", "Portion", "portions", "rows_at_once"]

PORTION = 16 << 20
"""Bytes of pixels that are decoded at once; larger pictures come one by one."""

_MOST_ROWS = 64
_logger = logging.getLogger("fastdecode.ray")


class Portion(NamedTuple):
    """Rows that are done.

    Attributes
    ----------
    start, stop : int
        Which sources they were made of.
    kept : list of int
        Those of them that are rows of the dataset, counted from the first source of all.
    images : ndarray (N, H, W[, C]), or list of ndarray
        For each of `kept`.
    errors : list of str or None
        Likewise.
    """

    start: int
    stop: int
    kept: list[int]
    images: Any
    errors: list[str | None]


def portions(
    sources: Sequence[str | Buffer | Exception], names: Sequence[str], options: Options
) -> Iterator[Portion]:
    """Decode pictures, in order.

    Parameters
    ----------
    sources : sequence of path, bytes or error
        An error stands for what could not be read.
    names : sequence of str
        What errors call them.
    options : Options

    Yields
    ------
    Portion
        Of about `PORTION` bytes. The same sources always make the same ones: when a node is lost,
        Ray runs a task again and relies on that.
    """
    make = _Resized(options) if options.size is not None else _AsTheyAre(options)
    for start, stop, images, errors in make.portions(sources, names):
        bad = [at for at, error in enumerate(errors) if error is not None]
        if bad and options.on_error == "raise":
            raise with_path(errors[bad[0]], names[start + bad[0]])  # type: ignore[arg-type]
        told = [None if error is None else reason_of(error) for error in errors]
        kept = list(range(len(errors)))
        if bad and options.on_error == "drop":
            _tell({names[start + at]: str(told[at]) for at in bad}, options)
            kept = [at for at in kept if errors[at] is None]
        rows = [start + at for at in kept]
        yield Portion(start, stop, rows, _some(images, kept), [told[at] for at in kept])


def _some(images: Any, kept: list[int]) -> Any:
    """Take some pictures, without a copy if it is all of them."""
    if len(kept) == len(images):
        return images
    return images[kept] if isinstance(images, np.ndarray) else [images[at] for at in kept]


def rows_at_once(options: Options) -> int:
    """Return how many sources make a portion at most: no use in reading more ahead."""
    return max(1, min(_MOST_ROWS, PORTION // (options.row_bytes or 1)))


def _tell(reasons: dict[str, str], options: Options) -> None:
    """Say which pictures are left out: to whoever counts them, else to the log."""
    if options.dropped is not None:
        options.dropped.add(reasons)
        return
    name, reason = next(iter(reasons.items()))
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    _logger.warning("left out %s: %s%s (Dropped counts them)", name, reason, more)


_Made = tuple[int, int, Any, list[Exception | None]]


class _Resized:
    """Pictures of one size, in one array."""

    def __init__(self, options: Options) -> None:
        self._resizer = Resizer(options)
        self._rows = rows_at_once(options)

    def portions(self, sources: Sequence[Any], names: Sequence[str]) -> Iterator[_Made]:
        for start in range(0, len(sources), self._rows):
            some = sources[start : start + self._rows]
            images, errors = self._resizer.make(some, names[start : start + self._rows])
            yield start, start + len(some), images, errors


class _AsTheyAre:
    """Pictures of their own sizes, as `decode` gives them."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._nothing = np.zeros((0, 0, *options.channels), np.uint8)

    def portions(self, sources: Sequence[Any], names: Sequence[str]) -> Iterator[_Made]:
        start, size = 0, 0
        some: list[Any] = []
        for at, source in enumerate(sources):
            data, needed = self._looked_at(source, names[at])
            if some and (size + needed > PORTION or len(some) == _MOST_ROWS):
                yield start, at, *self._decoded(some)
                start, size, some = at, 0, []
            some.append(data)
            size += needed
        if some:
            yield start, len(sources), *self._decoded(some)

    def _looked_at(self, source: Any, name: str) -> tuple[Any, int]:
        """Return the bytes of a picture, or what is wrong with it, and the bytes of its pixels."""
        if isinstance(source, Exception):
            return source, 0
        options = self._options
        try:
            data = read_file(source) if isinstance(source, str) else source
            header = _headers.probe(data)
        except (FastDecodeError, OSError) as error:
            if not is_the_pictures(error):
                raise
            return error, 0
        try:
            height, width = _size(header, options)
        except ValueError as error:
            raise with_path(error, name) from None
        return data, height * width * (options.channels or (1,))[0]

    def _decoded(self, some: Sequence[Any]) -> tuple[list[Any], list[Exception | None]]:
        whole = [data for data in some if not isinstance(data, Exception)]
        options = self._options
        answers = iter(
            decode_batch(whole, threads=options.threads, on_error="return", **options.decoding())
        )
        results = [data if isinstance(data, Exception) else next(answers) for data in some]
        errors = [each if isinstance(each, Exception) else None for each in results]
        for error in errors:
            if error is not None and not is_the_pictures(error):
                raise error
        images = [self._nothing if isinstance(each, Exception) else each for each in results]
        return images, errors


def _size(header: Header, options: Options) -> tuple[int, int]:
    """Return (height, width) of what `decode` will give; ValueError for a region outside."""
    applied = header.orientation if options.orient else 1
    reduce, region = options.reduce, options.region
    if options.min_size is not None:
        reduce = reduce_for(header, options.min_size, region=region, orient=options.orient)
    if region is None:
        region = (0, 0, *seen_size(header.width, header.height, applied))
    left, top, right, bottom = window_of(region, header, reduce, applied)
    return bottom - top, right - left
