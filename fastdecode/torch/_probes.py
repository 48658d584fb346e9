"""What a step of the user's does, found out by trying it on a few small images.

A `Loader` passes over a step whose code only looks at an image or converts it, and which returns
every probe as it was. Of any other step it wants to know what that makes of an image, and whether
it draws from global generators.
"""

from __future__ import annotations

import copy
import dis
import io
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import PIL
import torch
from PIL import Image as PillowImage
from PIL import ImageOps

from fastdecode._decode import lazy
from fastdecode.native._augment import Operation, Program, do, resized_to, squared
from fastdecode.torch._twins import twin_of
from fastdecode.torch._user_code import (
    GLOBALS,
    DrawingFrom,
    code_of,
    codes_in,
    global_states,
    may_draw,
    preserve_generators,
)
from fastdecode.torch.transforms.multimodal import PadToSquare

Form: TypeAlias = Literal["pil", "array", "uint8", "floats"]
"""A Pillow image, an array (H, W, C) of bytes, or a tensor of bytes or of floats."""

SIZES = ((48, 64), (64, 48), (1, 1), (33, 33), (3, 600), (600, 3), (700, 500), (1100, 1500))
"""(height, width) of the probes; a small image may be left as it is where a large one is not."""
LONG = ((16384, 64), (64, 16384))
"""Those of images that Pillow's `reducing_gap` halves before it resizes them to any usual size."""
_NAMES = (
    "Image PIL Tensor array asarray bool clone contiguous convert copy dim expand float32 getbands "
    "device float hasattr isinstance len mode ndim np numpy repeat self shape size super to torch "
    "type __call__"
)
LOOKS = frozenset(_NAMES.split())
"""Names in code that cannot change an image of three channels, or anything else."""
_COUNTS = frozenset(["add", "div", "mul", "neg", "self", "sub", "torch", "true_divide"])
"""Names in code that can scale floats, and change nothing else."""
_PADS = LOOKS | {"format", "functional", "height", "int", "max", "new", "pad", "paste", "width"}
_PADS |= {"ImageOps", "transforms", "zip"}
"""Names in code that can pad a Pillow image as well."""
_CUTS = frozenset(["Image", "PIL", "Resampling", "crop", "functional", "resize", "self"])
_CUTS |= {"BICUBIC", "BILINEAR", "HAMMING", "LANCZOS", "transforms"}
"""Names in code that can cut and resize a Pillow image, and do nothing else."""
_STACKS = LOOKS | {"Normalize", "PILToTensor", "ToTensor", "cat", "stack", "normalize"}
_STACKS |= {"pil_to_tensor", "to_tensor", "transforms"}
"""Names in code that can convert several crops and stack them, and change nothing."""
_TURNS = LOOKS | {"ascontiguousarray", "from_numpy", "permute", "transpose"}
"""Names in code that can make a tensor of an array as well."""
_TYPES = (PIL, ImageOps, PillowImage, PillowImage.Image, torch, torch.Tensor, np)
_TIMES = 5
"""How often a step that draws is tried: it may do different things."""
_SMALL = frozenset([*range(-4, 5), 255])
"""Numbers that are no side of an image that only some have, with which code could compare."""
ATTRIBUTES = frozenset(["LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"])
_BRANCHES = frozenset(["COMPARE_OP", "CONTAINS_OP", "FOR_ITER", "IS_OP"])
STORES = frozenset(
    [
        "DELETE_ATTR",
        "DELETE_GLOBAL",
        "DELETE_NAME",
        "DELETE_SUBSCR",
        "STORE_ATTR",
        "STORE_DEREF",
        "STORE_GLOBAL",
        "STORE_SUBSCR",
    ]
)


Draws: TypeAlias = Literal["nothing", "from the seed", "by itself", "globally"]
"""What a step, or its twin, can draw from; "by itself" from generators that can be seeded."""


class Found(NamedTuple):
    """What a step made of a probe, from which the next one can be found out, and what it draws."""

    draws: Draws
    made: Any


class Affine(NamedTuple):
    """What becomes of the values of each channel."""

    factors: list[float]
    summands: list[float]


def form_of(image: Any, channels: int = 3) -> Form | None:
    """Return the form of an image of three channels, or of one; None if it is of no known one."""
    if isinstance(image, PillowImage.Image):
        return "pil" if image.mode == ("RGB" if channels == 3 else "L") else None
    if isinstance(image, np.ndarray):
        known = image.ndim == 3 and image.shape[2] == channels and image.dtype == np.uint8
        return "array" if known else None
    if not isinstance(image, torch.Tensor) or image.ndim != 3 or len(image) != channels:
        return None
    if image.device.type != "cpu" or not (image.dtype == torch.uint8 or image.is_floating_point()):
        return None
    return "uint8" if image.dtype == torch.uint8 else "floats"


def does_nothing(part: Any, form: Form, channels: int) -> bool:
    """Return whether a step returns every image as it is, and its code does nothing else."""
    return _agrees(part, lambda probe: probe, form, channels)


def is_stateless(part: Any) -> bool:
    """Return whether a step only converts, normalises and stacks what it gets."""
    code = code_of(part)
    return bool(code) and only_looks(code[0], _STACKS, part)


def pads_to_square(part: Any) -> PadToSquare | None:
    """Return what a step does that pads Pillow images to squares; None of any other."""
    code = code_of(part)
    if not code or may_draw(part) or not only_looks(code[0], _PADS, part):
        return None
    try:
        colour: Any = part(PillowImage.new("RGB", (8, 2), (1, 2, 3))).getpixel((0, 0))
        pads = PadToSquare(colour)
    except Exception:  # of any kind: whatever the user's code raises
        return None
    for evenly in (False, True):
        pads.program = squared(pads.fill, evenly=evenly)
        if _agrees(part, pads, "pil", 3, _PADS, colour):
            return pads
    return None


class PillowCalls(NamedTuple):
    """The crops and resizes that a step does to every Pillow image."""

    program: Program


def pillow_calls(part: Any) -> PillowCalls | None:
    """Return what a step does that only cuts and resizes, always alike; None of any other.

    Its code is one line after another, without a choice, so it does to all images what it does to
    a few: `fastdecode.open` remembers that.
    """
    code = code_of(part)
    if not code or may_draw(part) or not is_straight(code[0]):
        return None
    if not only_looks(code[0], _CUTS, part, depth=0) or not all(
        _is_plain(one) or _is_data(one) or is_library(one) for one in used_by(code[0], part)
    ):
        return None
    try:
        made = [lazy.remembered(part(_unread(*size))) for size in SIZES[-2:]]
        if made[0][0][0] == "resize":  # of an image of any size
            made += [lazy.remembered(part(_unread(*size))) for size in LONG]
        program = Program(step for call in made[0] for step in _program_of(*call))
    except Exception:  # of any kind: whatever the user's code raises
        return None
    return PillowCalls(program) if program and all(one == made[0] for one in made) else None


def is_straight(function: FunctionType) -> bool:
    """Return whether a function neither branches nor compares, here or in a function inside it."""
    code = function.__code__
    return not any(
        "JUMP" in one.opname or one.opname in _BRANCHES for one in dis.get_instructions(code)
    ) and not any(isinstance(one, CodeType) for one in code.co_consts)


def _is_plain(one: Any) -> bool:
    """Return whether something is a name, or some, or nothing."""
    return one is None or isinstance(one, str) or (type(one) is tuple and all(map(_is_plain, one)))


def is_library(one: Any) -> bool:
    """Return whether something is a module, a type or a function of a library's."""
    functional = "torchvision.transforms.functional"
    of_torchvision = isinstance(one, ModuleType) and _is_torchvisions(one)
    of_torchvision |= isinstance(one, FunctionType) and one.__module__ == functional
    return of_torchvision or any(one is kind for kind in _TYPES)


def _unread(height: int, width: int) -> PillowImage.Image:
    """Return an image that remembers what is done to it."""
    file = io.BytesIO()
    PillowImage.new("RGB", (width, height)).save(file, "PNG")
    return lazy.open(file)


def _program_of(method: str, arguments: Any) -> Program:
    """Return the program of a remembered call."""
    if method == "crop":
        left, top, right, bottom = arguments[0]
        return do(Operation("crop", (left, top, right - left, bottom - top), "constant"))
    (width, height), how = arguments
    names: Any = {2: "bilinear", 3: "bicubic", 5: "hamming", 1: "lanczos"}
    return resized_to((height, width), names[how])


def does_as(part: Any, base: type, form: Form, channels: int) -> bool:
    """Return whether a step does what an object of its base class would do."""
    plain: Any = object.__new__(base)
    plain.__dict__.update(vars(part))
    return _agrees(part, plain, form, channels)


def affine_of(part: Any, kind: type[torch.Tensor] = torch.Tensor) -> Affine | None:
    """Return the factors and the summands of a step that only scales floats; None of any other.

    It gets tensors of a class, and returns plain ones.
    """
    code, own = code_of(part), getattr(part, "__dict__", {})
    known = _COUNTS | {name for name, value in own.items() if _is_data(value)}
    if not code or not all(map(is_straight, code)) or may_draw(part):
        return None
    if not all(only_looks(one, known) for one in code):
        return None
    try:
        full = (torch.full((3, 1, 1), at).as_subclass(kind) for at in (0.0, 1.0))
        summand, end = (part(one) for one in full)
        factor = end - summand
        scaled: bool = bool((factor != 0).all()) and all(
            type(one := part(probe.clone().as_subclass(kind))) is torch.Tensor
            and one.dtype == probe.dtype
            and torch.allclose(one, probe * factor + summand, rtol=1e-5, atol=1e-5)
            for probe in map(_spread, probes("floats", 3))
        )
        return Affine(factor.flatten().tolist(), summand.flatten().tolist()) if scaled else None
    except Exception:  # of any kind: whatever the user's code raises
        return None


def _spread(values: torch.Tensor) -> torch.Tensor:
    """Return values from -3 to 3, as a step after a normalisation gets them."""
    return values * 6 - 3


def _agrees(
    part: Any,
    other: Callable[[Any], Any],
    form: Form,
    channels: int,
    known: frozenset[str] = LOOKS,
    numbers: tuple[int, ...] = (),
) -> bool:
    code = code_of(part)
    if not code or may_draw(part) or not only_looks(code[0], known, part if numbers else None):
        return False
    if not _is_alike(code[0], part, numbers=numbers):
        return False
    before = global_states()
    try:
        with preserve_generators():
            alike = all(_same(part(p), other(p)) for p in probes(form, channels))
            return alike and not drawn_since(before)
    except Exception:  # of any kind: whatever the user's code raises
        return False


def examine(part: Any, probes: Iterable[Any]) -> Found | None:
    """Return what a step makes of the first probe that it takes; None if it takes none."""
    return next(filter(None, (_examined(part, probe) for probe in probes)), None)


def _examined(part: Any, probe: Any) -> Found | None:
    before = global_states()
    try:
        with preserve_generators():
            made = _tried(part, probe)
            if not code_of(part):  # who knows what it may do with another image
                return Found("globally", made)
            if not (may_draw(part) or drawn_since(before)):
                return Found("nothing", made)
            before = global_states()
            alone = twin_of(part) is not None
            for seed in range(_TIMES if alone else 0):
                with DrawingFrom(torch.Generator().manual_seed(seed)):
                    made = twin_of(copy.deepcopy(part))(copy.deepcopy(probe))  # type: ignore[misc]
            alone = alone and not drawn_since(before)
            return Found("from the seed" if alone else "globally", made)
    except Exception:  # of any kind: whatever the user's code raises
        return None


def _tried(part: Any, probe: Any) -> Any:
    return copy.deepcopy(part)(copy.deepcopy(probe))


def drawn_since(before: Any) -> bool:
    """Return whether something has drawn from global generators since they had these states."""
    return not _equal(before, global_states())


def images_for(
    form: Form, channels: int, kind: type | None, size: tuple[int, int] | None
) -> Iterator[Any]:
    """Yield images such as a step may get: of this size, if it is known, or of several."""
    for probe in probes(form, channels, ((48, 64), (700, 500)) if size is None else (size,)):
        plain = kind is None or not isinstance(probe, torch.Tensor)
        yield probe if plain else probe.as_subclass(kind)


class HandedOn(NamedTuple):
    """What gets every image, and whether its result becomes a tensor (C, H, W)."""

    to: Any
    becomes_tensor: bool


def hands_on(part: Any, is_wanted: Callable[[Any], bool], form: Form) -> HandedOn | None:
    """Return what a step hands every image to, as an array by the name ``image``.

    None if the step does anything else, or does not return that one's image.
    """
    code = code_of(part)
    held = [one for one in _held_by(code[0], part) if is_wanted(one[1])] if code else []
    if len(held) != 1 or not only_looks(code[0], _TURNS | {held[0][0]}):
        return None
    if not _is_alike(code[0], part, *held[0]):
        return None
    try:
        ways = {_hands(part, code[0], held[0][1], probe) for probe in probes(form, 3)}
    except Exception:  # of any kind: whatever the user's code raises
        return None
    return HandedOn(held[0][1], ways == {"as a tensor"}) if len(ways) == 1 else None


def _held_by(function: FunctionType, part: Any) -> list[tuple[str, Any]]:
    """Return what a function can call: by the names of its code, each with its name."""
    code = function.__code__
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    enclosed = [(name, cell.cell_contents) for name, cell in cells if cell != CellType()]
    arguments, defaults = code.co_varnames[: code.co_argcount], function.__defaults__ or ()
    given = zip(reversed(arguments), reversed(defaults), strict=False)
    named = [vars(part) if hasattr(part, "__dict__") else {}, function.__globals__]
    others = [(name, where[name]) for where in named for name in code.co_names if name in where]
    return [*enclosed, *given, *others]


def _hands(part: Any, function: FunctionType, wanted: Any, probe: Any) -> str:
    """Return how a step returns the result of another object in the place of a wanted one.

    Raise if that does not get the probe, or if anything else is returned.
    """
    pixels = np.asarray(probe)
    token = np.resize(np.arange(251, dtype=np.uint8), (260, 270, 3))  # larger than what is small

    def receive(*, image: Any) -> dict[str, Any]:
        if not (type(image) is np.ndarray and _same(image, pixels)):
            raise ValueError("it is another image")
        return {"image": token}

    def swapped(one: Any) -> Any:
        return receive if one is wanted else one

    closure = tuple(CellType(swapped(cell.cell_contents)) for cell in function.__closure__ or ())
    names = {name: swapped(one) for name, one in function.__globals__.items()}
    defaults = tuple(map(swapped, function.__defaults__ or ()))
    made = FunctionType(function.__code__, names, function.__name__, defaults, closure)
    if function is part or function is vars(part).get("lambd"):
        result = made(probe)
    else:
        twin = copy.copy(part)
        vars(twin).update({name: swapped(one) for name, one in vars(part).items()})
        result = made(twin, probe)
    if result is token:
        return "as it is"
    if _same(result, torch.from_numpy(token).permute(2, 0, 1)):
        return "as a tensor"
    raise ValueError("it is another result")


def only_looks(
    function: FunctionType, known: frozenset[str] = LOOKS, part: Any = None, depth: int = 3
) -> bool:
    """Return whether a function names only these, types of images, or functions like it.

    It sets none of them. With `part`, whose function it is, it may also name numbers, of the part
    or around the function; these may change later.
    """
    names = _names(function.__code__) - known - {"__class__"}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    held = {name: cell.cell_contents for name, cell in cells} if part is not None else {}
    data = {**function.__globals__, **held, **(getattr(part, "__dict__", None) or {})}

    def is_known(one: Any) -> bool:
        if isinstance(one, FunctionType) and depth:
            return only_looks(one, known, None if part is None else one, depth - 1)
        counts = part is not None and _is_data(one)
        return counts or _is_torchvisions(one) or any(one is kind for kind in _TYPES)

    return all(name in data and is_known(data[name]) for name in names)


def _is_torchvisions(one: Any) -> bool:
    """Return whether something is a module, a class or a transform of torchvision."""
    named = isinstance(one, (ModuleType, type))
    name = one.__name__ if isinstance(one, ModuleType) else (one if named else type(one)).__module__
    lambda_ = type(one).__name__ == "Lambda"  # which calls a function of the user's
    return name.startswith("torchvision.transforms") and not lambda_


def _is_data(value: Any) -> bool:
    """Return whether a value is a number, or some."""
    if isinstance(value, (tuple, list)):
        return all(map(_is_data, value))
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return True
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_alike(
    function: FunctionType,
    part: Any,
    held: str = "",
    wanted: Any = None,
    numbers: tuple[int, ...] = (),
) -> bool:
    """Return whether what a function uses cannot tell large images from the probes.

    Its numbers are small ones, or `numbers` together, in the code and wherever it gets them from by
    a name; so are those of the functions that it calls. The user has given nothing else a known
    name but the `wanted` object, whose name is `held`.
    """

    def is_known(one: Any) -> bool:
        if isinstance(one, FunctionType) and one is not function:
            return only_looks(one, _PADS) and _is_alike(one, one, numbers=numbers)
        known = one is wanted or is_library(one) or isinstance(one, torch.device)
        return known or is_small(one, numbers)

    return all(map(is_known, used_by(function, part, held)))


def used_by(function: FunctionType, part: Any, held: str = "") -> list[Any]:
    """Return the constants of a function, and what it gets by a name from anywhere but `held`."""
    codes = list(codes_in(function.__code__))
    instructions = [one for code in codes for one in dis.get_instructions(code)]
    used = [one for code in codes for one in code.co_consts]
    used += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    used += [cell.cell_contents for name, cell in cells if name != "__class__"]
    names = {one.argval for one in instructions if one.opname in GLOBALS}
    used += [function.__globals__[name] for name in names if name in function.__globals__]
    if function is not part:
        attributes = {one.argval for one in instructions if one.opname in ATTRIBUTES}
        places = [vars(part), vars(part).get("_modules", {})]
        places += [vars(kind) for kind in type(part).__mro__ if kind is not object]
        for name in attributes - {held, "__call__"}:
            used += [where[name] for where in places if name in where][:1]
        if "super" in names:
            users = takewhile(lambda kind: not _is_torchvisions(kind), type(part).__mro__[1:-1])
            bases = map(vars, users)
            used += [where[name] for where in bases for name in attributes if name in where]
    return used


def is_small(constant: Any, numbers: tuple[int, ...]) -> bool:
    """Return whether a constant cannot be a side that only some images have, or is `numbers`."""
    if isinstance(constant, (tuple, frozenset, list)):
        return tuple(constant) == numbers or all(is_small(one, numbers) for one in constant)
    if isinstance(constant, slice):
        return is_small((constant.start, constant.stop, constant.step), numbers)
    if isinstance(constant, (int, float)):
        return constant in _SMALL or abs(constant) < 1
    return constant is None or isinstance(constant, (str, bytes, CodeType, type(...)))


def _names(code: CodeType) -> set[str]:
    """Return the names in a function's code; of what it stores, one that nobody knows."""
    stores = any(
        one.opname in STORES and one.argval not in code.co_cellvars
        for one in dis.get_instructions(code)
    )
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    own = {*code.co_names, *code.co_freevars, *(["="] if stores else [])}
    return own.union(*inner) - {*code.co_cellvars}


def probes(form: Form, channels: int, sizes: Iterable[tuple[int, int]] = SIZES) -> Iterator[Any]:
    """Yield images of several sizes: a ramp with noise, and black ones."""
    numbers = np.random.default_rng(0)
    for height, width in sizes:
        ramp = np.add.outer(np.arange(height), np.arange(width))[..., None]
        noise = numbers.integers(0, 64, (height, width, channels))
        for pixels in ((ramp + noise) % 256, np.zeros_like(noise)):
            levels = pixels.astype(np.uint8)
            if form == "pil":
                yield PillowImage.fromarray(levels[..., 0] if channels == 1 else levels)
            elif form == "array":
                yield levels
            else:
                tensor = torch.from_numpy(levels).permute(2, 0, 1).contiguous()
                yield tensor if form == "uint8" else tensor / 255


def rows_of(image: Any) -> Any:
    """Return the pixels (H, W, C) of a probe."""
    return image.permute(1, 2, 0).numpy() if isinstance(image, torch.Tensor) else np.asarray(image)


def _same(first: Any, second: Any) -> bool:
    """Return whether two images have the same type and the same pixels."""
    if type(first) is not type(second):
        return False
    if isinstance(first, PillowImage.Image):
        return bool(first.mode == second.mode and first.tobytes() == second.tobytes())
    if isinstance(first, np.ndarray):
        return bool(first.dtype == second.dtype and np.array_equal(first, second))
    if not isinstance(first, torch.Tensor) or first.dtype != second.dtype:
        return False
    return first.shape == second.shape and torch.equal(first, second)


def _equal(first: Any, second: Any) -> bool:
    """Return whether two states of the global generators are equal."""
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(map(_equal, first, second))
    if isinstance(first, torch.Tensor):
        return torch.equal(first, second)
    return bool(np.array_equal(first, second))
