"""Batches from worker processes: torch's own DataLoader, with our order and our random numbers."""

from __future__ import annotations

import os
import random
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from fastdecode.native.batch import Pool
from fastdecode.torch.assembly import Recipe, closed_error, stopped_early, too_late
from fastdecode.torch.collating import Ready, collate
from fastdecode.torch.draws import Draws
from fastdecode.torch.failures import take_along
from fastdecode.torch.lane import LEFT, Lane
from fastdecode.torch.order import Item, Order
from fastdecode.torch.source import Source
from fastdecode.torch.threads import limit_threads

__all__ = ["ProcessWorkers"]


def _seed_all(seed: int) -> None:
    """Seed all that a user's own code might draw from."""
    # Not `torch.manual_seed`, which goes on to every other device there might be, and takes 0.1 ms.
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 - it is the global one that they draw from


class _Draws(Draws):
    """Those of a worker, where the user's own code has random numbers of the item's, too."""

    def begin(self, at: int) -> None:
        _seed_all(self._seeds[at])


class _Samples(Dataset[Any]):
    """What runs in a worker: samples, each with random numbers of its own."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._reported: int | None = None
        self._lane: Lane | None = None

    @property
    def dataset(self) -> Any:
        """The user's own."""
        return self._source.dataset

    def __getitems__(self, items: list[Item]) -> Any:
        if self._reported is None:  # what was known before the worker began
            self._reported = len(self._source.errors)
            self._lane = self._source.lane(Pool(1))  # a worker has one core for itself
        try:
            with self._source.together([item.index for item in items]):
                samples = self._samples(items)
        except StopIteration as error:
            raise stopped_early(error) from error
        # Also those of a batch before this that raised, and so could not report.
        failures = self._source.errors[self._reported :]
        self._reported += len(failures)
        return samples, failures

    def __getitem__(self, item: Item) -> Any:
        return self.__getitems__([item])

    def _samples(self, items: list[Item]) -> list[Any]:
        lane = self._lane
        if lane is None or not lane.fits:
            return [self._sample(item) for item in items]
        indices, seeds = [item.index for item in items], [item.seed for item in items]
        made = lane.make(indices, _Draws(seeds))
        return [
            self._sample(item) if sample is LEFT else self._source.handed_out(sample)
            for item, sample in zip(items, made, strict=True)
        ]

    def _sample(self, item: Item) -> Any:
        index, seed = item
        _seed_all(seed)
        # What threads do with a generator must not draw from another global one here.
        generator = torch.default_generator if self._source.isolated else None
        return self._source.fetch(index, generator, None)


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


class _Batches:
    """What torch takes for a batch sampler: the batches of an epoch, from one of them on."""

    def __init__(self, order: Order, start: int) -> None:
        self._order = order
        self._start = start

    def __iter__(self) -> Iterator[list[Item]]:
        return map(self._order.batch, range(self._start, self._order.count))

    def __len__(self) -> int:
        return self._order.count - self._start


class ProcessWorkers:
    """Worker processes, started for each epoch with the dataset as it is then.

    Parameters
    ----------
    workers : int
    prefetch : int
        Batches that each keeps ready.
    timeout : float or None
        Seconds to wait for a batch.
    """

    def __init__(self, workers: int, prefetch: int, timeout: float | None) -> None:
        self._workers = workers
        self._prefetch = prefetch
        self._timeout = timeout
        self._running: weakref.ref[_Epoch] | None = None

    def epoch(self, recipe: Recipe, order: Order, start: int) -> Iterator[Ready]:
        """Begin an epoch at a batch; an epoch that is still running ends."""
        self.close()
        loader: DataLoader[Any] = DataLoader(
            _Samples(recipe.source),
            batch_sampler=_Batches(order, start),
            num_workers=self._workers,
            collate_fn=_Collate(recipe.collate_fn, channels_last=recipe.channels_last),
            worker_init_fn=partial(
                _settle_worker, reported=recipe.source.reports, then=recipe.worker_init_fn
            ),
            multiprocessing_context=recipe.multiprocessing_context,
            prefetch_factor=self._prefetch,
            timeout=self._timeout or 0,
            # torch draws a seed for its workers; not from the generator of the user's training.
            generator=torch.Generator("cpu"),
        )
        running = _Epoch(iter(loader), order, start, recipe, self._timeout)
        self._running = weakref.ref(running)
        return running

    def close(self) -> None:
        """End the epoch that is running, and its processes."""
        running = None if self._running is None else self._running()
        if running is not None:
            running.close()


class _Epoch:
    """Counts the batches, also those that raise."""

    def __init__(
        self,
        batches: Iterator[Any],
        order: Order,
        start: int,
        recipe: Recipe,
        timeout: float | None,
    ) -> None:
        self._batches: Any = batches  # torch's iterator of a loader with workers
        self._order = order
        self._process = os.getpid()
        self._position = start
        self._recipe = recipe
        self._timeout = timeout

    def __iter__(self) -> Iterator[Ready]:
        return self

    def __next__(self) -> Ready:
        if self._position >= self._order.count:
            self.close()
            raise StopIteration
        if self._batches is None:
            raise closed_error()
        try:
            batch, skipped, failures = next(self._batches)
        except Exception as error:
            _let_go(error)
            if str(error).startswith("DataLoader timed out"):
                # What torch asks for next is this batch again, so that nothing is counted.
                items = [item.index for item in self._order.batch(self._position)]
                raise too_late(self._position + 1, self._timeout, items) from error
            if _tells_of_death(error):
                with suppress(RuntimeError):  # torch tells of the same death again
                    self.close()
                raise _killed(error) from error
            self._position += 1
            raise error  # noqa: TRY201 - a bare one would bring the traceback back
        self._position += 1
        for failure in failures:
            self._recipe.source.errors.add(failure)
        return Ready(batch, self._position, skipped, self._recipe.normalize)

    def close(self) -> None:
        """End the workers: here, because what is raised in `__del__`, as by Ctrl-C, is lost."""
        batches, self._batches = self._batches, None
        if batches is not None and self._process == os.getpid():
            batches._shutdown_workers()


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


def _settle_worker(
    number: int, *, reported: bool, then: Callable[[int], Any] | None = None
) -> None:
    limit_threads()
    if reported:
        take_along()
    info: Any = get_worker_info()
    # What the user's code finds there is the user's dataset; a plain assignment is refused.
    object.__setattr__(info, "dataset", info.dataset.dataset)
    if then is not None:
        then(number)
