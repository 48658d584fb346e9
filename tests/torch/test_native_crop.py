"""Batches that the native core draws by itself: as Python does for each sample, bit for bit."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

pytest.importorskip("fastdecode.native._core")
import numpy as np
import torch
from encoded import with_orientation
from loading import epoch, same
from native_samples import PLAIN, Boxes, Sources, encoded, mixed
from PIL import Image as PillowImage

from fastdecode.testing import encode
from fastdecode.torch._order import sample_seed
from fastdecode.torch.transforms import (
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
)
from fastdecode.torch.transforms._random_crop import generator_of

SIDES = [(500, 375), (1, 1), (1, 900), (900, 1), (300, 301), (33, 1000), (1000, 33)]


class Shown(Sources):
    """With what the sample shows of its image as the target."""

    def map_target(self, target: Any, geometry: Any) -> Any:
        return torch.tensor([target, *geometry.box, geometry.flipped], dtype=torch.float64)


def by_python(transform: Any) -> Any:
    """Return the same transform with a `plan` of its own, for which Python draws."""
    kind = type(transform)

    class Planned(kind):  # type: ignore[misc, valid-type]
        def plan(self, *sides_and_generator: Any) -> Any:
            return super().plan(*sides_and_generator)

    planned = object.__new__(Planned)
    vars(planned).update(vars(transform))
    return planned


def same_by_python(kind: Any, sources: Any, transform: Any, batch_size: int, **how: Any) -> bool:
    """Whether batches are the same, whoever draws."""
    first, second = (
        epoch(kind(*sources, transform=one), batch_size, **how)
        for one in (transform, by_python(transform))
    )
    return same(first, second)


def files(some: random.Random, count: int) -> list[bytes]:
    """Make small files of any sides; the pixels tell where a box lies and if it is flipped."""
    made = []
    for number in range(count):
        width, height = SIDES[number] if number < len(SIDES) else _sides(some)
        across = np.linspace(0, 255, width, dtype=np.uint8)[None, :].repeat(height, 0)
        down = np.linspace(0, 255, height, dtype=np.uint8)[:, None].repeat(width, 1)
        image = np.stack([across, down, np.full_like(down, 99)], axis=-1)
        made.append(encode(PillowImage.fromarray(image)))
    return made


def _sides(some: random.Random) -> tuple[int, int]:
    return some.randint(1, 300), some.randint(1, 300)


def some_random_crop(some: random.Random) -> RandomResizedCrop:
    size = (some.randint(1, 40), some.randint(1, 40))
    scale = sorted(some.choice([0.08, 1.0, some.uniform(0.01, 2)]) for _ in range(2))
    ratio = sorted(some.choice([3 / 4, 4 / 3, some.uniform(0.05, 20)]) for _ in range(2))
    flip, headroom = some.choice([0, 0.5, 1, some.random()]), some.choice([1, some.uniform(1, 4)])
    quality: Any = some.choice(["fast", "exact"])
    return RandomResizedCrop(size, scale, ratio, flip=flip, quality=quality, headroom=headroom)


def some_central_crop(some: random.Random) -> Resize | ResizeCenterCrop:
    size = (some.randint(1, 60), some.randint(1, 60))
    flip: float = some.choice([0, 0.5, 1])
    quality: Any = some.choice(["fast", "exact"])
    if some.random() < 0.3:
        return Resize(size, flip=flip, quality=quality)
    shorter = some.choice([some.randint(1, 60), (some.randint(1, 60), some.randint(1, 60))])
    return ResizeCenterCrop(shorter, size, flip=flip, quality=quality)


@pytest.mark.parametrize("make", [some_random_crop, some_central_crop])
def test_the_core_draws_what_python_draws(make: Any) -> None:
    """Boxes, flips, sides, margins, reductions: 1500 samples are the same."""
    some = random.Random(1)
    sources = files(some, 100)
    for seed in range(15):
        transform = make(some)
        how = {"threads": 2, "seed": seed, "shuffle": True}

        assert same_by_python(Shown, sources, transform, 50, **how), transform


def test_the_largest_canvas_and_one_pixel_more_are_made_alike() -> None:
    """Where the core's limit of a side lies cannot be seen in the results."""
    for side in (65500, 65501):
        for transform in (
            ResizeCenterCropNormalize((40, side), 40),
            RandomResizedCrop((2, side), flip=0.5),
        ):
            assert same_by_python(Shown, [PLAIN, PLAIN], transform, 2, threads=1)


def test_what_is_drawn_is_below_a_probability_not_equal_to_it() -> None:
    """With the very number that is drawn as the probability, nothing is flipped."""
    for seed in range(20):
        flip = generator_of(sample_seed(seed, 0, 0)).uniform(0, 1)
        central = ResizeCenterCrop(44, 40, flip=flip)
        assert torch.equal(
            central(PLAIN, generator=generator_of(sample_seed(seed, 0, 0))),
            ResizeCenterCrop(44, 40)(PLAIN),
        )
        assert same_by_python(Shown, [PLAIN] * 4, central, 4, threads=1, seed=seed)


KINDS = {
    "grey": encoded(mode="L"),
    "four inks": encoded(mode="CMYK"),
    "progressive": encoded(progressive=True),
    "without an end": PLAIN[:-2],
    **{f"turned by {value}": encoded(exif=with_orientation(value)) for value in range(1, 9)},
    "PNG": encoded("PNG"),
}


@pytest.mark.parametrize("orient", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_any_kind_is_made_as_by_itself(kind: str, orient: bool) -> None:
    """In a batch, or called alone on its bytes: the same values, whoever decodes such a file."""
    transform = ResizeCenterCropNormalize(44, 40)
    dataset = Sources(*[PLAIN, KINDS[kind], PLAIN], transform=transform, orient=orient)

    ((images, _),) = epoch(dataset, 3, threads=2)

    assert torch.equal(images[1], transform(KINDS[kind], orient=orient))


def test_a_subclass_that_does_otherwise_is_heeded() -> None:
    """A plan, a reduction or numbers of its own are in the batches, and not those of its class."""

    class Planned(RandomResizedCrop):
        def plan(self, width: int, height: int, generator: Any) -> Any:
            return super().plan(width, height, generator)._replace(box=(0, 0, 8, 8), flip=True)

    class Sharp(ResizeCenterCrop):
        def _jpegs_reduction(self, plan: Any) -> Any:
            return 1

    class Named(Resize):
        """Changes nothing."""

    set_here = RandomResizedCrop(40)
    set_here.plan = Planned(40).plan  # type: ignore[method-assign]
    corner = Planned(40)(PLAIN)
    for transform, expected in (
        (Planned(40), corner),
        (set_here, corner),
        (Sharp(44, 40), ResizeCenterCrop(44, 40, quality="exact")(PLAIN)),
        (Named((40, 41)), Resize((40, 41))(PLAIN)),
    ):
        ((images, _),) = epoch(Sources(PLAIN, PLAIN, transform=transform), 2, threads=2)
        assert torch.equal(images[0], expected)
        assert torch.equal(images[1], expected)


def test_a_transform_that_was_changed_is_described_anew() -> None:
    """Its size, scale and the rest are those that it has now; what does not fit is refused."""
    transform = RandomResizedCrop(40, dtype=torch.uint8, flip=0.5)
    dataset = Sources(*[PLAIN] * 4, transform=transform)
    before = epoch(dataset, 4, threads=2)
    transform.scale, transform.flip = (0.5, 0.6), 1.0
    after = epoch(dataset, 4, threads=2)
    assert same(after, epoch(dataset, 4, threads=0))
    assert not same(before, after)
    transform.size = (40, 30)
    for threads in (0, 2):
        with pytest.raises(ValueError, match="out must be"):
            epoch(dataset, 4, threads=threads)


def test_targets_come_in_the_order_of_the_batch() -> None:
    """Whoever drew an item, its target is transformed with the others', one after another."""
    seen: list[float] = []

    def noticed(boxes: Any) -> Any:
        seen.append(float(boxes[0, 3]))
        return boxes

    results = []
    transform = RandomResizedCropFlipNormalize(40, (0.3, 1), (1, 1))
    for one, threads in product((transform, by_python(transform)), (0, 1)):
        seen.clear()
        dataset = mixed(Boxes, transform=one, target_transform=noticed)
        results.append((epoch(dataset, 20, threads=threads), sorted(seen)))
    assert all(same(one, results[0]) for one in results)
