"""Decides how a `Loader` makes its batches: who decodes them, and where images become floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch

from fastdecode.torch._native_batches import EligibleCrop
from fastdecode.torch._samples import Source
from fastdecode.torch.transforms import Normalize

NormalizeOn = Literal["host", "device"]

_TRANSFORM_REMEDY = (
    "Give one of the package's datasets a transform that it does while decoding (see "
    "fastdecode.torch.fuse), without anything after it"
)


class Plan(NamedTuple):
    """How the batches of an epoch are made.

    If `normalize` makes the floats later, `source` makes uint8 images. `eligible` says how the
    images are cropped if a device decodes whole batches; else it is None.
    """

    source: Source
    normalize: Normalize | None
    eligible: EligibleCrop | None = None


class _Obstacle(NamedTuple):
    """A reason why something is not possible, and what to do, in words."""

    why: str
    remedy: str


def load_decoder(decode: str, device: torch.device) -> str:
    """Return the name of the batch backend that ``decode="gpu"`` or a name means, and load it."""
    from fastdecode.gpu._backends import choose
    from fastdecode.gpu._devices import check_device

    loaded = choose(check_device(device), decode)
    return "cpu" if loaded is None else loaded.name


def _whole_batch_crop(
    source: Source, collate_fn: Callable[..., Any] | None, workers: int
) -> EligibleCrop | _Obstacle:
    """Return how a device decodes the dataset's batches, or the reason why it cannot."""
    if workers:
        return _Obstacle("worker processes make samples one by one", "Leave out workers")
    if collate_fn is not None:
        return _Obstacle("collate_fn wants samples one by one", "Leave out collate_fn")
    crop = source.crop
    if isinstance(crop, str):
        return _Obstacle(crop, _TRANSFORM_REMEDY)
    if not source.isolated:
        why = "its transform draws random numbers that do not come from the generator it is given"
        return _Obstacle(why, "Draw all of them from that generator")
    if crop.crop.program:
        return _Obstacle("its augmentations run in the core, on the CPU", "Leave them out")
    if crop.crop.interpolation != "bilinear":
        return _Obstacle("devices only resize bilinearly", "Use interpolation='bilinear'")
    return crop


def _device_normalize(
    source: Source, collate_fn: Callable[..., Any] | None
) -> Normalize | _Obstacle:
    """Return the transform that makes the dataset's floats later, or why none can."""
    if collate_fn is not None:
        why = "collate_fn gets samples, and only it knows where their images go"
        return _Obstacle(why, "Leave out collate_fn")
    crop = source.crop
    if isinstance(crop, str):
        return _Obstacle(crop, _TRANSFORM_REMEDY)
    if any(step.erasure is not None for step in crop.crop.program):
        return _Obstacle("RandomErasing fills normalised values", "Erase on the device instead")
    if crop.crop.normalize is None:
        why = "its transform makes bytes and normalises nothing"
        return _Obstacle(why, "Let it make torch.float32")
    return crop.crop.normalize


def plan_batches(
    source: Source,
    collate_fn: Callable[..., Any] | None,
    normalize_on: NormalizeOn,
    device: torch.device,
    decoder: str,
    workers: int,
) -> Plan:
    """Decide how batches are made from the dataset in its present state.

    `decoder` is a batch backend, or ``"cpu"``. Raises ValueError if the dataset does not allow it.
    """
    if decoder != "cpu":
        crop = _whole_batch_crop(source, collate_fn, workers)
        if isinstance(crop, _Obstacle):
            raise _impossible(f"decoding with {decoder}", crop, "decode='cpu'")
        return Plan(source.as_uint8_source(), crop.crop.normalize, crop)
    if normalize_on == "host":
        return Plan(source, None)
    normalize = _device_normalize(source, collate_fn)
    if isinstance(normalize, _Obstacle):
        raise _impossible("normalize_on='device'", normalize, "normalize_on='host'")
    if device.type == "cpu":  # the floats are the same, and are made faster along with the pixels
        return Plan(source, None)
    return Plan(source.as_uint8_source(), normalize)


def _impossible(what: str, obstacle: _Obstacle, instead: str) -> ValueError:
    why, remedy = obstacle
    return ValueError(f"{what} is not possible: {why}. {remedy}, or leave it at {instead}")
