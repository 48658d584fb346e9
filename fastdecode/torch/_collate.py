"""What a batch is made of its samples, and what is done to it when it is handed out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils.data import default_collate

from fastdecode.torch._errors import SKIPPED
from fastdecode.torch.transforms.normalize import Normalize

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Batch = TypeVar("Batch", default=Any)
else:
    from typing import TypeVar

    Batch = TypeVar("Batch")


class Ready(NamedTuple):
    """A finished batch."""

    batch: Any
    """None if every item of it was left out."""
    position: int
    """How many batches of the epoch there are up to and with this one."""
    skipped: int
    """Items that were left out because they are damaged."""
    normalize: Normalize | None = None
    """What makes floats of the images, which are bytes until they are handed out."""


def collate(
    samples: Sequence[Any],
    images: torch.Tensor | None,
    position: int,
    collate_fn: Callable[[list[Any]], Any] | None,
    *,
    channels_last: bool,
) -> Ready:
    """Make a batch of samples, without those that are SKIPPED.

    `images` (N, C, H, W) is where images are already; `channels_last` is for those that are not.
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


def with_images(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Return a batch with its images replaced: it is they alone, or they are the first in it."""
    if isinstance(batch, list):
        return [change(batch[0]), *batch[1:]]
    return change(batch)


def handed_out(ready: Ready) -> Any:
    """Return the batch as the consumer gets it: floats, where its images are still bytes.

    They are made where the images are, and on CUDA in the order of the current stream.
    """
    normalize = ready.normalize
    if normalize is None or ready.batch is None:
        return ready.batch
    # In a block for inference a batch is what it is outside: it may be kept for training.
    with torch.inference_mode(mode=False), torch.no_grad():
        return with_images(ready.batch, normalize)
