"""`decode_batch`: many pictures on all the cores that this process may use."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, Literal

from fastdecode import native_arrays
from fastdecode.api import decode, decode_file
from fastdecode.arguments import check_disjoint, check_options, is_int
from fastdecode.cores import usable_cores
from fastdecode.errors import BackendUnavailable, FastDecodeError, UnknownBackend
from fastdecode.preference import load_named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from fastdecode.api import Data

__all__ = ["decode_batch"]

_CALLERS_FAULT = (UnknownBackend, BackendUnavailable)
_SIGNATURE = inspect.signature(decode)
_pools: dict[int, ThreadPoolExecutor] = {}
_pools_lock = threading.Lock()


def decode_batch(
    items: Iterable[Data | str | os.PathLike[str]],
    *,
    threads: int | None = None,
    on_error: Literal["raise", "return"] = "raise",
    out: Sequence[Any] | NDArray[Any] | None = None,
    **options: Any,
) -> list[Any]:
    """Decode many pictures at once, in order.

    Parameters
    ----------
    items : iterable of encoded bytes or paths
        Each as for `decode`, or a path as for `decode_file`.
    threads : int, optional
        How many to use; by default one for each core that this process may use (affinity and
        container quota, not the machine's count). 1 decodes in the calling thread.
    on_error : {"raise", "return"}
        ``"raise"``: the first error in the order of the items ends the batch; its message begins
        with ``item 3:``, but for an OSError, which names its file. ``"return"``: the error stands
        in the list where the picture would.
    out : sequence of ndarray, or one ndarray (N, H, W, C), optional
        ``out[i]`` receives item i, as `decode`'s `out`. No two may overlap in memory.
    **options
        As for `decode`.

    Returns
    -------
    list
        An ndarray for each item, or a `FastDecodeError` or `OSError` with ``on_error="return"``.

    Raises
    ------
    FastDecodeError, OSError
        With ``on_error="raise"``.
    UnknownBackend, BackendUnavailable
        If the backend that is named cannot be used, whatever `on_error` is.
    TypeError, ValueError
        If an argument is wrong, whatever `on_error` is. Options are checked before any item is
        looked at; an item of a wrong type, or a region outside it, when its turn comes.
    """
    if on_error not in ("raise", "return"):
        raise ValueError(f"on_error must be 'raise' or 'return', not {on_error!r}")
    if _is_one(items):
        raise TypeError(
            "decode_batch() takes several items; for one, use decode() or decode_file()"
        )
    if threads is not None and not (is_int(threads) and threads >= 1):
        raise ValueError(f"threads must be a positive integer, not {threads!r}")
    _check(options)
    work = list(items)
    if out is not None and len(out) != len(work):
        raise ValueError(f"out has room for {len(out)} pictures, but there are {len(work)} items")
    targets = [None if out is None else out[index] for index in range(len(work))]
    check_disjoint(targets)
    count = threads or usable_cores()

    def one(index: int) -> Any:
        try:
            return _decode_item(work[index], {**options, "out": targets[index]})
        except (FastDecodeError, OSError, TypeError, ValueError) as error:
            if on_error == "return" and _is_the_items(error):
                return error
            _prefix(error, f"item {index}: ")
            raise

    if count == 1 or len(work) <= 1:
        return [one(index) for index in range(len(work))]
    results = _by_core(work, targets, options, count)
    left = [index for index, result in enumerate(results) if result is None]
    others = _in_order([_pool(count).submit(one, index) for index in left])
    for index, result in zip(left, others, strict=True):
        results[index] = result
    return results


def _by_core(work: list[Any], targets: list[Any], options: dict[str, Any], count: int) -> list[Any]:
    """Let the native core decode what it is best at; None for all others, and for what is wrong."""
    if not native_arrays.can(options):
        return [None] * len(work)
    some = native_arrays.Arrays(options, count)
    if not some.suits(work[0]):
        return [None] * len(work)
    chunks = [slice(at, at + some.chunk) for at in range(0, len(work), some.chunk)]
    done = _in_order([_pool(count).submit(some.make, work[at], targets[at]) for at in chunks])
    return [result for chunk in done for result in chunk]


def _is_one(items: object) -> bool:
    """Whether somebody passed one picture, or one path, where several are wanted."""
    if isinstance(items, (str, os.PathLike)):
        return True
    try:
        return memoryview(items).itemsize == 1  # type: ignore[arg-type]
    except TypeError:
        return False


def _check(options: dict[str, Any]) -> None:
    """Refuse options that are wrong for every item, even if there are none."""
    _SIGNATURE.bind(b"", **options)  # TypeError for one that `decode` does not have
    check_options(**options)
    if options.get("backend") is not None:
        load_named(options["backend"])


def _is_the_items(error: Exception) -> bool:
    """Whether it is about one picture, and not about what the caller asked of all."""
    return isinstance(error, (FastDecodeError, OSError)) and not isinstance(error, _CALLERS_FAULT)


def _decode_item(item: Any, options: dict[str, Any]) -> Any:
    if isinstance(item, (str, os.PathLike)):
        return decode_file(item, **options)
    return decode(item, **options)


def _prefix(error: Exception, words: str) -> None:
    """Say in an error which item it is about; an OSError names its file already."""
    if error.args and isinstance(error.args[0], str) and not isinstance(error, OSError):
        error.args = (f"{words}{error.args[0]}", *error.args[1:])


def _in_order(futures: list[Future[Any]]) -> list[Any]:
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
