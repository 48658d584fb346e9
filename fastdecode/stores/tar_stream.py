"""A tar shard from its beginning to its end: no index, no seeking, one sample in memory."""

from __future__ import annotations

import io
import os
from collections.abc import Generator, Mapping, Sequence
from typing import Any, BinaryIO, NamedTuple

from fastdecode.files import open_regular
from fastdecode.stores.mapped import is_uri, local_path
from fastdecode.stores.tar_members import FileSource, Readable
from fastdecode.stores.tar_samples import choice, samples
from fastdecode.types import Buffer

__all__ = ["Sample", "stream_tar"]

_BUFFER = 1 << 20
_WAY_OUT = "open it yourself, and pass the open file to stream_tar()"


class Sample(NamedTuple):
    """A picture, as a store would give it.

    Attributes
    ----------
    key : str
    data : bytes-like
    target : object
    """

    key: str
    data: Buffer
    target: Any


def stream_tar(
    location: str | os.PathLike[str] | Readable,
    *,
    image: str | Sequence[str] | None = None,
    target: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Generator[Sample, None, None]:
    """Go through the pictures of one shard.

    Parameters
    ----------
    location : path, URI or file
        What has ``read`` is read as it is, a pipe or a decompressed stream too, and not closed. By
        its name only a regular file is opened.
    image, target : optional
        See `TarStore`.
    storage_options : mapping, optional
        For the file system of a URI.

    Yields
    ------
    Sample
        Those that `TarStore` has, in its order. A key that comes again is not changed here.

    Raises
    ------
    OSError
        If it cannot be read.
    StoreError
        If it is no tar, or damaged, or cut short; the message names the last member before that.

    Examples
    --------
    >>> for key, data, target in stream_tar("train-00000.tar"):  # doctest: +SKIP
    ...     image = decode(data)
    """
    wanted = choice(image, target)
    file, location, own = _opened(location, storage_options)
    try:
        for sample in samples(FileSource(file, location), wanted, with_data=True):
            if not isinstance(sample, str):
                yield Sample(sample.key, sample.data, sample.target)
    finally:
        if own is not None:
            own.close()


def _opened(
    location: str | os.PathLike[str] | Readable, storage_options: Mapping[str, Any] | None
) -> tuple[Readable, str, BinaryIO | None]:
    """Open a shard unless it is; return what errors call it, too, and what is to be closed."""
    if not isinstance(location, (str, os.PathLike)):
        return location, str(getattr(location, "name", "the stream")), None
    where = os.fspath(location)
    if is_uri(where):
        from fastdecode.stores.remote import open_stream

        file = open_stream(where, storage_options)
    else:
        # A buffer of this size: the next header and small files come along.
        file = io.BufferedReader(open_regular(local_path(where), way_out=_WAY_OUT), _BUFFER)
    return file, where, file
