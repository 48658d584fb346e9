"""Lists the shards that a location stands for: braces, wildcards, a manifest, numbered names."""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fastdecode.errors import StoreError
from fastdecode.stores._items import is_file_name
from fastdecode.stores._ranges import Ranges, exists, is_uri, local_path
from fastdecode.stores._scan import expand_pattern

__all__ = ["Manifest", "expand_braces", "read_manifest", "shard_locations"]

_RANGE = re.compile(r"(\d+)\.\.(\d+)$")
_MOST = 1_000_000
_BLOCK = 512
"""Block size of a tar, in bytes."""

_MAX_BYTES = 1 << 50

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
    or the ``train.tar`` that ``pack`` has divided into shards. Those are the shards in its
    manifest, ``train.tar.json``, or without a manifest ``train-00000.tar`` and those that follow.
    If a file of the given name exists, it stands for itself.

    No shard at all, or a missing shard that the manifest lists, is a FileNotFoundError. A damaged
    manifest, or a missing number between two shards, is a StoreError. Braces that stand for too
    many shards, or an empty list of locations, are a ValueError.
    """
    if not isinstance(location, (str, os.PathLike)):
        found = [one for each in location for one in shard_locations(each, storage_options)]
        if not found:
            raise ValueError("there are no shards: the list of locations is empty")
        return found
    where = os.fspath(location)
    if not is_uri(where):
        if exists(where):
            return [where]
        listed = read_manifest(where, storage_options)  # first: the name may contain a wildcard
        if listed is not None:
            return listed.shards
        _check_finished(where)
    names = expand_braces(where)
    if _WILD.search(where) and not where.startswith(("http://", "https://")):
        found = []
        for name in names:
            some = _expand_wildcards(name, storage_options)
            if not some:
                raise FileNotFoundError(f"{name}: no file matches this pattern")
            found += some
        return found
    if len(names) > 1 or (is_uri(where) and exists(where, storage_options)):
        return names
    listed = read_manifest(where, storage_options) if is_uri(where) else None
    return _numbered_shards(where, storage_options) if listed is None else listed.shards


def _check_finished(location: str) -> None:
    """Raise a StoreError if a pack to this location has begun and is not finished."""
    path = Path(local_path(location))
    if path.with_name(f".{path.name}.partial").joinpath("state").exists():
        raise StoreError(
            f"{location}: a pack to it has begun, and is not finished: run the same fastdecode "
            "pack command again"
        )


def read_manifest(
    location: str, storage_options: Mapping[str, Any] | None = None
) -> Manifest | None:
    """Read the manifest of shards, ``train.tar.json`` for ``train.tar``; None if there is none."""
    name = f"{location}.json"
    if not exists(name, storage_options):
        return None
    file = Ranges(name, storage_options)
    try:
        told = json.loads(bytes(file.read(0, file.size)))
        folder = location[: len(location) - len(os.path.basename(location))]  # noqa: PTH119 - URIs
        names = [_check_own_name(shard) for shard in told["shards"]]
        shards = [folder + name for name in names]
        classes = [str(each) for each in told.get("classes", ())]
        counts = {file["name"]: _check_count(file) for file in told.get("files", ())}
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


def _check_count(file: Mapping[str, Any]) -> int:
    """Check that a shard of that size can have so many items (a block or more each)."""
    number, size = file["items"], min(file.get("bytes", _MAX_BYTES), _MAX_BYTES)
    if type(number) is not int or not 0 <= number <= size // _BLOCK:
        raise ValueError(number)
    return number


def expand_braces(pattern: str) -> list[str]:
    """Expand ``{000..146}`` and ``{a,b}``, as a shell does."""
    for start, sign in enumerate(pattern):
        parts = _split_braces(pattern, start + 1) if sign == "{" else []
        numbers = _RANGE.match(parts[0]) if len(parts) == 1 else None
        if numbers is None and len(parts) < 2:
            continue
        if numbers is None:
            some = [one for part in parts for one in expand_braces(part)]
        else:
            some = _expand_range(numbers)
        rest = expand_braces(pattern[start + 2 + len(",".join(parts)) :])
        if len(some) * len(rest) > _MOST:
            raise ValueError(f"{pattern} stands for more than {_MOST} shards")
        return [pattern[:start] + one + after for one in some for after in rest]
    return [pattern]


def _split_braces(pattern: str, start: int) -> list[str]:
    """Split at commas up to the closing brace; return an empty list if no brace closes it."""
    found, depth = [""], 1
    for sign in pattern[start:]:
        depth += {"{": 1, "}": -1}.get(sign, 0)
        if depth == 0:
            return found
        if sign == "," and depth == 1:
            found.append("")
        else:
            found[-1] += sign
    return []


def _expand_range(bounds: re.Match[str]) -> list[str]:
    first, last = int(bounds[1]), int(bounds[2])
    if abs(last - first) >= _MOST:
        raise ValueError(f"{{{bounds[0]}}} stands for more than {_MOST} shards")
    padded = any(len(each) > 1 and each[0] == "0" for each in bounds.groups())
    width = max(map(len, bounds.groups())) if padded else 0
    step = 1 if first <= last else -1
    return [f"{n:0{width}d}" for n in range(first, last + step, step)]


def _expand_wildcards(pattern: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    """List the local or remote files that match wildcards, in the order of their names."""
    if not is_uri(pattern):
        return expand_pattern(local_path(pattern))
    from fastdecode.stores._remote import Remote

    return Remote(pattern, storage_options).glob(pattern)


def _numbered_shards(location: str, storage_options: Mapping[str, Any] | None) -> list[str]:
    """List ``train-00000.tar`` and so on for ``train.tar``; no number may be missing."""
    start, dot, suffix = location.rpartition(".")
    begin = start if is_uri(location) else glob.escape(start)
    skipped = len(start.rpartition("/")[2]) + 1
    numbers = {}
    for each in _expand_wildcards(f"{begin}-*{dot}{suffix}", storage_options):
        digits = each.rpartition("/")[2][skipped : -len(dot + suffix)]
        if digits.isdecimal():
            numbers[int(digits)] = each
    if not numbers:
        raise FileNotFoundError(f"{location}: there is no such file, and no shards of it")
    for number in range(len(numbers)):
        if number not in numbers:
            raise StoreError(f"{location}: its shard {number} of {len(numbers)} is missing")
    return [numbers[number] for number in range(len(numbers))]
