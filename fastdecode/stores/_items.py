"""Keys and targets of items, for all kinds of stores."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from numbers import Integral
from pathlib import Path, PurePosixPath
from typing import Any

_LONGEST_NAME = 255
"""Limit of the usual file systems, in bytes (NAME_MAX of POSIX on Linux and macOS)."""

_LONGEST_PATH = 3072
"""Three quarters of Linux's PATH_MAX in bytes: the rest is for the path of the folder itself."""


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
