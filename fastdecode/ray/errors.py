"""Which errors are about one picture, and how they are told."""

from __future__ import annotations

from fastdecode.outages import is_the_items as is_the_pictures

__all__ = ["is_the_pictures", "reason_of", "with_path"]


def reason_of(error: Exception) -> str:
    """Say what is wrong, for a column."""
    return f"{type(error).__name__}: {error}"


def with_path(error: Exception, path: str) -> Exception:
    """Name the picture in an error, unless it does so already."""
    named = path and path not in str(error)
    if named and not isinstance(error, OSError) and error.args:
        error.args = (f"{path}: {error.args[0]}", *error.args[1:])
    return error
