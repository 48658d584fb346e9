"""Batches from worker processes: torch's own DataLoader, with our order and our random numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from fastdecode.torch.assembly import Ready, Recipe, collate
from fastdecode.torch.order import Order, sample_seed
from fastdecode.torch.source import Source
from fastdecode.torch.threads import limit_threads

__all__ = ["ProcessWorkers"]


class _Samples(Dataset[Any]):
    """What runs in a worker: samples by (epoch, item), each with random numbers of its own."""

    def __init__(self, source: Source, seed: int) -> None:
        self._source = source
        self._seed = seed

    def __getitems__(self, keys: list[tuple[int, Any]]) -> Any:
        known = len(self._source.errors)
        samples = [self._sample(epoch, item) for epoch, item in keys]
        return samples, self._source.errors[known:]

    def __getitem__(self, key: tuple[int, Any]) -> Any:
        return self.__getitems__([key])

    def _sample(self, epoch: int, item: Any) -> Any:
        seed = sample_seed(self._seed, epoch, item)
        # All that a user's own transform might draw from.
        torch.manual_seed(seed)
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
        ready = collate(samples, None, 0, self._collate_fn)
        batch = ready.batch
        if self._channels_last and self._collate_fn is None and isinstance(batch, list):
            batch[0] = batch[0].contiguous(memory_format=torch.channels_last)
        return batch, ready.skipped, failures


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
        self._keys = _Keys()
        self._errors = recipe.source.errors
        self._loader: DataLoader[Any] = DataLoader(
            _Samples(recipe.source, recipe.seed),
            batch_sampler=self._keys,  # any iterable of lists of keys
            num_workers=workers,
            collate_fn=_Collate(recipe.collate_fn, channels_last=recipe.channels_last),
            worker_init_fn=_begin,
            persistent_workers=True,
            prefetch_factor=prefetch,
            timeout=timeout or 0,
            # torch draws a seed for its workers; not from the generator of the user's training.
            generator=torch.Generator(),
        )

    def epoch(self, epoch: int, order: Order, start: int) -> Iterator[Ready]:
        """Begin an epoch at a batch; an epoch that is still running ends."""
        self._keys.epoch, self._keys.order, self._keys.start = epoch, order, start
        return _Epoch(iter(self._loader), start, self._errors)

    def close(self) -> None:
        """End the processes."""
        del self._loader  # which owns them


class _Epoch:
    """Counts the batches, also those that raise."""

    def __init__(self, batches: Iterator[Any], start: int, errors: list[Any]) -> None:
        self._batches = batches
        self._position = start
        self._errors = errors

    def __iter__(self) -> Iterator[Ready]:
        return self

    def __next__(self) -> Ready:
        self._position += 1
        batch, skipped, failures = next(self._batches)
        known = {failure.index for failure in self._errors}
        self._errors.extend(failure for failure in failures if failure.index not in known)
        return Ready(batch, self._position, skipped)


def _begin(_number: int) -> None:
    limit_threads()
