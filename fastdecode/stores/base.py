"""`Store` reads encoded images by their index, `Writer` writes a new store; keys and targets."""

from __future__ import annotations

import json
import math
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from numbers import Integral
from pathlib import Path, PurePosixPath
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict

from fastdecode._arguments import as_buffer
from fastdecode._error_policy import ITEM_ERRORS, mark_fatal
from fastdecode._system.files import folder_locked, sync_file, sync_folder
from fastdecode.errors import StoreError
from fastdecode.stores._ranges import is_uri

if TYPE_CHECKING:
    from typing_extensions import Self

    from fastdecode.types import Buffer

_LONGEST_NAME = 255
"""Limit of the usual file systems, in bytes (NAME_MAX of POSIX on Linux and macOS)."""

_LONGEST_PATH = 3072
"""Three quarters of Linux's PATH_MAX in bytes: the rest is for the path of the folder itself."""


class StoreOptions(TypedDict, total=False):
    """Keyword options of `open_store`, which lists them by kind of store."""

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
    """Encoded images that are read by their index, each with a key and a target.

    Any number of threads may read at the same time. A store can be pickled. Open files are not part
    of the pickle: the copy opens its own when it needs them, and so does a forked process.

    A subclass implements ``__len__``, `key`, `_open` and `_read`. It overrides `target` if its
    items have targets, and `_close` if it has something to close.

    Parameters
    ----------
    location : str
        Path or URI; error messages name it.

    Attributes
    ----------
    kind : str
        The name of the kind of store, as in `open_store`.
    classes : sequence of str
        Names of the classes if targets are class indices, else empty.
    folder : str
        The local folder whose files are the images; empty for any other store.

    Examples
    --------
    >>> from fastdecode.stores import open_store
    >>> store = open_store("train.tar")
    >>> len(store), store.key(2), store.target(2)
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
        """Return the number of images."""

    @abstractmethod
    def key(self, index: int) -> str:
        """Return the name of an image, which is unique in the store, with "/" between folders.

        It ends with the suffix of the image's format if the store knows the format.

        Raises
        ------
        IndexError
            If there is no such item.
        """

    def target(self, index: int) -> Any:
        """Return the target of an image, such as a class index or a text; None if it has none.

        Raises
        ------
        IndexError
            If there is no such item.
        StoreError
            If the target is damaged.
        """
        self._check(index)

    def read(self, index: int) -> Buffer:
        """Return the encoded bytes of an image.

        Parameters
        ----------
        index : int
            Index of the image, from 0.

        Returns
        -------
        bytes or memoryview
            Read-only, and not copied where the kind of store allows it. The bytes stay valid after
            the store is closed.

        Raises
        ------
        IndexError
            If there is no such item.
        OSError
            If the image cannot be read.
        StoreError
            If the store is damaged at this image. The message names the store and the item.
        ValueError
            If the store has been closed.
        """
        self._check(index)
        return self._read(self._handle(), index)

    def reach(self) -> None:
        """Check that this process can reach the store, and open it if it is not open here.

        Raises
        ------
        OSError, StoreError
            If the store cannot be reached. `on_error` does not apply to this error, because it
            concerns all items.
        ValueError
            If the store has been closed.
        """
        self._handle()

    def source(self, index: int) -> Buffer | str:
        """Return the path of the image if it is a local file, else what `read` returns."""
        return self.read(index)

    @property
    def remote(self) -> bool:
        """Whether images come from a server, so that it pays to request many at once."""
        return is_uri(self.location)

    def groups(self, indices: Sequence[int]) -> list[list[int]]:
        """Divide items into groups, each of which `read_group` reads with one request.

        Parameters
        ----------
        indices : sequence of int
            Indices of existing items, without duplicates, in the order in which they are needed.

        Returns
        -------
        list of list of int
            The groups, in the order in which the first item of each is needed.
        """
        return [[index] for index in indices]

    def read_group(self, indices: Sequence[int]) -> list[Buffer | str | Exception]:
        """Return, for each item of a group, what `source` returns or the error that it raises."""
        found: list[Buffer | str | Exception] = []
        for index in indices:
            try:
                found.append(self.source(index))
            except ITEM_ERRORS as error:
                found.append(error)
        return found

    def close(self) -> None:
        """Close the store. Nothing can be read from it afterwards; a second call does nothing."""
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
        """Open what `_read` needs, once per process, and return it. It must not be None."""

    @abstractmethod
    def _read(self, opened: Any, index: int) -> Buffer:
        """Read an item whose index has been checked."""

    def _close(self, opened: Any) -> None:  # noqa: B027 - there may be nothing to close
        """Close what `_open` has opened in this process."""

    def _handle(self) -> Any:
        """Return what this process has opened; open it if it is not open yet."""
        opened = self._opened
        if opened is not None and self._process == os.getpid():
            return opened
        with self._lock:
            if self._closed:
                raise ValueError(f"{self.location}: the store has been closed")
            if self._opened is None or self._process != os.getpid():
                # What the parent process has opened stays open: only the parent may close it.
                try:
                    self._opened = self._open()
                except ITEM_ERRORS as error:
                    mark_fatal(error)
                    raise
                self._process = os.getpid()
            return self._opened

    def _check(self, index: int) -> None:
        """Check that an index is an integer, and that of an item."""
        if index.__class__ is not int and not isinstance(index, Integral):
            raise TypeError(f"{self.location}: an index must be an integer, not {index!r}")
        if not 0 <= index < len(self):
            raise IndexError(
                f"{self.location}: there is no item {index}; it has {len(self)}, counted from 0"
            )

    def _damage_error(self, index: int, reason: str) -> StoreError:
        return StoreError(f"{self.location}, item {index}{self._key_suffix(index)}: {reason}")

    def _key_suffix(self, index: int) -> str:
        """Return the key in brackets for an error message; empty if the key cannot be read."""
        try:
            return f" ({self.key(index)})"
        except ITEM_ERRORS:
            return ""


def sort_groups(indices: Sequence[int], groups: list[list[int]]) -> list[list[int]]:
    """Sort groups by the item of each that comes first in `indices`."""
    places = {index: at for at, index in enumerate(indices)}
    return sorted(groups, key=lambda group: min(places[index] for index in group))


class Writer(ABC):
    """Writes a store, item by item. Nothing is at the location before `close`.

    As a context manager, it calls `close` at the end of the block; after an error it removes what
    it has written.

    Items go to ``.NAME.RANDOM.partial`` next to the store's location, which `close` renames. A
    subclass implements `_append` and `_release`, and overrides `_finish` if anything must be
    written after the last item.

    Parameters
    ----------
    location : str
        Local path of the new store.
    classes : sequence of str
        Names of the classes, if targets are class indices.

    Examples
    --------
    >>> from fastdecode.stores import create_store, open_store
    >>> with open_store("train") as source:
    ...     with create_store("copy.tar", classes=source.classes) as writer:
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
        # Random: in a container, a process that was killed may have had the same process id.
        self._partial = self._final.with_name(f".{self._final.name}.{token_hex(4)}.partial")
        self._keys = Keys()
        self._ended = self._broken = False

    def add(self, key: str, data: Buffer, target: Any = None) -> None:
        """Append an image.

        Parameters
        ----------
        key : str
            The name of the image; see `Store.key`. Its suffix is that of the image's format.
        data : bytes-like
            The encoded image, which is stored unchanged.
        target : None, int, float, str, or list or dict that JSON can hold
            In a store with `classes`, the index of a class, or None.

        Raises
        ------
        TypeError
            If the key is not a str, or the data is not bytes-like.
        ValueError
            If the key is empty, not a relative path or already used; if the data is empty; if the
            target is not the index of a class; or if this kind of store cannot hold the target.
        """
        if self._ended:
            raise ValueError(f"{self.location}: the writer has been closed")
        if self._broken:
            raise self._not_closed_error()
        if not isinstance(key, str):
            raise TypeError(f"{self.location}: a key must be text, not {key!r}")
        view = memoryview(as_buffer(data, function="writer.add"))
        if not view:
            raise ValueError(f"{self.location}: {key!r} is not an image: it is empty (0 bytes)")
        try:
            self._keys.check(key)
            check_target(target, self.classes)
        except ValueError as error:
            raise ValueError(f"{self.location}: {error}") from None
        try:
            self._append(key, view, target)
        except ValueError:
            raise
        except BaseException:  # a full disk, Ctrl-C: a part of the item may have been written
            self._broken = True
            raise
        self._keys.add(key)

    def close(self) -> None:
        """Finish the store, and rename it to its location. A second call does nothing."""
        if self._ended:
            return
        if self._broken:
            self.abort()
            raise self._not_closed_error()
        try:
            self._finish()
            with folder_locked(self._final.parent):  # of two writers, one finds the place taken
                self._check_location_free()
                self._publish()
        except BaseException:  # Ctrl-C included: half a store must not stay behind
            self.abort()
            raise
        self._ended = True

    def abort(self) -> None:
        """Remove what has been written, unless `close` has finished the store."""
        if self._ended:
            return
        self._ended = True
        try:
            with suppress(OSError):  # of a full disk, which an earlier error has reported
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
        """Write an item whose key is valid and new. If it raises ValueError, nothing is written."""

    def _finish(self) -> None:
        """Write what follows the last item, and close the files."""
        self._release()

    def _release(self) -> None:  # noqa: B027 - there may be nothing to close
        """Close the files, if they are open."""

    def _publish(self) -> None:
        """Rename the finished store to its location, which is free."""
        self._sync()
        self._partial.replace(self._final)
        sync_folder(self._final)

    def _check_location_free(self) -> None:
        if os.path.lexists(self._final):
            raise FileExistsError(f"{self.location} is there already")

    def _sync(self) -> None:
        """Wait until the finished store is on the disk."""
        sync_file(self._partial)

    def _remove(self) -> None:
        self._partial.unlink(missing_ok=True)

    def _not_closed_error(self) -> ValueError:
        return ValueError(
            f"{self.location}: an earlier item could not be written: create the store again"
        )


# ---- keys and targets of items


def check_key(key: str) -> PurePosixPath:
    """Check that a key is valid, and return it as a path."""
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a key must be text, and this name is not UTF-8: {key!r}") from None
    path = PurePosixPath(key)
    wrong = path.is_absolute() or ".." in path.parts or "\\" in key or "\0" in key
    if wrong or not path.name or str(path) != key:  # a single spelling per key: no "./a", "a//b"
        raise ValueError(f"a key must be a relative path with '/' between folders, not {key!r}")
    return path


def relative(name: str) -> str:
    """Return the name of a file as a key, which is a relative path without "." and ".."."""
    if (
        os.name != "nt"
        and name[-1:] not in "/."
        and name[:1] not in "/."
        and not any(part in name for part in ("/../", "/./", "//"))
    ):
        return name
    path = Path(name)
    return "/".join(part for part in path.parts if part not in (path.anchor, "..", "."))


def is_file_name(name: str) -> bool:
    """Return whether a name is that of a single file or folder, without any path."""
    return name not in ("", ".", "..") and not any(sign in name for sign in "/\\\0")


def is_below(name: str) -> bool:
    """Return whether a path is relative and leads to something below its start."""
    if "\0" in name or not name or os.path.isabs(name) or os.path.splitdrive(name)[0]:  # noqa: PTH117
        return False
    if os.name == "nt":
        name = name.replace("\\", "/")
    return not name.startswith("/") and (".." not in name or ".." not in name.split("/"))


class Keys:
    """The keys in a store. With `files`, keys are names of files, and `reserved` is not allowed."""

    def __init__(self, *, files: bool = False, reserved: str = "") -> None:
        self._files = files
        self._reserved = reserved
        self._taken: set[str] = set()
        self._folders: set[str] = set()

    def check(self, key: str) -> None:
        """Check that the store can take another key."""
        path = check_key(key)
        name = str(path) if self._files else key
        if name in self._taken or name in self._folders:
            raise ValueError(f"the key {key!r} is there already")
        if not self._files:
            return
        if name == self._reserved:
            raise ValueError(f"{name} is the name of the index, so it cannot be a key")
        if len(name.encode()) > _LONGEST_PATH or any(
            len(part.encode()) > _LONGEST_NAME for part in path.parts
        ):
            raise ValueError(f"the key is too long for the name of a file: {key!r}")
        for folder in map(str, path.parents):
            if folder in self._taken:
                raise ValueError(f"the key {key!r} needs a folder where {folder!r} is a file")

    def add(self, key: str) -> None:
        """Add a key that has been checked."""
        if not self._files:
            self._taken.add(key)
            return
        path = PurePosixPath(key)
        self._taken.add(str(path))
        for folder in map(str, path.parents):
            if folder in self._folders:
                break
            self._folders.add(folder)


def plain_target(target: Any) -> Any:
    """Convert any integer type, such as NumPy's, to int; return other values and bool unchanged."""
    if type(target) is int or isinstance(target, bool) or not isinstance(target, Integral):
        return target
    return int(target)


def check_target(target: Any, classes: Sequence[str]) -> None:
    """Check that a target is None or the index of a class, if there are classes."""
    if not classes or target is None:
        return
    index = plain_target(target)
    if type(index) is int and 0 <= index < len(classes):
        return
    last = len(classes) - 1
    raise ValueError(f"a target must be the index of a class, from 0 to {last}, not {target!r}")


def dump_target(target: Any) -> bytes:
    """Return a target as JSON in UTF-8."""
    if target is None:
        return b"null"
    try:
        return json.dumps(target, allow_nan=False, ensure_ascii=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(
            f"a target must be None, a number, a text, or a list or dict of them, not {target!r}"
        ) from error


def parse_target(text: str | bytes) -> Any:
    """Parse a target that other programs may have written.

    NaN and infinity, which Python writes although JSON does not have them, become None.
    """
    return json.loads(text, parse_constant=lambda _: None, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large for a number")
    return number
