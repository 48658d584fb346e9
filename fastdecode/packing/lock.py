"""A folder that only one process at a time may work in."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["NAME", "Lock", "Locked"]

NAME = "lock"
_TAKEN = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
"""What systems say of a lock that somebody has."""


class Locked(ValueError):
    """Another process works there."""


class Lock:
    """Makes a folder, and keeps other processes out of it for as long as the block runs.

    The system lets go of it when the process ends, in whatever way.

    Parameters
    ----------
    folder : Path

    Raises
    ------
    Locked
        On entering, if another process has it.
    OSError
        On entering, if the folder cannot be made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handle = -1

    def __enter__(self) -> Self:
        path = self._folder / NAME
        while self._handle < 0:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                _lock(handle)
                # Whoever had it may have removed the file, just before this process locked it.
                if path.exists() and os.fstat(handle).st_ino == path.stat().st_ino:
                    self._handle = handle
            except OSError as error:
                if error.errno not in _TAKEN:
                    raise
                raise Locked(f"another process is at work in {self._folder}") from error
            finally:
                if self._handle < 0:
                    os.close(handle)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
        self._handle = -1


def _lock(handle: int) -> None:
    """Take the lock, or raise an OSError."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    import msvcrt

    msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
