"""The partial folder of a pack: locked by one process at a time, and protected from other users.

The name of the folder can be guessed, and every user may be able to write to its parent. A pack
trusts, moves and removes what it finds in there. So nothing in it may be a link, a hard link or a
file of another user: with one, another user could make this process change its own files elsewhere.
"""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


NAME = "lock"
_TAKEN = (errno.EAGAIN, errno.EACCES, errno.EDEADLK)
"""Errors of systems for a lock that another process holds."""

_TRIES = 1000
_NOT_OWN = (errno.ELOOP, errno.EMLINK, errno.ENOTDIR, errno.ENXIO, errno.EISDIR)
"""Errors of systems for a link, and (ENXIO) for a pipe or a socket that nobody reads."""

_BY_FOLDER = os.open in os.supports_dir_fd and hasattr(os, "O_DIRECTORY")
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0)
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class CannotResume(ValueError):
    """An earlier pack that this user cannot resume like this."""


class AlreadyLocked(ValueError):
    """Another process works in the folder."""


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make a folder, and lock it against other processes while the block runs.

    The system releases the lock when the process ends, even if it is killed.
    """
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):  # the process that had it has removed the folder
            held = _acquire(folder)
            if held is not None:
                break
    else:
        raise AlreadyLocked(f"other processes keep using {folder}")
    with held:
        yield


def _acquire(folder: Path) -> ExitStack | None:
    """Take the lock; return None if the process that had it has removed the file meanwhile."""
    with suppress(FileExistsError):  # may be that of an earlier pack; it is checked below
        folder.mkdir(mode=0o700, parents=True)
    path = folder / NAME
    with ExitStack() as stack:
        handle = open_own(path, os.O_RDWR | os.O_CREAT)
        stack.callback(os.close, handle)
        try:
            _lock(handle)
        except OSError as error:
            if error.errno not in _TAKEN:
                raise
            raise AlreadyLocked(f"another process is at work in {folder}") from error
        if not os.path.samestat(os.fstat(handle), path.lstat()):
            return None
        # Check everything before any of it is trusted, moved or removed.
        for found in folder.iterdir():
            check_own(found, found.lstat())
        return stack.pop_all()


def open_own(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file in the folder of a pack, as the ``opener`` of `open`."""
    path = Path(path)
    if not _BY_FOLDER:
        for each in (path.parent, path):
            if each.is_symlink():
                raise _foreign_error(each, "is a link")
        return _open_checked(path, path, flags, "is not a regular file")
    folder = _open_checked(path.parent, path.parent, _FOLDER, "is a link, or not a folder")
    try:
        # In the folder that was checked, even if its name leads to another one meanwhile.
        return _open_checked(path, path.name, flags, "is a link, or not a regular file", folder)
    finally:
        os.close(folder)


def _open_checked(
    path: Path, name: str | Path, flags: int, what: str, folder: int | None = None
) -> int:
    try:
        handle = os.open(name, flags | _SAFE, 0o666, dir_fd=folder)
    except OSError as error:
        if error.errno not in _NOT_OWN:
            raise
        raise _foreign_error(path, what) from error
    try:
        check_own(path, os.fstat(handle))
    except BaseException:
        os.close(handle)
        raise
    return handle


def check_own(path: Path, status: os.stat_result) -> None:
    """Refuse anything but a file or folder that belongs to this user alone."""
    if stat.S_ISLNK(status.st_mode):
        raise _foreign_error(path, "is a link")
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise _foreign_error(path, "is not a regular file")
    if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
        raise _foreign_error(path, "is a second name of another file (a hard link)")
    if not _is_mine(path, status.st_uid):
        raise _foreign_error(path, "belongs to another user")


def _is_mine(path: Path, user: int) -> bool:
    """Return whether files that this process creates there belong to that user."""
    if not hasattr(os, "geteuid") or user == os.geteuid():
        return True
    try:  # some network and container file systems give all files to one user
        with tempfile.TemporaryFile(dir=path.parent) as file:
            return os.fstat(file.fileno()).st_uid == user
    except OSError:
        return False


def _foreign_error(path: Path, what: str) -> CannotResume:
    return CannotResume(
        f"{path} {what}: another user may have put it there, so it is not trusted; remove it, or "
        "choose another place"
    )


def _lock(handle: int) -> None:
    """Take the lock without waiting, or raise an OSError."""
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return
    import msvcrt

    msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
