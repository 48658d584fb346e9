"""`DevicePrefetcher`: batches are on their way to the device before they are asked for."""

from __future__ import annotations

import atexit
import copy
import os
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

import torch

from fastdecode._arguments import is_int
from fastdecode.gpu._devices import parse_device
from fastdecode.torch._collate import Batch
from fastdecode.torch._transfer import Transfer, transfer_to

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DevicePrefetcher"]

_PATIENCE_S = 5.0
"""How long to wait for a loader that is busy with a batch when that batch is no longer wanted."""

# fmt: off
_READ = (
    "dataset", "batch_size", "sampler", "batch_sampler", "num_workers", "pin_memory",
    "drop_last", "generator", "collate_fn",
)
# fmt: on
"""What training libraries read of a loader."""


class DevicePrefetcher(Generic[Batch]):
    """Wraps a loader: the next batches are made, pinned and copied while the last is in use.

    Parameters
    ----------
    loader : iterable of batches
        Such as a `Loader` or torch's DataLoader. Each ``iter(prefetcher)`` asks it for a new
        iterator, which a thread then draws from. Batches may be tensors, or mappings, sequences,
        named tuples and dataclass instances of them, nested; an object with a ``to`` (and a
        ``pin_memory``) of its own is asked to move itself. Containers keep their types, and what is
        no tensor stays as it is.
    device : str, torch.device or int
        An int is the CUDA device of that number; ``"cuda"`` is the current one. With ``"cpu"`` the
        loader's own batches pass through, and there is no thread.
    depth : int
        How many batches are ahead of the consumer, at most: made, and waiting or being copied.
        With 1, the loader's work is hidden but not the copy.

    Attributes
    ----------
    loader : iterable of batches
    device : torch.device
        With its index for CUDA.
    depth : int
    dataset, batch_size, sampler, batch_sampler, num_workers, pin_memory, drop_last, generator, \
    collate_fn
        The loader's, where it has them: training libraries read them of torch's DataLoader.

    Raises
    ------
    DeviceUnavailable
        The device cannot be used; the message says what is missing.
    TypeError, ValueError
        An argument is wrong.

    Notes
    -----
    A batch is the consumer's, as if it had called ``to`` itself: it lies in the memory of the
    current stream and stays valid for as long as it is kept. CUDA copies run on one stream that
    lasts as long as the prefetcher. Host memory that is not pinned is pinned in the thread. Other
    devices are copied to by a plain ``to`` in the consumer's thread.

    An error of the loader is raised where its batch would be. What the next call gives is up to the
    loader. There is one iterator at a time: a new one ends the one before, whose next call is then
    a RuntimeError. Worker processes are started where ``iter(prefetcher)`` is called, not in the
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
        self._epoch: weakref.ref[_Epoch] | None = None
        self._thread: _PrefetchThread | None = None
        self._state: Any = None
        """The loader's state at the batch last handed out; None while the loader is not ahead."""

    def __getattr__(self, name: str) -> Any:
        if name in _READ:
            return getattr(self.loader, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        """Return the loader's own length."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Batch]:
        """Begin an epoch of the loader; one that is under way ends."""
        self._end(patience=None)
        batches = iter(self.loader)
        epoch: _Epoch
        if self._transfer is None:
            epoch = _Epoch(batches)
        else:
            self._state = _state_of(self.loader)
            self._thread = _PrefetchThread(self.loader, batches, self._transfer, self.depth)
            epoch = _Ahead(self, self._thread, self._transfer)
        self._epoch = weakref.ref(epoch)
        return epoch

    def set_epoch(self, epoch: int) -> None:
        """Tell the loader which epoch comes next, or its sampler, as torch's distributed one.

        Raises
        ------
        AttributeError
            If neither has a ``set_epoch``.
        """
        if hasattr(self.loader, "set_epoch"):
            self.loader.set_epoch(epoch)
        else:
            self.loader.sampler.set_epoch(epoch)

    def state_dict(self) -> Any:
        """Return the loader's state as of the batch last handed out, although it is ahead of that.

        Returns
        -------
        object
            What the loader's ``state_dict`` gave after it had made that batch.

        Raises
        ------
        AttributeError
            If the loader has no ``state_dict``.
        """
        return self.loader.state_dict() if self._state is None else self._state

    def load_state_dict(self, state: Any) -> None:
        """Bring the loader back to a state; an epoch under way ends.

        Raises
        ------
        AttributeError
            If the loader has no ``load_state_dict``.
        """
        load = self.loader.load_state_dict
        self._end(patience=None)
        load(state)
        self._state = None

    def close(self) -> None:
        """End the epoch under way and its thread. A later ``iter`` begins a new one.

        A loader that is busy with a batch is waited for, for 5 seconds at most: then there is a
        RuntimeWarning, and the thread ends once the loader returns.
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
        if self._thread is not None:  # its consumer may be gone without it
            self._thread.stop()
            self._thread.join(patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Epoch(Iterator[Any]):
    """One pass over the loader: its own batches, as they are."""

    _ended = False
    _closed = False

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        if self._closed:
            raise _closed_error()
        try:
            return self._next()
        except StopIteration:
            self._ended = True
            raise

    def _next(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        self._closed = True


class _Ahead(_Epoch):
    """Batches that a thread has made, some of them already being copied.

    What is made and what is being copied are `depth` together, because a permit to make one more
    is given when one is handed out.
    """

    def __init__(
        self, prefetcher: DevicePrefetcher, thread: _PrefetchThread, transfer: Transfer
    ) -> None:
        self._prefetcher = prefetcher
        self._thread = thread
        self._transfer = transfer
        self._moving: deque[_Step] = deque()
        self._process = os.getpid()

    def _next(self) -> Any:
        if self._process != os.getpid():
            raise RuntimeError("this iterator belongs to the process that this one was forked from")
        # All that is there begins to be copied before the consumer gets on with its work.
        while (step := self._thread.take(wait=not self._moving)) is not None:
            self._moving.append(self._begun(step))
        step = self._moving.popleft()
        self._thread.permit()
        if step.ended:
            self.close()
        if step.error is not None:
            try:
                raise step.error
            finally:
                del step  # the error's traceback would hold it, and that the error
        self._prefetcher._state = step.state
        if step.ended:
            self._thread.join(_PATIENCE_S)
            raise StopIteration
        return self._transfer.finish(step.batch)

    def _begun(self, step: _Step) -> _Step:
        """Begin to copy a batch; an error of that is raised in its place, not before."""
        if step.ended or step.error is not None:
            return step
        try:
            return step._replace(batch=self._transfer.start(step.batch))
        except Exception as error:
            return _Step(error=error)

    def close(self) -> None:
        """Let the thread end, and give up what is under way; without waiting for the loader."""
        if self._closed or self._process != os.getpid():
            return
        super().close()
        self._thread.stop()
        given_up = [one.batch for one in self._moving if one.error is None and not one.ended]
        self._moving.clear()
        self._transfer.settle(given_up)

    def __del__(self) -> None:
        # A consumer that left the loop early, or failed, does not say so.
        if hasattr(self, "_process"):
            self.close()


class _Step(NamedTuple):
    """What one step of the loader gave: a staged batch, or an error to be raised in its place.

    `state` is the loader's, after this step; `ended` says that nothing more comes.
    """

    batch: Any = None
    error: BaseException | None = None
    state: Any = None
    ended: bool = False


class _PrefetchThread:
    """Makes the loader's batches in a thread, one for each permit: so many ahead and no more.

    It takes the loader's state after each batch, and closes the iterator at the end, if it can be
    closed and is not the loader itself. It begins with `depth` permits.

    It knows nothing of its consumer, which can therefore be garbage while a batch is being made.
    Neither side polls, and a finalizer may put to both queues at any moment.
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
        _running.add(self)
        self._thread.start()

    def permit(self) -> None:
        """Allow one more batch to be made."""
        self._permits.put(None)

    def take(self, *, wait: bool) -> _Step | None:
        """Return the next step; None if nothing is there and nobody wants to wait."""
        try:
            return self._steps.get(block=wait)
        except Empty:
            return None

    def stop(self) -> None:
        """Let the thread end after the batch under way. A consumer that waits gets an error."""
        if self._stopped:
            return
        self._stopped = True
        self.permit()
        while self.take(wait=False) is not None:
            pass  # batches hold memory
        self._steps.put(_Step(error=_closed_error(), ended=True))

    def join(self, patience: float | None) -> None:
        """Wait for the thread to end, for so many seconds; None waits until it does."""
        if self._thread is not threading.current_thread():
            self._thread.join(patience)

    def is_alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread.is_alive()

    def _run(self, batches: Iterator[Any]) -> None:
        try:
            self._transfer.enter_thread()
            while self._permitted() and self._step(batches):
                pass
        except BaseException as error:  # the consumer is who can do something about it
            self._steps.put(_Step(error=error, ended=True))
        finally:
            if batches is not self._loader and hasattr(batches, "close"):
                batches.close()

    def _permitted(self) -> bool:
        self._permits.get()
        return not self._stopped

    def _step(self, batches: Iterator[Any]) -> bool:
        """Make one batch; apart, so that nothing of a batch is left while waiting."""
        step = self._made(batches)
        try:
            if not self._stopped:
                self._steps.put(step)
            return not step.ended
        finally:
            del step  # an error's traceback leads here, and would be held by this in turn

    def _made(self, batches: Iterator[Any]) -> _Step:
        try:
            try:
                batch = next(batches)
            except StopIteration:
                return _Step(state=_state_of(self._loader), ended=True)
            return _Step(self._transfer.stage(batch), state=_state_of(self._loader))
        except BaseException as error:
            return _Step(error=error, ended=not isinstance(error, Exception))


def _state_of(loader: Any) -> Any:
    """Copy the loader's state, if it has any: it may be a live object that goes on changing."""
    return copy.deepcopy(loader.state_dict()) if hasattr(loader, "state_dict") else None


def _closed_error() -> RuntimeError:
    """Return what an iterator raises that was closed before its end."""
    return RuntimeError(
        "this iterator was closed, by close() or by a newer iterator of the same prefetcher"
    )


_running: weakref.WeakSet[_PrefetchThread] = weakref.WeakSet()


def _stop_all() -> None:
    """End the threads before the interpreter goes: a thread inside CUDA must not outlive it."""
    left = list(_running)
    for thread in left:
        thread.stop()
    for thread in left:
        thread.join(_PATIENCE_S)


atexit.register(_stop_all)
