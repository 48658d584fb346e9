"""Files behind a URI, through fsspec: ``s3://bucket/train.tar``, ``gs://``, ``https://``."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from fastdecode.errors import BackendUnavailable, StoreError

try:
    import fsspec
except ImportError as error:
    raise BackendUnavailable(
        'a URI is read through fsspec, which is missing: pip install "fastdecode[remote]"'
    ) from error

__all__ = ["RemoteFile", "filesystem", "open_stream"]

_LOOKING_UP = threading.Lock()


def filesystem(uri: str, storage_options: Mapping[str, Any] | None = None) -> tuple[Any, str]:
    """Find the file system of a URI.

    Parameters
    ----------
    uri : str
        Such as ``s3://bucket/folder``.
    storage_options : mapping, optional
        For the file system: credentials, ``endpoint_url``. What it understands is its own matter.

    Returns
    -------
    filesystem : fsspec.AbstractFileSystem
        One for each process: what talks to the network has threads of its own, which a fork leaves
        behind. fsspec hands out the same one when asked twice in a process.
    path : str
        As the file system calls it.

    Raises
    ------
    ImportError
        If the library for such URIs is missing; fsspec says which.
    ValueError
        If the kind of URI is not known.
    """
    with _LOOKING_UP:
        # fsspec's table of file systems is not made for threads that all begin with one.
        found, path = fsspec.core.url_to_fs(uri, **(storage_options or {}))
    return found, str(path)


def open_stream(uri: str, storage_options: Mapping[str, Any] | None = None) -> BinaryIO:
    """Open a file to be read once from its beginning to its end.

    Parameters
    ----------
    uri : str
    storage_options : mapping, optional
        See `filesystem`.

    Returns
    -------
    file
        It can be read; it need not be possible to seek in it.

    Raises
    ------
    OSError
        If it cannot be opened.
    """
    found, path = filesystem(uri, storage_options)
    return cast("BinaryIO", found.open(path, "rb", cache_type="readahead"))


class RemoteFile:
    """Ranges of a file behind a URI, each with one request.

    Parameters
    ----------
    uri : str
    storage_options : mapping, optional
        See `filesystem`.

    Attributes
    ----------
    size : int
        In bytes.

    Raises
    ------
    OSError
        If it is not there, or cannot be reached.
    StoreError
        If nobody says how long it is.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.location = uri
        self._filesystem, self._path = filesystem(uri, storage_options)
        size = self._filesystem.info(self._path).get("size")
        if size is None:
            # Do not read what cannot be checked for being whole.
            raise StoreError(f"{without_query(uri)}: its server does not say how long it is")
        self.size = int(size)

    def read(self, offset: int, size: int) -> bytes:
        """Return a range, which the caller has found to lie in the file; less of it if it is cut.

        Raises
        ------
        OSError
            If it cannot be read, after as many attempts as the file system makes.
        """
        if not size:
            return b""
        return bytes(self._filesystem.cat_file(self._path, start=offset, end=offset + size))


def without_query(uri: str) -> str:
    """Drop what follows a question mark: signed URIs have their secret there."""
    return urlsplit(uri)._replace(query="", fragment="").geturl() if "?" in uri else uri
