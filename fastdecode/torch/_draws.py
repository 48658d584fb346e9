"""How each transform that the core does is drawn by its library: from what, and in which order.

`DRAWS` holds for each class what makes its drawing, which adds steps that draw nothing to the
`Drawing` of a sample. After the same seed these are the numbers that the transform itself would
draw, and the generators are left as it would leave them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import torch

from fastdecode.native._augment import NOTHING, Impossible, Operation, Program, Step, do
from fastdecode.torch._programs import OWN, Maker, Policy, Size, Unsupported, size_after
from fastdecode.torch.transforms._random_crop import Drawing

Draw: TypeAlias = Callable[[Drawing], Any]
"""Draws what a transform does to an image, and adds it to the drawing of the sample."""


class PipelinePart:
    """A transform of a pipeline, and its program; called with a `Drawing`, it draws.

    `size` is the (height, width) of its image, None if that depends on the sample, and `inner` are
    the transforms that it holds.
    """

    def __init__(
        self, transform: Any, program: Program, size: Size, inner: Sequence[PipelinePart] = ()
    ) -> None:
        self.transform = transform
        self.program = program
        self.size = size
        self.inner = tuple(inner)

    @cached_property
    def draw(self) -> Draw:
        """How it is drawn; raises `Unsupported` if that is not known."""
        make = DRAWS.get(_name(self.transform))
        if make is None:
            raise Unsupported(f"how {_name(self.transform)} draws is not known")
        return make(self)

    def __call__(self, to: Drawing) -> None:
        self.draw(to)

    @cached_property
    def draws_beside_torch(self) -> bool:
        """Whether it may draw from Python's generator or NumPy's."""
        in_python = _name(self.transform) in ("RandomChoice", "RandomOrder") and self.is_first
        module = type(self.transform).__module__
        return (
            in_python or module.startswith("timm") or any(p.draws_beside_torch for p in self.inner)
        )

    @property
    def is_first(self) -> bool:
        """Whether it is of the first version of torchvision's transforms."""
        module = type(self.transform).__module__
        return module.startswith("torchvision.") and ".v2" not in module

    @cached_property
    def certain(self) -> Program:
        """Its program without what is drawn."""
        return _certain(self.program)

    @property
    def by_kind(self) -> dict[str, Program]:
        """The operations of its program by their kind."""
        found = ((step.operation, step) for step in self.certain if not step.inner)
        return {operation.kind: Program([step]) for operation, step in found if operation}

    def sides(self, to: Drawing) -> tuple[int, int]:
        """Return the (width, height) of its image."""
        return to.size if self.size is None else self.size[::-1]

    def __reduce__(self) -> tuple[Any, ...]:
        return PipelinePart, (self.transform, self.program, self.size, self.inner)


def part_of(transform: Any, make: Maker, size: Size) -> PipelinePart | None:
    """Return a transform with the program that `make` makes; None if its draws are not known."""
    inner: list[PipelinePart] = []
    before = size
    try:
        for held in getattr(transform, "transforms", None) or ():
            part = part_of(held, make, before)
            if part is None:
                return None
            inner.append(part)
            if _name(transform) in ("Compose", "RandomApply"):
                before = size_after(part.program, before)
        part = PipelinePart(transform, make(transform, size), size, inner)
        return part if callable(part.draw) else None
    except Unsupported:
        return None


def _name(transform: Any) -> str:
    """Return the name of a class, with its library if that is another than torchvision or this."""
    library, name = type(transform).__module__.partition(".")[0], type(transform).__qualname__
    return name if library in ("torchvision", "fastdecode") else f"{library}.{name}"


def _certain(program: Program) -> Program:
    return Program(step._replace(probability=1.0, draws=()) for step in program)


# ---- torchvision's ----


def _steady(part: PipelinePart) -> Draw:
    """Draw nothing."""
    if not all(one.is_steady for one in part.program.parts):
        raise Unsupported("it draws")
    return partial(Drawing.add, program=part.program)


_IN_DOUBLE = (
    *("RandomAdjustSharpness", "RandomAutocontrast", "RandomEqualize", "RandomInvert"),
    *("RandomPosterize", "RandomSolarize"),
)
"""What compares a draw with `p` in Python's precision in torchvision's v1."""


def _coin(part: PipelinePart) -> Callable[[Drawing], bool]:
    """Return how it is drawn whether a transform with a probability `p` comes."""
    p, name = float(part.transform.p), _name(part.transform)
    if part.is_first and name in _IN_DOUBLE:
        return lambda to: to.uniform(0, 1) < p
    if part.is_first and name == "RandomApply":
        return lambda to: to.uniform(0, 1) <= float(np.float32(p))
    return lambda to: to.flip(p)


def _sometimes(part: PipelinePart) -> Draw:
    """Draw whether it comes."""
    comes, program = _coin(part), part.certain

    def draw(to: Drawing) -> None:
        if comes(to):
            to.add(program)

    return draw


def _box(part: PipelinePart) -> Draw:
    """Draw a box as torchvision's RandomResizedCrop; after the resize of ours may come a flip."""
    limits, rest = part.program[0].erasure, Program(part.program[1:]).parts
    if limits is None:
        raise Unsupported("it has no box")
    flips = [one[0].probability for one in rest if not one.is_steady]
    resized = [_certain(one) for one in rest]

    def draw(to: Drawing) -> None:
        to.crop(*to.box(*part.sides(to), limits.area, limits.aspect))
        to.add(resized[0])
        for probability, mirrored in zip(flips, resized[1:], strict=True):
            to.add(mirrored if to.flip(probability) else NOTHING)

    return draw


def _jitter(part: PipelinePart) -> Draw:
    """Draw the order, and then each factor."""
    kinds = ("brightness", "contrast", "saturation", "hue")
    ends = [getattr(part.transform, kind) for kind in kinds]
    programs = [part.by_kind.get(kind, NOTHING) for kind in kinds]

    def draw(to: Drawing) -> None:
        order = torch.randperm(4, device="cpu").tolist()
        factors = [limits and to.uniform(*limits) for limits in ends]
        for at in order:
            if factors[at] is not None:
                to.add(programs[at]).operation.value[0] = factors[at]

    return draw


def _distort(part: PipelinePart) -> Draw:
    """Draw which factors come, each before its number; then the order, and the channels."""
    comes, transform, programs = _coin(part), part.transform, part.by_kind

    def draw(to: Drawing) -> None:
        factors = {}
        for kind in ("brightness", "contrast", "saturation", "hue"):
            if comes(to):
                factors[kind] = to.uniform(*getattr(transform, kind))
        is_early = to.uniform(0, 1) < 0.5
        order = ["brightness", "saturation", "hue"]
        order.insert(1 if is_early else 3, "contrast")
        for kind in order:
            if kind in factors:
                to.add(programs[kind]).operation.value[0] = factors[kind]
        if comes(to):
            to.add(programs["permute"]).operation.value[0:3] = _order_of(3)

    return draw


def _order_of(count: int) -> list[int]:
    order: list[int] = torch.randperm(count, device="cpu").tolist()
    return order


def _permutation(part: PipelinePart) -> Draw:
    """Draw the channels."""
    program = part.by_kind["permute"]

    def draw(to: Drawing) -> None:
        to.add(program).operation.value[0:3] = _order_of(3)

    return draw


def _blur(part: PipelinePart) -> Draw:
    """Draw the standard deviation; of DINO's blur whether it comes, and the radius."""
    transform, program = part.transform, part.certain

    def draw_radius(to: Drawing) -> None:
        if to.uniform(0, 1) < transform.p:
            ends = transform.radius_min, transform.radius_max
            to.add(program).operation.value[0] = to.uniform(*ends)

    def draw(to: Drawing) -> None:
        value = to.add(program).operation.value
        value[1] = value[2] = to.uniform(*transform.sigma)

    return draw_radius if type(transform).__module__.startswith(OWN) else draw


def _rotation(part: PipelinePart) -> Draw:
    """Draw the angle."""
    program, degrees = part.certain, part.transform.degrees

    def draw(to: Drawing) -> None:
        to.add(program).operation.value[0] = to.uniform(*degrees)

    return draw


def _affine(part: PipelinePart) -> Draw:
    """Draw the angle, the moves, the scale and the shears."""
    program, transform = part.certain, part.transform
    moves, shear = transform.translate or (), transform.shear or ()
    ends = [(3, transform.scale or ()), (4, shear[:2]), (5, shear[2:])]

    def draw(to: Drawing) -> None:
        sides = part.sides(to) if moves else ()
        value = to.add(program).operation.value
        value[0] = to.uniform(*transform.degrees)
        for at, (share, side) in enumerate(zip(moves, sides, strict=True), 1):
            value[at] = round(to.uniform(-float(share * side), float(share * side)))
        for at, limits in ends:
            if limits:
                value[at] = to.uniform(*limits)

    return draw


def _perspective(part: PipelinePart) -> Draw:
    """Draw whether it comes, and the corners."""
    comes, share, step = _coin(part), float(part.transform.distortion_scale), part.program[0]
    operation = step.operation and step.operation._replace(value=())
    program = Program([Step("operation", operation=operation)])

    def draw(to: Drawing) -> None:
        if comes(to):
            numbers = to.perspective(*part.sides(to), share)
            to.add(program).operation.value[0:8] = numbers

    return draw


def _cropping(part: PipelinePart) -> Draw:
    """Draw the top and the left: v1 also if only one is free, v2 each if it is."""
    before, step = Program(part.program[:-1]), part.program[-1]
    crop = step.operation
    if crop is None or step.picks > 2:
        raise Unsupported("its crop is not known")
    width, height, _, _, *borders = map(int, crop.value)
    pad = do(crop._replace(kind="pad", value=()))
    cut = do(crop._replace(value=(0, 0, width, height)))

    def draw(to: Drawing) -> None:
        to.add(before)
        across, down = to.size
        left, top, right, bottom = borders
        if step.picks:
            beside = max(0, width - across - left - right)
            below = max(0, height - down - top - bottom)
            left, top, right, bottom = left + beside, top + below, right + beside, bottom + below
        across, down = across + left + right - width, down + top + bottom - height  # free
        if min(across, down) < 0:
            raise Impossible("the crop is larger than the image")
        if left or top or right or bottom:
            to.add(pad).operation.value[0:4] = left, top, right, bottom
        both = part.is_first and (across or down)
        y = to.below(down + 1) if down or both else 0
        x = to.below(across + 1) if across or both else 0
        to.add(cut).operation.value[0:2] = x, y

    return draw


def _erasing(part: PipelinePart) -> Draw:
    """Draw whether it comes, and boxes until one fits."""
    comes, erasure, program = _coin(part), part.program[0].erasure, part.certain
    if erasure is None or erasure.noise != "none":
        raise Unsupported("its noise is that of torch's generator")

    def draw(to: Drawing) -> None:
        if not comes(to):
            return
        width, height = part.sides(to)
        for _ in range(_MOST_BOXES):
            down, across = to.sides(height * width, erasure.area, erasure.aspect)
            if down < height and across < width:
                top, left = to.below(height - down + 1), to.below(width - across + 1)
                to.erase(program, (left, top, across, down))
                return

    return draw


_MOST_BOXES = 10


def _scaling(part: PipelinePart) -> Draw:
    """Draw the factor of ScaleJitter."""
    program, limits = part.certain, part.transform.scale_range

    def draw(to: Drawing) -> None:
        factor = to.factor(*limits)
        to.add(program).area = [factor, factor]

    return draw


def _shortest(part: PipelinePart) -> Draw:
    """Draw one of the sizes of RandomShortestSize."""
    cases = part.program.inner
    return lambda to: to.add(cases[to.below(len(cases))])


# ---- containers ----


def _in_turn(part: PipelinePart) -> Draw:
    def draw(to: Drawing) -> None:
        for one in part.inner:
            one.draw(to)

    return draw


def _apply(part: PipelinePart) -> Draw:
    comes, whole = _coin(part), _in_turn(part)
    return lambda to: whole(to) if comes(to) else None


def _choose(part: PipelinePart) -> Draw:
    weights, indices = getattr(part.transform, "p", None), range(len(part.inner))
    shares = None if part.is_first else torch.tensor(weights, device="cpu")

    def draw(to: Drawing) -> None:
        if shares is None:
            at = random.choices(indices, weights=weights)[0]  # noqa: S311
        else:
            at = int(torch.multinomial(shares, 1))
        part.inner[at](to)

    return draw


def _shuffle(part: PipelinePart) -> Draw:
    def draw(to: Drawing) -> None:
        order = list(range(len(part.inner)))
        if part.is_first:
            random.shuffle(order)
        else:
            order = _order_of(len(order))
        for at in order:
            part.inner[at](to)

    return draw


# ---- torchvision's policies ----


class _Choices:
    """The operations of a policy, of which one after the other is drawn.

    `programs` has those of each name, with each magnitude and sign; that is drawn, after the
    magnitude if `draws_level`.
    """

    def __init__(
        self,
        part: PipelinePart,
        table: Policy,
        programs: Sequence[Program],
        names: Sequence[str] | None = None,
        *,
        draws_level: bool = False,
    ) -> None:
        self.is_first = part.is_first
        self.cases = []
        for name, program in zip(names or table.names, programs, strict=True):
            levels, signed = table.levels[name]
            count = len(program.inner) // (1 + signed)
            draws = count if draws_level and len(levels) > 1 else 0
            self.cases.append((tuple(map(_certain, program.inner)), draws, signed))

    def add_any(self, to: Drawing) -> None:
        """Draw one of the names, and what it does."""
        cases, count, signed = self.cases[to.below(len(self.cases))]
        level = to.below(count) if count else 0
        if not signed:
            to.add(cases[level])
        else:
            is_negative = to.below(2) == 1 if self.is_first else to.uniform(0, 1) <= 0.5
            to.add(cases[2 * level + is_negative])


def _trivial(part: PipelinePart) -> Draw:
    table = Policy(part.transform, part.size, part.transform.num_magnitude_bins)
    return _Choices(part, table, part.program.inner, draws_level=True).add_any


def _rand(part: PipelinePart) -> Draw:
    policy, layers = part.transform, part.program.inner
    table = Policy(policy, part.size, policy.num_magnitude_bins, part.size)
    choices = [_Choices(part, table, layer.inner) for layer in layers]

    def draw(to: Drawing) -> None:
        for one in choices:
            one.add_any(to)

    return draw


def _auto(part: PipelinePart) -> Draw:
    """Draw the pair; v1 then both numbers and both signs, v2 number and sign of each in turn."""
    policy, is_first = part.transform, part.is_first
    table = Policy(policy, part.size, 10, part.size)
    pairs = []
    for written, program in zip(
        policy._policies if hasattr(policy, "_policies") else policy.policies,
        part.program.inner,
        strict=True,
    ):
        choices = _Choices(part, table, program.inner, [name for name, _, _ in written])
        limits = [float(np.float32(p)) for _, p, _ in written]
        pairs.append(list(zip(limits, choices.cases, strict=True)))

    def draw_first(to: Drawing) -> None:
        pair = pairs[to.below(len(pairs))]
        numbers, signs = [to.uniform(0, 1) for _ in pair], [to.below(2) for _ in pair]
        for (limit, (cases, _, signed)), number, sign in zip(pair, numbers, signs, strict=True):
            if number <= limit:
                to.add(cases[1 if signed and sign == 0 else 0])

    def draw(to: Drawing) -> None:
        for limit, (cases, _, signed) in pairs[to.below(len(pairs))]:
            if to.uniform(0, 1) <= limit:
                to.add(cases[1 if signed and to.uniform(0, 1) <= 0.5 else 0])

    return draw_first if is_first else draw


_BEGIN, _ADD, _END = (do(Operation(kind, (1.0,))) for kind in ("mix_begin", "mix_add", "mix_end"))


def _mix(part: PipelinePart) -> Draw:
    """Draw the weights, and then each chain: its length, and its operations."""
    policy, width = part.transform, part.transform.mixture_width
    table = Policy(policy, part.size, policy._PARAMETER_MAX, part.size, partial=not policy.all_ops)
    chain = part.program.inner[0].inner[0].inner[0]  # of all chains, and in them
    choices = _Choices(part, table, chain.inner, draws_level=True)
    alphas = torch.full((1, 2 + width), float(policy.alpha), device="cpu")

    def draw(to: Drawing) -> None:
        kept, rest = torch._sample_dirichlet(alphas[:, :2])[0]
        weights = (torch._sample_dirichlet(alphas[:, 2:])[0] * rest).tolist()
        to.add(_BEGIN).operation.value[0] = kept.item()
        for weight in weights:
            depth = policy.chain_depth if policy.chain_depth > 0 else 1 + to.below(3)
            for _ in range(depth):
                choices.add_any(to)
            to.add(_ADD).operation.value[0] = weight
        to.add(_END)

    return draw


# ---- timm's, which draw from Python's generator and NumPy's ----


def _timm_box(part: PipelinePart) -> Draw:
    """Draw the box by timm's own function, which asks an image for its size alone."""
    transform, (_, resized) = part.transform, part.program.parts
    scaled = [*reversed(resized.inner)] if resized[0].kind == "choice" else []

    def draw(to: Drawing) -> None:
        width, height = part.sides(to)
        image = torch.empty(1, height, width, device="meta")
        top, left, down, across = transform.get_params(image, transform.scale, transform.ratio)
        to.crop(left, top, left + across, top + down)
        to.add(random.choice(scaled) if scaled else resized)  # noqa: S311

    return draw


def _timm_erasing(part: PipelinePart) -> Draw:
    """Draw whether it comes, the number of boxes, and boxes until each fits."""
    transform = part.transform
    if transform.per_pixel or transform.rand_color:
        raise Unsupported("its noise is that of torch's generator")
    program = Program([next(step for step in part.certain if step.erasure)])
    least, most = transform.min_count, transform.max_count

    def draw(to: Drawing) -> None:
        if random.random() > transform.probability:  # noqa: S311
            return
        width, height = part.sides(to)
        count = least if least == most else random.randint(least, most)  # noqa: S311
        for _ in range(count):
            for _ in range(_MOST_BOXES):
                share = random.uniform(transform.min_area, transform.max_area)  # noqa: S311
                aspect = math.exp(random.uniform(*transform.log_aspect_ratio))  # noqa: S311
                area = share * (height * width) / count
                down = round(math.sqrt(area * aspect))
                across = round(math.sqrt(area / aspect))
                if across < width and down < height:
                    top = random.randint(0, height - down)  # noqa: S311
                    left = random.randint(0, width - across)  # noqa: S311
                    to.erase(program, (left, top, across, down))
                    break

    return draw


class _TimmOperation:
    """One of timm's operations; its number is made by timm's own function."""

    def __init__(self, part: PipelinePart, op: Any, program: Program) -> None:
        self.part, self.op = part, op
        held = [one for one in program if not one.inner and one.operation]
        self.at = next((draw.at for one in held for draw in one.draws), -1)
        self.cases = [_certain(Program([one])) for one in held]
        self.moves = program[0].kind == "choice"

    def __call__(self, to: Drawing) -> None:
        op = self.op
        if op.prob < 1.0 and random.random() > op.prob:  # noqa: S311
            return
        magnitude = op.magnitude
        if op.magnitude_std == math.inf:
            magnitude = random.uniform(0, magnitude)  # noqa: S311
        elif op.magnitude_std > 0:
            magnitude = random.gauss(magnitude, op.magnitude_std)
        magnitude = max(0.0, min(magnitude, op.magnitude_max or 10.0))
        numbers = () if op.level_fn is None else op.level_fn(magnitude, op.hparams)
        several = self.moves and isinstance(op.kwargs["resample"], (list, tuple))
        case = random.choice(self.cases) if several else self.cases[0]  # noqa: S311
        width, height = self.part.sides(to) if op.name.endswith("Rel") else (1, 1)
        added = to.add(case)
        for number in numbers:
            unit = {"TranslateXRel": width, "TranslateYRel": height}.get(op.name, 1)
            desaturated = op.name == "Desaturate"
            value = min(1.0, max(0.0, 1.0 - number)) if desaturated else number * unit
            added.operation.value[self.at] = value


def _timm_operations(
    part: PipelinePart, program: Program, ops: Sequence[Any]
) -> Iterator[_TimmOperation]:
    return (_TimmOperation(part, op, one) for op, one in zip(ops, program.inner, strict=True))


def _timm_rand(part: PipelinePart) -> Draw:
    policy, weights = part.transform, part.transform.choice_weights
    layers = part.program if weights is not None else part.program.inner[0]
    ops = [*_timm_operations(part, layers, policy.ops)]

    def draw(to: Drawing) -> None:
        how = {"replace": weights is None, "p": weights}
        for at in np.random.choice(len(ops), policy.num_layers, **how):  # noqa: NPY002
            ops[at](to)

    return draw


def _timm_auto(part: PipelinePart) -> Draw:
    several = [
        [*_timm_operations(part, program, ops)]
        for ops, program in zip(part.transform.policy, part.program.inner, strict=True)
    ]

    def draw(to: Drawing) -> None:
        for op in random.choice(several):  # noqa: S311
            op(to)

    return draw


# ---- the table ----

DRAWS: Mapping[str, Callable[[PipelinePart], Draw]] = {
    **dict.fromkeys(
        (
            *("CenterCrop", "Grayscale", "ImageClassification", "LetterBox", "OpenCVResize", "Pad"),
            *("PadToSquare", "Resize", "ResizeCenterCrop", "SmartResize"),
        ),
        _steady,
    ),
    **dict.fromkeys(
        (
            *("RandomAdjustSharpness", "RandomAutocontrast", "RandomEqualize", "RandomGrayscale"),
            *("RandomHorizontalFlip", "RandomInvert", "RandomPosterize", "RandomSolarize"),
            "RandomVerticalFlip",
        ),
        _sometimes,
    ),
    "AugMix": _mix,
    "AutoAugment": _auto,
    "ColorJitter": _jitter,
    "Compose": _in_turn,
    "GaussianBlur": _blur,
    "RandAugment": _rand,
    "RandomAffine": _affine,
    "RandomApply": _apply,
    "RandomChannelPermutation": _permutation,
    "RandomChoice": _choose,
    "RandomCrop": _cropping,
    "RandomErasing": _erasing,
    "RandomOrder": _shuffle,
    "RandomPerspective": _perspective,
    "RandomPhotometricDistort": _distort,
    "RandomResizedCrop": _box,
    "RandomRotation": _rotation,
    "RandomShortestSize": _shortest,
    "ScaleJitter": _scaling,
    "TrivialAugmentWide": _trivial,
    "timm.AutoAugment": _timm_auto,
    "timm.RandAugment": _timm_rand,
    "timm.RandomErasing": _timm_erasing,
    "timm.RandomResizedCropAndInterpolation": _timm_box,
}
"""How the classes of `_recognise.TABLE` are drawn, by their names."""
