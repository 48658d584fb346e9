"""Reading ahead: what batches to come need of a store is asked for by threads that only wait.

Decoding has as many threads as there are cores, and each would wait for the server before it
decodes: behind 100 ms of latency that is ten images a second for each. Here many requests are under
way at once, and what lies side by side in a shard is asked for by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from fastdecode.outages import ITEM_ERRORS

if TYPE_CHECKING:
    from fastdecode.torch.crew import Crew
    from fastdecode.torch.order import Order
    from fastdecode.torch.source import Source

__all__ = ["READ_THREADS", "Read", "ReadAhead"]

READ_THREADS = 32
"""Requests under way at once, unless somebody says otherwise."""

_WINDOW = 2
"""Items that are begun, for each thread: none is idle while the last ones of a batch come."""

Read: TypeAlias = "Future[tuple[Any, Any]]"
"""What a dataset's ``read`` gives, or will give, for an item."""


class ReadAhead:
    """The reads of an epoch, begun some batches before these are made.

    Parameters
    ----------
    source : Source
        Of a dataset that lets others read for it.
    order : Order
    start : int
        Batch to begin with.
    crew : Crew
        Threads that read.
    """

    def __init__(self, source: Source, order: Order, start: int, crew: Crew) -> None:
        self._source = source
        self._order = order
        self._crew = crew
        self._begun: deque[list[Read]] = deque()
        self._next = start
        self._batches = 1 + _WINDOW * crew.count // order.batch_size
        self._closed = False

    def batch(self) -> list[Read]:
        """Return the reads of the next batch, and begin those of some batches behind it."""
        while len(self._begun) <= self._batches and self._next < self._order.count:
            self._begun.append(self._begin([item.index for item in self._order.batch(self._next)]))
            self._next += 1
        return self._begun.popleft()

    def close(self) -> None:
        """Begin no more requests."""
        self._closed = True
        self._begun.clear()

    def _begin(self, indices: Sequence[Any]) -> list[Read]:
        dataset = self._source.ours
        places = [self._source.place(index) for index in indices]
        reads: list[Read] = [Future() for _ in places]
        try:
            groups = dataset._groups(places)
        except ITEM_ERRORS:  # each item says so when its turn comes
            groups = [[at] for at in range(len(places))]
        for group in groups:
            some = [places[at] for at in group]
            self._crew.submit(partial(self._read, some, [reads[at] for at in group]))
        return reads

    def _read(self, places: list[Any], reads: list[Read]) -> None:
        """Read some items; never raises: an error comes out where the item is made."""
        if self._closed:
            return
        try:
            found = self._source.ours._read_group(places)
        except BaseException as error:  # of whatever kind: it belongs to the consumer
            found = [error] * len(reads)
        for read, one in zip(reads, found, strict=True):
            if not read.set_running_or_notify_cancel():
                continue  # nobody wants it any more
            if isinstance(one, BaseException):
                read.set_exception(one)
            else:
                read.set_result(one)
