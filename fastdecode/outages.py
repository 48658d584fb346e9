"""An outage is not damage: which errors `on_error` may pass over, which are tried again.

The policy of the whole package, for folders, stores, shards, URIs, Ray, `decode_batch`, ``check``
and ``pack``: only what is wrong with one item's bytes, or one item that is missing, may be left
out. Errors of reaching the data (permission, connection, time-out, server, disk, credentials) are
tried again where that helps, and then raised whatever `on_error` says; so are errors of a whole
store, shard or folder. Otherwise a data set would shrink, in the middle of an epoch, by all that
could not be reached, and each loss would look like a damaged file.
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
    UnknownBackend,
)

__all__ = [
    "ITEM_ERRORS",
    "holds_anything",
    "http_status",
    "is_the_items",
    "of_the_whole",
    "passes",
    "retried",
    "told_if_vanished",
    "tried_again",
]

ITEM_ERRORS = (FastDecodeError, OSError)
"""What can be about one item; `is_the_items` tells whether it is."""

_T = TypeVar("_T")
_CALLERS_FAULT = (UnknownBackend, BackendUnavailable, DeviceUnavailable)
_MISSING = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
_NO_SUCH_FILE = (404, 410)
_TRY_LATER = (408, 425, 429, 500, 502, 503, 504)


def _numbers(*names: str) -> frozenset[int]:
    """Return the errno values that this system has."""
    return frozenset(getattr(errno, name) for name in names if hasattr(errno, name))


# No file can have the name, or what has it is no regular file: a socket, a loop of links.
_OF_ITS_NAME = _numbers("EINVAL", "ELOOP", "ENAMETOOLONG", "EILSEQ", "ENODEV", "ENXIO")
_PASSING = _numbers(
    *("EAGAIN", "EBUSY", "EHOSTDOWN", "EHOSTUNREACH", "EINTR", "EIO", "ENETDOWN", "ENETRESET"),
    *("ENETUNREACH", "EREMOTEIO", "ESTALE", "ETIMEDOUT"),
)
_WAITS_S = (0.2, 0.4, 0.8, 1.6, 3.2, 6.4)
"""How long to wait before each further attempt: a server that starts anew is back by then."""

_PATIENCE_S = 30.0
"""When not to begin another attempt: libraries that try again by themselves take their time."""


def is_the_items(error: BaseException) -> bool:
    """Whether an error, and all that it was raised from, is about one item: damaged, or missing."""
    if not isinstance(error, ITEM_ERRORS) or isinstance(error, _CALLERS_FAULT):
        return False
    one: BaseException | None = error
    while one is not None:
        if getattr(one, "of_the_whole", False) or (isinstance(one, OSError) and not _is_one(one)):
            return False
        one = one.__cause__
    return True


def of_the_whole(error: _T) -> _T:
    """Mark an error as one of a whole store, shard or folder: no item of it can be had."""
    error.of_the_whole = True  # type: ignore[attr-defined]
    return error


def told_if_vanished(error: BaseException, folder: str, *, listed: bool = False) -> None:
    """Mark the error of a missing file, and say so in it, if the folder that held it is gone, too.

    `listed`: the files were found by looking through it, so that each file's own folder was there.
    """
    if not folder or not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return
    name = error.filename if isinstance(error.filename, str) else ""
    own = Path(name).parent if listed and name else Path(folder)
    if own.is_dir() and holds_anything(folder):
        return
    error.strerror = (
        f"{error.strerror or error}, because its folder is not there any more: has a drive been "
        "unmounted, or the folder moved?"
    )
    of_the_whole(error)


def holds_anything(folder: str) -> bool:
    """Whether a local folder is there, and not empty, as one is without the drive mounted on it."""
    return Path(folder).is_dir() and any(Path(folder).iterdir())


def passes(error: BaseException) -> bool:
    """Whether what went wrong may go well a moment later, by what the error is and says."""
    status = http_status(error)
    if status is not None:
        return status in _TRY_LATER
    if isinstance(error, (ConnectionError, TimeoutError, socket.gaierror)):
        return True
    return isinstance(error, OSError) and error.errno in _PASSING


def retried(call: Callable[[], _T], passing: Callable[[BaseException], bool] = passes) -> _T:
    """Call, and for half a minute call again what fails by an error that passes."""
    begun = time.monotonic()
    for wait in _WAITS_S:
        try:
            return call()
        except Exception as error:
            if not passing(error) or time.monotonic() - begun > _PATIENCE_S:
                raise
        # Not all at once: a server that comes back should not meet every reader in one moment.
        time.sleep(wait * random.uniform(0.5, 1.0))  # noqa: S311 - it guards nothing
    return call()


def tried_again(read: Callable[[str], _T]) -> Callable[[str], _T]:
    """Let a function of a path be called as by `retried`; its errors name the path."""

    @wraps(read)
    def several_times(path: str) -> _T:
        try:
            return retried(partial(read, path))
        except OSError as error:
            if error.errno is not None and error.filename is None:  # reading, unlike opening
                error.filename = path
            raise

    return several_times


def http_status(error: BaseException) -> int | None:
    """Return the status of HTTP in an error of any library; None if it has none."""
    response: Any = getattr(error, "response", None)
    if isinstance(response, dict):  # of botocore
        return _as_status(response.get("ResponseMetadata", {}).get("HTTPStatusCode"))
    for owner, name in ((error, "status"), (error, "status_code"), (response, "status_code")):
        status = _as_status(getattr(owner, name, None))
        if status is not None:
            return status
    # Last, because aiohttp warns of whoever asks for it.
    return _as_status(getattr(error, "code", None))


def _as_status(number: object) -> int | None:
    try:
        status = int(number)  # type: ignore[call-overload]  # gcsfs has it as a text
    except (TypeError, ValueError):
        return None
    return status if 100 <= status <= 599 else None


def _is_one(error: OSError) -> bool:
    """Whether an OSError says that one file is missing, or is none, or has bytes that are wrong."""
    if isinstance(error, _MISSING) or http_status(error) in _NO_SUCH_FILE:
        return True
    if error.errno is not None:
        return error.errno in _OF_ITS_NAME
    # No call of the system has failed: Pillow says so of what it cannot read.
    return type(error) is OSError or type(error).__module__.partition(".")[0] == "PIL"
