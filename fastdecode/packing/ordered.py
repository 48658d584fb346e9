"""Work in threads whose results come in the order of the items, with bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_order"]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_AHEAD = 4
"""Results that may wait for a slow one before them, for each thread."""


def in_order(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int
) -> Generator[_Result, None, None]:
    """Do some work for each item, several at once.

    Parameters
    ----------
    work : callable
        Called in any thread.
    items : iterable
    threads : int
        At least 1.

    Yields
    ------
    object
        The result for each item, in their order. What `work` raises comes when its turn does.

    Notes
    -----
    No thread works any more once the generator is closed: whoever may stop half-way closes it
    before what the threads use.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="fastdecode-pack")
    waiting: deque[Future[_Result]] = deque()
    try:
        for item in items:
            if len(waiting) >= threads * _AHEAD:
                yield waiting.popleft().result()
            waiting.append(pool.submit(work, item))
        while waiting:
            yield waiting.popleft().result()
    finally:  # after an error or Ctrl-C: what has begun ends, nothing else begins
        pool.shutdown(cancel_futures=True)
