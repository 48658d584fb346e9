"""`DevicePrefetcher`: copies the next batches to a device in the background."""

from __future__ import annotations

import atexit
import copy
import os
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, cast

import torch

from fastdecode._arguments import is_int
from fastdecode._system.process import check_process
from fastdecode.errors import ThreadsUnavailable
from fastdecode.gpu import parse_device
from fastdecode.torch._loader.transfer import Transfer, transfer_to

if TYPE_CHECKING:
    from typing_extensions import Self, TypeVar

    Batch = TypeVar("Batch", default=Any)
else:
    from typing import TypeVar

    Batch = TypeVar("Batch")

_PATIENCE_S = 5.0
"""How long to wait for a loader that is still making a batch that nobody needs."""

# fmt: off
_READ = (
    "dataset", "batch_size", "sampler", "batch_sampler", "num_workers", "pin_memory",
    "drop_last", "generator", "collate_fn",
)
# fmt: on
"""The attributes that training libraries read from a loader."""


class DevicePrefetcher(Generic[Batch]):
    """Wraps a loader, and makes, pins and copies the next batches while the current one is in use.

    Parameters
    ----------
    loader : iterable of batches
        A `Loader`, torch's DataLoader or any other iterable. Each ``iter(prefetcher)`` requests a
        new iterator from it, and a thread then calls that iterator. A batch may be a tensor, or a
        dict, list, tuple or named tuple that holds tensors, also nested; of other classes, those
        that are registered with ``torch.utils._pytree``. An object with its own ``to`` (and
        ``pin_memory``) method is moved with that. All other values stay unchanged.
    device : str, torch.device or int
        An int is the CUDA device of that number; ``"cuda"`` is the current one. With ``"cpu"`` each
        ``iter(prefetcher)`` is the loader's own iterator, and there is no thread.
    depth : int
        How many batches at most are ahead of the consumer, waiting or being copied. A depth of 1
        hides the loader's work but not the copy.

    Attributes
    ----------
    loader : iterable of batches
    device : torch.device
        For CUDA, with its index.
    depth : int
    dataset, batch_size, sampler, batch_sampler, num_workers, pin_memory, drop_last, generator, \
    collate_fn
        The loader's attributes, if it has them. Training libraries read them from torch's
        DataLoader.

    Raises
    ------
    DeviceUnavailable
        The device cannot be used; the message says what is missing.
    TypeError, ValueError
        An argument is wrong.

    Notes
    -----
    A batch behaves as if you had called ``to`` yourself: it lies in the memory of the current
    stream and stays valid for as long as you keep it. CUDA copies run on one stream that lasts as
    long as the prefetcher. The thread pins host memory that is not pinned yet. For devices other
    than CUDA, the consumer's thread copies with a plain ``to``.

    An error of the loader is raised in place of its batch; the loader decides what the next call
    returns. There is one iterator at a time: a new one ends the previous one, whose next call then
    raises RuntimeError. Worker processes start where ``iter(prefetcher)`` is called, not in the
    thread. A DataLoader without workers makes its samples in the thread, random draws included.
    During the capture of a CUDA graph, pinning needs ``capture_error_mode="thread_local"``.

    Examples
    --------
    >>> import torch
    >>> from torch.utils.data import DataLoader
    >>> from fastdecode.torch import DevicePrefetcher
    >>> device = "cuda" if torch.cuda.is_available() else "cpu"
    >>> with DevicePrefetcher(DataLoader(torch.arange(6), 3), device) as batches:
    ...     for batch in batches:
    ...         print(batch.tolist())
    [0, 1, 2]
    [3, 4, 5]
    """

    def __init__(
        self, loader: Iterable[Batch], device: str | int | torch.device, *, depth: int = 2
    ) -> None:
        if not is_int(depth) or depth < 1:
            raise ValueError(f"depth must be a positive integer, not {depth!r}")
        device = parse_device(device)
        self.loader: Any = loader
        self.depth = int(depth)
        self._transfer = None if device.type == "cpu" else transfer_to(device, self.depth)
        self.device = device if self._transfer is None else self._transfer.device
        self._epoch: weakref.ref[_PrefetchedEpoch] | None = None
        self._thread: _PrefetchThread | None = None
        self._state: Callable[[], Any] | None = None
        """Returns the loader's state after the batch last returned; None if it is not ahead."""

    def __getattr__(self, name: str) -> Any:
        if name in _READ:
            return getattr(self.loader, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        """Return the length of the loader."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        """Start an epoch of the loader, and end the one that is running."""
        self._end(patience=None)
        batches: Iterator[Any] = iter(self.loader)
        if self._transfer is None:
            return batches
        begin = getattr(batches, "begin_epoch", None)
        if begin is not None:  # of a Loader: worker processes start here, not in the thread
            begin(self.depth)
        self._state = _state_now(self.loader)
        self._thread = _PrefetchThread(self.loader, batches, self._transfer, self.depth)
        draw = None if begin is None else cast(Any, batches).draw
        epoch = _PrefetchedEpoch(self, self._thread, self._transfer, draw)
        self._epoch = weakref.ref(epoch)
        return epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the next epoch of the loader, or of its sampler, such as torch's DistributedSampler.

        Parameters
        ----------
        epoch : int

        Raises
        ------
        AttributeError
            Neither the loader nor its sampler has a ``set_epoch`` method.
        """
        if hasattr(self.loader, "set_epoch"):
            self.loader.set_epoch(epoch)
        else:
            self.loader.sampler.set_epoch(epoch)

    def state_dict(self) -> Any:
        """Return the loader's state after the batch last returned, although it has made more.

        Returns
        -------
        object
            What the loader's ``state_dict`` returned after it had made that batch.

        Raises
        ------
        AttributeError
            The loader has no ``state_dict`` method.
        """
        return self.loader.state_dict() if self._state is None else self._state()

    def load_state_dict(self, state: Any) -> None:
        """Restore a state of the loader, and end the epoch that is running.

        Parameters
        ----------
        state : object
            From `state_dict`.

        Raises
        ------
        AttributeError
            The loader has no ``load_state_dict`` method.
        """
        load = self.loader.load_state_dict
        self._end(patience=None)
        load(state)
        self._state = None

    def close(self) -> None:
        """End the running epoch and its thread. A later ``iter`` starts a new one.

        If the loader is still making a batch, this waits for at most 5 seconds. After that it
        issues a RuntimeWarning, and the thread ends when the loader returns.
        """
        self._end(patience=_PATIENCE_S)
        if self._thread is not None and self._thread.is_alive():
            warnings.warn(
                "the loader is still busy with a batch; its thread ends when that is done",
                RuntimeWarning,
                stacklevel=2,
            )

    def _end(self, patience: float | None) -> None:
        epoch = None if self._epoch is None else self._epoch()
        if epoch is not None:
            epoch.close()
        if self._thread is not None:  # the consumer may have gone without stopping it
            self._thread.stop()
            self._thread.join(patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _PrefetchedEpoch(Iterator[Any]):
    """One pass over the loader: batches that a thread has made, some of them being copied already.

    Made and copied batches are `depth` together, because each batch that is returned permits the
    thread to make one more.
    """

    def __init__(
        self,
        prefetcher: DevicePrefetcher,
        thread: _PrefetchThread,
        transfer: Transfer,
        draw: Callable[[], None] | None,
    ) -> None:
        self._prefetcher = prefetcher
        self._thread = thread
        self._transfer = transfer
        self._draw = draw  # of a Loader, whose sampler does not run in the thread
        self._moving: deque[_Step] = deque()
        self._process = os.getpid()
        self._ended = self._closed = False

    def __next__(self) -> Any:
        check_process(self._process)
        if self._ended:
            raise StopIteration
        if self._closed:
            raise _closed_error()
        # Start all copies before the consumer goes on with its work.
        while (step := self._thread.take(wait=not self._moving)) is not None:
            self._moving.append(self._start_copy(step))
        step = self._moving.popleft()
        if self._draw is not None:
            self._draw()
        self._thread.permit()
        if step.ended:
            self.close()
        if step.error is not None:
            try:
                raise step.error
            finally:
                del step  # else step, its error and the error's traceback form a cycle
        self._prefetcher._state = step.state
        if step.ended:
            self._ended = True
            self._thread.join(_PATIENCE_S)
            raise StopIteration
        return self._transfer.finish(step.batch)

    def _start_copy(self, step: _Step) -> _Step:
        """Start to copy a batch; an error of the copy is raised in place of that batch."""
        if step.ended or step.error is not None:
            return step
        try:
            return step._replace(batch=self._transfer.start(step.batch))
        except Exception as error:
            return _Step(error=error)

    def close(self) -> None:
        """Stop the thread and discard its batches, without waiting for the loader."""
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        self._thread.stop()
        given_up = [one.batch for one in self._moving if one.error is None and not one.ended]
        self._moving.clear()
        self._transfer.wait_for_copies(given_up)

    def __del__(self, exits: Callable[[], bool] = sys.is_finalizing) -> None:
        # A consumer that leaves the loop early, or fails, does not call close(). When Python exits,
        # `_stop_all` has stopped the thread, and the names of this module are gone.
        if not exits() and hasattr(self, "_process"):
            self.close()


class _Step(NamedTuple):
    """The result of one step of the loader: a staged batch, or an error to raise in its place.

    `state` returns the loader's state after this step. If `ended`, this is the last step.
    """

    batch: Any = None
    error: BaseException | None = None
    state: Callable[[], Any] | None = None
    ended: bool = False


class _PrefetchThread:
    """Makes the loader's batches in a thread, one per permit; it starts with `depth` permits.

    It records the loader's state after each batch. At the end it closes the iterator, if that has a
    ``close`` method and is not the loader itself.

    It holds no reference to its consumer, which can therefore be collected while a batch is being
    made. Neither side polls, and a finalizer may put to both queues at any moment.
    """

    def __init__(self, loader: Any, batches: Iterator[Any], transfer: Transfer, depth: int) -> None:
        self._loader = loader
        self._transfer = transfer
        self._permits: SimpleQueue[None] = SimpleQueue()
        self._steps: SimpleQueue[_Step] = SimpleQueue()
        self._stopped = False
        self._thread = threading.Thread(
            target=self._run, args=(batches,), name="fastdecode-prefetch", daemon=True
        )
        for _ in range(depth):
            self.permit()
        try:
            self._thread.start()
        except RuntimeError as error:  # "can't start new thread"
            raise ThreadsUnavailable(1) from error
        _running.add(self)

    def permit(self) -> None:
        """Allow the thread to make one more batch."""
        self._permits.put(None)

    def take(self, *, wait: bool) -> _Step | None:
        """Return the next step, or None if there is none yet and `wait` is false."""
        try:
            return self._steps.get(block=wait)
        except Empty:
            return None

    def stop(self) -> None:
        """Stop the thread after the current batch. A consumer that waits gets an error."""
        if self._stopped:
            return
        self._stopped = True
        self.permit()
        while self.take(wait=False) is not None:
            pass  # free the memory of batches that were made
        self._steps.put(_Step(error=_closed_error(), ended=True))

    def join(self, patience: float | None) -> None:
        """Wait for the thread to end, for at most `patience` seconds; None is no limit."""
        if self._thread is not threading.current_thread():
            self._thread.join(patience)

    def is_alive(self) -> bool:
        """Return whether the thread still runs."""
        return self._thread.is_alive()

    def _run(self, batches: Iterator[Any]) -> None:
        try:
            self._transfer.enter_thread()
            while self._wait_for_permit() and self._step(batches):
                pass
        except BaseException as error:  # the consumer must handle it
            self._steps.put(_Step(error=error, ended=True))
        finally:
            if batches is not self._loader and hasattr(batches, "close"):
                batches.close()

    def _wait_for_permit(self) -> bool:
        self._permits.get()
        return not self._stopped

    def _step(self, batches: Iterator[Any]) -> bool:
        """Make one batch; in its own function, so that no local refers to it while waiting."""
        step = self._next_step(batches)
        try:
            if not self._stopped:
                self._steps.put(step)
            return not step.ended
        finally:
            del step  # else this frame, the error and its traceback form a cycle

    def _next_step(self, batches: Iterator[Any]) -> _Step:
        try:
            try:
                batch = next(batches)
            except StopIteration:
                return _Step(state=_state_now(self._loader), ended=True)
            return _Step(self._transfer.stage(batch), state=_state_now(self._loader))
        except BaseException as error:
            return _Step(error=error, ended=not isinstance(error, Exception))


def _state_now(loader: Any) -> Callable[[], Any] | None:
    """Return what returns the loader's state of this moment, if it has one."""
    if hasattr(loader, "_later_state"):  # of a Loader: nothing is made until somebody asks
        later: Callable[[], Any] = loader._later_state()
        return later
    if not hasattr(loader, "state_dict"):
        return None
    state = copy.deepcopy(loader.state_dict())  # the loader may go on changing the object
    return lambda: state


def _closed_error() -> RuntimeError:
    """Return the error of an iterator that was closed before its end."""
    return RuntimeError(
        "this iterator was closed, by close() or by a newer iterator of the same prefetcher"
    )


_running: weakref.WeakSet[_PrefetchThread] = weakref.WeakSet()


def _stop_all() -> None:
    """Stop all threads before the interpreter exits: a thread inside CUDA must not outlive it."""
    left = list(_running)
    for thread in left:
        thread.stop()
    for thread in left:
        thread.join(_PATIENCE_S)


atexit.register(_stop_all)
