"""The programs of random augmentations that transforms of torchvision and timm stand for.

A maker returns what the core draws and runs instead of a transform; the table of `_recognise` says
of which class. The makers cover transforms of RGB images: of Pillow's, and of tensors of bytes. The
programs draw from the same distributions. Each drawn operation has Pillow's own result; for
tensors, and in torchvision's Gaussian blur and AugMix, it is at most 1 level away from
torchvision's.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast, get_args

import torch

from fastdecode.native._augment import (
    NOTHING,
    Draw,
    Erasure,
    Filter,
    Impossible,
    Kind,
    Library,
    Noise,
    Operation,
    Padding,
    Program,
    Resampling,
    Step,
    Unit,
    central_crop,
    do,
    draw_in_core,
    erase,
    group,
    mix,
    random_box,
    resized_to,
    scaled_by,
)

Size: TypeAlias = tuple[int, int] | None
"""(height, width) of the image that the program runs on; None if that depends on the image."""
Maker: TypeAlias = Callable[[Any, Size], Program]

_V1, _V2 = "torchvision.transforms", "torchvision.transforms.v2"
OWN = "fastdecode.torch.transforms."
"""What the modules of this package's transforms begin with."""
_FILTERS: Mapping[Any, Filter] = {
    "nearest": "nearest", "bilinear": "bilinear", "bicubic": "bicubic",
    0: "nearest", 2: "bilinear", 3: "bicubic",  # Pillow's numbers
}  # fmt: skip


_MOST_OPERATIONS, _LARGEST_SIDE, _LARGEST_NUMBER = 32, 16384, 1e6
"""The limits of the core: FD_MOST_OPERATIONS, and those of augment.c."""


class Unsupported(ValueError):
    """The core cannot do what a transform does; the message says why."""


def is_unmodified(transform: Any) -> bool:
    """Return whether an object has no hooks, and nothing in place of its class's own attributes."""
    own = getattr(transform, "__dict__", {})
    hooked = own.get("_forward_hooks") or own.get("_forward_pre_hooks")
    # This package's classes have defaults, which are no methods.
    ours = type(transform).__module__.startswith(OWN)
    replaced = any(
        name == "forward" or (hasattr(type(transform), name) and (callable(value) or not ours))
        for name, value in own.items()
    )
    return not (hooked or replaced)


def modules_of(transform: Any) -> Iterator[str]:
    """Yield the modules of the classes of a transform and of those that it holds."""
    yield type(transform).__module__
    for part in getattr(transform, "transforms", None) or ():
        yield from modules_of(part)


def made_by(make: Maker, transform: Any, size: Size) -> Program:
    """Return what a maker makes of a transform, or raise `Unsupported`."""
    try:
        return make(transform, size)
    except Unsupported:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        # A transform holds whatever it was given. As written, it raises an error of its own.
        raise Unsupported(f"{type(transform).__name__} has arguments that are not known") from error


def for_tensors(program: Program) -> Program:
    """Return the program with the results of torchvision's functions for tensors."""
    for operation in (step.operation for step in program if step.operation):
        if operation.library == "opencv":
            continue  # it has one result for all
        different = operation.filter in ("bicubic", "reflect", "symmetric") or (
            (operation.kind == "resize" and operation.library != "torchvision")
            or (operation.kind == "rotate" and any(operation.value[1:2]))
            or (operation.kind in ("pad", "crop") and len({*operation.fill}) > 1)
        )
        if different or operation.kind in ("box_blur", "solarize_add"):
            raise Unsupported("it is not possible for tensors")
    return with_library(program, "torchvision")


def with_library(program: Program, library: Library) -> Program:
    """Return the program with the results of a library.

    Of Pillow's programs only a resize changes, whose library says whether tensors have its result;
    AugMix makes tensors of Pillow images.
    """

    def changed(operation: Operation | None) -> Operation | None:
        if operation is None or operation.kind == "mix_begin" or operation.library == "opencv":
            return operation
        if operation.kind != "resize":
            return operation if library == "pillow" else operation._replace(library=library)
        smooth = library == "torchvision" and operation.filter == "bilinear"
        return operation._replace(library=library, filter="own" if smooth else operation.filter)

    return Program(step._replace(operation=changed(step.operation)) for step in program)


def check_program(program: Program, size: Size) -> None:
    """Raise `Unsupported` if the core would refuse what a program may draw."""
    if _count(program) > _MOST_OPERATIONS:
        raise Unsupported(f"it may do more than {_MOST_OPERATIONS} operations")
    if max(size or (0,)) > _LARGEST_SIDE:
        raise Unsupported(f"a side of the result exceeds {_LARGEST_SIDE} pixels")
    for step in program:
        if step.operation is None or step.kind != "operation":
            continue
        numbers = list(step.operation.value)
        for draw in step.draws:
            signs = (1, -1) if draw.either_sign else (1,)
            numbers += [draw.start, *(draw.start + sign * draw.range for sign in signs)]
        if any(not abs(number) < _LARGEST_NUMBER for number in numbers):
            raise Unsupported("its numbers are too large")
        if step.operation.kind == "posterize" and not 0 <= min(numbers) <= max(numbers) <= 8:
            raise Unsupported("it keeps fewer than 0 or more than 8 bits")


def _count(program: Program) -> int:
    """Return the most operations that steps can draw, or that a group holds."""
    total = 0
    for part in program.parts:
        step, counts = part[0], [_count(inner) for inner in part.inner]
        if step.kind == "choice":
            total += sum(sorted(counts)[-step.picks :])
        elif not counts and step.kind not in ("sequence", "shuffle", "mix"):
            total += {"random_crop": 4, "central_crop": 2}.get(step.kind, 1)
        else:
            total += sum(counts) + (2 + len(counts) if step.kind == "mix" else 0)
    return total


def size_after(program: Program, size: Size) -> Size:
    """Return the size of the result of steps; None if it depends on the image or is drawn."""
    most: Size = None  # what a size that depends on the image does not exceed
    for part in program.parts:
        before, step = size, part[0]
        if step.kind == "pad_to" and not step.picks and most is not None:
            least = _given(step)
            size = least if most[0] <= least[0] and most[1] <= least[1] else None
        elif step.kind == "sequence":
            size = size_after(Program(part[1:]), before)
        elif step.kind in ("choice", "shuffle", "mix"):
            sizes = {size_after(inner, before) for inner in part.inner} or {before}
            size = sizes.pop() if len(sizes) == 1 else None
            if step.kind != "choice" and size != before:
                raise Unsupported("its parts change the size of the image")
        else:
            size = _size_of(part, before)
        if step.probability < 1 and size != before:
            size = None
        fits = step.kind == "fit" and not step.picks and step.probability >= 1
        most = _given(step) if fits else None
    return size


def _given(step: Step) -> tuple[int, int]:
    """Return the (height, width) that a step's operation is given; a side of 0 is unlimited."""
    width, height, *_ = map(int, step.operation.value if step.operation else ())
    return height or _LARGEST_SIDE, width or _LARGEST_SIDE


def _size_of(part: Program, size: Size) -> Size:
    """Return the size of the result of a step without others inside it."""
    step, operation = part[0], part[0].operation
    if operation is None:
        return size
    kind, value = operation.kind, operation.value
    fixed = step.kind == "operation" and kind == "resize"
    if step.kind == "random_crop" and step.picks == 3:
        return None
    if fixed or step.kind in ("random_crop", "central_crop"):
        return int(value[1]), int(value[0])
    if step.kind == "operation" and kind == "crop":
        return int(value[3]), int(value[2])
    if size is not None and (part.is_steady or step.kind == "pad_to"):
        try:
            return draw_in_core(part, 0, *size[::-1]).size
        except Impossible as error:
            raise Unsupported(str(error)) from None
    grows = kind == "pad" or (kind == "rotate" and any(value[1:2]))
    changes = step.kind in ("box", "fit", "scale", "scale_by", "pad_to", "multiples") or grows
    return None if changes else size


# ---- parts ----


def _filter(interpolation: Any) -> Filter:
    number = getattr(interpolation, "value", interpolation)
    try:
        return _FILTERS[number]
    except (KeyError, TypeError):
        raise Unsupported(f"interpolation {interpolation} is not done in the core") from None


def _fill(fill: Any) -> tuple[int, int, int]:
    """Return the three levels of a `fill`; None is black."""
    levels = fill if isinstance(fill, (list, tuple)) else [fill or 0]
    levels = list(levels) * (3 if len(levels) == 1 else 1)
    if len(levels) != 3 or not all(0 <= level <= 255 for level in levels):
        raise Unsupported(f"fill={fill!r} is not three levels")
    red, green, blue = (int(level) for level in levels)
    return red, green, blue


class Look(NamedTuple):
    """How a warp interpolates and fills."""

    filter: Filter
    fill: tuple[int, int, int]
    blends: bool

    @classmethod
    def of(cls, interpolation: Any, fill: Any) -> Look:
        return cls(_filter(interpolation), _fill(fill), fill is not None)


def _inverse_affine(
    center: tuple[float, float], translate: tuple[float, float], shear: tuple[float, float]
) -> tuple[float, ...]:
    """Return torchvision's matrix from result to source, without rotation and scale."""
    x, y = (math.radians(degrees) for degrees in shear)
    a, b = math.cos(-y) / math.cos(y), -math.cos(-y) * math.tan(x) / math.cos(y)
    c, d = math.sin(-y) / math.cos(y), -math.sin(-y) * math.tan(x) / math.cos(y) + 1.0
    (cx, cy), (tx, ty) = center, translate
    right = d * (-cx - tx) + -b * (-cy - ty) + cx
    below = -c * (-cx - tx) + a * (-cy - ty) + cy
    return d, -b, right, -c, a, below


def _warp(name: str, magnitude: float) -> tuple[float, ...]:
    """Return the matrix of one of torchvision's shears and translations.

    Of a translation, which turns nothing, the centre does not matter.
    """
    degrees = math.degrees(math.atan(magnitude))
    if name == "ShearX":
        return _inverse_affine((0, 0), (0, 0), (degrees, 0.0))
    if name == "ShearY":
        return _inverse_affine((0, 0), (0, 0), (0.0, degrees))
    pixels, along_x = int(magnitude), name == "TranslateX"
    return _inverse_affine((0, 0), (pixels, 0) if along_x else (0, pixels), (0.0, 0.0))


_FACTORS: Mapping[str, Kind] = {
    "Brightness": "brightness", "Color": "saturation", "Contrast": "contrast",
    "Sharpness": "sharpness",
}  # fmt: skip
_CONSTANTS: Mapping[str, Kind] = {
    "AutoContrast": "autocontrast", "Equalize": "equalize", "Invert": "invert",
}  # fmt: skip


def torchvision_operation(name: str, magnitude: float, look: Look) -> Program:
    """Return what torchvision's policies do for the name of an operation and its magnitude."""
    if name == "Identity":
        return NOTHING
    if name in _FACTORS:
        return do(Operation(_FACTORS[name], (1.0 + magnitude,)))
    if name in _CONSTANTS:
        return do(Operation(_CONSTANTS[name]))
    if name == "Posterize":
        return do(Operation("posterize", (float(int(magnitude)),)))
    if name == "Solarize":
        return do(Operation("solarize", (magnitude,)))
    if name == "Rotate":
        return do(Operation("rotate", (magnitude,), *look))
    if name in ("ShearX", "ShearY", "TranslateX", "TranslateY"):
        return do(Operation("warp", _warp(name, magnitude), *look))
    raise Unsupported(f"the operation {name} is not done in the core")


class Policy:
    """What torchvision's policies have in common: a table of operations and magnitudes."""

    def __init__(self, policy: Any, size: Size, *arguments: Any, partial: bool = False) -> None:
        self.look = Look.of(policy.interpolation, policy.fill)
        if size is None:
            raise Unsupported("its translations depend on the size of the image")
        self.names: list[str] = []
        self.levels: dict[str, tuple[list[float], bool]] = {}
        # These tables are torchvision's own, in the version that is installed.
        if hasattr(policy, "_AUGMENTATION_SPACE"):  # transforms.v2
            bins = arguments[0]
            space = policy._PARTIAL_AUGMENTATION_SPACE if partial else policy._AUGMENTATION_SPACE
            for name, (levels, signed) in space.items():
                self._add(name, levels(bins, *size), signed, 255.0 if name == "Solarize" else 1.0)
        else:
            for name, (levels, signed) in policy._augmentation_space(*arguments).items():
                self._add(name, levels, signed, 1.0)

    def _add(self, name: str, levels: Any, signed: bool, scale: float) -> None:
        several = levels is not None and getattr(levels, "ndim", 0) > 0
        self.names.append(name)
        self.levels[name] = ([scale * float(v) for v in levels] if several else [0.0]), signed

    def operation(
        self, name: str, level: int | None = None, probability: float = 1.0, most: int | None = None
    ) -> Program:
        """Return an operation with a random sign and a magnitude: one, or any of the first."""
        levels, signed = self.levels[name]
        if level is not None and len(levels) > 1 and not 0 <= level < len(levels):
            raise Unsupported(f"{name} has no magnitude {level}")
        chosen = levels[:most] if level is None or len(levels) == 1 else [levels[level]]
        magnitudes = [sign * v for v in chosen for sign in ((1.0, -1.0) if signed else (1.0,))]
        cases = [torchvision_operation(name, magnitude, self.look) for magnitude in magnitudes]
        return group("choice", cases, probability=probability)


def trivial_augment(policy: Any, size: Size) -> Program:
    if policy.num_magnitude_bins < 2:
        raise Unsupported("a policy without magnitudes is not done in the core")
    table = Policy(policy, size, policy.num_magnitude_bins)
    return group("choice", [table.operation(name) for name in table.names])


def rand_augment(policy: Any, size: Size) -> Program:
    table = Policy(policy, size, policy.num_magnitude_bins, size)
    cases = [table.operation(name, policy.magnitude) for name in table.names]
    return group("sequence", [group("choice", cases)] * policy.num_ops)


def auto_augment(policy: Any, size: Size) -> Program:
    table = Policy(policy, size, 10, size)
    in_v2 = hasattr(policy, "_AUGMENTATION_SPACE")
    policies = policy._policies if in_v2 else policy.policies
    return group(
        "choice",
        [
            group("sequence", [table.operation(name, level or 0, p) for name, p, level in one])
            for one in policies
        ],
    )


_LEAST_ALPHA = 0.1  # below it all numbers that the core draws may be 0


def _mix(choice: Program, width: int, depth: int, alpha: float, library: Library) -> Program:
    """Return AugMix: chains of operations, each of a fixed or random length from 1 to 3."""
    if not alpha >= _LEAST_ALPHA or width < 1:
        raise Unsupported("AugMix without chains, or with a tiny alpha, is not done in the core")
    lengths = [depth] if depth > 0 else [1, 2, 3]
    chain = group("choice", [group("sequence", [choice] * length) for length in lengths])
    return mix([chain] * width, float(alpha), library)


def augmix(policy: Any, size: Size) -> Program:
    bins = policy._PARAMETER_MAX
    table = Policy(policy, size, bins, size, partial=not policy.all_ops)
    choice = group("choice", [table.operation(n, most=policy.severity) for n in table.names])
    # torchvision makes a tensor of an image.
    chain_options = policy.mixture_width, policy.chain_depth, policy.alpha
    return _mix(for_tensors(choice), *chain_options, "torchvision")


# ---- single transforms ----


def _uniform(kind: Kind, limits: tuple[float, float] | None) -> list[Program]:
    if limits is None:
        return []
    low, high = (float(limit) for limit in limits)
    return [do(Operation(kind, (low,)), Draw(0, low, high - low))]


def color_jitter(jitter: Any, _: Size) -> Program:
    parts = (
        *_uniform("brightness", jitter.brightness),
        *_uniform("contrast", jitter.contrast),
        *_uniform("saturation", jitter.saturation),
        *_uniform("hue", jitter.hue),
    )
    return group("shuffle", parts)


def photometric_distort(distort: Any, _: Size) -> Program:
    """Return SSD's distortion, with the contrast either second or after the hue."""

    def maybe(kind: Kind, limits: tuple[float, float]) -> Program:
        return group("sequence", _uniform(kind, limits), probability=float(distort.p))

    contrast, colours = (
        maybe("contrast", distort.contrast),
        [maybe("saturation", distort.saturation), maybe("hue", distort.hue)],
    )
    orders = [[contrast, *colours], [*colours, contrast]]
    steps = [
        maybe("brightness", distort.brightness),
        group("choice", [group("sequence", order) for order in orders]),
        group("sequence", [_PERMUTED], probability=float(distort.p)),
    ]
    return group("sequence", steps)


_PERMUTED = group(
    "choice", [do(Operation("permute", order)) for order in itertools.permutations((0.0, 1.0, 2.0))]
)


def permutation(_: Any, __: Size) -> Program:
    return _PERMUTED


_LARGEST_KERNEL = 255  # of blur.c


def gaussian_blur(blur: Any, size: Size) -> Program:
    """Return the program of torchvision's blur."""
    across, down = blur.kernel_size
    if max(across, down) > _LARGEST_KERNEL:
        raise Unsupported(f"a kernel of more than {_LARGEST_KERNEL} pixels is not done in the core")
    if size is not None and (across // 2 >= size[1] or down // 2 >= size[0]):
        raise Unsupported("the kernel of the blur is larger than the image")
    low, high = blur.sigma
    return do(Operation("blur", (across, low, low, down)), Draw(1, low, high - low, copied=2))


def pillow_blur(blur: Any, _: Size) -> Program:
    """Return the program of this package's blur, which is DINO's."""
    return _softened(blur.radius_min, blur.radius_max, float(blur.p))


def _from_middle(center: Any, size: Size) -> tuple[float, ...]:
    """Return how far a centre is from that of an image; nothing for None."""
    if center is None:
        return ()
    if size is None:
        raise Unsupported("where its centre is in the image depends on the size of that")
    x, y = center
    return float(x) - size[1] / 2, float(y) - size[0] / 2


def rotation(rotation: Any, size: Size) -> Program:
    low, high = rotation.degrees
    grows = (2.0 if rotation.center is not None else 1.0) if rotation.expand else 0.0
    value = (0.0, grows, *_from_middle(rotation.center, size))
    turn = Operation("rotate", value, *Look.of(rotation.interpolation, rotation.fill))
    return do(turn, Draw(0, low, high - low))


def affine(transform: Any, size: Size) -> Program:
    (low, high), shear = transform.degrees, transform.shear or ()
    draws = [Draw(0, low, high - low)]
    sides: tuple[Unit, Unit] = ("width", "height")
    for index, share, side in zip((1, 2), transform.translate or (), sides, strict=False):
        draws.append(Draw(index, -share, 2 * share, is_rounded=True, of=side))
    limits = [(3, transform.scale or ()), (4, shear[:2]), (5, shear[2:])]
    draws += [Draw(at, float(ends[0]), float(ends[1] - ends[0])) for at, ends in limits if ends]
    look = Look.of(transform.interpolation, transform.fill)
    value = (0.0, 0.0, 0.0, 1.0, 0.0, 0.0, *_from_middle(transform.center, size))
    return do(Operation("affine", value, *look), *draws)


def as_it_says(transform: Any, _: Size) -> Program:
    """Return the program that a transform of this package holds, with the filters of libraries."""

    def changed(operation: Operation | None) -> Operation | None:
        if operation is None or operation.kind != "resize" or operation.library == "opencv":
            return operation
        filter_ = "bilinear" if operation.filter == "own" else operation.filter
        alike = getattr(transform, "interpolation", "") in ("bilinear", "nearest")
        return operation._replace(filter=filter_, library="torchvision" if alike else "pillow")

    return Program(step._replace(operation=changed(step.operation)) for step in transform.program)


def _softened(low: float, high: float, probability: float) -> Program:
    draw = Draw(0, float(low), float(high - low))
    return do(Operation("box_blur", (float(low),)), draw, probability=probability)


def with_probability(kind: Kind, number: str = "") -> Callable[[Any, Size], Program]:
    """Return the maker of a transform with a probability `p`, and one number by that name."""

    def make(transform: Any, _: Size) -> Program:
        value = (float(getattr(transform, number)),) if number else ()
        return do(Operation(kind, value), probability=float(transform.p))

    return make


def erasing(transform: Any, _: Size) -> Program:
    """Return the program of torchvision's RandomErasing."""
    value = transform.value
    is_random = value is None or value == "random"  # in transforms.v2 and v1
    levels = [0.0] * 3 if is_random else value
    levels = list(levels) if isinstance(levels, (list, tuple)) else [levels] * 3
    levels = levels * 3 if len(levels) == 1 else levels
    if len(levels) != 3 or not all(isinstance(level, (int, float)) for level in levels):
        raise Unsupported(f"value={value!r} is not one number, three, or 'random'")
    red, green, blue = (float(level) for level in levels)
    erasure = Erasure(
        (float(transform.scale[0]), float(transform.scale[1])),
        (float(transform.ratio[0]), float(transform.ratio[1])),
        "pixel" if is_random else "none",
        (red, green, blue),
    )
    return erase(erasure, probability=float(transform.p))


def grey(transform: Any, _: Size) -> Program:
    if transform.num_output_channels not in (1, 3):
        raise Unsupported("such a number of channels is not made in the core")
    return do(Operation("grey"))


# ---- crops and resizes ----

_RESAMPLING: Mapping[Any, Resampling] = {
    "nearest": "nearest", "nearest-exact": "nearest", "bilinear": "bilinear", "bicubic": "bicubic",
    "box": "box", "hamming": "hamming", "lanczos": "lanczos",
    0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming",
}  # fmt: skip


def resampling(interpolation: Any) -> Resampling:
    """Return the filter of an interpolation, in any of its forms."""
    number = getattr(interpolation, "value", interpolation)
    known = isinstance(number, (str, int)) and not isinstance(number, bool)
    if not known or number not in _RESAMPLING:
        raise Unsupported(f"interpolation {interpolation} is not done in the core")
    return _RESAMPLING[number]


def _resampling(transform: Any) -> tuple[Resampling, Library]:
    """Return how a transform resizes Pillow images, and whether also tensors have that result.

    A tensor is antialiased only with True: None and "warn", the default of 0.15 and 0.16, mean no.
    """
    mode = transform.interpolation
    if isinstance(mode, str) and type(transform).__module__.startswith(f"{_V1}.transforms"):
        raise Unsupported("torchvision's v1 takes no string as interpolation")
    filter_ = resampling(mode)
    smooth = filter_ == "bilinear" and getattr(transform, "antialias", True) is True
    alike = smooth or getattr(mode, "value", mode) in ("nearest", 0)
    return filter_, "torchvision" if alike else "pillow"


def as_sides(size: Any) -> int | tuple[int, int] | None:
    """Return a size as one number or (height, width); None if it is not a valid size."""
    sides = tuple(size) if isinstance(size, (list, tuple)) else (size,)
    if not 1 <= len(sides) <= 2 or not all(type(side) is int and side > 0 for side in sides):
        return None
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def as_range(values: Any) -> tuple[float, float] | None:
    """Return a range of positive numbers; None if it is none."""
    if not isinstance(values, (list, tuple)) or len(values) != 2:
        return None
    # With NumPy's numbers, torchvision would draw in another precision.
    if not all(type(value) in (int, float) for value in values) or not 0 < values[0] <= values[1]:
        return None
    return float(values[0]), float(values[1])


def as_ratio(transform: Any) -> tuple[float, float] | None:
    """Return the ratio of a random crop; v2 draws from its logarithm and ignores `ratio`."""
    ratio, drawn = as_range(transform.ratio), getattr(transform, "_log_ratio", None)
    if ratio is None or not type(transform).__module__.startswith(_V2):
        return ratio
    expected = torch.log(torch.tensor(transform.ratio))
    same = isinstance(drawn, torch.Tensor) and torch.equal(drawn, expected)
    return ratio if same else None


def _both_sides(size: Any) -> tuple[int, int]:
    """Return the (height, width) of a crop."""
    sides = as_sides(size)
    if sides is None:
        raise Unsupported(f"size={size!r} is not known")
    return sides if isinstance(sides, tuple) else (sides, sides)


def resizing(transform: Any, _: Size) -> Program:
    size, longest = as_sides(transform.size), transform.max_size
    if size is None and (transform.size is not None or longest is None):
        raise Unsupported(f"size={transform.size!r} is not known")
    if longest is not None and (isinstance(size, tuple) or not (size or 0) < longest):
        raise Unsupported(f"max_size={longest!r} is not known")
    filter_, library = _resampling(transform)
    return resized_to(size, filter_, longest and _whole(longest, 1), library)


def random_resizing(transform: Any, _: Size) -> Program:
    """Return the program of RandomResizedCrop."""
    filter_, library = _resampling(transform)
    scaled = resized_to(_both_sides(transform.size), filter_, None, library)
    return Program([*_random_part(transform), *scaled])


def _random_part(transform: Any) -> Program:
    """Return the program of the crop in a transform that crops at random and resizes."""
    scale, ratio = as_range(transform.scale), as_ratio(transform)
    if scale is None or ratio is None:
        raise Unsupported("its scale or ratio is not known")
    return random_box(scale, ratio)


def random_shortest(transform: Any, _: Size) -> Program:
    """Return the program of RandomShortestSize."""
    filter_, _library = _resampling(transform)
    sides, longest = (_whole(side, 1) for side in transform.min_size), transform.max_size or 0
    cases = [scaled_by((side, _whole(longest), 0, 0), (1.0, 1.0), filter_) for side in sides]
    return group("choice", cases)


def scale_jitter(transform: Any, _: Size) -> Program:
    """Return the program of ScaleJitter, which takes the target's height for the width."""
    filter_, _library = _resampling(transform)
    factors = as_range(transform.scale_range)
    if factors is None:
        raise Unsupported("its range is not known")
    return scaled_by((0, 0, *_both_sides(transform.target_size)), factors, filter_)


def timm_resizing(transform: Any, _: Size) -> Program:
    """Return the program of timm's random crop, which may draw the interpolation after the box."""
    modes, size = transform.interpolation, _both_sides(transform.size)
    several = modes if isinstance(modes, tuple) else (modes,)
    names = [_RESAMPLING[getattr(mode, "value", mode)] for mode in several]
    if names not in (["bilinear"], ["bicubic"], ["bilinear", "bicubic"]):
        raise Unsupported("its interpolations are not done in the core")
    resized = [resized_to(size, name) for name in reversed(names)]
    scaled = resized[0] if len(names) == 1 else group("choice", resized)
    return Program([*_random_part(transform), *scaled])


def preset(transform: Any, _: Size) -> Program:
    """Return the program of the preset of torchvision's weights."""
    filter_, library = _resampling(transform)
    whole = as_sides(transform.resize_size)
    if whole is None:
        raise Unsupported(f"size={transform.resize_size!r} is not known")
    resized = resized_to(whole, filter_, None, library)
    return Program([*resized, *central_crop(_both_sides(transform.crop_size), pads=True)])


def central(transform: Any, _: Size) -> Program:
    return central_crop(_both_sides(transform.size), pads=True)


def _whole(number: Any, least: int = 0) -> int:
    if type(number) is not int or number < least:
        raise Unsupported(f"{number!r} is not a whole number of at least {least}")
    return int(number)


def borders(padding: Any) -> tuple[int, int, int, int]:
    """Return pixels at the left, top, right and bottom."""
    sides = [*padding] if isinstance(padding, (list, tuple)) else [padding]
    if len(sides) not in (1, 2, 4):
        raise Unsupported(f"padding={padding!r} is not known")
    left, top, right, bottom = map(_whole, (sides * 4)[:4])
    return left, top, right, bottom


def padded(value: tuple[float, ...], transform: Any, kind: Kind = "pad") -> Operation:
    mode = transform.padding_mode
    if mode not in get_args(Padding):
        raise Unsupported(f"padding_mode={mode!r} is not known")
    return Operation(kind, value, mode, _fill(transform.fill))


def padding(transform: Any, _: Size) -> Program:
    return do(padded(borders(transform.padding), transform))


def random_cropping(transform: Any, _: Size) -> Program:
    """Return the program of RandomCrop: v1 pads in up to three steps, v2 in one."""
    height, width = _both_sides(transform.size)
    module = type(transform).__module__
    in_v1 = module == f"{_V1}.transforms"
    sides = borders(transform.padding or 0)
    if module.startswith(_V2) and transform.padding:  # it keeps left, right, top, bottom
        left, right, top, bottom = sides
        sides = left, top, right, bottom
    how = (1 if in_v1 else 2) if transform.pad_if_needed else 0
    inner = (0, 0, 0, 0) if in_v1 else sides
    # Its filter is that of the padding.
    crop = padded((width, height, 0, 0, *inner), transform, "crop")
    before = do(padded(sides, transform)) if in_v1 and any(sides) else []
    return Program([*before, Step("random_crop", operation=crop, picks=how)])


def perspective(transform: Any, _: Size) -> Program:
    share = float(transform.distortion_scale)
    if not 0 <= share <= 1:
        raise Unsupported(f"distortion_scale={share} is not known")
    look = Look.of(transform.interpolation, transform.fill)
    change = Step("perspective_change", operation=Operation("perspective", (share,), *look))
    return Program([change._replace(probability=float(transform.p))])


# ---- timm ----

_TIMM_FACTORS: Mapping[str, Kind] = {
    name + variant: kind for name, kind in _FACTORS.items() for variant in ("", "Increasing")
}


def _timm_operation(op: Any, size: Size) -> Program:
    """Return the program of timm's AugmentOp: a magnitude, perhaps random, and its argument."""
    most = float(op.magnitude_max or 10)
    if most > 10:
        raise Unsupported("timm's magnitudes above 10 are not done in the core")
    module = sys.modules[type(op).__module__]
    if (
        op.aug_fn is not module.NAME_TO_OP[op.name]
        or op.level_fn is not module.LEVEL_TO_ARG[op.name]
    ):
        raise Unsupported(f"timm's {op.name} has functions of its own")
    spread = float(op.magnitude_std)
    deviation: float | None = spread / most
    mean, scale = op.magnitude / most, most / 10.0
    if not spread > 0:  # always one magnitude, which is rounded as timm does it
        mean, deviation, scale = min(op.magnitude, most) / 10.0, 0.0, 1.0
    elif spread == math.inf:
        if op.magnitude > most:
            raise Unsupported("timm's random magnitudes with a limit are not done in the core")
        scale, deviation = op.magnitude / 10.0, None

    def drawn(operation: Operation, index: int, start: float, reach: float, **more: Any) -> Program:
        draw = Draw(index, start, reach * scale, mean, deviation, **more)
        return do(operation, draw, probability=float(op.prob))

    name = op.name
    if name == "GaussianBlur":
        return drawn(Operation("box_blur", (0.1,)), 0, 0.1, 1.9)
    if name == "Desaturate":
        return drawn(Operation("saturation", (0.5,)), 0, 0.5, -0.5)
    if name in _CONSTANTS:
        return do(Operation(_CONSTANTS[name]), probability=float(op.prob))
    if name in _TIMM_FACTORS:
        kind = _TIMM_FACTORS[name]
        if name.endswith("Increasing"):
            return drawn(Operation(kind, (1.0,)), 0, 1.0, 0.9, either_sign=True)
        return drawn(Operation(kind, (1.0,)), 0, 0.1, 1.8)
    whole = {
        "Posterize": ("posterize", 0.0, 4.0),
        "PosterizeIncreasing": ("posterize", 4.0, -4.0),
        "PosterizeOriginal": ("posterize", 4.0, 4.0),
        "Solarize": ("solarize", 0.0, 256.0),
        "SolarizeIncreasing": ("solarize", 256.0, -256.0),
        "SolarizeAdd": ("solarize_add", 0.0, 110.0),
    }
    if name in whole:
        kind_, start, reach = whole[name]
        return drawn(Operation(cast("Kind", kind_), (start,)), 0, start, reach, is_whole=True)
    return _timm_warp(op, size, drawn)


def _timm_warp(op: Any, size: Size, drawn: Callable[..., Program]) -> Program:
    """Return the program of one of timm's geometric operations, with its choice of filters."""
    share = float(op.hparams.get("translate_pct", 0.45))
    pixels = float(op.hparams.get("translate_const", 250))
    rows: tuple[float, Unit] = (share, "height") if size is None else (share * size[0], "pixels")
    columns: tuple[float, Unit] = (share, "width") if size is None else (share * size[1], "pixels")
    reaches: dict[str, tuple[int, float, Unit]] = {
        "ShearX": (1, 0.3, "pixels"),
        "ShearY": (3, 0.3, "pixels"),
        "TranslateX": (2, pixels, "pixels"),
        "TranslateY": (5, pixels, "pixels"),
        "TranslateXRel": (2, *columns),
        "TranslateYRel": (5, *rows),
    }
    fill = _fill(op.kwargs["fillcolor"])
    filters = op.kwargs["resample"]
    filters = filters if isinstance(filters, (list, tuple)) else [filters]
    cases = []
    for filter_ in filters:
        if op.name == "Rotate":
            turn = Operation("rotate", (0.0,), _filter(filter_), fill)
            cases.append(drawn(turn, 0, 0.0, 30.0, either_sign=True))
        elif op.name in reaches:
            index, reach, unit = reaches[op.name]
            warp = Operation("warp", (1.0, 0.0, 0.0, 0.0, 1.0, 0.0), _filter(filter_), fill)
            cases.append(drawn(warp, index, 0.0, reach, either_sign=True, of=unit))
        else:
            raise Unsupported(f"timm's {op.name} is not done in the core")
    return group("choice", cases)


def timm_erasing(transform: Any, _: Size) -> Program:
    """Return the program of timm's RandomErasing: several boxes, which share the area."""
    if transform.num_splits > 1:
        raise Unsupported("erasing in a part of a batch is not done in the core")
    low, high = (math.exp(limit) for limit in transform.log_aspect_ratio)
    noise: Noise = "pixel" if transform.per_pixel else "channel" if transform.rand_color else "none"
    cases = []
    for count in range(transform.min_count, transform.max_count + 1):
        area = (transform.min_area / count, transform.max_area / count)
        cases.append(group("sequence", [erase(Erasure(area, (low, high), noise))] * count))
    if not cases:
        raise Unsupported("it erases a negative number of boxes")
    return group("choice", cases, probability=float(transform.probability))


def timm_rand_augment(policy: Any, size: Size) -> Program:
    cases, weights = [_timm_operation(op, size) for op in policy.ops], policy.choice_weights
    if weights is None:
        return group("sequence", [group("choice", cases)] * policy.num_layers)
    if not 0 < policy.num_layers <= sum(weight > 0 for weight in weights):
        raise Unsupported("timm cannot choose so many operations")
    return group("choice", cases, weights=weights, picks=policy.num_layers)


def timm_augmix(policy: Any, size: Size) -> Program:
    if policy.blended:
        raise Unsupported("timm's blended AugMix is not done in the core")
    choice = group("choice", [_timm_operation(op, size) for op in policy.ops])
    return _mix(choice, policy.width, policy.depth, policy.alpha, "pillow")


def timm_auto_augment(policy: Any, size: Size) -> Program:
    return group(
        "choice",
        [group("sequence", [_timm_operation(op, size) for op in one]) for one in policy.policy],
    )


# ---- torchvision's classes, by what their operations do to an image ----

CROPS: Mapping[str, Maker] = {
    "CenterCrop": central,
    "RandomHorizontalFlip": with_probability("mirror"),
    "RandomResizedCrop": random_resizing,
    "RandomShortestSize": random_shortest,
    "Resize": resizing,
    "ScaleJitter": scale_jitter,
}
"""They crop, resize or mirror, mostly while decoding."""

SHIFTS: Mapping[str, Maker] = {
    "Pad": padding,
    "RandomCrop": random_cropping,
    "RandomVerticalFlip": with_probability("turn_over"),
}
"""They move pixels as well, and change no values."""

MOVES: Mapping[str, Maker] = {
    "RandomAffine": affine,
    "RandomPerspective": perspective,
    "RandomRotation": rotation,
}
"""They move pixels."""

COLOURS: Mapping[str, Maker] = {
    "ColorJitter": color_jitter,
    "GaussianBlur": gaussian_blur,
    "Grayscale": grey,
    "RandomAdjustSharpness": with_probability("sharpness", "sharpness_factor"),
    "RandomAutocontrast": with_probability("autocontrast"),
    "RandomChannelPermutation": permutation,
    "RandomEqualize": with_probability("equalize"),
    "RandomGrayscale": with_probability("grey"),
    "RandomInvert": with_probability("invert"),
    "RandomPhotometricDistort": photometric_distort,
    "RandomPosterize": with_probability("posterize", "bits"),
    "RandomSolarize": with_probability("solarize", "threshold"),
}
"""They leave each pixel in its place."""

POLICIES: Mapping[str, Maker] = {
    "AugMix": augmix,
    "AutoAugment": auto_augment,
    "RandAugment": rand_augment,
    "TrivialAugmentWide": trivial_augment,
}
"""They do some of both."""
