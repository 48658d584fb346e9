"""Several shards as one store."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate, chain
from pathlib import PurePosixPath
from typing import Any, TypeVar

from fastdecode._error_policy import ITEM_ERRORS, mark_fatal
from fastdecode.errors import StoreError
from fastdecode.stores._ranges import is_uri
from fastdecode.stores.base import Store, sort_groups
from fastdecode.types import Buffer

_T = TypeVar("_T")
_AT_ONCE = 16
"""Most requests that ask for indexes at the same time."""


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
