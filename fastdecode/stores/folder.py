"""Folders of pictures: one folder a class, or all in one; and the writer of such a folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from fastdecode.stores.base import Store, Writer
from fastdecode.stores.class_folders import IMG_EXTENSIONS
from fastdecode.stores.files import FileStore
from fastdecode.stores.index import Index, IndexBuilder

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
        Each folder in it is a class, in the order of their names, with files at any depth. Without
        folders, or with False, there are no targets, and all files below it are taken.
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
        If there are pictures beside the class folders.

    Notes
    -----
    Classes and order are those of ``torchvision.datasets.ImageFolder``. A folder that was written
    by `FolderWriter` has an index, and is opened as that says, without looking through it.
    """
    remote = "://" in location
    if not remote and (Path(location) / "data.mdb").exists():
        from fastdecode.stores.lmdb import LmdbStore

        return LmdbStore(location, **options)
    if not remote and targets and (Path(location) / INDEX).exists():
        _no_options(options)
        return FileStore(location, location, Index.load(Path(location) / INDEX), "folder")
    paths = _remote_paths(location, storage_options) if remote else _paths(location)
    pictures = [path for path in paths if path.lower().endswith(tuple(extensions))]
    if not pictures:
        shards = [path for path in paths if path.lower().endswith(".tar") and "/" not in path]
        if not shards:
            raise FileNotFoundError(f"{location}: no picture in it ends in {', '.join(extensions)}")
        from fastdecode.stores.tar import open_tar

        if remote:
            options["storage_options"] = storage_options
        return open_tar([f"{location.rstrip('/')}/{shard}" for shard in shards], **options)
    _no_options(options)
    index = _indexed(location, pictures, targets=targets)
    return FileStore(location, location, index, "folder", storage_options)


def _no_options(options: dict[str, Any]) -> None:
    if options:
        raise TypeError(f"a folder store has no option {next(iter(options))!r}")


def _paths(location: str) -> list[str]:
    """List all files below a folder, through links, as torchvision does; relative, with "/"."""
    found: list[str] = []
    for parent, _, names in sorted(os.walk(location, followlinks=True)):
        below = os.path.relpath(parent, location)
        start = "" if below == "." else below.replace(os.sep, "/") + "/"
        found += [start + name for name in sorted(names)]
    return found


def _remote_paths(location: str, options: Mapping[str, Any] | None) -> list[str]:
    from fastdecode.stores import remote

    filesystem, root = remote.filesystem(location, options)
    start = len(root.rstrip("/")) + 1
    return sorted(path[start:] for path in filesystem.find(root))


def _indexed(location: str, pictures: Iterable[str], *, targets: bool) -> Index:
    """Put pictures in the order of their classes, if there are any."""
    builder = IndexBuilder()
    if targets:
        beside = [path for path in pictures if "/" not in path]
        classes = sorted({path.partition("/")[0] for path in pictures if "/" in path})
        if beside and classes:
            raise ValueError(
                f"{location}: pictures such as {beside[0]} lie beside the folders of classes such "
                f"as {classes[0]}: move them, or open it with targets=False to take all without"
            )
        builder.classes = classes
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
        self._final = Path(location)
        self._partial = self._final.with_name(f".{self._final.name}.{os.getpid()}.partial")
        self._partial.mkdir(parents=True)
        self._builder = IndexBuilder(classes)
        self._done = False

    def add(self, key: str, data: Buffer, target: Any = None) -> None:
        """Write a file."""
        path = self._partial.joinpath(*_parts(key))
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with path.open("xb") as file:
                file.write(data)
        except (FileExistsError, IsADirectoryError):
            raise ValueError(f"{self.location}: the key {key!r} is there already") from None
        self._builder.add(key, target)

    def close(self) -> None:
        """Write the index, and rename the folder."""
        if self._done:
            return
        self._builder.write(self._partial / INDEX)
        if hasattr(os, "sync"):  # once for all files: after a power cut none may be missing
            os.sync()
        if self._final.exists():
            raise FileExistsError(f"{self.location} is there already")
        self._partial.rename(self._final)
        self._done = True

    def abort(self) -> None:
        """Remove all that has been written, unless it is at its place."""
        if not self._done:
            shutil.rmtree(self._partial, ignore_errors=True)


def _parts(key: str) -> tuple[str, ...]:
    """Return the folders and the name in a key that is a relative path."""
    path = PurePosixPath(key)
    if not path.parts or path.is_absolute() or ".." in path.parts or "\\" in key or "\0" in key:
        raise ValueError(f"a key must be a relative path with '/' between folders, not {key!r}")
    if str(path) == INDEX:
        raise ValueError(f"{INDEX} is the name of the index, and can be no key")
    return path.parts
