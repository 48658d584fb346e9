"""Files that others have named: opened only if they are regular, and written all or nothing.

A FIFO holds up whoever opens it until somebody writes to it, a device may have no end, and either
may have taken the place of a file since that was listed. So files are opened without waiting, and
what was opened is asked what it is, not the name.

Whether a result can be written is found out beforehand. Its place may be in a folder that others
write to: a link that another user has put there is not followed, because it would have this process
replace a file of its own user's that nobody named.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import TypeVar

from fastdecode._headers import probe
from fastdecode.errors import FastDecodeError, ImageTooLarge, UnsupportedFormat, visible

_NONBLOCK = getattr(os, "O_NONBLOCK", 0)
_NOCTTY = getattr(os, "O_NOCTTY", 0)
_KINDS = {
    stat.S_IFIFO: "a FIFO (a pipe)",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
WAY_OUT = "save what it gives to a file, and name that"
_MOST_LINKS = 40
_SOME_BYTES = 1 << 16
_HEAD = 1024
_MOST_BYTES = 64 << 20
"""No result is so large; reading more would only fill the memory."""

_LARGE = 256 << 20
"""Hardly an image file has so many bytes: what has is looked at before all of it is read."""

_HEAD = 1 << 20

_T = TypeVar("_T")


class NotRegular(OSError):
    """What has that name is a FIFO, a socket or a device."""


def open_regular(path: str | os.PathLike[str], *, way_out: str = WAY_OUT) -> io.FileIO:
    """Open a regular file for reading, without a buffer; anything else is `NotRegular`.

    `way_out` says, as an order, what somebody is to do who has named a FIFO on purpose.
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


def read_regular(path: str | os.PathLike[str], *, way_out: str = WAY_OUT) -> bytes:
    """Read all of a regular file; see `open_regular`."""
    with open_regular(path, way_out=way_out) as file:
        return file.readall()


def read_image(path: str | os.PathLike[str], *, way_out: str = WAY_OUT) -> bytes:
    """Read all of a file that should be an image; see `open_regular`.

    A large file that is none, or that the memory does not hold, is an error of that file alone,
    by a `FastDecodeError`. Where there is no memory for a usual one, something else is wrong.
    """
    with open_regular(path, way_out=way_out) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            if size >= _LARGE:
                _check_head(file, size)
            return file.readall()
        except MemoryError:
            words = f"{os.fspath(path)}: there is no memory for its {size:,} bytes"
            raise (ImageTooLarge if size >= _LARGE else MemoryError)(words) from None


def _check_head(file: io.FileIO, size: int) -> None:
    """Refuse what is no image by its first bytes; whatever else is wrong, decoding will say."""
    try:
        probe(file.read(_HEAD))
    except UnsupportedFormat:
        words = "and it is not an image that fastdecode or Pillow knows"
        raise UnsupportedFormat(f"{file.name}: it has {size:,} bytes, {words}") from None
    except FastDecodeError:  # its header may reach beyond what was read
        pass
    file.seek(0)


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


def check_writable(path: str | os.PathLike[str], *, parents: bool = False) -> None:
    """Make sure, by an OSError, that a file can be written, without touching what is there."""
    target = Path(path)
    place = _followed(target)
    if _is_special(target):
        return
    if target.is_dir():
        raise IsADirectoryError("it is a folder")
    if parents:
        target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=place.parent) as file:
        file.write(bytes(_SOME_BYTES))  # a full disk still makes files of nothing
        file.flush()


def check_result(
    place: str | os.PathLike[str], option: str, begins: bytes, *, parents: bool = False
) -> None:
    """Make sure, by an OSError in words, that an option's file can be written, and loses nothing.

    A file that is there is replaced only if it is an earlier one of that option: if it is empty, or
    begins as the regular expression `begins` says. Images and lists of them are mistyped there.
    """
    with naming(place):
        check_writable(place, parents=parents)
        if not Path(place).is_file():  # a device is written to, not replaced
            return
        with open_regular(place) as file:
            head = file.read(_HEAD)
    if head and not re.match(begins, head, re.DOTALL):
        raise FileExistsError(
            f"{visible(os.fspath(place))} is there already, and {option} did not write it: "
            f"{option} takes the name of a new file"
        )


def write_text(path: str | os.PathLike[str], text: str, *, follow: bool = True) -> None:
    """Write a file in UTF-8: all of it, or nothing; see `write_bytes`."""
    write_bytes(path, text.encode(), follow=follow)


def write_bytes(
    path: str | os.PathLike[str], data: bytes, *, follow: bool = True, durable: bool = False
) -> None:
    """Write a file: all of it, or nothing.

    With `follow`, a link stays one, and what it leads to is replaced, but a device or a pipe is
    written to; without, whatever is there is replaced itself. With `durable` the bytes are on the
    disk before they take their place, so that a crash of the machine leaves no half, either.
    """
    target = Path(path)
    if follow:
        place = _followed(target)
        if _is_special(target):
            try:
                target.write_bytes(data)
            except OSError as error:
                raise _naming(error, path) from error
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
    except BaseException as error:  # Ctrl-C included: no half of a file is left behind
        partial.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _naming(error, path) from error
        raise


@contextmanager
def naming(place: str | os.PathLike[str]) -> Iterator[None]:
    """Have errors name the file that cannot be written, in words for who called a command."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise OSError(f"{visible(os.fspath(place))} cannot be written: {why}") from error


def _naming(error: OSError, path: str | os.PathLike[str]) -> OSError:
    """Name the caller's file: a full disk names none, other errors name the partial file."""
    return error if error.errno is None else OSError(error.errno, error.strerror, os.fspath(path))


def flush(path: Path) -> None:
    """Wait until a file is on the disk."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    """Wait until it is on the disk that a file is there."""
    if os.name == "nt":  # folders cannot be opened there, and need not be
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_text(
    path: str | os.PathLike[str], make: Callable[[str], _T], damaged: str, *, own: bool = False
) -> _T:
    """Return what `make` makes of the text that `write_text` wrote.

    What `make` raises over a wrong one is a ValueError with the file's name and `damaged`. With
    `own`, nobody named the file: it is believed only if it is this user's, or the system's.
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
    """Return where a file really is, or is to be; no link of another user's is followed."""
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
