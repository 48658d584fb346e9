"""Arrays of many pictures, in threads: what `decode_batch` gives where no device is asked for."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, Literal, TypeVar

from fastdecode import native_arrays
from fastdecode.api import decode, decode_file
from fastdecode.errors import FastDecodeError
from fastdecode.outages import is_the_items

__all__ = ["decode_arrays", "in_threads", "named"]

_T = TypeVar("_T")
_S = TypeVar("_S")
_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()


def decode_arrays(
    work: list[Any],
    options: dict[str, Any],
    threads: int,
    *,
    on_error: Literal["raise", "return", "return all"] = "raise",
    targets: Sequence[Any] | None = None,
) -> list[Any]:
    """Decode many pictures, in order.

    Parameters
    ----------
    work : list of bytes-like or path
    options : dict
        Arguments of `decode`, checked.
    threads : int
    on_error : {"raise", "return", "return all"}
        As for `decode_batch`; or return also what is not an item's fault. An error that is returned
        does not say which item it is of.
    targets : sequence of ndarray or None, optional
        For each the `out` of `decode`.

    Returns
    -------
    list of ndarray or Exception
    """
    outs = [None] * len(work) if targets is None else targets

    def one(index: int) -> Any:
        try:
            return _decode_item(work[index], {**options, "out": outs[index]})
        except (FastDecodeError, OSError, TypeError, ValueError) as error:
            if on_error == "return all" or (on_error == "return" and is_the_items(error)):
                return without_frames(error)
            named(error, index)
            raise

    if threads == 1 or len(work) <= 1:
        return [one(index) for index in range(len(work))]
    results = _by_core(work, outs, options, threads)
    left = [index for index, result in enumerate(results) if result is None]
    for index, result in zip(left, in_threads(threads, one, left), strict=True):
        results[index] = result
    return results


def in_threads(threads: int, make: Callable[[_S], _T], things: Sequence[_S]) -> list[_T]:
    """Make something of each thing, in order; the first error ends it.

    Parameters
    ----------
    threads : int
        1 makes all in the calling thread.
    make : callable
    things : sequence

    Returns
    -------
    list
    """
    if threads == 1:
        return [make(thing) for thing in things]
    return _in_order([_pool(threads).submit(make, thing) for thing in things])


def named(error: Exception, place: int) -> Exception:
    """Say in an error which item it is about; an OSError names its file already."""
    if error.args and isinstance(error.args[0], str) and not isinstance(error, OSError):
        error.args = (f"item {place}: {error.args[0]}", *error.args[1:])
    return error


def _by_core(
    work: list[Any], targets: Sequence[Any], options: dict[str, Any], count: int
) -> list[Any]:
    """Let the native core decode what it is best at; None for all others, and for what is wrong."""
    if not native_arrays.can(options):
        return [None] * len(work)
    some = native_arrays.Arrays(options, count)
    if not some.suits(work[0]):
        return [None] * len(work)
    chunks = [slice(at, at + some.chunk) for at in range(0, len(work), some.chunk)]
    done = _in_order([_pool(count).submit(some.make, work[at], targets[at]) for at in chunks])
    return [result for chunk in done for result in chunk]


def without_frames(error: Exception) -> Exception:
    """Let go of where an error came from: that holds all pictures of the batch, and they it."""
    one: BaseException | None = error
    while one is not None:
        one.__traceback__ = None
        one = one.__cause__ or one.__context__
    return error


def _decode_item(item: Any, options: dict[str, Any]) -> Any:
    if isinstance(item, (str, os.PathLike)):
        return decode_file(item, **options)
    return decode(item, **options)


def _in_order(futures: list[Future[_T]]) -> list[_T]:
    """Collect the results; at the first error, or Ctrl-C, drop what has not begun."""
    try:
        return [future.result() for future in futures]
    except BaseException:
        for future in futures:
            future.cancel()
        wait(futures)  # nothing may write to `out` once the call is over
        raise


def _pool(threads: int) -> ThreadPoolExecutor:
    """Return the pool of that size. It lasts: starting threads costs more than small pictures."""
    with _pools_lock:
        if threads not in _pools:
            _pools[threads] = ThreadPoolExecutor(threads, thread_name_prefix="fastdecode")
        return _pools[threads]


def _forget_pools() -> None:
    """Start over in a forked child, where the parent's threads do not exist."""
    global _pools_lock
    _pools_lock = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)
