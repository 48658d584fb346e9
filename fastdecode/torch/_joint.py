"""Pipelines of an image and its boxes or masks, whose first steps run while decoding.

torchvision's functions move the targets, with the numbers that were drawn for the image, so each
target is what it would be as written.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image as PillowImage
from torch.utils._pytree import tree_map

from fastdecode.torch import _recognise
from fastdecode.torch._fuse import Fused, read_joint
from fastdecode.torch.mixin import SIZE_OPTIONS
from fastdecode.torch.transforms import EncodedTransform
from fastdecode.torch.transforms.crops import RandomResizedCrop, Resize

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fastdecode.api import Data
    from fastdecode.geometry import Geometry
    from fastdecode.torch._options import DecodeOptions
    from fastdecode.torch.transforms.base import TransformOptions

_MOVED = ("BoundingBoxes", "KeyPoints", "Mask")


class FusedJoint:
    """A pipeline of images with targets: the first steps run while decoding, the rest as written.

    `isolated` says whether all draws of a sample come from its generator.
    """

    def __init__(self, fused: Fused) -> None:
        self._fused = fused
        self.isolated = all(map(_recognise.draws_nothing, fused.rest))

    def make(self, data: Data, target: Any, **options: Unpack[TransformOptions]) -> tuple[Any, Any]:
        """Decode and transform an image, and transform its target alike."""
        fused = self._fused
        pixels, geometry = fused.head.with_geometry(data, **options)
        sample: Any = fused.as_output(pixels), self._follow(target, geometry)
        for part in fused.rest:
            sample = part(*sample)
        made: tuple[Any, Any] = sample
        return made

    def _follow(self, target: Any, geometry: Geometry) -> Any:
        """Crop, resize and flip the boxes, points and masks of a target."""
        functional = import_module("torchvision.transforms.v2.functional")
        size = list(geometry.size)
        left, top, right, bottom = map(round, geometry.box)
        box = (top, left, bottom - top, right - left)
        flips_first = isinstance(self._fused.head, Resize) and self._fused.head.flips_first

        def move(leaf: Any) -> Any:
            if not self._is_moved(leaf, geometry):
                return leaf
            if geometry.flipped and flips_first:
                leaf = functional.horizontal_flip(leaf)
            if isinstance(self._fused.head, RandomResizedCrop):
                leaf = functional.resized_crop(leaf, *box, size)
            else:
                leaf = functional.resize(leaf, size)
            return (
                functional.horizontal_flip(leaf) if geometry.flipped and not flips_first else leaf
            )

        return tree_map(move, target)

    def _is_moved(self, leaf: Any, geometry: Geometry) -> bool:
        """Return whether a part of a target lies in the image; raise if its size is another."""
        known = sys.modules["torchvision.tv_tensors"]
        name = type(leaf).__name__
        if type(leaf) in (getattr(known, kind, None) for kind in _MOVED):
            size = tuple(leaf.shape[-2:] if name == "Mask" else leaf.canvas_size)
            if size == geometry.full_size:
                return True
            height, width = geometry.full_size or (0, 0)
            raise ValueError(
                f"the {name} of a target are for an image of (height, width) {size}, but the image "
                f"has {(height, width)}"
            )
        converts = not {"ToImage", "ToTensor"}.isdisjoint(self._fused.fused)
        is_array = converts and isinstance(leaf, np.ndarray)
        if is_array or isinstance(leaf, (PillowImage.Image, known.TVTensor)):
            raise TypeError(
                f"a target holds a {name}, which torchvision transforms as another image: for a "
                "mask, make it a tv_tensors.Mask; for an image, give the dataset fuse=False"
            )
        return False

    def __repr__(self) -> str:
        return repr(self._fused)


def resolve_joint(transforms: Any, options: DecodeOptions, *, may_fuse: bool) -> Any:
    """Fuse a pipeline of images and targets if allowed; else return it, to be called with both."""
    if not callable(transforms):
        raise TypeError(f"transforms must be callable with an image and its target: {transforms!r}")
    first = next(_recognise.flatten(transforms), None)
    if isinstance(first, EncodedTransform):
        raise TypeError(
            f"{type(first).__name__} takes no targets: give it as transform, and move boxes and "
            "masks in map_target"
        )
    if not may_fuse or options.describe(*SIZE_OPTIONS) or options.output == "array":
        return transforms
    fused = read_joint(transforms, options)
    return transforms if fused is None else FusedJoint(fused)
