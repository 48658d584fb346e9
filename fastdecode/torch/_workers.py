"""The threads or worker processes that make a loader's batches; started when first needed.

Worker processes are those of torch's own DataLoader, with the order and the random numbers of
`Loader`.
"""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from fastdecode.native._batch import Pool
from fastdecode.torch._batch_builder import (
    BatchBuilder,
    EpochConfig,
    closed_error,
    stop_iteration_error,
    timeout_error,
)
from fastdecode.torch._collate import ReadyBatch, collate
from fastdecode.torch._errors import suppress_worker_warnings
from fastdecode.torch._order import Item, Order
from fastdecode.torch._read_ahead import ReadAhead
from fastdecode.torch._samples import SampleMaker, preserve_generators
from fastdecode.torch._threads import ThreadPool, limit_threads

_LARGEST_PART = 4
_PARTS_A_THREAD = 2


class Workers:
    """Threads or processes, and the epochs that they work on.

    At most one of `threads` and `workers` is not 0. If both are 0, batches are made in the calling
    thread. `read_threads` read ahead, but not for worker processes.
    """

    def __init__(
        self,
        threads: int,
        workers: int,
        prefetch: int,
        timeout: float | None,
        read_threads: int = 0,
    ) -> None:
        self._pool: ThreadPool | None = None
        self._readers: ThreadPool | None = None
        self._read_threads = read_threads
        self._threads = threads
        self._workers = workers
        self._prefetch = prefetch
        self._timeout = timeout
        self._under_way: weakref.WeakSet[_ThreadEpoch] = weakref.WeakSet()
        self._in_processes: weakref.WeakSet[_ProcessEpoch] = weakref.WeakSet()

    def epoch(
        self, config: EpochConfig, order: Order, start: int
    ) -> Iterator[ReadyBatch | BatchBuilder]:
        """Begin an epoch at its batch `start`; a device may still have to decode the batches.

        With processes, an epoch that is still running ends.
        """
        how = config, order, start, self._prefetch, self._timeout
        if self._workers:
            self._end_processes()
            running = _ProcessEpoch(*how, self._workers)
            self._in_processes.add(running)
            return running
        if self._threads and self._pool is None:
            self._pool = ThreadPool(self._threads)
        ahead = None
        if self._read_threads:
            if self._readers is None:
                self._readers = ThreadPool(self._read_threads)
            ahead = ReadAhead(config.source, order, start, self._readers)
        epoch = _ThreadEpoch(*how, self._pool, ahead)
        self._under_way.add(epoch)
        return epoch

    def end(self) -> None:
        """End the epochs of threads; a thread that waits for a batch gets an error."""
        for epoch in tuple(self._under_way):
            epoch.close()

    def close(self) -> None:
        """End the threads and the processes. A later epoch starts new ones."""
        for pool in (self._pool, self._readers):
            if pool is not None:
                pool.close()
        self._end_processes()
        self._pool = self._readers = None

    def _end_processes(self) -> None:
        for running in tuple(self._in_processes):
            running.close()


# ---- threads ----


class _ThreadEpoch:
    """Batches in order; a pool makes `prefetch` ahead, else the calling thread makes each one."""

    def __init__(
        self,
        config: EpochConfig,
        order: Order,
        start: int,
        prefetch: int,
        timeout: float | None,
        pool: ThreadPool | None,
        ahead: ReadAhead | None,
    ) -> None:
        self._config = config
        self._ahead = ahead
        self._order = order
        self._next = start
        self._pool = pool
        self._prefetch = prefetch if pool is not None else 0
        self._timeout = timeout
        self._process = os.getpid()
        self._closed = False
        self._awaited: BatchBuilder | None = None
        self._pending: deque[BatchBuilder] = deque()
        # Small parts keep all threads busy until a batch ends; large parts are handed over less
        # often.
        shares = 1 if pool is None else pool.count * _PARTS_A_THREAD
        self._part = max(1, min(_LARGEST_PART, order.batch_size // shares))
        native = None if pool is None or config.device_decoding is not None else pool.native
        alone = pool is None and config.seed_all
        self._maker = SampleMaker(config.source, native, alone=alone)
        self._kept: Callable[[], AbstractContextManager[None]]
        self._kept = preserve_generators if alone else nullcontext
        self._latest: weakref.ref[BatchBuilder] | None = None
        self._fill()

    def _fill(self) -> None:
        """Begin batches until `prefetch` of them are pending, but at least one."""
        while self._next < self._order.count and len(self._pending) < max(1, self._prefetch):
            items = self._order.batch(self._next)
            self._next += 1
            builder = self._make_builder(items)
            self._pending.append(builder)
            if self._pool is not None:
                for part in builder.parts:
                    self._pool.submit(partial(builder.make, part))

    def _make_builder(self, items: list[Item]) -> BatchBuilder:
        config, how, maker = self._config, self._config.device_decoding, self._maker
        reads = None if self._ahead is None else self._ahead.batch()
        if how is not None:
            from fastdecode.torch._device_batches import EncodedBatch

            size, pool = self._part, self._pool
            return EncodedBatch(config, how, maker, items, self._next, size, pool, reads)
        native = maker.native
        if native is None or not native.worthwhile:
            return BatchBuilder(config, maker, items, self._next, self._part, reads=reads)
        return BatchBuilder(config, maker, items, self._next, native.part, native=True, reads=reads)

    def __iter__(self) -> Iterator[ReadyBatch | BatchBuilder]:
        return self

    def __next__(self) -> ReadyBatch | BatchBuilder:
        if self._process != os.getpid():  # the threads stayed in the parent process
            raise RuntimeError("this iterator belongs to the process that this one was forked from")
        if self._closed:
            raise closed_error()
        if not self._pending:
            raise StopIteration
        builder = self._awaited = self._pending.popleft()
        self._latest = weakref.ref(builder)
        if self._pool is None:
            with self._kept():
                for part in builder.parts:
                    builder.make(part)
        self._fill()
        try:
            return builder.result(self._timeout)
        except StopIteration as error:
            raise stop_iteration_error(error) from error
        finally:
            self._awaited = None

    def close(self) -> None:
        """Cancel the unfinished batches; if there are any, asking for more raises an error."""
        if self._ahead is not None:
            self._ahead.close()
        # Another thread may wait for the awaited batch, or for images of the latest one that a
        # device has refused.
        latest = None if self._latest is None else self._latest()
        for builder in (self._awaited, latest):
            if builder is not None:
                builder.cancel()
        if self._pending:
            self._closed = True
        self._next = self._order.count
        for builder in self._pending:
            builder.cancel()
        self._pending.clear()

    def __del__(self) -> None:
        # The consumer may have left the loop early.
        if hasattr(self, "_pending"):
            self.close()


# ---- worker processes ----


class _WorkerDataset(Dataset[Any]):
    """Makes batches in a worker process, each sample with its own random numbers."""

    def __init__(self, config: EpochConfig) -> None:
        self._source = config.source
        self._collate_fn = config.collate_fn
        self._channels_last = config.channels_last
        self._reported: list[int] = []
        self._maker: SampleMaker | None = None

    @property
    def dataset(self) -> Any:
        """The user's dataset."""
        return self._source.dataset

    def __getitems__(self, items: list[Item]) -> tuple[ReadyBatch, list[Any]]:
        if self._maker is None:
            # Those from before the worker began are known.
            self._reported = [len(dataset.errors) for dataset in self._source.datasets]
            # One thread, because a worker has one core to itself.
            self._maker = SampleMaker(self._source, Pool(1), alone=True)
        try:
            with self._source.prefetch_batch([item.index for item in items]):
                samples = self._maker.make(items)
            ready = collate(samples, None, 0, self._collate_fn, channels_last=self._channels_last)
        except StopIteration as error:
            raise stop_iteration_error(error) from error
        # These include the failures of an earlier batch that raised and so could not report them.
        failures = self._source.errors_since(self._reported)
        self._reported = [len(dataset.errors) for dataset in self._source.datasets]
        return ready, failures


def _identity(made: Any) -> Any:
    return made


class _ProcessEpoch:
    """Batches from worker processes, each of which gets the dataset as it is at the start."""

    def __init__(
        self,
        config: EpochConfig,
        order: Order,
        start: int,
        prefetch: int,
        timeout: float | None,
        workers: int,
    ) -> None:
        self._order = order
        self._process = os.getpid()
        self._position = start
        self._config = config
        self._timeout = timeout
        loader: DataLoader[Any] = DataLoader(
            _WorkerDataset(config),
            batch_sampler=map(order.batch, range(start, order.count)),
            num_workers=workers,
            collate_fn=_identity,
            worker_init_fn=partial(
                _set_up_worker, reported=bool(config.source.datasets), then=config.worker_init_fn
            ),
            multiprocessing_context=config.multiprocessing_context,
            prefetch_factor=prefetch,
            timeout=timeout or 0,
            # torch draws a seed for its workers: it must not come from the global generator, which
            # the user's training draws from.
            generator=torch.Generator("cpu"),
        )
        self._batches: Any = iter(loader)  # torch's iterator of a loader with workers

    def __iter__(self) -> Iterator[ReadyBatch]:
        return self

    def __next__(self) -> ReadyBatch:
        if self._position >= self._order.count:
            self.close()
            raise StopIteration
        if self._batches is None:
            raise closed_error()
        try:
            ready: ReadyBatch
            ready, failures = next(self._batches)
        except Exception as error:
            _drop_frames(error)
            if str(error).startswith("DataLoader timed out"):
                # torch asks for this batch again next, so the position stays.
                items = [item.index for item in self._order.batch(self._position)]
                raise timeout_error(self._position + 1, self._timeout, items) from error
            if _is_worker_death(error):
                with suppress(RuntimeError):  # torch reports the same death again
                    self.close()
                raise _killed_error(error) from error
            self._position += 1
            raise error  # noqa: TRY201 - a bare raise would restore the traceback
        self._position += 1
        self._config.source.add_errors(failures)
        return ready._replace(position=self._position, normalize=self._config.normalize)

    def close(self) -> None:
        """End the workers here, because an error in `__del__`, such as Ctrl-C, would be lost."""
        batches, self._batches = self._batches, None
        if batches is not None and self._process == os.getpid():
            batches._shutdown_workers()


def _is_worker_death(error: Exception) -> bool:
    """Return whether a worker has died: torch says so, or cannot fetch a batch's memory from it."""
    if "in DataLoader worker process" in str(error):  # raised by the dataset, with its traceback
        return False
    unreachable = isinstance(error, (ConnectionError, FileNotFoundError, EOFError))
    return unreachable or str(error).startswith("DataLoader worker (pid")


def _drop_frames(error: BaseException | None) -> None:
    """Drop the tracebacks: their frames hold torch's iterator, which keeps the processes alive."""
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__


def _killed_error(error: Exception) -> RuntimeError:
    return RuntimeError(
        "a worker process was killed, interrupted or crashed, and its epoch cannot go on: "
        f"{error!r}. If the system killed it for lack of memory, use fewer workers. The next epoch "
        "starts new workers"
    )


def _set_up_worker(
    number: int, *, reported: bool, then: Callable[[int], Any] | None = None
) -> None:
    limit_threads()
    if reported:
        suppress_worker_warnings()
    info: Any = get_worker_info()
    # User code expects its own dataset there; torch refuses a plain assignment.
    object.__setattr__(info, "dataset", info.dataset.dataset)
    if then is not None:
        then(number)
