"""Programs of random augmentations, and the binding of the core that draws and runs them.

A program is a tuple of steps, each followed by the steps inside it, as in ``fastdecode.h``. It is
plain data: it can be compared, hashed and pickled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import numpy as np

from fastdecode.native._library import ffi, lib, require

if TYPE_CHECKING:
    from fastdecode.types import Image

Kind: TypeAlias = Literal[
    "brightness", "contrast", "saturation", "hue", "sharpness", "grey", "invert", "solarize",
    "solarize_add", "posterize", "equalize", "autocontrast", "blur", "mirror", "turn_over", "warp",
    "rotate", "erase",
]  # fmt: skip
Filter: TypeAlias = Literal["nearest", "bilinear", "bicubic"]
Noise: TypeAlias = Literal["none", "channel", "pixel"]


class Operation(NamedTuple):
    """An augmentation with its numbers; ``fd_operation_kind`` says what they mean."""

    kind: Kind
    value: tuple[float, ...] = ()
    filter: Filter = "nearest"
    fill: tuple[int, int, int] = (0, 0, 0)


class Draw(NamedTuple):
    """A random number of an operation: ``value[number]`` is `start` plus `range` times a share.

    The share is uniform in 0 to 1; with a `deviation`, it comes from a normal distribution about
    `mean`, limited to 0 to 1, and 0 makes it constant. `is_whole` truncates the product, and
    `either_sign` subtracts it as often as it adds it. ``value[copied]`` becomes the same number.
    """

    number: int
    start: float
    range: float
    mean: float = 0.0
    deviation: float | None = None
    is_whole: bool = False
    either_sign: bool = False
    copied: int = -1


class Erasure(NamedTuple):
    """A random box that replaces a part of the normalised result, by `level` or by normal noise.

    `area` is the range of its share of the image, `aspect` that of its height to its width.
    """

    area: tuple[float, float]
    aspect: tuple[float, float]
    noise: Noise = "none"
    level: tuple[float, float, float] = (0.0, 0.0, 0.0)


class Step(NamedTuple):
    """A step of a program; `inner` is the number of the steps inside it, at any depth."""

    kind: Literal["operation", "sequence", "shuffle", "choice", "erasure"]
    inner: int = 0
    probability: float = 1.0
    weight: float = 1.0
    operation: Operation | None = None
    draw: Draw | None = None
    erasure: Erasure | None = None


Program: TypeAlias = tuple[Step, ...]


def do(operation: Operation, draw: Draw | None = None, *, probability: float = 1.0) -> Program:
    """Return a program of one operation."""
    return (Step("operation", 0, probability, 1.0, operation, draw),)


def erase(erasure: Erasure, *, probability: float = 1.0) -> Program:
    """Return a program of one erasure; it must come after all other operations."""
    return (Step("erasure", 0, probability, erasure=erasure),)


def group(
    kind: Literal["sequence", "shuffle", "choice"],
    programs: Sequence[Program],
    *,
    probability: float = 1.0,
    weights: Sequence[float] | None = None,
) -> Program:
    """Return a program that does all of `programs`, or chooses one of them by weight."""
    if weights is not None:
        programs = [
            (first._replace(weight=float(weight)), *others)
            for (first, *others), weight in zip(programs, weights, strict=True)
        ]
    steps = [step for program in programs for step in program]
    return (Step(kind, len(steps), probability), *steps)


NOTHING: Program = (Step("sequence"),)


@cache
def compiled(program: Program) -> Any:
    """Return the ``fd_program *`` of a program, which is kept for ever."""
    require()
    steps = ffi.new("fd_step[]", [_fields(step) for step in program])
    _steps.append(steps)  # the struct only points to them
    return ffi.new("fd_program *", {"steps": steps, "count": len(program)})


_steps: list[Any] = []


def _fields(step: Step) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "kind": getattr(lib, f"FD_{step.kind.upper()}"),
        "inner": step.inner,
        "probability": step.probability,
        "weight": step.weight,
        "drawn": -1,
        "copied": -1,
    }
    if step.operation is not None:
        fields["operation"] = _operation_fields(step.operation)
    if step.draw is not None:
        draw = step.draw
        fields |= {"drawn": draw.number, "copied": draw.copied, "start": draw.start}
        fields |= {"range": draw.range, "mean": draw.mean, "is_whole": draw.is_whole}
        fields |= {"either_sign": draw.either_sign}
        fields |= {"deviation": -1.0 if draw.deviation is None else draw.deviation}
    if step.erasure is not None:
        erasure = step.erasure
        noise = getattr(lib, f"FD_NOISE_{erasure.noise.upper()}")
        fields["operation"] = {"kind": lib.FD_ERASE, "noise": noise, "level": erasure.level}
        aspect = [math.log(limit) for limit in erasure.aspect]
        fields |= {"area": list(erasure.area), "aspect": aspect}
    return fields


def _operation_fields(operation: Operation) -> dict[str, Any]:
    return {
        "kind": getattr(lib, f"FD_{operation.kind.upper()}"),
        "filter": getattr(lib, f"FD_{operation.filter.upper()}"),
        "value": list(operation.value),
        "fill": list(operation.fill),
    }


def draw_operations(
    program: Program, state: int, width: int = 224, height: int = 224
) -> tuple[list[Operation], int]:
    """Draw the operations of a sample of this size; return the state after the draws as well."""
    drawn, after = draw_in_core(program, state, width, height)
    return [_operation(each) for each in drawn], after


def draw_in_core(program: Program, state: int, width: int, height: int) -> tuple[Any, int]:
    """Do the same as `draw_operations`; the result is an ``fd_operation[]``."""
    moving, count = ffi.new("uint64_t *", state), ffi.new("int32_t *")
    operations = ffi.new("fd_operation[]", lib.FD_MOST_OPERATIONS)
    status = lib.fd_draw_operations(compiled(program), width, height, moving, operations, count)
    if status != lib.FD_OK:
        raise ValueError("this program of augmentations draws too many operations")
    made = ffi.new("fd_operation[]", count[0])
    ffi.memmove(made, operations, ffi.sizeof(made))
    return made, int(moving[0])


def _operation(fields: Any) -> Operation:
    kinds: dict[int, Kind] = {getattr(lib, f"FD_{kind.upper()}"): kind for kind in get_args(Kind)}
    filters: dict[int, Filter] = dict(enumerate(get_args(Filter)))
    red, green, blue, _ = fields.fill
    value = tuple(fields.value)
    return Operation(kinds[fields.kind], value, filters[fields.filter], (red, green, blue))


def augment(image: Image, operations: Sequence[Operation]) -> Image:
    """Apply operations to pixels (H, W, 3), uint8, and return the result of the same size."""
    require()
    pixels = np.ascontiguousarray(image)
    made = np.empty_like(pixels)
    height, width = pixels.shape[:2]
    several = ffi.new("fd_operation[]", [_operation_fields(each) for each in operations])
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
