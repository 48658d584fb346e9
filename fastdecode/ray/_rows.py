"""The rows of a job: its options, decoding in portions of bounded size, and bad rows.

Notes
-----
Images are resized with the filter of Pillow's BILINEAR and torch's ``antialias=True``. Only JPEGs
are reduced first, because only their decoder then does less work; other formats are decoded in full
and averaged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast

import numpy as np
import pyarrow as pa
import ray
from ray.data.extensions import ArrowTensorArray, ArrowVariableShapedTensorArray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fastdecode import _formats
from fastdecode._arguments import check_options, check_sides, is_int
from fastdecode._decode.api import read_item
from fastdecode._decode.arrays import decode_arrays
from fastdecode._decode.batch import decode_batch
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS, plan_options
from fastdecode._error_policy import ITEM_ERRORS, is_item_error
from fastdecode.errors import FastDecodeError, begin_with

if TYPE_CHECKING:
    from fastdecode.types import Box, Buffer, Header, Mode

OnError: TypeAlias = Literal["raise", "skip", "return"]
"""What happens to a row whose image is damaged or missing."""

PORTION = 16 << 20
"""Bytes of pixels to decode at once; larger images are decoded one by one."""

_MAX_ROWS = 64
_MAX_REASONS = 10_000
_DECODING = ("reduce", "min_size", "region", "mode", "orient", "max_pixels", "backend")
_CHANNELS = {"RGB": (3,), "RGBA": (4,), "L": ()}
_logger = logging.getLogger("fastdecode.ray")


class Skipped:
    """Counts the images that ``on_error="skip"`` leaves out, on the whole cluster.

    Create one, pass it to `read_images` or `decode_images`, and read the count after the dataset
    has been consumed. An image counts once, even if Ray runs its task again or in several epochs.

    Parameters
    ----------
    most : int
        How many reasons to keep; further images are only counted.

    Notes
    -----
    It is an actor without a CPU, on the node where it is created, because worker nodes may come and
    go. A task reports its bad images before it returns its other rows, so the count is complete
    when the dataset has been consumed.

    Examples
    --------
    >>> from fastdecode.ray import Skipped, read_images
    >>> skipped = Skipped()
    >>> dataset = read_images("train", size=224, on_error="skip", skipped=skipped)
    >>> for batch in dataset.iter_batches():
    ...     pass
    >>> skipped.count()
    0
    """

    def __init__(self, most: int = _MAX_REASONS) -> None:
        if not ray.is_initialized():
            ray.init()
        # The actor must not be on a node that may be removed. A soft affinity is not enough: Ray
        # puts an actor without resources on any node.
        place = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        log: Any = ray.remote(_Log)
        self._actor = log.options(num_cpus=0, scheduling_strategy=place).remote(most)

    def add(self, reasons: Mapping[str, str]) -> None:
        """Report images with their reasons, by path; return when they are recorded."""
        ray.get(self._actor.add.remote(dict(reasons)))

    def count(self) -> int:
        """Return how many different images have been left out so far."""
        found: int = ray.get(self._actor.count.remote())
        return found

    def reasons(self) -> dict[str, str]:
        """Return the reason for each image, by its path or a digest of its bytes."""
        found: dict[str, str] = ray.get(self._actor.reasons.remote())
        return found


class _Log:
    """The actor of `Skipped`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: set[int] = set()
        self._reasons: dict[str, str] = {}

    def add(self, reasons: dict[str, str]) -> None:
        for name, reason in reasons.items():
            self._seen.add(hash(name))  # 64 bits take much less memory than paths
            if name in self._reasons or len(self._reasons) < self._most:
                self._reasons[name] = reason

    def count(self) -> int:
        return len(self._seen)

    def reasons(self) -> dict[str, str]:
        return self._reasons


@dataclass(frozen=True)
class JobOptions:
    """How a job decodes; sent to every task. `read_images` describes the options."""

    size: tuple[int, int] | None = None
    reduce: int = 1
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
    def checked(cls, size: Any, num_cpus: Any, **others: Any) -> JobOptions:
        """Make options; raise an error if they are wrong for any image."""
        if others.get("mode") == "stored":
            raise ValueError(
                "mode='stored' returns images of several types, and a column has one: "
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
        return {name: getattr(self, name) for name in _DECODING}

    @property
    def resize_to(self) -> tuple[int, int]:
        """The size to resize to; only valid if there is one."""
        return cast("tuple[int, int]", self.size)

    @property
    def channels(self) -> tuple[int, ...]:
        """The end of an image's shape, after height and width."""
        return _CHANNELS[self.mode]

    @property
    def row_bytes(self) -> int | None:
        """Bytes of an image in the column; None if sizes differ."""
        return None if self.size is None else self.pixel_bytes(*self.size)

    def pixel_bytes(self, height: int, width: int) -> int:
        return height * width * (self.channels or (1,))[0]


class Portion(NamedTuple):
    """The decoded rows of the sources from `start` to `stop`."""

    start: int
    stop: int
    kept: list[int]  # indices of the sources that become rows
    images: Any  # the images of `kept`: an ndarray (N, H, W[, C]), or a list of ndarray
    errors: list[str | None]  # the errors of `kept`


def portions(
    sources: Sequence[str | Buffer | Exception], name: Callable[[int], str], options: JobOptions
) -> Iterator[Portion]:
    """Decode images in order. A source that could not be read is given as its error.

    The same sources always make the same portions, of about `PORTION` bytes: if a node is lost, Ray
    runs its tasks again and relies on that. `name` returns a source's name for errors.
    """
    make = _decode_own_sizes if options.size is None else _decode_resized
    for start, images, errors in make(sources, name, options):
        bad = [at for at, error in enumerate(errors) if error is not None]
        if bad and options.on_error == "raise":
            raise _name_image(errors[bad[0]], name(start + bad[0]))  # type: ignore[arg-type]
        told = [None if error is None else f"{type(error).__name__}: {error}" for error in errors]
        kept = list(range(len(errors)))
        if bad and options.on_error == "skip":
            _report_skipped({name(start + at): str(told[at]) for at in bad}, options)
            kept = [at for at in kept if errors[at] is None]
        whole = len(kept) == len(errors)  # then nothing is copied
        shown = images if whole else images[kept] if options.size else [images[at] for at in kept]
        rows = [start + at for at in kept]
        yield Portion(start, start + len(errors), rows, shown, [told[at] for at in kept])


def max_rows(options: JobOptions) -> int:
    """Return the most sources in a portion; reading more ahead is useless."""
    return max(1, min(_MAX_ROWS, PORTION // (options.row_bytes or 1)))


def or_empty_table(tables: Iterable[Any], table: Callable[[Portion], Any]) -> Iterator[Any]:
    """Yield tables; if there are none, yield one without rows, so that a block has a schema."""
    some = False
    for made in tables:
        some = True
        yield made
    if not some:
        yield table(Portion(0, 0, [], [], []))


def image_columns(portion: Portion, options: JobOptions, name: str = "image") -> dict[str, Any]:
    """Make the columns of a portion: its images, and its errors for ``on_error="return"``."""
    columns = {name: _image_column(portion.images, options)}
    if options.on_error == "return":
        columns["error"] = pa.array(portion.errors, pa.string())
    return columns


def _image_column(images: Any, options: JobOptions) -> Any:
    """Make a tensor column from an array of images, without a copy, or from a list of arrays.

    The column has a fixed shape if the options have a size. Otherwise it has variable shapes, also
    if all images have the same shape or there are none, so that all blocks have the same schema.
    """
    if len(images) == 0:
        some = np.zeros((1, *(options.size or (1, 1)), *options.channels), np.uint8)
        return _image_column(some, options)[:0]
    if options.size is not None:
        return ArrowTensorArray.from_numpy(images)
    return ArrowVariableShapedTensorArray.from_numpy(images)


def _name_image(error: Exception, name: str) -> Exception:
    """Add the name of the image to an error, unless the message has it already."""
    if name and name not in str(error) and not isinstance(error, OSError) and error.args:
        begin_with(error, name)
    return error


def _report_skipped(reasons: dict[str, str], options: JobOptions) -> None:
    """Report the images that are left out, to `Skipped` or else to the log."""
    if options.skipped is not None:
        options.skipped.add(reasons)
        return
    name, reason = next(iter(reasons.items()))
    more = f", and {len(reasons) - 1} more" if len(reasons) > 1 else ""
    _logger.warning("left out %s: %s%s (Skipped counts them)", name, reason, more)


_Made = Iterator[tuple[int, Any, list[Exception | None]]]
"""The start of a portion, its images, and their errors."""


def _decode_own_sizes(
    sources: Sequence[Any], name: Callable[[int], str], options: JobOptions
) -> _Made:
    """Decode images at their own sizes, as `decode` does."""
    start, size = 0, 0
    some: list[Any] = []
    for at, source in enumerate(sources):
        data, header = _read_header(source)
        try:
            needed = 0 if header is None else _pixel_bytes(header, options)
        except ValueError as error:  # a region outside the image
            raise _name_image(error, name(at)) from None
        if some and (size + needed > PORTION or len(some) == _MAX_ROWS):
            yield start, *_decode_some(some, options)
            start, size, some = at, 0, []
        some.append(data)
        size += needed
    if some:
        yield start, *_decode_some(some, options)


def _read_header(source: Any) -> tuple[Any, Header | None]:
    """Return the bytes and the header of an image, or its error and None."""
    if isinstance(source, Exception):
        return source, None
    try:
        data = read_item(source)
        return data, _formats.probe(data)
    except (FastDecodeError, OSError) as error:
        if not is_item_error(error):
            raise
        return error, None


def _pixel_bytes(header: Header, options: JobOptions) -> int:
    """Return the bytes of the result of `decode`; raise ValueError for a region outside."""
    plan = plan_options(header, options.decoding() | {"max_pixels": None})
    return options.pixel_bytes(*plan.shape(header))


def _decode_some(
    some: Sequence[Any], options: JobOptions
) -> tuple[list[Any], list[Exception | None]]:
    whole = [data for data in some if not isinstance(data, Exception)]
    answers = iter(
        decode_batch(whole, threads=options.threads, on_error="return", **options.decoding())
    )
    results = [data if isinstance(data, Exception) else next(answers) for data in some]
    nothing = np.zeros((0, 0, *options.channels), np.uint8)
    images = [nothing if isinstance(each, Exception) else each for each in results]
    return images, [each if isinstance(each, Exception) else None for each in results]


def _decode_resized(
    sources: Sequence[Any], name: Callable[[int], str], options: JobOptions
) -> _Made:
    """Decode and resize images to one size, in one array; a damaged image is black."""
    how = options.decoding()
    if options.reduce == 1 and options.min_size is None:
        how["min_size"] = options.resize_to
    rows = max_rows(options)
    for start in range(0, len(sources), rows):
        some = sources[start : start + rows]
        out = np.empty((len(some), *options.resize_to, *options.channels), np.uint8)
        made = decode_arrays(
            *(list(some), how, options.threads),
            on_error="return all",
            targets=out,
            size=options.resize_to,
            exact=True,
        )
        errors: list[Exception | None] = []
        for at, (source, result) in enumerate(zip(some, made, strict=True)):
            bad = isinstance(source, Exception)
            error = source if bad else result if isinstance(result, Exception) else None
            if isinstance(error, ITEM_ERRORS) and not is_item_error(error):
                raise error
            if error is not None and not isinstance(error, ITEM_ERRORS):  # a region outside
                raise _name_image(error, name(start + at)) from None
            if error is not None:
                out[at] = 0
            errors.append(error)
        yield start, out, errors
