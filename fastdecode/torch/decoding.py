"""Who decodes for a `Loader`, and where floats are made: what was asked for, and what goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import torch

from fastdecode.device.choice import choose
from fastdecode.device.where import device_of
from fastdecode.errors import BackendUnavailable, UnknownBackend
from fastdecode.torch.source import Source
from fastdecode.torch.transforms import Normalize
from fastdecode.torch.way import Way

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
    way : Way or None
        Batches are decoded at once, and this becomes of their pictures.
    """

    source: Source
    normalize: Normalize | None
    way: Way | None = None


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
    choice = choose(place, "gpu") if asked == "gpu" else choose(place, "auto", asked)
    if choice.batch is None:
        raise ValueError(
            f"decode={asked!r} names a backend that decodes no batches on {str(place)!r}: let "
            "decode be 'cpu', and the dataset's backend the one that is to decode there"
        )
    if hindrance:
        why = f"decode={asked!r} is not possible: {hindrance}"
        raise ValueError(f"{why}. {_WAY_OUT}, or leave it at decode='cpu'")
    return Decoding(choice.batch, choice.why)


def _found(device: torch.device, source: Source, hindrance: str) -> Decoding:
    """Choose for somebody who leaves it to us."""
    if device.type == "cpu":
        hindrance = hindrance or "batches stay in the host's memory"
    elif not hindrance and source.decoding.backend is not None:
        hindrance = f"the dataset asks for the backend {source.decoding.backend!r}"
    if hindrance:
        return Decoding(None, f"the CPU decodes: {hindrance}")
    try:
        choice = choose(device)
    except (BackendUnavailable, UnknownBackend, ValueError) as error:
        return Decoding(None, f"the CPU decodes: {str(error).partition(chr(10))[0]}")
    return Decoding(choice.batch, choice.why)


def _hindrance(source: Source, collate_fn: Callable[..., Any] | None, workers: int) -> str:
    """Say what speaks against decoding batches at once; nothing if nothing does."""
    if workers:
        return "worker processes (workers) make samples one by one"
    if collate_fn is not None:
        return "collate_fn wants samples one by one"
    crop = source.crop
    return crop if isinstance(crop, str) else ""


def plan_of(
    source: Source,
    collate_fn: Callable[..., Any] | None,
    normalize_on: NormalizeOn,
    decoding: Decoding,
    asked: str,
) -> Plan:
    """Decide how batches are made of a dataset as it is now.

    Parameters
    ----------
    source : Source
    collate_fn : callable or None
    normalize_on : {"host", "device"}
    decoding : Decoding
    asked : str
        As of `settle`.

    Returns
    -------
    Plan

    Raises
    ------
    ValueError
        The dataset does not allow it, or not any more.
    """
    if decoding.backend is None and normalize_on == "host":
        return Plan(source, None)
    crop = source.crop
    if decoding.backend is not None:
        if not isinstance(crop, str):
            return Plan(source.of_bytes(), crop.crop.normalize, crop)
        if asked != "auto":
            raise ValueError(f"decode={asked!r} is not possible any more: {crop}. {_WAY_OUT}")
        if normalize_on == "host":
            return Plan(source, None)
    why = crop if isinstance(crop, str) else ""
    if collate_fn is not None:
        why = "collate_fn gets samples, and only it knows where their pictures go"
    elif not isinstance(crop, str) and crop.crop.normalize is None:
        why = "its transform makes bytes, and normalises nothing"
    if why or isinstance(crop, str):
        raise ValueError(
            f"normalize_on='device' is not possible: {why}. {_WAY_OUT}, or leave it at "
            "normalize_on='host'"
        )
    return Plan(source.of_bytes(), crop.crop.normalize)
