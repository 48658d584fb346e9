"""Decides which backend decodes for a `Loader`, and where its images become floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch

from fastdecode import registry
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.torch._native_batches import EligibleCrop
from fastdecode.torch._samples import Source
from fastdecode.torch.transforms import Normalize

NormalizeOn = Literal["host", "device"]

_TRANSFORM_REMEDY = (
    "Give one of the package's datasets a transform that it does while decoding (see "
    "fastdecode.torch.fuse), without anything after it"
)


class Decoding(NamedTuple):
    """A batch backend that decodes on the device, or None for the CPU; and the reason in words."""

    backend: str | None
    why: str


class Plan(NamedTuple):
    """How the batches of an epoch are made.

    If `normalize` makes the floats later, `source` makes uint8 images. `eligible` says how the
    images are cropped if a device decodes whole batches; else it is None. `decoding` also names the
    CPU if the dataset no longer allows a device.
    """

    source: Source
    normalize: Normalize | None
    decoding: Decoding
    eligible: EligibleCrop | None = None


class _Obstacle(NamedTuple):
    """A reason why something is not possible, and what to do, in words."""

    why: str
    remedy: str


def choose_decoding(
    asked: str,
    device: torch.device,
    source: Source,
    collate_fn: Callable[..., Any] | None,
    workers: int,
) -> Decoding:
    """Decide who decodes; `asked` is ``"cpu"``, ``"gpu"``, ``"auto"`` or a batch backend's name.

    A request that cannot be met raises ValueError, UnknownBackend, BackendUnavailable or
    RuntimeError. ``"auto"`` never does so if the device exists.
    """
    if asked == "cpu":
        return Decoding(None, "the CPU decodes, as asked")
    from fastdecode.gpu._devices import check_device
    from fastdecode.gpu._policy import choose

    checked = check_device(device)
    crop = _whole_batch_crop(source, collate_fn, workers)
    if asked == "auto":
        return _choose_automatically(
            checked, source, crop.why if isinstance(crop, _Obstacle) else ""
        )
    if asked == "gpu":
        choice = choose(checked, "gpu")
    else:
        _check_batch_backend(checked, asked)
        choice = choose(checked, "auto", asked)
    if isinstance(crop, _Obstacle):
        raise ValueError(  # noqa: TRY004 - the dataset is of the right type
            f"decode={asked!r} is not possible: {crop.why}. {crop.remedy}, or leave it at "
            "decode='cpu'"
        )
    return Decoding(choice.batch, choice.why)


def _check_batch_backend(device: torch.device, asked: str) -> None:
    from fastdecode.gpu import _backends

    available = _backends.names(device.type)
    if asked in available:
        return
    if asked in registry.names():
        raise ValueError(
            f"decode={asked!r} names a backend that decodes no batches on {str(device)!r}: use "
            f"decode='cpu', and give the dataset backend={asked!r} to decode with it on the CPU"
        )
    raise UnknownBackend(
        "decode must be 'cpu', 'gpu', 'auto' or the name of a backend that decodes batches on "
        f"{str(device)!r} ({', '.join(available) or 'there is none'}), not {asked!r}"
    )


def _choose_automatically(device: torch.device, source: Source, why: str) -> Decoding:
    """Choose for ``"auto"``; `why` is the reason against the device, empty if there is none."""
    if device.type == "cpu":
        why = why or "batches stay in the host's memory"
    elif not why and source.ours.decode_options.backend is not None:
        why = f"the dataset asks for the backend {source.ours.decode_options.backend!r}"
    if why:
        return _cpu_decoding(why)
    from fastdecode.gpu._policy import choose

    try:
        choice = choose(device)
    except (BackendUnavailable, UnknownBackend, ValueError) as error:
        return _cpu_decoding(str(error).partition("\n")[0])
    return Decoding(choice.batch, choice.why)


def _cpu_decoding(why: str) -> Decoding:
    return Decoding(None, f"the CPU decodes: {why}")


def _whole_batch_crop(
    source: Source, collate_fn: Callable[..., Any] | None, workers: int = 0
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
    if crop.crop.normalize is None:
        why = "its transform makes bytes and normalises nothing"
        return _Obstacle(why, "Let it make torch.float32")
    return crop.crop.normalize


def plan_batches(
    source: Source,
    collate_fn: Callable[..., Any] | None,
    normalize_on: NormalizeOn,
    device: torch.device,
    asked: str,
    decoding: Decoding,
) -> Plan:
    """Decide how batches are made from the dataset in its present state.

    `decoding` is from `choose_decoding`. Raises ValueError if the dataset does not allow it, or no
    longer does.
    """
    if decoding.backend is not None:
        crop = _whole_batch_crop(source, collate_fn)
        if isinstance(crop, EligibleCrop):
            return Plan(source.as_uint8_source(), crop.crop.normalize, decoding, crop)
        if asked != "auto":
            raise ValueError(
                f"decode={asked!r} is not possible any more: {crop.why}. {crop.remedy}"
            )
        decoding = _cpu_decoding(crop.why)
    if normalize_on == "host":
        return Plan(source, None, decoding)
    normalize = _device_normalize(source, collate_fn)
    if isinstance(normalize, _Obstacle):
        raise ValueError(  # noqa: TRY004 - the dataset is of the right type
            f"normalize_on='device' is not possible: {normalize.why}. {normalize.remedy}, or leave "
            "it at normalize_on='host'"
        )
    if device.type == "cpu":  # the floats are the same, and are made faster along with the pixels
        return Plan(source, None, decoding)
    return Plan(source.as_uint8_source(), normalize, decoding)
