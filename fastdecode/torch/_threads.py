"""Threads: a pool of them, and how many the libraries may start beside ours."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import TypeAlias

import torch

from fastdecode.native._batch import Pool

_Task: TypeAlias = "Callable[[], None]"
_PATIENCE_S = 1.0
_lock = threading.Lock()


def limit_threads() -> None:
    """Let PyTorch and OpenCV use one thread in this process: for a worker process, at its start.

    As many workers as cores, each with as many threads, get in each other's way. PyTorch limits
    itself in its own workers; OpenCV must be told, and its pool does not survive a fork. OpenCV is
    only told if it is loaded already: nothing here loads it.

    Examples
    --------
    >>> from torch.utils.data import DataLoader
    >>> from fastdecode.torch import limit_threads
    >>> loader = DataLoader(range(8), num_workers=2, worker_init_fn=lambda _: limit_threads())
    """
    torch.set_num_threads(1)
    opencv = sys.modules.get("cv2")
    if opencv is not None:
        opencv.setNumThreads(0)  # 0: run everything in the calling thread


def settle_here() -> None:
    """Fix how many threads PyTorch's operations use when this thread calls them.

    A thread takes the number of the process when it first asks. It should not be in the moment in
    which `single_thread_here` has changed that.
    """
    torch.get_num_threads()


def single_thread_here() -> None:
    """Let PyTorch's operations use one thread when this thread calls them, and no other change.

    OpenMP keeps the number for each thread, but `torch.set_num_threads` also remembers it for all
    threads that begin later. A thread that ends at once puts that back.
    """
    with _lock:
        usual = torch.get_num_threads()
        torch.set_num_threads(1)
        keeper = threading.Thread(target=torch.set_num_threads, args=(usual,))
        try:
            keeper.start()
        except RuntimeError:  # there is no thread to be had
            torch.set_num_threads(usual)
            raise
        keeper.join()


class ThreadPool:
    """Threads that take tasks in the order in which they were submitted.

    They are daemons, unlike those of `concurrent.futures`: a read that hangs, on a network drive
    for instance, does not keep the interpreter from ending.

    `native` are as many threads of the native core, for those that are at a whole batch.

    A `MemoryError` says that there are not so many threads to be had; those that began have ended.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.native = Pool(count)
        self._start()

    def _start(self) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        begun: queue.SimpleQueue[bool] = queue.SimpleQueue()
        threads: list[threading.Thread] = []
        # Before the first begins: whatever happens, Ctrl-C too, none is left that nobody ends.
        self._stop = weakref.finalize(self, _end, self._tasks, threads)
        settle_here()
        try:
            for number in range(self.count):
                name = f"fastdecode-{number}"
                thread = threading.Thread(
                    target=_work, args=(self._tasks, begun), name=name, daemon=True
                )
                thread.start()
                threads.append(thread)
        except RuntimeError as error:  # "can't start new thread"
            raise self._none_left() from error
        # Until they all have limited themselves, which others might notice.
        if not all(begun.get() for _ in threads):
            raise self._none_left()
        self._process = os.getpid()

    def _none_left(self) -> MemoryError:
        return MemoryError(f"there are no {self.count} threads to be had")

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
        self.native.close()


def _work(tasks: queue.SimpleQueue[_Task | None], begun: queue.SimpleQueue[bool]) -> None:
    limited = False
    try:
        single_thread_here()
        limited = True
    except RuntimeError:  # there is no thread to be had for it
        return
    finally:
        begun.put(limited)
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
