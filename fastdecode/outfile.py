"""Results in files: found out beforehand whether they can be written, then all or nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from fastdecode.files import NotRegular, read_regular

__all__ = ["check", "read", "write"]

_T = TypeVar("_T")


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
    if _is_special(target):
        return
    if target.is_dir():
        raise IsADirectoryError("it is a folder")
    if parents:
        target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=target.resolve().parent):
        pass


def write(path: str | os.PathLike[str], text: str) -> None:
    """Write a file: all of it, or nothing. A link stays one.

    Parameters
    ----------
    path : path
    text : str

    Raises
    ------
    OSError
        If it cannot be written.
    """
    target = Path(path)
    if _is_special(target):
        target.write_text(text, encoding="utf-8")
        return
    target = target.resolve()
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o666 & ~_umask())  # as open() would; mkstemp lets nobody else read
        Path(name).replace(target)
    except BaseException:  # Ctrl-C included: no half of a file is left behind
        Path(name).unlink(missing_ok=True)
        raise


def read(path: str | os.PathLike[str], make: Callable[[str], _T], damaged: str) -> _T:
    """Read what `write` wrote.

    Parameters
    ----------
    path : path
    make : callable
        Makes of the text what it stands for; what it raises over a wrong one is an error here.
    damaged : str
        What is wrong then, in words that follow the file's name.

    Returns
    -------
    object
        What `make` gives.

    Raises
    ------
    OSError
        If it cannot be read.
    ValueError
        If it is damaged; the message names the file.
    """
    source = Path(path)
    try:
        return make(read_regular(source).decode())
    except (NotRegular, IsADirectoryError) as error:
        raise ValueError(f"{source} {damaged}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{source} {damaged}: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{source} {damaged}: it is nested too deeply") from error


def _is_special(path: Path) -> bool:
    """Whether it is a device or a pipe: these are written to, not replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _umask() -> int:
    """Return the bits of permission that new files lack; asking means setting."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
