"""`decode_images` decodes a column of encoded images in a dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray.data

from fastdecode.errors import FastDecodeError
from fastdecode.ray._rows import Job, OnError, RowOptions, decode_rows

if TYPE_CHECKING:
    from typing_extensions import Unpack


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
