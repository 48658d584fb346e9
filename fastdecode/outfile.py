"""Writing results to files: found out beforehand whether it can be done, then all or nothing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

__all__ = ["check", "write"]


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


def _is_special(path: Path) -> bool:
    """Whether it is a device or a pipe: these are written to, not replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _umask() -> int:
    """Return the bits of permission that new files lack; asking means setting."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
