"""`State`: how far a pack has come, as its journal tells it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from fastdecode.packing.results import Bad, Item, Packed, Refused

if TYPE_CHECKING:
    from fastdecode.packing.journal import Journal

__all__ = ["State", "items_of"]

_T = TypeVar("_T")

_NOT_UNDERSTOOD = (AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What a record of another form makes of the code that takes it in."""

_MADE = re.compile(r"out/(?P<name>[^/\\\0]+)|spool-\d{5,}")


@dataclass
class State:
    """What has been done.

    Attributes
    ----------
    packed : Packed
        Counts, so far.
    asked, source : dict
        What the pack was begun with, and what its source was then; empty if it has not begun.
    next : int
        The first item of the source that is still to do.
    shard, end : int
        How far the spool is good.
    bad : list of Bad
        As in `packed`, with what is needed to try them again.
    used : set of int
        The targets that are whole numbers, as class indices are.
    moves : list of (str, str), or None
        Once everything is made: where each file goes, from the partial folder.
    """

    packed: Packed
    asked: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    next: int = 0
    shard: int = 0
    end: int = 0
    bad: list[Bad] = field(default_factory=list)
    used: set[int] = field(default_factory=set)
    moves: list[tuple[str, str]] | None = None

    def read(self, journal: Journal) -> None:
        """Take in every record.

        Raises
        ------
        Refused
            If one is not what a pack to this place writes.
        """
        for number, record in enumerate(journal, start=1):
            try:
                self.take(record)
            except _NOT_UNDERSTOOD as error:
                raise Refused(
                    f"{journal.path}, record {number}, is not what a pack to this place writes: "
                    "begin again with --restart"
                ) from error
        self.packed.resumed = self.next

    def take(self, record: dict[str, Any]) -> None:
        """Take in one record: the first, one about some items or reasons, or the last."""
        if "asked" in record:
            self.asked, self.source = _of(dict, record["asked"]), _of(dict, record["source"])
        elif "reasons" in record:
            for place, reason in record["reasons"]:
                _whole(place)
                self.bad[place] = self.bad[place]._replace(reason=_of(str, reason))
                self.packed.bad[place] = self.bad[place].key, reason
        elif "moves" in record:
            self.moves = [self._move(first, last) for first, last in record["moves"]]
        else:
            numbers = [_whole(record[name]) for name in ("next", "shard", "end")]
            self.next, self.shard, self.end = numbers
            self._count(record)

    def _move(self, first: str, last: str) -> tuple[str, str]:
        """Accept a renaming: of what a pack makes in its folder, to a name of this store's."""
        found = _MADE.fullmatch(first)
        name = Path(self.packed.location).stem
        plain = PurePosixPath(last).name == last and "\\" not in last and "\0" not in last
        if not found or not plain or not last.startswith(name) or found["name"] not in (None, last):
            raise ValueError(f"{first!r} to {last!r}")
        return first, last

    def _count(self, record: dict[str, Any]) -> None:
        packed = self.packed
        packed.bytes_in += _whole(record["bytes_in"])
        self.bad += map(_bad, record["bad"])
        packed.bad += [(one.key, one.reason) for one in self.bad[len(packed.bad) :]]
        packed.items += len(record["items"])
        for item in map(_item, record["items"]):
            packed.bytes_out += item.size
            packed.notes.update(item.notes)
            if type(item.target) is int:
                self.used.add(item.target)

    def check(self, name: str, now: dict[str, Any]) -> None:
        """Make sure that what the pack was begun with is what it is to go on with.

        Parameters
        ----------
        name : {"asked", "source"}
        now : dict

        Raises
        ------
        Refused
            If not; the message says what is different, and the ways out.
        """
        then = getattr(self, name)
        if then and then != now:
            words = [
                f"{key} was {then.get(key)!r} and is {now.get(key)!r}"
                for key in sorted(then.keys() | now.keys())
                if then.get(key) != now.get(key)
            ]
            raise Refused(
                f"an earlier pack to {self.packed.location} was not finished, and "
                f"{'; '.join(words)}: go on as it was begun, or begin again with --restart"
            )


def _whole(number: Any) -> int:
    """Accept a number that counts something, and that a file may have as a size."""
    if not 0 <= _of(int, number) < 1 << 63:
        raise ValueError(number)
    return int(number)


def _of(kind: type[_T], value: Any) -> _T:
    """Accept a value of one type, and no other."""
    if type(value) is not kind:
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def _all(kind: type[_T], values: Any) -> None:
    """Accept a sequence of one type."""
    if not isinstance(values, (list, tuple)):
        raise TypeError(f"{values!r} is no sequence")
    for value in values:
        _of(kind, value)


def _item(record: Any) -> Item:
    """Accept what an `Item` was written as."""
    item = Item._make(record)
    for number in (item.shard, item.offset, item.size, item.number):
        _whole(number)
    _all(str, (item.key, item.sha256))
    _all(str, item.notes)
    _all(int, item.stamp or ())
    return item


def _bad(record: Any) -> Bad:
    """Accept what a `Bad` was written as."""
    bad = Bad._make(record)
    _whole(bad.number)
    _all(str, (bad.key, bad.reason))
    _of(bool, bad.fixed)
    return bad


def items_of(journal: Journal) -> Iterator[Item]:
    """Yield the items in the spool, in their order, without keeping them."""
    for record in journal:
        yield from map(Item._make, record.get("items", ()))
