"""What a `Loader` draws is distributed as what torchvision and timm draw.

Each test compares two samples: operations, and whatever else has few values, by chi-square;
numbers by Kolmogorov and Smirnov's test. The seeds are fixed. FASTDECODE_DRAWS is the number of
samples.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from corpus import native_core
from PIL import Image

pytest.importorskip("torchvision")
pytest.importorskip("timm")

import timm.data.auto_augment as timm_policies
import timm.data.random_erasing as timm_erasing
import timm.data.transforms as timm_crops
from torchvision.transforms import AutoAugmentPolicy, autoaugment, v2
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import transforms as v1

from fastdecode.native._augment import Operation, augment, draw_operations
from fastdecode.torch import transforms
from fastdecode.torch._loader.order import sample_seed
from fastdecode.torch._recognise import program_of
from fastdecode.torch.transforms._random_crop import SampleGenerator

native_core()

COUNT = int(os.environ.get("FASTDECODE_DRAWS", "1500"))
SIZE = (20, 26)
PIXELS = np.random.default_rng(1).integers(0, 256, (*SIZE, 3)).astype(np.uint8)
IMAGE = Image.fromarray(PIXELS)
LEAST = 0.001
"""A smaller chance that two samples come from one distribution is a failure."""


def _same_shares(ours: Sequence[Hashable], theirs: Sequence[Hashable]) -> float:
    """Return the p-value of Pearson's test for two samples; rare values count as one."""
    first, second = Counter(ours), Counter(theirs)
    cells: Counter[Any] = Counter()
    for value in first.keys() | second.keys():
        common = first[value] + second[value] >= 10
        cells[value if common else None, 0] += first[value]
        cells[value if common else None, 1] += second[value]
    values = {value for value, _ in cells}
    sizes, total = (len(ours), len(theirs)), len(ours) + len(theirs)
    square = sum(
        (cells[value, sample] - expected) ** 2 / expected
        for value in values
        for sample in (0, 1)
        for expected in [(cells[value, 0] + cells[value, 1]) * sizes[sample] / total]
    )
    if len(values) < 2:
        return 1.0
    half_freedom, half = (
        torch.tensor(n / 2, dtype=torch.float64) for n in (len(values) - 1, square)
    )
    return float(torch.special.gammaincc(half_freedom, half))


def _same_numbers(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the p-value of Kolmogorov and Smirnov's test for two samples."""
    first, second = np.sort(ours), np.sort(theirs)
    every = np.concatenate([first, second])
    shares = [np.searchsorted(one, every, side="right") / len(one) for one in (first, second)]
    root = (len(first) * len(second) / len(every)) ** 0.5
    reach = (root + 0.12 + 0.11 / root) * np.abs(shares[0] - shares[1]).max()
    k = np.arange(1, 101)
    series = 2 * ((-1.0) ** (k - 1) * np.exp(-2 * (k * reach) ** 2)).sum()
    return float(np.clip(series, 0, 1)) if reach > 0.2 else 1.0


@pytest.fixture(autouse=True)
def _seeds() -> None:
    """Seed the generators that torchvision and timm draw from."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002


def _drawn(program: Any, size: tuple[int, int] = SIZE) -> Iterator[list[Operation]]:
    """Yield the operations that samples of a Loader get."""
    for item in range(COUNT):
        yield draw_operations(program, sample_seed(7, 1, item), *size[::-1])[0]


def test_the_tests_notice_small_differences() -> None:
    """Other shares and other numbers are found in samples of this size, and equal ones pass."""
    numbers = np.random.default_rng(5)
    even, odd = numbers.integers(0, 14, COUNT), numbers.integers(0, 14, COUNT)
    assert _same_shares(even.tolist(), odd.tolist()) > LEAST
    assert _same_shares(even.tolist(), np.minimum(odd, 12).tolist()) < LEAST
    uniform, other = numbers.uniform(0, 1, COUNT), numbers.uniform(0, 1, COUNT)
    assert _same_numbers(uniform, other) > LEAST
    assert _same_numbers(uniform, 0.9 * other) < LEAST
    assert _same_numbers(uniform, other**1.2) < LEAST


# ---- what has few results: the pixels themselves are counted ----

_MODULES = {"v1": (v1, autoaugment), "v2": (v2, v2)}
_POLICIES: dict[str, Callable[[Any], Any]] = {
    "trivial": lambda auto: auto.TrivialAugmentWide(),
    "trivial, 5 bins": lambda auto: auto.TrivialAugmentWide(5, Mode.BILINEAR, [9, 128, 200]),
    "rand": lambda auto: auto.RandAugment(),
    "rand, 3 of 13": lambda auto: auto.RandAugment(3, 13, interpolation=Mode.BILINEAR),
    **{
        policy.value: lambda auto, policy=policy: auto.AutoAugment(policy)
        for policy in AutoAugmentPolicy
    },
}
_SIMPLE: dict[str, Callable[[Any], Any]] = {
    "apply": lambda m: m.RandomApply([m.RandomInvert(1.0), m.RandomVerticalFlip()], p=0.3),
    "choice": lambda m: m.RandomChoice(
        [m.RandomInvert(1.0), m.RandomHorizontalFlip(), m.Grayscale(3)], p=[0.2, 0.5, 0.3]
    ),
    "order": lambda m: m.RandomOrder(
        [m.RandomSolarize(128, 1.0), m.Grayscale(3), m.RandomPosterize(3, 0.5)]
    ),
    "single": lambda m: m.Compose(
        [
            m.RandomGrayscale(0.2),
            m.RandomHorizontalFlip(0.3),
            m.RandomVerticalFlip(0.6),
            m.RandomInvert(0.4),
            m.RandomSolarize(100, 0.1),
        ]
    ),
    "more": lambda m: m.Compose(
        [
            m.RandomPosterize(2, 0.2),
            m.RandomAdjustSharpness(2, 0.3),
            m.RandomAutocontrast(0.7),
            m.RandomEqualize(0.6),
        ]
    ),
}


def _results(transform: Any, make: Callable[[], bytes]) -> float:
    """Compare the frequencies of the results of a transform and of its program."""
    ours = [augment(PIXELS, operations).tobytes() for operations in _drawn(transform)]
    return _same_shares(ours, [make() for _ in range(COUNT)])


@pytest.mark.parametrize("version", _MODULES)
@pytest.mark.parametrize("name", [*_POLICIES, *_SIMPLE])
def test_each_result_is_as_frequent_as_torchvisions(name: str, version: str) -> None:
    """Operations with their magnitudes and signs, in their order: each result, bit by bit."""
    plain, auto = _MODULES[version]
    transform = _POLICIES[name](auto) if name in _POLICIES else _SIMPLE[name](plain)
    assert _results(program_of(transform, SIZE), lambda: transform(IMAGE).tobytes()) > LEAST


# ---- operations by name, where there are too many results ----

_NAMES = {
    "saturation": "Color",
    "autocontrast": "AutoContrast",
    **{
        name.lower(): name
        for name in ("Brightness", "Contrast", "Sharpness", "Posterize", "Solarize", "Equalize",
                     "Invert", "Rotate")
    },
}  # fmt: skip
_MOVES = {1: "ShearX", 2: "TranslateX", 3: "ShearY", 5: "TranslateY"}


def _name(operation: Operation) -> str:
    """Return torchvision's name of an operation; a move by nothing has none."""
    if operation.kind != "warp":
        return _NAMES[operation.kind]
    moved = [at for at in _MOVES if abs(operation.value[at]) > 1e-9]
    return _MOVES[moved[0]] if moved else ""


def _their_name(name: str, magnitude: float) -> str:
    still = name in _MOVES.values() and (magnitude == 0 or (name[0] == "T" and abs(magnitude) < 1))
    return "" if still or name == "Identity" else name


def _record_policy(policy: Any, patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the name of each operation of a policy, which is not done."""
    record: list[str] = []

    def note(image: Any, operation: str, magnitude: float, *_: Any, **__: Any) -> Any:
        record.append(_their_name(operation, magnitude))
        return image

    if hasattr(policy, "_apply_image_or_video_transform"):
        patch.setattr(policy, "_apply_image_or_video_transform", note)
    else:
        patch.setattr(autoaugment, "_apply_op", note)
    return record


@pytest.mark.parametrize("version", _MODULES)
@pytest.mark.parametrize("name", _POLICIES)
def test_operations_of_policies_are_as_frequent_as_torchvisions(
    name: str, version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of all operations together, and their number, if it is random."""
    policy = _POLICIES[name](_MODULES[version][1])
    program = program_of(policy, SIZE)
    record = _record_policy(policy, monkeypatch)
    theirs = []
    for _ in range(COUNT):
        record.clear()
        policy(IMAGE)
        theirs.append([each for each in record if each])
    ours = [[each for each in map(_name, drawn) if each] for drawn in _drawn(program)]
    assert _same_shares([*map(len, ours)], [*map(len, theirs)]) > LEAST
    assert _same_shares([*chain(*ours)], [*chain(*theirs)]) > LEAST
    pairs = [[tuple(each[:2]) for each in several] for several in (ours, theirs)]
    assert _same_shares(*pairs) > LEAST


# ---- numbers ----


class _Numbers(NamedTuple):
    """Two samples of each number of a transform, and of each property that has few values."""

    ours: dict[str, list[float]]
    theirs: dict[str, list[float]]
    few: tuple[str, ...] = ()

    def check(self) -> None:
        assert self.ours.keys() == self.theirs.keys()
        for name, numbers in self.ours.items():
            test: Any = _same_shares if name in self.few else _same_numbers
            assert test(numbers, self.theirs[name]) > LEAST, name


def _columns(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> dict[str, list[Any]]:
    return {name: [row[at] for row in rows] for at, name in enumerate(names)}


def _params(transform: Any, *arguments: Any) -> Any:
    """Draw the parameters of a transform of version 2."""
    return transform.make_params([IMAGE, *arguments])


FACTORS = ("brightness", "contrast", "saturation", "hue")


@pytest.mark.parametrize("version", _MODULES)
@pytest.mark.parametrize("how", [(0.4, 0.4, 0.4, 0.1), ((0.5, 3.0), 0, 0.8, (-0.2, 0.5))], ids=str)
def test_jitter(version: str, how: Any) -> None:
    """ColorJitter: the order of the four, and each factor."""
    jitter = _MODULES[version][0].ColorJitter(*how)
    kept = [kind for kind in FACTORS if getattr(jitter, kind) is not None]
    ours = [
        [[each.kind for each in drawn], *({e.kind: e.value[0] for e in drawn}[k] for k in kept)]
        for drawn in _drawn(program_of(jitter, SIZE))
    ]
    theirs = []
    for _ in range(COUNT):
        if version == "v1":
            order, *factors = jitter.get_params(*(getattr(jitter, kind) for kind in FACTORS))
        else:
            drawn = _params(jitter)
            order, factors = drawn["fn_idx"], [drawn[f"{kind}_factor"] for kind in FACTORS]
        kinds = [FACTORS[at] for at in order.tolist() if FACTORS[at] in kept]
        theirs.append([kinds, *(float(each) for each in factors if each is not None)])
    columns = [_columns(["order", *kept], rows) for rows in (ours, theirs)]
    for each in columns:
        each["order"] = ["".join(order) for order in each["order"]]
    _Numbers(*columns, few=("order",)).check()


@pytest.mark.parametrize("version", _MODULES)
@pytest.mark.parametrize("shear", [10, (-9, 9, -5, 7)], ids=str)
def test_affine(version: str, shear: Any) -> None:
    """RandomAffine: angle, moves by whole pixels, scale and shears."""
    transform = _MODULES[version][0].RandomAffine(30, (0.2, 0.4), (0.5, 1.5), shear)
    ours = [drawn.value for (drawn,) in _drawn(program_of(transform, SIZE))]
    theirs = []
    for _ in range(COUNT):
        if version == "v1":
            degrees, moves, scale = transform.degrees, transform.translate, transform.scale
            size = [SIZE[1], SIZE[0]]
            drawn = transform.get_params(degrees, moves, scale, transform.shear, size)
        else:
            named = _params(transform)
            drawn = [named[name] for name in ("angle", "translate", "scale", "shear")]
        angle, move, scale, sheared = drawn
        theirs.append([angle, *map(float, move), scale, *sheared])
    names = ["angle", "right", "down", "scale", "shear x", "shear y"]
    columns = [_columns(names, rows) for rows in (ours, theirs)]
    _Numbers(*columns, few=("right", "down")).check()


@pytest.mark.parametrize("version", _MODULES)
def test_rotation_and_blur(version: str) -> None:
    """RandomRotation: the angle. GaussianBlur: sigma, the same along both sides."""
    rotation = _MODULES[version][0].RandomRotation((-20, 70))
    blur = _MODULES[version][0].GaussianBlur(5, (0.1, 2.0))
    turns = [drawn.value[0] for (drawn,) in _drawn(program_of(rotation, SIZE))]
    blurs = [each.value for (each,) in _drawn(program_of(blur, SIZE))]
    assert all(value[1] == value[2] for value in blurs)
    draws: Any = {
        "v1": lambda: (rotation.get_params(rotation.degrees), blur.get_params(*blur.sigma)),
        "v2": lambda: (_params(rotation)["angle"], _params(blur)["sigma"][0]),
    }[version]
    theirs = _columns(["angle", "sigma"], [draws() for _ in range(COUNT)])
    _Numbers({"angle": turns, "sigma": [value[1] for value in blurs]}, theirs).check()


def _box(changed: Any) -> list[float]:
    """Return whether anything changed, and left, top, width and height of the box that did."""
    rows, columns = changed.any(1).nonzero(), changed.any(0).nonzero()
    if not len(rows):
        return [0.0, -1.0, -1.0, 0.0, 0.0]
    top, left = int(rows.min()), int(columns.min())
    return [1.0, left, top, int(columns.max()) + 1 - left, int(rows.max()) + 1 - top]


ERASED = (40, 50)
_TIMM = {"mode": "pixel", "device": "cpu"}


@pytest.mark.parametrize("scale", [(0.02, 0.33), (0.5, 1.0)], ids=str)
@pytest.mark.parametrize("version", [*_MODULES, "timm"])
def test_erasing(version: str, scale: Any) -> None:
    """RandomErasing: how often, where, and sides, also where most boxes do not fit."""
    if version == "timm":
        erasing = timm_erasing.RandomErasing(0.75, *scale, min_aspect=0.3, max_aspect=3.3, **_TIMM)
    else:
        erasing = _MODULES[version][0].RandomErasing(0.75, scale, value="random")
    names = ["done", "left", "top", "width", "height"]
    ours, theirs = [], []
    for drawn in _drawn(program_of(erasing, ERASED), ERASED):
        boxes = [[1.0, *each.value[:4]] for each in drawn if each.value[2] and each.value[3]]
        ours.append((boxes or [_box(torch.zeros(1, 1))])[0])
        theirs.append(_box((erasing(torch.zeros(3, *ERASED)) != 0).any(0)))
    columns = [_columns(names, rows) for rows in (ours, theirs)]
    for each in columns:
        each["area"] = [a * b for a, b in zip(each["width"], each["height"], strict=True)]
        each["aspect"] = [a / max(b, 1) for a, b in zip(each["width"], each["height"], strict=True)]
    _Numbers(*columns, few=("done",)).check()


@pytest.mark.parametrize(
    ("mode", "noise"), [("const", "none"), ("rand", "channel"), ("pixel", "pixel")]
)
def test_several_boxes_of_timm(mode: str, noise: str) -> None:
    """With up to three boxes, as much is erased as in timm, and with the same noise."""
    erasing = timm_erasing.RandomErasing(1.0, 0.1, 0.5, max_count=3, **_TIMM)
    program = program_of(
        timm_erasing.RandomErasing(1.0, mode=mode, max_count=3, device="cpu"), ERASED
    )
    assert {step.erasure.noise for step in program if step.erasure} == {noise}
    ours, theirs = [], []
    for drawn in _drawn(program_of(erasing, ERASED), ERASED):
        erased = torch.zeros(ERASED)
        for each in drawn:
            left, top, width, height = map(int, each.value[:4])
            erased[top : top + height, left : left + width] = 1
        ours.append(float(erased.sum()))
        theirs.append(float((erasing(torch.zeros(3, *ERASED)) != 0).any(0).sum()))
    _Numbers({"area": ours}, {"area": theirs}).check()


CROPS = {
    "photo": ((375, 500), {}),
    "narrow ranges": ((500, 375), {"scale": (0.5, 0.6), "ratio": (1.0, 3.0)}),
    "a strip": ((20, 400), {}),
    "tiny": ((3, 2), {}),
}


@pytest.mark.parametrize("name", CROPS)
@pytest.mark.parametrize("version", [*_MODULES, "timm"])
def test_crops(version: str, name: str) -> None:
    """RandomResizedCrop and its flip: area, aspect, and where the box lies."""
    (height, width), how = CROPS[name]
    ours, theirs = [], []
    crop = transforms.RandomResizedCrop(32, flip=0.5, **how)
    if version == "timm":
        other = timm_crops.RandomResizedCropAndInterpolation(32, **how)
    else:
        other = _MODULES[version][0].RandomResizedCrop(32, **how)
    image = Image.new("L", (width, height))
    for item in range(COUNT):
        generator = SampleGenerator().manual_seed(sample_seed(7, 1, item))
        plan = crop.draw(width, height, generator).plan
        left, top, right, bottom = plan.box
        ours.append([left, top, right - left, bottom - top, plan.flip])
        if version == "v2":
            drawn = other.make_params([image])
            box = [drawn[key] for key in ("left", "top", "width", "height")]
        else:
            top, left, high, wide = other.get_params(image, other.scale, other.ratio)
            box = [left, top, wide, high]
        theirs.append([*box, bool(torch.rand(1) < 0.5)])
    names = ["left", "top", "width", "height", "flip"]
    columns = [_columns(names, rows) for rows in (ours, theirs)]
    for each in columns:
        each["area"] = [a * b for a, b in zip(each["width"], each["height"], strict=True)]
        each["aspect"] = [a / b for a, b in zip(each["width"], each["height"], strict=True)]
    few = ("left", "top", "width", "height", "flip") if name == "tiny" else ("flip",)
    _Numbers(*columns, few=few).check()


@pytest.mark.parametrize("version", _MODULES)
def test_augmix(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """AugMix: its weights, the operations of all chains, and their number."""
    policy = _MODULES[version][1].AugMix(severity=4, mixture_width=3)
    program = program_of(policy, SIZE)
    record, rows = _record_policy(policy, monkeypatch), []
    weights: list[list[float]] = []
    sample = policy._sample_dirichlet

    def dirichlet(parameters: torch.Tensor) -> torch.Tensor:
        weights.append(sample(parameters).flatten().tolist())
        return torch.tensor(weights[-1]).view(1, -1)

    monkeypatch.setattr(policy, "_sample_dirichlet", dirichlet)
    names: tuple[list[str], list[str]] = ([], [])
    for _ in range(COUNT):
        record.clear()
        weights.clear()
        policy(IMAGE)
        names[1].extend(each for each in record if each)
        rows.append([weights[0][0], *weights[1][:2], sum(map(bool, record))])
    ours = []
    for drawn in _drawn(program):
        shares = [each.value[0] for each in drawn if each.kind in ("mix_begin", "mix_add")]
        parts = [_name(each) for each in drawn if not each.kind.startswith("mix")]
        names[0].extend(filter(None, parts))
        chains = [share / (1 - shares[0]) for share in shares[1:3]]
        ours.append([shares[0], *chains, sum(map(bool, parts))])
    heads = ["image", "first", "second", "operations"]
    _Numbers(_columns(heads, ours), _columns(heads, rows), few=("operations",)).check()
    assert _same_shares(*names) > LEAST


# ---- timm ----

TIMM = {
    "rand-m9-mstd0.5-inc1": 2,
    "rand-m7-n3-mstd101-inc1": 3,
    "rand-m6-n2-p0.7-mstd1-t3a": 2,
    "rand-m9-n3-mstd0.5-tweights-inc1": 3,
    "original-mstd0.5": 2,
    "v0-mstd0.5": 2,
    "augmix-m5-w4-mstd1": 12,
}
_INDEX = {"ShearX": 1, "ShearY": 3, "TranslateX": 2, "TranslateY": 5}


def _timm(name: str) -> Any:
    # As create_transform has it: a size for the moves, and the mean for the fill.
    options = {"translate_const": 100, "img_mean": (124, 116, 104)}
    makers = {
        "rand": timm_policies.rand_augment_transform,
        "augmix": timm_policies.augment_and_mix_transform,
    }
    return makers.get(name.partition("-")[0], timm_policies.auto_augment_transform)(name, options)


def _record_timm(policy: Any) -> list[tuple[str, float]]:
    """Return a list that gets each operation of a policy of timm, with its number."""
    record: list[tuple[str, float]] = []

    def recorded(op: Any) -> Any:
        name = _timm_name(op.name)
        share = {"TranslateXRel": SIZE[1], "TranslateYRel": SIZE[0]}.get(op.name, 1)

        def apply(image: Any, *arguments: float, **_: Any) -> Any:
            number = share * arguments[0] if arguments else 0.0
            number = 1 - number if op.name == "Desaturate" else number
            record.append(("" if name in _INDEX and not number else name, number))
            return image

        return apply

    several = policy.ops if hasattr(policy, "ops") else [op for one in policy.policy for op in one]
    for op in several:
        op.aug_fn = recorded(op)
    return record


def _timm_name(name: str) -> str:
    for ending in ("Increasing", "Original", "Rel"):
        name = name.removesuffix(ending)
    return "Color" if name == "Desaturate" else name


def _our_timm(operation: Operation) -> tuple[str, float]:
    names = {"box_blur": "GaussianBlur", "solarize_add": "SolarizeAdd"}
    name = names.get(operation.kind) or _name(operation)
    number = operation.value[_INDEX.get(name, 0)] if operation.value else 0.0
    return name, 0.0 if name in ("", "AutoContrast", "Equalize", "Invert") else number


@pytest.mark.parametrize("name", TIMM)
def test_timms_policies(name: str) -> None:
    """Each operation is as frequent as timm's, and its number has the same distribution."""
    policy = _timm(name)
    program = program_of(policy, SIZE)
    record = _record_timm(policy)
    counts, theirs = [], []
    for _ in range(COUNT):
        record.clear()
        policy(IMAGE)
        counts.append(len(record))
        theirs.extend(record)
    drawn = [[e for e in each if not e.kind.startswith("mix")] for each in _drawn(program)]
    ours = [_our_timm(each) for several in drawn for each in several]
    assert max(counts) == TIMM[name]
    assert _same_shares([*map(len, drawn)], counts) > LEAST
    assert _same_shares([each for each, _ in ours], [each for each, _ in theirs]) > LEAST
    numbers = [
        {kind: [number for each, number in sample if each == kind] for kind in dict(theirs)}
        for sample in (ours, theirs)
    ]
    _Numbers(*numbers, few=("Posterize",)).check()


MAGNITUDES = [
    *((4, None, 0.0), (10, None, 0.5), (4, 6, 0.0), (4, 6, 0.5), (4, 6, float("inf"))),
    *((5, 9.5, 0.0), (8, 6, 0.0), (8, 6, 2.5), (6, 6, float("inf")), (3, 10, 2.5)),
]
LEVELS = [
    *("Posterize", "PosterizeOriginal", "Solarize", "SolarizeIncreasing", "SolarizeAdd"),
    *("Brightness", "Desaturate", "GaussianBlur"),
]


@pytest.mark.parametrize(("magnitude", "most", "spread"), MAGNITUDES)
@pytest.mark.parametrize("name", LEVELS)
def test_timms_magnitudes_are_limited_as_timm_does(
    name: str, magnitude: float, most: float | None, spread: float
) -> None:
    """The numbers of an operation are those of timm: the same, or of the same distribution."""
    op = timm_policies.AugmentOp(
        name, 1.0, magnitude, {"magnitude_max": most, "magnitude_std": spread}
    )
    program = program_of(timm_policies.AutoAugment([[op]]), SIZE)
    ours = [round(_our_timm(drawn)[1], 9) for (drawn,) in _drawn(program)]
    record = _record_timm(timm_policies.AutoAugment([[op]]))
    for _ in range(COUNT):
        op(IMAGE)
    theirs = [round(number, 9) for _, number in record]
    if spread == 0:
        assert max(ours) == min(ours) == pytest.approx(theirs[0])
        return
    few = ("level",) if name.startswith("Posterize") else ()
    _Numbers({"level": ours}, {"level": theirs}, few=few).check()
    assert max(ours) <= max(theirs) + 0.01 * (max(theirs) - min(theirs))


def test_timms_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of the chains of timm's AugMix, and that of the mix."""
    policy = _timm("augmix-m5-w3-a2")
    program = program_of(policy, SIZE)
    rows, draws = [], np.random  # timm's own

    def kept(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            rows.append(original(*arguments))
            return rows[-1]

        return call

    for each in ("dirichlet", "beta"):
        monkeypatch.setattr(draws, each, kept(getattr(draws, each)))
    for _ in range(COUNT):
        policy(IMAGE)
    theirs = [[*chains[:2], mixed] for chains, mixed in zip(rows[::2], rows[1::2], strict=True)]
    ours = [
        [each.value[0] for each in drawn if each.kind in ("mix_add", "mix_end")]
        for drawn in _drawn(program)
    ]
    names = ["first", "second", "mix"]
    _Numbers(_columns(names, [[a, b, d] for a, b, _, d in ours]), _columns(names, theirs)).check()
