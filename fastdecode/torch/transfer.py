"""How a batch gets onto a device: what happens in the background, and what in the consumer."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import torch

from fastdecode.gpu._devices import device_of
from fastdecode.errors import DeviceUnavailable
from fastdecode.torch.nested import map_leaves, moved

__all__ = ["CudaTransfer", "PinningTransfer", "Transfer", "recorded", "transfer_to"]

_cuda: Any = torch.cuda  # which is annotated only in part


class Transfer:
    """The four steps of a transfer, for any device: it is copied in the consumer's thread.

    Parameters
    ----------
    device : torch.device

    Notes
    -----
    The copy is a plain, blocking ``to``: only for CUDA does PyTorch keep the memory that is copied
    from safe until an asynchronous copy has read it, and the loader may use it again at once.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def enter_thread(self) -> None:
        """Prepare the background thread, once, in that thread."""

    def stage(self, batch: Any) -> Any:
        """Make a batch ready for copying; in the background thread."""
        return batch

    def start(self, staged: Any) -> Any:
        """Begin to copy; in the consumer's thread, as all that follows."""
        return map_leaves(staged, "to", partial(moved, device=self.device, non_blocking=False))

    def finish(self, moving: Any) -> Any:
        """Return the batch, for the consumer to use from now on."""
        return moving

    def settle(self, given_up: Iterable[Any]) -> None:
        """Wait for copies under way, those of batches that nobody will ask for too."""


class PinningTransfer(Transfer):
    """Pins in the background thread, and leaves batches on the host."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self._current = torch.cuda.current_device()

    def enter_thread(self) -> None:
        torch.cuda.set_device(self._current)  # as of `CudaTransfer`

    def stage(self, batch: Any) -> Any:
        return map_leaves(batch, "pin_memory", _pinned)

    def start(self, staged: Any) -> Any:
        return staged


class _Staged(NamedTuple):
    batch: Any
    made_on: list[tuple[torch.device, torch.cuda.Event]]
    """Devices on which the loader itself has made tensors, and when these are ready."""


class _Moving(NamedTuple):
    batch: Any
    stream: torch.cuda.Stream
    """The consumer's, whose memory the batch is in."""
    copied: torch.cuda.Event
    pairs: list[tuple[torch.Tensor, torch.Tensor]]
    """What is copied where: (on the device, on the host)."""


class CudaTransfer(Transfer):
    """Pins in the background thread, and copies on a stream of its own.

    Parameters
    ----------
    device : torch.device
        With its index.
    most : int
        For how many batches whose copies may still run the host's memory is held.

    Notes
    -----
    The batch is allocated on the consumer's stream and copied on this one, ordered by events both
    ways. The copy waits for all that the consumer had asked for when its memory was allocated, so
    it cannot overwrite what a kernel still reads; the consumer's stream waits for the copy. Memory
    that the consumer lets go returns to its own stream's pool, in the order of that stream, however
    long it was kept: nothing needs ``record_stream``, whose late frees leave the peak to chance,
    unless the consumer changes its stream between asking and getting.
    """

    def __init__(self, device: torch.device, most: int) -> None:
        super().__init__(device)
        self._most = most
        self._side: torch.cuda.Stream | None = None
        self._reading: deque[tuple[Any, list[torch.Tensor]]] = deque()

    def enter_thread(self) -> None:
        # The current device is the thread's own; pinning would make a context on device 0.
        torch.cuda.set_device(self.device)

    def stage(self, batch: Any) -> _Staged:
        """Pin what is not pinned, and note when tensors made on a device are ready."""
        devices: dict[torch.device, None] = {}

        def pin(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
                devices[leaf.device] = None
            return _pinned(leaf)

        pinned = map_leaves(batch, "pin_memory", pin)
        return _Staged(pinned, [(d, recorded(torch.cuda.current_stream(d))) for d in devices])

    def start(self, staged: _Staged) -> _Moving:
        """Allocate on the consumer's stream, and copy on this one."""
        self._let_go()
        consumer = torch.cuda.current_stream(self.device)
        for device, ready in staged.made_on:
            torch.cuda.current_stream(device).wait_event(ready)
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

        def place(leaf: Any) -> Any:
            if not _is_plain(leaf):
                return self._moved(leaf)
            target = torch.empty_like(leaf, device=self.device)
            pairs.append((target, leaf))
            return target

        # What is copied ahead in a block without gradients may be used after it.
        with torch.inference_mode(mode=False):
            batch = map_leaves(staged.batch, "to", place)
            return _Moving(batch, consumer, self._copy(pairs, consumer), pairs)

    def _moved(self, leaf: Any) -> Any:
        """Move what has its own way of it, in the order of the consumer's stream."""
        if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
            leaf.record_stream(torch.cuda.current_stream(leaf.device))  # the loader made it
        return moved(leaf, self.device, non_blocking=True)

    def _copy(
        self, pairs: list[tuple[torch.Tensor, torch.Tensor]], consumer: torch.cuda.Stream
    ) -> torch.cuda.Event:
        if self._side is None:
            # One for good: memory that is used on a stream is kept for it, and new streams would
            # want more.
            self._side = _cuda.Stream(self.device)
        self._side.wait_stream(consumer)
        with torch.cuda.stream(self._side):
            for target, source in pairs:
                target.copy_(source, non_blocking=True)
        return recorded(self._side)

    def finish(self, moving: _Moving) -> Any:
        """Let the consumer's stream, as it is now, wait for the copy."""
        consumer = torch.cuda.current_stream(self.device)
        consumer.wait_event(moving.copied)
        if consumer != moving.stream:

            def used_here(leaf: Any) -> Any:
                if getattr(leaf, "is_cuda", True) and hasattr(leaf, "record_stream"):
                    leaf.record_stream(consumer)
                return leaf

            map_leaves(moving.batch, "to", used_here)
        self._reading.append((moving.copied, [source for _, source in moving.pairs]))
        return moving.batch

    def settle(self, given_up: Iterable[_Moving]) -> None:
        """Wait, because a copy reads the host's memory and writes the device's until it is done."""
        for moving in given_up:
            moving.copied.synchronize()
        while self._reading:
            self._reading[0][0].synchronize()
            self._reading.popleft()

    def _let_go(self) -> None:
        """Drop the host's memory of copies that are done; wait for the oldest if it is too much."""
        while self._reading:
            copied = self._reading[0][0]
            if len(self._reading) > self._most:
                copied.synchronize()
            elif not copied.query():
                break
            self._reading.popleft()


def recorded(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """Return an event that comes when all is done that a stream was asked for so far."""
    event: torch.cuda.Event = _cuda.Event()
    event.record(stream)
    return event


def _pinned(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return _dense(leaf).pin_memory() if _is_plain(leaf) else leaf
    return leaf.pin_memory()


def _is_plain(leaf: Any) -> bool:
    """Whether it is a tensor of the host that another of the same shape says everything about."""
    return (
        type(leaf) is torch.Tensor
        and leaf.device.type == "cpu"
        and leaf.layout is torch.strided
        and not (leaf.requires_grad or leaf.is_quantized or leaf.is_nested)
    )


def _dense(leaf: torch.Tensor) -> torch.Tensor:
    """Close the gaps of a slice, and write out what is expanded: neither is copied in one go."""
    dense = torch.empty_like(leaf, device="meta").stride() == leaf.stride()
    return leaf if dense else leaf.contiguous()


def transfer_to(device: torch.device, depth: int) -> Transfer:
    """Choose how batches get onto a device, after a look whether there is one.

    Parameters
    ----------
    device : torch.device
        ``"cuda"`` without an index is the current device.
    depth : int
        How many batches are ahead.

    Returns
    -------
    Transfer

    Raises
    ------
    DeviceUnavailable
        If it cannot be used; the message says what is missing.
    """
    if device.type != "cuda":
        try:
            torch.empty(0, device=device)
        except (AssertionError, NotImplementedError, RuntimeError) as error:
            reason = str(error).partition("\n")[0]
            raise DeviceUnavailable(f"device {str(device)!r} cannot be used: {reason}") from error
        return Transfer(device)
    return CudaTransfer(device_of(device), 2 * depth)
