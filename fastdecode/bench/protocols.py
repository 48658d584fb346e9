"""How one configuration is timed, in the process that does the work."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from fastdecode.bench.memory import peak_mb

if TYPE_CHECKING:
    from fastdecode.bench.work import Work

__all__ = ["Decode", "File", "Threads", "Timed", "no_garbage_collection", "one_torch_thread"]


class Timed(NamedTuple):
    """What one block took.

    Attributes
    ----------
    calls : tuple of float
        Seconds of each image; in the order of the block where there is one thread.
    wall, cpu : float
        Seconds of the whole block, by the clock on the wall and by the processors.
    reading : float
        Seconds out of `calls` that went into reading files.
    peak_mb : float
        Memory at its highest so far, workers included.
    """

    calls: tuple[float, ...]
    wall: float
    cpu: float
    reading: float = 0.0
    peak_mb: float = 0.0


class Decode:
    """From memory, one thread."""

    def __init__(self, work: Work) -> None:
        self._work = work
        one_torch_thread(work)

    def choices(self, indexes: Sequence[int]) -> list[str]:
        """Name the backend that is tried first for each image, as things are in this protocol."""
        return [self._work.choice(index) for index in indexes]

    def time(self, block: Sequence[int]) -> Timed:
        """Time a block."""
        items = [self._work.load(index) for index in block]
        clock, process = time.perf_counter, self._work.process
        calls = []
        with no_garbage_collection():
            process(min(items, key=len))  # the processor's caches belonged to another backend
            before = time.process_time()
            for item in items:
                start = clock()
                process(item)
                calls.append(clock() - start)
            cpu = time.process_time() - before
        return Timed(tuple(calls), sum(calls), cpu, peak_mb=peak_mb())


class File(Decode):
    """Reading included, one thread."""

    def time(self, block: Sequence[int]) -> Timed:
        """Time a block."""
        clock, read, process = time.perf_counter, self._work.read, self._work.process
        smallest = min(block, key=lambda index: self._work.setup.photos[index].size)
        calls = []
        reading = 0.0
        with no_garbage_collection():
            process(read(smallest))
            before = time.process_time()
            for index in block:
                start = clock()
                data = read(index)
                between = clock()
                process(data)
                calls.append(clock() - start)
                reading += between - start
            cpu = time.process_time() - before
        return Timed(tuple(calls), sum(calls), cpu, reading, peak_mb())


class Threads:
    """From memory, by a pool of threads in one process."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._count = work.setup.threads
        self._pool = ThreadPoolExecutor(self._count, initializer=one_torch_thread, initargs=(work,))

    def choices(self, indexes: Sequence[int]) -> list[str]:
        """Name the backend that is tried first for each image, as things are in this protocol."""
        return list(self._pool.map(self._work.choice, indexes))

    def time(self, block: Sequence[int]) -> Timed:
        """Time a block: each thread takes the next image when it is done with one."""
        items = deque(self._work.load(index) for index in block)
        with no_garbage_collection():
            cpu, start = time.process_time(), time.perf_counter()
            threads = [self._pool.submit(self._drain, items) for _ in range(self._count)]
            calls = [call for thread in threads for call in thread.result()]
            wall = time.perf_counter() - start
            cpu = time.process_time() - cpu
        return Timed(tuple(calls), wall, cpu, peak_mb=peak_mb())

    def _drain(self, items: deque[bytes]) -> list[float]:
        calls: list[float] = []
        while True:
            try:
                item = items.popleft()
            except IndexError:  # another thread may have taken the last one
                return calls
            start = time.perf_counter()
            self._work.process(item)
            calls.append(time.perf_counter() - start)


def one_torch_thread(work: Work) -> None:
    """Keep PyTorch's resizing in the thread that asks for it: the protocol says how many."""
    if work.setup.size:
        import torch

        torch.set_num_threads(1)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep the garbage collector out of what is timed."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
