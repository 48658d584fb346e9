"""Checking items, several at once: whether each decodes in full, and why not, in words."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from fastdecode.api import decode_part
from fastdecode.errors import FastDecodeError, without_advice

if TYPE_CHECKING:
    from fastdecode.types import Buffer, Header

_AHEAD = 4
"""Results that may wait for a slow one before them, for each thread."""

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def verify(data: Buffer, header: Header) -> None:
    """Decode an image in full, as `decode` does, and drop the pixels."""
    decode_part(data, header, 1, None)


def reason(error: BaseException) -> str:
    """Return in one line why an item is bad."""
    words = plain(" ".join(without_advice(error).split()))
    known = isinstance(error, (FastDecodeError, OSError, ValueError))
    return words if known and words else f"{type(error).__name__}: {words}".rstrip(": ")


def plain(text: str) -> str:
    """Return text that every file takes: a name on a disk may be no UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


def in_order(
    work: Callable[[_Item], _Result], items: Iterable[_Item], threads: int
) -> Generator[_Result, None, None]:
    """Yield the results of `work` in the order of the items; an error comes when its turn does.

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
