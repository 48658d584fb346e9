"""`Keys`: which keys a store can hold, given those that it has."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

__all__ = ["Keys", "check_key", "relative"]

_LONGEST_NAME = 255
"""What the usual file systems hold, in bytes (NAME_MAX of POSIX on Linux and macOS)."""

_LONGEST_PATH = 3072
"""Three quarters of Linux's PATH_MAX in bytes: the rest is for where the folder itself is."""


def check_key(key: str) -> PurePosixPath:
    """Make sure that a key can be one, and return it as a path.

    Raises
    ------
    ValueError
        If it cannot.
    """
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ValueError(f"a key must be text, and this name is no UTF-8: {key!r}") from None
    path = PurePosixPath(key)
    wrong = path.is_absolute() or ".." in path.parts or "\\" in key or "\0" in key
    if wrong or not path.name or str(path) != key:  # one name for one thing: no "./a", no "a//b"
        raise ValueError(f"a key must be a relative path with '/' between folders, not {key!r}")
    return path


def relative(name: str) -> str:
    """Return the name of a file as a key: without what leads out of a folder, or back to it."""
    if (
        os.name != "nt"
        and name[-1:] not in "/."
        and name[:1] not in "/."
        and not any(part in name for part in ("/../", "/./", "//"))
    ):
        return name
    path = Path(name)
    return "/".join(part for part in path.parts if part not in (path.anchor, "..", "."))


class Keys:
    """The keys in a store.

    Parameters
    ----------
    files : bool
        Each becomes a file with that name.
    reserved : str
        A name that is the store's own.
    """

    def __init__(self, *, files: bool = False, reserved: str = "") -> None:
        self._files = files
        self._reserved = reserved
        self._taken: set[str] = set()
        self._folders: set[str] = set()

    def check(self, key: str) -> None:
        """Make sure that the store can hold a further key.

        Raises
        ------
        ValueError
            If it cannot, or has it already.
        """
        path = check_key(key)
        name = str(path) if self._files else key
        if name in self._taken or name in self._folders:
            raise ValueError(f"the key {key!r} is there already")
        if not self._files:
            return
        if name == self._reserved:
            raise ValueError(f"{name} is the name of the index, and can be no key")
        if len(name.encode()) > _LONGEST_PATH or any(
            len(part.encode()) > _LONGEST_NAME for part in path.parts
        ):
            raise ValueError(f"the key is too long for the name of a file: {key!r}")
        for folder in map(str, path.parents):
            if folder in self._taken:
                raise ValueError(f"the key {key!r} needs a folder where {folder!r} is a file")

    def add(self, key: str) -> None:
        """Take note of a key that has been checked."""
        if not self._files:
            self._taken.add(key)
            return
        path = PurePosixPath(key)
        self._taken.add(str(path))
        for folder in map(str, path.parents):
            if folder in self._folders:
                break
            self._folders.add(folder)
