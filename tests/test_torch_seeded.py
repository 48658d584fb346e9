"""Boxes and flips from a seed, without torch: they are torch's."""

from __future__ import annotations

import random
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fastdecode.torch.transforms import (  # noqa: E402
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCropNormalize,
)
from fastdecode.torch.transforms._random_crop import (  # noqa: E402
    box_and_flip,
    draw_box,
    draw_flip,
    same_as_torch,
)

_RANDOM_CROP = "fastdecode.torch.transforms._random_crop"
SCALES = [(0.08, 1.0), (0.5, 1.0), (1.0, 1.0), (0.01, 0.02), (0.08, 3.0)]
RATIOS = [(3 / 4, 4 / 3), (1.0, 1.0), (0.5, 2.0), (0.01, 100.0), (3.0, 4.0)]
SIDES = [(500, 375), (1, 1), (1, 900), (4000, 3000), (65500, 3), (300, 301)]


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("ratio", RATIOS)
def test_draws_are_torchs(scale: Any, ratio: Any) -> None:
    """For any picture and seed: the same box and flip as from a seeded generator, or no answer."""
    some = random.Random(str((scale, ratio)))
    answers = 0
    for _ in range(300):
        width, height = some.choice(SIDES)
        flip, seed = some.choice([0.0, 0.3, 0.5, 1.0]), some.getrandbits(63)
        found = box_and_flip(width, height, scale, ratio, flip, seed)
        generator = torch.Generator().manual_seed(seed)
        box = draw_box(width, height, scale, ratio, generator)
        if found is not None:
            answers += 1
            assert found == (box, draw_flip(flip, generator))

    assert answers > 100


def test_an_answer_is_the_rule() -> None:
    """Of pictures of a usual size hardly one in a hundred needs torch."""
    found = [box_and_flip(500, 375, (0.08, 1.0), (3 / 4, 4 / 3), 0.5, seed) for seed in range(1000)]

    assert found.count(None) < 10


@pytest.mark.parametrize("agree", [True, False])
@pytest.mark.parametrize(
    "transform",
    [
        RandomResizedCropFlipNormalize(40),
        ResizeCenterCropNormalize(44, 40, flip=0.5),
        Resize((30, 40), flip=0.5),
        Resize(9),
    ],
    ids=repr,
)
def test_a_plan_of_a_seed_is_that_of_a_seeded_generator(
    transform: Any, agree: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a version of torch or NumPy should draw in another way."""
    if not agree:
        monkeypatch.setattr(f"{_RANDOM_CROP}.same_as_torch", lambda: False)
    for seed in (0, 7, 2**32 + 7, 2**63 - 1):
        expected = transform.plan(500, 375, torch.Generator().manual_seed(seed))

        assert transform.seeded_plan(500, 375, seed) == expected


def test_torch_and_numpy_draw_alike() -> None:
    """These versions do."""
    assert same_as_torch()
