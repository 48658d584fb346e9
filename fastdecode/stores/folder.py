"""Folders of pictures: one folder a class, or all in one; and the writer of such a folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from fastdecode.stores.base import Store, Writer
from fastdecode.stores.class_folders import IMG_EXTENSIONS
from fastdecode.stores.file_writer import broken
from fastdecode.stores.files import FileStore
from fastdecode.stores.found_files import Found, found, found_remotely
from fastdecode.stores.index import Index, IndexBuilder
from fastdecode.stores.keys import Keys
from fastdecode.stores.mapped import is_uri, local_path
from fastdecode.stores.targets import plain

if TYPE_CHECKING:
    from fastdecode.types import Buffer

__all__ = ["EXTENSIONS", "INDEX", "FolderWriter", "open_folder"]

EXTENSIONS = (*IMG_EXTENSIONS, ".gif", ".jfif", ".jpe", ".jp2", ".j2k", ".avif", ".heic", ".heif")
"""What counts as a picture, in lower case: torchvision's, and what else can be decoded here."""

INDEX = "fastdecode.fdx"
"""In a folder that `FolderWriter` has made: its files in their order, and their targets."""


def open_folder(
    location: str,
    *,
    targets: bool = True,
    extensions: Sequence[str] = EXTENSIONS,
    storage_options: Mapping[str, Any] | None = None,
    **options: Any,
) -> Store:
    """Open a folder: of pictures, of tar shards, or one that LMDB has made.

    Parameters
    ----------
    location : str
        Path or URI.
    targets : bool
        Each folder in it is a class, in the order of their names, with files at any depth or none.
        If no folder has a picture, or with False, there are no targets, and all files below it
        are taken.
    extensions : sequence of str
        How the names of pictures end, in lower case.
    storage_options : mapping, optional
        For a URI: what its file system in fsspec is made with.
    **options
        Of the store that is in it.

    Returns
    -------
    Store

    Raises
    ------
    FileNotFoundError
        If there is no such folder, or no picture in it.
    ValueError
        If there are pictures beside the class folders, or beside shards.
    OSError
        If a folder in it cannot be read.
    StoreError
        If its index is damaged.

    Notes
    -----
    Classes and order are those of ``torchvision.datasets.ImageFolder``. A folder that was written
    by `FolderWriter` has an index, and is opened as that says, without looking through it.
    """
    if not is_uri(location):
        location = local_path(location)
    if not is_uri(location) and (Path(location) / "data.mdb").exists():
        from fastdecode.stores.lmdb import LmdbStore

        return LmdbStore(location, **options)
    written = _written_index(location, storage_options) if targets else None
    if written is not None:
        _no_options(options)
        return FileStore(location, location, written, "folder", storage_options)
    there = _there(location, storage_options)
    pictures = [path for path in there.files if path.lower().endswith(tuple(extensions))]
    shards = [path for path in there.files if path.lower().endswith(".tar") and "/" not in path]
    loose = all("/" not in path for path in pictures)
    if shards and pictures and loose and targets:
        raise ValueError(
            f"{location}: there are tar shards such as {shards[0]} in it, and pictures such as "
            f"{pictures[0]}: for the shards open {location.rstrip('/')}/*.tar by kind='tar', for "
            "the pictures open it with targets=False"
        )
    if not pictures:
        if not shards:
            raise FileNotFoundError(f"{location}: no picture in it ends in {', '.join(extensions)}")
        from fastdecode.stores.tar import open_tar

        if is_uri(location):
            options["storage_options"] = storage_options
        return open_tar([f"{location.rstrip('/')}/{shard}" for shard in shards], **options)
    _no_options(options)
    index = _indexed(location, pictures, [] if loose or not targets else there.folders)
    return FileStore(location, location, index, "folder", storage_options)


def _written_index(location: str, storage_options: Mapping[str, Any] | None) -> Index | None:
    """Return the index that `FolderWriter` leaves, if there is one."""
    if not is_uri(location):
        path = Path(location) / INDEX
        return Index.load(path) if path.exists() else None
    from fastdecode.stores import remote

    there = remote.Remote(location, storage_options)
    at = f"{there.path.rstrip('/')}/{INDEX}"
    if not there.exists(at):
        return None
    return Index(there.read(at), f"{location.rstrip('/')}/{INDEX}")


def _there(location: str, storage_options: Mapping[str, Any] | None) -> Found:
    if not is_uri(location):
        return found(location)
    from fastdecode.stores import remote

    return found_remotely(remote.Remote(location, storage_options))


def _no_options(options: dict[str, Any]) -> None:
    if options:
        raise TypeError(f"a folder store has no option {next(iter(options))!r}")


def _indexed(location: str, pictures: Iterable[str], classes: list[str]) -> Index:
    """Put pictures in the order of their classes, if there are any."""
    builder = IndexBuilder(classes)
    beside = [path for path in pictures if "/" not in path] if classes else []
    if beside:
        raise ValueError(
            f"{location}: pictures such as {beside[0]} lie beside the folders of classes such "
            f"as {classes[0]}: move them, or open it with targets=False to take all without"
        )
    places = {name: index for index, name in enumerate(builder.classes)}
    # Sorted by class first: as a string, "cat-big/x" comes before "cat/x".
    ordered = sorted(pictures, key=lambda path: path.partition("/")[0]) if places else pictures
    for path in ordered:
        builder.add(path, places.get(path.partition("/")[0]))
    return Index(builder.to_bytes(), location)


class FolderWriter(Writer):
    """Writes pictures as files, named by their keys, and an index of them.

    torchvision's ImageFolder reads the folder, too, if the keys begin with the names of classes.
    """

    kind = "folder"

    def __init__(self, location: str, classes: Sequence[str] = ()) -> None:
        super().__init__(location, classes)
        if "://" in location:
            raise ValueError(f"{location}: stores are written to local paths; copy it when done")
        self._final = Path(location)
        self._partial = self._final.with_name(f".{self._final.name}.{token_hex(4)}.partial")
        self._partial.mkdir(parents=True)
        self._builder = IndexBuilder(classes)
        self._keys = Keys(files=True, reserved=INDEX)
        self._by_class = bool(classes)
        self._ended = self._broken = False

    def add(self, key: str, data: Buffer, target: Any = None) -> None:
        """Write a file."""
        if self._ended:
            raise ValueError(f"{self.location}: the writer has been closed")
        if self._broken:
            raise broken(self.location)
        try:
            self._keys.check(key)
        except ValueError as error:
            raise ValueError(f"{self.location}: {error}") from None
        view = memoryview(data).cast("B")
        try:
            self._write(key, view, target)
        except ValueError:
            raise
        except BaseException:  # a full disk, Ctrl-C: nobody knows how much of the item is there
            self._broken = True
            raise
        self._keys.add(key)
        self._by_class = self._by_class and _lies_in_class(key, target, self.classes)

    def _write(self, key: str, data: Buffer, target: Any) -> None:
        """Write an item whose key is valid and new; a ValueError leaves all as it was."""
        path = self._partial / key
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open("xb")
        except (FileExistsError, IsADirectoryError):  # where "A" and "a" are the same
            raise ValueError(f"{self.location}: the key {key!r} is there already") from None
        with file:
            file.write(data)
        try:
            self._builder.add(key, target)
        except ValueError:
            path.unlink()
            raise

    def close(self) -> None:
        """Write the index, and rename the folder."""
        if self._ended:
            return
        if self._broken:
            self.abort()
            raise broken(self.location)
        try:
            self._finish()
        except BaseException:  # Ctrl-C included: no half of a store is left behind
            self.abort()
            raise
        self._ended = True

    def _finish(self) -> None:
        if self._by_class:  # else torchvision would count those without pictures out
            for name in filter(_is_plain, self.classes):
                (self._partial / name).mkdir(exist_ok=True)
        self._builder.write(self._partial / INDEX)
        if hasattr(os, "sync"):  # once for all files: after a power cut none may be missing
            os.sync()
        if self._final.exists():
            raise FileExistsError(f"{self.location} is there already")
        self._partial.rename(self._final)

    def abort(self) -> None:
        """Remove all that has been written, unless it is at its place."""
        if not self._ended:
            self._ended = True
            shutil.rmtree(self._partial, ignore_errors=True)


def _lies_in_class(key: str, target: Any, classes: Sequence[str]) -> bool:
    """Whether a key begins with the folder of its class."""
    target = plain(target)
    known = type(target) is int and 0 <= target < len(classes)
    return known and key.startswith(classes[target] + "/")


def _is_plain(name: str) -> bool:
    """Whether a class can be one folder."""
    return name not in ("", ".", "..") and not any(sign in name for sign in "/\\\0")
