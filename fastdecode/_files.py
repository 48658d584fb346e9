"""Read only regular files, and write files atomically.

Opening a FIFO blocks until another process writes to it, a device may have no end, and either may
have replaced a file since it was listed. So files are opened without blocking, and the type of the
opened file is checked, not that of the name.

The commands check before their work that they can write the result. A folder may be writable for
others: a symbolic link of another user is not followed, because it could make this process
replace one of its own user's files.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from fastdecode._headers import probe
from fastdecode.errors import FastDecodeError, ImageTooLarge, UnsupportedFormat, visible

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_NOCTTY = getattr(os, "O_NOCTTY", 0)
_KINDS = {
    stat.S_IFIFO: "a FIFO (a pipe)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
ADVICE = "save its output to a file, and name that file"
_MAX_LINKS = 40
_PROBE_BYTES = 1 << 16
_MAX_BYTES = 64 << 20
"""No result file is larger; reading more would only fill the memory."""

_LARGE = 256 << 20
"""Image files are rarely this large: the header of such a file is checked before it is read."""

_HEAD_BYTES = 1 << 20

_T = TypeVar("_T")


class NotRegular(OSError):
    """The path names a FIFO, a socket or a device."""


def open_regular(path: str | os.PathLike[str], *, advice: str = ADVICE) -> io.FileIO:
    """Open a regular file for unbuffered reading; raise `NotRegular` for anything else.

    `advice` is an imperative for the message: what users do who named a FIFO on purpose.
    """
    name = os.fspath(path)
    try:
        file = io.FileIO(name, "rb", opener=_open_nonblocking)
    except OSError as error:
        if error.errno == errno.ENXIO:  # it is a socket
            raise _not_regular(name, os.stat(name).st_mode, advice) from error  # noqa: PTH116
        raise
    except ValueError as error:  # a NUL byte, or characters that cannot be encoded
        raise OSError(errno.EINVAL, str(error), name) from error
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        raise _not_regular(name, mode, advice)
    if _NONBLOCK:
        os.set_blocking(file.fileno(), True)  # else reads from slow media may fail with EAGAIN
    return file


def read_regular(path: str | os.PathLike[str], *, advice: str = ADVICE) -> bytes:
    """Read all of a regular file; see `open_regular`."""
    with open_regular(path, advice=advice) as file:
        return file.readall()


def read_image(path: str | os.PathLike[str], *, advice: str = ADVICE) -> bytes:
    """Read all of a file that should be an image; see `open_regular`.

    A large file that is not an image, or does not fit into memory, raises a `FastDecodeError`: an
    error of that file alone. For a file of usual size, a MemoryError passes through.
    """
    with open_regular(path, advice=advice) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            if size >= _LARGE:
                _check_head(file, size)
            return file.readall()
        except MemoryError:
            words = f"{os.fspath(path)}: there is no memory for its {size:,} bytes"
            raise (ImageTooLarge if size >= _LARGE else MemoryError)(words) from None


def _check_head(file: io.FileIO, size: int) -> None:
    """Raise if the first bytes are not those of an image; decoding reports all other damage."""
    try:
        probe(file.read(_HEAD_BYTES))
    except UnsupportedFormat:
        words = "and it is not an image that fastdecode or Pillow knows"
        raise UnsupportedFormat(f"{file.name}: it has {size:,} bytes, {words}") from None
    except FastDecodeError:  # the header may be longer than what was read
        pass
    file.seek(0)


@contextmanager
def stable_name(path: str | os.PathLike[str]) -> Iterator[str]:
    """Hold a regular file open, and yield a name for libraries that open files by name.

    On Linux that name leads to the very file that was checked, even if `path` is replaced in the
    meantime. Elsewhere it is `path`.
    """
    with open_regular(path) as file:
        name = f"/proc/self/fd/{file.fileno()}"
        yield name if os.path.exists(name) else os.fspath(path)  # noqa: PTH110 - as in `path`


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | _NONBLOCK | _NOCTTY)


def _not_regular(name: str, mode: int, advice: str) -> NotRegular:
    kind = _KINDS.get(stat.S_IFMT(mode), "something else")
    return NotRegular(errno.EINVAL, f"it is {kind}, not a regular file: {advice}", name)


def check_writable(path: str | os.PathLike[str], *, parents: bool = False) -> None:
    """Raise an OSError if a file cannot be written; an existing file is not touched."""
    target = Path(path)
    place = _resolve(target)
    if _is_special(target):
        return
    if target.is_dir():
        raise IsADirectoryError("it is a folder")
    if parents:
        target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=place.parent) as file:
        file.write(bytes(_PROBE_BYTES))  # a full disk still allows empty files
        file.flush()


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


def write_text(path: str | os.PathLike[str], text: str, *, follow: bool = True) -> None:
    """Write a text file in UTF-8, atomically; see `write_bytes`."""
    write_bytes(path, text.encode(), follow=follow)


def write_bytes(
    path: str | os.PathLike[str], data: bytes, *, follow: bool = True, durable: bool = False
) -> None:
    """Write a file atomically: readers see the old file or the whole new one.

    With `follow`, a symbolic link stays and its target is replaced; a device or pipe is written to.
    Without it, whatever has the name is replaced itself. With `durable`, the bytes are on the disk
    before the file is replaced, so even a crash of the machine leaves no partial file.
    """
    target = Path(path)
    if follow:
        place = _resolve(target)
        if _is_special(target):
            try:
                target.write_bytes(data)
            except OSError as error:
                raise _with_name(error, path) from error
            return
        target = place
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
            raise _with_name(error, path) from error
        raise


@contextmanager
def name_in_errors(place: str | os.PathLike[str]) -> Iterator[None]:
    """Name the file in errors of writing, in words for the users of a command."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{visible(os.fspath(place))} cannot be written: {why}") from error


def _with_name(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """Name the caller's file: ENOSPC names no file, and other errors name the partial file."""
    return error if error.errno is None else OSError(error.errno, error.strerror, os.fspath(path))


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


def read_text(
    path: str | os.PathLike[str], make: Callable[[str], _T], damaged: str, *, own: bool = False
) -> _T:
    """Read a file of `write_text` and return `make` of its text.

    An error of `make` becomes a ValueError with the file's name and `damaged`. Set `own` for a
    file that the user did not name: it must belong to this user or to the system.
    """
    source = Path(path)
    try:
        with io.BufferedReader(open_regular(source)) as file:
            user = os.fstat(file.fileno()).st_uid
            data = file.read(_MAX_BYTES + 1)
    except (NotRegular, IsADirectoryError) as error:
        raise ValueError(f"{source} {damaged}: {error.strerror}") from error
    if own and not _is_trusted(user):
        raise ValueError(f"{source} belongs to another user, and nobody named it: remove it")
    if len(data) > _MAX_BYTES:
        raise ValueError(f"{source} {damaged}: it has more than {_MAX_BYTES} bytes")
    try:
        return make(data.decode("utf-8"))
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"{source} {damaged}: {error}") from error
    except RecursionError as error:
        raise ValueError(f"{source} {damaged}: it is nested too deeply") from error


def _resolve(path: Path) -> Path:
    """Resolve links to a file, existing or not, but follow no link of another user."""
    place = path
    for _ in range(_MAX_LINKS):
        folder = Path(os.path.realpath(place.parent))
        place = folder / place.name
        try:
            status = place.lstat()
        except FileNotFoundError:
            return place
        if not stat.S_ISLNK(status.st_mode):
            return place
        # Linux has the same rule for world-writable folders: protected_symlinks in proc(5).
        if not _is_trusted(status.st_uid) and status.st_uid != folder.stat().st_uid:
            raise PermissionError(
                errno.EPERM, "it is a link that another user has put there", os.fspath(path)
            )
        place = folder / place.readlink()
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fspath(path))


def _is_trusted(user: int) -> bool:
    """Return whether a file's owner is this user or root."""
    return not hasattr(os, "geteuid") or user in (os.geteuid(), 0)


def _is_special(path: Path) -> bool:
    """Return whether a path is a device or pipe, which are written to, not replaced."""
    return path.exists() and not path.is_file() and not path.is_dir()
