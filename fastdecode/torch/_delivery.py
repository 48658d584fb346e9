"""How batches get to a device: copied, pinned or decoded there. Loaded only where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from fastdecode.gpu import _backends
from fastdecode.gpu._devices import device_of
from fastdecode.torch._batch_builder import AtOnce, BatchBuilder
from fastdecode.torch._collate import Ready
from fastdecode.torch._device_batches import DecodingTransfer
from fastdecode.torch._transfer import PinningTransfer, Transfer, transfer_to
from fastdecode.torch.prefetcher import DevicePrefetcher

if TYPE_CHECKING:
    from fastdecode.torch._native_batches import EligibleCrop

_DEPTH = 2


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

    `decoder` names a batch backend. Without one, and on the CPU, batches are pinned.
    """

    def __init__(self, device: torch.device, decoder: str | None) -> None:
        self._decoder = decoder
        if decoder is not None:
            place = device_of(device)
            _backends.load(decoder, place)
            inner = Transfer(place) if place.type == "cpu" else transfer_to(place, _DEPTH)
            transfer: Transfer = DecodingTransfer(inner, 2 * _DEPTH)
            self._prefetcher: DevicePrefetcher = _OwnPrefetcher(_Relay(), transfer)
        elif device.type != "cpu":
            self._prefetcher = DevicePrefetcher(_Relay(), device, depth=_DEPTH)
        else:
            self._prefetcher = _OwnPrefetcher(_Relay(), PinningTransfer())

    def at_once(self, eligible: EligibleCrop | None) -> AtOnce | None:
        """Return how batches of an epoch are decoded at once, if they are."""
        if eligible is None or self._decoder is None:
            return None
        # Asked for anew: what a library holds does not come along into a forked process.
        return AtOnce(_backends.load(self._decoder, self._prefetcher.device), eligible)

    def begin(self, batches: Iterator[Ready | BatchBuilder]) -> Iterator[Ready]:
        """Deliver the batches of an epoch, decoded; one that is under way ends."""
        self._prefetcher.loader.batches = batches
        return iter(self._prefetcher)

    def close(self) -> None:
        """End the epoch that is under way."""
        self._prefetcher.close()
