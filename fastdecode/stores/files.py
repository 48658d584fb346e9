"""`FileStore`: pictures in files of their own, whose places an index holds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdecode.stores.base import Store

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
        For a URI; see `fastdecode.stores.remote.filesystem`.
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
        self._root = root
        self._index = index
        self._remote = "://" in root
        self._storage_options = storage_options

    def __len__(self) -> int:
        return len(self._index)

    def key(self, index: int) -> str:
        """Return the path, with "/" between folders, and without what no relative path has."""
        self._check(index)
        path = Path(self._index.key(index))
        return "/".join(part for part in path.parts if part not in (path.anchor, "..", "."))

    def target(self, index: int) -> Any:
        """Return the class index, or what the list has; None where there is nothing."""
        self._check(index)
        return self._index.target(index)

    def source(self, index: int) -> Buffer | str:
        """Return the path of a local file, the bytes of any other."""
        if self._remote:
            return self.read(index)
        self._check(index)
        if self._closed:
            self._handle()  # which says so
        return self._path(index)

    def _path(self, index: int) -> str:
        # Strings: paths of pathlib cost as much as opening the file.
        return os.path.join(self._root, self._index.key(index))  # noqa: PTH118

    def _open(self) -> Any:
        if not self._remote:
            return self
        from fastdecode.stores import remote

        return remote.filesystem(self._root, self._storage_options)

    def _read(self, opened: Any, index: int) -> Buffer:
        if opened is self:
            with open(self._path(index), "rb") as file:
                return file.read()
        filesystem, root = opened
        data: bytes = filesystem.cat_file(f"{root.rstrip('/')}/{self._index.key(index)}")
        return data
