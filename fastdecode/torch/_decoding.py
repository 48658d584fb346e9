"""Who decodes for a `Loader`, and where floats are made: what was asked for, and what goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch

from fastdecode import registry
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.gpu import _backends
from fastdecode.gpu._devices import device_of
from fastdecode.gpu._policy import DeviceChoice, choose
from fastdecode.torch._native_batches import EligibleCrop
from fastdecode.torch._samples import Source
from fastdecode.torch.transforms import Normalize

__all__ = ["Decoding", "NormalizeOn", "Plan", "plan_of", "settle"]

NormalizeOn = Literal["host", "device"]

_WAY_OUT = (
    "Give one of the package's datasets a transform that it does while decoding (see "
    "fastdecode.torch.fuse), without anything after it"
)


class Decoding(NamedTuple):
    """Who decodes.

    Attributes
    ----------
    backend : str or None
        A batch backend, which decodes on the device; None for the CPU.
    why : str
        In words.
    """

    backend: str | None
    why: str


class Plan(NamedTuple):
    """How the batches of an epoch are made.

    Attributes
    ----------
    source : Source
        As bytes, where floats are made later.
    normalize : Normalize or None
        By what they are made later, if they are.
    decoding : Decoding
        Who decodes this epoch: the CPU, too, if the dataset allows nothing else any more.
    eligible : EligibleCrop or None
        Batches are decoded at once, and this becomes of their images.
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
    """Decide who decodes.

    Parameters
    ----------
    asked : str
        ``"cpu"``, ``"gpu"``, ``"auto"`` or the name of a batch backend.
    device : torch.device
    source : Source
    collate_fn : callable or None
    workers : int
        How many worker processes were asked for.

    Returns
    -------
    Decoding

    Raises
    ------
    ValueError, UnknownBackend, BackendUnavailable, RuntimeError
        What is asked for cannot be had; never with ``"auto"``, if the device is there.
    """
    if asked == "cpu":
        return Decoding(None, "the CPU decodes, as asked")
    place = device_of(device)
    hindrance = _hindrance(source, collate_fn, workers)
    if asked == "auto":
        return _found(place, source, hindrance)
    choice = _named(place, asked)
    if hindrance is not None:
        raise ValueError(
            f"decode={asked!r} is not possible: {hindrance.why}. {hindrance.remedy}, or leave it "
            "at decode='cpu'"
        )
    return Decoding(choice.batch, choice.why)


def _named(device: torch.device, asked: str) -> DeviceChoice:
    """Choose whom the caller wants."""
    if asked == "gpu":
        return choose(device, "gpu")
    able = _backends.names(device.type)
    if asked in able:
        return choose(device, "auto", asked)
    if asked in registry.names():
        raise ValueError(
            f"decode={asked!r} names a backend that decodes no batches on {str(device)!r}: let "
            "decode be 'cpu', and the dataset's backend the one that is to decode there"
        )
    raise UnknownBackend(
        "decode must be 'cpu', 'gpu', 'auto' or the name of a backend that decodes batches on "
        f"{str(device)!r} ({', '.join(able) or 'there is none'}), not {asked!r}"
    )


def _found(device: torch.device, source: Source, hindrance: _Hindrance | None) -> Decoding:
    """Choose for somebody who leaves it to us."""
    why = "" if hindrance is None else hindrance.why
    if device.type == "cpu":
        why = why or "batches stay in the host's memory"
    elif not why and source.ours.backend is not None:
        why = f"the dataset asks for the backend {source.ours.backend!r}"
    if why:
        return _on_cpu(why)
    try:
        choice = choose(device)
    except (BackendUnavailable, UnknownBackend, ValueError) as error:
        return _on_cpu(str(error).partition("\n")[0])
    return Decoding(choice.batch, choice.why)


def _on_cpu(why: str) -> Decoding:
    return Decoding(None, f"the CPU decodes: {why}")


def _hindrance(
    source: Source, collate_fn: Callable[..., Any] | None, workers: int
) -> _Hindrance | None:
    """Say what speaks against decoding batches at once; None if nothing does."""
    if workers:
        return _Hindrance("worker processes make samples one by one", "Leave out workers")
    if collate_fn is not None:
        return _Hindrance("collate_fn wants samples one by one", "Leave out collate_fn")
    eligible = _at_once(source)
    return eligible if isinstance(eligible, _Hindrance) else None


def _at_once(source: Source) -> EligibleCrop | _Hindrance:
    """Return how a dataset's batches are decoded at once, or why they are not."""
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
    """Decide how batches are made of a dataset as it is now.

    Parameters
    ----------
    source : Source
    collate_fn : callable or None
    normalize_on : {"host", "device"}
    device : torch.device
    asked : str
        As of `settle`.
    decoding : Decoding
        From `settle`.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        The dataset does not allow it, or not any more.
    """
    if decoding.backend is not None:
        how = _hindrance(source, collate_fn, 0) or _at_once(source)
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
