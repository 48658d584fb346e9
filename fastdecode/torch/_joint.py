"""Pipelines of an image and its boxes or masks, whose first steps run while decoding.

torchvision's functions move the targets, with the numbers that were drawn for the image, so each
target is what it would be as written.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from PIL import Image as PillowImage
from torch.utils._pytree import tree_leaves, tree_map

from fastdecode.native._augment import Impossible, Operation, Program, as_operations
from fastdecode.native._library import lib
from fastdecode.torch import _recognise
from fastdecode.torch._options import SIZE_OPTIONS
from fastdecode.torch._plan import Plan, first_recipe
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


class JointPlan:
    """The plan of a pipeline that is called with an image and its target.

    What is drawn in turn is a recipe of known parts, or a transform for which the boxes matter, or
    which changes nothing but the target. Then the other parts are called.
    """

    def __init__(self, parts: Sequence[Any], begin: Recipe, *, called: bool = False) -> None:
        self._parts = tuple(parts)
        self._begin = begin
        recipe, drawn, count = begin, list[Any](), 0
        while not called:
            made, more, reason = _recognise.read_pipeline(parts[count:], recipe)
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
        self.plan = Plan(whole, parts, count, "" if called else reason)
        self._drawn = tuple(drawn)
        self.does_something = bool(drawn)
        self.isolated = all(Called(part).isolated for part in self.plan.rest)
        placed = not all(isinstance(one, Recipe) for one in drawn)
        self._draws_in_torch = placed or not all(map(_recognise.draws_nothing, self.plan.rest))

    @cached_property
    def alike(self) -> JointPlan:
        """The plan for draws from the global generators, as `Plan.alike`."""
        known = all(one.parts for one in self._drawn if isinstance(one, Recipe))
        return self if known else JointPlan(self._parts, self._begin.but(draws_alike=True))

    @cached_property
    def as_written(self) -> JointPlan:
        """The plan that calls every part, with the decoded image."""
        return JointPlan(self._parts, self._begin, called=True)

    def make(self, data: Data, target: Any, **options: Unpack[TransformOptions]) -> tuple[Any, Any]:
        """Decode and transform an image, and transform its target alike."""
        generator = options.get("generator")
        plan = self if isinstance(generator, SampleGenerator) else self.alike
        # It looks at each call of torch, which is a tenth of the time of a sample with boxes.
        looks = self._draws_in_torch and self.isolated
        looks_for = generator if looks and draws_for_itself(generator) else None
        drawing = nullcontext() if looks_for is None else DrawingFrom(looks_for)
        with suppress(Impossible), drawing:
            return plan._make(data, target, **options)
        with as_written(generator):
            return self.as_written._make(data, target, **options)

    def record(self, image: PillowImage.Image, target: Any) -> tuple[Any, Any] | None:
        """Do the same, but make the image when it is used; None if it is decoded, or cannot be."""
        plan, (width, height) = self.alike, image.size
        begin = plan.plan.recording_of(image)
        if begin is None or any(map(self._is_image, tree_leaves(target))):
            return None
        tree_map(partial(self._check, full_size=(height, width)), target)
        state = torch.default_generator.get_state()
        try:
            drawn, moved = plan._draw(target, width, height, None)
        except Impossible:
            torch.default_generator.set_state(state)
            return None
        recorded = begin(drawn)
        # A step that is called may ask for the exact class of its image.
        return plan._call_rest(recorded.made() if plan.plan.rest else recorded, moved)

    def _make(self, data: Data, target: Any, **options: Any) -> tuple[Any, Any]:
        followed = []

        def draw(width: int, height: int, generator: torch.Generator | None) -> DrawnSample:
            tree_map(partial(self._check, full_size=(height, width)), target)
            drawn, moved = self._draw(target, width, height, generator)
            followed.append(moved)
            return drawn

        recipe = cast("Recipe", self.plan.head).but(draw=draw)
        pixels, _ = recipe.make(data, **options)
        return self._call_rest(self.plan.as_output(pixels, data), followed[-1])

    def _draw(
        self, target: Any, width: int, height: int, generator: torch.Generator | None
    ) -> tuple[DrawnSample, Any]:
        """Draw what is done to an image of this size, and do it to its target."""
        sides, operations = (width, height), list[Any]()
        kept: list[Any] = []  # what some of them lie in
        for one in self._drawn:
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

    def _call_rest(self, image: Any, target: Any) -> tuple[Any, Any]:
        sample: Any = image, target
        for part in self.plan.rest:
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
        converts = not {"ToImage", "ToTensor"}.isdisjoint(self.plan.names)
        is_array = converts and isinstance(leaf, np.ndarray)
        known = sys.modules["torchvision.tv_tensors"]
        images = PillowImage.Image, known.TVTensor
        return is_array or (isinstance(leaf, images) and not _is_moved(leaf))

    def __repr__(self) -> str:
        lines = self.plan.lines_with(map(Called, self.plan.rest), self.alike.plan)
        return "\n".join(["Plan(", *(f"  {line}" for line in lines), ")"])


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


def compile_joint(transforms: Any, options: DecodeOptions, *, may_fuse: bool) -> Any:
    """Compile a pipeline of images and targets if allowed; else return it as it is."""
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
    plan = JointPlan(list(_recognise.flatten(transforms)), begin)
    return plan if plan.does_something else transforms
