"""The thread that draws batches from a loader, so many ahead of the consumer and no more."""

from __future__ import annotations

import atexit
import copy
import threading
import weakref
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from fastdecode.torch.transfer import Transfer

__all__ = ["PATIENCE_S", "Drawer", "Drawn", "closed_error", "state_of"]

PATIENCE_S = 5.0
"""How long to wait for a loader that is busy with a batch when that batch is no longer wanted."""


class Drawn(NamedTuple):
    """What one step of the loader gave.

    Attributes
    ----------
    batch : object
        As the transfer has staged it.
    error : exception or None
        Raised instead of a batch.
    state : object
        The loader's, after this step.
    ended : bool
        Whether nothing more comes.
    """

    batch: Any = None
    error: BaseException | None = None
    state: Any = None
    ended: bool = False


class Drawer:
    """Draws from the loader's iterator in a thread, one batch for each permit.

    It knows nothing of its consumer, which can therefore be garbage while a batch is being made.
    Neither side polls, and a finalizer may put to both queues at any moment.

    Parameters
    ----------
    loader : object
        Whose state is taken after each batch, if it has any.
    batches : iterator
        Of the loader. It is closed at the end, if it can be and is not the loader itself.
    transfer : Transfer
    depth : int
        Batches that may be drawn without a further permit.
    """

    def __init__(self, loader: Any, batches: Iterator[Any], transfer: Transfer, depth: int) -> None:
        self._loader = loader
        self._transfer = transfer
        self._permits: SimpleQueue[None] = SimpleQueue()
        self._drawn: SimpleQueue[Drawn] = SimpleQueue()
        self._stopped = False
        self._thread = threading.Thread(
            target=self._run, args=(batches,), name="fastdecode-prefetch", daemon=True
        )
        for _ in range(depth):
            self.permit()
        _running.add(self)
        self._thread.start()

    def permit(self) -> None:
        """Allow one more batch to be drawn."""
        self._permits.put(None)

    def take(self, *, wait: bool) -> Drawn | None:
        """Return what was drawn next; None if nothing is there and nobody wants to wait."""
        try:
            return self._drawn.get(block=wait)
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
        self._drawn.put(Drawn(error=closed_error(), ended=True))

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
            self._drawn.put(Drawn(error=error, ended=True))
        finally:
            if batches is not self._loader and hasattr(batches, "close"):
                batches.close()

    def _permitted(self) -> bool:
        self._permits.get()
        return not self._stopped

    def _step(self, batches: Iterator[Any]) -> bool:
        """Draw once; a function of its own so that nothing of a batch is left while waiting."""
        drawn = self._draw(batches)
        try:
            if not self._stopped:
                self._drawn.put(drawn)
            return not drawn.ended
        finally:
            del drawn  # an error's traceback leads here, and would be held by this in turn

    def _draw(self, batches: Iterator[Any]) -> Drawn:
        try:
            try:
                batch = next(batches)
            except StopIteration:
                return Drawn(state=state_of(self._loader), ended=True)
            return Drawn(self._transfer.stage(batch), state=state_of(self._loader))
        except BaseException as error:
            return Drawn(error=error, ended=not isinstance(error, Exception))


def state_of(loader: Any) -> Any:
    """Copy the loader's state, which may be a live object that goes on changing.

    Parameters
    ----------
    loader : object

    Returns
    -------
    object
        None if it has no ``state_dict``.
    """
    return copy.deepcopy(loader.state_dict()) if hasattr(loader, "state_dict") else None


def closed_error() -> RuntimeError:
    """Return what an iterator raises that was closed before its end."""
    return RuntimeError(
        "this iterator was closed, by close() or by a newer iterator of the same prefetcher"
    )


_running: weakref.WeakSet[Drawer] = weakref.WeakSet()


def _stop_all() -> None:
    """End the threads before the interpreter goes: a thread inside CUDA must not outlive it."""
    left = list(_running)
    for drawer in left:
        drawer.stop()
    for drawer in left:
        drawer.join(PATIENCE_S)


atexit.register(_stop_all)
