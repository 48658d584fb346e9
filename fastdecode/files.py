"""Opening files that others have named: regular ones only.

A FIFO holds up whoever opens it until somebody writes to it, a device may have no end, and either
may have taken the place of a file since that was listed. So files are opened without waiting, and
what was opened is asked what it is, not the name.
"""

from __future__ import annotations

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["NotRegular", "open_regular", "read_regular", "reopened"]

_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_NOCTTY = getattr(os, "O_NOCTTY", 0)
_KINDS = {
    stat.S_IFIFO: "a FIFO (a pipe)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_WAY_OUT = "save what it gives to a file, and name that"


class NotRegular(OSError):
    """What has that name is a FIFO, a socket or a device."""


def open_regular(path: str | os.PathLike[str], *, way_out: str = _WAY_OUT) -> io.FileIO:
    """Open a regular file for reading, without a buffer.

    Parameters
    ----------
    path : str or PathLike
        Links are followed.
    way_out : str
        What somebody is to do who has named a FIFO on purpose, in the words of an order.

    Returns
    -------
    file

    Raises
    ------
    NotRegular
        If it is a FIFO, a socket or a device.
    OSError
        If it cannot be opened (a folder cannot), or there can be no file of that name.
    """
    name = os.fspath(path)
    try:
        file = io.FileIO(name, "rb", opener=_without_waiting)
    except OSError as error:
        if error.errno == errno.ENXIO:  # what a socket answers
            raise _irregular(name, os.stat(name).st_mode, way_out) from error  # noqa: PTH116
        raise
    except ValueError as error:  # a NUL byte, or letters that no file name can have here
        raise OSError(errno.EINVAL, str(error), name) from error
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise _irregular(name, mode, way_out)
    if _NONBLOCK:
        os.set_blocking(file.fileno(), True)  # else one on a tape may answer "try again"
    return file


def read_regular(path: str | os.PathLike[str], *, way_out: str = _WAY_OUT) -> bytes:
    """Read all of a regular file; see `open_regular`."""
    with open_regular(path, way_out=way_out) as file:
        return file.readall()


@contextmanager
def reopened(path: str | os.PathLike[str]) -> Iterator[str]:
    """Hold a regular file open, and give a name for it to a library that opens files by name.

    Under that name the library finds the very file that was looked at, where the system has such
    names (Linux has), whatever becomes of `path` meanwhile.
    """
    with open_regular(path) as file:
        name = f"/proc/self/fd/{file.fileno()}"
        yield name if os.path.exists(name) else os.fspath(path)  # noqa: PTH110 - as in `path`


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | _NONBLOCK | _NOCTTY)


def _irregular(name: str, mode: int, way_out: str) -> NotRegular:
    kind = _KINDS.get(stat.S_IFMT(mode), "something else")
    return NotRegular(errno.EINVAL, f"it is {kind}, not a regular file: {way_out}", name)
