"""Time budgets, timing without garbage collection, and CPU time of processes."""

from __future__ import annotations

import datetime as dt
import gc
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from fastdecode.ranking import Spread

_PROC = Path("/proc")


class Budget:
    """A budget of seconds that starts when the object is created."""

    def __init__(self, seconds: float) -> None:
        self._start = time.monotonic()
        self._seconds = seconds

    def left(self) -> float:
        """Return the seconds that are left; negative when they are over."""
        return self._start + self._seconds - time.monotonic()

    def share(self) -> float:
        """Return the share that has passed, from 0 to 1."""
        return min(1.0, 1 - self.left() / self._seconds)


def now() -> str:
    """Return the time in UTC, in the ISO 8601 format of results."""
    return dt.datetime.now(dt.timezone.utc).isoformat(timespec="seconds")


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector while timing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def drain(todo: deque[bytes], work: Callable[[bytes], Any]) -> list[float]:
    """Work on one item after another until none is left; return the seconds of each.

    Several threads may share the items: each takes the next one when it has finished the last.
    """
    clock = time.perf_counter
    calls: list[float] = []
    while True:
        try:
            item = todo.popleft()
        except IndexError:  # another thread may have taken the last one
            return calls
        start = clock()
        work(item)
        calls.append(clock() - start)


def family(pid: int) -> Iterator[int]:
    """Yield a process and its living descendants; only the process where there is no /proc."""
    yield pid
    for task in (_PROC / str(pid) / "task").glob("*"):
        with suppress(OSError):  # the thread has ended in the meantime
            for child in (task / "children").read_text().split():
                yield from family(int(child))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its children, also ended ones; 0 if unknown."""
    ticks = 0
    for member in family(pid):
        with suppress(OSError):
            fields = (_PROC / str(member) / "stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])  # own and waited-for children's
    return ticks / os.sysconf("SC_CLK_TCK") if ticks else 0.0


def spread(values: Sequence[float]) -> Spread:
    """Return median and quartiles of at least one value, interpolated linearly."""
    low, middle, high = (float(value) for value in np.quantile(values, (0.25, 0.5, 0.75)))
    return Spread(middle, low, high)
