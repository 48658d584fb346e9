"""Batches from worker processes: torch's own DataLoader, with our order and our random numbers."""

from __future__ import annotations

import random
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from fastdecode.torch.assembly import (
    Ready,
    Recipe,
    closed_error,
    collate,
    stopped_early,
    too_late,
)
from fastdecode.torch.order import Order, sample_seed
from fastdecode.torch.source import Source
from fastdecode.torch.threads import limit_threads

__all__ = ["ProcessWorkers"]


class _Samples(Dataset[Any]):
    """What runs in a worker: samples by (epoch, item), each with random numbers of its own."""

    def __init__(self, source: Source, seed: int) -> None:
        self._source = source
        self._seed = seed
        self._reported: int | None = None

    def __getitems__(self, keys: list[tuple[int, Any]]) -> Any:
        if self._reported is None:  # what was known before the worker began
            self._reported = len(self._source.errors)
        try:
            samples = [self._sample(epoch, item) for epoch, item in keys]
        except StopIteration as error:
            raise stopped_early(error) from error
        # Also those of a batch before this that raised, and so could not report.
        failures = self._source.errors[self._reported :]
        self._reported += len(failures)
        return samples, failures

    def __getitem__(self, key: tuple[int, Any]) -> Any:
        return self.__getitems__([key])

    def _sample(self, epoch: int, item: Any) -> Any:
        seed = sample_seed(self._seed, epoch, item)
        # All that a user's own transform might draw from. Not `torch.manual_seed`, which goes on to
        # every other device there might be, and takes 0.1 ms for it.
        torch.default_generator.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002 - it is the global one that they draw from
        return self._source.fetch(item, None, None)


class _Collate:
    """What runs in a worker after that."""

    def __init__(
        self, collate_fn: Callable[[list[Any]], Any] | None, *, channels_last: bool
    ) -> None:
        self._collate_fn = collate_fn
        self._channels_last = channels_last

    def __call__(self, made: Any) -> Any:
        samples, failures = made
        try:
            ready = collate(samples, None, 0, self._collate_fn, channels_last=self._channels_last)
        except StopIteration as error:
            raise stopped_early(error) from error
        return ready.batch, ready.skipped, failures


class _Keys:
    """Batches of (epoch, item) of the epoch that is current when iteration begins."""

    def __init__(self) -> None:
        self.epoch = 0
        self.order: Order | None = None
        self.start = 0

    def __iter__(self) -> Iterator[list[tuple[int, Any]]]:
        order = self.order
        assert order is not None  # noqa: S101 - `epoch` sets it before it iterates
        for number in range(self.start, order.count):
            yield [(self.epoch, item) for item in order.batch(number)]


class ProcessWorkers:
    """Worker processes that last from epoch to epoch.

    Parameters
    ----------
    recipe : Recipe
    workers : int
    prefetch : int
        Batches that each keeps ready.
    timeout : float or None
        Seconds to wait for a batch.
    """

    def __init__(self, recipe: Recipe, workers: int, prefetch: int, timeout: float | None) -> None:
        self._recipe = recipe
        self._workers = workers
        self._prefetch = prefetch
        self._timeout = timeout
        self._keys = _Keys()
        self._loader: DataLoader[Any] | None = None
        self._running: weakref.ref[_Epoch] | None = None

    def _begin(self) -> DataLoader[Any]:
        """Have workers started, at the first epoch or after some of them were killed."""
        recipe = self._recipe
        return DataLoader(
            _Samples(recipe.source, recipe.seed),
            batch_sampler=self._keys,  # any iterable of lists of keys
            num_workers=self._workers,
            collate_fn=_Collate(recipe.collate_fn, channels_last=recipe.channels_last),
            worker_init_fn=_settle_worker,
            persistent_workers=True,
            prefetch_factor=self._prefetch,
            timeout=self._timeout or 0,
            # torch draws a seed for its workers; not from the generator of the user's training.
            generator=torch.Generator(),
        )

    def epoch(self, epoch: int, order: Order, start: int) -> Iterator[Ready]:
        """Begin an epoch at a batch; an epoch that is still running ends."""
        broken = self._end()
        self._keys.epoch, self._keys.order, self._keys.start = epoch, order, start
        if self._loader is None or broken:
            self._loader = self._begin()
        try:
            batches = iter(self._loader)
        except Exception as error:
            if not _tells_of_death(error):
                raise
            _let_go(error)
            # Killed while nobody waited for it. Nothing is lost.
            self._loader = self._begin()
            batches = iter(self._loader)
        running = _Epoch(batches, order, start, self._recipe.source, self._timeout)
        self._running = weakref.ref(running)
        return running

    def _end(self) -> bool:
        """End the epoch that is running; return whether its workers are of no use any more."""
        running = None if self._running is None else self._running()
        if running is None:
            return False
        running.close()
        return running.broken

    def close(self) -> None:
        """End the processes."""
        self._end()
        self._loader = None  # which owns them


class _Epoch:
    """Counts the batches, also those that raise."""

    def __init__(
        self,
        batches: Iterator[Any],
        order: Order,
        start: int,
        source: Source,
        timeout: float | None,
    ) -> None:
        self._batches: Iterator[Any] | None = batches
        self._order = order
        self._position = start
        self._source = source
        self._timeout = timeout
        self.broken = False

    def __iter__(self) -> Iterator[Ready]:
        return self

    def __next__(self) -> Ready:
        if self._position >= self._order.count:
            raise StopIteration
        if self._batches is None:
            raise closed_error()
        try:
            batch, skipped, failures = next(self._batches)
        except Exception as error:
            _let_go(error)
            if str(error).startswith("DataLoader timed out"):
                # What torch asks for next is this batch again, so that nothing is counted.
                items = self._order.batch(self._position)
                raise too_late(self._position + 1, self._timeout, items) from error
            if _tells_of_death(error):
                self.broken = True
                self._batches = None
                raise _killed(error) from error
            self._position += 1
            raise error  # noqa: TRY201 - a bare one would bring the traceback back
        self._position += 1
        for failure in failures:
            self._source.errors.add(failure)
        return Ready(batch, self._position, skipped)

    def close(self) -> None:
        """Let go of the workers."""
        self._batches = None


def _tells_of_death(error: Exception) -> bool:
    """Whether torch found a worker dead, or could not fetch a batch's memory from it any more."""
    if "in DataLoader worker process" in str(error):  # the dataset's own, with its traceback
        return False
    unreachable = isinstance(error, (ConnectionError, FileNotFoundError, EOFError))
    return unreachable or str(error).startswith("DataLoader worker (pid")


def _let_go(error: BaseException | None) -> None:
    """Forget the frames of torch's iterator, which would keep the processes for as long as it."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _killed(error: Exception) -> RuntimeError:
    return RuntimeError(
        f"a worker process was killed or crashed, and the epoch with it: {error!r}. If it was the "
        "system, for lack of memory, fewer workers help. The next epoch starts new ones"
    )


def _settle_worker(_number: int) -> None:
    limit_threads()
    # A dataset warns of what only its own process would know; here it is reported with the batch.
    warnings.filterwarnings("ignore", ".*dataset.errors of the training", RuntimeWarning)
