"""Files of a batch, each read once: for whoever decodes it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from fastdecode import _headers
from fastdecode._buffers import as_buffer
from fastdecode.api import read_file
from fastdecode.errors import FastDecodeError

if TYPE_CHECKING:
    from fastdecode.types import Buffer, Header

__all__ = ["Read", "read"]


class Read(NamedTuple):
    """What is known of an item.

    Attributes
    ----------
    item : object
        As the caller gave it; what is wrong with it is found where it is decoded.
    data : bytes or memoryview, or None
        The whole file; None if there is none.
    header : Header or None
        None if it cannot be read.
    """

    item: Any
    data: Buffer | None = None
    header: Header | None = None

    @property
    def source(self) -> Any:
        """What `decode` is to be given."""
        return self.item if self.data is None else self.data

    def told(self, error: Exception) -> Exception:
        """Say in an error which file it is of, as `decode_file` does."""
        is_path = isinstance(self.item, (str, os.PathLike))
        if is_path and self.data is not None and isinstance(error, FastDecodeError):
            error.args = (f"{os.fspath(self.item)}: {error.args[0]}", *error.args[1:])
        return error


def read(item: Any) -> Read:
    """Read a file, or take the bytes that are there, and look at the header.

    Parameters
    ----------
    item : bytes-like or path

    Returns
    -------
    Read
        Without data if it cannot be had: whoever decodes it says why.
    """
    try:
        named = isinstance(item, (str, os.PathLike))
        data = read_file(os.fspath(item)) if named else as_buffer(item)
    except (OSError, TypeError, ValueError):
        return Read(item)
    try:
        return Read(item, data, _headers.probe(data))
    except (FastDecodeError, ValueError):
        return Read(item, data)
