"""The steps that copy a batch to a device, in a background thread and in the consumer's thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils._pytree import tree_map

from fastdecode.gpu import usable

_cuda: Any = torch.cuda  # its annotations are incomplete


class Transfer:
    """The four steps of a transfer to any device, with a copy in the consumer's thread.

    The copy is a plain, blocking ``to``. The loader may reuse the host memory at once, and only for
    CUDA does PyTorch keep it safe until an asynchronous copy has read it.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def enter_thread(self) -> None:
        """Prepare the background thread; called once, in that thread."""

    def stage(self, batch: Any) -> Any:
        """Prepare a batch for the copy; called in the background thread."""
        return batch

    def start(self, staged: Any) -> Any:
        """Start the copy; called in the consumer's thread, like the steps after it."""
        return map_leaves(staged, "to", partial(move, device=self.device, non_blocking=False))

    def finish(self, moving: Any) -> Any:
        """Return the batch, ready for the consumer."""
        return moving

    def wait_for_copies(self, given_up: Iterable[Any]) -> None:
        """Wait for all running copies, including those of discarded batches."""


class PinningTransfer(Transfer):
    """Pins batches in the background thread, and leaves them on the host."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self._current = torch.cuda.current_device()

    def enter_thread(self) -> None:
        torch.cuda.set_device(self._current)  # see `CudaTransfer.enter_thread`

    def stage(self, batch: Any) -> Any:
        return map_leaves(batch, "pin_memory", _pinned)

    def start(self, staged: Any) -> Any:
        return staged


class Held:
    """Keeps what copies still read until the event of each copy, for at most `most` copies."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: deque[tuple[Any, Any]] = deque()

    def add(self, copied: torch.cuda.Event, things: object) -> None:
        self._held.append((copied, things))

    def drop_copied(self) -> None:
        """Drop what has been copied; if there is no room for another, wait for the oldest."""
        while self._held:
            copied = self._held[0][0]
            if len(self._held) >= self._most:
                copied.synchronize()
            elif not copied.query():
                break
            self._held.popleft()

    def wait(self) -> None:
        """Wait for all copies."""
        while self._held:
            self._held[0][0].synchronize()
            self._held.popleft()


class _Staged(NamedTuple):
    batch: Any
    made_on: list[tuple[torch.device, torch.cuda.Event]]
    """Devices on which the loader itself has made tensors, with events that say these are ready."""


class _Moving(NamedTuple):
    batch: Any
    stream: torch.cuda.Stream
    """The consumer's stream, on which the batch was allocated."""
    copied: torch.cuda.Event
    pairs: list[tuple[torch.Tensor, torch.Tensor]]
    """Target on the device and source on the host, for each copy."""


class CudaTransfer(Transfer):
    """Pins batches in the background thread, and copies them on its own stream.

    It keeps the host memory of up to `most` batches whose copies may still run.

    A batch is allocated on the consumer's stream and copied on this transfer's stream; events order
    the two. The copy waits for all work that the consumer had queued when the memory was allocated,
    so it cannot overwrite what a kernel still reads. The consumer's stream waits for the copy.
    Memory that the consumer frees returns to the pool of the consumer's own stream, in stream
    order, however long it was kept. So ``record_stream``, whose late frees make the peak of memory
    unpredictable, is needed only if the consumer changes its stream between `start` and `finish`.
    """

    def __init__(self, device: torch.device, most: int) -> None:
        super().__init__(device)
        self._side: torch.cuda.Stream | None = None
        self._reading = Held(most + 1)

    def enter_thread(self) -> None:
        # Each thread has its own current device; pinning would create a context on device 0.
        torch.cuda.set_device(self.device)

    def stage(self, batch: Any) -> _Staged:
        """Pin what is not pinned, and record an event per device where the loader made tensors."""
        devices: dict[torch.device, None] = {}

        def pin(leaf: Any) -> Any:
            if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
                devices[leaf.device] = None
            return _pinned(leaf)

        pinned = map_leaves(batch, "pin_memory", pin)
        return _Staged(pinned, [(d, record_event(torch.cuda.current_stream(d))) for d in devices])

    def start(self, staged: _Staged) -> _Moving:
        """Allocate on the consumer's stream, and copy on this transfer's stream."""
        self._reading.drop_copied()
        consumer = torch.cuda.current_stream(self.device)
        for device, ready in staged.made_on:
            torch.cuda.current_stream(device).wait_event(ready)
        pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

        def place(leaf: Any) -> Any:
            if not _is_plain(leaf):
                return self._move_leaf(leaf)
            target = torch.empty_like(leaf, device=self.device)
            pairs.append((target, leaf))
            return target

        # A batch that is copied ahead within inference mode may be used after it.
        with torch.inference_mode(mode=False):
            batch = map_leaves(staged.batch, "to", place)
            return _Moving(batch, consumer, self._copy(pairs, consumer), pairs)

    def _move_leaf(self, leaf: Any) -> Any:
        """Move a leaf with its own ``to``, in the order of the consumer's stream."""
        if isinstance(leaf, torch.Tensor) and leaf.is_cuda:
            # The loader allocated it, on another stream.
            leaf.record_stream(torch.cuda.current_stream(leaf.device))
        return move(leaf, self.device, non_blocking=True)

    def _copy(
        self, pairs: list[tuple[torch.Tensor, torch.Tensor]], consumer: torch.cuda.Stream
    ) -> torch.cuda.Event:
        if self._side is None:
            # One stream for all epochs: PyTorch keeps memory per stream, so new streams would
            # allocate more.
            self._side = _cuda.Stream(self.device)
        self._side.wait_stream(consumer)
        with torch.cuda.stream(self._side):
            for target, source in pairs:
                target.copy_(source, non_blocking=True)
        return record_event(self._side)

    def finish(self, moving: _Moving) -> Any:
        """Make the consumer's current stream wait for the copy, and return the batch."""
        consumer = torch.cuda.current_stream(self.device)
        consumer.wait_event(moving.copied)
        if consumer != moving.stream:

            def record_use(leaf: Any) -> Any:
                if getattr(leaf, "is_cuda", True) and hasattr(leaf, "record_stream"):
                    leaf.record_stream(consumer)
                return leaf

            map_leaves(moving.batch, "to", record_use)
        self._reading.add(moving.copied, [source for _, source in moving.pairs])
        return moving.batch

    def wait_for_copies(self, given_up: Iterable[_Moving]) -> None:
        """Wait for all copies: until they end, they use memory of the host and of the device."""
        for moving in given_up:
            moving.copied.synchronize()
        self._reading.wait()


def record_event(stream: torch.cuda.Stream) -> torch.cuda.Event:
    """Return an event that completes with all the work queued on a stream so far."""
    event: torch.cuda.Event = _cuda.Event()
    event.record(stream)
    return event


def _pinned(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return _dense(leaf).pin_memory() if _is_plain(leaf) else leaf
    return leaf.pin_memory()


def _is_plain(leaf: Any) -> bool:
    """Return whether a leaf is a host tensor that an ``empty_like`` and a copy reproduce fully."""
    return (
        type(leaf) is torch.Tensor
        and leaf.device.type == "cpu"
        and leaf.layout is torch.strided
        and not (leaf.requires_grad or leaf.is_quantized or leaf.is_nested)
    )


def _dense(leaf: torch.Tensor) -> torch.Tensor:
    """Return a tensor without gaps or expanded dimensions, which cannot be copied in one go."""
    dense = torch.empty_like(leaf, device="meta").stride() == leaf.stride()
    return leaf if dense else leaf.contiguous()


def transfer_to(device: torch.device, depth: int) -> Transfer:
    """Return the transfer for a device, with `depth` batches ahead; raise if it is unusable."""
    there = usable(device)
    return CudaTransfer(there, 2 * depth) if there.type == "cuda" else Transfer(there)


def map_leaves(data: Any, method: str, change: Callable[[Any], Any]) -> Any:
    """Return a nested batch with every tensor in it replaced by the result of `change`.

    An object that has the `method` (``"pin_memory"`` or ``"to"``) is passed to `change` as a whole,
    even if it is also a container, such as a PackedSequence. The containers are PyTorch's trees;
    they keep their types, and the loader's own stay unchanged.
    """

    def is_leaf(thing: Any) -> bool:
        return not isinstance(thing, type) and callable(getattr(thing, method, None))

    return tree_map(lambda leaf: change(leaf) if is_leaf(leaf) else leaf, data, is_leaf=is_leaf)


def move(thing: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """Move a tensor, or an object with its own ``to``, to a device.

    `non_blocking` is for tensors. An object whose ``to`` returns None has moved itself in place,
    and is returned.
    """
    if isinstance(thing, torch.Tensor):
        return thing.to(device, non_blocking=non_blocking)
    result = thing.to(device)
    return thing if result is None else result
