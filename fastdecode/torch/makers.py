"""Who makes a loader's batches: threads or processes, begun when they are first needed."""

from __future__ import annotations

import weakref
from collections.abc import Iterator

from fastdecode.torch.assembly import Assembly, Recipe
from fastdecode.torch.collating import Ready
from fastdecode.torch.crew import Crew
from fastdecode.torch.epochs import ThreadEpoch
from fastdecode.torch.order import Order
from fastdecode.torch.process_workers import ProcessWorkers
from fastdecode.torch.read_ahead import ReadAhead

__all__ = ["Makers"]


class Makers:
    """Threads, or processes, and the epochs that they are at.

    Parameters
    ----------
    threads, workers : int
        At most one of them; neither makes batches in the calling thread.
    prefetch : int
    timeout : float or None
    read_threads : int
        Threads that read ahead; none where batches are made by processes.

    Attributes
    ----------
    crew : Crew or None
        The threads, where they have begun.
    """

    def __init__(
        self,
        threads: int,
        workers: int,
        prefetch: int,
        timeout: float | None,
        read_threads: int = 0,
    ) -> None:
        self.crew: Crew | None = None
        self._readers: Crew | None = None
        self._read_threads = read_threads
        self._threads = threads
        self._workers = workers
        self._prefetch = prefetch
        self._timeout = timeout
        self._processes: ProcessWorkers | None = None
        self._under_way: weakref.WeakSet[ThreadEpoch] = weakref.WeakSet()

    def epoch(self, recipe: Recipe, order: Order, start: int) -> Iterator[Ready | Assembly]:
        """Begin an epoch at one of its batches, which may be still to be decoded."""
        if self._workers:
            if self._processes is None:
                self._processes = ProcessWorkers(self._workers, self._prefetch, self._timeout)
            return self._processes.epoch(recipe, order, start)
        if self._threads and self.crew is None:
            self.crew = Crew(self._threads)
        ahead = None
        if self._read_threads:
            if self._readers is None:
                self._readers = Crew(self._read_threads)
            ahead = ReadAhead(recipe.source, order, start, self._readers)
        epoch = ThreadEpoch(recipe, order, start, self.crew, self._prefetch, self._timeout, ahead)
        self._under_way.add(epoch)
        return epoch

    def end(self) -> None:
        """End the epochs that threads are at; whoever waits for a batch gets an error."""
        for epoch in tuple(self._under_way):
            epoch.close()

    def close(self) -> None:
        """End the threads and the processes. A later epoch starts them anew."""
        for part in (self.crew, self._readers, self._processes):
            if part is not None:
                part.close()
        self.crew = self._readers = self._processes = None
