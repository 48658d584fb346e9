"""Crops and geometry: torchvision's boxes and margins, the reduction, and mapped targets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from encoded import INVERSE, with_orientation
from loading import GOLDEN, next_number
from PIL import Image
from same import assert_same
from torch_reference import PHOTOS, decibels, pixels, resize, seeded

from fastdecode import _pixels
from fastdecode.native._augment import Operation, Program, do, flipped, resized_to
from fastdecode.testing import encode
from fastdecode.torch.transforms import RandomResizedCrop, Resize, ResizeCenterCrop, base
from fastdecode.torch.transforms._random_crop import SampleGenerator, draw_program
from fastdecode.torch.transforms.base import Recipe

FAST: dict[str, Any] = {"dtype": torch.uint8, "quality": "fast"}
FILES = [path.read_bytes() for path in PHOTOS]


@pytest.fixture(name="asked")
def _asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Any]]:
    """Record each reduction, and each window of the reduced image, that is requested."""
    monkeypatch.setenv("FASTDECODE_DISABLE", "native")  # which is asked in another way
    calls: list[tuple[int, Any]] = []
    decode = base.decode_part

    def noted(data: Any, header: Any, reduce: Any, window: Any, **options: Any) -> Any:
        calls.append((reduce, window))
        return decode(data, header, reduce, window, **options)

    monkeypatch.setattr(base, "decode_part", noted)
    return calls


@pytest.mark.parametrize(
    ("transform", "reduce"),
    [
        (Resize(41, **FAST), 8),  # 333 rows are 41.6 times 8
        (Resize(42, **FAST), 4),
        (Resize(83, **FAST), 4),
        (Resize(84, **FAST), 2),
        (Resize(166, **FAST), 2),
        (Resize(167, **FAST), 1),
        (Resize(41, **FAST, headroom=2), 4),
        (Resize(41, **FAST, headroom=1.1), 4),
        (Resize(83, **FAST, headroom=2), 2),
        (Resize(40, **FAST, headroom=9), 1),
        (Resize(41, quality="exact"), 1),
        (Resize((200, 10), **FAST), 1),  # a narrow but high result keeps enough rows
        (Resize((10, 200), **FAST), 2),
        (ResizeCenterCrop(160, 8, **FAST), 2),  # it is the whole that is resized to 160
    ],
    ids=repr,
)
def test_the_decoder_shrinks_as_far_as_it_may(
    asked: list[Any], transform: Any, reduce: int
) -> None:
    """The largest reduction leaves `headroom` times the result; for exact quality there is none."""
    transform(FILES[0])

    assert asked == [(reduce, None)]


@pytest.mark.parametrize("value", range(1, 9))
def test_a_turned_image_is_as_good(value: int) -> None:
    """With orient=True a reduced image with sides that are no multiple of 8 is not shifted."""
    photo = Image.open(PHOTOS[1]).convert("RGB").resize((627, 469))
    data = encode(photo, quality=95, exif=with_orientation(value))

    result = Resize((50, 60), **FAST)(data, orient=True)

    assert decibels(result, resize(pixels(data, orient=True), (50, 60))) > 38


WIDTH, HEIGHT = 1003, 757
MARK = (431, 317, 567, 433)
TURNED = tuple(range(1, 9))


def mask() -> np.ndarray:
    seen = np.zeros((HEIGHT, WIDTH), np.uint8)
    seen[MARK[1] : MARK[3], MARK[0] : MARK[2]] = 1
    return seen


def drawing(value: int = 1) -> bytes:
    """Draw a white mark on black at this place in the upright image."""
    seen = np.repeat(mask()[:, :, None] * np.uint8(255), 3, axis=2)
    stored = np.ascontiguousarray(_pixels.apply_orientation(seen, INVERSE[value]))
    return encode(Image.fromarray(stored), quality=95, exif=with_orientation(value))


def check(result: Any, geometry: Any) -> None:
    """Compare the mark's centre and area in the result with the mapped box."""
    assert tuple(result.shape[1:]) == geometry.size
    weights = result[1].numpy().astype(float) / 255
    y, x = (np.mgrid[: weights.shape[0], : weights.shape[1]] + 0.5).reshape(2, *weights.shape)
    area = weights.sum()
    left, top, right, bottom = geometry.boxes([MARK])[0]

    assert (x * weights).sum() / area == pytest.approx((left + right) / 2, abs=0.06)
    assert (y * weights).sum() / area == pytest.approx((top + bottom) / 2, abs=0.06)
    assert area == pytest.approx((right - left) * (bottom - top), rel=0.03)


WHOLE = [
    Resize(90, **FAST),
    Resize(90, flip=1.0, **FAST),
    Resize((61, 140), flip=1.0, **FAST),
    Resize(180, **FAST),
    Resize(400),
    ResizeCenterCrop(93, 77, **FAST),
    ResizeCenterCrop(93, (77, 64), flip=1.0, **FAST),
    ResizeCenterCrop((200, 230), (151, 222), flip=1.0, **FAST),
    ResizeCenterCrop(80, (131, 90), flip=1.0, **FAST),  # padded above and below
    ResizeCenterCrop(80, (131, 150), **FAST),  # and at both sides
]


@pytest.mark.parametrize("value", TURNED)
@pytest.mark.parametrize("transform", WHOLE, ids=repr)
def test_a_mark_is_found_where_the_geometry_says(transform: Any, value: int) -> None:
    """After reduction, resize, crop, padding, flip and rotation, the mapped box is right."""
    plans = [one.draw(WIDTH, HEIGHT, None).plan for one in WHOLE]
    reductions = {one.reduction(plan) for one, plan in zip(WHOLE, plans, strict=True)}
    assert reductions == {1, 2, 4, 8}
    result, geometry = transform.with_geometry(drawing(value), orient=True)

    assert geometry.flipped is (transform.flip == 1)
    check(result, geometry)


WINDOW = do(Operation("crop", (20, 10, 200, 150), "constant"))
PART = do(Operation("crop", (5, 10, 90, 70), "constant"))
BORDER = do(Operation("pad", (7, 20, 30, 3), "constant"))
SMALLER = resized_to((90, 110), "bilinear")
FLIP = flipped(1.0)


@pytest.mark.parametrize(
    "steps",
    [
        (WINDOW, BORDER, SMALLER, FLIP),
        (FLIP, WINDOW, SMALLER, BORDER),
        (BORDER, FLIP, WINDOW, SMALLER),
        (SMALLER, FLIP, BORDER, FLIP, FLIP),
        (SMALLER, PART),  # behind two resizes a crop is not done while decoding
        (FLIP, SMALLER, FLIP, PART, BORDER),
    ],
)
def test_a_mark_is_found_after_steps_in_any_order(steps: Any) -> None:
    """The geometry follows what is done to the image after it was decoded and resized."""
    parts = (resized_to((190, 251), "own"), *steps)
    check(*Recipe(Program(step for part in parts for step in part)).with_geometry(drawing()))


@pytest.mark.parametrize(
    "transform", [*WHOLE, RandomResizedCrop((71, 64), (0.4, 1.0), **FAST, flip=0.5)], ids=repr
)
def test_a_mask_lies_on_its_image(transform: Any) -> None:
    """A mapped mask covers exactly what is bright in the result, including padding."""
    result, geometry = transform.with_geometry(drawing(), generator=seeded(4))

    mapped = geometry.mask(mask())

    assert mapped.shape == tuple(result.shape[1:])
    assert mapped.any()
    bright = result[1].numpy()
    edge = (bright > 20) & (bright < 235)  # mixed of both
    assert edge.mean() < 0.1
    assert_same(mapped[~edge], (bright[~edge] > 127).astype(np.uint8))


# `SampleGenerator`: the random numbers of a Loader's samples


def test_numbers_are_those_of_splitmix64() -> None:
    """The numbers are those of Vigna's splitmix64.c for the seed 1234567, and restart with it."""
    expected = [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
        4593380528125082431,
        16408922859458223821,
    ]
    states = [1234567 + at * GOLDEN for at in range(len(expected))]
    assert [next_number(state) for state in states] == expected
    generator = SampleGenerator("cpu")
    for _ in range(2):
        generator.manual_seed(1234567)
        draw_program(flipped(0.5), 5, 5, generator)
        assert generator.state == states[1]
