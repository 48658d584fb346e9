"""The rows of a job: its options, decoding in portions of bounded size, and bad rows."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import numpy as np
import pyarrow as pa
from ray.data.extensions import ArrowTensorArray, ArrowVariableShapedTensorArray

from fastdecode._arguments import check_names, check_options, check_sides, check_word, is_int
from fastdecode._decode.arrays import decode_arrays, decode_each
from fastdecode._error_policy import is_item_error
from fastdecode.errors import begin_with

if TYPE_CHECKING:
    from fastdecode.types import Box, Mode

OnError: TypeAlias = Literal["raise", "skip", "return"]
"""What happens to a row whose image is damaged or missing."""

PORTION = 16 << 20
"""Bytes of pixels to decode at once; larger images are decoded one by one."""

_MAX_ROWS = 64
_CHANNELS: dict[str, tuple[int, ...]] = {"RGB": (3,), "RGBA": (4,), "L": ()}
_logger = logging.getLogger("fastdecode.ray")


class RowOptions(TypedDict, total=False):
    """The arguments of `decode` for all rows."""

    reduce: int
    min_size: int | tuple[int, int] | None
    region: Box | None
    mode: Mode
    orient: bool
    max_pixels: int | None
    backend: str | None


@dataclass(frozen=True)
class Job:
    """How a job decodes; sent to every task. `read_images` describes the options."""

    size: tuple[int, int] | None
    threads: int
    on_error: OnError
    options: Mapping[str, Any]  # of `decode`

    @classmethod
    def checked(
        cls, called: Callable[..., Any], size: Any, num_cpus: Any, on_error: Any, options: Any
    ) -> Job:
        """Make a job; raise an error if the arguments of `called` are wrong for any image."""
        check_names(called, options, RowOptions)
        if options.get("mode") == "stored":
            raise ValueError(
                "mode='stored' returns images of several types, and a column has one: "
                "use 'RGB', 'RGBA' or 'L'"
            )
        whole = is_int(num_cpus) or (isinstance(num_cpus, float) and num_cpus.is_integer())
        if not whole or num_cpus < 1:
            raise ValueError(f"num_cpus must be a positive whole number, not {num_cpus!r}")
        check_options(**options)
        check_word("on_error", on_error, ("raise", "skip", "return"))
        sides = None if size is None else check_sides(size, "size")
        return cls(sides, int(num_cpus), on_error, options)

    @property
    def channels(self) -> tuple[int, ...]:
        """The end of an image's shape, after height and width."""
        return _CHANNELS[self.options.get("mode", "RGB")]

    @property
    def row_bytes(self) -> int | None:
        """Bytes of an image in the column; None if sizes differ."""
        return None if self.size is None else int(np.prod((*self.size, *self.channels)))

    @property
    def max_rows(self) -> int:
        """The most rows of a portion; reading more ahead is useless."""
        return max(1, min(_MAX_ROWS, PORTION // (self.row_bytes or 1)))


def decode_rows(
    rows: pa.Table, sources: Sequence[Any], name: Callable[[int], str], job: Job, column: str
) -> Iterator[pa.Table]:
    """Decode an image for each row, in order, and yield the rows with their images in a column.

    A source that could not be read is given as its error. The same sources always make the same
    tables, of about `PORTION` bytes: if a node is lost, Ray runs its tasks again and relies on
    that. There is at least one table, so that each block has a schema. `name` returns a source's
    name for errors.
    """
    some = False
    made = _resized(sources, job, job.size) if job.size else _own_sizes(sources, job)
    for start, images, errors in made:
        bad = {at: error for at, error in enumerate(errors) if error is not None}
        for at, error in bad.items():
            if job.on_error == "raise" or not is_item_error(error):
                raise _name_image(error, name(start + at))
        kept = [at for at in range(len(errors)) if job.on_error != "skip" or at not in bad]
        if job.on_error == "skip" and bad:
            at, error = next(iter(bad.items()))
            more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
            _logger.warning("left out %s: %s%s", name(start + at), _reason(error), more)
        if kept:
            some = True
            part, shown = rows.slice(start, len(errors)), images
            if len(kept) < len(errors):  # else nothing is copied
                part = part.take(kept)
                shown = images[kept] if job.size else [images[at] for at in kept]
            reasons = [_reason(bad[at]) if at in bad else None for at in kept]
            yield _with_images(part, shown, reasons, job, column)
    if not some:
        yield _with_images(rows.slice(0, 0), [], [], job, column)


def _with_images(
    rows: pa.Table, images: Any, reasons: list[str | None], job: Job, column: str
) -> pa.Table:
    columns = {column: _image_column(images, job)}
    if job.on_error == "return":
        columns["error"] = pa.array(reasons, pa.string())
    rows = rows.drop_columns([each for each in rows.column_names if each in columns])
    for each, values in columns.items():
        rows = rows.append_column(each, values)
    return rows


def _image_column(images: Any, job: Job) -> Any:
    """Make a tensor column from an array of images, without a copy, or from a list of arrays.

    The column has a fixed shape if the job has a size. Otherwise it has variable shapes, also if
    all images have the same shape or there are none, so that all blocks have the same schema.
    """
    if len(images) == 0:
        some = np.zeros((1, *(job.size or (1, 1)), *job.channels), np.uint8)
        return _image_column(some, job)[:0]
    if job.size is not None:
        return ArrowTensorArray.from_numpy(images)
    return ArrowVariableShapedTensorArray.from_numpy(images)


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _name_image(error: Exception, name: str) -> Exception:
    """Add the name of the image to an error, unless the message has it already."""
    if name and name not in str(error) and not isinstance(error, OSError) and error.args:
        begin_with(error, name)
    return error


_Made: TypeAlias = "Iterator[tuple[int, Any, list[Exception | None]]]"
"""The start of a portion, its images, and their errors."""


def _error(source: Any, result: Any) -> Exception | None:
    """Return why a source could not be read, or else why it could not be decoded."""
    return next((each for each in (source, result) if isinstance(each, Exception)), None)


def _own_sizes(sources: Sequence[Any], job: Job) -> _Made:
    """Decode images at their own sizes, as `decode` does; a damaged image is empty."""
    options, threads = dict(job.options), job.threads
    results = decode_each(
        sources, options, threads, ahead=2 * threads, on_error="return all", size=None
    )
    start, images, errors = 0, list[Any](), list[Exception | None]()
    for at, (source, result) in enumerate(zip(sources, results, strict=True)):
        error = _error(source, result)
        images.append(np.zeros((0, 0, *job.channels), np.uint8) if error else result)
        errors.append(error)
        if len(images) == _MAX_ROWS or sum(image.nbytes for image in images) >= PORTION:
            yield start, images, errors
            start, images, errors = at + 1, [], []
    if images:
        yield start, images, errors


def _resized(sources: Sequence[Any], job: Job, size: tuple[int, int]) -> _Made:
    """Decode and resize images to one size, in one array; a damaged image is black.

    The filter is that of Pillow's BILINEAR and torch's ``antialias=True``. Only JPEGs are reduced
    first, because only their decoder then does less work.
    """
    options = dict(job.options)
    if options.get("reduce", 1) == 1 and options.get("min_size") is None:
        options["min_size"] = size
    for start in range(0, len(sources), job.max_rows):
        some = list(sources[start : start + job.max_rows])
        out = np.empty((len(some), *size, *job.channels), np.uint8)
        results = decode_arrays(
            *(some, options, job.threads),
            on_error="return all",
            targets=out,
            size=size,
            exact=True,
        )
        errors = list(map(_error, some, results))
        for at, error in enumerate(errors):
            if error is not None:
                out[at] = 0
        yield start, out, errors
