"""What a source was when a pack began, so that going on with another one is noticed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastdecode.errors import FastDecodeError
from fastdecode.packing._lock import Refused
from fastdecode.stores.locations import shard_locations

if TYPE_CHECKING:
    from fastdecode.packing._journal import Item
    from fastdecode.stores import Store

__all__ = ["REVISION", "check_unchanged", "describe", "keys_of", "revision", "stamp"]

REVISION = "size and time of the source"
"""What `describe` calls it."""


def keys_of(store: Store) -> Iterator[str]:
    return map(store.key, range(len(store)))


def revision(location: str) -> list[int] | None:
    """Return what changes with local files: sizes in bytes and times; None for others.

    Of a folder it is that of the shards, or the LMDB file, in it: for images see `stamp`.
    """
    path = Path(location)
    if "://" in location:
        return None
    if path.is_file():
        files = [path]
    elif path.is_dir():
        files = [each for each in sorted(path.iterdir()) if each.suffix in (".tar", ".mdb")]
    else:
        files = [Path(each) for each in shard_locations(location)]
    return [number for each in files for number in _revision(each)] or None


def stamp(store: Store, index: int) -> list[int] | None:
    """Return what changes with the local file that an item is; None if it is none."""
    if store.kind not in ("folder", "list") or "://" in store.location:
        return None
    try:
        path = store.source(index)
        return _revision(path) if isinstance(path, str) else None
    except (FastDecodeError, OSError, ValueError):  # reading it will say what is wrong
        return None


def _revision(path: str | Path) -> list[int]:
    found = os.stat(path)  # noqa: PTH116 - a million times
    return [found.st_size, found.st_mtime_ns]


def describe(store: Store, location: str) -> dict[str, Any]:
    """Return what `check` compares of a source, without reading its images."""
    keys = hashlib.sha256()
    for key in keys_of(store):
        keys.update(key.encode("utf-8", "surrogatepass") + b"\n")
    return {
        "number of items": len(store),
        "sha256 of the keys": keys.hexdigest(),
        "classes": list(store.classes),
        REVISION: revision(location),
    }


def check_unchanged(store: Store, items: Iterable[Item]) -> None:
    """Refuse a source of which a file has changed since it went into the spool."""
    for item in items:
        if item.number >= len(store) or (
            item.stamp is not None and stamp(store, item.number) != item.stamp
        ):
            raise Refused(
                f"{store.location}, item {item.number} ({store.key(item.number)}) has changed "
                "since an earlier run packed it: begin again with --start-over"
            )
