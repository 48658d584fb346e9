"""Folders of images, with one folder per class or without classes, and their writer."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastdecode._error_policy import has_files, mark_fatal, mark_if_folder_vanished, with_retry
from fastdecode._system.files import NotRegular, read_regular, remove_empty_folders
from fastdecode.errors import with_advice
from fastdecode.stores._index import Index, IndexBuilder, IndexedStore
from fastdecode.stores._ranges import is_uri, local_path
from fastdecode.stores._scan import EXTENSIONS, found
from fastdecode.stores.base import Keys, Writer, is_below, is_file_name, plain_target, relative

if TYPE_CHECKING:
    from fastdecode.stores.base import Store
    from fastdecode.types import Buffer

INDEX = "fastdecode.fdx"
"""The file in which `FolderWriter` lists the files of a folder in their order, with targets."""


class LooseImages(ValueError):
    """Images lie next to class folders: only `targets=False` reads all of them."""


def open_folder(
    location: str,
    *,
    targets: bool = True,
    extensions: Sequence[str] = EXTENSIONS,
    storage_options: Mapping[str, Any] | None = None,
) -> FileStore:
    """Open a folder of images.

    Parameters
    ----------
    location : str
        Path or URI.
    targets : bool
        Each folder in the location is a class, in the order of the names. The files of a class may
        lie at any depth, and a class may be empty. With False, or if no folder has an image, there
        are no targets, and the store has all images at any depth.
    extensions : sequence of str
        Suffixes of images, in lower case.
    storage_options : mapping, optional
        Options for the fsspec file system of a URI.

    Notes
    -----
    Classes and order are those of ``torchvision.datasets.ImageFolder``. A folder that
    `FolderWriter` has written has an index: it is opened from that, without listing its files.
    """
    if not is_uri(location):
        location = local_path(location)
    at = f"{location.rstrip('/')}/{INDEX}"
    written = Index.load_if_exists(at, (), storage_options) if targets else None
    if written is not None:
        return FileStore(location, location, written, "folder", storage_options)
    there = found(location, storage_options)
    images = [path for path in there.files if path.lower().endswith(tuple(extensions))]
    shards = [path for path in there.files if path.lower().endswith(".tar")]
    loose = all("/" not in path for path in images)
    if shards and loose and targets:
        error = ValueError(
            f"{location}: there are tar shards such as {shards[0]} in it: open them by their "
            f"names, {location.rstrip('/')}/*.tar"
        )
        raise with_advice(error, ", or the images beside them with targets=False")
    if not images:
        raise FileNotFoundError(f"{location}: no image in it ends in {', '.join(extensions)}")
    index = _build_index(location, images, [] if loose or not targets else there.folders)
    return FileStore(location, location, index, "folder", storage_options)


def open_any(location: str) -> Store:
    """Open a store; in a folder of images, some may lie next to the class folders."""
    from fastdecode.stores import open_store

    try:
        return open_store(location)
    except LooseImages:
        return open_store(location, targets=False)


def _build_index(location: str, images: Iterable[str], classes: list[str]) -> Index:
    """Index images in the order of their classes, if there are any."""
    builder = IndexBuilder(classes)
    beside = [path for path in images if "/" not in path] if classes else []
    if beside:
        error = LooseImages(
            f"{location}: images such as {beside[0]} lie next to class folders such as "
            f"{classes[0]}: move them, or list the paths of all, without classes, in a .csv"
        )
        raise with_advice(error, ", or open it with targets=False to take all without classes")
    places = {name: index for index, name in enumerate(builder.classes)}
    # Sorted by class first: as a string, "cat-big/x" comes before "cat/x".
    ordered = sorted(images, key=lambda path: path.partition("/")[0]) if places else images
    for path in ordered:
        builder.add(path, places.get(path.partition("/")[0]))
    return Index(builder.to_bytes(), location)


class FolderWriter(Writer):
    """Writes each image to a file that is named by its key, and an index of the files.

    torchvision's ImageFolder can read the folder if each key begins with the name of its class.
    """

    kind = "folder"

    def __init__(self, location: str, classes: Sequence[str] = ()) -> None:
        super().__init__(location, classes)
        self._partial.mkdir()
        self._builder = IndexBuilder(classes)
        self._keys = Keys(files=True, reserved=INDEX)
        self._by_class = bool(classes)

    def _append(self, key: str, data: memoryview, target: Any) -> None:
        path = self._partial / key
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file = path.open("xb")
        except (FileExistsError, IsADirectoryError):  # on file systems where "A" and "a" are one
            raise ValueError(f"{self.location}: the key {key!r} is there already") from None
        try:
            with file:
                file.write(data)
            self._builder.add(key, target)
        except BaseException:
            path.unlink()
            raise
        self._by_class = self._by_class and _is_in_class_folder(key, target, self.classes)

    def _finish(self) -> None:
        if self._by_class:  # torchvision counts folders: a class without images needs one, too
            for name in filter(is_file_name, self.classes):
                (self._partial / name).mkdir(exist_ok=True)
        self._builder.write(self._partial / INDEX)

    def _sync(self) -> None:
        if hasattr(os, "sync"):  # one call for all files, so that a power cut loses none of them
            os.sync()

    def _remove(self) -> None:
        made = Index(self._builder.to_bytes(), self.location)
        for name in (INDEX, *map(made.key, range(len(made)))):
            (self._partial / name).unlink(missing_ok=True)
        remove_empty_folders(self._partial)


def _is_in_class_folder(key: str, target: Any, classes: Sequence[str]) -> bool:
    target = plain_target(target)
    known = type(target) is int and 0 <= target < len(classes)
    return known and key.startswith(classes[target] + "/")


class FileStore(IndexedStore):
    """Images in one file each, below `root` or anywhere; the keys in the index are their paths."""

    def __init__(
        self,
        location: str,
        root: str,
        index: Index,
        kind: str,
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(location)
        self.kind = kind  # type: ignore[misc]  # of the instance: two kinds share this class
        self.classes = index.classes
        self._root = local_path(root)
        self._contents = index
        self._remote = is_uri(root)
        self.folder = "" if self._remote else self._root
        self._storage_options = storage_options

    def key(self, index: int) -> str:
        """Return the path with "/" between folders, and without a root, "." or ".."."""
        return relative(super().key(index))

    def source(self, index: int) -> Buffer | str:
        self._check(index)
        if self._closed:
            self._handle()  # raises the ValueError of a closed store
        name = self._name(index)
        if self._remote or is_uri(name):
            return self.read(index)
        return self._path(name)

    @property
    def remote(self) -> bool:
        """Whether the folder, or the first file of the list, is behind a URI."""
        return self._remote or (len(self) > 0 and is_uri(self._contents.key(0)))

    def reach(self) -> None:
        """Check what `Store.reach` does, and that the folder is neither missing nor empty."""
        super().reach()
        if self.folder and not has_files(self.folder):
            reason = "the folder is missing or empty: has a drive been unmounted?"
            raise mark_fatal(FileNotFoundError(errno.ENOENT, reason, self.folder))

    def _name(self, index: int) -> str:
        """Return the name of a file; raise a StoreError if it leads out of the folder."""
        name: str = self._contents.key(index)
        if self.kind == "list":  # a list may name any file
            return local_path(name)
        if not is_below(name):
            raise self._damage_error(
                index,
                f"its index names {name!r}, which does not lie in the folder",
            )
        return name

    def _path(self, name: str) -> str:
        if not name.isascii():
            name = _as_file_name(name)
        # A string, because making a pathlib.Path takes as long as opening the file.
        return os.path.join(self._root, name)  # noqa: PTH118

    def _open(self) -> Any:
        if not self._remote:
            return self
        from fastdecode.stores._remote import Remote

        return Remote(self._root, self._storage_options)

    def _read(self, opened: Any, index: int) -> Buffer:
        name = self._name(index)
        if is_uri(name) and self.kind == "list":
            from fastdecode.stores._remote import Remote

            there = Remote(name, self._storage_options)
            return there.read(there.path)
        if opened is self:
            try:
                return _read_file(self._path(name))
            except NotRegular as error:
                raise self._damage_error(index, f"{error.filename}: {error.strerror}") from error
            except FileNotFoundError as error:
                mark_if_folder_vanished(error, self.folder, listed=self.kind == "folder")
                raise
        data: Buffer = opened.read(f"{opened.path.rstrip('/')}/{name}")
        return data


def _as_file_name(name: str) -> str:
    """Return a name in a form that `os.fsencode` takes, whatever the locale of this process."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return os.fsdecode(name.encode("utf-8", "surrogateescape"))
    return name


_read_file = with_retry(read_regular)  # a network drive may be away for a moment
