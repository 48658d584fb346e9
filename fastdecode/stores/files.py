"""`FileStore`: pictures in files of their own, whose places an index holds."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastdecode.files import NotRegular, read_regular
from fastdecode.outages import holds_anything, of_the_whole, told_if_vanished, tried_again
from fastdecode.stores.base import Store
from fastdecode.stores.keys import relative
from fastdecode.stores.mapped import is_uri, local_path

if TYPE_CHECKING:
    from fastdecode.stores.index import Index
    from fastdecode.types import Buffer

__all__ = ["FileStore"]


class FileStore(Store):
    """Pictures in files below a folder, or anywhere.

    Parameters
    ----------
    location : str
        As errors name it.
    root : str
        The folder that relative paths begin in, or a URI of one.
    index : Index
        Its keys are paths.
    kind : str
        ``"folder"`` or ``"list"``.
    storage_options : mapping, optional
        For a URI; see `fastdecode.stores.remote.Remote`.
    """

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
        self._index = index
        self._remote = is_uri(root)
        self.folder = "" if self._remote else self._root
        self._storage_options = storage_options

    def __len__(self) -> int:
        return len(self._index)

    def key(self, index: int) -> str:
        """Return the path, with "/" between folders, and without what no relative path has."""
        self._check(index)
        return relative(self._index.key(index))

    def target(self, index: int) -> Any:
        """Return the class index, or what the list has; None where there is nothing."""
        self._check(index)
        return self._index.target(index)

    def source(self, index: int) -> Buffer | str:
        """Return the path of a local file, the bytes of any other."""
        self._check(index)
        if self._closed:
            self._handle()  # which says so
        name = self._name(index)
        if self._remote or is_uri(name):
            return self.read(index)
        return self._path(name)

    @property
    def remote(self) -> bool:
        """Whether the folder, or the first file of the list, is behind a URI."""
        return self._remote or (len(self) > 0 and is_uri(self._index.key(0)))

    def reach(self) -> None:
        """Make sure that the folder is there, and has something in it: see `Store.reach`."""
        super().reach()
        if self.folder and not holds_anything(self.folder):
            reason = "the folder is missing or empty: has a drive been unmounted?"
            raise of_the_whole(FileNotFoundError(errno.ENOENT, reason, self.folder))

    def _name(self, index: int) -> str:
        """Return the name of a file, which for one in a folder may not lead out of it."""
        name = self._index.key(index)
        if self.kind == "list":  # which may name any file
            return local_path(name)
        if not _is_below(name):
            raise self._damaged(
                index,
                f"its index names {name!r}, which does not lie in the folder",
            )
        return name

    def _path(self, name: str) -> str:
        if not name.isascii():
            name = _on_disk(name)
        # Strings: paths of pathlib cost as much as opening the file.
        return os.path.join(self._root, name)  # noqa: PTH118

    def _open(self) -> Any:
        if not self._remote:
            return self
        from fastdecode.stores import remote

        return remote.Remote(self._root, self._storage_options)

    def _read(self, opened: Any, index: int) -> Buffer:
        name = self._name(index)
        if is_uri(name) and self.kind == "list":
            return self._fetched(name)
        if opened is self:
            try:
                return _contents(self._path(name))
            except NotRegular as error:
                raise self._damaged(index, f"{error.filename}: {error.strerror}") from error
            except FileNotFoundError as error:
                told_if_vanished(error, self.folder, listed=self.kind == "folder")
                raise
        data: Buffer = opened.read(f"{opened.path.rstrip('/')}/{name}")
        return data

    def _fetched(self, uri: str) -> bytes:
        from fastdecode.stores import remote

        there = remote.Remote(uri, self._storage_options)
        data: bytes = there.read(there.path)
        return data


def _is_below(name: str) -> bool:
    """Whether a relative path leads to something below where it begins."""
    if "\0" in name or not name or os.path.isabs(name) or os.path.splitdrive(name)[0]:  # noqa: PTH117
        return False
    if os.name == "nt":
        name = name.replace("\\", "/")
    return not name.startswith("/") and (".." not in name or ".." not in name.split("/"))


def _on_disk(name: str) -> str:
    """Return a name as this process spells it; by its bytes, where its locale lacks a letter."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return os.fsdecode(name.encode("utf-8", "surrogateescape"))
    return name


_contents = tried_again(read_regular)  # a network drive may be away for a moment
