"""`read_images` and `decode_images`: datasets of images from a store, or from a column of bytes.

Their tasks decode the rows in portions of bounded size.
"""

from __future__ import annotations

import glob
import hashlib
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

import numpy as np
import pyarrow as pa
import ray
import ray.data
from ray.data.extensions import ArrowTensorArray, ArrowVariableShapedTensorArray

from fastdecode._arguments import check_names, check_options, check_sides, check_word, is_int
from fastdecode._decode.arrays import decode_arrays, decode_each
from fastdecode._error_policy import ITEM_ERRORS, is_item_error
from fastdecode._system.threads import map_in_order, map_in_threads
from fastdecode.errors import FastDecodeError, begin_with
from fastdecode.stores import open_store
from fastdecode.stores._scan import is_readable_file
from fastdecode.stores.base import Store, StoreOptions
from fastdecode.stores.shards import expand_wildcards

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fastdecode.types import Box, Mode

OnError: TypeAlias = Literal["raise", "skip", "return"]
"""What happens to a row whose image is damaged or missing."""

PORTION = 16 << 20
"""Bytes of pixels to decode at once; larger images are decoded one by one."""

_MAX_ROWS = 64
_CHANNELS: dict[str, tuple[int, ...]] = {"RGB": (3,), "RGBA": (4,), "L": ()}
_logger = logging.getLogger("fastdecode.ray")

_BLOCK = 64 << 20
"""Bytes of pixels per task, if all images have one size: half of Ray's own limit."""

_ROWS, _TASKS_PER_CORE = 256, 4

_opened: dict[str, Store] = {}
"""The store that this process has read last, by its object reference."""

# Each task costs Ray some milliseconds before the first task runs.
_FEW_TASKS, _MANY_PER_CORE, _MAX_TASKS = 1000, 20, 10_000
_REMOTE_THREADS, _ASKED = 16, 16


class ReadOptions(StoreOptions, total=False):
    """The options of `open_store` for the source."""

    kind: str | None


def read_images(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Store,
    *,
    size: int | tuple[int, int] | None = None,
    on_error: OnError = "raise",
    include_paths: bool = True,
    include_labels: bool | None = None,
    store_options: ReadOptions | None = None,
    num_cpus: int = 1,
    concurrency: int | None = None,
    override_num_blocks: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    **options: Unpack[RowOptions],
) -> ray.data.Dataset:
    """Read and decode images on a Ray cluster.

    Parameters
    ----------
    source : path, URI, list of paths or URIs, or Store
        Anything that `fastdecode.stores.open_store` opens: a folder (with or without class
        folders), a CSV file, tar shards, LMDB, HDF5, RecordIO. Or a pattern such as
        ``"photos/*.jpg"``, or a list of files or tar shards. Local paths must exist on every node:
        share them, or use URIs.
    size : int or (height, width), optional
        Resize all images to this, in pixels; the aspect ratio is not kept, as in
        `ray.data.read_images`. The decoder first reduces a JPEG as far as both sides keep at least
        this size, or `min_size`.
    on_error : {"raise", "skip", "return"}
        ``"raise"``: an image that is damaged or missing ends the job. ``"skip"``: it is left out,
        and reported in the log. ``"return"``: a column ``error`` contains a
        text for a bad row, and null for a good one; the image of a bad row is black, or has the
        shape (0, 0, 3) without `size`. Errors of access (permission, connection, time-out, server,
        disk, credentials) are retried where that helps, and then end the job.
    include_paths : bool
        Whether to add a column ``path``. PyTorch has no tensors of text, so `iter_torch_batches`
        needs False here, or `drop_columns`.
    include_labels : bool, optional
        Whether to add a column ``label``; by default if the store has targets.
    store_options : mapping, optional
        Options of `open_store`, such as ``{"target_column": "species"}`` or ``{"kind": "tar"}``.
    num_cpus : int
        Cores per task, and its number of decoding threads. See Notes.
    concurrency : int, optional
        The most tasks at once, as in Ray.
    override_num_blocks : int, optional
        The number of tasks.
    ray_remote_args : mapping, optional
        More arguments for each task, such as ``{"memory": 2**30}``.
    **options
        reduce, min_size, region, mode, orient, max_pixels, backend: as for `fastdecode.decode`,
        with the modes ``"RGB"``, ``"L"`` and ``"RGBA"``. With `size`, the region is resized, a
        `reduce` other than 1 is used as given, and a `min_size` of twice the size comes closer to
        resizing the full image.

    Returns
    -------
    ray.data.Dataset
        The columns ``image`` (tensors of uint8 (H, W, 3), of a fixed shape with `size`),
        ``label``, ``path`` (the file, or the key in its store) and ``error``. Images are read, in a
        stream, only when the dataset is consumed.

    Raises
    ------
    FileNotFoundError
        The source does not exist.
    StoreError
        The store is damaged.
    TypeError, ValueError
        An argument is wrong.

    Notes
    -----
    A task reads and decodes its images, so no encoded bytes go through Ray's object store. It makes
    about 64 MB of pixels, or more if there would be over 1000 tasks and over 20 per core, and
    yields them as they are done. Behind URIs, it makes 16 requests at a time while it decodes.

    The default is one core per task, because it fits on every node, and processes do not wait for
    each other's GIL. With more cores fewer tasks run at a time, which takes less memory: that is
    useful for images of tens of megapixels.

    Examples
    --------
    >>> import fastdecode.ray
    >>> dataset = fastdecode.ray.read_images("train", size=224, include_paths=False)
    >>> for batch in dataset.iter_torch_batches(batch_size=6):
    ...     print(batch["image"].shape, batch["label"].tolist())
    torch.Size([6, 224, 224, 3]) [0, 0, 1, 1, 1, 1]
    """
    job = Job.checked(read_images, size, num_cpus, on_error, options)
    store = _open_source(source, dict(store_options or {}))
    first = _first_target(store)
    labelled = first is not None if include_labels is None else include_labels
    columns = [*(["label"] if labelled else []), *(["path"] if include_paths else [])]
    # `put` starts Ray if it is not running.
    task = _Read(ray.put(store), job, columns, _label_type(first))
    return ray.data.range(
        len(store), override_num_blocks=override_num_blocks or _task_count(len(store), job)
    ).map_batches(
        task,
        batch_size=None,
        zero_copy_batch=True,
        num_cpus=job.threads,
        concurrency=concurrency,
        **(ray_remote_args or {}),
    )


def _open_source(source: Any, options: dict[str, Any]) -> Store:
    """Open the source that was passed to `read_images`."""
    if isinstance(source, Store):
        if options:
            raise ValueError("store_options are for open_store, but the source is an open store")
        return source
    if isinstance(source, (str, os.PathLike)):
        where = os.fspath(source)
        if "://" not in where and glob.has_magic(where) and not os.path.lexists(where):
            found = list(filter(is_readable_file, expand_wildcards(where)))
            source = found or where  # which may name shards with braces
    return open_store(source, **options)


def _first_target(store: Store) -> Any:
    """Return the first target among some items, skipping those that are damaged or have none."""
    for index in range(min(len(store), _ASKED)):
        try:
            target = store.target(index)
        except ITEM_ERRORS as error:
            if not is_item_error(error):
                raise
            continue
        if target is not None:
            return target
    return None


def _task_count(count: int, job: Job) -> int:
    rows = _ROWS if job.row_bytes is None else max(1, _BLOCK // job.row_bytes)
    cores = int(ray.cluster_resources().get("CPU", 1))
    wanted = max(-(-count // rows), min(count, cores * _TASKS_PER_CORE))
    most = min(max(_FEW_TASKS, cores * _MANY_PER_CORE), _MAX_TASKS)
    return max(1, min(wanted, most, count))


@dataclass(frozen=True)
class _Read:
    """The work of a task: read and decode items of a store.

    `store` is an object reference: the store is sent to each node once, and opened once in each
    process. If it is remote, the next items are read while some are decoded.
    """

    store: Any
    job: Job
    columns: Sequence[str]
    labels: Any

    def __call__(self, batch: Any) -> Iterator[Any]:
        """Yield tables of the items whose indices are in the column ``"id"``."""
        store, rows, indices = _store(self.store), self.job.max_rows, batch["id"].tolist()
        parts = [indices[at : at + rows] for at in range(0, len(indices), rows)]
        threads, ahead = (2, 2) if store.remote else (1, 1)
        for sources, paths, labels in map_in_order(
            partial(self._read, store), parts, threads, ahead
        ):
            rows = pa.table({"row": pa.array(range(len(paths)))})
            if "label" in self.columns:
                rows = rows.append_column("label", _label_column(labels, self.labels))
            if "path" in self.columns:
                rows = rows.append_column("path", pa.array(paths, pa.string()))
            for table in decode_rows(rows, sources, paths.__getitem__, self.job, "image"):
                yield table.drop_columns(["row"])

    def _read(self, store: Store, indices: list[int]) -> tuple[list[Any], list[str], list[Any]]:
        """Return images or their errors, paths and labels; items that lie together in a request."""
        try:
            groups = store.groups(indices)
        except ITEM_ERRORS:  # raised again when such an item is read
            groups = [[index] for index in indices]
        threads = _REMOTE_THREADS if store.remote else 1
        read = map_in_threads(threads, store.read_group, groups)
        numbers = chain.from_iterable(groups)
        found = dict(zip(numbers, chain.from_iterable(read), strict=True))
        items = [self._item(store, index, found[index]) for index in indices]
        sources, paths, labels = zip(*items, strict=True) if items else ((), (), ())
        return list(sources), list(paths), list(labels)

    def _item(self, store: Store, index: int, source: Any) -> tuple[Any, str, Any]:
        path, label = f"item {index}", None
        try:
            path = store.key(index)
            if isinstance(source, Exception):
                raise source
            if "label" in self.columns:
                label = store.target(index)
        except (FastDecodeError, OSError) as error:
            if not is_item_error(error):
                raise
            return error, path, None
        return source, source if isinstance(source, str) else path, label


def _store(reference: Any) -> Store:
    """Return the store of a job, opened in this process."""
    name = reference.hex()
    if name not in _opened:
        for other in list(_opened):
            _opened.pop(other).close()
        _opened[name] = ray.get(reference)
    store = _opened[name]
    store.reach()  # else on a node without the drive, every image would count as missing
    return store


def _label_type(target: Any) -> Any:
    """Return the type of a label column from its first target; None lets pyarrow choose."""
    # In Python, a bool is an int.
    kinds = ((bool, pa.bool_()), (int, pa.int64()), (float, pa.float64()), (str, pa.string()))
    return next((arrow for kind, arrow in kinds if isinstance(target, kind)), None)


def _label_column(targets: Sequence[Any], kind: Any) -> Any:
    """Make a label column; raise ValueError if a target has another type than the first one."""
    try:
        return pa.array(targets, kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
        raise ValueError(
            f"the targets have several types, and a column has one ({error}): "
            "include_labels=False leaves them out"
        ) from error


def decode_images(
    dataset: ray.data.Dataset,
    column: str = "bytes",
    *,
    output: str = "image",
    name: str | None = None,
    keep_bytes: bool = False,
    size: int | tuple[int, int] | None = None,
    on_error: OnError = "raise",
    num_cpus: int = 1,
    batch_size: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
    **options: Unpack[RowOptions],
) -> ray.data.Dataset:
    """Decode a column of encoded images, from Parquet files or any other source.

    Parameters
    ----------
    dataset : ray.data.Dataset
        The dataset with the encoded images.
    column : str
        Name of the column with the encoded bytes. A null counts as a damaged image.
    output : str
        Name of the column for the images.
    name : str, optional
        Column with the names of rows for errors. By default a row is named by a digest of its
        bytes.
    keep_bytes : bool
        Whether to keep `column` in the result.
    batch_size : int, optional
        Rows per call of a task; by default a whole block.
    size, on_error, num_cpus, concurrency, ray_remote_args, **options
        As for `read_images`.

    Returns
    -------
    ray.data.Dataset
        The columns of `dataset` without `column`, followed by `output`.

    Raises
    ------
    TypeError, ValueError
        An argument is wrong. An error about a column that is missing or does not contain bytes is
        raised when the dataset is consumed.

    Examples
    --------
    >>> import ray
    >>> from fastdecode.ray import decode_images
    >>> rows = ray.data.from_items([{"jpeg": data, "label": 0}])
    >>> decode_images(rows, "jpeg", size=224).take(1)[0]["image"].shape
    (224, 224, 3)
    """
    job = Job.checked(decode_images, size, num_cpus, on_error, options)
    if not isinstance(dataset, ray.data.Dataset):
        raise TypeError(f"dataset must be a ray.data.Dataset, not {type(dataset).__name__}")
    if output == column and keep_bytes:
        raise ValueError("output must differ from column if keep_bytes=True")
    return dataset.map_batches(
        _Decode(column, name, output, keep_bytes, job),
        batch_size=batch_size,
        batch_format="pyarrow",
        zero_copy_batch=True,
        num_cpus=job.threads,
        concurrency=concurrency,
        **(ray_remote_args or {}),
    )


@dataclass(frozen=True)
class _Decode:
    """The work of a task: decode a column of encoded bytes."""

    column: str
    name: str | None
    output: str
    keep: bool
    job: Job

    def __call__(self, table: Any) -> Iterator[Any]:
        sources = [_as_bytes(value) for value in _column(table, self.column)]
        names = None if self.name is None else _column(table, self.name).to_pylist()

        def name(at: int) -> str:
            return _digest(sources[at]) if names is None else str(names[at])

        rows = table if self.keep else table.drop_columns([self.column])
        yield from decode_rows(rows, sources, name, self.job, self.output)


def _digest(source: Any) -> str:
    """Return a name for bytes without one."""
    given = b"" if isinstance(source, Exception) else source
    return f"image {hashlib.blake2b(given, digest_size=8).hexdigest()}"


def _column(table: Any, name: str) -> Any:
    if name not in table.column_names:
        raise ValueError(f"there is no column {name!r}, only {', '.join(table.column_names)}")
    return table.column(name)


def _as_bytes(value: Any) -> Any:
    """Return an Arrow value as encoded bytes, without a copy."""
    if not value.is_valid:
        return FastDecodeError("the row is null")
    if not hasattr(value, "as_buffer"):
        raise TypeError(f"the column must contain bytes, not {value.type}")
    return memoryview(value.as_buffer())


# ---- rows of a task


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
