"""`DevicePrefetcher`: batches are on their way to the device before they are asked for."""

from __future__ import annotations

import os
import warnings
import weakref
from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch

from fastdecode._arguments import is_int
from fastdecode.device.where import named
from fastdecode.torch.drawer import PATIENCE_S, Drawer, Drawn, closed_error, state_of
from fastdecode.torch.transfer import Transfer, transfer_to

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["DevicePrefetcher"]

_READ = frozenset(
    (
        "dataset",
        "batch_size",
        "sampler",
        "batch_sampler",
        "num_workers",
        "pin_memory",
        "drop_last",
        "generator",
        "collate_fn",
    )
)
"""What training libraries read of a loader."""


class DevicePrefetcher:
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
    >>> with DevicePrefetcher(loader, "cuda") as batches:  # doctest: +SKIP
    ...     for images, labels in batches:
    ...         train(images, labels)
    """

    def __init__(
        self, loader: Iterable[Any], device: str | int | torch.device, *, depth: int = 2
    ) -> None:
        if not is_int(depth) or depth < 1:
            raise ValueError(f"depth must be a positive integer, not {depth!r}")
        device = named(device)
        self.loader: Any = loader
        self.depth = int(depth)
        self._transfer = None if device.type == "cpu" else transfer_to(device, self.depth)
        self.device = device if self._transfer is None else self._transfer.device
        self._epoch: weakref.ref[_Epoch] | None = None
        self._drawer: Drawer | None = None
        self._state: Any = None
        """The loader's state at the batch last handed out; None while the loader is not ahead."""

    def __getattr__(self, name: str) -> Any:
        if name in _READ:
            return getattr(self.loader, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        """Return the loader's own length."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch of the loader; one that is under way ends."""
        self._end(patience=None)
        batches = iter(self.loader)
        epoch: _Epoch
        if self._transfer is None:
            epoch = _PassThrough(batches)
        else:
            self._state = state_of(self.loader)
            self._drawer = Drawer(self.loader, batches, self._transfer, self.depth)
            epoch = _Ahead(self, self._drawer, self._transfer)
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
        self._end(patience=PATIENCE_S)
        if self._drawer is not None and self._drawer.is_alive():
            warnings.warn(
                "the loader is still busy with a batch; its thread ends when that is done",
                RuntimeWarning,
                stacklevel=2,
            )

    def _end(self, patience: float | None) -> None:
        epoch = None if self._epoch is None else self._epoch()
        if epoch is not None:
            epoch.close()
        if self._drawer is not None:  # its consumer may be gone without it
            self._drawer.stop()
            self._drawer.join(patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Epoch(Iterator[Any]):
    """One pass over the loader."""

    _ended = False
    _closed = False

    def __next__(self) -> Any:
        if self._ended:
            raise StopIteration
        if self._closed:
            raise closed_error()
        try:
            return self._next()
        except StopIteration:
            self._ended = True
            raise

    @abstractmethod
    def _next(self) -> Any:
        """Return the next batch."""

    def close(self) -> None:
        self._closed = True


class _PassThrough(_Epoch):
    """The loader's own batches."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches

    def _next(self) -> Any:
        return next(self._batches)


class _Ahead(_Epoch):
    """Batches that a thread has drawn, some of them already being copied.

    What is drawn and what is being copied are `depth` together, because a permit to draw one more
    is given when one is handed out.
    """

    def __init__(self, prefetcher: DevicePrefetcher, drawer: Drawer, transfer: Transfer) -> None:
        self._prefetcher = prefetcher
        self._drawer = drawer
        self._transfer = transfer
        self._moving: deque[Drawn] = deque()
        self._process = os.getpid()

    def _next(self) -> Any:
        if self._process != os.getpid():
            raise RuntimeError("this iterator belongs to the process that this one was forked from")
        # All that is there begins to be copied before the consumer gets on with its work.
        while (drawn := self._drawer.take(wait=not self._moving)) is not None:
            self._moving.append(self._begun(drawn))
        drawn = self._moving.popleft()
        self._drawer.permit()
        if drawn.ended:
            self.close()
        if drawn.error is not None:
            try:
                raise drawn.error
            finally:
                del drawn  # the error's traceback would hold it, and that the error
        self._prefetcher._state = drawn.state
        if drawn.ended:
            self._drawer.join(PATIENCE_S)
            raise StopIteration
        return self._transfer.finish(drawn.batch)

    def _begun(self, drawn: Drawn) -> Drawn:
        """Begin to copy a batch; an error of that is raised in its place, not before."""
        if drawn.ended or drawn.error is not None:
            return drawn
        try:
            return drawn._replace(batch=self._transfer.start(drawn.batch))
        except Exception as error:
            return Drawn(error=error)

    def close(self) -> None:
        """Let the thread end, and give up what is under way; without waiting for the loader."""
        if self._closed or self._process != os.getpid():
            return
        super().close()
        self._drawer.stop()
        given_up = [one.batch for one in self._moving if one.error is None and not one.ended]
        self._moving.clear()
        self._transfer.settle(given_up)

    def __del__(self) -> None:
        # A consumer that left the loop early, or failed, does not say so.
        if hasattr(self, "_process"):
            self.close()
