"""Pipelines of an image and its boxes or masks, whose first steps run while decoding.

torchvision's functions move the targets, with the numbers that were drawn for the image, so each
target is what it would be as written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from PIL import Image as PillowImage
from torch.utils._pytree import tree_leaves, tree_map

from fastdecode.native._augment import Impossible, Operation, Program, as_operations
from fastdecode.native._library import lib
from fastdecode.torch import _recognise
from fastdecode.torch._fuse import Fused, build_fused, first_recipe
from fastdecode.torch._options import SIZE_OPTIONS
from fastdecode.torch._stages import Called, as_written, draws_for_itself
from fastdecode.torch._unchanged import forget
from fastdecode.torch._user_code import DrawingFrom
from fastdecode.torch.transforms import EncodedTransform
from fastdecode.torch.transforms._random_crop import SampleGenerator
from fastdecode.torch.transforms.base import DrawnSample, Recipe

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from fastdecode._decode.api import Data
    from fastdecode.torch._options import DecodeOptions
    from fastdecode.torch.transforms.base import TransformOptions

_MOVED = ("BoundingBoxes", "KeyPoints", "Mask")
_OF_TARGETS = (
    *("ClampBoundingBoxes", "ClampKeyPoints", "ConvertBoundingBoxFormat"),
    *("SanitizeBoundingBoxes", "SanitizeKeyPoints"),
)
"""Transforms that leave the image as it is."""


@dataclass(frozen=True)
class _Way:
    """How samples are made: what is drawn, and then the parts that are called.

    What is drawn in turn is a recipe of known parts, or a transform for which the boxes matter, or
    which changes nothing but the target.
    """

    fused: Fused
    drawn: tuple[Any, ...]

    @classmethod
    def of(cls, parts: Sequence[Any], begin: Recipe) -> _Way:
        """Follow a pipeline as long as its parts are known, in one program after another."""
        recipe, drawn, count = begin, list[Any](), 0
        while True:
            made, more, reason = _recognise.read_pipeline(parts[count:], recipe)
            if drawn and made.by_torch:  # which resizes only what is decoded
                break
            count, recipe = count + more, made.but(program=Program(), parts=())
            drawn += [made] if made.program else []
            if count == len(parts):
                break
            following = _beside_targets(parts[count], recipe)
            if following is None:
                break
            drawn.append(parts[count])
            count, recipe = count + 1, following
        steps = [step for one in drawn if isinstance(one, Recipe) for step in one.program]
        whole = recipe.but(program=Program(steps), shape=None)
        return cls(build_fused(whole, parts, count, reason), tuple(drawn))

    @property
    def draws_alike(self) -> bool:
        """Whether it does all, and is known to draw from torch's generator what is drawn there."""
        recipes = [one for one in self.drawn if isinstance(one, Recipe)]
        return not self.fused.rest and all(one.parts for one in recipes)

    def draw(
        self, target: Any, width: int, height: int, generator: torch.Generator | None
    ) -> tuple[DrawnSample, Any]:
        """Draw what is done to an image of this size, and do it to its target."""
        sides, operations = (width, height), list[Any]()
        kept: list[Any] = []  # what some of them lie in
        for one in self.drawn:
            if isinstance(one, Recipe):
                made = one.draw(width, height, generator)
                (height, width), target = made.size, _follow(target, made.operations)
                kept.append(made)
                operations.extend(made.operations)
            elif _is_placed(one):
                operation, (height, width), target = _place(one, target, width, height)
                operations.append(operation)
            else:
                target = one(_canvas(width, height), target)[1]
        return DrawnSample.of(as_operations(operations), sides, (height, width)), target


class FusedJoint:
    """A pipeline of images with targets: the first steps run while decoding, the rest as written.

    `isolated` says whether all draws of a sample come from its generator.
    """

    def __init__(self, parts: Sequence[Any], begin: Recipe) -> None:
        self._alone = _Way.of(parts, begin)
        self._in_loader = _Way.of(parts, begin.but(augments=True))
        self.does_something = bool(self._alone.drawn or self._in_loader.drawn)
        rest = self._in_loader.fused.rest
        self.isolated = all(Called(part).isolated for part in rest)
        placed = any(not isinstance(one, Recipe) for one in self._in_loader.drawn)
        self._draws_in_torch = placed or not all(map(_recognise.draws_nothing, rest))

    def make(self, data: Data, target: Any, **options: Unpack[TransformOptions]) -> tuple[Any, Any]:
        """Decode and transform an image, and transform its target alike."""
        generator = options.get("generator")
        if not isinstance(generator, SampleGenerator):
            return self._make(self._alone, data, target, **options)
        # It looks at each call of torch, which is a tenth of the time of a sample with boxes.
        draws = self._draws_in_torch and self.isolated and draws_for_itself(generator)
        drawing = DrawingFrom(generator) if draws else nullcontext()
        with suppress(Impossible), drawing:
            return self._make(self._in_loader, data, target, **options)
        with as_written(generator):
            return self._make(self._alone, data, target, **options)

    def record(self, image: PillowImage.Image, target: Any) -> tuple[Any, Any] | None:
        """Do the same, but make the image when it is used; None if it is decoded, or cannot be."""
        way, (width, height) = self._in_loader, image.size
        way = way if way.draws_alike else self._alone
        begin = way.fused.recording_of(image)
        if begin is None or any(map(self._is_image, tree_leaves(target))):
            return None
        tree_map(partial(self._check, full_size=(height, width)), target)
        state = torch.default_generator.get_state()
        try:
            drawn, moved = way.draw(target, width, height, None)
        except Impossible:
            torch.default_generator.set_state(state)
            return None
        recorded = begin(drawn)
        # A step that is called may ask for the exact class of its image.
        sample: Any = recorded.made() if way.fused.rest else recorded, moved
        for part in way.fused.rest:
            sample = part(*sample)
        made: tuple[Any, Any] = sample
        return made

    @property
    def alone(self) -> Fused:
        """What is done outside of a `Loader`."""
        return self._alone.fused

    def _make(self, way: _Way, data: Data, target: Any, **options: Any) -> tuple[Any, Any]:
        followed = []

        def draw(width: int, height: int, generator: torch.Generator | None) -> DrawnSample:
            tree_map(partial(self._check, full_size=(height, width)), target)
            drawn, moved = way.draw(target, width, height, generator)
            followed.append(moved)
            return drawn

        recipe = cast("Recipe", way.fused.head).but(draw=draw)
        pixels, _ = recipe.make(data, **options)
        sample: Any = way.fused.as_output(pixels, data), followed[-1]
        for part in way.fused.rest:
            sample = part(*sample)
        made: tuple[Any, Any] = sample
        return made

    def _check(self, leaf: Any, full_size: tuple[int, ...]) -> None:
        """Raise if a part of a target lies in an image of another size, or is an image itself."""
        if _is_moved(leaf):
            size = tuple(leaf.shape[-2:] if type(leaf).__name__ == "Mask" else leaf.canvas_size)
            if size != full_size:
                raise ValueError(
                    f"the {type(leaf).__name__} of a target are for an image of (height, width) "
                    f"{size}, but the image has {full_size}"
                )
            return
        if self._is_image(leaf):
            raise TypeError(
                f"a target holds a {type(leaf).__name__}, which torchvision transforms as another "
                "image: for a mask, make it a tv_tensors.Mask; for an image, give the dataset "
                "fuse=False"
            )

    def _is_image(self, leaf: Any) -> bool:
        """Return whether the pipeline transforms a part of a target as an image."""
        converts = not {"ToImage", "ToTensor"}.isdisjoint(self._in_loader.fused.fused)
        is_array = converts and isinstance(leaf, np.ndarray)
        known = sys.modules["torchvision.tv_tensors"]
        images = PillowImage.Image, known.TVTensor
        return is_array or (isinstance(leaf, images) and not _is_moved(leaf))

    def __repr__(self) -> str:
        alone, there = self.alone, self._in_loader.fused
        stages: list[Any] = list(map(Called, there.rest))
        in_loader = Fused(there.head, stages, form=there.form, fused=there.fused)
        shown = Fused(
            *(alone.head, alone.rest),
            form=alone.form,
            fused=alone.fused,
            reason=alone.reason,
            in_loader=in_loader,
        )
        return repr(shown)


def _is_moved(leaf: Any) -> bool:
    """Return whether a part of a target lies in the image."""
    known = sys.modules["torchvision.tv_tensors"]
    return type(leaf) in (getattr(known, kind, None) for kind in _MOVED)


def _follow(target: Any, operations: Any) -> Any:
    """Do to the boxes, points and masks of a target what was drawn for its image."""
    functional = import_module("torchvision.transforms.v2.functional")

    def move(leaf: Any) -> Any:
        if not _is_moved(leaf):
            return leaf
        for operation in operations:
            a, b, c, d = map(int, operation.value[0:4])
            if operation.kind == lib.FD_CROP:
                leaf = functional.crop(leaf, b, a, d, c)
            elif operation.kind == lib.FD_RESIZE:
                leaf = functional.resize(leaf, [b, a])
            elif operation.kind == lib.FD_MIRROR:
                leaf = functional.horizontal_flip(leaf)
            elif operation.kind == lib.FD_TURN_OVER:
                leaf = functional.vertical_flip(leaf)
        return leaf

    return tree_map(move, target)


# ---- transforms for which the boxes matter ----


def _beside_targets(part: Any, recipe: Recipe) -> Recipe | None:
    """Return the recipe after a part that is called for the target; None if it is not known."""
    name = type(part).__qualname__
    if not _recognise.draws_in_torch(part):
        return None
    if _is_placed(part):
        in_bytes = recipe.form in ("pil", "uint8") and recipe.image is not np.ndarray
        return recipe if in_bytes and (name == "RandomIoUCrop" or _fill_of(part)) else None
    if name == "ToDtype" and isinstance(part.dtype, dict):
        if recipe.image is not _recognise.image_tensor():  # the names are of other types
            return None
        made, known, _ = _recognise.read_pipeline([_of_image(part)], recipe)
        return made if known else None
    if name == "ToPureTensor" and recipe.image is not None:
        return recipe.but(image=None)
    return recipe if name in _OF_TARGETS else None


def _is_placed(part: Any) -> bool:
    return type(part).__qualname__ in ("RandomIoUCrop", "RandomZoomOut")


def _of_image(part: Any) -> Any:
    """Return the conversion of an image that a ToDtype makes which names the types."""
    image = _recognise.image_tensor()
    dtype = part.dtype[image] if image in part.dtype else part.dtype.get("others")
    return type(part)(dtype, scale=part.scale) if dtype is not None else None


def _canvas(width: int, height: int) -> Any:
    """Return an image without pixels."""
    pixels = torch.empty((3, height, width), dtype=torch.uint8, device="meta")
    return sys.modules["torchvision.tv_tensors"].Image(pixels)


def _fill_of(part: Any) -> tuple[int, int, int] | None:
    """Return the levels that RandomZoomOut gives the border of an image."""
    given = getattr(part, "fill", 0)
    levels = tuple(given) if isinstance(given, (list, tuple)) else (given,) * 3
    known = len(levels) == 3 and all(type(one) is int and 0 <= one <= 255 for one in levels)
    return levels if known else None


def _place(
    part: Any, target: Any, width: int, height: int
) -> tuple[Operation, tuple[int, int], Any]:
    """Let a transform draw where the result lies in an image of this size, without its pixels.

    Return that as an operation, the size of the result, and the target moved.
    """
    tensors = sys.modules["torchvision.tv_tensors"]
    canvas = _canvas(width, height)
    size = {"format": "XYXY", "canvas_size": (height, width)}
    fill = _fill_of(part)
    if type(part).__qualname__ == "RandomIoUCrop":
        made, target = part(canvas, target)
        rows, columns = made.shape[-2:]
        top, left = divmod(made.as_subclass(torch.Tensor).storage_offset(), width)
        return Operation("crop", (left, top, columns, rows), "constant"), (rows, columns), target
    corner = tensors.BoundingBoxes([[0, 0, 1, 1]], **size)
    made, (target, corner) = part(canvas, (target, corner))
    rows, columns = made.shape[-2:]
    left, top = map(int, corner[0, :2].tolist())
    border = (left, top, columns - width - left, rows - height - top)
    return Operation("pad", border, "constant", fill or (0, 0, 0)), (rows, columns), target


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
    begin = first_recipe(options, joint=True)
    forget()
    fused = FusedJoint(list(_recognise.flatten(transforms)), begin)
    return fused if fused.does_something else transforms
