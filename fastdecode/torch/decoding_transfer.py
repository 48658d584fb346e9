"""A transfer whose background thread decodes on the device, and copies only the rest."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch

from fastdecode.torch._collate import Ready, with_images
from fastdecode.torch.encoded import EncodedBatch
from fastdecode.torch.transfer import Transfer, recorded

__all__ = ["DecodingTransfer"]

_cuda: Any = torch.cuda  # which is annotated only in part
_streams: dict[torch.device, torch.cuda.Stream] = {}
_lock = threading.Lock()


class _Place:
    """Stands for the pictures in a batch that is copied without them."""


_PLACE = _Place()


class _Decoded(NamedTuple):
    rest: Any
    """The batch without its pictures, as the other transfer has it."""
    pictures: torch.Tensor | None
    ready: torch.cuda.Event | None
    """When they are decoded; None where there are no streams."""


class DecodingTransfer(Transfer):
    """Decodes an `EncodedBatch` in the background, and copies what else is in a batch.

    Parameters
    ----------
    inner : Transfer
        For everything but pictures.
    most : int
        How many batches of pictures are kept while the consumer's copy of them may still run.

    Notes
    -----
    All decoding is done on one stream for each device, by one thread of this object at a time. What
    is allocated meanwhile, the pictures included, belongs to that stream's pool, and is used again
    in its order. The consumer's own stream waits until a batch is decoded, and copies it to
    memory of its own: that is the consumer's, as any other tensor. The pictures are let go when the
    host has seen that this copy is done. So decoding never waits for the consumer's kernels, as it
    would if the copy ran on the decoding stream; and nothing needs ``record_stream``.

    Loaders of one process share that stream. PyTorch keeps what it has freed for the stream that it
    was allocated on, and gives cuBLAS a workspace for each (32 MB on a H100) that it never takes
    back: a stream for each loader would cost all that anew. What they are asked for at the same
    time is done one after another; the decoder is called by one thread at a time in any case.
    """

    def __init__(self, inner: Transfer, most: int) -> None:
        super().__init__(inner.device)
        self._inner = inner
        self._most = most
        self._stream: torch.cuda.Stream | None = None
        self._read: deque[tuple[Any, torch.Tensor]] = deque()

    def enter_thread(self) -> None:
        self._inner.enter_thread()
        if self.device.type == "cuda" and self._stream is None:
            self._stream = _stream_on(self.device)

    def stage(self, batch: Any) -> Any:
        """Decode; the rest is staged by the other transfer."""
        if not isinstance(batch, EncodedBatch):
            return self._inner.stage(batch)
        with self._on_stream():
            ready = batch.decoded(self.device)
        event = None if self._stream is None else recorded(self._stream)
        pictures: list[torch.Tensor] = []

        def taken_out(images: torch.Tensor) -> _Place:
            pictures.append(images)
            return _PLACE

        rest = ready.batch if ready.batch is None else with_images(ready.batch, taken_out)
        staged = self._inner.stage(ready._replace(batch=rest))
        return _Decoded(staged, pictures[0] if pictures else None, event)

    def _on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def start(self, staged: Any) -> Any:
        if not isinstance(staged, _Decoded):
            return self._inner.start(staged)
        return staged._replace(rest=self._inner.start(staged.rest))

    def finish(self, moving: Any) -> Any:
        """Let the consumer's stream, as it is now, wait for the pictures, and copy them."""
        if not isinstance(moving, _Decoded):
            return self._inner.finish(moving)
        ready: Ready = self._inner.finish(moving.rest)
        pictures = moving.pictures
        if pictures is None:
            return ready
        own = pictures if moving.ready is None else self._copied(pictures, moving.ready)
        return ready._replace(batch=with_images(ready.batch, lambda _: own))

    def _copied(self, pictures: torch.Tensor, ready: torch.cuda.Event) -> torch.Tensor:
        self._let_go()
        consumer = torch.cuda.current_stream(self.device)
        consumer.wait_event(ready)
        with torch.inference_mode(mode=False), torch.no_grad():
            own = torch.empty_like(pictures)
            own.copy_(pictures)
        self._read.append((recorded(consumer), pictures))
        return own

    def settle(self, given_up: Iterable[Any]) -> None:
        """Wait for the copies. What is given up returns to the decoding stream's pool by itself."""
        self._inner.settle(
            [moving.rest if isinstance(moving, _Decoded) else moving for moving in given_up]
        )
        while self._read:
            self._read[0][0].synchronize()
            self._read.popleft()

    def _let_go(self) -> None:
        """Drop pictures whose copies are done; wait for the oldest if they are too many."""
        while self._read:
            read = self._read[0][0]
            if len(self._read) >= self._most:
                read.synchronize()
            elif not read.query():
                break
            self._read.popleft()


def _stream_on(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of this process on which loaders decode on a device."""
    with _lock:
        if device not in _streams:
            _streams[device] = _cuda.Stream(device)
        return _streams[device]


def _forget() -> None:
    """Start over in a forked child: a lock may be held there by nobody, and streams are no good."""
    global _lock
    _lock = threading.Lock()
    _streams.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
