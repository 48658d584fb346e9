"""Recognises the transforms of torchvision and timm by module and class; imports neither.

`TABLE`, at the end, holds a `Row` for each known class. To teach `fuse` another one, write its step
and add a row.

Notes
-----
Written from torchvision 0.29 and timm 1.0. torchvision draws everything from torch's generator: a
box's area, shape, top and left, and ``torch.rand(1)`` for a flip.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from fastdecode.native._augment import Program, Resampling, flipped, group
from fastdecode.native._augment import Step as ProgramStep
from fastdecode.torch import _albumentations
from fastdecode.torch import _programs as programs
from fastdecode.torch._albumentations import OfImage, is_of_albumentations
from fastdecode.torch._draws import part_of
from fastdecode.torch._programs import (
    OWN,
    Maker,
    Size,
    Unsupported,
    check_program,
    for_tensors,
    is_unmodified,
    made_by,
    modules_of,
    size_after,
    with_library,
)
from fastdecode.torch._unchanged import is_unchanged
from fastdecode.torch._user_code import belongs_to
from fastdecode.torch.transforms.base import (
    EncodedTransform,
    Recipe,
    core_resizes_as_torch,
    interpolation_name,
)
from fastdecode.torch.transforms.compose import Compose
from fastdecode.torch.transforms.normalize import Normalize, three_values

_V1 = "torchvision.transforms.transforms"
_AUTO = "torchvision.transforms.autoaugment"
_V2 = "torchvision.transforms.v2."
_WEIGHTS = "torchvision.transforms._presets"
_TIMM = "timm.data.transforms"


def _check_grey(made: Program, *, of_tensors: bool) -> None:
    """Raise `Unsupported` if a program does not do the same to a grey image of one channel."""
    for operation in (step.operation for step in made if step.operation):
        by_colour = operation.kind in ("saturation", "contrast", "grey", "hue")
        if len({*operation.fill}) > 1 or (of_tensors and by_colour):
            raise Unsupported("it is not possible for one channel")


Step: TypeAlias = Callable[[Recipe, Any], Recipe | None]
"""Returns the recipe after a transform; None if it cannot be done while decoding there."""


@dataclass(frozen=True)
class Row:
    """What is known about a class of transforms."""

    step: Step | None = None
    """How the core does it; None if it never does."""
    make: Maker | None = None
    """Returns the program of its operations; None if it has none."""
    parts: str = ""
    """The attribute with the transforms that it calls in turn; empty if it is no pipeline."""
    in_place: bool = False
    """Whether every pixel stays where it is."""
    linear: bool = False
    """Whether it only moves or blends pixels, so that floats may still be bytes in the core."""
    only_pillow: bool = False
    """Whether it takes Pillow images but no tensors."""
    of_arrays: bool = False
    """Whether it also takes arrays."""


def row_of(part: Any) -> Row | None:
    """Return what is known about a transform; None if its class or the object itself is unknown."""
    row = TABLE.get((_module(part), type(part).__qualname__))
    return row if row is not None and is_own(part) else None


def _module(part: Any) -> str:
    """Return the module of a part's class; of v2 the package."""
    module = type(part).__module__
    return _V2 if module.startswith(_V2) else module


def flatten(transform: Any) -> Iterator[Any]:
    """Yield the parts of a pipeline, including those of nested pipelines.

    Any transform that is not a known pipeline is a pipeline with one part.
    """
    row = row_of(transform)
    held = getattr(transform, row.parts) if row is not None and row.parts else None
    if isinstance(held, Mapping):
        held = list(held.values())
    elif row_of(held) is not None:
        held = [held]
    if not isinstance(held, (list, tuple)):
        yield transform
        return
    for part in held:
        yield from flatten(part)


def encoded_head(transform: Any) -> EncodedTransform | None:
    """Return the transform of encoded bytes that a pipeline consists of, or that begins it.

    In a Compose of this package it is one of images, as torchvision's.
    """
    first = next(flatten(transform), None)
    own = isinstance(transform, Compose)
    return first if isinstance(first, EncodedTransform) and not own else None


def read_pipeline(parts: Sequence[Any], recipe: Recipe) -> tuple[Recipe, int, str]:
    """Follow a pipeline as long as every part is known for certain.

    Return the recipe after these parts, their number, and the reason in words why the next part
    does not follow.
    """
    for count, part in enumerate(parts):
        row = row_of(part)
        step = None if row is None else row.step
        if recipe.image is np.ndarray:
            step = step if row is None or row.of_arrays else None
        elif recipe.image and not {_V1, _AUTO}.isdisjoint(modules_of(part)):
            step = None  # a v1 transform of a tv_tensors.Image may or may not keep the class
        if recipe.joint and not type(part).__module__.startswith(_V2):
            step = None  # it takes no target
        following = step(recipe, part) if step else None
        if following is None:
            return recipe, count, _reason_not_fused(part, recipe, known=step is not None)
        recipe = following
    return recipe, len(parts), "" if recipe.program else "nothing in it crops or resizes"


def second_normalize(parts: Sequence[Any]) -> Any:
    """Return the first Normalize after normalised floats; None if an unknown part precedes it."""
    for part in parts:
        if isinstance(part, Normalize) or type(part).__name__ == "Normalize":
            return part
        if row_of(part) is None and _module(part) not in (_V1, _V2, _TIMM):
            return None
    return None


def name_of(part: Any) -> str:
    """Return the name of a function, or of a part's class as its library has it."""
    part = part.transform if isinstance(part, OfImage) else part
    return str(getattr(part, "__name__", type(part).__name__))


def wants_pillow(part: Any) -> bool:
    """Return whether a part takes Pillow images but not tensors."""
    row = row_of(part)
    return row is not None and row.only_pillow


def keeps_geometry(part: Any) -> bool:
    """Return whether a transform is known to leave every pixel where it is."""
    row = row_of(part)
    return row is not None and row.in_place


def is_followed(part: Any) -> bool:
    """Return whether a `Geometry` says where a part of a program moves pixels, if it does."""
    row = row_of(part)
    return row is not None and (row.in_place or row.step not in (_augment, _of_albumentations))


def draws_nothing(part: Any) -> bool:
    """Return whether a transform of torchvision is known to draw no random numbers."""
    known = _module(part) in (_V1, _V2) and type(part).__qualname__ in _DRAW_NOTHING
    return known and is_own(part) and not _holds_functions(part)


def draws_in_torch(part: Any) -> bool:
    """Return whether a transform is v2's or ours, with all that it holds: these draw by torch."""
    module, held = type(part).__module__, getattr(part, "transforms", None) or ()
    own = module.startswith((_V2, OWN)) and type(part).__qualname__ != "Lambda"
    return own and is_own(part) and not _holds_functions(part) and all(map(draws_in_torch, held))


def is_known(part: Any) -> bool:
    """Return whether a part, with all that it holds, is code of a library and not of the user's."""
    part = part.transform if isinstance(part, OfImage) else part
    if is_of_albumentations(part):
        return _albumentations.is_its_own(part)
    held = getattr(part, "transforms", None) or ()
    known = row_of(part) is not None or draws_nothing(part) or draws_in_torch(part)
    return known and not _holds_functions(part) and all(map(is_known, held))


def _holds_functions(part: Any) -> bool:
    """Return whether a transform was given a function of the user's, which it may call."""
    library = type(part).__module__.partition(".")[0]
    held = (getattr(one, "func", one) for one in vars(part).values() if callable(one))
    return any(
        not isinstance(one, (type, torch.nn.Module)) and not belongs_to(one, library)
        for one in held
    )


def is_own(part: Any) -> bool:
    """Return whether an object and its class are as their library made them."""
    return is_unmodified(part) and is_unchanged(part)


def image_tensor() -> Any:
    """Return torchvision's class of images, if it is loaded."""
    return getattr(sys.modules.get("torchvision.tv_tensors"), "Image", None)


_DRAW_NOTHING = {
    *("CenterCrop", "ClampBoundingBoxes", "ClampKeyPoints", "ConvertBoundingBoxFormat"),
    *("ConvertImageDtype", "FiveCrop", "Grayscale", "Identity", "Normalize", "PILToTensor", "Pad"),
    *("RGB", "Resize", "SanitizeBoundingBoxes", "SanitizeKeyPoints", "TenCrop", "ToDtype"),
    *("ToImage", "ToPILImage", "ToPureTensor", "ToTensor"),
}


# ---- the program of one transform ----


def program_of(transform: Any, size: Size) -> Program:
    """Return the program of a transform for an image of this size, or raise `Unsupported`."""
    return with_library(_make(transform, size), "pillow")


def tensor_program_of(transform: Any, size: Size) -> Program:
    """Do the same for a transform of tensors of bytes."""
    if any(module.startswith("timm.") for module in modules_of(transform)):
        raise Unsupported("timm's augmentations take Pillow images")
    return for_tensors(_make(transform, size))


def _is_known(transform: Any) -> bool:
    """Return whether a transform and all that it holds are libraries'."""
    held = getattr(transform, "transforms", None) or ()
    return row_of(transform) is not None and all(map(_is_known, held))


def float_program_of(transform: Any, size: Size) -> Program:
    """Do the same for floats that are still bytes in the core: it moves or blends pixels."""
    row = row_of(transform)
    if row is None or not row.linear:
        raise Unsupported(f"{type(transform).__name__} is not done with floats in the core")
    return for_tensors(_make(transform, size))


def decoded_program_of(transform: Any, size: Size, *, of_tensors: bool) -> Program:
    """Do the same for the first resize, which is done while decoding: within one level, or bicubic.

    Of tensors, only v2 resizes bytes bicubically: v1 resizes floats.
    """
    made = _make(transform, size)
    if of_tensors and type(transform).__module__.startswith("timm."):
        raise Unsupported("timm's transforms take Pillow images")
    steps = []
    for step in made:
        operation = step.operation
        if operation is not None and operation.kind == "resize":
            cubic = operation.filter == "bicubic"
            smooth = getattr(transform, "antialias", True) is True
            smooth = smooth and not (cubic and _module(transform) != _V2)
            if operation.filter not in ("bilinear", "bicubic") or (of_tensors and not smooth):
                raise Unsupported("it does not resize so")
            if of_tensors and cubic and not core_resizes_as_torch():
                raise Unsupported("this torch resizes otherwise")
            kind: Resampling = "torch_bicubic" if of_tensors else "bicubic"
            operation = operation._replace(filter=kind if cubic else "own", library="pillow")
        steps.append(step._replace(operation=operation))
    return Program(steps)


def _make(transform: Any, size: Size) -> Program:
    row = row_of(transform)
    if row is None or row.make is None:
        raise Unsupported(f"{type(transform).__name__} is not done in the core")
    return made_by(row.make, transform, size)


def _parts(transforms: Iterable[Any], size: Size) -> list[Program]:
    made: list[Program] = []
    for part in transforms:
        row = row_of(part)
        if getattr(part, "num_output_channels", 3) != 3 or (row and row.step is _erase):
            raise Unsupported("it makes another kind of image, or takes one")
        made.append(_make(part, size))
    return made


def _in_turn(transforms: Iterable[Any], size: Size) -> list[Program]:
    """Return the programs of parts of which each gets the result of the one before."""
    made: list[Program] = []
    for part in transforms:
        made += _parts([part], size)
        size = size_after(made[-1], size)
    return made


def _apply(transform: Any, size: Size) -> Program:
    return group("sequence", _in_turn(transform.transforms, size), probability=float(transform.p))


def _compose(transform: Any, size: Size) -> Program:
    return group("sequence", _in_turn(transform.transforms, size))


def _random_choice(transform: Any, size: Size) -> Program:
    weights = getattr(transform, "p", None)
    if not transform.transforms or (weights is not None and not sum(weights) > 0):
        raise Unsupported("a choice of nothing is not done in the core")
    return group("choice", _parts(transform.transforms, size), weights=weights)


def _random_order(transform: Any, size: Size) -> Program:
    return group("shuffle", _parts(transform.transforms, size))


# ---- the steps: each takes the recipe so far, and returns the recipe after its part ----


def _accept(recipe: Recipe, _part: Any) -> Recipe | None:
    """Accept a transform that leaves an RGB image as it is."""
    return recipe


def _to_rgb(recipe: Recipe, _part: Any) -> Recipe | None:
    """Accept a conversion to RGB, except of one channel."""
    return recipe if recipe.channels == 3 else None


_DECODED = re.compile(r"(br|m?r)[cm]*|m")
_DECODED_JOINT = re.compile(r"brm*|m*(rm*)?")
"""Which steps are done while decoding, by their letters; and beside targets.

torchvision pads an image and its boxes differently for a central crop, so targets do not follow it.
"""


def _letters(program: Program) -> str:
    """Return what each step is: a box that is cropped, a resize, a central crop, a mirror."""
    letters = ""
    for part in program.parts:
        kinds = {step.operation and step.operation.kind for step in part if not step.inner}
        one = {"box": "b", "central_crop": "c"}.get(part[0].kind)
        letters += one or ("r" if kinds == {"resize"} else "m" if kinds == {"mirror"} else "x")
    return letters


def _crop(recipe: Recipe, part: Any) -> Recipe | None:
    return _while_decoding(recipe, part) or _augment(recipe, part)


def _while_decoding(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept a crop, resize or flip that costs no pass of its own over the pixels."""
    flips = type(part).__qualname__ == "RandomHorizontalFlip"
    known = not flips or (isinstance(part.p, (int, float)) and 0 <= part.p <= 1)
    before, in_bytes = recipe.program, recipe.form in ("pil", "uint8")
    if not known or (recipe.form in ("levels", "normalised", "erased") and _fills(part)):
        return None

    def make(_: Any, size: Size) -> Program:
        of_tensors = recipe.form != "pil"
        return (
            flipped(float(part.p))
            if flips
            else decoded_program_of(part, size, of_tensors=of_tensors)
        )

    try:
        made = make(part, None)
        letters = _letters(made)
        # A flip commutes with a random crop where the draws are the loader's; but not with the
        # resize of a mask, which takes the pixel on the left of two.
        after_flip = not recipe.joint and _letters(before) == "m" and letters == "br"
        program = Program([*made, *before] if after_flip else [*before, *made])
        following = recipe.doing(program, part_of(part, make, None))
    except Unsupported:
        return None
    known_steps = _DECODED_JOINT if recipe.joint else _DECODED
    if not known_steps.fullmatch(_letters(following.program)):
        return None
    return following if in_bytes or not {*letters} & {*"br"} else None


def _own_crop(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept a crop of this package, which can also normalise, among others of images."""
    made, normalize = _crop(recipe, part), part.normalize
    if made is None or normalize is None:
        return made
    in_bytes = recipe.form in ("pil", "uint8")
    return made.but(image=None).floats(normalize.mean, normalize.std) if in_bytes else None


def _image_classification(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept the preset of torchvision's weights: resize, crop, convert to floats, normalise."""
    mean, std = three_values(part.mean), three_values(part.std)
    if recipe.form != "pil" or mean is None or std is None or 0 in std:
        return None
    made = _while_decoding(recipe, part)
    return made and made.floats(mean, std)


def _followed(recipe: Recipe, part: Any, make: Maker) -> Recipe | None:
    """Return the recipe with the program of a part; None if the core has none."""
    plain = recipe.channels == 3 and not recipe.joint
    if not (plain or _is_known(part)):
        return None
    before = recipe.shape and recipe.shape[1:]
    try:
        made = make(part, before)
        if recipe.joint and not all(map(_is_followed, made)):
            return None
        if recipe.channels == 1:
            _check_grey(made, of_tensors=recipe.form != "pil")
        program = Program([*recipe.program, *made])
        check_program(program, before)
        makes_grey = row_of(part) is not None and type(part).__qualname__ == "Grayscale"
        channels = part.num_output_channels if makes_grey else recipe.channels
        following = recipe.but(channels=channels).doing(program, part_of(part, make, before))
        return following if following.parts or not recipe.draws_alike else None
    except Unsupported:
        return None


_UNFOLLOWED = (
    *("warp", "rotate", "affine", "perspective", "pad", "mix_begin"),
    *("central_crop", "random_crop", "pad_to", "perspective_change"),
)


def _is_followed(step: ProgramStep) -> bool:
    """Return whether boxes and masks can follow a step: it changes colours, cuts, scales or flips.

    A random crop pads nothing.
    """
    kind, operation = step.kind, step.operation
    if kind == "random_crop" and operation is not None:
        return step.picks == 0 and not any(operation.value[4:])
    return kind not in _UNFOLLOWED and (operation is None or operation.kind not in _UNFOLLOWED)


def _augment(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept a part that the core can draw and do to bytes, which may become floats later."""
    makers: Mapping[str, Maker] = {"pil": program_of, "uint8": tensor_program_of}
    if recipe.form not in makers:
        black = recipe.form == "float"  # is 0, as in bytes
        if recipe.form == "erased" or getattr(part, "fill", None) or (_fills(part) and not black):
            return None
    return _followed(recipe, part, makers.get(recipe.form, float_program_of))


def _fills(part: Any) -> bool:
    """Return whether a part may fill a border, whose value would be normalised afterwards."""
    pads = getattr(part, "padding", None) or getattr(part, "pad_if_needed", False)
    return type(part).__qualname__ in _FILLING or bool(pads)


_FILLING = ("CenterCrop", "Pad", "RandomAffine", "RandomPerspective", "RandomRotation")


def _erase(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept RandomErasing, once or several times at the end, after the values are floats."""
    floats = recipe.form in ("float", "levels", "normalised", "erased")
    made = _followed(recipe, part, program_of) if floats else None
    return made and made.but(form="erased")


def _holds_image(recipe: Recipe) -> bool:
    """Return whether a recipe makes a Pillow image, or an array of bytes."""
    return recipe.form == "pil" or (recipe.form == "uint8" and recipe.image is np.ndarray)


def _to_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    known = _holds_image(recipe) and torch.get_default_dtype() == torch.float32
    return recipe.but(image=None).floats() if known else None


def _to_pil(recipe: Recipe, _part: Any) -> Recipe | None:
    """Accept ToPILImage of an array."""
    known = _part.mode in (None, "RGB") and recipe.image is np.ndarray and recipe.form == "uint8"
    return recipe.but(form="pil", image=None) if known else None


def _maybe_to_tensor(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept timm's MaybeToTensor, which leaves tensors unchanged."""
    return _to_tensor(recipe, part) if recipe.form == "pil" else recipe


def _unscaled_to_tensor(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept timm's ToTensor."""
    known = recipe.form == "pil" and part.dtype is torch.float32
    return _as_levels(recipe) if known else None


def _pil_to_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    return recipe.but(form="uint8") if recipe.form == "pil" else None


def _maybe_pil_to_tensor(recipe: Recipe, part: Any) -> Recipe | None:
    return _pil_to_tensor(recipe, part) if recipe.form == "pil" else recipe


def _to_image(recipe: Recipe, part: Any) -> Recipe | None:
    image = image_tensor()
    known = _holds_image(recipe) or recipe.image is not np.ndarray
    made = _maybe_pil_to_tensor(recipe, part) if known else None
    return made.but(image=image) if image and made else None


def _to_pure_tensor(recipe: Recipe, _part: Any) -> Recipe | None:
    """Accept ToPureTensor, unless it would change the types of a target."""
    return None if recipe.joint else recipe.but(image=None)


def _to_float(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept ToDtype, and ConvertImageDtype, which always scales."""
    if recipe.form == "pil" or part.dtype is not torch.float32:
        return None
    if recipe.form != "uint8":
        return recipe  # already floats
    return recipe.floats() if getattr(part, "scale", True) is True else _as_levels(recipe)


def _as_levels(recipe: Recipe) -> Recipe:
    """Return the recipe with floats from 0 to 255, which this mean and std produce."""
    return recipe.floats((0.0,), (1 / 255,)).but(form="levels")


def _convert_dtype(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept ConvertImageDtype, unless it would convert the masks of a target as well."""
    return None if recipe.joint else _to_float(recipe, part)


def _normalize(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept Normalize, also with `inplace`: the tensor is new, and nothing else refers to it."""
    given = [[one] if isinstance(one, (int, float)) else one for one in (part.mean, part.std)]
    mean, std = (three_values(one) for one in given)
    if mean is None or std is None or 0 in std:
        return None
    if recipe.channels == 1 and any(
        len({*one} if isinstance(part, Normalize) else one) != 1 for one in given
    ):
        return None  # torchvision raises an error
    if recipe.form == "levels":
        return recipe.floats([one / 255 for one in mean], [one / 255 for one in std])
    return recipe.floats(mean, std) if recipe.form == "float" else None


def _of_albumentations(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept a transform of arrays, to which a Pillow image is converted."""
    transform = part.transform
    if not (recipe.form == "pil" or recipe.image is np.ndarray):
        return None
    recipe = recipe.but(image=np.ndarray, form="uint8" if recipe.form == "pil" else recipe.form)
    if not _albumentations.is_known(transform) or recipe.channels != 3:
        return None
    name, bytes_ = type(transform).__name__, recipe.form == "uint8"
    if name == "ToTensorV2":
        return recipe.but(image=None) if transform.p >= 1 else None
    scaled = _albumentations.scale_of(transform) if bytes_ else None
    if scaled is not None:
        return recipe.floats(*scaled)
    make = _albumentations.program_of if bytes_ else _albumentations.float_program_of
    return _followed(recipe, transform, make)


def _fastdecode_normalize(recipe: Recipe, part: Any) -> Recipe | None:
    """Accept fastdecode's Normalize, which takes bytes, too, and returns plain tensors."""
    if recipe.form == "float" and part.mean is None:
        return recipe
    recipe = recipe.but(image=None)
    if recipe.form == "uint8":
        recipe = recipe.floats()
    return recipe if recipe.form == "float" and part.mean is None else _normalize(recipe, part)


def _shown(part: Any) -> str:
    """Return the `repr` of a part; of one with arguments that its library cannot show, its name."""
    try:
        return repr(part)
    except Exception:  # of any kind: it is not ours
        return name_of(part)


def _reason_not_fused(part: Any, recipe: Recipe, *, known: bool) -> str:
    """Return, in words, why a part is not done while decoding."""
    name = getattr(part, "__name__", type(part).__name__)
    begun = bool(recipe.program)
    if known and begun:
        return f"{name} cannot follow what comes before it"
    if known:
        mode = interpolation_name(getattr(part, "interpolation", "bilinear"))
        why = "its arguments, or what comes before it, are" if mode else "its interpolation is"
        return f"{why} not among those that are done while decoding: {_shown(part)}"
    if recipe.image is np.ndarray and not begun:
        return f"with output='array' it gets arrays, and {name} is none of the transforms of those"
    which = name if begun else f"it begins with {name}, which"
    return f"{which} is not one of the transforms that are done while decoding"


# ---- the table ----


def _rows(modules: Sequence[str], rows: dict[str, Row]) -> dict[tuple[str, str], Row]:
    """Return the rows of classes that are alike in several modules."""
    return {(module, name): row for module in modules for name, row in rows.items()}


def _crops(make: Maker) -> Row:
    return Row(_crop, make, linear=True)


def _moves(make: Maker) -> Row:
    return Row(_augment, make)


def _erases(make: Maker) -> Row:
    return Row(_erase, make, in_place=True)


def _converts(step: Step, *, only_pillow: bool = False, of_arrays: bool = False) -> Row:
    return Row(step, in_place=True, only_pillow=only_pillow, of_arrays=of_arrays)


_OF_BYTES = Row(_own_crop, programs.as_it_says, linear=True)
_OWN_MOVES = Row(_augment, programs.as_it_says, of_arrays=True)
_OF_EITHER_VERSION = {
    **{name: Row(_crop, make, linear=True) for name, make in programs.CROPS.items()},
    **{name: Row(_augment, make, linear=True) for name, make in programs.SHIFTS.items()},
    **{name: Row(_augment, make, linear=True) for name, make in programs.MOVES.items()},
    **{name: Row(_augment, make, in_place=True) for name, make in programs.COLOURS.items()},
    "GaussianBlur": Row(_augment, programs.gaussian_blur, in_place=True, linear=True),
    "RandomErasing": _erases(programs.erasing),
    "Compose": Row(make=_compose, parts="transforms"),
    "ConvertImageDtype": _converts(_convert_dtype),
    "ElasticTransform": Row(),  # these run as written
    "FiveCrop": Row(),
    "GaussianNoise": Row(in_place=True),
    "Identity": _converts(_accept),
    "Normalize": _converts(_normalize),
    "PILToTensor": _converts(_pil_to_tensor, only_pillow=True),
    "RGB": _converts(_to_rgb),
    "RandomApply": _moves(_apply),
    "RandomChoice": _moves(_random_choice),
    "RandomOrder": _moves(_random_order),
    "TenCrop": Row(),
    "ToDtype": _converts(_to_float),
    "ToImage": _converts(_to_image, of_arrays=True),
    "ToPILImage": _converts(_to_pil, of_arrays=True),
    "ToPureTensor": _converts(_to_pure_tensor),
    "ToTensor": _converts(_to_tensor, of_arrays=True),
}
_POLICIES = {name: Row(_augment, make) for name, make in programs.POLICIES.items()}

TABLE: dict[tuple[str, str], Row] = {
    **_rows((_V1, _V2), _OF_EITHER_VERSION),
    **_rows((_AUTO, _V2), _POLICIES),
    (_V1, "ToTensor"): _converts(_to_tensor, only_pillow=True, of_arrays=True),
    (_WEIGHTS, "ImageClassification"): Row(_image_classification, programs.preset),
    (_TIMM, "MaybePILToTensor"): _converts(_maybe_pil_to_tensor),
    (_TIMM, "MaybeToTensor"): _converts(_maybe_to_tensor),
    (_TIMM, "RandomResizedCropAndInterpolation"): _crops(programs.timm_resizing),
    (_TIMM, "ToTensor"): _converts(_unscaled_to_tensor, only_pillow=True),
    ("timm.data.auto_augment", "AugMixAugment"): _moves(programs.timm_augmix),
    ("timm.data.auto_augment", "AutoAugment"): _moves(programs.timm_auto_augment),
    ("timm.data.auto_augment", "RandAugment"): _moves(programs.timm_rand_augment),
    ("timm.data.random_erasing", "RandomErasing"): _erases(programs.timm_erasing),
    **_rows(
        (f"{OWN}crops",),
        dict.fromkeys(("RandomResizedCrop", "Resize", "ResizeCenterCrop"), _OF_BYTES),
    ),
    (f"{OWN}blur", "GaussianBlur"): Row(_augment, programs.pillow_blur, in_place=True, linear=True),
    (f"{OWN}compose", "Compose"): Row(make=_compose, parts="transforms"),
    (f"{OWN}compose", "ToTensor"): _converts(_to_tensor, of_arrays=True),
    **_rows((f"{OWN}multimodal",), dict.fromkeys(("PadToSquare", "SmartResize"), _OWN_MOVES)),
    **_rows((f"{OWN}opencv",), dict.fromkeys(("LetterBox", "OpenCVResize"), _OWN_MOVES)),
    (Normalize.__module__, "Normalize"): _converts(_fastdecode_normalize),
    (OfImage.__module__, "OfImage"): Row(_of_albumentations, of_arrays=True),
    ("torch.nn.modules.container", "Sequential"): Row(parts="_modules"),
    ("torch.nn.modules.linear", "Identity"): _converts(_accept),
}
"""What is known, by the module and the name of a class."""

WHILE_DECODING = {name for (_, name), row in TABLE.items() if row.step is _crop} | {"RandomCrop"}
"""What costs no pass of its own at the beginning of a pipeline."""
