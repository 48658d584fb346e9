"""The folder for what a pack has not finished: its own, and one process's at a time.

Its name is known beforehand, and the folder that it lies in may be everybody's. What is found in
it is believed, moved and removed, so that none of it may be a link, another user's, or a second
name of a file elsewhere: whoever plants one would have this process do that to files of its own.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["NAME", "Lock", "Locked", "Refused", "check_own", "open_own"]


try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


NAME = "lock"
_TAKEN = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
"""What systems say of a lock that somebody has."""

_TRIES = 1000
_BY_FOLDER = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class Refused(ValueError):
    """What is there is not a pack of this user's that can go on so."""


class Locked(ValueError):
    """Another process works there."""


class Lock:
    """Makes a folder, and keeps other processes out of it for as long as the block runs.

    The system releases it when the process ends, in whatever way.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._handle = -1

    def __enter__(self) -> Self:
        for left in reversed(range(_TRIES)):
            try:
                if self._hold():
                    return self
            except FileNotFoundError:  # whoever had it has ended, and removed the folder
                if not left:
                    raise
        raise Locked(f"other processes come and go in {self._folder}")

    def _hold(self) -> bool:
        """Take the lock; return False if whoever had it has removed its file meanwhile."""
        with suppress(FileExistsError):  # an earlier pack's, say: what it is will be seen
            self._folder.mkdir(mode=0o700, parents=True)
        path = self._folder / NAME
        handle = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            _lock(handle)
            if os.path.samestat(os.fstat(handle), path.lstat()):
                self._check_contents()
                self._handle = handle
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            raise Locked(f"another process is at work in {self._folder}") from error
        finally:
            if self._handle < 0:
                os.close(handle)
        return self._handle >= 0

    def _check_contents(self) -> None:
        """Check all that will be believed, moved or removed, before any of it is."""
        with os.scandir(self._folder) as entries:
            for entry in entries:
                check_own(Path(entry.path), os.lstat(entry.path))

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
        self._handle = -1


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file in the folder of a pack, as the ``opener`` of `open`."""
    path = Path(path)
    folder = _open_folder(path.parent)
    try:
        if folder < 0 and path.is_symlink():
            raise _refused(path, "is a link")
        name = path.name if folder >= 0 else os.fspath(path)
        try:
            where = folder if folder >= 0 else None
            handle = os.open(name, flags | _SAFE, 0o666, dir_fd=where)
        except OSError as error:
            # Of a link, and (ENXIO) of a pipe or a socket that nobody reads.
            if error.errno not in (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.EISDIR):
                raise
            raise _refused(path, "is a link, or no regular file") from error
    finally:
        if folder >= 0:
            os.close(folder)
    try:
        check_own(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def _open_folder(path: Path) -> int:
    """Open the folder itself, so that what is opened in it is; -1 where systems cannot do that."""
    if not _BY_FOLDER:
        if path.is_symlink():
            raise _refused(path, "is a link")
        return -1
    try:
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _SAFE)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR):
            raise
        raise _refused(path, "is a link, or no folder") from error
    try:
        check_own(path, os.fstat(folder))
    except BaseException:
        os.close(folder)
        raise
    return folder


def check_own(path: Path, status: os.stat_result) -> None:
    """Refuse a file or folder that is not this user's alone."""
    if stat.S_ISLNK(status.st_mode):
        raise _refused(path, "is a link")
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise _refused(path, "is no regular file")
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise _refused(path, "is a second name of another file (a hard link)")
    if not _is_mine(path, status.st_uid):
        raise _refused(path, "belongs to another user")


def _is_mine(path: Path, user: int) -> bool:
    """Whether files of this process belong to that user there."""
    if not hasattr(os, "geteuid") or user == os.geteuid():
        return True
    try:  # some network and container file systems give all files to one user
        with tempfile.TemporaryFile(dir=path.parent) as file:
            return os.fstat(file.fileno()).st_uid == user
    except OSError:
        return False


def _refused(path: Path, what: str) -> Refused:
    return Refused(
        f"{path} {what}: somebody else may have put it there, so that nothing in it is believed; "
        "remove it, or choose another place"
    )


def _lock(handle: int) -> None:
    """Take the lock at once, or raise an OSError."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    import msvcrt

    msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
