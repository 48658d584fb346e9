"""`Chunk`: items that are in the spool, and not yet in the journal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from fastdecode.packing.results import Bad, Item
from fastdecode.packing.verify import plain

if TYPE_CHECKING:
    from fastdecode.packing.journal import Journal
    from fastdecode.packing.rules import Rules
    from fastdecode.packing.spool import Spool
    from fastdecode.packing.state import State
    from fastdecode.packing.work import Outcome

__all__ = ["EVERY_BYTES", "EVERY_S", "Chunk"]

EVERY_BYTES = 64 << 20
EVERY_S = 1.0
"""After so much, or so long, the work is made to last: a kill loses no more than that."""


class Chunk:
    """Takes outcomes, and writes them down in groups.

    Parameters
    ----------
    spool : Spool
    journal : Journal
    state : State
    rules : Rules
        With the keys that are in the spool already.
    """

    def __init__(self, spool: Spool, journal: Journal, state: State, rules: Rules) -> None:
        self._spool = spool
        self._rules = rules
        self._journal = journal
        self._state = state
        self._next = state.next
        self._begin()

    def _begin(self) -> None:
        self._items: list[Item] = []
        self._bad: list[Bad] = []
        self._bytes_in = 0
        self._due = time.monotonic() + EVERY_S

    def take(self, outcome: Outcome) -> None:
        """Put the next item into the spool, or among the bad ones.

        Raises
        ------
        OSError
            If there is no room for it.
        """
        key, number = outcome.key, self._next
        if outcome.bad:
            self._bad.append(Bad(number, plain(key), outcome.bad, fixed=False))
        else:
            try:
                self._rules.check(key, outcome.target)
                shard, offset, size = self._spool.add(key, outcome.data, outcome.target)
            except ValueError as error:  # the store cannot hold such a key or target
                self._bad.append(Bad(number, plain(key), plain(str(error)), fixed=True))
            else:
                self._rules.add(key)
                place = key, outcome.target, shard, offset, size
                self._items.append(
                    Item(*place, outcome.sha256, outcome.notes, number, outcome.stamp)
                )
        self._bytes_in += outcome.bytes_in
        self._next += 1
        if time.monotonic() >= self._due or self._bytes_in >= EVERY_BYTES:
            self.settle()

    def settle(self) -> None:
        """Make sure of what there is: the data first, then the record that says so."""
        if self._next == self._state.next:
            return
        shard, end = self._spool.sync()
        record: dict[str, Any] = {
            "next": self._next,
            "shard": shard,
            "end": end,
            "items": self._items,
            "bad": self._bad,
            "bytes_in": self._bytes_in,
        }
        self._journal.append(record)
        self._state.take(record)
        self._begin()
