"""A batch while it is made: many threads make its samples, and one thread collects them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fastdecode._system.process import raised_by_signal
from fastdecode.torch._errors import SKIPPED
from fastdecode.torch._loader.collate import ReadyBatch, collate, collate_whole, with_image
from fastdecode.torch._loader.memory import BatchMemory
from fastdecode.torch._loader.native_batches import FALLBACK
from fastdecode.torch._loader.order import Item
from fastdecode.torch._loader.samples import SampleMaker, SampleSource

if TYPE_CHECKING:
    from fastdecode.gpu import Loaded
    from fastdecode.torch.dataset import EligibleRecipe
    from fastdecode.torch.transforms import Normalize

_POLL_S = 0.5


class DeviceDecoding(NamedTuple):
    """How whole batches are decoded on a device: the backend, and the recipe."""

    loaded: Loaded
    eligible: EligibleRecipe


@dataclass(frozen=True)
class EpochConfig:
    """The settings that all batches of an epoch share."""

    source: SampleSource
    collate_fn: Callable[[list[Any]], Any] | None
    """With None, images of known shape are written straight into the batch."""
    memory: BatchMemory
    channels_last: bool
    normalize: Normalize | None = None
    """The same as for `ReadyBatch`."""
    device_decoding: DeviceDecoding | None = None
    """How a device decodes whole batches; None if Python or the native core decodes."""
    seed_all: bool = False
    """Whether batches made in the calling thread seed the generators that user code draws from."""
    worker_seed: int = 0
    """From which worker processes get their seeds."""
    worker_init_fn: Callable[[int], Any] | None = None


class BatchBuilder:
    """One batch: any thread may call `make`, once for each of `parts`.

    `position` is as for `ReadyBatch`. `part` is the number of samples in a part.
    """

    def __init__(
        self,
        config: EpochConfig,
        maker: SampleMaker,
        items: list[Item],
        position: int,
        part: int,
    ) -> None:
        self._config = config
        self._maker = maker
        self._items = items
        self._position = position
        self._images = self._take_memory()
        self._samples: list[Any] = [None] * len(items)
        self._whole: Any = None  # what the dataset gave for all items at once
        self._errors: dict[int, BaseException] = {}
        self._apart: set[int] = set()  # the samples whose images are not in their slots
        self.parts = [range(at, min(at + part, len(items))) for at in range(0, len(items), part)]
        self._left = len(self.parts)
        self._ready: ReadyBatch | None = None
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._cancelled = False

    def _take_memory(self) -> Any:
        """Take memory for the images of the batch if their shape is known."""
        config, source = self._config, self._config.source
        shape = None if config.collate_fn is not None else source.shape
        if shape is None:
            return None
        whole = (len(self._items), *shape)
        return config.memory.take(whole, source.dtype, channels_last=config.channels_last)

    def cancel(self) -> None:
        """Make no more samples; a thread that waits for the result gets an error."""
        self._cancelled = True
        self._done.set()

    def make(self, part: range) -> None:
        """Make the samples of a part; `result` raises its errors.

        Only what a signal's handler raises comes from here: then the part is still to be made.
        """
        try:
            indices = [item.index for item in self._items[part.start : part.stop]]
            reading = self._config.source.prefetch_batch(indices)
            with self._config.memory.for_samples(), reading:
                self._make_samples(part)
        except BaseException as error:  # any error: the consumer must not wait for ever
            if raised_by_signal(error):
                raise
            self._errors.setdefault(part.start, error)
        with self._lock:
            self._left -= 1
            if self._left:
                return
        self._finish()
        self._done.set()

    def _finish(self) -> None:
        """Collate in the thread that made the last sample, as `make` without raising.

        PyTorch's operations have one thread there. In the consumer's thread they start as many as
        there are cores, which wait for each other in loops, beside the threads that make samples. A
        `collate_fn` may draw random numbers, so the consumer calls it, in the order of the batches.
        """
        if self._config.collate_fn is None and not self._errors and not self._cancelled:
            try:
                self._ready = self._collated()
            except BaseException as error:  # any error: the consumer must get it
                self._errors[len(self._items)] = error

    def _make_samples(self, part: range) -> None:
        if self._maker.makes_whole_batches:
            self._whole = self._maker.make_whole(self._items)
            return
        for at in self._start_part(part):
            if self._cancelled:
                return
            try:
                self._samples[at] = self._make_sample(at)
            except BaseException as error:  # any error: the consumer must get it
                if raised_by_signal(error):
                    raise
                self._errors[at] = error

    def _start_part(self, part: range) -> Iterable[int]:
        """Let the core make the samples that it can; return the places of the others."""
        images = self._images
        if images is not None and len(part) < len(self._items):
            images = images[part.start : part.stop]
        items = self._items[part.start : part.stop]
        # Each part of a list of samples has memory that is reused, too.
        take = partial(self._config.memory.take, channels_last=False, part=part.start)
        made = self._maker.make_batch(items, images, lambda: self._cancelled, take)
        self._samples[part.start : part.stop] = [
            None if sample is FALLBACK else sample for sample in made
        ]
        return [at for at, sample in zip(part, made, strict=True) if sample is FALLBACK]

    def _image_slot(self, at: int) -> torch.Tensor | None:
        """Return the slot of an image in the batch, or None if the batch has no memory yet."""
        if self._images is None:
            return None
        with torch.inference_mode(mode=False):  # otherwise other threads could not write to it
            slot: torch.Tensor = self._images[at]
            return slot

    def _make_sample(self, at: int) -> Any:
        """Make one sample; if it has a slot, its image ends up there."""
        slot = self._image_slot(at)
        sample = self._maker.make_one(self._items[at], slot)
        if slot is not None and sample is not SKIPPED:
            image = sample[0] if isinstance(sample, tuple) else sample
            # What a user's transform of bytes makes may be anything, elsewhere.
            if image is not slot:
                if _fits(image, slot):
                    slot.copy_(image)
                else:
                    self._apart.add(at)
        return sample

    def result(self) -> ReadyBatch | BatchBuilder:
        """Return what was awaited, or the builder if a device must still decode the batch.

        If samples failed, the error of the first one, in the order of the batch, is raised here.
        """
        self._raise_first_error()
        return self._collated() if self._ready is None else self._ready

    def _collated(self) -> ReadyBatch:
        config = self._config
        how, last = config.collate_fn, config.channels_last
        if self._maker.makes_whole_batches:
            return collate_whole(self._whole, self._position, how, channels_last=last)
        images = self._images
        if self._apart:
            for at, sample in enumerate(self._samples):
                if sample is not SKIPPED and at not in self._apart:
                    self._samples[at] = with_image(sample, images[at])
            images = None
        parts = self._samples, images, self._position, how
        ready = collate(*parts, channels_last=last, memory=config.memory)
        self._ready = ready._replace(normalize=config.normalize)
        self._samples.clear()  # what was copied out of them is not kept twice
        return self._ready

    def wait(self, timeout: float | None) -> None:
        """Wait for all samples."""
        waited = 0.0
        # Wait in short turns, because on Windows Ctrl-C does not end a wait.
        while not self._done.wait(_POLL_S) and not self._cancelled:
            waited += _POLL_S
            if timeout is not None and waited >= timeout:
                raise timeout_error(self._position, timeout, self._missing())
        if self._cancelled:
            raise closed_error()

    def _raise_first_error(self) -> None:
        """Raise the error of the first failed sample, in the order of the batch."""
        if self._errors:
            error = self._errors[min(self._errors)]
            self._errors.clear()
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame, which holds the batch's memory

    def _missing(self) -> list[Any]:
        return [
            item.index
            for at, (item, sample) in enumerate(zip(self._items, self._samples, strict=True))
            if sample is None and at not in self._errors
        ]


def _fits(image: Any, slot: torch.Tensor) -> bool:
    """Return whether an image is the same in its slot as on its own."""
    alike = isinstance(image, torch.Tensor) and (image.shape, image.dtype) == (
        slot.shape,
        slot.dtype,
    )
    return alike and not image.requires_grad


def timeout_error(position: int, timeout: float | None, items: list[Any]) -> TimeoutError:
    """Return the error for a batch that is not ready in time."""
    missing = f"; still missing are items {items}" if items else ""
    return TimeoutError(
        f"batch {position - 1} is not there after {timeout} s{missing}: does reading hang?"
    )


def closed_error() -> RuntimeError:
    """Return the error of an iterator whose loader was closed or has begun another epoch."""
    return RuntimeError("this iterator was ended, by close() or by a newer one of the same loader")


def stop_iteration_error(error: StopIteration) -> RuntimeError:
    """Return the error that replaces a StopIteration of the dataset, which would end a loop."""
    return RuntimeError(f"the dataset, a transform or collate_fn raised {error!r}")
