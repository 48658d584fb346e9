"""`SampleGenerator`: the random numbers of a `Loader`'s samples, their boxes and flips."""

from __future__ import annotations

import copy
import pickle
import random
import threading
from typing import Any

import pytest
import torch

from fastdecode.torch.transforms._random_crop import (
    SampleGenerator,
    draw_box,
    draw_flip,
    generator_of,
)

SIDES = [(500, 375), (1, 1), (1, 900), (4000, 3000), (65500, 3), (300, 301)]


def test_numbers_are_those_of_splitmix64() -> None:
    """They are what Vigna's splitmix64.c gives for the seed 1234567, and begin anew with it."""
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    generator = SampleGenerator("cpu")
    for _ in range(2):
        generator.manual_seed(1234567)

        assert [generator.draw() for _ in range(5)] == expected


@pytest.mark.parametrize(
    "copied",
    [
        SampleGenerator.clone_state,
        copy.deepcopy,
        lambda generator: pickle.loads(pickle.dumps(generator)),
        lambda generator: SampleGenerator().set_state(generator.get_state()),
    ],
    ids=["clone_state", "deepcopy", "pickle", "set_state"],
)
def test_a_state_that_was_kept_draws_the_same_again(copied: Any) -> None:
    """A transform that crops an image and its mask alike may copy the generator, or its state."""
    generator = generator_of(5)
    generator.draw()
    other = copied(generator)

    assert [other.draw(), other.uniform(0, 1)] == [generator.draw(), generator.uniform(0, 1)]
    assert torch.equal(torch.rand(3, generator=other), torch.rand(3, generator=generator))


@pytest.mark.parametrize("scale", [(0.08, 1.0), (1.0, 1.0), (0.01, 0.02), (0.08, 3.0)])
@pytest.mark.parametrize("ratio", [(3 / 4, 4 / 3), (1.0, 1.0), (0.01, 100.0), (3.0, 4.0)])
def test_every_box_is_within_the_image(scale: Any, ratio: Any) -> None:
    """Whatever is asked for, of any seed, a box has at least a pixel, and none outside."""
    some = random.Random(str((scale, ratio)))
    for _ in range(200):
        width, height = some.choice(SIDES)
        generator = generator_of(some.getrandbits(63))
        left, top, right, bottom = draw_box(width, height, scale, ratio, generator)

        assert 0 <= left < right <= width
        assert 0 <= top < bottom <= height


def test_draws_are_evenly_spread() -> None:
    """Areas, logarithms of ratios, places and flips have the means that they should."""
    boxes, flips = [], []
    for seed in range(4000):
        generator = generator_of(seed)
        boxes.append(draw_box(10_000, 10_000, (0.1, 0.3), (0.5, 2.0), generator))
        flips.append(draw_flip(0.3, generator))
    left, top, right, bottom = torch.tensor(boxes, dtype=torch.float64).T
    across, down = right - left, bottom - top

    assert (across * down / 1e8).mean().item() == pytest.approx(0.2, abs=0.005)
    assert torch.log(across / down).mean().item() == pytest.approx(0, abs=0.03)
    for begin, size in ((left, across), (top, down)):
        assert (begin / (10_000 - size)).mean().item() == pytest.approx(0.5, abs=0.02)
    assert sum(flips) / len(flips) == pytest.approx(0.3, abs=0.03)


def test_a_flip_is_drawn_below_its_probability() -> None:
    """It is certain with 1, never with 0, and not where the very number is the probability."""
    for seed in range(50):
        drawn = generator_of(seed).uniform(0, 1)

        assert draw_flip(1.0, generator_of(seed))
        assert not draw_flip(0.0, generator_of(seed))
        assert not draw_flip(drawn, generator_of(seed))
        assert draw_flip(drawn + 1e-9, generator_of(seed))


def test_users_find_a_generator_of_torchs() -> None:
    """What is drawn from it by torch is what a generator of torch's with that seed gives."""
    expected = torch.rand(3, generator=torch.Generator().manual_seed(2**63 - 1))

    assert torch.equal(torch.rand(3, generator=generator_of(2**63 - 1)), expected)


def test_each_thread_has_its_own() -> None:
    """A generator that another thread takes begins nothing anew here."""
    generator = generator_of(5)
    first = generator.draw()
    thread = threading.Thread(target=generator_of, args=(5,))
    thread.start()
    thread.join()

    assert generator.draw() != first
