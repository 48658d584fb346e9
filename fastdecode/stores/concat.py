"""`Concatenated`: the shards of one store."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import PurePosixPath
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fastdecode._error_policy import ITEM_ERRORS, mark_fatal
from fastdecode.errors import StoreError
from fastdecode.stores._ranges import is_uri, max_maps
from fastdecode.stores.base import Store, sort_groups
from fastdecode.types import Buffer

_AT_ONCE = 16
"""How many shards behind URIs are opened or summarised at the same time."""

_KEPT = 512
"""How many shards stay open at least. What limits open files is `_ranges`; this limits indexes."""

_T = TypeVar("_T")


class Part(NamedTuple):
    """A shard, which is opened when it is needed."""

    location: str
    items: int  # checked when the shard is opened
    classes: Sequence[str]
    open: Callable[[], Store]  # must be picklable


class Concatenated(Store):
    """Several shards as one store.

    `unique` says whether all keys differ. If it is None, the first call of `key` compares all keys
    of all shards. If two shards have a key in common, all keys begin with the name of their shard,
    such as "train-00007/".
    """

    kind = "tar"

    def __init__(self, location: str, parts: Sequence[Part], *, unique: bool | None = None) -> None:
        super().__init__(location)
        self.parts = list(parts)
        self.classes = _common_classes(location, self.parts)
        self._ends = list(accumulate(part.items for part in self.parts))
        self._unique = unique

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def key(self, index: int) -> str:
        """Return the key that the shard has for the item, after its name if keys clash."""
        self._check(index)
        number, place = self._locate(index)
        key = self._part(number).key(place)
        if self._unique is None:
            self.compare_keys()
        return key if self._unique else f"{self._part_name(number)}/{key}"

    def compare_keys(self) -> None:
        """Find out whether two shards have a key in common, unless that is known.

        It reads all indexes. Copies that are pickled afterwards do not read them again.
        """
        opened: _OpenParts = self._handle()
        with opened.comparing:
            if self._unique is None:
                self._unique = self._compare_all_keys()

    def target(self, index: int) -> Any:
        self._check(index)
        number, place = self._locate(index)
        return self._part(number).target(place)

    @property
    def remote(self) -> bool:
        return any(is_uri(part.location) for part in self.parts)

    def groups(self, indices: Sequence[int]) -> list[list[int]]:
        """Group items by shard, and then as their shard groups them, which opens it."""
        wanted: dict[int, list[int]] = {}
        for index in indices:
            number, place = self._locate(index)
            wanted.setdefault(number, []).append(place)
        numbers = list(wanted)

        def divide(at: int) -> list[list[int]]:
            number = numbers[at]
            start = self._ends[number] - self.parts[number].items
            places = wanted[number]
            try:
                groups = self._part(number).groups(places)
            except ITEM_ERRORS:  # raised again when such an item is read
                groups = [[place] for place in places]
            return [[start + place for place in group] for group in groups]

        locations = [self.parts[number].location for number in numbers]
        return sort_groups(indices, list(chain.from_iterable(map_parts(locations, divide))))

    def read_group(self, indices: Sequence[int]) -> list[Buffer | str | Exception]:
        """Read items of one shard, which `groups` has put together."""
        number, place = self._locate(indices[0])
        start = indices[0] - place
        return self._part(number).read_group([index - start for index in indices])

    def _open(self) -> Any:
        return _OpenParts(self.parts)

    def _close(self, opened: Any) -> None:
        opened.close()

    def _read(self, opened: Any, index: int) -> Buffer:
        number, place = self._locate(index)
        data: Buffer = opened.store(number).read(place)
        return data

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the number of an item's shard, and the item's index there."""
        number = bisect_right(self._ends, index)
        return number, index - (self._ends[number - 1] if number else 0)

    def _part(self, number: int) -> Store:
        opened: _OpenParts = self._handle()
        return opened.store(number)

    def _part_name(self, number: int) -> str:
        """Return the prefix of a shard's keys when keys clash."""
        names = [PurePosixPath(part.location).name.partition(".")[0] for part in self.parts]
        name = names[number]
        return name if name and names.count(name) == 1 else f"{number:05d}"

    def _compare_all_keys(self) -> bool:
        def hashes(number: int) -> NDArray[np.int64]:
            try:
                store = self._part(number)
                found = np.fromiter(map(hash, map(store.key, range(len(store)))), np.int64)
            except (FileNotFoundError, StoreError):
                # Reading an item of this shard raises the error; other shards keep their keys.
                return np.empty(0, np.int64)
            return np.unique(found)

        each = map_parts([part.location for part in self.parts], hashes)
        every = np.sort(np.concatenate(each)) if each else np.empty(0, np.int64)
        return not bool((every[1:] == every[:-1]).any())


def map_parts(locations: Sequence[str], ask: Callable[[int], _T]) -> list[_T]:
    """Call `ask` with the number of each shard, in threads if any shard is behind a URI."""
    numbers = range(len(locations))
    if len(numbers) < 2 or not any(map(is_uri, locations)):
        return [ask(number) for number in numbers]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(ask, numbers))


class _OpenParts:
    """The shards that one process has open. The least recently used ones make room for others."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self.comparing = threading.Lock()  # held by the thread that compares all keys
        # One thread opens a shard while others that need it wait.
        self._locks = [threading.Lock() for _ in parts]
        most = max(_KEPT, max_maps() // 2)  # a shard has two files: itself, and its index
        # What makes room is not closed, because another thread may still read from it.
        self._stores = lru_cache(most)(lambda number: _open_part(parts[number]))

    def store(self, number: int) -> Store:
        with self._locks[number]:
            return self._stores(number)

    def close(self) -> None:
        self._stores.cache_clear()


def _open_part(part: Part) -> Store:
    """Open a shard, and check that it has as many items as were counted."""
    try:
        store = part.open()
        if len(store) != part.items:
            raise StoreError(
                f"{part.location} has {len(store)} items, where {part.items} were counted before: "
                "it has been replaced; open the whole store again"
            )
    except ITEM_ERRORS as error:
        mark_fatal(error)
        raise
    return store


def _common_classes(location: str, parts: Sequence[Part]) -> Sequence[str]:
    """Return the classes, which must be the same for all shards that have items."""
    named = [part for part in parts if part.items] or [part for part in parts if part.classes][:1]
    for part in named:
        if list(part.classes) != list(named[0].classes):
            each = " and ".join(_format_classes(one.classes) for one in (part, named[0]))
            raise ValueError(
                f"{location}: {part.location} has other classes than {named[0].location} ({each}): "
                "open them separately"
            )
    return list(named[0].classes) if named else ()


def _format_classes(classes: Sequence[str]) -> str:
    if not classes:
        return "none"
    return ", ".join(classes[:5]) + (f", ... ({len(classes)})" if len(classes) > 5 else "")
