"""Who decodes for a `Loader`, and where floats are made: what was asked for, and what goes."""

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

_WAY_OUT = (
    "Give one of the package's datasets a transform that it does while decoding (see "
    "fastdecode.torch.fuse), without anything after it"
)


class Decoding(NamedTuple):
    """Who decodes: a batch backend on the device, or None for the CPU; and why, in words."""

    backend: str | None
    why: str


class Plan(NamedTuple):
    """How the batches of an epoch are made.

    `source` makes bytes where floats are made later, by `normalize`. `eligible` is there if batches
    are decoded at once, and becomes of their images. `decoding` is the CPU, too, if the dataset
    allows nothing else any more.
    """

    source: Source
    normalize: Normalize | None
    decoding: Decoding
    eligible: EligibleCrop | None = None


class _Hindrance(NamedTuple):
    """What speaks against it, and what to do, in words."""

    why: str
    remedy: str


def settle(
    asked: str,
    device: torch.device,
    source: Source,
    collate_fn: Callable[..., Any] | None,
    workers: int,
) -> Decoding:
    """Decide who decodes: ``"cpu"``, ``"gpu"``, ``"auto"`` or a batch backend's name is asked for.

    What cannot be had is a ValueError, UnknownBackend, BackendUnavailable or RuntimeError; never
    with ``"auto"``, if the device is there.
    """
    if asked == "cpu":
        return Decoding(None, "the CPU decodes, as asked")
    from fastdecode.gpu._devices import device_of
    from fastdecode.gpu._policy import choose

    place = device_of(device)
    how = _at_once(source, collate_fn, workers)
    if asked == "auto":
        return _found(place, source, how.why if isinstance(how, _Hindrance) else "")
    if asked == "gpu":
        choice = choose(place, "gpu")
    else:
        _check_name(place, asked)
        choice = choose(place, "auto", asked)
    if isinstance(how, _Hindrance):
        raise ValueError(  # noqa: TRY004 - the dataset is of the right type
            f"decode={asked!r} is not possible: {how.why}. {how.remedy}, or leave it at "
            "decode='cpu'"
        )
    return Decoding(choice.batch, choice.why)


def _check_name(device: torch.device, asked: str) -> None:
    from fastdecode.gpu import _backends

    able = _backends.names(device.type)
    if asked in able:
        return
    if asked in registry.names():
        raise ValueError(
            f"decode={asked!r} names a backend that decodes no batches on {str(device)!r}: let "
            "decode be 'cpu', and the dataset's backend the one that is to decode there"
        )
    raise UnknownBackend(
        "decode must be 'cpu', 'gpu', 'auto' or the name of a backend that decodes batches on "
        f"{str(device)!r} ({', '.join(able) or 'there is none'}), not {asked!r}"
    )


def _found(device: torch.device, source: Source, why: str) -> Decoding:
    """Choose for somebody who leaves it to us; `why` is what speaks against the device."""
    if device.type == "cpu":
        why = why or "batches stay in the host's memory"
    elif not why and source.ours.backend is not None:
        why = f"the dataset asks for the backend {source.ours.backend!r}"
    if why:
        return _on_cpu(why)
    from fastdecode.gpu._policy import choose

    try:
        choice = choose(device)
    except (BackendUnavailable, UnknownBackend, ValueError) as error:
        return _on_cpu(str(error).partition("\n")[0])
    return Decoding(choice.batch, choice.why)


def _on_cpu(why: str) -> Decoding:
    return Decoding(None, f"the CPU decodes: {why}")


def _at_once(
    source: Source, collate_fn: Callable[..., Any] | None, workers: int = 0
) -> EligibleCrop | _Hindrance:
    """Return how a dataset's batches are decoded at once, or what speaks against that."""
    if workers:
        return _Hindrance("worker processes make samples one by one", "Leave out workers")
    if collate_fn is not None:
        return _Hindrance("collate_fn wants samples one by one", "Leave out collate_fn")
    crop = source.crop
    if isinstance(crop, str):
        return _Hindrance(crop, _WAY_OUT)
    if not source.isolated:
        why = "its transform's random draws are not its own to control"
        return _Hindrance(why, "Let all of them come from the generator that it is given")
    if crop.crop.interpolation != "bilinear":
        return _Hindrance("devices resize bilinearly alone", "Use interpolation='bilinear'")
    return crop


def _floats_later(source: Source, collate_fn: Callable[..., Any] | None) -> Normalize | _Hindrance:
    """Return by what a dataset's floats are made later, or why they are not."""
    if collate_fn is not None:
        why = "collate_fn gets samples, and only it knows where their images go"
        return _Hindrance(why, "Leave out collate_fn")
    crop = source.crop
    if isinstance(crop, str):
        return _Hindrance(crop, _WAY_OUT)
    if crop.crop.normalize is None:
        why = "its transform makes bytes, and normalises nothing"
        return _Hindrance(why, "Let it make torch.float32")
    return crop.crop.normalize


def plan_of(
    source: Source,
    collate_fn: Callable[..., Any] | None,
    normalize_on: NormalizeOn,
    device: torch.device,
    asked: str,
    decoding: Decoding,
) -> Plan:
    """Decide how batches are made of a dataset as it is now; `decoding` is from `settle`.

    It is a ValueError if the dataset does not allow it, or not any more.
    """
    if decoding.backend is not None:
        how = _at_once(source, collate_fn)
        if isinstance(how, EligibleCrop):
            return Plan(source.of_bytes(), how.crop.normalize, decoding, how)
        if asked != "auto":
            raise ValueError(f"decode={asked!r} is not possible any more: {how.why}. {how.remedy}")
        decoding = _on_cpu(how.why)
    if normalize_on == "host":
        return Plan(source, None, decoding)
    normalize = _floats_later(source, collate_fn)
    if isinstance(normalize, _Hindrance):
        raise ValueError(  # noqa: TRY004 - the dataset is of the right type
            f"normalize_on='device' is not possible: {normalize.why}. {normalize.remedy}, or leave "
            "it at normalize_on='host'"
        )
    if device.type == "cpu":  # the same floats, and sooner where the pixels are at hand
        return Plan(source, None, decoding)
    return Plan(source.of_bytes(), normalize, decoding)
