"""Whether the native core can make a dataset's samples by itself, and how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from fastdecode.torch.fusing import Fused
from fastdecode.torch.transforms import direct
from fastdecode.torch.transforms.base import Crop
from fastdecode.torch.transforms.normalize import Normalize

__all__ = ["Way", "way_of"]

# What a subclass may not have changed.
_OF_DATASET = ("__getitem__", "fetch", "load", "_encoded", "_image", "_made")
_OF_CROP = ("__call__", "with_geometry", "reduce_for", "_checked", "_pixels", "numbers")


class Way(NamedTuple):
    """How a dataset makes its samples, where the core can do it.

    Attributes
    ----------
    crop : Crop
    draws : int
        As of `Fused`.
    image : type or None
        As of `Fused`.
    maps : bool
        There is a ``map_target``.
    """

    crop: Crop
    draws: int
    image: type[torch.Tensor] | None
    maps: bool

    def described(self, *, orient: bool) -> Any:
        """Describe the crop to the core, which then draws by itself.

        Parameters
        ----------
        orient : bool
            Of the dataset.

        Returns
        -------
        cffi's ``fd_crop *``, or None
            None where Python has to draw.
        """
        try:
            made = self.crop.described(orient=orient)
        except Exception:  # it comes again when an item is made by itself
            return None
        sides = None if made is None else (3, made.height, made.width)
        return made if sides == self.crop.shape else None


def way_of(dataset: Any, ours: type) -> Way | None:
    """Find out how to make samples.

    Parameters
    ----------
    dataset : DecodeDataset
    ours : type
        `DecodeDataset` itself: what a subclass has overridden is not passed over.

    Returns
    -------
    Way or None
        None where the dataset, its transform or the choice of a backend speak against it.
    """
    if dataset._loader is not None or not _inherits(type(dataset), ours, _OF_DATASET):
        return None
    transform, draws, image = dataset._chosen().transform, 0, None
    if type(transform) is Fused:
        if transform.rest or transform.form != "tensor":
            return None
        draws, image, transform = transform.draws, transform.image, transform.head
    if not isinstance(transform, Crop) or not _inherits(type(transform), Crop, _OF_CROP):
        return None
    floats = transform.dtype == torch.float32
    if type(transform.normalize) is not (Normalize if floats else type(None)):
        return None
    if transform.shape is None or not direct.usable(dataset.backend):
        return None
    return Way(transform, draws, image, dataset._maps_targets())


def _inherits(kind: type, base: type, names: Sequence[str]) -> bool:
    return all(getattr(kind, name) is getattr(base, name) for name in names)
