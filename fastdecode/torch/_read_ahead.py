"""Reading ahead: what batches to come need of a store is asked for by threads that only wait.

Decoding has as many threads as there are cores, and each would wait for the server before it
decodes: behind 100 ms of latency that is ten images a second for each. Here many requests are under
way at once, and what lies side by side in a shard is asked for by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from fastdecode.outages import ITEM_ERRORS

if TYPE_CHECKING:
    from fastdecode.torch._order import Order
    from fastdecode.torch._samples import Source
    from fastdecode.torch._threads import ThreadPool

READ_THREADS = 32
"""Requests under way at once, unless somebody says otherwise."""

_WINDOW = 2
"""Items that are begun, for each thread: none is idle while the last ones of a batch come."""

Read: TypeAlias = "Future[tuple[Any, Any]]"
"""What a dataset's ``read`` gives, or will give, for an item."""


class ReadAhead:
    """The reads of an epoch from the batch `start` on, begun some batches before these are made."""

    def __init__(self, source: Source, order: Order, start: int, pool: ThreadPool) -> None:
        self._source = source
        self._order = order
        self._pool = pool
        self._begun: deque[list[Read]] = deque()
        self._next = start
        self._batches = 1 + _WINDOW * pool.count // order.batch_size
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
        places = [self._source.place(index) for index in indices]
        return begin_reads(self._source.ours, places, self._pool, lambda: self._closed)


def begin_reads(
    dataset: Any, indices: Sequence[Any], pool: ThreadPool, stopped: Callable[[], bool] = bool
) -> list[Read]:
    """Begin to read some items of a dataset, and do not wait for them: return a Read for each."""
    reads: list[Read] = [Future() for _ in indices]
    try:
        groups = dataset._groups(indices)
    except ITEM_ERRORS:  # each item says so when its turn comes
        groups = [[at] for at in range(len(indices))]

    def read(group: list[int]) -> None:
        if stopped():
            return
        try:
            found = dataset._read_group([indices[at] for at in group])
        except BaseException as error:  # of whatever kind: it comes out where the item is made
            found = [error] * len(group)
        for at, one in zip(group, found, strict=True):
            if not reads[at].set_running_or_notify_cancel():
                continue  # nobody wants it any more
            if isinstance(one, BaseException):
                reads[at].set_exception(one)
            else:
                reads[at].set_result(one)

    for group in groups:
        pool.submit(partial(read, group))
    return reads
