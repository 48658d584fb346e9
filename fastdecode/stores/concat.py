"""`Concatenated`: several stores, one after another, as one store."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
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
"""How many parts behind URIs are opened or summarised at the same time."""

_KEPT = 512
"""How many parts stay open at least. What limits open files is `_ranges`; this limits indexes."""

_T = TypeVar("_T")


class Part(NamedTuple):
    """A store that is opened when it is needed."""

    location: str
    items: int  # checked when the store is opened
    classes: Sequence[str]
    open: Callable[[], Store]  # must be picklable


class Concatenated(Store):
    """Several stores as one. A `Part` is opened when it is needed; a `Store` stays open.

    `unique` says whether all keys differ. If it is None, the first call of `key` compares all keys
    of all parts. If two parts have a key in common, all keys begin with the name of their part,
    such as "train-00007/".
    """

    def __init__(
        self,
        location: str,
        parts: Sequence[Part | Store],
        kind: str,
        *,
        unique: bool | None = None,
    ) -> None:
        super().__init__(location)
        self.kind = kind  # type: ignore[misc]  # of the instance: parts may be of any kind
        self.parts = list(parts)
        self.classes = _classes_of(location, self.parts)
        self._ends = list(accumulate(map(_length, self.parts)))
        self._unique = unique

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def key(self, index: int) -> str:
        """Return the key that the part has for the item, after the part's name if keys clash."""
        self._check(index)
        number, place = self._locate(index)
        key = self._part(number).key(place)
        if self._unique is None:
            self.compare_keys()
        return key if self._unique else f"{self._part_name(number)}/{key}"

    def compare_keys(self) -> None:
        """Find out whether two parts have a key in common, unless that is known.

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

    def source(self, index: int) -> Buffer | str:
        self._check(index)
        number, place = self._locate(index)
        return self._part(number).source(place)

    @property
    def remote(self) -> bool:
        return any(is_uri(part.location) for part in self.parts)

    def groups(self, indices: Sequence[int]) -> list[list[int]]:
        """Group items by part, and then as their part groups them, which opens it."""
        wanted: dict[int, list[int]] = {}
        for index in indices:
            number, place = self._locate(index)
            wanted.setdefault(number, []).append(place)
        numbers = list(wanted)

        def divide(at: int) -> list[list[int]]:
            number = numbers[at]
            start = self._ends[number - 1] if number else 0
            places = wanted[number]
            try:
                groups = self._part(number).groups(places)
            except ITEM_ERRORS:  # raised again when such an item is read
                groups = [[place] for place in places]
            return [[start + place for place in group] for group in groups]

        # Parts that are open need no threads, which wait for the requests of the others.
        opened: _OpenParts = self._handle()
        ready = all(map(opened.is_open, numbers))
        places = ["" if ready else self.parts[number].location for number in numbers]
        return sort_groups(indices, list(chain.from_iterable(map_parts(places, divide))))

    def read_group(self, indices: Sequence[int]) -> list[Buffer | str | Exception]:
        """Read items of one part, which `groups` has put together."""
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
        """Return the number of an item's part, and the item's index there."""
        number = bisect_right(self._ends, index)
        return number, index - (self._ends[number - 1] if number else 0)

    def _part(self, number: int) -> Store:
        opened: _OpenParts = self._handle()
        return opened.store(number)

    def _part_name(self, number: int) -> str:
        """Return the prefix of a part's keys when keys clash."""
        names = [PurePosixPath(part.location).name.partition(".")[0] for part in self.parts]
        name = names[number]
        return name if name and names.count(name) == 1 else f"{number:05d}"

    def _compare_all_keys(self) -> bool:
        def hashes(number: int) -> NDArray[np.int64]:
            try:
                store = self._part(number)
                found = np.fromiter(map(hash, map(store.key, range(len(store)))), np.int64)
            except (FileNotFoundError, StoreError):
                # Reading an item of this part raises the error; other parts keep their keys.
                return np.empty(0, np.int64)
            return np.unique(found)

        each = map_parts([part.location for part in self.parts], hashes)
        every = np.sort(np.concatenate(each)) if each else np.empty(0, np.int64)
        return not bool((every[1:] == every[:-1]).any())


def map_parts(locations: Sequence[str], ask: Callable[[int], _T]) -> list[_T]:
    """Call `ask` with the number of each part, in threads if any part is behind a URI."""
    numbers = range(len(locations))
    if len(numbers) < 2 or not any(map(is_uri, locations)):
        return [ask(number) for number in numbers]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return list(threads.map(ask, numbers))


class _OpenParts:
    """The parts that one process has open. The least recently used ones make room for others."""

    def __init__(self, parts: Sequence[Part | Store]) -> None:
        self._parts = parts
        self._lock = threading.Lock()
        self._most = max(_KEPT, max_maps() // 2)  # a part has two files: the shard, and its index
        self._stores: OrderedDict[int, Store] = OrderedDict()
        self._opening: dict[int, threading.Lock] = {}
        self.comparing = threading.Lock()  # held by the thread that compares all keys

    def store(self, number: int) -> Store:
        """Return a part. One thread opens it, while others that need it wait."""
        part = self._parts[number]
        if not isinstance(part, Part):
            return part
        with self._lock:
            store = self._stores.get(number)
            if store is not None:
                self._stores.move_to_end(number)
                return store
            opening = self._opening.setdefault(number, threading.Lock())
        with opening:  # one lock per part: threads that need another part do not wait for this one
            store = self._stores.get(number)
            if store is None:
                store = _open_part(part)
                self._keep(number, store)
            return store

    def is_open(self, number: int) -> bool:
        return number in self._stores or not isinstance(self._parts[number], Part)

    def _keep(self, number: int, store: Store) -> None:
        with self._lock:
            self._stores[number] = store
            self._opening.pop(number, None)
            while len(self._stores) > self._most:
                # Not closed, because another thread may still read from it.
                self._stores.popitem(last=False)

    def close(self) -> None:
        with self._lock:
            for part in (*self._stores.values(), *self._parts):
                if isinstance(part, Store):
                    part.close()
            self._stores.clear()


def _open_part(part: Part) -> Store:
    """Open a part, and check that it has as many items as were counted."""
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


def _length(part: Part | Store) -> int:
    return part.items if isinstance(part, Part) else len(part)


def _classes_of(location: str, parts: Sequence[Part | Store]) -> Sequence[str]:
    """Return the classes that all parts have in common, leaving out parts without items."""
    named = [(part.location, list(part.classes)) for part in parts if _length(part)]
    if not named:
        return next(chain((list(part.classes) for part in parts if part.classes), ((),)))
    return common_classes(location, named)


def common_classes(location: str, named: Sequence[tuple[str, Sequence[str]]]) -> Sequence[str]:
    """Return the classes, which must be the same for all locations; else raise a ValueError."""
    first, classes = named[0]
    for other, its in named:
        if its != classes:
            raise ValueError(
                f"{location}: {other} has other classes than {first} "
                f"({_format_classes(its)} and {_format_classes(classes)}): open them separately"
            )
    return classes


def _format_classes(classes: Sequence[str]) -> str:
    if not classes:
        return "none"
    return ", ".join(classes[:5]) + (f", ... ({len(classes)})" if len(classes) > 5 else "")
