"""The threads or worker processes that make a loader's batches; started when first needed.

Worker processes are those of torch's own DataLoader, with the order and the random numbers of
`Loader`.
"""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader, Dataset, get_worker_info

from fastdecode._system.process import check_process, late_interrupt, raised_by_signal
from fastdecode.native._pool import Pool
from fastdecode.torch._errors import (
    NO_SHARED_MEMORY,
    no_shared_memory,
    suppress_worker_warnings,
    too_many_files,
)
from fastdecode.torch._loader.batch_builder import (
    BatchBuilder,
    EpochConfig,
    closed_error,
    stop_iteration_error,
    timeout_error,
)
from fastdecode.torch._loader.collate import ReadyBatch, collate, collate_whole
from fastdecode.torch._loader.messages import Message, pack, unpack
from fastdecode.torch._loader.order import DrawnBatch, Item, Order
from fastdecode.torch._loader.samples import SampleMaker
from fastdecode.torch._loader.streams import Begin, Nothing, StreamReader, seed_worker
from fastdecode.torch._loader.threads import ThreadPool, limit_threads
from fastdecode.torch._options import DecodeOptions
from fastdecode.torch._recorded import left_to_others, with_values, without_large_files
from fastdecode.torch._user_code import preserve_generators

_LARGEST_PART = 4
_PARTS_A_THREAD = 2


class ThreadWorkers:
    """Threads that make batches; without `threads`, the calling thread makes them."""

    def __init__(self, threads: int, prefetch: int, timeout: float | None) -> None:
        self._threads = threads
        self._prefetch = prefetch
        self._timeout = timeout
        self._pool: ThreadPool | None = None
        self._under_way: weakref.WeakSet[_ThreadEpoch] = weakref.WeakSet()
        self._lock = threading.RLock()  # held so that no epoch begins on pools that are closing

    def ahead(self) -> int:
        """Return how many batches after the one that is asked for must have been drawn."""
        return self._prefetch if self._threads else 0

    def epoch(self, config: EpochConfig, order: Order, place: DrawnBatch) -> _ThreadEpoch:
        """Begin an epoch at a place in its order; a device may still have to decode the batches."""
        with self._lock:
            if self._threads and self._pool is None:
                self._pool = ThreadPool(self._threads)
            prefetch, timeout = self._prefetch, self._timeout
            epoch = _ThreadEpoch(config, order, place, prefetch, timeout, self._pool)
            self._under_way.add(epoch)
        epoch.fill()
        return epoch

    def end(self) -> None:
        """End the epochs; a thread that waits for a batch gets an error."""
        with self._lock:
            for epoch in tuple(self._under_way):
                epoch.close()

    def close(self) -> None:
        """End the epochs and the threads. A later epoch starts new threads."""
        with self._lock:
            self.end()
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()


class _ThreadEpoch:
    """Batches in order; a pool makes `prefetch` ahead, else the calling thread makes each one."""

    def __init__(
        self,
        config: EpochConfig,
        order: Order,
        place: DrawnBatch,
        prefetch: int,
        timeout: float | None,
        pool: ThreadPool | None,
    ) -> None:
        self._config = config
        self._order = order
        self._place = place
        self._pool = pool
        self._prefetch = prefetch if pool is not None else 0
        self._timeout = timeout
        self._process = os.getpid()
        self._closed = False
        self._lock = threading.RLock()  # of what `close` changes, which any thread may call
        self._pending: deque[BatchBuilder] = deque()
        self._latest: weakref.ref[BatchBuilder] | None = None
        self._shares = 1 if pool is None else pool.count * _PARTS_A_THREAD
        native = None if pool is None or config.device_decoding is not None else pool.native
        alone = pool is None and config.seed_all
        self._maker = SampleMaker(config.source, native, alone=alone)
        self._kept: Callable[[], AbstractContextManager[None]]
        self._kept = preserve_generators if alone else nullcontext

    def fill(self, more: int = 0) -> None:
        """Begin batches that have been drawn, until `prefetch` of them, and `more`, are pending."""
        while len(self._pending) < self._prefetch + more and not self._closed:
            batch = self._place.follows
            if batch is None:
                return
            self._place = batch
            builder = self._make_builder(self._order.items(batch), batch.number)
            self._pending.append(builder)
            if self._pool is not None:
                for part in builder.parts:
                    self._pool.submit(partial(builder.make, part))

    def _make_builder(self, items: list[Item], number: int) -> BatchBuilder:
        config, maker = self._config, self._maker
        # Small parts keep all threads busy until a batch ends; large parts are handed over less
        # often.
        part = max(1, min(_LARGEST_PART, len(items) // self._shares))
        if config.device_decoding is not None:
            from fastdecode.torch._loader.device_batches import EncodedBatch

            how = config.device_decoding
            part = len(items) if config.source.remote else part
            return EncodedBatch(config, how, maker, items, number, part, self._pool)
        if maker.makes_whole_batches or config.source.remote:
            part = len(items)
        elif maker.native is not None and maker.native.worthwhile:
            part = maker.native.part
        return BatchBuilder(config, maker, items, number, part)

    def __iter__(self) -> Iterator[ReadyBatch | BatchBuilder]:
        return self

    def __next__(self) -> ReadyBatch | BatchBuilder:
        check_process(self._process)  # the threads stayed in the parent process
        self.fill(1)
        with self._lock:
            if self._closed:
                raise closed_error()
            if not self._pending:
                raise StopIteration
            builder = self._pending[0]
            self._latest = weakref.ref(builder)
        if self._pool is None:
            while builder.parts:
                with self._kept():
                    builder.make(builder.parts[0])
                del builder.parts[0]
        try:
            builder.wait(self._timeout)
            ready = builder.result()
        except BaseException as error:
            if not raised_by_signal(error):
                self._take_out(builder)
            if isinstance(error, StopIteration):
                raise stop_iteration_error(error) from error
            raise
        self._take_out(builder)
        return ready

    def _take_out(self, builder: BatchBuilder) -> None:
        """Let the next batch come: what interrupts the wait for one does not lose it."""
        with self._lock:
            if self._pending and self._pending[0] is builder:
                self._pending.popleft()

    def close(self) -> None:
        """Cancel the unfinished batches; if there are any, asking for more raises an error."""
        with self._lock:
            self._closed |= bool(self._pending) or not self._order.is_at_end(self._place)
            # Another thread may wait for the awaited batch, or for images of the latest one that a
            # device has refused.
            latest = None if self._latest is None else self._latest()
            for builder in (latest, *self._pending):
                if builder is not None:
                    builder.cancel()
            self._pending.clear()

    def __del__(self, exits: Callable[[], bool] = sys.is_finalizing) -> None:
        # The consumer may have left the loop early. When Python exits, names may be gone.
        if not exits() and hasattr(self, "_pending"):
            self.close()


class _WorkerDataset(Dataset[Any]):
    """Makes batches in a worker process, each sample with its own random numbers."""

    def __init__(self, config: EpochConfig) -> None:
        self._source = copy.copy(config.source)
        self._collate_fn = config.collate_fn
        self._channels_last = config.channels_last
        self._reported = config.source.error_counts()
        self._maker: SampleMaker | None = None

    @property
    def dataset(self) -> Any:
        """The user's dataset."""
        return self._source.dataset

    def __getitems__(self, request: tuple[int, Any]) -> Message:
        """Make a batch; return it, or its error.

        It is pickled here and not by torch's queue, which only prints that it cannot.
        """
        try:
            sent = self._answer(*request)
            made = without_large_files(sent.made, channels_last=self._channels_last)
            sent = sent._replace(made=made)
        except Exception:
            where = f"in worker process {get_worker_info().id}"  # type: ignore[union-attr]
            sent = _Sent(request[0], ExceptionWrapper(where=where))
        sent = sent._replace(failures=self._source.errors_since(self._reported))
        self._reported = self._source.error_counts()
        try:
            return pack(sent)
        except Exception as error:
            unsent = sent._replace(made=_unsendable(sent.made, error), state=None)
            return pack(unsent)

    def _answer(self, number: int, items: Any) -> _Sent:
        return _Sent(number, self._make(items))

    def _make(self, items: list[Item]) -> ReadyBatch:
        if self._maker is None:  # one thread, because a worker has one core to itself
            self._maker = SampleMaker(self._source, Pool(1), alone=True)
        how, last = self._collate_fn, self._channels_last
        maker = self._maker
        try:
            with left_to_others():
                if maker.makes_whole_batches:
                    return collate_whole(maker.make_whole(items), 0, how, channels_last=last)
                with self._source.prefetch_batch([item.index for item in items]):
                    samples = maker.make(items)
                return collate(samples, None, 0, how, channels_last=last)
        except StopIteration as error:
            raise stop_iteration_error(error) from error


class _WorkerStream(_WorkerDataset):
    """Reads an iterable dataset in a worker process."""

    def __init__(self, config: EpochConfig) -> None:
        super().__init__(config)
        self._stream = StreamReader(config)
        self._has_begun = False

    def _answer(self, _number: int, begin: Begin | None) -> _Sent:
        info: Any = get_worker_info()
        if begin is not None:
            if self._has_begun:  # before the first epoch, `_set_up_worker` has done so
                seed_worker(begin.seed)
            self._has_begun = True
            self._stream.begin(begin, info.id)
            if info.id < begin.turn:
                return _Sent(info.id, Nothing.NOT_ITS_TURN)
        with left_to_others():
            made = self._stream.make()
        return _Sent(info.id, made, state=self._stream.state())


class _Sent(NamedTuple):
    """What a worker process sends for a batch."""

    number: int
    """That of the batch, or of the process that reads an iterable dataset."""
    made: Any
    """The batch, or its error."""
    failures: list[Any] = []
    state: Any = None
    """What resumes an iterable dataset after it."""


class BatchNotSent(TypeError):
    """A worker process cannot send a batch, because something in it cannot be pickled."""


def _unsendable(made: Any, why: Exception) -> ExceptionWrapper:
    """Return the error to send in place of a batch, or of an error, that cannot be pickled."""
    error: Exception
    if isinstance(made, ExceptionWrapper):
        name = made.exc_type.__name__
        error = RuntimeError(f"{name}, which cannot be pickled: {made.exc_msg}")
    else:
        error = BatchNotSent(
            f"a batch cannot be sent from a worker process: {why}. num_workers=0 makes batches in "
            "this process"
        )
    return ExceptionWrapper((type(error), error, None), "in a worker process")


def _identity(made: Any) -> Any:
    return made


class _Requests:
    """What is asked for in the epoch that is set: what torch calls a batch sampler."""

    of: Iterator[tuple[int, Any]]

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        return self.of


class ProcessWorkers:
    """Worker processes: those of torch's DataLoader, started for each epoch, or once.

    `options` are arguments of the DataLoader. If nobody has `asked` for processes, what cannot be
    pickled is made in this process instead.
    """

    def __init__(self, timeout: float, *, asked: bool = True, **options: Any) -> None:
        self._timeout = timeout
        self._asked = asked
        self._options = options
        self._requests = _Requests()
        self._loader: DataLoader[Any] | None = None
        self._made_of: list[Any] = []
        # torch draws a seed for its workers: it must not come from the global generator, which the
        # user's training draws from.
        self._seeds = torch.Generator("cpu")
        self._process = os.getpid()
        self._running: weakref.ref[_ProcessEpoch] | None = None

    def ahead(self) -> int:
        """Return how many batches after the one that is asked for must have been drawn."""
        ahead: int = self._options["prefetch_factor"] * self._options["num_workers"]
        return ahead

    def epoch(self, config: EpochConfig, order: Order, place: DrawnBatch) -> Iterator[Any]:
        """Begin an epoch at a place in its order; one that is still running ends."""
        made_of = [config.collate_fn, config.channels_last, *config.source.made_of()]
        stays = self._are_alive() and _are_same(made_of, self._made_of)
        if stays:
            self._end_running(shut_down=False)
        self._requests.of = order.requests(place)
        self._seeds.manual_seed(config.worker_seed)
        batches = None
        if stays:
            with suppress(RuntimeError):  # a worker has just been killed
                batches = iter(self._loader)  # type: ignore[arg-type]  # it is alive
        if batches is None:
            self.close()
            self._loader, self._made_of = self._make_loader(config), made_of
            self._process = os.getpid()
            try:
                # Torch's iterator needs many, and complains twice if it cannot have them.
                (self._loader.multiprocessing_context or multiprocessing).Lock()
                with late_interrupt():
                    batches = iter(self._loader)
            except OSError as error:
                if error.errno not in NO_SHARED_MEMORY:
                    raise
                if self._asked:
                    raise no_shared_memory(error) from error
                return _here(config, order, place, no_shared_memory(error))
            except (pickle.PicklingError, AttributeError, TypeError) as error:
                if self._asked:
                    raise
                return _here(config, order, place, error)
        epoch = _ProcessEpoch(config, order, place, self._timeout, batches)
        epoch.instead = None if self._asked else partial(_here, config, order)
        self._running = weakref.ref(epoch)
        return epoch

    def _make_loader(self, config: EpochConfig) -> DataLoader[Any]:
        streams = config.source.iterable
        return DataLoader(
            _WorkerStream(config) if streams else _WorkerDataset(config),
            batch_sampler=cast(Any, self._requests),
            collate_fn=_identity,
            worker_init_fn=partial(
                _set_up_worker,
                reported=bool(config.source.datasets),
                seed=config.worker_seed if streams else None,
                then=config.worker_init_fn,
            ),
            timeout=self._timeout,
            generator=self._seeds,
            **self._options,
        )

    def _end_running(self, *, shut_down: bool) -> None:
        running = None if self._running is None else self._running()
        if running is not None:
            running.close(shut_down=shut_down)

    def end(self) -> None:
        """Do nothing: no thread waits here, and `close` ends the epoch."""

    def close(self) -> None:
        """End the processes. A later epoch starts new ones."""
        self._end_running(shut_down=True)
        iterator = self._iterator()
        if iterator is not None:
            _shut_down(iterator)
        self._loader = None

    def _are_alive(self) -> bool:
        """Return whether processes that persist are there for another epoch."""
        iterator = self._iterator()
        if iterator is None or iterator._shutdown:
            return False
        return all(worker.is_alive() for worker in iterator._workers)

    def _iterator(self) -> Any:
        """Return torch's iterator whose processes persist, if there is one in this process."""
        return getattr(self._loader, "_iterator", None) if self._process == os.getpid() else None


def _here(config: EpochConfig, order: Order, place: DrawnBatch, why: object) -> _ThreadEpoch:
    """Go on in this process, as DataLoader does if nobody asks for worker processes."""
    warnings.warn(
        f"batches are made in this process, one after another, because {why}. "
        "num_workers=0 says so",
        RuntimeWarning,
        stacklevel=2,
    )
    return ThreadWorkers(0, 1, None).epoch(config, order, place)


def _are_same(first: list[Any], second: list[Any]) -> bool:
    """Return whether what worker processes were started with is what an epoch needs."""
    return len(first) == len(second) and all(
        one is other or (isinstance(one, (int, DecodeOptions)) and one == other)
        for one, other in zip(first, second, strict=True)
    )


class _ProcessEpoch:
    """The batches that torch's iterator gets from worker processes."""

    def __init__(
        self,
        config: EpochConfig,
        order: Order,
        place: DrawnBatch,
        timeout: float,
        batches: Iterator[Any],
    ) -> None:
        self._config = config
        self._order = order
        self._place = place
        self._timeout = timeout
        self._process = os.getpid()
        self._batches: Any = batches
        self._here: Iterator[Any] | None = None
        self._received: ReadyBatch | None = None  # and not made yet
        self.instead: Callable[[DrawnBatch, object], Iterator[Any]] | None = None
        self._ended = False
        # A thread that copies may still wait for a batch while the next epoch begins, which uses
        # the same iterator of torch's if the workers persist.
        self._turn = threading.RLock()

    def __iter__(self) -> Iterator[ReadyBatch]:
        return self

    def __next__(self) -> ReadyBatch:
        check_process(self._process)  # else that would take the parent's batch
        with self._turn:
            return self._next()

    def _next(self) -> ReadyBatch:
        if self._ended:
            raise StopIteration
        if self._batches is None:
            raise closed_error()
        if self._here is not None:
            made: ReadyBatch = next(self._here)
            return made
        if self._received is not None:
            return self._finish(self._received)
        config, sent = self._config, self._receive()
        unsent = getattr(sent.made, "exc_type", None) is BatchNotSent
        if unsent and self.instead is not None:
            _shut_down(self._batches)
            why = "something in them cannot be pickled for worker processes"
            self._here = self.instead(self._place, why)
            return self._next()
        self._place = self._order.reached(self._place, sent.number, sent.made, sent.state)
        config.source.add_errors(sent.failures)
        if isinstance(sent.made, ExceptionWrapper):
            try:
                sent.made.reraise()
            except Exception as error:
                # That frame holds the error, and so this iterator: collected as garbage, torch's
                # waits 5 s for each of its workers.
                raise error.with_traceback(None)  # noqa: B904 - the same error
        self._received = sent.made._replace(position=self._place.number)
        return self._finish(self._received)

    def _finish(self, received: ReadyBatch) -> ReadyBatch:
        """Make what the workers have recorded; what a signal's handler raises loses no batch."""
        config = self._config
        try:
            batch = with_values(received.batch, config.memory, channels_last=config.channels_last)
        except BaseException as error:
            if not raised_by_signal(error):
                self._received = None
            raise
        self._received = None
        return received._replace(batch=batch, normalize=config.normalize)

    def _receive(self) -> _Sent:
        """Wait for the next batch, or its error."""
        try:
            while True:
                sent: _Sent = unpack(next(self._batches))
                if not isinstance(sent.made, Nothing):
                    return sent
                self._order.reached(self._place, sent.number, sent.made, sent.state)
        except StopIteration:
            self._ended, self._batches = True, None
            raise
        except Exception as error:  # of no batch: the same one comes next
            if (told := too_many_files(error)) is not None:
                raise told from error
            if not str(error).startswith("DataLoader timed out"):
                raise
            awaited = self._place.follows
            items = [] if awaited is None else awaited.indices
            raise timeout_error(self._place.number + 1, self._timeout, items) from error

    def close(self, *, shut_down: bool = False) -> None:
        """End the epoch, and its workers if they are not needed any more."""
        if not shut_down:
            with self._turn:
                self._batches = None
            return
        batches, self._batches = self._batches, None
        if batches is not None and self._process == os.getpid():
            _shut_down(batches)


def _shut_down(batches: Any) -> None:
    """End the worker processes of torch's iterator."""
    with suppress(RuntimeError):  # torch reports again that one was killed
        batches._shutdown_workers()


def _set_up_worker(
    number: int, *, reported: bool, seed: int | None, then: Callable[[int], Any] | None
) -> None:
    limit_threads()
    if seed is not None:
        seed_worker(seed)
    if reported:
        suppress_worker_warnings()
    info: Any = get_worker_info()
    # User code expects its own dataset there; torch refuses a plain assignment.
    object.__setattr__(info, "dataset", info.dataset.dataset)
    if then is not None:
        then(number)
