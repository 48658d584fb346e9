"""A pool of threads, and limits on the threads that other libraries start."""

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

from fastdecode.errors import ThreadsUnavailable
from fastdecode.native._pool import Pool

_Task: TypeAlias = "Callable[[], None]"
_PATIENCE_S = 1.0
_lock = threading.Lock()


def limit_threads() -> None:
    """Let PyTorch and OpenCV use one thread in this process; call it when a worker process starts.

    With one worker per core, further threads in each worker only compete for the same cores.
    PyTorch limits itself in its own workers. OpenCV does not, and its thread pool does not survive
    a fork. OpenCV is limited only if it is already imported; this function does not import it.

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


def use_single_thread() -> None:
    """Let PyTorch's operations use one thread when this thread calls them; change no other thread.

    OpenMP has a number for each thread, but `torch.set_num_threads` also sets it for all threads
    that begin later. A short-lived thread restores that.
    """
    with _lock:
        usual = torch.get_num_threads()
        torch.set_num_threads(1)
        keeper = threading.Thread(target=torch.set_num_threads, args=(usual,))
        try:
            keeper.start()
        except RuntimeError:  # "can't start new thread"
            torch.set_num_threads(usual)
            raise
        keeper.join()


class ThreadPool:
    """Threads that take tasks in the order in which they were submitted.

    They are daemons, unlike those of `concurrent.futures`: a read that hangs, for example on a
    network drive, does not keep the interpreter from ending.

    `native` is a pool of the same number of threads in the native core, for tasks that make several
    samples at once.

    If the threads cannot be started, `ThreadsUnavailable` is raised, and those that did start end.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.native = Pool(count)
        self._start()

    def _start(self) -> None:
        self._tasks: queue.SimpleQueue[_Task | None] = queue.SimpleQueue()
        begun: queue.SimpleQueue[bool] = queue.SimpleQueue()
        threads: list[threading.Thread] = []
        # Registered before the first thread starts, so that all of them end whatever happens,
        # Ctrl-C included.
        self._stop = weakref.finalize(self, _end, self._tasks, threads)
        # A thread takes over the number of the process for PyTorch's operations when it first asks.
        # That must not happen while `use_single_thread` has changed that number.
        torch.get_num_threads()
        try:
            for number in range(self.count):
                name = f"fastdecode-{number}"
                thread = threading.Thread(
                    target=_work, args=(self._tasks, begun), name=name, daemon=True
                )
                thread.start()
                threads.append(thread)
        except RuntimeError as error:  # "can't start new thread"
            raise ThreadsUnavailable(self.count) from error
        # Wait until all have limited themselves, which briefly changes the number of the process.
        if not all(begun.get() for _ in threads):
            raise ThreadsUnavailable(self.count)
        self._process = os.getpid()

    def submit(self, task: _Task) -> None:
        """Hand over a task, which must not raise."""
        if os.getpid() != self._process:  # forked: the threads stayed in the parent
            self._stop.detach()
            self._start()
        self._tasks.put(task)

    def close(self) -> None:
        """Drop the tasks that have not begun, and end the threads. A second call does nothing."""
        if os.getpid() == self._process:
            self._stop()
        self.native.close()


def _work(tasks: queue.SimpleQueue[_Task | None], begun: queue.SimpleQueue[bool]) -> None:
    limited = False
    try:
        use_single_thread()
        limited = True
    except RuntimeError:  # it needs a thread, and none could be started
        return
    finally:
        begun.put(limited)
    while (task := tasks.get()) is not None:
        task()
        del task  # otherwise it, and its batch, would live until the next task comes


def _end(tasks: queue.SimpleQueue[_Task | None], threads: list[threading.Thread]) -> None:
    try:
        while True:
            tasks.get_nowait()
    except queue.Empty:
        pass
    for _ in threads:
        tasks.put(None)
    deadline = time.monotonic() + _PATIENCE_S  # for all together, because each may hang
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join(max(0, deadline - time.monotonic()))
