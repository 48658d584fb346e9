"""How batches get from those who make them to the consumer: as they are, copied, or decoded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import torch

from fastdecode.gpu import _backends
from fastdecode.gpu._devices import device_of
from fastdecode.torch._device_batches import DecodingTransfer
from fastdecode.torch._transfer import PinningTransfer, Transfer, transfer_to
from fastdecode.torch.assembly import Assembly, AtOnce
from fastdecode.torch.collating import Ready
from fastdecode.torch.epochs import Relay
from fastdecode.torch.prefetcher import DevicePrefetcher

if TYPE_CHECKING:
    from fastdecode.torch.way import Way

__all__ = ["Delivery"]

_DEPTH = 2


class _OwnPrefetcher(DevicePrefetcher):
    """Prefetches by a transfer of its own, on the CPU as on any other device."""

    def __init__(self, relay: Relay, transfer: Transfer) -> None:
        super().__init__(relay, "cpu", depth=_DEPTH)
        self._transfer = transfer
        self.device = transfer.device


class Delivery:
    """What is made once for a loader, because its streams are to last.

    Parameters
    ----------
    device : torch.device
    decoder : str or None
        Name of a batch backend.
    pinned : bool
        Pin batches that stay on the host.

    Raises
    ------
    DeviceUnavailable
        The device cannot be used; the message says what is missing.
    BackendUnavailable
        The batch backend cannot be used.
    """

    def __init__(self, device: torch.device, decoder: str | None, *, pinned: bool = False) -> None:
        self._decoder = decoder
        self._prefetcher: DevicePrefetcher | None = None
        if decoder is not None:
            place = device_of(device)
            _backends.load(decoder, place)
            inner = Transfer(place) if place.type == "cpu" else transfer_to(place, _DEPTH)
            self._prefetcher = _OwnPrefetcher(Relay(), DecodingTransfer(inner, 2 * _DEPTH))
        elif device.type != "cpu":
            self._prefetcher = DevicePrefetcher(Relay(), device, depth=_DEPTH)
        elif pinned:
            self._prefetcher = _OwnPrefetcher(Relay(), PinningTransfer())

    def at_once(self, way: Way | None) -> AtOnce | None:
        """Return how batches of an epoch are decoded at once, if they are."""
        if way is None or self._decoder is None or self._prefetcher is None:
            return None
        # Asked for anew: what a library holds does not come along into a forked process.
        return AtOnce(_backends.load(self._decoder, self._prefetcher.device), way)

    def begin(self, batches: Iterator[Ready | Assembly]) -> Iterator[Ready]:
        """Deliver the batches of an epoch, decoded; one that is under way ends."""
        if self._prefetcher is None:
            return cast("Iterator[Ready]", batches)  # nothing is left to be decoded
        self._prefetcher.loader.batches = batches
        return iter(self._prefetcher)

    def close(self) -> None:
        """End the epoch that is under way."""
        if self._prefetcher is not None:
            self._prefetcher.close()
