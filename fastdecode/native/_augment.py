"""Programs of random augmentations, and the binding of the core that draws and runs them.

A program is a tuple of steps, each followed by the steps inside it, as in ``fastdecode.h``. It is
plain data: it can be compared, hashed and pickled.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, cast, get_args
from weakref import WeakKeyDictionary

import numpy as np

from fastdecode.native._library import CoreResize, ffi, lib

if TYPE_CHECKING:
    from fastdecode.types import Image

Kind: TypeAlias = Literal[
    "brightness", "contrast", "saturation", "hue", "sharpness", "grey", "invert", "solarize",
    "solarize_add", "posterize", "equalize", "autocontrast", "blur", "box_blur", "mirror",
    "turn_over", "warp", "rotate", "affine", "permute", "mix_begin", "mix_add", "mix_end", "erase",
    "perspective", "resize", "crop", "pad", "levels", "shift_colours", "fill", "noise",
    "mean_blur", "clahe", "channels", "gamma", "convolve", "median", "downscale", "lens", "grid",
    "elastic",
]  # fmt: skip
Filter: TypeAlias = Literal["nearest", "bilinear", "bicubic"]
Resampling: TypeAlias = Literal[
    "own", "bilinear", "bicubic", "lanczos", "hamming", "box",
    "torch_bilinear", "torch_bicubic", "torch_lanczos", "linear", "area", "nearest",
]  # fmt: skip
"""How an image is resized: the core's own bilinear filter, one of Pillow's or of torch's for
bytes, or OpenCV's INTER_LINEAR and INTER_AREA; in the order of ``fd_resize_filter``."""
Unit: TypeAlias = Literal["pixels", "width", "height"]
Padding: TypeAlias = Literal["constant", "edge", "reflect", "symmetric"]
Noise: TypeAlias = Literal["none", "channel", "pixel"]
Library: TypeAlias = Literal["pillow", "torchvision", "opencv"]


class Operation(NamedTuple):
    """An augmentation with its numbers; ``fd_operation`` says what they mean.

    `library` says whose result it gives: Pillow's, that of torchvision's function for tensors,
    which `blends` the fill with pixels that are partly outside, or leaves them darker; or OpenCV's.
    """

    kind: Kind
    value: tuple[float, ...] = ()
    # Of a crop, the padding of the step that draws it.
    filter: Filter | Resampling | Padding = "nearest"
    fill: tuple[int, int, int] = (0, 0, 0)
    blends: bool = False
    library: Library = "pillow"
    noise: Noise = "none"


class Draw(NamedTuple):
    """A random number of an operation: ``value[at]`` is `start` plus `range` times a share.

    The share is uniform in 0 to 1; with a `deviation`, it comes from a normal distribution about
    `mean`, limited to 0 to 1, and 0 makes it constant. `is_whole` truncates the product,
    `is_rounded` rounds the sum, `is_cut` truncates it, and `either_sign` subtracts the product as
    often as it adds it.
    ``value[copied]`` becomes the same number. `of` says that `start` and `range` are in widths or
    heights of the image.
    """

    at: int
    start: float
    range: float
    mean: float = 0.0
    deviation: float | None = None
    is_whole: bool = False
    is_rounded: bool = False
    is_cut: bool = False
    either_sign: bool = False
    copied: int = -1
    of: Unit = "pixels"


class Erasure(NamedTuple):
    """A random box that replaces a part of the normalised result, by `level` or by normal noise.

    `area` is the range of its share of the image, `aspect` that of its height to its width; of a
    step "box", which is cropped, that of its width to its height; `area` of a step "scale_by" is
    that of the factor, and of a step "multiples" that of the number of pixels.
    """

    area: tuple[float, float]
    aspect: tuple[float, float]
    noise: Noise = "none"
    level: tuple[float, float, float] = (0.0, 0.0, 0.0)


class Step(NamedTuple):
    """A step of a program; `inner` is the number of the steps inside it, at any depth."""

    kind: Literal[
        "operation", "sequence", "shuffle", "choice", "mix", "erasure",
        "scale", "scale_by", "box", "random_crop", "central_crop", "fit", "pad_to", "hole",
        "multiples", "perspective_change",
    ]  # fmt: skip
    inner: int = 0
    probability: float = 1.0
    weight: float = 1.0
    operation: Operation | None = None
    draws: tuple[Draw, ...] = ()
    erasure: Erasure | None = None
    picks: int = 1
    alpha: float = 1.0


class Program(tuple[Step, ...]):  # noqa: SLOT001 - it needs a dict for what it keeps
    """Steps of a random program; it keeps its hash and its form in the core."""

    @cached_property
    def core(self) -> Any:
        """The ``fd_program *``; it may outlive this object."""
        drawn = [ffi.new("fd_drawn[]", [_draw_fields(one) for one in step.draws]) for step in self]
        fields = [_fields(step) | {"drawn": one} for step, one in zip(self, drawn, strict=True)]
        steps = ffi.new("fd_step[]", fields)
        program = ffi.new("fd_program *", {"steps": steps, "count": len(self)})
        _POINTED_TO[program] = steps, drawn
        return program

    @cached_property
    def parts(self) -> tuple[Program, ...]:
        """Each outermost step, with the steps inside it."""
        parts, at = [], 0
        while at < len(self):
            parts.append(Program(self[at : at + 1 + self[at].inner]))
            at += len(parts[-1])
        return tuple(parts)

    @cached_property
    def inner(self) -> tuple[Program, ...]:
        """The parts inside the first step."""
        return Program(self[1:]).parts

    @cached_property
    def is_steady(self) -> bool:
        """Whether a program of one step draws nothing."""
        step, *inner = self
        jitters = step.kind == "scale_by" and step.operation and step.operation.value[2]
        places = step.operation.value[4:] if step.kind == "pad_to" and step.operation else (-1,)
        known = min(places) >= 0 or step.kind in (
            *("operation", "sequence", "scale", "scale_by", "fit", "central_crop", "multiples"),
        )
        return known and not (inner or step.draws or jitters) and step.probability >= 1

    def __repr__(self) -> str:
        return ", ".join(map(_described, self.parts))

    @cached_property
    def _hash(self) -> int:
        return hash(tuple(self))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return Program, (tuple(self),)


def _described(part: Program) -> str:
    """Return a step in words, with the numbers that make it what it is."""
    step, operation = part[0], part[0].operation
    name: str = step.kind if step.kind != "operation" or operation is None else operation.kind
    numbers = () if operation is None else operation.value
    if step.erasure is not None and step.kind not in ("scale_by", "multiples"):
        numbers = (*step.erasure.area, *step.erasure.aspect)
    words = [f"{number:.4g}" for number in numbers]
    words += [f"p={step.probability:g}"] if step.probability < 1 else []
    return f"{name}({', '.join([*words, *map(_described, part.inner)])})"


_POINTED_TO: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""What the structs of programs only point to; it lives as long as they do."""


def do(operation: Operation, *draws: Draw, probability: float = 1.0) -> Program:
    """Return a program of one operation."""
    return Program([Step("operation", 0, probability, 1.0, operation, draws)])


def erase(erasure: Erasure, *, probability: float = 1.0) -> Program:
    """Return a program of one erasure; it must come after all other operations."""
    return Program([Step("erasure", 0, probability, erasure=erasure)])


def group(
    kind: Literal["sequence", "shuffle", "choice"],
    programs: Sequence[Program],
    *,
    probability: float = 1.0,
    weights: Sequence[float] | None = None,
    picks: int = 1,
) -> Program:
    """Return a program that does all of `programs`, or chooses `picks` different ones by weight."""
    if kind != "sequence":
        programs = [_as_one_step(program) for program in programs]
    if weights is not None:
        programs = [
            Program([first._replace(weight=float(weight)), *others])
            for (first, *others), weight in zip(programs, weights, strict=True)
        ]
    return _around(Step(kind, 0, probability, picks=picks), programs)


def mix(chains: Sequence[Program], alpha: float, library: Library) -> Program:
    """Return a program that mixes the results of `chains` as torchvision's or timm's AugMix."""
    begin = Operation("mix_begin", library=library)
    return _around(Step("mix", operation=begin, alpha=alpha), map(_as_one_step, chains))


def _as_one_step(program: Program) -> Program:
    return program if len(program.parts) == 1 else _around(Step("sequence"), [program])


def _around(step: Step, programs: Iterable[Program]) -> Program:
    steps = [inner for program in programs for inner in program]
    return Program([step._replace(inner=len(steps)), *steps])


NOTHING = Program([Step("sequence")])


# ---- steps that depend on the size of the image so far ----


def resized_to(
    size: int | tuple[int, int] | None,
    filter: Resampling,
    max_size: int | None = None,
    library: Library = "pillow",
) -> Program:
    """Return a program that resizes to (height, width), or to a shorter side, as torchvision."""
    if isinstance(size, tuple):
        return do(Operation("resize", (size[1], size[0]), filter, library=library))
    to = Operation("resize", (size or 0, 0, max_size or 0), filter, library=library)
    return Program([Step("scale", operation=to)])


def random_box(scale: tuple[float, float], ratio: tuple[float, float]) -> Program:
    """Return a program that crops a random box, as torchvision's RandomResizedCrop."""
    limits = Operation("crop", (0, 0, min(ratio), max(ratio)), "constant")
    return Program([Step("box", operation=limits, erasure=Erasure(scale, ratio))])


def scaled_by(
    sides: tuple[float, float, float, float], factors: tuple[float, float], filter: Resampling
) -> Program:
    """Return a program of a step "scale_by", whose numbers ``FD_SCALE_BY`` explains."""
    to = Operation("resize", sides, filter)
    return Program([Step("scale_by", operation=to, erasure=Erasure(factors, (1.0, 1.0)))])


def central_crop(
    size: tuple[int, int], *, pads: bool = False, rounds_down: bool = False
) -> Program:
    """Return a program that crops the centre of (height, width), padded if it is larger.

    Half of an odd margin is rounded to the even number, as torchvision does, or down.
    """
    crop = Operation("crop", (*size[::-1], rounds_down), "constant")
    return Program([Step("central_crop", operation=crop, picks=pads)])


def fitted(
    size: tuple[int, int],
    filter: Resampling = "linear",
    *,
    covers: bool = False,
    area: float = 0.0,
    most: float = 0.0,
) -> Program:
    """Return a program that resizes by one factor, of at most `most` if that is not 0.

    The result lies in (height, width), or `covers` it; a side of 0 does not count.
    """
    operation = Operation("resize", (*size[::-1], area, most), filter, library="opencv")
    return Program([Step("fit", operation=operation, picks=covers)])


def padded_to(
    size: tuple[int, int],
    mode: Padding = "constant",
    fill: tuple[int, int, int] = (0, 0, 0),
    *,
    multiples: tuple[int, int] = (0, 0),
    before: tuple[float, float] = (0.5, 0.5),
) -> Program:
    """Return a program that pads to at least (height, width), or to `multiples` that are not 0.

    `before` are the shares of the padding above and at the left; -1 is a random one.
    """
    value = (*size[::-1], *multiples[::-1], *before[::-1])
    return Program([Step("pad_to", operation=Operation("pad", value, mode, fill), picks=0)])


def squared(fill: tuple[int, int, int]) -> Program:
    """Return a program that pads an image to a square, in whose middle it then is."""
    pad = Operation("pad", (0, 0, 0, 0, 0.5, 0.5), "constant", fill)
    return Program([Step("pad_to", operation=pad, picks=1)])


def in_multiples(
    unit: int, pixels: tuple[float, float], filter: Resampling, library: Library = "pillow"
) -> Program:
    """Return a program that resizes to multiples of `unit`, with `pixels` as smart_resize has."""
    to = Operation("resize", (unit,), filter, library=library)
    return Program([Step("multiples", operation=to, erasure=Erasure(pixels, (1.0, 1.0)))])


def flipped(probability: float) -> Program:
    """Return a program that mirrors the image; unless that never happens, it draws a number."""
    if probability <= 0:
        return Program()
    certain = [Draw(1, 0.0, 0.0)] if probability >= 1 else []
    return do(Operation("mirror"), *certain, probability=probability)


def _draw_fields(draw: Draw) -> dict[str, Any]:
    unit = get_args(Unit).index(draw.of)
    deviation = -1.0 if draw.deviation is None else draw.deviation
    return draw._asdict() | {"deviation": deviation, "of": unit}


def _fields(step: Step) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "kind": getattr(lib, f"FD_{step.kind.upper()}"),
        "inner": step.inner,
        "picks": step.picks,
        "drawn_count": len(step.draws),
        "probability": step.probability,
        "weight": step.weight,
        "alpha": step.alpha,
    }
    if step.operation is not None:
        fields["operation"] = _operation_fields(step.operation)
    if step.erasure is not None:
        erasure = step.erasure
        if step.operation is None:
            noise = getattr(lib, f"FD_NOISE_{erasure.noise.upper()}")
            fields["operation"] = {"kind": lib.FD_ERASE, "noise": noise, "level": erasure.level}
        aspect = [math.log(limit) for limit in erasure.aspect]
        fields |= {"area": list(erasure.area), "aspect": aspect}
    return fields


def _operation_fields(operation: Operation) -> dict[str, Any]:
    return {
        "kind": getattr(lib, f"FD_{operation.kind.upper()}"),
        "library": getattr(lib, f"FD_{operation.library.upper()}"),
        "noise": getattr(lib, f"FD_NOISE_{operation.noise.upper()}"),
        "filter": _filters_of(operation.kind).index(operation.filter),
        "value": list(operation.value),
        "fill": [*operation.fill, operation.blends],
    }


def _filters_of(kind: Kind) -> tuple[str, ...]:
    """Return the filters of an operation in the order of the core's enumeration."""
    known: dict[str, Any] = {"resize": Resampling, "pad": Padding, "crop": Padding}
    return get_args(known.get(kind, Filter))


def draw_operations(
    program: Program, state: int, width: int = 224, height: int = 224
) -> tuple[list[Operation], int]:
    """Draw the operations of a sample of this size; return the state after the draws as well."""
    drawn = draw_in_core(program, state, width, height)
    return [as_operation(each) for each in drawn.operations], drawn.state


# cffi would look up a string in every call.
_OPERATIONS: Any = ffi.typeof("fd_operation[]")
_RESIZE: Any = ffi.typeof("fd_resize *")
_STATE: Any = ffi.typeof("uint64_t *")
_NUMBERS: Any = ffi.typeof("int32_t[]")
_MEMBERS = struct.Struct("4d12i")  # of fd_resize


class DrawnOperations(NamedTuple):
    """What was drawn for a sample: an ``fd_operation[]``, and what follows from it."""

    operations: Any
    state: int  # of the random numbers
    size: tuple[int, int]  # (height, width) of the result


class Impossible(ValueError):
    """The core cannot do what a program says to an image of this size."""


def draw_in_core(program: Program, state: int, width: int, height: int) -> DrawnOperations:
    """Draw the operations of a sample of this size; raise `Impossible` if it has none."""
    return draw_steps(program.core, state, width, height)


def draw_steps(program: Any, state: int, width: int, height: int) -> DrawnOperations:
    """Do the same for an ``fd_program *``."""
    moving, numbers = ffi.new(_STATE, state), ffi.new(_NUMBERS, [width, height, 0])
    operations, size, count = ffi.new(_OPERATIONS, lib.FD_MOST_OPERATIONS), numbers, numbers + 2
    status = lib.fd_draw_operations(program, size, size + 1, moving, operations, count)
    if status != lib.FD_OK:
        raise Impossible(
            f"a step of the transform is not possible for an image of {width}x{height}"
        )
    return DrawnOperations(_first(operations, count[0]), int(moving[0]), (size[1], size[0]))


def fold(operations: Any, width: int, height: int) -> tuple[CoreResize, Any]:
    """Return a resize of an image of this size that does the first operations, and the others."""
    resize, some = ffi.new(_RESIZE), _first(operations, len(operations))
    left = lib.fd_fold(width, height, resize, some, len(some))
    made = CoreResize(1, *_MEMBERS.unpack(ffi.buffer(resize)))
    return made, _first(some, left) if left else ()


def resized_by(operations: Any, width: int, height: int) -> tuple[int, int] | None:
    """Return the (width, height) of an image after operations; None if they are not possible."""
    size = ffi.new(_NUMBERS, [width, height])
    for at in range(len(operations)):
        if not lib.fd_resized_by(operations + at, size, size + 1):
            return None
    return size[0], size[1]


def as_operations(operations: Iterable[Any]) -> Any:
    """Return operations as an ``fd_operation[]``; some may have been in one before."""
    fields = [_operation_fields(o) if isinstance(o, Operation) else o for o in operations]
    return ffi.new(_OPERATIONS, fields)


def _first(operations: Any, count: int) -> Any:
    """Return a copy of the first operations."""
    made = ffi.new(_OPERATIONS, count)
    ffi.memmove(made, operations, ffi.sizeof(made))
    return made


def as_operation(fields: Any) -> Operation:
    """Return an ``fd_operation``."""
    kinds: dict[int, Kind] = {getattr(lib, f"FD_{kind.upper()}"): kind for kind in get_args(Kind)}
    red, green, blue, blends = fields.fill
    fill, library = (red, green, blue), get_args(Library)[fields.library]
    value = tuple(fields.value)
    kind = kinds[fields.kind]
    filter_ = cast("Filter", _filters_of(kind)[fields.filter])
    noise = get_args(Noise)[fields.noise]
    return Operation(kind, value, filter_, fill, bool(blends), library, noise)


def augment(
    image: Image, operations: Sequence[Operation], size: tuple[int, int] | None = None
) -> Image:
    """Apply operations to pixels (H, W, 3), uint8.

    `size` is the (height, width) of the result if that is another one.
    """
    pixels = np.ascontiguousarray(image)
    height, width = pixels.shape[:2]
    made = np.empty((*(size or (height, width)), 3), np.uint8)
    several = as_operations(operations)
    augmenter = ffi.gc(lib.fd_augmenter_create(), lib.fd_augmenter_destroy)
    status = lib.fd_augment_rgb(
        *(augmenter, ffi.from_buffer("uint8_t[]", pixels.reshape(-1)), width, height),
        *(several, len(operations), ffi.from_buffer("uint8_t[]", made.reshape(-1))),
    )
    if status == lib.FD_NO_MEMORY:
        raise MemoryError("there is no memory for an augmentation")
    if status != lib.FD_OK:
        raise ValueError(f"these augmentations are not possible for {width}x{height} pixels")
    return made
