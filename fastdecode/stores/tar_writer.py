"""Writing tar shards: the same bytes for the same pictures, whoever writes them, and when."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, BinaryIO

from fastdecode.stores.base import Writer
from fastdecode.stores.file_writer import broken, flush_folder
from fastdecode.stores.mapped import is_uri
from fastdecode.stores.tar_header import END, make_header, padded
from fastdecode.stores.tar_index import SUFFIX, index_tar
from fastdecode.stores.tar_members import FileSource, members
from fastdecode.stores.tar_names import Names, stem_of
from fastdecode.stores.targets import as_json, plain

if TYPE_CHECKING:
    from fastdecode.types import Buffer

__all__ = ["END", "TarWriter", "append_members", "names_in"]


class TarWriter(Writer):
    """Writes a tar shard as WebDataset reads it, and its index.

    Parameters
    ----------
    location : str
        Where it is to be, ``train.tar``; the index becomes ``train.tar.fdx``.
    classes : sequence of str
        Kept in the index.
    fsync : bool
        Wait at the end until the disk has all, so that a power cut takes nothing away.

    Notes
    -----
    A picture is the member ``KEY``; its target is ``.cls`` beside it for a whole number, ``.txt``
    for a text, ``.json`` for anything else. For keys that WebDataset would cut or mix up see
    `fastdecode.stores.tar_names`: the store gives them back as they were.
    """

    kind = "tar"

    def __init__(self, location: str, classes: Sequence[str] = (), *, fsync: bool = True) -> None:
        if is_uri(location):
            raise ValueError(f"{location}: stores are written to local paths; copy it when done")
        super().__init__(location, classes)
        self._final = Path(location)
        # Not the process's number: in a container a killed one had the same.
        self._partial = self._final.with_name(f".{self._final.name}.{token_hex(4)}.partial")
        self._fsync = fsync
        self._names = Names()
        self._final.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._partial.open("xb")
        self._done = self._broken = False

    def add(self, key: str, data: Buffer, target: Any = None) -> None:
        """Append the picture's member, and its target's."""
        if self._file.closed:
            raise ValueError(f"{self.location}: the writer has been closed")
        if self._broken:
            raise broken(self.location)
        try:
            append_members(self._file, key, data, target, self._names)
        except (TypeError, ValueError):  # before anything is written
            raise
        except BaseException:  # a full disk, Ctrl-C: nobody knows how much of the item is there
            self._broken = True
            raise

    def close(self) -> None:
        """Write the end and the index, and put both at their places."""
        if self._file.closed:
            return
        if self._broken:
            self.abort()
            raise broken(self.location)
        try:
            self._finish()
        except BaseException:
            self.abort()
            raise

    def _finish(self) -> None:
        self._file.write(END)
        self._file.flush()
        if self._fsync:
            os.fsync(self._file.fileno())
        self._file.close()
        if self._final.exists():
            raise FileExistsError(f"{self.location} is there already")
        # The index first: one without a shard does no harm, a shard with an old one would.
        index = self._final.with_name(self._final.name + SUFFIX)
        index_tar(self._partial, index=index, classes=self.classes)
        self._partial.replace(self._final)
        self._done = True
        if self._fsync:
            flush_folder(self._final)

    def abort(self) -> None:
        """Remove what has been written, unless it is at its place."""
        if not self._done:
            with suppress(OSError):  # of a disk that is full, which has been told
                self._file.close()
            self._partial.unlink(missing_ok=True)


def append_members(
    file: BinaryIO, key: str, data: Buffer, target: Any = None, names: Names | None = None
) -> tuple[int, int]:
    """Append a picture and its target to a tar.

    Parameters
    ----------
    file : file
        Open for writing, at a multiple of 512 bytes. Its end (`END`) is the caller's to write.
    key, data, target
        See `Writer.add`.
    names : Names, optional
        The names in this tar so far. Without, nobody looks whether the key's is taken.

    Returns
    -------
    offset, size : int
        Where the picture's bytes lie in the file.

    Raises
    ------
    OSError
        If it cannot be written.
    ValueError
        If the key or the target cannot be; then nothing is written.
    """
    beside = _beside(target)
    data = memoryview(data).cast("B")
    stem, extension, owner = stem_of(key, data) if names is None else names.take(key, data)
    header = make_header(f"{stem}.{extension}".encode(), len(data), owner)
    offset = file.tell() + len(header)
    file.write(header)
    file.write(data)
    file.write(bytes(padded(len(data)) - len(data)))
    if beside is not None:
        suffix, text = beside
        file.write(make_header(f"{stem}.{suffix}".encode(), len(text), owner))
        file.write(text)
        file.write(bytes(padded(len(text)) - len(text)))
    return offset, len(data)


def names_in(file: BinaryIO, location: str) -> Names:
    """Return the names in a tar that is still to be gone on with.

    Parameters
    ----------
    file : file
        At the tar's beginning. It may lack its end; afterwards it is where the members end.
    location : str
        As errors name it.

    Raises
    ------
    StoreError
        If it is damaged, or ends inside a member.
    """
    names = Names()
    for member in members(FileSource(file, location), ended=False):
        names.add(member)
    return names


def _beside(target: Any) -> tuple[str, bytes] | None:
    """Return the extension and the bytes of a target's member."""
    target = plain(target)
    if target is None:
        return None
    if type(target) is int:
        return "cls", b"%d" % target
    if isinstance(target, str):
        return "txt", target.encode()
    return "json", as_json(target)
