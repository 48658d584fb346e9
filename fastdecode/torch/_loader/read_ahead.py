"""Reading ahead: threads that only wait for a server request the items of later batches.

There are only as many decoding threads as cores. If each waited for the server before it decodes,
100 ms of latency would limit it to ten images a second. Here many requests run at the same time,
and one request reads items that lie next to each other in a shard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from fastdecode.torch._loader.order import DrawnBatch
    from fastdecode.torch._loader.threads import ThreadPool

READ_THREADS = 32
"""How many requests run at the same time by default."""

_FREE: AbstractContextManager[Any] = nullcontext()
_WINDOW = 2
"""Items begun per thread, so that no thread is idle while the last items of a batch arrive."""


def batches_ahead(threads: int, batch_size: int) -> int:
    """Return how many batches after the next one are begun."""
    return 1 + _WINDOW * threads // batch_size if threads else 0


Read: TypeAlias = "Future[tuple[Any, Any]]"
"""The result of a dataset's ``read`` for an item, which may still be pending."""


class ReadAhead:
    """The reads of an epoch after a `place` in its order, begun some batches ahead."""

    def __init__(
        self,
        datasets: Sequence[Any],
        locate: Callable[[Any], tuple[Any, Any]],
        place: DrawnBatch,
        pool: ThreadPool,
        lock: AbstractContextManager[Any],
    ) -> None:
        self._lock = lock
        self._datasets = datasets
        self._locate = locate  # returns the dataset that has an item, and its index there
        self._place = place
        self._pool = pool
        self._begun: deque[list[Read]] = deque()
        self._closed = False

    def batch(self) -> list[Read]:
        """Return the reads of the next batch, and begin those of some batches after it."""
        begun = self._begun
        while (batch := self._place.follows) is not None:
            if len(begun) > batches_ahead(self._pool.count, len(batch.indices)):
                break
            begun.append(self._begin(batch.indices))
            self._place = batch
        return begun.popleft()

    def close(self) -> None:
        """Begin no further requests."""
        self._closed = True
        self._begun = deque()  # a new one, because another thread may be in `batch`

    def _begin(self, indices: Sequence[Any]) -> list[Read]:
        places = [self._locate(index) for index in indices]
        reads: list[Read] = [Future()] * len(places)
        for dataset in self._datasets:
            inside = [at for at, (where, _) in enumerate(places) if where is dataset]
            indices_inside = [places[at][1] for at in inside]
            stopped = lambda: self._closed  # noqa: E731
            begun = begin_reads(dataset, indices_inside, self._pool, stopped, self._lock)
            for at, read in zip(inside, begun, strict=True):
                reads[at] = read
        return reads


def begin_reads(
    dataset: Any,
    indices: Sequence[Any],
    pool: ThreadPool,
    stopped: Callable[[], bool] = bool,
    lock: AbstractContextManager[Any] = _FREE,
) -> list[Read]:
    """Begin to read some items of a dataset; return a pending Read for each, without waiting."""
    reads: list[Read] = [Future() for _ in indices]

    def divide() -> None:  # in a thread of the pool, because it may open shards
        if stopped():
            return
        try:
            with lock:
                groups = dataset._group_reads(indices)
        except Exception:  # each item raises its own when it is read
            groups = [[at] for at in range(len(indices))]
        for group in groups:
            pool.submit(partial(read, group))

    def read(group: list[int]) -> None:
        if stopped():
            return
        try:
            with lock:
                found = dataset._read_group([indices[at] for at in group])
        except BaseException as error:  # any error: it is raised where the sample is made
            found = [error] * len(group)
        for at, one in zip(group, found, strict=True):
            if not reads[at].set_running_or_notify_cancel():
                continue  # cancelled
            if isinstance(one, BaseException):
                reads[at].set_exception(one)
            else:
                reads[at].set_result(one)

    if indices:
        pool.submit(divide)
    return reads
