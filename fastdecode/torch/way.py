"""Whether others can make a dataset's samples, and how: the native core, or a batch backend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from fastdecode.resizing import core_may_decode
from fastdecode.torch.fusing import Fused
from fastdecode.torch.transforms.base import Crop
from fastdecode.torch.transforms.normalize import Normalize

__all__ = ["Way", "crop_of", "way_of"]

# What a subclass may not have changed.
_OF_DATASET = ("__getitem__", "fetch", "load", "_encoded", "_image", "_made")
_OF_CROP = ("__call__", "with_geometry", "reduce_for", "_checked", "_pixels", "core_resize")


class Way(NamedTuple):
    """How a dataset makes its samples, where others than it can do the same.

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
    """Find out how the core makes samples.

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
    found = crop_of(dataset, ours)
    return found if isinstance(found, Way) and core_may_decode(dataset.backend) else None


def crop_of(dataset: Any, ours: type) -> Way | str:
    """Find out whether samples are crops that something else than the dataset may make.

    Parameters
    ----------
    dataset, ours
        As for `way_of`.

    Returns
    -------
    Way, or str
        What speaks against it, in words.
    """
    if dataset._loader is not None:
        return "the dataset has a loader of its own"
    if changed := _changed(type(dataset), ours, _OF_DATASET):
        return f"{type(dataset).__name__} has its own {changed}"
    transform, draws, image = dataset._chosen().transform, 0, None
    if type(transform) is Fused:
        if transform.rest:
            return f"{type(transform.rest[0]).__name__} comes after what is done while decoding"
        if transform.form != "tensor":
            return "its transform makes Pillow images"
        draws, image, transform = transform.draws, transform.image, transform.head
    if not isinstance(transform, Crop):
        return f"its transform ({type(transform).__name__}) is not one that is done while decoding"
    if changed := _changed(type(transform), Crop, _OF_CROP):
        return f"{type(transform).__name__} has its own {changed}"
    floats = transform.dtype == torch.float32
    if type(transform.normalize) is not (Normalize if floats else type(None)):
        return f"{type(transform.normalize).__name__} is not the package's Normalize"
    if transform.shape is None:
        return "its pictures differ in size"
    return Way(transform, draws, image, dataset._maps_targets())


def _changed(kind: type, base: type, names: Sequence[str]) -> str:
    """Name the first of these methods that a class has made its own."""
    return next((name for name in names if getattr(kind, name) is not getattr(base, name)), "")
