"""Stores of encoded images: folders, lists of files, tar shards, LMDB, HDF5, MXNet RecordIO.

All have one interface, `Store`. `fastdecode.torch.StoreDataset` makes a dataset of a store.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fastdecode._arguments import all_of, check_kinds, check_names, wrong_kind
from fastdecode.errors import BackendUnavailable, StoreError, with_advice
from fastdecode.stores._scan import EXTENSIONS
from fastdecode.stores.base import Store, StoreOptions, Writer

if TYPE_CHECKING:
    from typing_extensions import Unpack

__all__ = [
    "KINDS",
    "Store",
    "StoreError",
    "Writer",
    "create_store",
    "kind_of",
    "open_store",
]

_SUFFIX = re.compile(r"\.[^\W\d]\w*")
_COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")


class Kind(NamedTuple):
    """Which reader and writer to import for a kind of store, and when."""

    # ``"module:name"`` of a callable that takes a location and keyword options
    reader: str
    writer: str
    suffixes: tuple[str, ...] = ()  # of its locations, in lower case
    # ``fastdecode[extra]`` installs its library; empty if it needs none
    extra: str = ""


KINDS: dict[str, Kind] = {
    "folder": Kind("fastdecode.stores.folder:open_folder", "fastdecode.stores.folder:FolderWriter"),
    "list": Kind("fastdecode.stores.file_list:open_list", "", (".csv", ".tsv")),
    "tar": Kind(
        "fastdecode.stores.tar.store:open_tar", "fastdecode.stores.tar.store:TarWriter", (".tar",)
    ),
    "lmdb": Kind(
        "fastdecode.stores.lmdb:LmdbStore",
        "fastdecode.stores.lmdb:LmdbWriter",
        (".lmdb", ".mdb"),
        "lmdb",
    ),
    "hdf5": Kind("fastdecode.stores.hdf5:Hdf5Store", "", (".h5", ".hdf5"), "hdf5"),
    "recordio": Kind("fastdecode.stores.recordio:RecordStore", "", (".rec",)),
}
"""Every kind of store by its name. To add a kind, write its module and add a line here."""


def __getattr__(name: str) -> Any:
    if name != "tar":
        raise AttributeError(f"module 'fastdecode.stores' has no attribute {name!r}")
    return importlib.import_module("fastdecode.stores.tar")  # the import sets the attribute


def open_store(
    location: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    kind: str | None = None,
    **options: Unpack[StoreOptions],
) -> Store:
    """Open a store for reading.

    Parameters
    ----------
    location : path or URI, or several
        A folder of images, a CSV file, a list of images, a ``.tar`` or several (a list,
        ``train-{000..146}.tar``, ``shards/*.tar``, or a manifest of `pack`), an ``.lmdb``, ``.h5``
        or ``.rec``. All but LMDB may be URIs (``s3://bucket/train.tar``), also in lists. URIs are
        read through fsspec, which the extra ``remote`` brings.
    kind : str, optional
        A name in `KINDS`. By default it follows from the location's suffix, or from what is there.
    **options
        Options of the kind, which its reader in `KINDS` documents. Folders: targets, extensions.
        Lists: path_column, target_column, header, delimiter, root. Tar shards: index, image,
        target. HDF5: images, targets, keys. RecordIO: index. All but LMDB: storage_options, for the
        file system of a URI.

    Returns
    -------
    Store

    Raises
    ------
    FileNotFoundError
        If there is nothing at the location.
    ImportError
        If the library for this kind is missing. The message has the command that installs it.
    OSError
        If the store cannot be read.
    StoreError
        If the store is damaged or truncated, or its files do not belong together.
    ValueError
        If the kind is unknown or does not follow from the location. Also if the content is not
        allowed: images next to class folders, an invalid line in a table, shards with different
        classes.

    Examples
    --------
    >>> from fastdecode import decode
    >>> from fastdecode.stores import open_store
    >>> with open_store("train") as store:  # or train.tar, train.lmdb, s3://bucket/train.tar
    ...     image = decode(store.read(0))
    ...     print(store, store.key(0), store.classes[store.target(0)])
    <folder store of 6 at train> bird/canyon-wren.jpg bird
    """
    where: str | list[str]
    check_kinds({"kind": kind, **options})
    if location is None or (isinstance(location, str) and not location):
        raise ValueError(f"location must be the path or URI of a store, not {location!r}")
    if isinstance(location, bytes) or not isinstance(location, (str, os.PathLike, Iterable)):
        what = type(location).__name__
        raise TypeError(f"location must be a path or URI, or several of them, not {what}")
    if isinstance(location, (str, os.PathLike)):
        where = os.fspath(location)
        chosen = kind_of(where) if kind is None else kind
    else:
        where = []
        for at, each in enumerate(location):
            if not isinstance(each, (str, os.PathLike)):
                raise wrong_kind(f"location[{at}]", "a path or URI", each)
            where.append(os.fspath(each))
        chosen = _kind_of_list(where) if kind is None else kind
    check_names(open_store, options, StoreOptions)
    reader = _import_class(chosen, "reader")
    own = inspect.signature(reader).parameters
    wrong = next((name for name in options if name not in own), None)
    if wrong is not None:
        raise TypeError(f"open_store(): a {chosen} store has no option {wrong!r}")
    return cast("Store", reader(where, **options))


def create_store(
    location: str | os.PathLike[str],
    kind: str | None = None,
    *,
    classes: Sequence[str] = (),
) -> Writer:
    """Create a store, and return its writer.

    Parameters
    ----------
    location : path
        A local path where nothing exists yet.
    kind : str, optional
        A name in `KINDS`. By default the suffix of the location decides; without a suffix the store
        is a folder. A suffix that belongs to no kind is a ValueError.
    classes : sequence of str
        Names of the classes, if targets are class indices.

    Returns
    -------
    Writer
        A context manager.

    Raises
    ------
    FileExistsError
        If the location exists.
    TypeError
        `classes` is one string.
    ImportError, ValueError
        As for `open_store`.

    Examples
    --------
    >>> from fastdecode.stores import create_store, open_store
    >>> with create_store("cats.tar", classes=["cat"]) as writer:
    ...     writer.add("cat/1.jpg", data, 0)
    >>> open_store("cats.tar").key(0)
    'cat/1.jpg'
    """
    check_kinds({"kind": kind})
    if isinstance(classes, str) or not all_of(str, classes):
        raise wrong_kind("classes", "a list of names", classes)
    if not isinstance(location, (str, os.PathLike)):
        raise wrong_kind("location", "a path", location)
    where = os.fspath(location)
    if not where:
        raise ValueError("a store is made at a path, not ''")
    if "://" in where:
        raise ValueError(f"{where}: stores are written to local paths; copy it when done")
    chosen = kind_for(where) if kind is None else kind
    if os.path.lexists(where):
        raise FileExistsError(f"{where} is there already: remove it, or choose another place")
    return cast("Writer", _import_class(chosen, "writer")(where, classes=classes))


def kind_of(location: str) -> str:
    """Return the kind of the store at a location, from its suffix or from what is there.

    Parameters
    ----------
    location : str
        Path or URI.

    Returns
    -------
    str
        A name in `KINDS`.

    Raises
    ------
    FileNotFoundError
        If the suffix does not tell the kind, and there is nothing at the location.
    ValueError
        If the location is not a store of any kind.

    Examples
    --------
    >>> from fastdecode.stores import kind_of
    >>> kind_of("train-{000..146}.tar")
    'tar'
    """
    if not isinstance(location, str):
        raise wrong_kind("location", "a path or URI as a string", location)
    kind = _kind_to_read(location)
    if kind is not None:
        return kind
    if location.lower().endswith(_COMPRESSED):
        raise ValueError(
            f"{location} is a compressed tar, in which nothing can be found without reading all "
            "before it: decompress it; the images in it are compressed already"
        )
    if "://" not in location and (Path(location) / "data.mdb").exists():
        return "lmdb"
    if "://" in location or Path(location).is_dir():
        return "folder"
    if not Path(location).exists():
        raise FileNotFoundError(f"{location}: there is no such file or folder")
    if location.lower().endswith(EXTENSIONS):
        raise ValueError(f"{location} is one image: name its folder, or a .csv with its path")
    listed = ", ".join(suffix for kind in KINDS.values() for suffix in kind.suffixes)
    error = ValueError(f"{location} is neither a folder nor ends in {listed}")
    raise with_advice(error, ": say what it is with kind=")


def kind_for(location: str) -> str:
    """Return the kind of store to write at a location: that of its suffix, or "folder" without one.

    A suffix that belongs to no kind is a ValueError, because it is most likely a typo. One that
    begins with a digit is a version and not a suffix: ``photos-v1.2``.
    """
    kind = kind_by_suffix(location)
    suffix = Path(location).suffix
    if kind is None and _SUFFIX.fullmatch(suffix):
        known = " ".join(
            each.suffixes[0] for each in KINDS.values() if each.suffixes and each.writer
        )
        error = ValueError(
            f"{location}: {suffix} is not a kind of store ({known}; a name without a suffix is a "
            "folder)"
        )
        raise with_advice(error, ": kind='folder' makes a folder of that name")
    return kind or "folder"


def _kind_of_list(locations: list[str]) -> str:
    """Return the kind of a list of locations: "tar" for shards, "list" for images."""
    kinds = {each: _kind_to_read(each) for each in locations}
    if locations and set(kinds.values()) == {"tar"}:
        return "tar"
    for each, kind in kinds.items():
        if kind is not None:
            raise ValueError(
                f"{each} is a {kind} store, not an image: a list may name images, or tar shards. "
                "Open it on its own"
            )
    return "list"


def _kind_to_read(location: str) -> str | None:
    """Return the kind that a suffix stands for; the manifest of tar shards stands for these."""
    return "tar" if location.lower().endswith(".tar.json") else kind_by_suffix(location)


def kind_by_suffix(location: str) -> str | None:
    """Return the kind that the suffix of a location stands for, or None."""
    name = location.rstrip("/").lower()
    for kind, entry in KINDS.items():
        if entry.suffixes and name.endswith(entry.suffixes):
            return kind
    return None


def _import_class(kind: str, role: str) -> Any:
    """Import the reader or the writer of a kind."""
    if kind not in KINDS:
        raise ValueError(f"there is no kind of store {kind!r}, only {', '.join(KINDS)}")
    entry = KINDS[kind]
    target: str = getattr(entry, role)
    if not target:
        raise ValueError(f"a {kind} store can be read, but not written")
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        if not entry.extra:
            raise
        raise BackendUnavailable(
            f"a {kind} store needs a library that is missing ({error}): "
            f'pip install "fastdecode[{entry.extra}]"'
        ) from error
