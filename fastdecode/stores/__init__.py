"""Where the encoded images are: folders, lists, tar shards, LMDB, HDF5, MXNet RecordIO.

All are read by one protocol, `Store`; `fastdecode.torch.StoreDataset` makes a dataset of one.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fastdecode.errors import BackendUnavailable, StoreError, advised
from fastdecode.stores.base import Store, Writer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fastdecode.stores.base import StoreOptions

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
    """Where a kind of store is, before anything of it is imported."""

    reader: str
    writer: str  # ``"module:name"`` of what makes one, from a location and options by name
    suffixes: tuple[str, ...] = ()  # how locations of it end, in lower case
    # what pip installs its library by, ``fastdecode[extra]``; empty if it needs none
    extra: str = ""


KINDS: dict[str, Kind] = {
    "folder": Kind("fastdecode.stores.folder:open_folder", "fastdecode.stores.folder:FolderWriter"),
    "list": Kind("fastdecode.stores.file_list:open_list", "", (".csv", ".tsv")),
    "tar": Kind("fastdecode.stores.tar:open_tar", "fastdecode.stores.tar:TarWriter", (".tar",)),
    "lmdb": Kind(
        "fastdecode.stores.lmdb:LmdbStore",
        "fastdecode.stores.lmdb:LmdbWriter",
        (".lmdb", ".mdb"),
        "lmdb",
    ),
    "hdf5": Kind(
        "fastdecode.stores.hdf5:Hdf5Store",
        "fastdecode.stores.hdf5:Hdf5Writer",
        (".h5", ".hdf5"),
        "hdf5",
    ),
    "recordio": Kind(
        "fastdecode.stores.recordio:RecordStore",
        "fastdecode.stores.recordio:RecordWriter",
        (".rec",),
    ),
}
"""Every kind of store by its name. To add one: one file, and one line here."""


def __getattr__(name: str) -> Any:
    if name != "tar":
        raise AttributeError(f"module 'fastdecode.stores' has no attribute {name!r}")
    return importlib.import_module("fastdecode.stores.tar")  # which sets the attribute


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
        ``train-{000..146}.tar``, or a folder of them), an ``.lmdb``, ``.h5`` or ``.rec``. URIs
        (``s3://bucket/train.tar``), also in lists, are read through fsspec (``pip install
        fastdecode[remote]``), but for LMDB.
    kind : str, optional
        A name in `KINDS`; by default what the location's suffix, or what is there, says.
    **options
        Of a folder: targets, extensions. Of a list: path_column, target_column, header, delimiter,
        root. Of tar shards: index, image, target. Of HDF5: images, targets, keys. Of RecordIO:
        index. Of all but LMDB: storage_options, for the file system of URIs. The reader of each
        kind, named in `KINDS`, says what they are.

    Returns
    -------
    Store

    Raises
    ------
    FileNotFoundError
        If nothing is there.
    ImportError
        If the library for it is missing; the message has the line that installs it.
    OSError
        If it cannot be read.
    StoreError
        If it is damaged or truncated, or its files do not belong together.
    ValueError
        If the kind is not known, or not to be seen from the location; or of what is in it: images
        beside class folders, a wrong line in a table, shards with different classes.

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
    if location is None or (isinstance(location, str) and not location):
        raise ValueError(f"a store is opened by its path or URI, not {location!r}")
    if isinstance(location, bytes) or not isinstance(location, (str, os.PathLike, Iterable)):
        what = type(location).__name__
        raise TypeError(f"a store is opened by its path or URI, or several of them, not by {what}")
    if isinstance(location, (str, os.PathLike)):
        where = os.fspath(location)
        chosen = kind_of(where) if kind is None else kind
    else:
        where = [os.fspath(each) for each in location]
        chosen = _kind_of_several(where) if kind is None else kind
    return cast("Store", _named(chosen, "reader")(where, **options))


def create_store(
    location: str | os.PathLike[str],
    kind: str | None = None,
    *,
    classes: Sequence[str] = (),
) -> Writer:
    """Begin a store.

    Parameters
    ----------
    location : path
        Local; nothing may be there yet.
    kind : str, optional
        A name in `KINDS`; by default what the suffix says, and a folder where there is none. A
        suffix that no kind has is a ValueError.
    classes : sequence of str
        Names of the classes, if targets are class indices.

    Returns
    -------
    Writer
        A context manager.

    Raises
    ------
    FileExistsError
        If something is there.
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
    where = os.fspath(location)
    if not where:
        raise ValueError("a store is made at a path, not ''")
    if "://" in where:
        raise ValueError(f"{where}: stores are written to local paths; copy it when done")
    chosen = kind_for(where) if kind is None else kind
    if os.path.lexists(where):
        raise FileExistsError(f"{where} is there already: remove it, or choose another place")
    return cast("Writer", _named(chosen, "writer")(where, classes=classes))


def kind_of(location: str) -> str:
    """Return the kind of the store at a location, by its suffix or by what is there.

    Examples
    --------
    >>> from fastdecode.stores import kind_of
    >>> kind_of("train-{000..146}.tar")
    'tar'
    """
    kind = kind_by_suffix(location)
    if kind is not None:
        return kind
    if location.lower().endswith(_COMPRESSED):
        raise ValueError(
            f"{location} is a compressed tar, in which nothing can be found without reading all "
            "before it: decompress it; images are compressed as they are"
        )
    if "://" in location or Path(location).is_dir():
        return "folder"  # or one that holds a store: see `open_folder`
    if not Path(location).exists():
        raise FileNotFoundError(f"{location}: there is no such file or folder")
    from fastdecode.stores.folder import EXTENSIONS

    if location.lower().endswith(EXTENSIONS):
        raise ValueError(f"{location} is one image: name its folder, or a .csv with its path")
    listed = ", ".join(suffix for kind in KINDS.values() for suffix in kind.suffixes)
    error = ValueError(f"{location} is neither a folder nor ends in {listed}")
    raise advised(error, ": say what it is by kind=")


def kind_for(location: str) -> str:
    """Return the kind to write at a location: what its suffix says, or a folder without one.

    A suffix that no kind has is a ValueError, for it is most likely mistyped; but what begins with
    a digit is no suffix, but a version: ``photos-v1.2``.
    """
    kind = kind_by_suffix(location)
    suffix = Path(location).suffix
    if kind is None and _SUFFIX.fullmatch(suffix):
        known = " ".join(
            each.suffixes[0] for each in KINDS.values() if each.suffixes and each.writer
        )
        error = ValueError(
            f"{location}: {suffix} is no kind of store ({known}; a name without a suffix is a "
            "folder)"
        )
        raise advised(error, ": kind='folder' makes a folder of that name")
    return kind or "folder"


def _kind_of_several(locations: list[str]) -> str:
    """Return the kind of a list: of tar shards, or of images."""
    kinds = {each: kind_by_suffix(each) for each in locations}
    if locations and set(kinds.values()) == {"tar"}:
        return "tar"
    for each, kind in kinds.items():
        if kind is not None:
            raise ValueError(
                f"{each} is a {kind} store, and no image: a list names images, or tar shards only. "
                "Open it by itself"
            )
    return "list"


def kind_by_suffix(location: str) -> str | None:
    """Return the kind that the end of a location names; None if it names none."""
    name = location.rstrip("/").lower()
    for kind, entry in KINDS.items():
        if entry.suffixes and name.endswith(entry.suffixes):
            return kind
    return None


def _named(kind: str, role: str) -> Any:
    """Import what reads or writes a kind."""
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
