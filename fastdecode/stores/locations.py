"""Lists the shards that a location stands for: braces, wildcards, or a manifest."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from fastdecode._arguments import is_iterable, wrong_kind
from fastdecode.errors import StoreError
from fastdecode.stores._items import is_file_name
from fastdecode.stores._ranges import exists, is_uri, local_path, read_file

MANIFEST = ".json"
"""The suffix of a manifest, after the name of its store."""

_BRACES = re.compile(r"\{(?:(?P<first>\d+)\.\.(?P<last>\d+)|(?P<names>[^{}]*,[^{}]*))\}")
_MOST = 1_000_000
_WILD = re.compile(r"[*?\[]")


class Manifest(NamedTuple):
    """What ``pack`` has written about its shards."""

    shards: list[str]  # their locations
    items: list[int] | None  # the number of items in each
    classes: list[str]


def shard_locations(
    location: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    storage_options: Mapping[str, Any] | None = None,
) -> list[str]:
    """List the shards that a location stands for.

    The location is a shard; ``train-{000..146}.tar``; ``train-*.tar``, in the order of the names;
    or the ``train.tar`` that ``pack`` has divided into shards, which its manifest lists, or the
    manifest itself, ``train.tar.json``. If another file of the given name exists, it stands for
    itself.

    No shard at all, or a missing shard that the manifest lists, is a FileNotFoundError. A damaged
    manifest is a StoreError. Braces that stand for too many shards, or an empty list of locations,
    are a ValueError.
    """
    if not isinstance(location, (str, os.PathLike)):
        single = isinstance(location, (bytes, bytearray)) or getattr(location, "ndim", 1) == 0
        if single or not is_iterable(location):
            raise wrong_kind("shards", "a path or URI, or several", location)
        found = [one for each in location for one in shard_locations(each, storage_options)]
        if not found:
            raise ValueError("there are no shards: the list of locations is empty")
        return found
    where = os.fspath(location)
    names = expand_braces(where)
    wild = bool(_WILD.search(where)) and not where.startswith(("http://", "https://"))
    plain = len(names) == 1 and not wild
    if plain or not is_uri(where):  # the name of a local file may contain braces itself
        if not where.endswith(MANIFEST) and exists(where, storage_options):
            return [where]
        listed = read_manifest(where, storage_options)
        if listed is not None:
            return listed.shards
    if plain:
        raise FileNotFoundError(f"{where}: there is no such file, and no manifest of its shards")
    return [one for name in names for one in _match(name, storage_options)] if wild else names


def _match(pattern: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    found = expand_wildcards(pattern, storage_options)
    if not found:
        raise FileNotFoundError(f"{pattern}: no file matches this pattern")
    return found


def read_manifest(
    location: str, storage_options: Mapping[str, Any] | None = None
) -> Manifest | None:
    """Read the manifest of a store, or the one at a location; None if there is none.

    The manifest of ``train.tar`` is ``train.tar.json``.
    """
    name = location if location.endswith(MANIFEST) else location + MANIFEST
    if not exists(name, storage_options):
        return None
    data = read_file(name, storage_options)
    try:
        told = json.loads(data)
        folder = location[: len(location) - len(os.path.basename(location))]  # noqa: PTH119 - URIs
        names = [_check_own_name(shard) for shard in told["shards"]]
        shards = [folder + name for name in names]
        classes = [str(each) for each in told.get("classes", ())]
        counts = {file["name"]: _check_count(file["items"]) for file in told.get("files", ())}
        items = [counts[name] for name in names] if counts else None
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise StoreError(f"{name} is damaged, or not a manifest of shards") from error
    for shard in () if is_uri(location) else shards:
        if not exists(shard):
            raise FileNotFoundError(f"{shard}: this shard, which {name} lists, is missing")
    return Manifest(shards, items, classes)


def _check_own_name(name: Any) -> str:
    """Check that a name is that of a file next to the manifest, and return it."""
    if not isinstance(name, str) or not is_file_name(name):
        raise ValueError(name)
    return name


def _check_count(items: Any) -> int:
    if type(items) is not int or items < 0:
        raise ValueError(items)
    return items


def expand_braces(pattern: str) -> list[str]:
    """Expand ``{000..146}`` and ``{a,b}``, as a shell does; but not braces inside of others."""
    braces = _BRACES.search(pattern)
    if braces is None:
        return [pattern]
    some = braces["names"].split(",") if braces["names"] else _expand_range(braces)
    rest = expand_braces(pattern[braces.end() :])
    if len(some) * len(rest) > _MOST:
        raise ValueError(f"{pattern} stands for more than {_MOST} shards")
    return [pattern[: braces.start()] + one + after for one in some for after in rest]


def _expand_range(braces: re.Match[str]) -> list[str]:
    bounds = braces["first"], braces["last"]
    first, last = map(int, bounds)
    if abs(last - first) >= _MOST:
        raise ValueError(f"{braces[0]} stands for more than {_MOST} shards")
    padded = any(len(each) > 1 and each[0] == "0" for each in bounds)
    width = max(map(len, bounds)) if padded else 0
    step = 1 if first <= last else -1
    return [f"{n:0{width}d}" for n in range(first, last + step, step)]


def expand_wildcards(pattern: str, storage_options: Mapping[str, Any] | None = None) -> list[str]:
    """List the local or remote files that match wildcards, in the order of their names."""
    if not is_uri(pattern):
        return sorted(set(glob.glob(local_path(pattern), recursive=True)))  # noqa: PTH207
    from fastdecode.stores._remote import Remote

    return Remote(pattern, storage_options).glob(pattern)
