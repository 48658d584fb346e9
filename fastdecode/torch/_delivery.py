"""Brings batches to a device: copied, pinned or decoded there. Imported only for a device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch

from fastdecode.gpu import _backends
from fastdecode.gpu._devices import check_device
from fastdecode.torch._batch_builder import BatchBuilder, DeviceDecoding
from fastdecode.torch._collate import ReadyBatch
from fastdecode.torch._device_batches import DecodingTransfer
from fastdecode.torch._transfer import PinningTransfer, Transfer, transfer_to
from fastdecode.torch.prefetcher import DevicePrefetcher

if TYPE_CHECKING:
    from fastdecode.torch._native_batches import EligibleCrop

_DEPTH = 2


class _Relay:
    """The iterable that the prefetcher wraps; it gives the batches of the current epoch."""

    batches: Iterator[ReadyBatch | BatchBuilder]

    def __iter__(self) -> Iterator[ReadyBatch | BatchBuilder]:
        return self.batches


class _OwnPrefetcher(DevicePrefetcher):
    """Prefetches with a given transfer, on the CPU as on any other device."""

    def __init__(self, relay: _Relay, transfer: Transfer) -> None:
        super().__init__(relay, "cpu", depth=_DEPTH)
        self._transfer = transfer
        self.device = transfer.device


class Delivery:
    """Delivers a loader's batches to a device; made once, so that its streams last.

    `decoder` names a batch backend. Without one, batches are copied to the device; on the CPU they
    are pinned.
    """

    def __init__(self, device: torch.device, decoder: str | None) -> None:
        self._decoder = decoder
        if decoder is not None:
            place = check_device(device)
            _backends.load(decoder, place)
            inner = Transfer(place) if place.type == "cpu" else transfer_to(place, _DEPTH)
            transfer: Transfer = DecodingTransfer(inner, 2 * _DEPTH)
            self._prefetcher: DevicePrefetcher = _OwnPrefetcher(_Relay(), transfer)
        elif device.type != "cpu":
            self._prefetcher = DevicePrefetcher(_Relay(), device, depth=_DEPTH)
        else:
            self._prefetcher = _OwnPrefetcher(_Relay(), PinningTransfer())

    def device_decoding(self, eligible: EligibleCrop | None) -> DeviceDecoding | None:
        """Return how the device decodes the batches of an epoch; None if it does not."""
        if eligible is None or self._decoder is None:
            return None
        # Load it for each epoch: a library's state does not survive a fork.
        return DeviceDecoding(_backends.load(self._decoder, self._prefetcher.device), eligible)

    def begin(self, batches: Iterator[ReadyBatch | BatchBuilder]) -> Iterator[ReadyBatch]:
        """Deliver the decoded batches of an epoch; an epoch that is still running ends."""
        self._prefetcher.loader.batches = batches
        return iter(self._prefetcher)

    def close(self) -> None:
        """End the running epoch."""
        self._prefetcher.close()
