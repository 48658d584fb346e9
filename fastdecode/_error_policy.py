"""Tell outages from damage: which errors `on_error` may handle, and which are retried.

One policy holds for the whole package: folders, stores, shards, URIs, Ray, `decode_batch`,
``check`` and ``pack``. `on_error` may skip an item only if its bytes are damaged or if it is
missing. Errors of access (permission, connection, time-out, server, disk, credentials) are retried
where that helps, and then raised whatever `on_error` says; so are errors of a whole store, shard or
folder. Otherwise an outage in the middle of an epoch would silently shrink the data set, and each
item that could not be reached would look like a damaged file.
"""

from __future__ import annotations

import errno
import random
import socket
import time
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any, TypeVar

from fastdecode.errors import (
    BackendUnavailable,
    DeviceUnavailable,
    FastDecodeError,
    ThreadsUnavailable,
    UnknownBackend,
)

ITEM_ERRORS = (FastDecodeError, OSError)
"""Errors that may concern a single item; `is_item_error` decides whether one does."""

_T = TypeVar("_T")
_CALLER_ERRORS = (UnknownBackend, BackendUnavailable, DeviceUnavailable, ThreadsUnavailable)
_MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_MISSING_STATUSES = (404, 410)
_TEMPORARY_STATUSES = (408, 425, 429, 500, 502, 503, 504)


def _errnos(*names: str) -> frozenset[int]:
    """Return the errno values that this system has."""
    return frozenset(getattr(errno, name) for name in names if hasattr(errno, name))


# The name is impossible for a file, or names something else: a socket, a loop of links.
_NAME_ERRNOS = _errnos("EINVAL", "ELOOP", "ENAMETOOLONG", "EILSEQ", "ENODEV", "ENXIO")
_TEMPORARY_ERRNOS = _errnos(
    *("EAGAIN", "EBUSY", "EHOSTDOWN", "EHOSTUNREACH", "EINTR", "EIO", "ENETDOWN", "ENETRESET"),
    *("ENETUNREACH", "EREMOTEIO", "ESTALE", "ETIMEDOUT"),
)
_WAIT_S = 1.0
"""Wait at most this long before the second attempt; libraries for S3 and GCS try more often."""


def is_item_error(error: BaseException) -> bool:
    """Return whether an error and all its causes concern one item that is damaged or missing."""
    if not isinstance(error, ITEM_ERRORS) or isinstance(error, _CALLER_ERRORS):
        return False
    one: BaseException | None = error
    while one is not None:
        if getattr(one, "is_fatal", False) or (
            isinstance(one, OSError) and not _is_about_file(one)
        ):
            return False
        one = one.__cause__
    return True


def mark_fatal(error: _T) -> _T:
    """Mark an error as one of a whole store, shard or folder, and return it."""
    error.is_fatal = True  # type: ignore[attr-defined]
    return error


def mark_if_folder_vanished(error: BaseException, folder: str, *, listed: bool = False) -> None:
    """If a missing file's folder is gone too, say so in the error and mark it fatal.

    `listed` means that the files were found by a scan, so each file's own folder existed.
    """
    if not folder or not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return
    name = error.filename if isinstance(error.filename, str) else ""
    own = Path(name).parent if listed and name else Path(folder)
    if own.is_dir() and has_files(folder):
        return
    error.strerror = (
        f"{error.strerror or error}, because its folder is not there any more: has a drive been "
        "unmounted, or the folder moved?"
    )
    mark_fatal(error)


def has_files(folder: str) -> bool:
    """Return whether a local folder exists and is not empty; an unmounted drive leaves it empty."""
    return Path(folder).is_dir() and any(Path(folder).iterdir())


def is_temporary(error: BaseException) -> bool:
    """Return whether the error is temporary, so that another attempt may succeed."""
    status = http_status(error)
    if status is not None:
        return status in _TEMPORARY_STATUSES
    if isinstance(error, (ConnectionError, TimeoutError, socket.gaierror)):
        return True
    return isinstance(error, OSError) and error.errno in _TEMPORARY_ERRNOS


def retry(call: Callable[[], _T], temporary: Callable[[BaseException], bool] = is_temporary) -> _T:
    """Call a function, and once more after a temporary error."""
    try:
        return call()
    except Exception as error:
        if not temporary(error):
            raise
    # Spread the attempts: a server that comes back should not get all readers at once.
    time.sleep(_WAIT_S * random.uniform(0.5, 1.0))  # noqa: S311 - not for security
    return call()


def with_retry(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """Wrap a function of a path in `retry`, and name the path in its errors."""

    @wraps(read)
    def twice(path: str) -> _T:
        try:
            return retry(partial(read, path))
        except OSError as error:
            # Errors of reading, unlike those of opening, do not name the file.
            if error.errno is not None and error.filename is None:
                error.filename = path
            raise

    return twice


def http_status(error: BaseException) -> int | None:
    """Return the HTTP status that an error of any library carries, or None."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore's errors
        return _as_status(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    for owner, name in ((error, "status"), (error, "status_code"), (response, "status_code")):
        status = _as_status(getattr(owner, name, None))
        if status is not None:
            return status
    # Read `code` last, because aiohttp deprecates it with a warning.
    return _as_status(getattr(error, "code", None))


def _as_status(number: object) -> int | None:
    try:
        status = int(number)  # type: ignore[call-overload]  # a string in gcsfs
    except (TypeError, ValueError):
        return None
    return status if 100 <= status <= 599 else None


def _is_about_file(error: OSError) -> bool:
    """Return whether an OSError concerns one file: missing, not a regular file, or damaged."""
    if isinstance(error, _MISSING) or http_status(error) in _MISSING_STATUSES:
        return True
    if error.errno is not None:
        return error.errno in _NAME_ERRNOS
    # Without an errno, no system call failed: Pillow raises such errors for damaged images.
    return type(error) is OSError or type(error).__module__.partition(".")[0] == "PIL"
