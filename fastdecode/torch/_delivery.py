"""How batches get from those who make them to the consumer: as they are, copied, or decoded."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

import torch

from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import _backends
from fastdecode.gpu._devices import device_of
from fastdecode.torch._batch_builder import AtOnce, BatchBuilder
from fastdecode.torch._collate import Ready, handed_out
from fastdecode.torch._device_batches import DecodingTransfer
from fastdecode.torch._state import Position
from fastdecode.torch._transfer import PinningTransfer, Transfer, transfer_to
from fastdecode.torch.prefetcher import DevicePrefetcher

if TYPE_CHECKING:
    from fastdecode.torch._native_batches import EligibleCrop

__all__ = ["Delivery", "Epoch", "Shown"]

_DEPTH = 2


class Epoch:
    """What a consumer iterates over.

    `begin` is given the position that it returned before; at first that is None. It returns the
    batches and their position, or None where those from before still hold. `handed` is told of each
    batch, and of the end by None, with the position.
    """

    def __init__(
        self,
        begin: Callable[[Position | None], tuple[Iterator[Ready], Position] | None],
        handed: Callable[[Position, Ready | None], None],
    ) -> None:
        self._begin = begin
        self._handed = handed
        self._ended = False
        self._source: Iterator[Ready]
        self._position: Position
        self._take(None)

    def _take(self, position: Position | None) -> None:
        begun = self._begin(position)
        if begun is not None:
            self._source, self._position = begun

    def __iter__(self) -> Iterator[Any]:
        return self

    def __del__(self) -> None:
        if hasattr(self, "_position"):
            self._position.unasked()

    def __next__(self) -> Any:
        if not self._position.asked:
            # Lightning makes its iterator first, and then says which epoch that is to be.
            self._take(self._position)
            self._position.asked = True
        while True:
            try:
                ready = next(self._source)
            except StopIteration:
                if not self._ended:  # it may be asked again
                    self._ended = True
                    self._handed(self._position, None)
                raise
            batch = handed_out(ready)
            self._handed(self._position, ready)
            if batch is not None:  # else every item of it was left out
                return batch


class _Relay:
    """The one iterable that the prefetcher wraps: it gives whichever epoch is current."""

    batches: Iterator[Ready | BatchBuilder]

    def __iter__(self) -> Iterator[Ready | BatchBuilder]:
        return self.batches


class _OwnPrefetcher(DevicePrefetcher):
    """Prefetches by a transfer of its own, on the CPU as on any other device."""

    def __init__(self, relay: _Relay, transfer: Transfer) -> None:
        super().__init__(relay, "cpu", depth=_DEPTH)
        self._transfer = transfer
        self.device = transfer.device


class Delivery:
    """What is made once for a loader, because its streams are to last.

    `decoder` names a batch backend; `pinned` pins batches that stay on the host.
    """

    def __init__(self, device: torch.device, decoder: str | None, *, pinned: bool = False) -> None:
        self._decoder = decoder
        self._prefetcher: DevicePrefetcher | None = None
        if decoder is not None:
            place = device_of(device)
            _backends.load(decoder, place)
            inner = Transfer(place) if place.type == "cpu" else transfer_to(place, _DEPTH)
            self._prefetcher = _OwnPrefetcher(_Relay(), DecodingTransfer(inner, 2 * _DEPTH))
        elif device.type != "cpu":
            self._prefetcher = DevicePrefetcher(_Relay(), device, depth=_DEPTH)
        elif pinned:
            self._prefetcher = _OwnPrefetcher(_Relay(), PinningTransfer())

    def at_once(self, eligible: EligibleCrop | None) -> AtOnce | None:
        """Return how batches of an epoch are decoded at once, if they are."""
        if eligible is None or self._decoder is None or self._prefetcher is None:
            return None
        # Asked for anew: what a library holds does not come along into a forked process.
        return AtOnce(_backends.load(self._decoder, self._prefetcher.device), eligible)

    def begin(self, batches: Iterator[Ready | BatchBuilder]) -> Iterator[Ready]:
        """Deliver the batches of an epoch, decoded; one that is under way ends."""
        if self._prefetcher is None:
            return cast("Iterator[Ready]", batches)  # nothing is left to be decoded
        self._prefetcher.loader.batches = batches
        return iter(self._prefetcher)

    def close(self) -> None:
        """End the epoch that is under way."""
        if self._prefetcher is not None:
            self._prefetcher.close()


class Shown:
    """Yields what an iterator yields, and shows on the terminal how many there have been."""

    def __init__(self, batches: Iterator[Any], *, done: int, total: int, title: str) -> None:
        self._batches = batches
        self._bar = _bar()
        self._task = self._bar.add_task(title, total=total, completed=done)
        self._bar.start()
        # A consumer that leaves early drops this object; the terminal must be given back then, too.
        self._stop = weakref.finalize(self, self._bar.stop)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except BaseException:
            self._stop()
            raise
        self._bar.advance(self._task)
        return batch


def _bar() -> Any:
    try:
        from rich import progress
    except ImportError as error:
        raise BackendUnavailable("progress=True needs rich: pip install rich") from error
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
