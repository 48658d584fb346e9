"""Transforms of encoded images with any of their options, drawn by hypothesis."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from fastdecode.torch.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    RandomResizedCrop,
    Resize,
    ResizeCenterCrop,
)

WITHOUT_SHRINKING = settings(
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
"""For tests of whole batches: to shrink a failure, whose draws are printed, would take minutes."""

USUAL_SCALE, USUAL_RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
RESULTS: list[dict[str, Any]] = [
    {"dtype": torch.uint8},
    {"dtype": torch.float32},
    {"mean": IMAGENET_MEAN, "std": IMAGENET_STD},
    {"mean": (0.1, 0.2, 0.3), "std": (0.5, 2.0, 1.0)},
]


def pairs(least: int, most: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(least, most), st.integers(least, most))


def ranges(usual: tuple[float, float], low: float, high: float) -> st.SearchStrategy[Any]:
    """Draw a scale or a ratio: the usual one, or any within the limits."""
    some = st.sampled_from([value for value in (*usual, 1.0) if low <= value <= high])
    some |= st.floats(low, high)
    return st.just(usual) | st.tuples(some, some).map(sorted).map(tuple)


@st.composite
def transforms(
    draw: st.DrawFn,
    qualities: tuple[str, ...] = ("fast", "exact"),
    scales: tuple[float, float] = (0.01, 2),
    ratios: tuple[float, float] = (0.05, 20),
    least: int = 1,
) -> Any:
    """Draw a transform whose results all have one shape, with sides of at least `least`."""
    options: dict[str, Any] = {
        "flip": draw(st.sampled_from([0, 0.5, 1]) | st.floats(0, 1)),
        "quality": draw(st.sampled_from(qualities)),
        "headroom": draw(st.just(1) | st.floats(1, 4)),
        "interpolation": draw(st.sampled_from(["bilinear", "bilinear", "bicubic"])),
        **draw(st.sampled_from(RESULTS)),
    }
    kind = draw(st.sampled_from([RandomResizedCrop, Resize, ResizeCenterCrop]))
    if kind is RandomResizedCrop:
        scale = draw(ranges(USUAL_SCALE, *scales))
        return kind(draw(pairs(least, 40)), scale, draw(ranges(USUAL_RATIO, *ratios)), **options)
    if kind is Resize:
        return kind(draw(pairs(least, 60)), **options)
    return kind(draw(st.integers(least, 60) | pairs(least, 60)), draw(pairs(least, 60)), **options)
