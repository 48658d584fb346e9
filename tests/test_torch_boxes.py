"""Boxes, rounded sides and margins are torchvision's, and so is the use of random numbers."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch_reference import (  # noqa: E402 - they need torch
    PHOTOS,
    center_crop,
    crop_params,
    resize,
    seeded,
)

from fastdecode import probe  # noqa: E402
from fastdecode.torch.transforms import (  # noqa: E402
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCropNormalize,
)
from fastdecode.torch.transforms._random_crop import center_crop as place  # noqa: E402
from fastdecode.torch.transforms._random_crop import draw_box, draw_flip, resized  # noqa: E402

USUAL = ((0.08, 1.0), (3 / 4, 4 / 3))
PHOTO = PHOTOS[0].read_bytes()


@pytest.mark.parametrize("sides", [(500, 375), (333, 500), (1, 1), (1, 500), (77, 2), (4001, 3001)])
@pytest.mark.parametrize(
    ("scale", "ratio"),
    [
        USUAL,
        ((0.5, 1.0), (1.0, 1.0)),
        ((0.2, 0.2), (0.1, 10.0)),
        ((0.9, 1.0), (2.5, 3.0)),  # mostly the fallback for an image that is too narrow
        ((0.9, 1.0), (0.3, 0.4)),  # and for one that is too wide
        ((1.5, 2.0), (0.5, 2.0)),  # never fits: all of the image, or what has the nearest ratio
    ],
)
def test_boxes_are_torchvisions(sides: tuple[int, int], scale: object, ratio: object) -> None:
    """For the same seed the same box is drawn, and the next draw is the same as well."""
    width, height = sides
    for seed in range(60):
        ours, rule = seeded(seed), seeded(seed)
        left, top, right, bottom = draw_box(width, height, scale, ratio, ours)
        y, x, h, w = crop_params(height, width, scale, ratio, rule)
        if 0 in (h, w):  # torchvision's rule leaves no pixel, and it fails
            h, w = max(h, 1), max(w, 1)
            y, x = (height - h) // 2, (width - w) // 2

        assert (top, left, bottom - top, right - left) == (y, x, h, w)
        assert torch.equal(ours.get_state(), rule.get_state())


def test_boxes_by_the_global_generator_are_the_same() -> None:
    """Without a generator the draws come from torch's own, in the same order."""
    with torch.random.fork_rng():
        torch.manual_seed(5)
        boxes = [draw_box(500, 375, *USUAL, None) for _ in range(20)]
    generator = seeded(5)

    assert boxes == [draw_box(500, 375, *USUAL, generator) for _ in range(20)]
    assert len(set(boxes)) == 20


@pytest.mark.parametrize("ratio", [(30.0, 40.0), (0.02, 0.03)])
def test_a_box_holds_at_least_one_pixel(ratio: tuple[float, float]) -> None:
    """Where rounding would leave no row or column, one is kept, and the image is decoded."""
    for seed in range(50):
        left, top, right, bottom = draw_box(3, 3, (0.01, 0.02), ratio, seeded(seed))

        assert 0 <= left < right <= 3
        assert 0 <= top < bottom <= 3


def test_the_box_of_a_transform_is_the_one_drawn() -> None:
    """What a transform shows is the box that torchvision draws from the same seed."""
    header = probe(PHOTO)
    for seed in range(20):
        y, x, h, w = crop_params(header.height, header.width, *USUAL, seeded(seed))

        _, geometry = RandomResizedCropFlipNormalize(8).with_geometry(PHOTO, generator=seeded(seed))

        assert geometry.box == (x, y, x + w, y + h)


@pytest.mark.parametrize(
    "transform",
    [RandomResizedCropFlipNormalize(8, flip=0), ResizeCenterCropNormalize(9, 8), Resize(8)],
    ids=repr,
)
def test_a_transform_without_flips_draws_none(transform: object) -> None:
    """With flip=0 the only numbers that are drawn are those of a random box."""
    used, expected = seeded(3), seeded(3)
    transform(PHOTO, generator=used)
    if isinstance(transform, RandomResizedCrop):
        crop_params(333, 500, *USUAL, expected)

    assert torch.equal(used.get_state(), expected.get_state())


def test_a_flip_is_one_draw_after_the_box() -> None:
    """A flip is decided by torch.rand(1), as RandomHorizontalFlip does, after the box is drawn."""
    transform = RandomResizedCropFlipNormalize(8, flip=0.3)
    flips = []
    for seed in range(60):
        rule = seeded(seed)
        crop_params(333, 500, *USUAL, rule)
        expected = bool(torch.rand(1, generator=rule) < 0.3)
        ours = seeded(seed)

        assert transform.plan(500, 333, ours).flip is expected
        assert torch.equal(ours.get_state(), rule.get_state())
        flips.append(expected)
    assert 5 < sum(flips) < 35


def test_a_certain_flip_still_draws() -> None:
    """With a probability of 1 a number is drawn too, so that what follows is torchvision's."""
    ours, rule = seeded(1), seeded(1)
    torch.rand(1, generator=rule)

    assert draw_flip(1.0, ours)
    assert torch.equal(ours.get_state(), rule.get_state())


@pytest.mark.parametrize(
    "sides", [(500, 333), (333, 500), (7, 7), (1, 500), (401, 400), (400, 401), (3, 1000)]
)
@pytest.mark.parametrize("size", [2, 7, 224, (31, 17)])
def test_sides_are_rounded_as_by_resize(sides: tuple[int, int], size: object) -> None:
    """The longer side is cut to a whole pixel."""
    width, height = sides
    if width * height * (size if isinstance(size, int) else 1) < 1_000_000:
        expected = tuple(resize(torch.zeros((3, height, width), dtype=torch.uint8), size).shape[1:])

        assert resized(width, height, size) == expected
    assert resized(3, 1000, 256) == (85333, 256)


@pytest.mark.parametrize("canvas", range(1, 14))
def test_margins_are_those_of_center_crop(canvas: int) -> None:
    """An odd margin goes to the even number, an odd padding is larger at the far side."""
    numbers = torch.arange(1, canvas + 1).expand(1, canvas, canvas)
    for size in range(1, 14):
        expected = center_crop(numbers, (size, size))[0].amax(0)
        top, left = place((canvas, canvas), (size, size))

        shown = [n + 1 if 0 <= n < canvas else 0 for n in range(left, left + size)]
        assert shown == expected.tolist()
        assert top == left
