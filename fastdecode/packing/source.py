"""What a source was when a pack began, so that going on with another one is noticed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastdecode.stores import Store

__all__ = ["REVISION", "describe", "keys_of", "revision"]

REVISION = "size and time of the source"
"""What `describe` calls it."""


def keys_of(store: Store) -> Iterator[str]:
    """Yield every key."""
    return map(store.key, range(len(store)))


def revision(location: str) -> list[int] | None:
    """Return what changes with a local file: its size in bytes and its time; None for others."""
    path = Path(location)
    if "://" in location or not path.is_file():
        return None
    found = path.stat()
    return [found.st_size, found.st_mtime_ns]


def describe(store: Store, location: str) -> dict[str, Any]:
    """Describe a source, without reading its pictures."""
    keys = hashlib.sha256()
    for key in keys_of(store):
        keys.update(key.encode() + b"\n")
    return {
        "number of items": len(store),
        "sha256 of the keys": keys.hexdigest(),
        "classes": list(store.classes),
        REVISION: revision(location),
    }
