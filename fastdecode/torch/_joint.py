"""Pipelines of an image and its boxes or masks, whose first steps run while decoding.

torchvision's functions move the targets, with the numbers that were drawn for the image, so each
target is what it would be as written.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from PIL import Image as PillowImage
from torch.utils._pytree import tree_map

from fastdecode.native._library import lib
from fastdecode.torch import _recognise
from fastdecode.torch._fuse import Fused, read_joint
from fastdecode.torch.mixin import SIZE_OPTIONS
from fastdecode.torch.transforms import EncodedTransform

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fastdecode.api import Data
    from fastdecode.torch._options import DecodeOptions
    from fastdecode.torch.transforms.base import DrawnSample, Recipe, TransformOptions

_MOVED = ("BoundingBoxes", "KeyPoints", "Mask")


class FusedJoint:
    """A pipeline of images with targets: the first steps run while decoding, the rest as written.

    `isolated` says whether all draws of a sample come from its generator.
    """

    def __init__(self, fused: Fused) -> None:
        self._fused, self._head = fused, cast("Recipe", fused.head)
        self.isolated = all(map(_recognise.draws_nothing, fused.rest))

    def make(self, data: Data, target: Any, **options: Unpack[TransformOptions]) -> tuple[Any, Any]:
        """Decode and transform an image, and transform its target alike."""
        fused = self._fused
        pixels, drawn = self._head.make(data, **options)
        sample: Any = fused.as_output(pixels), self._follow(target, drawn)
        for part in fused.rest:
            sample = part(*sample)
        made: tuple[Any, Any] = sample
        return made

    def _follow(self, target: Any, drawn: DrawnSample) -> Any:
        """Do to the boxes, points and masks of a target what was drawn for its image."""
        functional = import_module("torchvision.transforms.v2.functional")

        def move(leaf: Any) -> Any:
            if not self._is_moved(leaf, drawn.sides[::-1]):
                return leaf
            for operation in drawn.operations:
                a, b, c, d = map(int, operation.value[0:4])
                if operation.kind == lib.FD_CROP:
                    leaf = functional.crop(leaf, b, a, d, c)
                elif operation.kind == lib.FD_RESIZE:
                    leaf = functional.resize(leaf, [b, a])
                else:
                    leaf = functional.horizontal_flip(leaf)
            return leaf

        return tree_map(move, target)

    def _is_moved(self, leaf: Any, full_size: tuple[int, ...]) -> bool:
        """Return whether a part of a target lies in the image; raise if its size is another."""
        known = sys.modules["torchvision.tv_tensors"]
        name = type(leaf).__name__
        if type(leaf) in (getattr(known, kind, None) for kind in _MOVED):
            size = tuple(leaf.shape[-2:] if name == "Mask" else leaf.canvas_size)
            if size == full_size:
                return True
            raise ValueError(
                f"the {name} of a target are for an image of (height, width) {size}, but the image "
                f"has {full_size}"
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
