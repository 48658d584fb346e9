"""A transform without its last step: bytes, which become floats where they are wanted."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch

from fastdecode.torch.fusing import Fused
from fastdecode.torch.transforms.base import Crop, EncodedTransform
from fastdecode.torch.transforms.normalize import Normalize

__all__ = ["as_bytes", "for_slot", "put"]

_C = TypeVar("_C", bound=Crop)


def as_bytes(crop: _C) -> _C:
    """Return the same crop as one that makes ``torch.uint8``, with the same draws.

    Parameters
    ----------
    crop : Crop
    """
    if crop.normalize is None:
        return crop
    plain = copy.copy(crop)
    plain.dtype, plain.normalize = torch.uint8, None
    return plain


def for_slot(transform: EncodedTransform, out: torch.Tensor | None) -> Any:
    """Return the transform that fills a slot of a batch.

    Parameters
    ----------
    transform : EncodedTransform
    out : tensor or None

    Returns
    -------
    EncodedTransform
        If the slot is for bytes, and the transform ends by normalising: without that. Else the
        transform itself, which says what does not fit.
    """
    if out is None or out.dtype == transform.dtype or out.dtype != torch.uint8:
        return transform
    if type(transform) is Fused and not transform.rest and transform.form == "tensor":
        return Fused(for_slot(transform.head, out), draws=transform.draws)
    if isinstance(transform, Crop) and type(transform.normalize) is Normalize:
        return as_bytes(transform)
    return transform


def put(image: Any, out: torch.Tensor, transform: Any) -> torch.Tensor:
    """Write a finished picture into a slot of a batch.

    Parameters
    ----------
    image : tensor or array of the slot's shape
        As from the transform; or bytes, which are taken as they are.
    out : tensor
    transform : callable or None
        The dataset's. If it ends by normalising but the slot is for bytes, that is undone.

    Returns
    -------
    tensor
        `out`.
    """
    made = torch.as_tensor(image)
    head = transform.head if type(transform) is Fused else transform
    normalize = head.normalize if isinstance(head, Crop) else None
    if out.dtype == torch.uint8 != made.dtype and type(normalize) is Normalize:
        made = normalize.undone(made)
    return out.copy_(made)
