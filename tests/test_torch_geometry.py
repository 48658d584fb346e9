"""The geometry that a transform tells is true: a drawn mark is found where it says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from encoded import with_orientation  # noqa: E402 - they need torch
from torch_reference import encoded, seeded  # noqa: E402

from fastdecode import _pixels, probe  # noqa: E402
from fastdecode.torch.transforms import (  # noqa: E402
    RandomResizedCrop,
    Resize,
    ResizeCenterCrop,
)

WIDTH, HEIGHT = 1003, 757
MARK = (431, 317, 567, 433)
BYTES: dict[str, Any] = {"dtype": torch.uint8}
TURNED = tuple(range(1, 9))


def mask() -> np.ndarray:
    seen = np.zeros((HEIGHT, WIDTH), np.uint8)
    seen[MARK[1] : MARK[3], MARK[0] : MARK[2]] = 1
    return seen


def picture(value: int = 1) -> bytes:
    """Draw a white mark on black, to be seen so once turned upright."""
    seen = np.repeat(mask()[:, :, None] * np.uint8(255), 3, axis=2)
    stored = np.ascontiguousarray(_pixels.undo_orientation(seen, value))
    return encoded(stored, quality=95, exif=with_orientation(value))


def check(result: Any, geometry: Any) -> None:
    """Hold the mark's centre and area in the result against the mapped box."""
    assert tuple(result.shape[1:]) == geometry.size
    weights = result[1].numpy().astype(float) / 255
    y, x = (np.mgrid[: weights.shape[0], : weights.shape[1]] + 0.5).reshape(2, *weights.shape)
    area = weights.sum()
    left, top, right, bottom = geometry.boxes([MARK])[0]

    assert (x * weights).sum() / area == pytest.approx((left + right) / 2, abs=0.06)
    assert (y * weights).sum() / area == pytest.approx((top + bottom) / 2, abs=0.06)
    assert area == pytest.approx((right - left) * (bottom - top), rel=0.03)


def reduction(transform: Any, data: bytes) -> int:
    plan = transform.plan(WIDTH, HEIGHT, None)
    return transform.reduce_for(probe(data), plan)


WHOLE = [
    Resize(90, **BYTES),
    Resize(90, flip=1.0, **BYTES),
    Resize((61, 140), flip=1.0, **BYTES),
    Resize(180, **BYTES),
    Resize(400, quality="exact", **BYTES),
    ResizeCenterCrop(93, 77, **BYTES),
    ResizeCenterCrop(93, (77, 64), flip=1.0, **BYTES),
    ResizeCenterCrop((200, 230), (151, 222), flip=1.0, **BYTES),
    ResizeCenterCrop(80, (131, 90), flip=1.0, **BYTES),  # padded above and below
    ResizeCenterCrop(80, (131, 150), **BYTES),  # and at both sides
]


@pytest.mark.parametrize("value", TURNED)
@pytest.mark.parametrize("transform", WHOLE, ids=repr)
def test_a_mark_is_found_where_the_geometry_says(transform: Any, value: int) -> None:
    """Reduced in the decoder, resized, cut, padded, flipped and turned: the mapped box is true."""
    result, geometry = transform.with_geometry(picture(value), orient=True)

    assert geometry.flipped is (transform.flip == 1)
    check(result, geometry)


def test_the_marks_are_looked_for_at_all_reductions() -> None:
    """The transforms above decode at full, half, quarter and eighth size."""
    data = picture()

    assert {reduction(transform, data) for transform in WHOLE} == {1, 2, 4, 8}


@pytest.mark.parametrize("value", TURNED)
def test_a_mark_is_found_in_random_crops(value: int) -> None:
    """The same for random boxes of all sizes, flipped or not, that hold the mark."""
    transform, data = RandomResizedCrop((71, 64), (0.1, 1.0), flip=0.5, **BYTES), picture(value)
    flips, seen = set(), 0
    for seed in range(24):
        result, geometry = transform.with_geometry(data, generator=seeded(seed), orient=True)
        inside = geometry.boxes([MARK], clip=False)
        if (inside != geometry.boxes([MARK])).any():
            continue  # cut off, in part
        check(result, geometry)
        flips.add(geometry.flipped)
        seen += 1
    assert flips == {True, False}
    assert seen >= 8


@pytest.mark.parametrize(
    "transform", [*WHOLE, RandomResizedCrop((71, 64), (0.4, 1.0), **BYTES, flip=0.5)], ids=repr
)
def test_a_mask_lies_on_its_picture(transform: Any) -> None:
    """A mask that is mapped covers just what is bright in the result, padding included."""
    result, geometry = transform.with_geometry(picture(), generator=seeded(4))

    mapped = geometry.mask(mask())

    assert mapped.shape == tuple(result.shape[1:])
    assert mapped.any()
    bright = result[1].numpy()
    edge = (bright > 20) & (bright < 235)  # mixed of both
    assert edge.mean() < 0.1
    np.testing.assert_array_equal(mapped[~edge], bright[~edge] > 127)


def test_padding_is_outside_the_mask() -> None:
    """Where the crop is larger than the image, the mask has the number that is asked for."""
    transform = ResizeCenterCrop(80, (131, 150), **BYTES)
    _, geometry = transform.with_geometry(picture())

    mapped = geometry.mask(np.ones((HEIGHT, WIDTH), np.uint8), fill=255)

    rows, columns = (mapped == 1).any(1).nonzero()[0], (mapped == 1).any(0).nonzero()[0]
    canvas = (80, 80 * WIDTH // HEIGHT)
    assert (len(rows), len(columns)) == canvas
    assert (rows[0], columns[0]) == ((131 - canvas[0]) // 2, (150 - canvas[1]) // 2)
    assert set(np.unique(mapped)) == {1, 255}
