"""Read only regular files, and replace files atomically.

Opening a FIFO would block until another process writes to it, and a device may have no end. So
files are opened without blocking, and the type of the opened file is checked.
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


def check_writable(path: str | os.PathLike[str], *, parents: bool = False) -> None:
    """Raise an OSError if a file cannot be written; an existing file is not touched."""
    target = Path(path)
    if target.is_dir():
        raise IsADirectoryError("it is a folder")
    if not _is_device(target):
        folder = Path(os.path.realpath(target)).parent
        if parents:
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass


def check_result(
    place: str | os.PathLike[str], option: str, suffix: str = "", *, parents: bool = False
) -> None:
    """Raise a worded OSError if an option's file cannot be written without losing another file.

    Users mistype the names of images, lists and stores there. So an existing file is replaced only
    if it is empty, or has the suffix of what the option writes.
    """
    with name_in_errors(place):
        check_writable(place, parents=parents)
    path = Path(place)
    kept = path.is_file() and path.stat().st_size  # a device is written to, not replaced
    if kept and not (suffix and path.suffix.lower() == suffix):
        only = f"only a {suffix} file" if suffix else "no file"
        raise FileExistsError(f"{visible(str(path))} is there already: {option} replaces {only}")


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file in UTF-8, atomically; see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: str | os.PathLike[str], data: bytes, *, durable: bool = False) -> None:
    """Write a file atomically: readers see the old file or the whole new one.

    A symbolic link stays, and its target is replaced; a device or pipe is written to. With
    `durable`, the bytes are on the disk before the file is replaced, so even a crash of the machine
    leaves no partial file.
    """
    if _is_device(Path(path)):
        Path(path).write_bytes(data)
        return
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name}.{token_hex(4)}")
    try:
        with partial.open("xb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        partial.replace(target)
    except BaseException as error:  # Ctrl-C, too, must leave no partial file
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
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
