"""Access to URIs through fsspec: ``s3://bucket/train.tar``, ``gs://``, ``https://``."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar
from urllib.parse import urlsplit

from fastdecode._error_policy import http_status, is_temporary, retry
from fastdecode.errors import BackendUnavailable, FastDecodeError

try:
    import fsspec
    from fsspec.core import split_protocol
except ImportError as error:
    raise BackendUnavailable(
        'a URI is read through fsspec, which is missing: pip install "fastdecode[remote]"'
    ) from error

CONNECTIONS = 64
"""Most requests at the same time, for S3, whose library allows only ten by default."""

_T = TypeVar("_T")
_IMPORT_LOCK = threading.Lock()
_CREDENTIALS = re.compile("Credential|Authentica|Authoriz|Permission|Forbidden|Refresh|Token")
_QUERY = re.compile(r"(://[^\s?'\"]+)\?[^\s'\")\]]*")
_GONE = ("404", "NoSuchKey", "NoSuchVersion")
_RANGE_NOT_SATISFIABLE = 416


class Remote:
    """The file system behind a URI. Its errors are OSErrors that name the URI.

    Each process needs its own, because the libraries that use the network have threads, which do
    not survive a fork. Within a process, fsspec returns the same file system again.

    Whatever a library raises, a method raises FileNotFoundError if the file does not exist, and
    another OSError if it cannot be reached. Before that it tries again if that may help: see
    `fastdecode._error_policy`.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None) -> None:
        with _IMPORT_LOCK:
            # fsspec's registry is not safe if several threads load the same file system first.
            for link in uri.split("::"):
                _import_filesystem(split_protocol(link)[0] or link)
            found, path = fsspec.core.url_to_fs(uri, **_options_for(uri, storage_options))
        self._filesystem = found
        self.uri = uri
        self.path = str(path)

    def path_of(self, uri: str) -> str:
        """Return the path of a URI in the file system."""
        return str(self._filesystem._strip_protocol(uri))

    def size(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if the server does not tell it."""
        size = self._call(path, lambda: self._filesystem.info(path).get("size"))
        return None if size is None else int(size)

    def exists(self, path: str) -> bool:
        """Return whether a path exists. Unlike in fsspec's ``exists``, an outage is an error."""
        try:
            self._call(path, lambda: self._filesystem.info(path))
        except FileNotFoundError:
            return False
        return True

    def read(self, path: str) -> bytes:
        """Return a file, with one request."""
        # Without a start, s3fs would first request the size: one more request for each image.
        return self._call(path, lambda: bytes(self._filesystem.cat_file(path, start=0)), b"")

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return a range; only if the file has become shorter than its end, return less."""

        def whole() -> bytes:
            data = bytes(self._filesystem.cat_file(path, start=start, end=end))
            if len(data) != end - start and self._filesystem.info(path).get("size") >= end:
                words = f"the server sent {len(data)} bytes where {end - start} were asked for"
                raise ConnectionError(errno.EIO, words)
            return data

        return self._call(path, whole, b"")

    def find(self, path: str) -> dict[str, dict[str, Any]]:
        """List everything below a folder by its path, with as many requests as that takes."""
        found: dict[str, dict[str, Any]] = self._call(
            path, lambda: self._filesystem.find(path, withdirs=True, detail=True)
        )
        return found

    def glob(self, pattern: str) -> list[str]:
        """List the URIs that match wildcards, in the order of their names."""
        paths = self._call(pattern, lambda: self._filesystem.glob(self.path_of(pattern)))
        return [self._filesystem.unstrip_protocol(path) for path in sorted(paths)]

    def _call(self, path: str, call: Callable[[], _T], past_end: _T | None = None) -> _T:
        """Call, with a retry; turn errors of the server into OSErrors that name the URI."""
        try:
            return retry(call, _is_temporary)
        except FastDecodeError:
            raise
        except Exception as error:
            if past_end is not None and _is_past_end(error):
                return past_end
            if not isinstance(error, OSError) and type(error).__module__ == "builtins":
                raise  # a wrong argument, or a bug
            raise _as_oserror(error, self._display_name(path)) from error

    def _display_name(self, path: str) -> str:
        name = path if "://" in path else str(self._filesystem.unstrip_protocol(path))
        return without_query(name)


def without_query(uri: str) -> str:
    """Remove the query of a URI, in which signed URIs have their secret."""
    return urlsplit(uri)._replace(query="", fragment="").geturl() if "?" in uri else uri


@cache
def _import_filesystem(protocol: str) -> None:
    """Import the file system of a protocol in a thread, where nothing can interrupt the import.

    Ctrl-C, and Ray when it cancels a task, raise KeyboardInterrupt in the main thread. During an
    import it would leave aiohttp half imported, and every later import of s3fs in the process would
    fail.
    """
    with ThreadPoolExecutor(1) as thread, suppress(ValueError):  # `url_to_fs` says what is missing
        thread.submit(fsspec.get_filesystem_class, protocol).result()


def _options_for(uri: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options of a URI's file system, for S3 with `CONNECTIONS` connections."""
    options = dict(given or {})
    if uri.startswith(("s3://", "s3a://")):
        asked = options.get("config_kwargs") or {}
        options["config_kwargs"] = {"max_pool_connections": CONNECTIONS, **asked}
    return options


def _is_forbidden(error: BaseException) -> bool:
    if isinstance(error, PermissionError) or http_status(error) in (401, 403):
        return True
    return not isinstance(error, OSError) and bool(_CREDENTIALS.search(type(error).__name__))


def _is_temporary(error: BaseException) -> bool:
    """Return whether to try again, also after a library's own error unless it forbids access."""
    if isinstance(error, FileNotFoundError):
        cause = error.__cause__
        return cause is not None and not _is_gone(error) and _is_temporary(cause)
    if isinstance(error, OSError) or http_status(error) is not None:
        return is_temporary(error)
    return type(error).__module__ != "builtins" and not _is_forbidden(error)


def _is_gone(error: FileNotFoundError) -> bool:
    """Return whether a FileNotFoundError means that the file is missing.

    fsspec raises one for any error of HTTP, and s3fs for a bucket that is missing.
    """
    cause = error.__cause__
    if cause is None or isinstance(cause, (FileNotFoundError, LookupError)):
        return True
    response = getattr(cause, "response", None)
    if isinstance(response, dict):
        return response.get("Error", {}).get("Code") in _GONE
    return http_status(cause) in (404, 410)


def _is_past_end(error: Exception) -> bool:
    """Return whether the error says that a range begins past the end of the file."""
    return _RANGE_NOT_SATISFIABLE in (http_status(error), http_status(error.__cause__ or error))


def _as_oserror(error: Exception, name: str) -> OSError:
    """Convert any error of a library to the fitting OSError, which names the URI."""
    words = _QUERY.sub(r"\1", " ".join(str(error).split())) or type(error).__name__
    if isinstance(error, FileNotFoundError):
        if _is_gone(error):
            return FileNotFoundError(errno.ENOENT, "No such file or directory", name)
        if isinstance(error.__cause__, Exception):
            return _as_oserror(error.__cause__, name)
    if isinstance(error, OSError) and error.strerror:
        words = error.strerror
    elif not isinstance(error, OSError):
        words = f"{type(error).__name__}: {words}"
    if _is_forbidden(error):
        return PermissionError(errno.EACCES, words, name)
    if isinstance(error, TimeoutError):
        return TimeoutError(errno.ETIMEDOUT, words, name)
    return ConnectionError(errno.EIO, words, name)
