"""Read only regular files; write files atomically, and never over a file of others.

Opening a FIFO would block until another process writes to it, and a device may have no end. So
files are opened without blocking, and the type of the opened file is checked.

What the package writes replaces a file only if that is empty, or begins with the mark of what is
written (see `check_replaceable`). A link is never followed, because its target has another name.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from fastdecode.errors import ImageTooLarge, visible

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_NOCTTY = getattr(os, "O_NOCTTY", 0)
_LARGE = 256 << 20
"""An image file is rarely this large: if the memory does not hold it, that is its own fault."""


class NotRegular(OSError):
    """The path names a FIFO, a socket or a device."""


def open_regular(path: str | os.PathLike[str]) -> io.FileIO:
    """Open a regular file for unbuffered reading; raise `NotRegular` for a FIFO or a device."""
    name = os.fspath(path)
    try:
        file = io.FileIO(name, "rb", opener=_open_nonblocking)
    except ValueError as error:  # a NUL byte, or characters that cannot be encoded
        raise OSError(errno.EINVAL, str(error), name) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        words = "it is a FIFO or a device, not a regular file: save its output to a file"
        raise NotRegular(errno.EINVAL, words, name)
    if _NONBLOCK:
        os.set_blocking(file.fileno(), True)  # else reads from slow media may fail with EAGAIN
    return file


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | _NONBLOCK | _NOCTTY)


def read_regular(path: str | os.PathLike[str]) -> bytes:
    """Read all of a regular file.

    Raises
    ------
    ImageTooLarge
        The memory does not hold this large file, which is an error of that file alone. For a file
        of usual size, a MemoryError passes through.
    """
    with open_regular(path) as file:
        try:
            return file.readall()
        except MemoryError:
            size = os.fstat(file.fileno()).st_size
            words = f"{os.fspath(path)}: there is no memory for its {size:,} bytes"
            raise (ImageTooLarge if size >= _LARGE else MemoryError)(words) from None


def check_result(place: str | os.PathLike[str], option: str, mark: bytes = b"") -> None:
    """Raise a worded OSError if an option's file cannot be written; see `check_replaceable`.

    Users mistype the names of images, lists and stores there. An existing file is not touched.
    """
    target = Path(place)
    try:
        with name_in_errors(place):
            if target.is_dir():
                raise IsADirectoryError("it is a folder")
            if not _is_device(target):
                check_replaceable(target, mark)
                with tempfile.TemporaryFile(dir=target.parent):
                    pass
    except FileExistsError:
        only = "only a file that it has written, and no link" if mark else "no file"
        name = visible(os.fspath(place))
        raise FileExistsError(f"{name} is there already: {option} replaces {only}") from None


def check_replaceable(path: Path, mark: bytes = b"") -> None:
    """Raise a FileExistsError unless there is nothing, or a file that may be replaced.

    That is an empty one, or one that begins with `mark`, as what is written there does. So the user
    may measure, pack or index again, and a mistyped name costs no file.
    """
    if not os.path.lexists(path):
        return
    name = visible(str(path))
    if path.is_symlink():
        raise FileExistsError(f"{name} is a link: remove it, or name a file that is not one")
    if path.is_file():
        with open_regular(path) as file:
            begins = file.read(max(1, len(mark)))
        if not begins or (mark and begins == mark):
            return
    raise FileExistsError(f"{name} is there already: remove it, or choose another place")


def remove_empty_folders(folder: Path) -> None:
    """Remove a folder and the folders in it, except those that hold a file or a link."""
    for path, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            Path(path).rmdir()


def write_bytes(
    path: str | os.PathLike[str], data: bytes, mark: bytes = b"", *, durable: bool = False
) -> None:
    """Write a file atomically: readers see the old file or the whole new one.

    Only a file that is empty or begins with `mark` is replaced; a device or pipe is written to.
    With `durable`, the bytes are on the disk before the file is replaced, so even a crash of the
    machine leaves no partial file.
    """
    target = Path(path)
    if _is_device(target):
        target.write_bytes(data)
        return
    partial = target.with_name(f".{target.name}.{token_hex(4)}")
    try:
        with partial.open("xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        check_replaceable(target, mark)
        partial.replace(target)
    except BaseException as error:  # Ctrl-C, too, must leave no partial file
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:
            error.filename = os.fspath(path)  # not the partial file
        raise


def _is_device(path: Path) -> bool:
    """Return whether a path is a device or pipe, which are written to, not replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()


@contextmanager
def name_in_errors(place: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in errors of writing, in words for the users of a command."""
    try:
        yield
    except FileExistsError:  # it names the file, and the way out
        raise
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{visible(os.fspath(place))} cannot be written: {why}") from error


def sync_file(path: Path) -> None:
    """Write a file's buffered data to the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def sync_folder(path: Path) -> None:
    """Write a file's entry in its folder to the disk."""
    if os.name == "nt":  # Windows cannot open folders, and does not need it
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def folder_locked(folder: Path) -> Iterator[None]:
    """Let no other process or thread into such a block for this folder, where it can be locked."""
    if fcntl is None:
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
