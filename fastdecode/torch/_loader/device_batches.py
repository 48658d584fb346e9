"""Batches that go to a device: they are copied or pinned, or the device decodes all their images.

To decode, threads read and draw for each sample. `Loader` imports this module only for a device.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fastdecode import _formats, gpu
from fastdecode._arguments import as_buffer
from fastdecode._decode.resizing import ResizePlan
from fastdecode._system.process import ForkLock
from fastdecode.gpu import Request, check_device, decode_requests, make_request, resize_into
from fastdecode.torch._errors import SKIPPED
from fastdecode.torch._loader.batch_builder import (
    BatchBuilder,
    DeviceDecoding,
    EpochConfig,
    stop_iteration_error,
)
from fastdecode.torch._loader.collate import ReadyBatch, change_images, collate
from fastdecode.torch._loader.order import Item
from fastdecode.torch._loader.samples import SampleMaker
from fastdecode.torch._loader.threads import ThreadPool
from fastdecode.torch._loader.transfer import (
    Held,
    PinningTransfer,
    Transfer,
    record_event,
    transfer_to,
)
from fastdecode.torch.dataset import map_targets, read_source
from fastdecode.torch.prefetcher import DevicePrefetcher
from fastdecode.types import Buffer, Header

if TYPE_CHECKING:
    from fastdecode.torch.dataset import EligibleRecipe

_DEPTH = 2
"""How many batches are made ahead for a device."""

_DECODED = object()
_LARGEST_CANVAS = 1 << 24
"""In pixels. A crop shows so little of a larger canvas that resizing all of it does not pay."""
_cuda: Any = torch.cuda  # it is only partly annotated
_streams: dict[torch.device, torch.cuda.Stream] = {}
_lock = ForkLock()


class EncodedBatch(BatchBuilder):
    """A batch of encoded images, which `decoded` decodes.

    The dataset makes the samples that the backend does not decode, with the same seed as without
    it, and in `threads` if given.
    """

    def __init__(
        self,
        config: EpochConfig,
        how: DeviceDecoding,
        maker: SampleMaker,
        items: list[Item],
        position: int,
        part: int,
        threads: ThreadPool | None,
    ) -> None:
        super().__init__(config, maker, items, position, part)
        self._how = how
        self._threads = threads
        self._asked: dict[int, tuple[Request, ResizePlan]] = {}
        self._targets: dict[int, Any] = {}
        self._slots: dict[int, torch.Tensor] = {}
        self._timeout: float | None = None
        self._looked = False

    def _take_memory(self) -> None:
        """Take no host memory, because the images are made on the device."""

    def _finish(self) -> None:
        """Leave the samples as they are: `decoded` collates them, when it has the images."""

    def _start_part(self, part: range) -> Iterator[int]:
        """Read and draw for each sample; yield those that the backend cannot decode."""
        for at in part:
            asked = None if self._looked else self._plan_sample(at)
            if asked is None:
                yield at
            else:
                self._asked[at], self._samples[at] = asked, _DECODED

    def _plan_sample(self, at: int) -> tuple[Request, ResizePlan] | None:
        index, seed = self._items[at]
        source = self._config.source
        dataset, settings = source.ours, source.settings(source.ours)
        try:
            with source.lock:
                place, target = dataset.read(source.dataset_index(index))
            data = as_buffer(read_source(place, settings))
            header = _formats.probe(data)
            recipe, generator = self._how.eligible.recipe, self._maker.generator_of(seed)
            drawn = recipe.draw(header.width, header.height, generator)
            plan = drawn.whole_plan()
            request = None if plan is None else self._request(data, header, plan)
            if request is not None:
                geometry = drawn.geometry() if self._how.eligible.maps else None
                with source.lock:
                    by = settings.target_transform
                    self._targets[at] = map_targets(dataset, target, geometry, by)
        except Exception:  # raised again when the dataset makes the sample
            return None
        return None if request is None or plan is None else (request, plan)

    def _request(self, data: Buffer, header: Header, plan: ResizePlan) -> Request | None:
        """Return a request for the box of a plan; None if the backend cannot decode that."""
        if plan.size != self._size or math.prod(plan.canvas) > _LARGEST_CANVAS:
            return None
        loaded, source = self._how.loaded, self._config.source
        how = source.settings(source.ours).options
        everything = plan.box == (0, 0, header.width, header.height)
        options = {
            "orient": how.orient,
            "max_pixels": how.max_pixels,
            "region": None if everything else plan.box,
        }
        return make_request(data, header, loaded.backend, options)

    def _image_slot(self, at: int) -> torch.Tensor:
        shape = self._how.eligible.recipe.shape or ()
        slot = self._slots[at] = torch.empty(shape, dtype=torch.uint8, device="cpu")
        return slot

    def wait(self, timeout: float | None) -> None:
        """Wait until everything is read."""
        self._timeout = timeout
        super().wait(timeout)

    def result(self) -> EncodedBatch:
        """Return the builder; `decoded` raises the errors."""
        return self

    def decoded(self, device: torch.device) -> ReadyBatch:
        """Decode, crop, resize, mirror and collate, on the device of the backend.

        The images are uint8, and ready in the order of the current stream. Errors are those of
        `BatchBuilder.result`.
        """
        self._looked = True
        layout = torch.channels_last if self._config.channels_last else torch.contiguous_format
        shape = (len(self._items), 3, *self._size)
        batch = torch.empty(shape, dtype=torch.uint8, device=device, memory_format=layout)
        places = sorted(self._asked)
        requests = [self._asked[at][0] for at in places]
        refused = []
        with decode_requests(self._how.loaded, requests, "RGB", device) as images:
            for at, image in zip(places, images, strict=True):
                if image is None:
                    refused.append(at)
                else:
                    plan = self._asked[at][1]
                    resize_into(
                        batch[at],
                        image,
                        plan.canvas,
                        top=plan.top,
                        left=plan.left,
                        flip=plan.flip,
                    )
        self._make_refused(refused)
        try:
            self._raise_first_error()
        except StopIteration as error:
            raise stop_iteration_error(error) from error
        bare = self._config.source.ours._is_bare()
        for at in set(places) - set(refused):
            self._samples[at] = _DECODED if bare else (_DECODED, self._targets[at])
        if self._slots:
            index = _on_device(torch.tensor(list(self._slots), device="cpu"), device)
            others = torch.stack(list(self._slots.values()))
            batch.index_copy_(0, index, _on_device(others, device))
        last = self._config.channels_last
        ready = collate(self._samples, batch, self._position, None, channels_last=last)
        return ready._replace(normalize=self._config.normalize)

    @property
    def _size(self) -> tuple[int, int]:
        _, height, width = self._how.eligible.recipe.shape or (0, 0, 0)
        return height, width

    def _make_refused(self, places: list[int]) -> None:
        """Let the dataset make the samples that the backend has refused, in all threads."""
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
        self.wait(self._timeout)


def _on_device(host: torch.Tensor, device: torch.device) -> torch.Tensor:
    if device.type != "cuda":
        return host.to(device)
    # PyTorch's allocator of pinned memory reuses this only after the copy.
    return host.pin_memory().to(device, non_blocking=True)


_PLACEHOLDER = object()
"""Stands for the images in a batch that is copied without them."""


class _Decoded(NamedTuple):
    rest: Any
    """The batch without its images, as the inner transfer returned it."""
    images: torch.Tensor | None
    ready: torch.cuda.Event | None
    """Occurs when the images are decoded; None on devices without streams."""


class DecodingTransfer(Transfer):
    """Decodes an `EncodedBatch` in the background.

    `inner` copies everything in a batch except the images. Up to `most` batches of images are held
    while the consumer's copy of them may still be running.

    One stream per device does all decoding, and one thread of this object at a time uses it. The
    memory allocated meanwhile, including that of the images, belongs to the stream's pool and is
    reused in the order of the stream. The consumer's stream waits until a batch is decoded, and
    then copies it into memory of its own, which belongs to the consumer like any other tensor. The
    images are released when the host has seen that this copy is done. So decoding never waits for
    the consumer's kernels, as it would if the copy ran on the decoding stream. Nothing needs
    ``record_stream``.

    All loaders of a process share that stream, because PyTorch keeps freed memory for the stream on
    which it was allocated. Batches that they ask for at the same time are decoded one after
    another. Only one thread at a time calls the decoder in any case.
    """

    def __init__(self, inner: Transfer, most: int) -> None:
        super().__init__(inner.device)
        self._inner = inner
        self._stream: torch.cuda.Stream | None = None
        self._read = Held(most)

    def enter_thread(self) -> None:
        self._inner.enter_thread()
        if self.device.type == "cuda" and self._stream is None:
            self._stream = _decoding_stream(self.device)

    def stage(self, batch: Any) -> Any:
        """Decode the images, and let the inner transfer stage the rest."""
        if not isinstance(batch, EncodedBatch):
            return self._inner.stage(batch)
        with self._on_stream():
            ready = batch.decoded(self.device)
        event = None if self._stream is None else record_event(self._stream)
        images: list[torch.Tensor] = []

        def taken_out(found: torch.Tensor) -> object:
            images.append(found)
            return _PLACEHOLDER

        rest = ready.batch if ready.batch is SKIPPED else change_images(ready.batch, taken_out)
        staged = self._inner.stage(ready._replace(batch=rest))
        return _Decoded(staged, images[0] if images else None, event)

    def _on_stream(self) -> AbstractContextManager[Any]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def start(self, staged: Any) -> Any:
        if not isinstance(staged, _Decoded):
            return self._inner.start(staged)
        return staged._replace(rest=self._inner.start(staged.rest))

    def finish(self, moving: Any) -> Any:
        """Let the consumer's current stream wait for the images and copy them."""
        if not isinstance(moving, _Decoded):
            return self._inner.finish(moving)
        ready: ReadyBatch = self._inner.finish(moving.rest)
        images = moving.images
        if images is None:
            return ready
        own = images if moving.ready is None else self._copy_images(images, moving.ready)
        return ready._replace(batch=change_images(ready.batch, lambda _: own))

    def _copy_images(self, images: torch.Tensor, ready: torch.cuda.Event) -> torch.Tensor:
        self._read.drop_copied()
        consumer = torch.cuda.current_stream(self.device)
        consumer.wait_event(ready)
        with torch.inference_mode(mode=False), torch.no_grad():
            own = torch.empty_like(images)
            own.copy_(images)
        self._read.add(record_event(consumer), images)
        return own

    def wait_for_copies(self, given_up: Iterable[Any]) -> None:
        """Wait for the copies; PyTorch returns given-up images to the decoding stream's pool."""
        self._inner.wait_for_copies(
            [moving.rest if isinstance(moving, _Decoded) else moving for moving in given_up]
        )
        self._read.wait()


def _decoding_stream(device: torch.device) -> torch.cuda.Stream:
    """Return the stream of this process on which loaders decode on a device."""
    with _lock:
        if device not in _streams:
            _streams[device] = _cuda.Stream(device)
        return _streams[device]


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
            gpu.load(decoder, place)
            inner = Transfer(place) if place.type == "cpu" else transfer_to(place, _DEPTH)
            transfer: Transfer = DecodingTransfer(inner, 2 * _DEPTH)
            self._prefetcher: DevicePrefetcher = _OwnPrefetcher(_Relay(), transfer)
        elif device.type != "cpu":
            self._prefetcher = DevicePrefetcher(_Relay(), device, depth=_DEPTH)
        else:
            self._prefetcher = _OwnPrefetcher(_Relay(), PinningTransfer())

    def device_decoding(self, eligible: EligibleRecipe | None) -> DeviceDecoding | None:
        """Return how the device decodes the batches of an epoch; None if it does not."""
        if eligible is None or self._decoder is None:
            return None
        # Load it for each epoch: a library's state does not survive a fork.
        return DeviceDecoding(gpu.load(self._decoder, self._prefetcher.device), eligible)

    @property
    def depth(self) -> int:
        """How many batches are made ahead."""
        return self._prefetcher.depth

    def begin(self, batches: Iterator[ReadyBatch | BatchBuilder]) -> Iterator[ReadyBatch]:
        """Deliver the decoded batches of an epoch; an epoch that is still running ends."""
        self._prefetcher.loader.batches = batches
        return iter(self._prefetcher)

    def close(self) -> None:
        """End the running epoch."""
        self._prefetcher.close()
