"""`State`: how far a pack has come, as its journal tells it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fastdecode.packing.results import Bad, Item, Packed

if TYPE_CHECKING:
    from fastdecode.packing.journal import Journal

__all__ = ["Refused", "State", "items_of"]


class Refused(ValueError):
    """What is there was begun with something else: it cannot go on so."""


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
        """Take in every record."""
        for record in journal:
            self.take(record)
        self.packed.resumed = self.next

    def take(self, record: dict[str, Any]) -> None:
        """Take in one record: the first, one about some items or reasons, or the last."""
        if "asked" in record:
            self.asked, self.source = record["asked"], record["source"]
        elif "reasons" in record:
            for place, reason in record["reasons"]:
                self.bad[place] = self.bad[place]._replace(reason=reason)
                self.packed.bad[place] = self.bad[place].key, reason
        elif "moves" in record:
            self.moves = [(first, last) for first, last in record["moves"]]
        else:
            self.next, self.shard, self.end = record["next"], record["shard"], record["end"]
            self._count(record)

    def _count(self, record: dict[str, Any]) -> None:
        packed = self.packed
        packed.bytes_in += record["bytes_in"]
        self.bad += map(Bad._make, record["bad"])
        packed.bad += [(one.key, one.reason) for one in self.bad[len(packed.bad) :]]
        packed.items += len(record["items"])
        for item in map(Item._make, record["items"]):
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


def items_of(journal: Journal) -> Iterator[Item]:
    """Yield the items in the spool, in their order, without keeping them."""
    for record in journal:
        yield from map(Item._make, record.get("items", ()))
