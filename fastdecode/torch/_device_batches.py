"""Batches that a device decodes: read and drawn for by many threads, then decoded all at once."""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fastdecode import _headers
from fastdecode._buffers import as_buffer
from fastdecode.gpu._batch import Request, decode_items, release, request_of
from fastdecode.gpu._resize import resized
from fastdecode.resizing import ResizePlan
from fastdecode.torch._batch_builder import AtOnce, BatchBuilder, EpochConfig, stopped_early
from fastdecode.torch._collate import Ready, collate, with_images
from fastdecode.torch._errors import SKIPPED
from fastdecode.torch._order import Item
from fastdecode.torch._samples import SampleMaker
from fastdecode.torch._threads import ThreadPool
from fastdecode.torch._transfer import Transfer, recorded
from fastdecode.torch.dataset import EncodedSample, finished
from fastdecode.torch.transforms._random_crop import generator_of
from fastdecode.torch.transforms.base import geometry_of
from fastdecode.types import Box, Buffer, Header

if TYPE_CHECKING:
    from fastdecode.torch._read_ahead import Read

__all__ = ["DecodingTransfer", "EncodedBatch"]

_DECODED = object()
_cuda: Any = torch.cuda  # which is annotated only in part
_streams: dict[torch.device, torch.cuda.Stream] = {}
_lock = threading.Lock()


class _Asked(NamedTuple):
    """One image that the batch backend is to decode.

    Attributes
    ----------
    request : Request
    box : (left, top, right, bottom)
        What is resized of the part that was asked for, in pixels of that.
    flip : bool
    """

    request: Request
    box: tuple[float, float, float, float]
    flip: bool


class EncodedBatch(BatchBuilder):
    """A batch of encoded images; `decoded` makes the batch proper of it.

    What the backend does not decode is made as without it: by the dataset, with the same seed.

    Parameters
    ----------
    config : EpochConfig
    how : AtOnce
    maker, items, position, part
        As of `BatchBuilder`.
    threads : ThreadPool or None
        For what the backend refuses.
    """

    def __init__(
        self,
        config: EpochConfig,
        how: AtOnce,
        maker: SampleMaker,
        items: list[Item],
        position: int,
        part: int,
        threads: ThreadPool | None,
        reads: list[Read] | None = None,
    ) -> None:
        super().__init__(config, maker, items, position, part, reads=reads)
        self._how = how
        self._threads = threads
        self._asked: dict[int, _Asked] = {}
        self._found: dict[int, EncodedSample] = {}
        self._slots: dict[int, torch.Tensor] = {}
        self._timeout: float | None = None
        self._looked = False

    def _room(self) -> None:
        """Take no memory of the host for what will be made on the device."""

    def _begun(self, part: range) -> Iterator[int]:
        """Read and draw; leave to the dataset what the backend may not be asked for."""
        for at in part:
            asked = None if self._looked else self._look(at)
            if asked is None:
                yield at
            else:
                self._asked[at], self._samples[at] = asked, _DECODED

    def _look(self, at: int) -> _Asked | None:
        index, seed = self._items[at]
        source = self._config.source
        dataset = source.ours
        try:
            before = None if self._reads is None else self._reads[at].result()
            place, target = dataset.read(source.place(index)) if before is None else before
            found = self._found[at] = EncodedSample(place, dataset._encoded(place), target)
            data = as_buffer(found.data)
            header = _headers.probe(data)
            plan = self._how.eligible.crop.plan(header.width, header.height, generator_of(seed))
            asked = self._asked_for(data, header, plan) if plan.size == self._size else None
            if asked is not None:
                geometry = geometry_of(plan) if self._how.eligible.maps else None
                target = finished(dataset, target, geometry)
                self._found[at] = found._replace(target=target, finished=True)
        except BaseException:  # it comes again when the dataset makes the item by itself
            return None
        return asked

    def _asked_for(self, data: Buffer, header: Header, plan: ResizePlan) -> _Asked | None:
        """Ask for what a plan shows of an image, if the backend may be asked for that."""
        loaded, orient = self._how.loaded, self._config.source.ours.orient
        part = _part_of(plan)
        everything = part == (0, 0, header.width, header.height)
        options = {"orient": orient, "region": None if everything else part}
        # The JPEG engine of a GPU decodes whole images; windows may leave it, for decoders
        # that load the CPU, on which the others are made.
        windows = loaded.device.type != "cuda"
        request = request_of(data, loaded.backend, options, windows=windows, header=header)
        return None if request is None else _Asked(request, _shown(plan, part), plan.flip)

    def _read_before(self, at: int) -> EncodedSample | None:
        return self._found.pop(at, None) or super()._read_before(at)

    def _slot(self, at: int) -> torch.Tensor:
        shape = self._how.eligible.crop.shape or ()
        slot = self._slots[at] = torch.empty(shape, dtype=torch.uint8, device="cpu")
        return slot

    def result(self, timeout: float | None) -> EncodedBatch:
        """Wait until everything is read, and return this. Errors come out at `decoded`."""
        self._timeout = timeout
        self._wait(timeout)
        return self

    def decoded(self, device: torch.device) -> Ready:
        """Decode, crop, resize and mirror, and put all together.

        Parameters
        ----------
        device : torch.device
            That of the backend.

        Returns
        -------
        Ready
            With uint8 images on the device, in the order of the current stream, but for one that
            is empty.

        Raises
        ------
        Exception
            As from `BatchBuilder.result`.
        """
        self._looked = True
        places = sorted(self._asked)
        items = [self._asked[at].request.item for at in places]
        images = decode_items(self._how.loaded, items, "RGB", device)
        made = {at: image for at, image in zip(places, images, strict=True) if image is not None}
        try:
            pixels = self._resized(made) if made else None
        finally:
            release(self._how.loaded, list(made.values()))
        self._make_others([at for at in places if at not in made])
        try:
            self._raise_first()
        except StopIteration as error:
            raise stopped_early(error) from error
        for at in made:
            sample = (_DECODED, self._found[at].target)
            self._samples[at] = self._config.source.handed_out(sample)
        return self._joined(list(made), pixels, device)

    def _resized(self, made: dict[int, torch.Tensor]) -> torch.Tensor:
        asked = [self._asked[at] for at in made]
        parts = []
        for one, image in zip(asked, made.values(), strict=True):
            left, top, right, bottom = one.request.cut or (0, 0, image.shape[2], image.shape[1])
            # Nothing outside of the part has a share in the pixels at its edges.
            parts.append(image[:, top:bottom, left:right])
        return resized(
            parts,
            self._size,
            boxes=[one.box for one in asked],
            flips=[one.flip for one in asked],
            channels_last=self._config.channels_last,
        )

    @property
    def _size(self) -> tuple[int, int]:
        _, height, width = self._how.eligible.crop.shape or (0, 0, 0)
        return height, width

    def _make_others(self, places: list[int]) -> None:
        """Let the dataset make what the backend has refused, in all threads."""
        if not places:
            return
        self._left = len(places)
        self._done.clear()
        for at in places:
            self._samples[at] = None
            one = partial(self.make, range(at, at + 1))
            if self._threads is None:
                one()
            else:
                self._threads.submit(one)
        self._wait(self._timeout)

    def _joined(
        self, places: list[int], pixels: torch.Tensor | None, device: torch.device
    ) -> Ready:
        """Put images from the device and from the host in order."""
        kept = [at for at, sample in enumerate(self._samples) if sample is not SKIPPED]
        skipped = len(self._samples) - len(kept)
        if not kept:
            return Ready(None, self._position, skipped)
        if pixels is None or len(places) < len(kept):
            layout = torch.channels_last if self._config.channels_last else torch.contiguous_format
            batch = torch.empty(
                (len(kept), 3, *self._size),
                dtype=torch.uint8,
                device=device,
                memory_format=layout,
            )
            row_of = {at: row for row, at in enumerate(kept)}
            if pixels is not None:
                _put(batch, [row_of[at] for at in places], pixels)
            others = [at for at in kept if at in self._slots]
            host = torch.stack([self._slots[at] for at in others])
            _put(batch, [row_of[at] for at in others], _on_device(host, device))
            pixels = batch
        last = self._config.channels_last
        samples = [self._samples[at] for at in kept]
        ready = collate(samples, pixels, self._position, None, channels_last=last)
        return ready._replace(skipped=skipped, normalize=self._config.normalize)


def _part_of(plan: ResizePlan) -> Box:
    """Return the whole pixels that are resized."""
    left, top, right, bottom = plan.box
    return int(left), int(top), math.ceil(right), math.ceil(bottom)


def _shown(plan: ResizePlan, part: Box) -> tuple[float, float, float, float]:
    """Return where the result lies in these pixels; it may stick out, and is black there."""
    left, top, right, bottom = geometry_of(plan).box
    return left - part[0], top - part[1], right - part[0], bottom - part[1]


def _on_device(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type != "cuda":
        return host.to(device)
    # PyTorch's allocator of pinned memory hands this out again only after the copy.
    return host.pin_memory().to(device, non_blocking=True)


def _put(batch: torch.Tensor, rows: list[int], pixels: torch.Tensor) -> None:
    """Write some rows of a batch, in the order of the current stream."""
    index = _on_device(torch.tensor(rows, dtype=torch.int64, device="cpu"), batch.device)
    batch.index_copy_(0, index, pixels)


class _Placeholder:
    """Stands for the images in a batch that is copied without them."""


_PLACEHOLDER = _Placeholder()


class _Decoded(NamedTuple):
    rest: Any
    """The batch without its images, as the other transfer has it."""
    images: torch.Tensor | None
    ready: torch.cuda.Event | None
    """When they are decoded; None where there are no streams."""


class DecodingTransfer(Transfer):
    """Decodes an `EncodedBatch` in the background, and copies what else is in a batch.

    Another transfer copies everything but images. `most` batches of images are kept while the
    consumer's copy of them may still run.

    All decoding is done on one stream for each device, by one thread of this object at a time. What
    is allocated meanwhile, the images included, belongs to that stream's pool, and is used again
    in its order. The consumer's own stream waits until a batch is decoded, and copies it to
    memory of its own: that is the consumer's, as any other tensor. The images are released when the
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
        images: list[torch.Tensor] = []

        def taken_out(found: torch.Tensor) -> _Placeholder:
            images.append(found)
            return _PLACEHOLDER

        rest = ready.batch if ready.batch is None else with_images(ready.batch, taken_out)
        staged = self._inner.stage(ready._replace(batch=rest))
        return _Decoded(staged, images[0] if images else None, event)

    def _on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def start(self, staged: Any) -> Any:
        if not isinstance(staged, _Decoded):
            return self._inner.start(staged)
        return staged._replace(rest=self._inner.start(staged.rest))

    def finish(self, moving: Any) -> Any:
        """Let the consumer's stream, as it is now, wait for the images, and copy them."""
        if not isinstance(moving, _Decoded):
            return self._inner.finish(moving)
        ready: Ready = self._inner.finish(moving.rest)
        images = moving.images
        if images is None:
            return ready
        own = images if moving.ready is None else self._copied(images, moving.ready)
        return ready._replace(batch=with_images(ready.batch, lambda _: own))

    def _copied(self, images: torch.Tensor, ready: torch.cuda.Event) -> torch.Tensor:
        self._release_copied()
        consumer = torch.cuda.current_stream(self.device)
        consumer.wait_event(ready)
        with torch.inference_mode(mode=False), torch.no_grad():
            own = torch.empty_like(images)
            own.copy_(images)
        self._read.append((recorded(consumer), images))
        return own

    def settle(self, given_up: Iterable[Any]) -> None:
        """Wait for the copies. What is given up returns to the decoding stream's pool by itself."""
        self._inner.settle(
            [moving.rest if isinstance(moving, _Decoded) else moving for moving in given_up]
        )
        while self._read:
            self._read[0][0].synchronize()
            self._read.popleft()

    def _release_copied(self) -> None:
        """Drop images whose copies are done; wait for the oldest if they are too many."""
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
