"""Call a function for many things in threads, and return the results in order."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TypeVar

from fastdecode._system.process import after_fork
from fastdecode.errors import ThreadsUnavailable

_T = TypeVar("_T")
_S = TypeVar("_S")
_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()
_AHEAD = 4
"""By default, so many results per thread may wait for a slow one before them."""


def map_in_order(
    make: Callable[[_S], _T], things: Iterable[_S], threads: int, ahead: int | None = None
) -> Generator[_T, None, None]:
    """Yield `make` of each thing in order, computed in threads; take things as results are wanted.

    Up to `ahead` results (by default four per thread) are pending or wait to be yielded. An error,
    also one of `things` itself, is raised in its turn. Closing the generator waits until no call
    runs. With one thread, the calling thread makes each result when it is wanted.
    """
    if threads == 1:
        yield from map(make, things)
        return
    source, most = iter(things), ahead or _AHEAD * threads
    waiting: deque[tuple[_S, Future[_T]]] = deque()
    failed: Exception | None = None
    process, more = os.getpid(), True
    try:
        while True:
            if os.getpid() != process:  # the threads of the pool do not exist after a fork
                process = os.getpid()
                waiting = deque((one, _submit(threads, make, one)) for one, _ in waiting)
            while more and len(waiting) < most:
                try:
                    thing = next(source)
                except StopIteration:
                    more = False
                except Exception as error:
                    failed, more = error, False
                else:
                    waiting.append((thing, _submit(threads, make, thing)))
                    del thing
            if not waiting:
                break
            yield waiting.popleft()[1].result()
        if failed is not None:
            raise failed
    finally:
        failed = None  # its traceback refers to this frame: a reference cycle
        if os.getpid() == process:
            _cancel([future for _, future in waiting])


def map_in_threads(threads: int, make: Callable[[_S], _T], things: Iterable[_S]) -> list[_T]:
    """Return `make` of each thing, in order; 1 is the calling thread.

    On the first error, which is raised, or Ctrl-C, the rest is cancelled.
    """
    if threads == 1:
        return [make(thing) for thing in things]
    futures: list[Future[_T]] = []
    try:
        futures.extend(_submit(threads, make, thing) for thing in things)
        return [future.result() for future in futures]
    except BaseException:
        _cancel(futures)
        raise


def _cancel(futures: list[Future[_T]]) -> None:
    """Cancel pending calls and wait for running ones: nothing may write to `out` afterwards."""
    for future in futures:
        future.cancel()
    wait(futures)


def _submit(threads: int, make: Callable[[_S], _T], thing: _S) -> Future[_T]:
    """Begin a call in the pool of that size; raise `ThreadsUnavailable` if no thread can start."""
    try:
        return _pool(threads).submit(make, thing)
    except RuntimeError as error:
        if "start new thread" not in str(error):  # the interpreter is shutting down
            raise
        with _pools_lock:
            _pools.pop(threads, None)  # it has queued the call all the same
        raise ThreadsUnavailable(threads) from error


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return the pool of that size. Pools persist, since starting threads is slow."""
    with _pools_lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="fastdecode")
        return _pools[threads]


@after_fork
def _forget_pools() -> None:
    """Forget the pools in a forked child, where the parent's threads do not exist."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()
