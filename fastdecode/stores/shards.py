"""Several shards as one store: those that a location stands for, and `Concatenated`.

A location is braces, wildcards, or a manifest of ``pack``.
"""

from __future__ import annotations

import glob
import json
import os
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeVar

from fastdecode._arguments import is_iterable, wrong_kind
from fastdecode._error_policy import ITEM_ERRORS, mark_fatal
from fastdecode.errors import StoreError
from fastdecode.stores._ranges import exists, is_uri, local_path, read_file
from fastdecode.stores.base import Store, is_file_name, sort_groups
from fastdecode.types import Buffer

_T = TypeVar("_T")
_AT_ONCE = 16
"""Most requests that ask for indexes at the same time."""

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


class Concatenated(Store):
    """Shards one after another.

    Parameters
    ----------
    location : str
        What the user has opened.
    shards : sequence of Store
        All must have the same classes, except those without items.
    unique : bool
        Whether no two shards have a key in common. Otherwise each key begins with the name of its
        shard, or with its number if two shards have one name.
    """

    kind = "tar"

    def __init__(self, location: str, shards: Sequence[Store], *, unique: bool) -> None:
        super().__init__(location)
        self.shards = shards
        self.classes = _common_classes(location, shards)
        self._counts = list(map(len, shards))
        self._ends = list(accumulate(self._counts))
        names = [PurePosixPath(shard.location).name.partition(".")[0] for shard in shards]
        times = Counter(names)
        self._prefixes = [
            "" if unique else f"{name}/" if name and times[name] == 1 else f"{number:05d}/"
            for number, name in enumerate(names)
        ]
        self._handle()

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def key(self, index: int) -> str:
        """Return the key that the shard has for the item, after its name if keys may clash."""
        number, place = self._locate(index)
        return self._prefixes[number] + self._shard(number).key(place)

    def target(self, index: int) -> Any:
        number, place = self._locate(index)
        return self._shard(number).target(place)

    @property
    def remote(self) -> bool:
        return any(shard.remote for shard in self.shards)

    def groups(self, indices: Sequence[int]) -> list[list[int]]:
        """Group items by shard, and then as their shard groups them, which opens it."""
        wanted: dict[int, list[int]] = {}
        for index in indices:
            number, place = self._locate(index)
            wanted.setdefault(number, []).append(place)
        numbers = list(wanted)

        def divide(at: int) -> list[list[int]]:
            number = numbers[at]
            start = self._ends[number] - self._counts[number]
            places = wanted[number]
            try:
                groups = self._shard(number).groups(places)
            except ITEM_ERRORS:  # raised again when such an item is read
                groups = [[place] for place in places]
            return [[start + place for place in group] for group in groups]

        locations = [self.shards[number].location for number in numbers]
        return sort_groups(indices, list(chain.from_iterable(map_shards(locations, divide))))

    def read_group(self, indices: Sequence[int]) -> list[Buffer | str | Exception]:
        """Read items of one shard, which `groups` has put together."""
        number, place = self._locate(indices[0])
        start = indices[0] - place
        return self._shard(number).read_group([index - start for index in indices])

    def _open(self) -> Any:
        return self.shards

    def _close(self, opened: Sequence[Store]) -> None:
        for shard in opened:
            shard.close()

    def _read(self, _opened: Sequence[Store], index: int) -> Buffer:
        number, place = self._locate(index)
        return self._shard(number).read(place)

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the number of an item's shard, and the item's index there."""
        self._check(index)
        number = bisect_right(self._ends, index)
        return number, index - (self._ends[number] - self._counts[number])

    def _shard(self, number: int) -> Store:
        """Return a shard; a StoreError if it has been replaced since it was counted."""
        shard, count = self.shards[number], self._counts[number]
        if len(shard) != count:
            raise mark_fatal(
                StoreError(
                    f"{shard.location} has {len(shard)} items, where {count} were counted before: "
                    "it has been replaced; open the whole store again"
                )
            )
        return shard


def map_shards(locations: Sequence[str], ask: Callable[[int], _T]) -> list[_T]:
    """Call `ask` with the number of each shard, in threads if any shard is behind a URI."""
    numbers = range(len(locations))
    if len(numbers) < 2 or not any(map(is_uri, locations)):
        return [ask(number) for number in numbers]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(ask, numbers))


def _common_classes(location: str, shards: Sequence[Store]) -> Sequence[str]:
    """Return the classes, which must be the same for all shards that have items."""
    named = [shard for shard in shards if len(shard)] or [one for one in shards if one.classes][:1]
    for shard in named:
        if shard.classes != named[0].classes:
            each = " and ".join(_format_classes(one.classes) for one in (shard, named[0]))
            raise ValueError(
                f"{location}: {shard.location} has other classes than {named[0].location} ({each}):"
                " open them separately"
            )
    return list(named[0].classes) if named else ()


def _format_classes(classes: Sequence[str]) -> str:
    if not classes:
        return "none"
    return ", ".join(classes[:5]) + (f", ... ({len(classes)})" if len(classes) > 5 else "")
