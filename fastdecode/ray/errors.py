"""Which errors are about one picture, and how they are told."""

from __future__ import annotations

import errno

from fastdecode.errors import (
    BackendUnavailable,
    DeviceUnavailable,
    FastDecodeError,
    UnknownBackend,
)

__all__ = ["is_the_pictures", "reason_of", "with_path"]

_CALLERS_FAULT = (UnknownBackend, BackendUnavailable, DeviceUnavailable)
# The task has run out of something: the next picture would fare no better.
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def is_the_pictures(error: BaseException) -> bool:
    """Whether an error is about one picture, and not about the job or the machine."""
    if not isinstance(error, (FastDecodeError, OSError)) or isinstance(error, _CALLERS_FAULT):
        return False
    return not (isinstance(error, OSError) and error.errno in _EXHAUSTED)


def reason_of(error: Exception) -> str:
    """Say what is wrong, for a column."""
    return f"{type(error).__name__}: {error}"


def with_path(error: Exception, path: str) -> Exception:
    """Name the picture in an error, unless it does so already."""
    named = path and path not in str(error)
    if named and not isinstance(error, OSError) and error.args:
        error.args = (f"{path}: {error.args[0]}", *error.args[1:])
    return error
