"""Threads that carry out what they are handed, for as long as their owner lives."""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from collections.abc import Callable
from typing import TypeAlias

from fastdecode.native.batch import Pool
from fastdecode.torch.threads import settle_here, single_thread_here

__all__ = ["Crew"]

_Task: TypeAlias = "Callable[[], None]"
_PATIENCE_S = 1.0


class Crew:
    """Threads that take tasks in the order in which they were submitted.

    They are daemons, unlike those of `concurrent.futures`: a read that hangs, on a network drive
    for instance, does not keep the interpreter from ending.

    Parameters
    ----------
    count : int
        How many threads; at least 1.

    Attributes
    ----------
    pool : Pool
        As many threads of the native core, for those that are at a whole batch.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.pool = Pool(count)
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        begun: queue.SimpleQueue[None] = queue.SimpleQueue()
        threads = [
            threading.Thread(
                target=_work, args=(self._tasks, begun), name=f"fastdecode-{number}", daemon=True
            )
            for number in range(self.count)
        ]
        settle_here()
        for thread in threads:
            thread.start()
        for _ in threads:  # until they all have limited themselves, which others might notice
            begun.get()
        self._stop = weakref.finalize(self, _end, self._tasks, threads)

    def submit(self, task: _Task) -> None:
        """Hand over a task, which must not raise."""
        if os.getpid() != self._process:  # forked: the threads stayed in the parent
            self._stop.detach()
            self._start()
        self._tasks.put(task)

    def close(self) -> None:
        """Drop what has not begun, and end the threads. A second call does nothing."""
        if os.getpid() == self._process:
            self._stop()
        self.pool.close()


def _work(tasks: queue.SimpleQueue[_Task | None], begun: queue.SimpleQueue[None]) -> None:
    try:
        single_thread_here()
    finally:
        begun.put(None)
    while (task := tasks.get()) is not None:
        task()
        del task  # or it would live, with its batch, until the next one comes


def _end(tasks: queue.SimpleQueue[_Task | None], threads: list[threading.Thread]) -> None:
    try:
        while True:
            tasks.get_nowait()
    except queue.Empty:
        pass
    for _ in threads:
        tasks.put(None)
    deadline = time.monotonic() + _PATIENCE_S  # for all: each of them may hang
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0, deadline - time.monotonic()))
