"""Lists the files and folders below a folder, following links, in torchvision's order.

Links may lead anywhere: to nothing, to themselves, to a folder above, or from one folder to another
and back. A broken link counts as a file, and reading it is an error; it does not stop the listing
of a folder with a million other files. Each folder is listed once per class (per folder at the
top), by the shortest path that leads to it.

Classes and errors are those of ``torchvision.datasets.folder`` (0.29), except for several links to
one folder, for pipes, which are not listed, and for a folder that cannot be read: that is an error,
because its class would seem empty.
"""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from fastdecode.stores._ranges import is_uri

_Identity: TypeAlias = "tuple[int, int] | str"
"""Identifies a folder: its device and inode, or its path on systems without inodes."""
_Names: TypeAlias = "tuple[list[str], list[str]]"  # of the files and folders in a folder

SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "jpeg": (".jpg", ".jpeg", ".jpe", ".jfif", ".jls", ".mpo"),
    "png": (".png", ".apng"),
    "webp": (".webp",),
    "gif": (".gif",),
    "bmp": (".bmp", ".dib"),
    "tiff": (".tif", ".tiff"),
    "avif": (".avif", ".avifs"),
    "heic": (".heic", ".heif", ".hif"),
    "jpeg2000": (".jp2", ".j2k", ".j2c", ".jpc", ".jpf", ".jpx"),
    "jxl": (".jxl",),
    "pnm": (".pnm", ".pbm", ".pgm", ".ppm"),
}
"""The suffixes of the files of each format in `FORMATS`, in lower case."""

EXTENSIONS = tuple(chain.from_iterable(SUFFIXES.values()))
"""The suffixes of images, in lower case: those of torchvision, and others that `decode` reads."""


class FolderListing(NamedTuple):
    """The files and folders below a folder."""

    files: list[str]  # relative paths with "/", sorted by folder and name
    folders: list[str]  # names of the folders directly in it, sorted


def found(location: str, storage_options: Mapping[str, Any] | None = None) -> FolderListing:
    """List the files and folders below a folder, without pipes and devices."""
    if is_uri(location):
        return _list_remote(location, storage_options)
    files, folders = _scan(location)
    listed = [("", files)]
    for name in folders:
        listed += _walk(os.path.join(location, name), name, {_identity(location)})  # noqa: PTH118
    paths = []
    for below, names in sorted(listed):
        start = below.replace(os.sep, "/") + "/" if below else ""
        paths += [start + name for name in names]
    return FolderListing(paths, folders)


def _walk(location: str, name: str, seen: set[_Identity]) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder as `name` and those below it, without those in `seen`, which it adds to."""
    waiting = deque([(location, name)])
    while waiting:  # breadth first, so that the shortest of several paths is taken
        path, below = waiting.popleft()
        folder = _identity(path)
        if folder in seen:
            continue
        seen.add(folder)
        files, folders = _scan(path)
        yield below, files
        waiting += [(os.path.join(path, each), os.path.join(below, each)) for each in folders]  # noqa: PTH118


def _scan(path: str) -> _Names:
    """Return the names of the files and of the folders directly in a folder, sorted."""
    files: list[str] = []
    folders: list[str] = []
    with os.scandir(path) as entries:
        for entry in entries:
            if is_folder(entry):
                folders.append(entry.name)
            elif is_readable_file(entry):
                files.append(entry.name)
    return sorted(files), sorted(folders)


def _identity(path: str) -> _Identity:
    state = os.stat(path)  # noqa: PTH116 - strings, for millions of files
    return (state.st_dev, state.st_ino) if state.st_ino else os.path.realpath(path)


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Return whether an entry is a folder or a link to one. A broken link is not a folder."""
    try:
        return entry.is_dir()
    except OSError:  # a link to itself, or into a folder without permission
        return False


def is_readable_file(file: os.DirEntry[str] | str) -> bool:
    """Return whether a file can be opened safely; False for pipes, devices and folders.

    It is True for a file that cannot be read, because reading it raises an error.
    """
    try:
        if isinstance(file, os.DirEntry) and file.is_file():  # mostly without a system call
            return True
        return stat.S_ISREG(os.stat(file).st_mode)  # noqa: PTH116 - a million times
    except OSError:
        return True


def _list_remote(uri: str, storage_options: Mapping[str, Any] | None) -> FolderListing:
    """List the files and folders below a remote folder."""
    from fastdecode.stores._remote import Remote

    remote = Remote(uri, storage_options)
    start = len(remote.path.rstrip("/")) + 1
    files, folders = [], set()
    for path, about in remote.find(remote.path).items():
        name = path[start:].rstrip("/")
        if about.get("type") != "directory":
            files.append(name)
        if about.get("type") == "directory" or "/" in name:
            folders.add(name.partition("/")[0])
    return FolderListing(sorted(files), sorted(folders - {""}))


def find_classes(directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
    """List the folders in a folder, each of which is a class."""
    with os.scandir(directory) as entries:
        classes = sorted(entry.name for entry in entries if is_folder(entry))
    if not classes:
        where = os.fspath(directory)
        raise FileNotFoundError(
            f"Couldn't find any class folder in {where}. The images of each class must lie in a "
            "folder of its own; for images without classes there are ImageList(paths) and "
            f"StoreDataset({where!r})"
        )
    return classes, {name: index for index, name in enumerate(classes)}


def make_dataset(
    directory: str | os.PathLike[str],
    class_to_idx: dict[str, int] | None = None,
    extensions: str | Sequence[str] | None = None,
    is_valid_file: Callable[[str], bool] | None = None,
    allow_empty: bool = False,
) -> list[tuple[str, int]]:
    """List the files of each class, at any depth and through links."""
    # Paths are strings that are joined as in torchvision, so that they are the same as there.
    directory = os.path.expanduser(directory)  # noqa: PTH111
    if class_to_idx is None:
        _, class_to_idx = find_classes(directory)
    elif not class_to_idx:
        raise ValueError("class_to_idx must have at least one entry to collect any samples.")
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("give either extensions or is_valid_file, not both and not neither")
    given = extensions or ()
    endings = given if isinstance(given, str) else tuple(given)
    valid = is_valid_file or (lambda path: path.lower().endswith(endings))
    samples: list[tuple[str, int]] = []
    empty = []
    for name in sorted(class_to_idx):
        before = len(samples)
        folder = os.path.join(directory, name)  # noqa: PTH118
        paths = _files_below(folder, directory)
        samples += [(path, class_to_idx[name]) for path in paths if valid(path)]
        if len(samples) == before:
            empty.append(name)
    if empty and not allow_empty:
        raise FileNotFoundError(_no_files_message(empty, extensions))
    return samples


def _files_below(folder: str, root: str) -> Iterator[str]:
    """Yield the paths of all files below a folder, which need not exist."""
    if not os.path.isdir(folder):  # noqa: PTH112
        return
    for below, names in sorted(_walk(folder, "", {_identity(root)})):
        parent = os.path.join(folder, below) if below else folder  # noqa: PTH118
        yield from (os.path.join(parent, name) for name in names)  # noqa: PTH118


def _no_files_message(classes: list[str], extensions: str | Sequence[str] | None) -> str:
    message = f"Found no valid file for the classes {', '.join(classes)}."
    if extensions is None:
        return message
    listed = extensions if isinstance(extensions, str) else ", ".join(extensions)
    return f"{message} Supported extensions are: {listed}"
