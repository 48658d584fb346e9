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

from fastdecode._process import hold_interrupts
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
    thread. `read_threads` read ahead, but not for worker processes, which last for all epochs if
    they are `persistent`.
    """

    def __init__(
        self,
        threads: int,
        workers: int,
        prefetch: int,
        timeout: float | None,
        read_threads: int = 0,
        *,
        persistent: bool = False,
    ) -> None:
        self._pool: ThreadPool | None = None
        self._readers: ThreadPool | None = None
        self._read_threads = read_threads
        self._threads = threads
        self._prefetch = prefetch
        self._timeout = timeout
        self._under_way: weakref.WeakSet[_ThreadEpoch] = weakref.WeakSet()
        self._processes = _Processes(workers, prefetch, timeout, persistent) if workers else None

    def epoch(
        self, config: EpochConfig, order: Order, start: int
    ) -> Iterator[ReadyBatch | BatchBuilder]:
        """Begin an epoch at its batch `start`; a device may still have to decode the batches.

        With processes, an epoch that is still running ends.
        """
        if self._processes is not None:
            return self._processes.epoch(config, order, start)
        if self._threads and self._pool is None:
            self._pool = ThreadPool(self._threads)
        ahead = None
        if self._read_threads:
            if self._readers is None:
                self._readers = ThreadPool(self._read_threads)
            source = config.source
            ahead = ReadAhead(source.datasets, source.locate, order, start, self._readers)
        epoch = _ThreadEpoch(config, order, start, self._prefetch, self._timeout, self._pool, ahead)
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
        if self._processes is not None:
            self._processes.close()
        self._pool = self._readers = None


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


class _Batches:
    """The items of each batch of the epoch that is set: what torch calls a batch sampler."""

    order: Order
    numbers: range

    def __iter__(self) -> Iterator[list[Item]]:
        return map(self.order.batch, self.numbers)


class _Processes:
    """Worker processes: those of torch's DataLoader, started for each epoch, or once."""

    def __init__(
        self, workers: int, prefetch: int, timeout: float | None, persistent: bool
    ) -> None:
        self._workers = workers
        self._prefetch = prefetch
        self._timeout = timeout
        self._persistent = persistent
        self._batches = _Batches()
        self._loader: DataLoader[Any] | None = None
        self._process = os.getpid()
        self._running: weakref.ref[_ProcessEpoch] | None = None

    def epoch(self, config: EpochConfig, order: Order, start: int) -> _ProcessEpoch:
        """Begin an epoch at its batch `start`; one that is still running ends."""
        self._end(shut_down=not self._persistent)
        self._batches.order, self._batches.numbers = order, range(start, order.count)
        loader = self._loader
        if loader is None or not self._last():
            loader = self._loader = self._make_loader(config)
            self._process = os.getpid()
        running = _ProcessEpoch(config, order, start, self._timeout, lasting=self._persistent)
        self._running = weakref.ref(running)
        try:
            with hold_interrupts():
                running.batches = iter(loader)
        except BaseException:
            self.close()
            raise
        return running

    def _make_loader(self, config: EpochConfig) -> DataLoader[Any]:
        return DataLoader(
            _WorkerDataset(config),
            batch_sampler=self._batches,
            num_workers=self._workers,
            collate_fn=_identity,
            worker_init_fn=partial(
                _set_up_worker, reported=bool(config.source.datasets), then=config.worker_init_fn
            ),
            multiprocessing_context=config.multiprocessing_context,
            prefetch_factor=self._prefetch,
            persistent_workers=self._persistent,
            timeout=self._timeout or 0,
            # torch draws a seed for its workers: it must not come from the global generator, which
            # the user's training draws from.
            generator=torch.Generator("cpu"),
        )

    def _end(self, *, shut_down: bool) -> None:
        running = None if self._running is None else self._running()
        if running is not None:
            running.close(shut_down=shut_down)

    def close(self) -> None:
        """End the processes. A later epoch starts new ones."""
        self._end(shut_down=True)
        if self._last():
            self._iterator()._shutdown_workers()
        self._loader = None

    def _last(self) -> bool:
        """Return whether there are processes from an earlier epoch, and of this process."""
        iterator = self._iterator()
        return iterator is not None and not iterator._shutdown and self._process == os.getpid()

    def _iterator(self) -> Any:
        """Return torch's iterator whose processes persist, if there is one."""
        return getattr(self._loader, "_iterator", None)


class _ProcessEpoch:
    """Batches from worker processes.

    If these are not `lasting`, they end with the epoch; each has got the dataset as it was then.
    """

    batches: Any = None
    """torch's iterator of a loader with workers."""

    def __init__(
        self,
        config: EpochConfig,
        order: Order,
        start: int,
        timeout: float | None,
        *,
        lasting: bool,
    ) -> None:
        self._order = order
        self._process = os.getpid()
        self._position = start
        self._config = config
        self._timeout = timeout
        self._lasting = lasting

    def __iter__(self) -> Iterator[ReadyBatch]:
        return self

    def __next__(self) -> ReadyBatch:
        if self._position >= self._order.count:
            self.close(shut_down=not self._lasting)
            raise StopIteration
        if self.batches is None:
            raise closed_error()
        try:
            ready: ReadyBatch
            ready, failures = next(self.batches)
        except Exception as error:
            _drop_frames(error)
            if str(error).startswith("DataLoader timed out"):
                # torch asks for this batch again next, so the position stays.
                items = [item.index for item in self._order.batch(self._position)]
                raise timeout_error(self._position + 1, self._timeout, items) from error
            if _is_worker_death(error):
                with suppress(RuntimeError):  # torch reports the same death again
                    self.close(shut_down=True)
                raise _killed_error(error) from error
            self._position += 1
            raise error  # noqa: TRY201 - a bare raise would restore the traceback
        self._position += 1
        self._config.source.add_errors(failures)
        return ready._replace(position=self._position, normalize=self._config.normalize)

    def close(self, *, shut_down: bool) -> None:
        """End the epoch, and its workers here: an error in `__del__`, such as Ctrl-C, is lost."""
        batches, self.batches = self.batches, None
        if shut_down and batches is not None and self._process == os.getpid():
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
