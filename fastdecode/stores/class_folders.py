"""Pictures in one folder a class: which classes there are, and which files, in torchvision's order.

Notes
-----
The rules, and the sense of the errors, are those of ``torchvision.datasets.folder`` (0.29), but
where links lead round: see `fastdecode.stores.found_files`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from fastdecode.stores.found_files import is_folder, walk

__all__ = ["IMG_EXTENSIONS", "find_classes", "make_dataset"]

IMG_EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""torchvision's: what counts as a picture unless the caller says otherwise; in lower case."""


def find_classes(directory: str | os.PathLike[str]) -> tuple[list[str], dict[str, int]]:
    """List the folders in a folder: each is a class.

    Parameters
    ----------
    directory : path

    Returns
    -------
    classes : list of str
        Sorted.
    class_to_idx : dict of str to int
        Their places in that list.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    with os.scandir(directory) as entries:
        classes = sorted(entry.name for entry in entries if is_folder(entry))
    if not classes:
        raise FileNotFoundError(f"Couldn't find any class folder in {os.fspath(directory)}.")
    return classes, {name: index for index, name in enumerate(classes)}


def make_dataset(
    directory: str | os.PathLike[str],
    class_to_idx: dict[str, int] | None = None,
    extensions: str | Sequence[str] | None = None,
    is_valid_file: Callable[[str], bool] | None = None,
    allow_empty: bool = False,
) -> list[tuple[str, int]]:
    """List the files of each class, at any depth and through links.

    Parameters
    ----------
    directory : path
    class_to_idx : dict of str to int, optional
        By default what `find_classes` says.
    extensions : str or sequence of str, optional
        How the names may end, in lower case.
    is_valid_file : callable, optional
        Instead of `extensions`: called with a path, it says whether to take it.
    allow_empty : bool
        Accept classes without files.

    Returns
    -------
    list of (path, class index)
        Sorted by class, folder and name.

    Raises
    ------
    FileNotFoundError
        If a class has no file, unless `allow_empty`.
    ValueError
        If `extensions` and `is_valid_file` are both given, or neither, or there are no classes.
    """
    # Paths are strings, put together as torchvision does: they come out the same.
    directory = os.path.expanduser(directory)  # noqa: PTH111
    if class_to_idx is None:
        _, class_to_idx = find_classes(directory)
    elif not class_to_idx:
        raise ValueError("class_to_idx must have at least one entry to collect any samples.")
    if (extensions is None) == (is_valid_file is None):
        raise ValueError("give either extensions or is_valid_file, not both and not neither")
    valid = is_valid_file or _ends_in(extensions or ())
    samples: list[tuple[str, int]] = []
    empty = []
    for name in sorted(class_to_idx):
        before = len(samples)
        folder = os.path.join(directory, name)  # noqa: PTH118
        paths = _files(folder, directory)
        samples += [(path, class_to_idx[name]) for path in paths if valid(path)]
        if len(samples) == before:
            empty.append(name)
    if empty and not allow_empty:
        raise FileNotFoundError(_without_files(empty, extensions))
    return samples


def _files(folder: str, root: str) -> Iterator[str]:
    """Yield the paths of all files below a folder; none if there is no such folder."""
    if not os.path.isdir(folder):  # noqa: PTH112
        return
    for below, names in walk(folder, root):
        parent = os.path.join(folder, below) if below else folder  # noqa: PTH118
        yield from (os.path.join(parent, name) for name in names)  # noqa: PTH118


def _ends_in(extensions: str | Sequence[str]) -> Callable[[str], bool]:
    endings = extensions if isinstance(extensions, str) else tuple(extensions)
    return lambda path: path.lower().endswith(endings)


def _without_files(classes: list[str], extensions: str | Sequence[str] | None) -> str:
    message = f"Found no valid file for the classes {', '.join(classes)}."
    if extensions is None:
        return message
    listed = extensions if isinstance(extensions, str) else ", ".join(extensions)
    return f"{message} Supported extensions are: {listed}"
