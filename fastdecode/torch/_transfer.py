"""How a batch gets onto a device: what happens in the background, and what in the consumer."""

from __future__ import annotations

import array
import copy
import dataclasses
import inspect
from collections import deque
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from fastdecode.gpu._devices import usable

# Sequences that hold no tensors, and may be long.
_FLAT = (str, bytes, bytearray, memoryview, range, array.array)

_cuda: Any = torch.cuda  # which is annotated only in part


class Transfer:
    """The four steps of a transfer, for any device: it is copied in the consumer's thread.

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


class Held:
    """What copies may still read: kept until each copy's event, for at most `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: deque[tuple[Any, Any]] = deque()

    def add(self, copied: torch.cuda.Event, things: object) -> None:
        self._held.append((copied, things))

    def drop_copied(self) -> None:
        """Drop what was copied; wait for the oldest copies where no other could be added."""
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

    The host's memory is held for `most` batches whose copies may still run.

    The batch is allocated on the consumer's stream and copied on this one, ordered by events both
    ways. The copy waits for all that the consumer had asked for when its memory was allocated, so
    it cannot overwrite what a kernel still reads; the consumer's stream waits for the copy. Memory
    that the consumer releases returns to its own stream's pool, in the order of that stream,
    however long it was kept: nothing needs ``record_stream``, whose late frees leave the peak to
    chance, unless the consumer changes its stream between asking and getting.
    """

    def __init__(self, device: torch.device, most: int) -> None:
        super().__init__(device)
        self._side: torch.cuda.Stream | None = None
        self._reading = Held(most + 1)

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
        self._reading.drop_copied()
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
        self._reading.add(moving.copied, [source for _, source in moving.pairs])
        return moving.batch

    def settle(self, given_up: Iterable[_Moving]) -> None:
        """Wait, because a copy reads the host's memory and writes the device's until it is done."""
        for moving in given_up:
            moving.copied.synchronize()
        self._reading.wait()


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
    """Choose how batches get onto a device, `depth` of them ahead, if it can be used."""
    there = usable(device)
    return CudaTransfer(there, 2 * depth) if there.type == "cuda" else Transfer(there)


def map_leaves(data: Any, method: str, change: Callable[[Any], Any]) -> Any:
    """Rebuild a nested batch, with every tensor in it replaced by what `change` gives.

    An object that has the `method` (``"pin_memory"`` or ``"to"``) goes to `change` as a whole,
    although it may be a container as well, such as a PackedSequence. Containers keep their types;
    one in which nothing was replaced is the very same object, any other a copy, so that the
    loader's own is left as it was.
    """
    # The order of the cases is that of PyTorch's `pin_memory`, which knows no dataclasses.
    if isinstance(data, torch.Tensor) or _has(data, method):
        return change(data)
    if isinstance(data, _FLAT):
        return data

    parts: Iterable[tuple[Any, Any]]
    if isinstance(data, Mapping):
        parts = data.items()
    elif isinstance(data, Sequence):
        parts = enumerate(data)
    elif dataclasses.is_dataclass(data):
        names = [field.name for field in dataclasses.fields(data)]
        parts = [(name, getattr(data, name)) for name in names if hasattr(data, name)]
    else:
        return data
    changed = ((key, value, map_leaves(value, method, change)) for key, value in parts)
    replaced = {key: new for key, value, new in changed if new is not value}
    return _with(data, replaced) if replaced else data


def _with(data: Any, replaced: dict[Any, Any]) -> Any:
    """Return another container of the same type, with other items, elements or fields."""
    if isinstance(data, Mapping):
        contents: Any = {key: replaced.get(key, value) for key, value in data.items()}
    elif isinstance(data, Sequence):
        contents = [replaced.get(index, value) for index, value in enumerate(data)]
    else:
        # Neither `replace`, which runs the constructor again, nor plain assignment, which a frozen
        # class refuses.
        clone = copy.copy(data)
        for name, value in replaced.items():
            object.__setattr__(clone, name, value)
        return clone
    if isinstance(data, (MutableMapping, MutableSequence)):
        clone = copy.copy(data)  # the type may hold more than its contents
        for key, value in replaced.items():
            clone[key] = value
        return clone
    if isinstance(data, tuple) and hasattr(data, "_make"):  # a named tuple
        return data._make(contents)
    try:
        return type(data)(contents)
    except TypeError:  # of a type that cannot be made so
        return contents


def moved(thing: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """Call the ``to`` of a tensor, or of an object that has one of its own.

    `non_blocking` is passed on to tensors, and to methods that have a parameter of that name. What
    changes in place, and returns None, is returned itself.
    """
    if not non_blocking:
        result = thing.to(device)
    elif isinstance(thing, torch.Tensor) or _takes(thing.to, "non_blocking"):
        result = thing.to(device, non_blocking=True)
    else:
        result = thing.to(device)
    return thing if result is None else result


def _has(data: Any, method: str) -> bool:
    return not isinstance(data, type) and callable(getattr(data, method, None))


def _takes(function: Callable[..., Any], parameter: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # of a compiled one that does not tell
        return False
    return any(one.name == parameter or one.kind is one.VAR_KEYWORD for one in parameters)
