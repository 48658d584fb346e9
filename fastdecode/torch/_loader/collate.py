"""Collates samples into a batch, and finishes the batch when the consumer gets it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL.Image import Image
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import collate_tensor_fn, default_collate_fn_map

from fastdecode.torch._errors import SKIPPED
from fastdecode.torch._loader.memory import BatchMemory
from fastdecode.torch._recorded import LazyTensor
from fastdecode.torch.transforms.normalize import Normalize

_DTYPES = (torch.float32, torch.uint8)
"""Types of images whose memory is reused."""


class ReadyBatch(NamedTuple):
    """A finished batch."""

    batch: Any
    """SKIPPED if all items of the batch were left out."""
    position: int
    """The number of this batch in the epoch, counted from 1."""
    skipped: int
    """How many items were left out because they are damaged."""
    normalize: Normalize | None = None
    """If given, the images are uint8, and this makes floats of them when they are handed out."""


class Alone(NamedTuple):
    """Makes what the consumer gets of a single sample, in the place of a batch."""

    convert: Callable[[Any], Any]

    def __call__(self, samples: list[Any]) -> Any:
        return self.convert(samples[0])


def collate(
    samples: Sequence[Any],
    images: torch.Tensor | None,
    position: int,
    collate_fn: Callable[[list[Any]], Any] | None,
    *,
    channels_last: bool,
    memory: BatchMemory | None = None,
) -> ReadyBatch:
    """Make a batch of the samples that are not SKIPPED.

    `images` (N, C, H, W), if given, already holds the images. Otherwise `channels_last` says how to
    lay them out, and `memory` where.
    """
    kept = [at for at, sample in enumerate(samples) if sample is not SKIPPED]
    skipped = len(samples) - len(kept)
    if not kept:
        return ReadyBatch(SKIPPED, position, skipped)
    good = [samples[at] for at in kept]
    if collate_fn is not None:
        return ReadyBatch(collate_fn(good), position, skipped)
    batch: Any = images[kept] if images is not None and skipped else images
    plain = _are_plain(good)
    if batch is not None and not plain:
        good, batch = [with_image(*pair) for pair in zip(good, batch, strict=True)], None
    elif batch is None and plain and memory:
        batch = _stacked(good, memory, channels_last=channels_last)
    if batch is None:
        batch = _collate_all(good)
        return ReadyBatch(_channels_last(batch) if channels_last else batch, position, skipped)
    if type(good[0]) is tuple:  # a list, as from torch's default_collate
        rest = zip(*(sample[1:] for sample in good), strict=True)
        batch = [batch, *(default_collate(list(values)) for values in rest)]
    return ReadyBatch(batch, position, skipped)


def _are_plain(samples: list[Any]) -> bool:
    """Return whether default_collate stacks the images of samples, and collates what follows them.

    So it does for plain tuples of one length, unless the user has registered another way.
    """
    if default_collate_fn_map.get(torch.Tensor) is not collate_tensor_fn:
        return False
    first = samples[0]
    if type(first) is not tuple:
        return not any(isinstance(sample, tuple) for sample in samples)
    image = first[0] if first and isinstance(first[0], list) else []
    registered = any(isinstance(one, key) for one in (first, image) for key in _other_keys())
    alike = all(type(one) is tuple and len(one) == len(first) for one in samples)
    return bool(first) and alike and not registered


def _other_keys() -> list[Any]:
    return [key for key in default_collate_fn_map if key is not torch.Tensor]


def with_image(sample: Any, image: torch.Tensor) -> Any:
    """Return a sample with an image that was made elsewhere."""
    if not isinstance(sample, tuple):
        return image
    parts = (image, *sample[1:])
    return type(sample)(*parts) if hasattr(sample, "_fields") else type(sample)(parts)


def _stacked(samples: list[Any], memory: BatchMemory, *, channels_last: bool) -> Any:
    """Stack the images of samples, or each of their views, in memory that is reused.

    Return None for what is not plain images of the same form on the CPU.
    """
    images = [sample[0] if isinstance(sample, tuple) else sample for sample in samples]
    has_views = all(type(image) is list for image in images)
    rows = images if has_views else [[image] for image in images]
    forms = {tuple(map(_form, row)) for row in rows}
    if len(forms) > 1 or None in (form := forms.pop()) or not form:
        return None
    batches = []
    for part, view in enumerate(zip(*rows, strict=True)):
        shape = (len(view), *view[0].shape)
        out = memory.take(shape, view[0].dtype, channels_last=channels_last, part=part)
        batches.append(torch.stack(view, out=out))
    return batches if has_views else batches[0]


def _form(image: Any) -> Any:
    """Return what images must have in common to be stacked; None if it is not a plain image."""
    plain = type(image) is torch.Tensor and image.ndim == 3 and not image.requires_grad
    plain = plain and image.layout is torch.strided and image.dtype in _DTYPES
    return (image.shape, image.dtype) if plain and image.device.type == "cpu" else None


def _collate_all(samples: list[Any]) -> Any:
    """Return the same as default_collate; if it cannot stack the images, say what can be done."""
    try:
        return default_collate(samples)
    except (TypeError, RuntimeError) as error:
        images = [one[0] if isinstance(one, (tuple, list)) and one else one for one in samples]
        arrays = all(isinstance(image, (torch.Tensor, np.ndarray)) for image in images)
        shapes = {tuple(image.shape) for image in images} if arrays else set()
        if type(error) not in (TypeError, RuntimeError):
            raise
        if all(isinstance(image, Image) for image in images):
            what, way_out = "Pillow images", '; or output="tensor", if all images have one size'
        elif len(shapes) > 1:
            what, way_out = f"images of several sizes, {min(shapes)} and {max(shapes)}", ""
        else:
            raise
        raise type(error)(
            f"a batch cannot hold {what}: give the dataset a transform= that makes tensors of one "
            f"size, such as ResizeCenterCropNormalize(256, 224){way_out}; or give the loader a "
            "collate_fn="
        ) from error


def collate_whole(
    samples: Any, position: int, collate_fn: Callable[[Any], Any] | None, *, channels_last: bool
) -> ReadyBatch:
    """Make a batch of whatever a dataset gave for all its items at once, as torch does."""
    batch = (collate_fn or _collate_all)(samples)
    lay_out = channels_last and collate_fn is None
    return ReadyBatch(_channels_last(batch) if lay_out else batch, position, 0)


def _channels_last(batch: Any) -> Any:
    """Convert the images of a batch: the batch itself, or its first part."""
    if isinstance(batch, list) and batch:
        return [_channels_last(batch[0]), *batch[1:]]
    if isinstance(batch, LazyTensor):  # it is laid out when it is made
        return batch
    if isinstance(batch, torch.Tensor) and batch.ndim == 4:
        return batch.contiguous(memory_format=torch.channels_last)
    return batch


def change_images(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Return a batch with its images changed: the batch itself, or its first part."""
    if isinstance(batch, list):
        return [change(batch[0]), *batch[1:]]
    return change(batch)


def finish_batch(ready: ReadyBatch) -> Any:
    """Return the batch as the consumer gets it; make floats if its images are still bytes.

    The floats are made on the device of the images, and on CUDA in the order of the current stream.
    """
    normalize = ready.normalize
    if normalize is None or ready.batch is SKIPPED:
        return ready.batch
    # Also in a block for inference, the batch is a normal tensor: it may be kept for training.
    with torch.inference_mode(mode=False), torch.no_grad():
        return change_images(ready.batch, normalize)
