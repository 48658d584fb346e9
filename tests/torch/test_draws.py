"""What a `Loader` draws is distributed as what the same pipeline draws outside of one.

There it draws just what the libraries draw, as test_pipelines shows. Two samples are compared:
operations, and numbers of few values, by chi-square, and all numbers by Kolmogorov and Smirnov's
test. The seeds are fixed. FASTDECODE_DRAWS is the number of samples.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from corpus import native_core
from PIL import Image

pytest.importorskip("torchvision")
pytest.importorskip("timm")

from timm.data import transforms as timm
from torchvision_steps import (
    ALONE,
    MODULES,
    STEPS,
    TIMM_POLICIES,
    WITHIN_LEVELS,
    TimmErasing,
    timm_operation,
    timm_policy,
    v1,
)

from fastdecode.native._augment import augment, draw_operations
from fastdecode.torch import fuse, transforms
from fastdecode.torch._loader.order import sample_seed
from fastdecode.torch._recognise import program_of
from fastdecode.torch.transforms._random_crop import SampleGenerator

native_core()

COUNT = int(os.environ.get("FASTDECODE_DRAWS", "1500"))
SIDES = (26, 20)
LEAST = 0.0001
"""A smaller chance that two samples come from one distribution is a failure."""
Sample: TypeAlias = "list[tuple[float, ...]]"
"""For each operation its kind and its numbers."""


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


def _check(what: str, ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    assert _same_shares(ours, theirs) > LEAST, f"shares of {what}"
    if ours and theirs and isinstance(ours[0], float):
        assert _same_numbers(ours, theirs) > LEAST, f"distribution of {what}"


def _compare(ours: Sequence[Sample], theirs: Sequence[Sample]) -> None:
    """Compare whole samples, the kinds of their operations, and the numbers of each kind."""
    both = ours, theirs
    kinds = [[[one[0] for one in sample] for sample in samples] for samples in both]
    _check("samples", *([tuple(sample) for sample in samples] for samples in both))
    _check("counts", *([float(len(sample)) for sample in samples] for samples in kinds))
    _check("kinds", *([tuple(sample) for sample in samples] for samples in kinds))
    _check("first kinds", *([tuple(sample[:2]) for sample in samples] for samples in kinds))
    for kind in {kind for samples in kinds for sample in samples for kind in sample}:
        first, second = (
            np.array([one[1:] for sample in samples for one in sample if one[0] == kind])
            for samples in both
        )
        if min(len(first), len(second)) < 20:  # of which the kinds have been compared
            continue
        for at in range(first.shape[1]):
            _check(f"{kind}[{at}]", first[:, at].tolist(), second[:, at].tolist())
        for at in range(first.shape[1] - 1):  # an area and an aspect, two shears
            pairs = ((one[:, at] * one[:, at + 1]).round(6).tolist() for one in (first, second))
            _check(f"{kind}[{at}] by the next", *pairs)


def _seed() -> None:
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)  # noqa: NPY002 - timm draws from it


def _samples(transform: Any, sides: tuple[int, int] = SIDES) -> tuple[list[Sample], list[Sample]]:
    """Return samples of a Loader, and samples of the pipeline as it is drawn outside of one."""
    plan = getattr(fuse(transform), "plan", None)
    in_loader, outside = (transform, transform) if plan is None else (plan.head, plan.alike.head)
    drawn: tuple[list[Any], list[Any]] = ([], [])
    _seed()
    for item in range(COUNT):
        generator = SampleGenerator().manual_seed(sample_seed(7, 1, item))
        drawn[0].append(in_loader.draw(*sides, generator))
        drawn[1].append(outside.draw(*sides, None))
    ours, theirs = (
        [
            [(float(one.kind), *(round(float(n), 6) for n in one.value)) for one in each.operations]
            for each in samples
        ]
        for samples in drawn
    )
    return ours, theirs


def _sized(step: Any) -> Any:
    """Return a step of an image of known size, on which the moves of policies depend."""
    return v1.Compose([v1.Resize(SIDES[::-1]), step])


@pytest.mark.parametrize("version", MODULES)
@pytest.mark.parametrize("name", [*STEPS, *WITHIN_LEVELS])
def test_torchvisions_steps(name: str, version: str) -> None:
    """Operations with their magnitudes and signs, their order and their number."""
    _compare(*_samples(_sized({**STEPS, **WITHIN_LEVELS}[name](MODULES[version]))))


@pytest.mark.parametrize("name", ALONE)
def test_classes_of_one_version_alone(name: str) -> None:
    """Sizes, and the channels."""
    _compare(*_samples(_sized(ALONE[name]())))


@pytest.mark.parametrize("name", TIMM_POLICIES)
def test_timms_policies(name: str) -> None:
    """Each operation is as frequent as timm's, and its number has the same distribution."""
    _compare(*_samples(_sized(timm_policy(name))))


@pytest.mark.parametrize(
    ("magnitude", "most", "spread"),
    [
        *((4, None, 0.0), (10, None, 0.5), (4, 6, 0.0), (4, 6, 0.5), (4, 6, float("inf"))),
        *((5, 9.5, 0.0), (8, 6, 0.0), (8, 6, 2.5), (6, 6, float("inf")), (3, 10, 2.5)),
    ],
)
@pytest.mark.parametrize("name", ["PosterizeOriginal", "SolarizeAdd", "Brightness", "Desaturate"])
def test_timms_magnitudes_are_limited_as_timm_does(
    name: str, magnitude: float, most: float | None, spread: float
) -> None:
    """A magnitude may be fixed or random, with a maximum or without."""
    _compare(*_samples(_sized(timm_operation(name, magnitude, most, spread))))


CROPS: dict[str, tuple[tuple[int, int], dict[str, Any]]] = {
    "photo": ((500, 375), {}),
    "narrow ranges": ((375, 500), {"scale": (0.5, 0.6), "ratio": (1.0, 3.0)}),
    "a strip": ((400, 20), {}),
    "tiny": ((2, 3), {}),
}


@pytest.mark.parametrize("name", CROPS)
@pytest.mark.parametrize("version", [*MODULES, "timm", "ours"])
def test_crops(version: str, name: str) -> None:
    """RandomResizedCrop and a flip: area, aspect, and where the box lies."""
    sides, how = CROPS[name]
    if version == "ours":
        return _compare(*_samples(transforms.RandomResizedCrop(32, flip=0.5, **how), sides))
    crop = (
        timm.RandomResizedCropAndInterpolation(32, **how)
        if version == "timm"
        else MODULES[version].RandomResizedCrop(32, **how)
    )
    return _compare(*_samples(v1.Compose([crop, v1.RandomHorizontalFlip()]), sides))


ERASED = (40, 50)
ERASINGS: dict[str, Callable[[], Any]] = {
    **{
        f"{version} {scale}": lambda m=module, s=scale: m.RandomErasing(0.75, s, value="random")
        for version, module in MODULES.items()
        for scale in ((0.02, 0.33), (0.5, 1.0))
    },
    "timm": lambda: TimmErasing(0.75, mode="pixel"),
    "timm, mostly too large": lambda: TimmErasing(0.75, 0.5, 1.0, mode="pixel"),
    "timm, up to three": lambda: TimmErasing(1.0, 0.1, 0.5, max_count=3, mode="rand"),
}


@pytest.mark.parametrize("name", ERASINGS)
def test_erasing_with_noise(name: str) -> None:
    """How often, how much and where, also where most boxes do not fit.

    Outside of a Loader the library does it, so the pixels that it changes are compared.
    """
    erasing = ERASINGS[name]()
    program = program_of(erasing, ERASED)
    ours, theirs = [], []
    _seed()
    for item in range(COUNT):
        erased = torch.zeros(ERASED, dtype=torch.bool)
        for each in draw_operations(program, sample_seed(7, 1, item), *ERASED[::-1])[0]:
            left, top, width, height = map(int, each.value[:4])
            erased[top : top + height, left : left + width] = True
        ours.append(erased)
        theirs.append((erasing(torch.zeros(3, *ERASED)) != 0).any(0))
    ends: dict[str, Callable[[torch.Tensor], Any]] = {
        "area": torch.sum,
        "rows": lambda erased: erased.any(1).sum(),
        "columns": lambda erased: erased.any(0).sum(),
        "top": lambda erased: erased.any(1).int().argmax(),
        "left": lambda erased: erased.any(0).int().argmax(),
    }
    for what, of in ends.items():
        both = ([float(of(one)) for one in several] for several in (ours, theirs))
        assert _same_numbers(*both) > LEAST, what


@pytest.mark.parametrize("name", ["augmix-m5", "augmix-m5-w4-mstd1", "augmix-m5-w2-a2-d2"])
def test_timms_mix(name: str) -> None:
    """As timm draws it is not known outside of a Loader, so the pixels are compared."""
    policy, levels = timm_policy(name), np.random.default_rng(1).integers(0, 256, (20, 26, 3))
    pixels, count = levels.astype(np.uint8), COUNT // 2
    image, program = Image.fromarray(pixels), program_of(policy, SIDES[::-1])
    _seed()
    ours = [
        augment(pixels, draw_operations(program, sample_seed(7, 1, item), *SIDES)[0])
        for item in range(count)
    ]
    theirs = [np.asarray(policy(image)) for _ in range(count)]
    ends: dict[str, Callable[[np.ndarray], Any]] = {
        "mean": np.mean,
        "deviation": np.std,
        "difference": lambda made: np.abs(made.astype(int) - pixels).mean(),
        "unchanged": lambda made: (made == pixels).mean(),
        "corner": lambda made: made[:4, :4].mean(),
    }
    for what, of in ends.items():
        both = ([float(of(one)) for one in several] for several in (ours, theirs))
        assert _same_numbers(*both) > LEAST, what
