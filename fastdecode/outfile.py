"""Results in files: found out beforehand whether they can be written, then all or nothing.

A place may be in a folder that others write to. A link that another user has put there is not
followed: it would have this process replace a file of its own user's that nobody named.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fastdecode.files import NotRegular, open_regular

__all__ = ["check", "read", "write"]

_T = TypeVar("_T")

_MOST_LINKS = 40
_MOST_BYTES = 64 << 20
"""No result is so large; reading more would only fill the memory."""


def check(path: str | os.PathLike[str], *, parents: bool = False) -> None:
    """Make sure that a file can be written, without touching what is there.

    Parameters
    ----------
    path : path
    parents : bool
        Make the folders that it is to be in.

    Raises
    ------
    OSError
        If it cannot.
    """
    target = Path(path)
    place = _followed(target)
    if _is_special(target):
        return
    if target.is_dir():
        raise IsADirectoryError("it is a folder")
    if parents:
        target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=place.parent):
        pass


def write(path: str | os.PathLike[str], text: str, *, follow: bool = True) -> None:
    """Write a file: all of it, or nothing.

    Parameters
    ----------
    path : path
    text : str
    follow : bool
        A link stays one, and what it leads to is replaced; a device or a pipe is written to.
        Otherwise whatever is there is replaced itself.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    target = Path(path)
    if follow:
        place = _followed(target)
        if _is_special(target):
            target.write_text(text, encoding="utf-8")
            return
        target = place
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o666 & ~_umask())  # as open() would; mkstemp lets nobody else read
        Path(name).replace(target)
    except BaseException:  # Ctrl-C included: no half of a file is left behind
        Path(name).unlink(missing_ok=True)
        raise


def read(
    path: str | os.PathLike[str], make: Callable[[str], _T], damaged: str, *, own: bool = False
) -> _T:
    """Read what `write` wrote.

    Parameters
    ----------
    path : path
    make : callable
        Makes of the text what it stands for; what it raises over a wrong one is an error here.
    damaged : str
        What is wrong then, in words that follow the file's name.
    own : bool
        Nobody named the file: it is believed only if it is this user's, or the system's.

    Returns
    -------
    object
        What `make` gives.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is damaged, or another user's; the message names the file.
    """
    source = Path(path)
    try:
        with io.BufferedReader(open_regular(source)) as file:
            user = os.fstat(file.fileno()).st_uid
            data = file.read(_MOST_BYTES + 1)
    except (NotRegular, IsADirectoryError) as error:
        raise ValueError(f"{source} {damaged}: {error.strerror}") from error
    if own and not _is_trusted(user):
        raise ValueError(f"{source} belongs to another user, and nobody named it: remove it")
    if len(data) > _MOST_BYTES:
        raise ValueError(f"{source} {damaged}: it has more than {_MOST_BYTES} bytes")
    try:
        return make(data.decode("utf-8"))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{source} {damaged}: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{source} {damaged}: it is nested too deeply") from error


def _followed(path: Path) -> Path:
    """Return where a file really is, or is to be.

    Raises
    ------
    OSError
        If links lead round, or one of them is another user's.
    """
    place = path
    for _ in range(_MOST_LINKS):
        folder = Path(os.path.realpath(place.parent))
        place = folder / place.name
        try:
            status = place.lstat()
        except FileNotFoundError:
            return place
        if not stat.S_ISLNK(status.st_mode):
            return place
        # The system's own rule for folders that all may write to: protected_symlinks of proc(5).
        if not _is_trusted(status.st_uid) and status.st_uid != folder.stat().st_uid:
            raise PermissionError(
                errno.EPERM, "it is a link that another user has put there", os.fspath(path)
            )
        place = folder / place.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))


def _is_trusted(user: int) -> bool:
    """Whether a file is this user's, or the system's."""
    return not hasattr(os, "geteuid") or user in (os.geteuid(), 0)


def _is_special(path: Path) -> bool:
    """Whether it is a device or a pipe: these are written to, not replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _umask() -> int:
    """Return the bits of permission that new files lack; asking means setting."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
