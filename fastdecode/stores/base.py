"""`Store`: encoded images by their index, wherever they are. `Writer`: how they get there."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from numbers import Integral
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from fastdecode._buffers import as_buffer
from fastdecode._files import flush, flush_folder
from fastdecode.errors import StoreError
from fastdecode.outages import ITEM_ERRORS, of_the_whole
from fastdecode.stores._items import Keys, check_target
from fastdecode.stores._mmap import is_uri

if TYPE_CHECKING:
    from typing_extensions import Self

    from fastdecode.types import Buffer

__all__ = ["Store", "StoreOptions", "Writer", "in_order_of", "reserve"]

_NOT_THERE = tuple(
    getattr(errno, name) for name in ("EINVAL", "ENOSYS", "EOPNOTSUPP") if hasattr(errno, name)
)
"""What systems say where room cannot be set aside."""


class StoreOptions(TypedDict, total=False):
    """What `open_store` takes by name: it says which kind of store each is for."""

    targets: bool | str | None
    extensions: Sequence[str]
    path_column: int | str
    target_column: int | str | None
    header: bool | None
    delimiter: str | None
    root: str | None
    index: str | os.PathLike[str] | None
    image: str | Sequence[str] | None
    target: str | None
    images: str | None
    keys: str | None
    storage_options: Mapping[str, Any] | None


class Store(ABC):
    """Encoded images by their index, with a key and a target each.

    Any number of threads may read at once. A store can be pickled: what it has opened stays behind,
    and is opened again where it is needed, in a forked process too.

    A subclass writes ``__len__``, `key`, `_open` and `_read`; and `target` and `_close` where there
    is something to it.

    Parameters
    ----------
    location : str
        Path or URI, as errors name it.

    Attributes
    ----------
    kind : str
        As `open_store` calls it.
    classes : sequence of str
        Names of the classes, if targets are class indices; else empty.
    folder : str
        The local folder that the images are files in; else empty.

    Examples
    --------
    >>> from fastdecode.stores import open_store
    >>> store = open_store("train.tar")
    >>> len(store), store.key(3), store.target(3)
    (6, 'place/casa-mila.jpg', 1)
    >>> len(store.read(3)) > 10_000
    True
    """

    kind: ClassVar[str] = ""
    folder: str = ""

    def __init__(self, location: str) -> None:
        self.location = location
        self.classes: Sequence[str] = ()
        self._set_up()

    def _set_up(self) -> None:
        self._lock = threading.Lock()
        self._opened: Any = None
        self._process = 0
        self._closed = False

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        for own in ("_lock", "_opened", "_process"):
            del state[own]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._set_up()
        self.__dict__.update(state)

    @abstractmethod
    def __len__(self) -> int:
        """Count the images."""

    @abstractmethod
    def key(self, index: int) -> str:
        """Return the name of an image, unique in its store, with "/" between folders.

        It has the suffix of the file's format where the store knows it.

        Raises
        ------
        IndexError
            If there is no such item.
        """

    def target(self, index: int) -> Any:
        """Return what goes with an image: a class index, numbers, a text; None if nothing does.

        Raises
        ------
        IndexError
            If there is no such item.
        StoreError
            If it is damaged.
        """
        self._check(index)

    def read(self, index: int) -> Buffer:
        """Return the encoded bytes of an image.

        Parameters
        ----------
        index : int
            From 0.

        Returns
        -------
        bytes or memoryview
            Read-only; not copied where the medium allows. It stays valid when the store is closed.

        Raises
        ------
        IndexError
            If there is no such item.
        OSError
            If it cannot be read.
        StoreError
            If the store is damaged there. The message names the store and the item.
        ValueError
            If the store has been closed.
        """
        self._check(index)
        return self._read(self._handle(), index)

    def reach(self) -> None:
        """Make sure that the store can be had: a copy may be in a process that has not opened it.

        Raises
        ------
        OSError, StoreError
            If it cannot; no `on_error` passes over that, because it concerns all items.
        ValueError
            If the store has been closed.
        """
        self._handle()

    def source(self, index: int) -> Buffer | str:
        """Return a local file's path where the image is one, else what `read` gives."""
        return self.read(index)

    @property
    def remote(self) -> bool:
        """Whether a server is asked for each image, so that it pays to ask for many at once."""
        return is_uri(self.location)

    def groups(self, indices: Sequence[int]) -> list[list[int]]:
        """Part items into those that `read_group` reads by one request.

        Parameters
        ----------
        indices : sequence of int
            Of items that exist; none twice.

        Returns
        -------
        list of list of int
            In the order in which they are needed, as far as one request allows.
        """
        return [[index] for index in indices]

    def read_group(self, indices: Sequence[int]) -> list[Buffer | str | Exception]:
        """Return for each item of a group what `source` gives, or the error that it raises."""
        found: list[Buffer | str | Exception] = []
        for index in indices:
            try:
                found.append(self.source(index))
            except ITEM_ERRORS as error:
                found.append(error)
        return found

    def close(self) -> None:
        """Release the files. Nothing can be read after it; a second call does nothing."""
        with self._lock:
            opened, self._opened, self._closed = self._opened, None, True
            if opened is not None and self._process == os.getpid():
                self._close(opened)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{self.kind} store of {len(self)} at {self.location}>"

    @abstractmethod
    def _open(self) -> Any:
        """Open what `_read` needs, once in each process; not None."""

    @abstractmethod
    def _read(self, opened: Any, index: int) -> Buffer:
        """Read an item that exists."""

    def _close(self, opened: Any) -> None:  # noqa: B027 - there may be nothing to close
        """Close what `_open` has opened, in this process."""

    def _handle(self) -> Any:
        """Return what this process has opened, and open it first if need be."""
        opened = self._opened
        if opened is not None and self._process == os.getpid():
            return opened
        with self._lock:
            if self._closed:
                raise ValueError(f"{self.location}: the store has been closed")
            if self._opened is None or self._process != os.getpid():
                # What a parent process has opened is its own to close.
                try:
                    self._opened = self._open()
                except ITEM_ERRORS as error:
                    of_the_whole(error)
                    raise
                self._process = os.getpid()
            return self._opened

    def _check(self, index: int) -> None:
        """Raise an IndexError unless there is such an item."""
        if index.__class__ is not int and not isinstance(index, Integral):
            raise TypeError(f"{self.location}: an item has a whole number, not {index!r}")
        if not 0 <= index < len(self):
            raise IndexError(f"{self.location}: there is no item {index}, of {len(self)} from 0")

    def _damaged(self, index: int, reason: str) -> StoreError:
        return StoreError(f"{self.location}, item {index}{self._known_as(index)}: {reason}")

    def _known_as(self, index: int) -> str:
        """Return the key in brackets, for errors; nothing if that cannot be had either."""
        try:
            return f" ({self.key(index)})"
        except ITEM_ERRORS:
            return ""


def in_order_of(indices: Sequence[int], groups: list[list[int]]) -> list[list[int]]:
    """Put groups of items in the order in which the first of each is needed."""
    places = {index: at for at, index in enumerate(indices)}
    return sorted(groups, key=lambda group: min(places[index] for index in group))


class Writer(ABC):
    """Writes a store, item by item, in order; nothing is at its place before `close`.

    As a context manager it closes at the end, or leaves nothing behind after an error.

    It writes to ``.NAME.RANDOM.partial`` beside the store, which takes its name at the end. A
    subclass writes `_append` and `_release`, and `_finish` where something is left to write.

    Parameters
    ----------
    location : str
        Local path of the store to make.
    classes : sequence of str
        Names of the classes, if targets are class indices.

    Examples
    --------
    >>> from fastdecode.stores import create_store, open_store
    >>> with open_store("train") as source:
    ...     with create_store("train.rec", classes=source.classes) as writer:
    ...         for index in range(len(source)):
    ...             writer.add(source.key(index), source.read(index), source.target(index))
    """

    kind: ClassVar[str] = ""

    def __init__(self, location: str, classes: Sequence[str] = ()) -> None:
        if "://" in location:
            raise ValueError(f"{location}: stores are written to local paths; copy it when done")
        self.location = location
        self.classes = list(classes)
        self._final = Path(location)
        self._final.parent.mkdir(parents=True, exist_ok=True)
        # Not the process's number: in a container, a killed one had the same.
        self._partial = self._final.with_name(f".{self._final.name}.{token_hex(4)}.partial")
        self._keys: Keys | None = Keys()  # None where a subclass knows the names that it has
        self._ended = self._broken = False

    def add(self, key: str, data: Buffer, target: Any = None) -> None:
        """Append an image.

        Parameters
        ----------
        key : str
            See `Store.key`; the suffix is that of the format.
        data : bytes-like
            The encoded image, kept as it is.
        target : None, int, float, str, or list or dict that JSON can hold
            In a store with `classes`, the index of one, or None.

        Raises
        ------
        TypeError
            If the key is no text, or the data no bytes.
        ValueError
            If the key is empty, no relative path or there already, there are no bytes, no class has
            the target's index, or the kind of store cannot hold such a target.
        """
        if self._ended:
            raise ValueError(f"{self.location}: the writer has been closed")
        if self._broken:
            raise self._unfinished()
        if not isinstance(key, str):
            raise TypeError(f"{self.location}: a key must be text, not {key!r}")
        view = memoryview(as_buffer(data, function="writer.add"))
        if not view:
            raise ValueError(f"{self.location}: {key!r} is no image: it is empty (0 bytes)")
        try:
            if self._keys is not None:
                self._keys.check(key)
            check_target(target, self.classes)
        except ValueError as error:
            raise ValueError(f"{self.location}: {error}") from None
        try:
            self._append(key, view, target)
        except ValueError:
            raise
        except BaseException:  # a full disk, Ctrl-C: nobody knows how much of the item is there
            self._broken = True
            raise
        if self._keys is not None:
            self._keys.add(key)

    def close(self) -> None:
        """Finish, and put the store at its place by renaming. A second call does nothing."""
        if self._ended:
            return
        if self._broken:
            self.abort()
            raise self._unfinished()
        try:
            self._finish()
            self._settle()
        except BaseException:  # Ctrl-C included: no half of a store is left behind
            self.abort()
            raise
        self._ended = True

    def abort(self) -> None:
        """Remove what has been written, unless `close` has put it at its place."""
        if self._ended:
            return
        self._ended = True
        try:
            with suppress(OSError):  # of a disk that is full, which has been told
                self._release()
        finally:
            self._remove()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    @abstractmethod
    def _append(self, key: str, data: memoryview, target: Any) -> None:
        """Write an item whose key is valid and new; a ValueError leaves all as it was."""

    def _finish(self) -> None:
        """Write the rest, and close the files."""
        self._release()

    def _release(self) -> None:  # noqa: B027 - there may be nothing to close
        """Close the files, if they are open."""

    def _settle(self) -> None:
        """Put what is finished at its place."""
        self._refuse_what_is_there()
        self._flush()
        self._partial.replace(self._final)
        flush_folder(self._final)

    def _refuse_what_is_there(self) -> None:
        if self._final.exists():
            raise FileExistsError(f"{self.location} is there already")

    def _flush(self) -> None:
        """Wait until what is finished is on the disk."""
        flush(self._partial)

    def _remove(self) -> None:
        self._partial.unlink(missing_ok=True)

    def _unfinished(self) -> ValueError:
        return ValueError(
            f"{self.location}: an item before could not be written: begin the store anew"
        )


def reserve(path: Path, start: int, size: int) -> None:
    """Make sure of room on the disk for a part of a file, for libraries that die without.

    The file may become as long as the part needs.
    """
    if hasattr(os, "posix_fallocate"):
        with path.open("rb+") as file:
            try:
                os.posix_fallocate(file.fileno(), start, size)
            except OSError as error:
                if error.errno not in _NOT_THERE:
                    raise
            else:
                return
    if shutil.disk_usage(path.parent).free < size:  # nobody else may write: all that can be known
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
