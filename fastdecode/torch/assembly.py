"""A batch in the making: many threads write its samples, one collects them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.utils.data import default_collate

from fastdecode.torch.failures import SKIPPED
from fastdecode.torch.lane import LEFT, Draws, Lane
from fastdecode.torch.memory import BatchMemory
from fastdecode.torch.order import Item
from fastdecode.torch.source import Source

__all__ = ["Assembly", "Ready", "Recipe", "closed_error", "collate", "stopped_early", "too_late"]

_POLL_S = 0.5


class Ready(NamedTuple):
    """A finished batch.

    Attributes
    ----------
    batch : object
        None if every item of it was left out.
    position : int
        How many batches of the epoch there are up to and with this one.
    skipped : int
        Items that were left out because they are damaged.
    """

    batch: Any
    position: int
    skipped: int


@dataclass(frozen=True)
class Recipe:
    """What is the same for all batches of an epoch.

    Attributes
    ----------
    source : Source
    collate_fn : callable or None
        From a list of samples to a batch; None writes images straight into the batch where their
        shape is known, and does as torch's DataLoader where it is not.
    memory : BatchMemory
    channels_last : bool
    """

    source: Source
    collate_fn: Callable[[list[Any]], Any] | None
    memory: BatchMemory
    channels_last: bool


class _Generators(threading.local):
    """One generator a thread, seeded anew for each sample."""

    def __init__(self) -> None:
        self.generator = torch.Generator("cpu")


_generators = _Generators()


class Assembly:
    """One batch, made by `make` in any threads, one call for each of `parts`.

    Parameters
    ----------
    recipe : Recipe
    items : list of Item
    position : int
        See `Ready`.
    part : int
        How many samples one call of `make` makes.
    lane : Lane or None
        What makes most samples of a part at once.
    """

    def __init__(
        self,
        recipe: Recipe,
        items: list[Item],
        position: int,
        part: int,
        lane: Lane | None = None,
    ) -> None:
        self._recipe = recipe
        self._items = items
        self._position = position
        self._lane = lane
        self._images = None
        shape = recipe.source.shape
        if shape is not None and recipe.collate_fn is None:
            self._images = recipe.memory.take(
                (len(items), *shape), recipe.source.dtype, channels_last=recipe.channels_last
            )
        self._samples: list[Any] = [None] * len(items)
        self._errors: dict[int, BaseException] = {}
        self.parts = [range(at, min(at + part, len(items))) for at in range(0, len(items), part)]
        self._left = len(self.parts)
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._cancelled = False

    def cancel(self) -> None:
        """Make no more samples; who waits for the result gets an error."""
        self._cancelled = True
        self._done.set()

    def make(self, part: range) -> None:
        """Make some of the samples. Never raises: an error comes out at `result`."""
        for at in part if self._lane is None else self._make_most(self._lane, part):
            if self._cancelled:
                return
            try:
                self._samples[at] = self._sample(at)
            except BaseException as error:  # of whatever kind: it belongs to the consumer
                self._errors[at] = error
        with self._lock:
            self._left -= 1
            if not self._left:
                self._done.set()

    def _make_most(self, lane: Lane, part: range) -> list[int]:
        """Make what the lane makes; return what is left."""
        items = self._items[part.start : part.stop]
        images = self._images
        if images is not None and len(items) < len(self._items):
            images = images[part.start : part.stop]
        draws = Draws([item.seed for item in items])
        try:
            made = lane.make(
                [item.index for item in items], draws, images, stopped=lambda: self._cancelled
            )
        except BaseException as error:  # likewise
            self._errors[part.start] = error
            return []
        handed_out = self._recipe.source.handed_out
        self._samples[part.start : part.stop] = [
            None if sample is LEFT else handed_out(sample) for sample in made
        ]
        return [at for at, sample in zip(part, made, strict=True) if sample is LEFT]

    def _slot(self, at: int) -> torch.Tensor | None:
        """Return the place of an image in the batch, if it has one yet."""
        if self._images is None:
            return None
        with torch.inference_mode(mode=False):  # else no other thread might write to it
            slot: torch.Tensor = self._images[at]
            return slot

    def _sample(self, at: int) -> Any:
        index, seed = self._items[at]
        generator = _generators.generator
        generator.manual_seed(seed)
        slot = self._slot(at)
        sample = self._recipe.source.fetch(index, generator, slot)
        if slot is not None and sample is not SKIPPED:
            image = sample[0] if isinstance(sample, tuple) else sample
            if image is not slot:  # what stands in for a damaged one came from elsewhere
                slot.copy_(image)
        return sample

    def result(self, timeout: float | None) -> Ready:
        """Wait for the batch.

        Parameters
        ----------
        timeout : float or None
            Seconds.

        Raises
        ------
        TimeoutError
            If it takes longer.
        RuntimeError
            If it was cancelled.
        Exception
            What the first sample that failed, in the order of the batch, raised.
        """
        waited = 0.0
        # In short turns: on Windows Ctrl-C does not end a wait.
        while not self._done.wait(_POLL_S):
            waited += _POLL_S
            if timeout is not None and waited >= timeout:
                raise too_late(self._position, timeout, self._missing())
        if self._cancelled:
            raise closed_error()
        if self._errors:
            error = self._errors[min(self._errors)]
            self._errors.clear()
            try:
                raise error
            finally:
                del error  # its traceback leads here, and would keep the batch's memory
        recipe = self._recipe
        return collate(
            self._samples,
            self._images,
            self._position,
            recipe.collate_fn,
            channels_last=recipe.channels_last,
        )

    def _missing(self) -> list[Any]:
        return [
            item.index
            for at, (item, sample) in enumerate(zip(self._items, self._samples, strict=True))
            if sample is None and at not in self._errors
        ]


def collate(
    samples: Sequence[Any],
    images: torch.Tensor | None,
    position: int,
    collate_fn: Callable[[list[Any]], Any] | None,
    *,
    channels_last: bool,
) -> Ready:
    """Make a batch of samples, without those that were left out.

    Parameters
    ----------
    samples : sequence
        Samples, or SKIPPED.
    images : tensor (N, C, H, W) or None
        Where the images are already.
    position : int
    collate_fn : callable or None
    channels_last : bool
        For images that are not there already.

    Returns
    -------
    Ready
    """
    kept = [at for at, sample in enumerate(samples) if sample is not SKIPPED]
    skipped = len(samples) - len(kept)
    if not kept:
        return Ready(None, position, skipped)
    good = [samples[at] for at in kept]
    batch: Any
    if collate_fn is not None:
        return Ready(collate_fn(good), position, skipped)
    if images is None:
        batch = default_collate(good)
        return Ready(_channels_last(batch) if channels_last else batch, position, skipped)
    batch = images[kept] if skipped else images
    if isinstance(good[0], tuple):  # a list, as from torch's default_collate
        rest = zip(*(sample[1:] for sample in good), strict=True)
        batch = [batch, *(_collated(list(values)) for values in rest)]
    return Ready(batch, position, skipped)


def _collated(values: list[Any]) -> Any:
    """Do as default_collate, which looks long at plain class numbers."""
    if all(type(value) is int for value in values):
        return torch.tensor(values)
    return default_collate(values)


def _channels_last(batch: Any) -> Any:
    """Lay out the images of a batch: the batch itself, or the first thing in it."""
    if isinstance(batch, list) and batch:
        return [_channels_last(batch[0]), *batch[1:]]
    if isinstance(batch, torch.Tensor) and batch.ndim == 4:
        return batch.contiguous(memory_format=torch.channels_last)
    return batch


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
    """Return what is raised instead of the dataset's own StopIteration.

    Notes
    -----
    As it is, it would end the loop over the batches, as if there were no more: see PEP 479.
    """
    return RuntimeError(f"the dataset, a transform or collate_fn raised {error!r}")
