"""Which files and folders there are below a folder, through links, in torchvision's order."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fastdecode.stores.remote import Remote

__all__ = ["Found", "found", "found_remotely"]


class Found(NamedTuple):
    """What is below a folder.

    Attributes
    ----------
    files : list of str
        Relative paths with "/", by folder and name.
    folders : list of str
        Names of those that lie in it itself, sorted.
    """

    files: list[str]
    folders: list[str]


def found(location: str) -> Found:
    """List what is below a local folder.

    A folder that is below itself, through a link, is left out there; so are pipes and devices.

    Raises
    ------
    OSError
        If a folder cannot be read: what is in it would be missing.
    """
    listed: list[tuple[str, list[str]]] = []
    folders: list[str] = []
    waiting: list[tuple[str, frozenset[tuple[int, int]]]] = [("", frozenset())]
    while waiting:
        below, above = waiting.pop()
        path = os.path.join(location, below)  # noqa: PTH118 - strings, for millions of files
        state = os.stat(path)  # noqa: PTH116
        if (state.st_dev, state.st_ino) in above and state.st_ino:
            continue
        above |= {(state.st_dev, state.st_ino)}
        names = []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.is_dir():
                    waiting.append((os.path.join(below, entry.name), above))  # noqa: PTH118
                    if not below:
                        folders.append(entry.name)
                elif entry.is_file() or _leads_nowhere(entry):
                    names.append(entry.name)
        listed.append((below, sorted(names)))
    files = []
    for below, names in sorted(listed):
        start = below.replace(os.sep, "/") + "/" if below else ""
        files += [start + name for name in names]
    return Found(files, sorted(folders))


def found_remotely(remote: Remote) -> Found:
    """List what is below a folder behind a URI, in one request or as many as the server wants."""
    start = len(remote.path.rstrip("/")) + 1
    files, folders = [], set()
    for path, about in remote.find(remote.path).items():
        name = path[start:].rstrip("/")
        if about.get("type") != "directory":
            files.append(name)
        if about.get("type") == "directory" or "/" in name:
            folders.add(name.partition("/")[0])
    return Found(sorted(files), sorted(folders - {""}))


def _leads_nowhere(entry: os.DirEntry[str]) -> bool:
    """Whether it is a link to what is not there, which reading says."""
    return entry.is_symlink() and not os.path.exists(entry.path)  # noqa: PTH110
