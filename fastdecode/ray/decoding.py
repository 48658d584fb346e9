"""`decode_images`: pictures of encoded bytes that some dataset has already."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastdecode.plan import DEFAULT_MAX_PIXELS
from fastdecode.ray.options import OnError, Options
from fastdecode.ray.tasks import Decode

if TYPE_CHECKING:
    import ray.data

    from fastdecode.ray.dropped import Dropped
    from fastdecode.types import Box, Mode, Reduce

__all__ = ["decode_images"]


def decode_images(
    dataset: ray.data.Dataset,
    column: str = "bytes",
    *,
    output: str = "image",
    name: str | None = None,
    keep_bytes: bool = False,
    size: int | tuple[int, int] | None = None,
    reduce: Reduce = 1,
    min_size: int | tuple[int, int] | None = None,
    region: Box | None = None,
    mode: Mode = "RGB",
    orient: bool = False,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    backend: str | None = None,
    on_error: OnError = "raise",
    dropped: Dropped | None = None,
    num_cpus: int = 1,
    batch_size: int | None = None,
    concurrency: int | None = None,
    ray_remote_args: Mapping[str, Any] | None = None,
) -> ray.data.Dataset:
    """Decode a column of encoded pictures, of Parquet files or of any other source.

    Parameters
    ----------
    dataset : ray.data.Dataset
    column : str
        Of bytes. A null is a damaged picture.
    output : str
        Column for the pictures.
    name : str, optional
        Column that errors, and `dropped`, call a row by; else it is by a digest of its bytes, and
        equal ones are counted once.
    keep_bytes : bool
        Leave `column` in.
    batch_size : int, optional
        Rows that a task takes at once; by default a whole block.
    size, reduce, min_size, region, mode, orient, max_pixels, backend, on_error, dropped, num_cpus
        As for `read_images`.
    concurrency, ray_remote_args
        Likewise.

    Returns
    -------
    ray.data.Dataset
        With the columns of the one given, but `column`; and `output`, last.

    Raises
    ------
    TypeError, ValueError
        If an argument is wrong. A column that is not there, or holds no bytes, shows when the
        dataset is consumed.

    Examples
    --------
    >>> rows = ray.data.read_parquet("s3://bucket/table")  # doctest: +SKIP
    >>> dataset = decode_images(rows, "jpeg", size=224, name="url")  # doctest: +SKIP
    """
    options = Options.checked(
        size,
        num_cpus,
        reduce=reduce,
        min_size=min_size,
        region=region,
        mode=mode,
        orient=orient,
        max_pixels=max_pixels,
        backend=backend,
        on_error=on_error,
        dropped=dropped,
    )
    if output == column and keep_bytes:
        raise ValueError("output must be another column than that of the bytes, which are kept")
    return dataset.map_batches(
        Decode(column, name, output, keep_bytes, options),
        batch_size=batch_size,
        batch_format="pyarrow",
        zero_copy_batch=True,
        num_cpus=options.threads,
        concurrency=concurrency,
        **(ray_remote_args or {}),
    )
