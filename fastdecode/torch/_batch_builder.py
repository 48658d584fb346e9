"""A batch in the making: many threads write its samples, one collects them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fastdecode.torch._collate import Ready, collate
from fastdecode.torch._errors import SKIPPED
from fastdecode.torch._memory import BatchMemory
from fastdecode.torch._native_batches import FALLBACK
from fastdecode.torch._order import Item
from fastdecode.torch._samples import SampleMaker, Source
from fastdecode.torch.dataset import EncodedSample, pair_of

if TYPE_CHECKING:
    from fastdecode.gpu._backends import Loaded
    from fastdecode.torch._native_batches import EligibleCrop
    from fastdecode.torch._read_ahead import Read
    from fastdecode.torch.transforms import Normalize

_POLL_S = 0.5


class AtOnce(NamedTuple):
    """How whole batches are decoded: by what, and what becomes of the images."""

    loaded: Loaded
    eligible: EligibleCrop


@dataclass(frozen=True)
class EpochConfig:
    """What is the same for all batches of an epoch."""

    source: Source
    collate_fn: Callable[[list[Any]], Any] | None
    """None writes images straight into the batch where their shape is known."""
    memory: BatchMemory
    channels_last: bool
    normalize: Normalize | None = None
    """As of `Ready`."""
    at_once: AtOnce | None = None
    """How whole batches are decoded; None where images are decoded one by one, or by the core."""
    worker_init_fn: Callable[[int], Any] | None = None
    multiprocessing_context: Any = None
    seed_all: bool = False
    """Whether batches made in the calling thread seed what the user's own code draws from."""


class BatchBuilder:
    """One batch, made by `make` in any threads, one call for each of `parts`.

    `position` is as of `Ready`; one call of `make` makes `part` samples, with `native` as many at
    once as the core can; `reads` are what has been begun to be read for each sample.
    """

    def __init__(
        self,
        config: EpochConfig,
        maker: SampleMaker,
        items: list[Item],
        position: int,
        part: int,
        *,
        native: bool = False,
        reads: list[Read] | None = None,
    ) -> None:
        self._config = config
        self._maker = maker
        self._items = items
        self._position = position
        self._native = native
        self._reads = reads
        self._images = self._room()
        self._samples: list[Any] = [None] * len(items)
        self._errors: dict[int, BaseException] = {}
        self.parts = [range(at, min(at + part, len(items))) for at in range(0, len(items), part)]
        self._left = len(self.parts)
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._cancelled = False

    def _room(self) -> Any:
        """Take memory for the images of the batch, where their shape is known."""
        config, shape = self._config, self._config.source.shape
        if shape is None or config.collate_fn is not None:
            return None
        whole = (len(self._items), *shape)
        return config.memory.take(whole, config.source.dtype, channels_last=config.channels_last)

    def cancel(self) -> None:
        """Make no more samples; who waits for the result gets an error."""
        self._cancelled = True
        for read in self._reads or ():  # for whoever waits for it
            read.cancel()
        self._done.set()

    def make(self, part: range) -> None:
        """Make some of the samples. Never raises: an error comes out at `result`."""
        try:
            for at in self._begun(part):
                if self._cancelled:
                    return
                try:
                    self._samples[at] = self._sample(at)
                except BaseException as error:  # of whatever kind: it belongs to the consumer
                    self._errors[at] = error
        except BaseException as error:  # likewise: who waits for the part must not wait for ever
            self._errors.setdefault(part.start, error)
        with self._lock:
            self._left -= 1
            if not self._left:
                self._done.set()

    def _begun(self, part: range) -> Iterable[int]:
        """Make what can be made at once; return what is left."""
        if not self._native:
            return part
        images, reads = self._images, self._reads
        if images is not None and len(part) < len(self._items):
            images = images[part.start : part.stop]
        if reads is not None:
            reads = reads[part.start : part.stop]
        items = self._items[part.start : part.stop]
        made = self._maker.batch(items, images, lambda: self._cancelled, reads)
        self._samples[part.start : part.stop] = [
            None if sample is FALLBACK else sample for sample in made
        ]
        return [at for at, sample in zip(part, made, strict=True) if sample is FALLBACK]

    def _slot(self, at: int) -> torch.Tensor | None:
        """Return the place of an image in the batch, if it has one yet."""
        if self._images is None:
            return None
        with torch.inference_mode(mode=False):  # else no other thread might write to it
            slot: torch.Tensor = self._images[at]
            return slot

    def _sample(self, at: int) -> Any:
        """Make one sample, whose image is then in its slot if it has one."""
        slot = self._slot(at)
        sample = self._maker.one(self._items[at], slot, self._read_before(at))
        if slot is not None and sample is not SKIPPED:
            image = sample[0] if isinstance(sample, tuple) else sample
            if image is not slot:  # what stands in for a damaged one came from elsewhere
                slot.copy_(image)
        return sample

    def _read_before(self, at: int) -> EncodedSample | None:
        """Return what has been read for a sample, once it is there; None if nobody has begun it."""
        if self._reads is None:
            return None
        try:
            dataset, index = self._config.source.ours, self._items[at].index
            place = self._config.source.place(index)
            source, target = pair_of(dataset, place, self._reads[at].result())
        except Exception as error:  # of whatever kind: it comes again where the policy is applied
            return EncodedSample(None, None, None, error=error)
        return EncodedSample(source, source, target)

    def result(self, timeout: float | None) -> Ready | BatchBuilder:
        """Wait so many seconds for the batch; return this itself where it is still to be decoded.

        What the first sample that failed, in the order of the batch, raised is raised here.
        """
        self._wait(timeout)
        self._raise_first()
        config = self._config
        how, last = config.collate_fn, config.channels_last
        ready = collate(self._samples, self._images, self._position, how, channels_last=last)
        return ready._replace(normalize=config.normalize)

    def _wait(self, timeout: float | None) -> None:
        waited = 0.0
        # In short turns: on Windows Ctrl-C does not end a wait.
        while not self._done.wait(_POLL_S) and not self._cancelled:
            waited += _POLL_S
            if timeout is not None and waited >= timeout:
                raise too_late(self._position, timeout, self._missing())
        if self._cancelled:
            raise closed_error()

    def _raise_first(self) -> None:
        """Raise what went wrong with the first sample that failed, in the order of the batch."""
        if self._errors:
            error = self._errors[min(self._errors)]
            self._errors.clear()
            try:
                raise error
            finally:
                del error  # its traceback leads here, and would keep the batch's memory

    def _missing(self) -> list[Any]:
        return [
            item.index
            for at, (item, sample) in enumerate(zip(self._items, self._samples, strict=True))
            if sample is None and at not in self._errors
        ]


def too_late(position: int, timeout: float | None, items: list[Any]) -> TimeoutError:
    """Return the error for a batch that does not come."""
    return TimeoutError(
        f"batch {position - 1} is not there after {timeout} s; still missing are "
        f"items {items}: does reading them hang?"
    )


def closed_error() -> RuntimeError:
    """Return the error of an iterator whose loader was closed, or began another epoch."""
    return RuntimeError("this iterator was ended, by close() or by a newer one of the same loader")


def stopped_early(error: StopIteration) -> RuntimeError:
    """Return what is raised instead of the dataset's own StopIteration, which would end a loop."""
    return RuntimeError(f"the dataset, a transform or collate_fn raised {error!r}")
