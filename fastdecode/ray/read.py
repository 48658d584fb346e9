"""`read_images` reads a folder, a list or a store into a dataset of images."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import ray

from fastdecode._error_policy import ITEM_ERRORS, is_item_error
from fastdecode._system.threads import map_in_order, map_in_threads
from fastdecode.errors import FastDecodeError
from fastdecode.ray._rows import Job, OnError, RowOptions, decode_rows
from fastdecode.stores import open_store
from fastdecode.stores._scan import is_readable_file
from fastdecode.stores.base import Store, StoreOptions
from fastdecode.stores.shards import expand_wildcards

if TYPE_CHECKING:
    from typing_extensions import Unpack

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
