"""The resize of a batch on a device: Pillow's pixels, for every box, size and flip."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

torch = pytest.importorskip("torch")

from fastdecode.gpu import _resize  # noqa: E402 - it needs torch
from fastdecode.gpu._resize import resized  # noqa: E402
from fastdecode.testing import encode  # noqa: E402
from fastdecode.torch.transforms import RandomResizedCrop, ResizeCenterCrop  # noqa: E402

CUDA = pytest.param(
    "cuda",
    marks=pytest.mark.skipif(
        not torch.cuda.is_available(),
        reason="needs a CUDA device, and a PyTorch that is built with CUDA",
    ),
)
EXTREMES = "1x1>1x1 1x1>300x200 1x500>224x224 500x1>224x1 65500x2>1x1 2x65500>3x2 3x2>9000x1"

Box = tuple[float, float, float, float]


@pytest.fixture(params=["cpu", "cpu in float16", CUDA])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Use each device, and on the CPU also the numbers that CUDA computes with."""
    name, _, half = request.param.partition(" in ")
    if half:
        monkeypatch.setitem(_resize._DTYPES, "cpu", torch.float16)
    return str(name)


def image_of(kind: str, height: int, width: int, seed: int = 0) -> Any:
    """Make a picture of bytes, (height, width, 3)."""
    random = np.random.default_rng((seed, height, width))
    if kind == "noise":
        return random.integers(0, 256, (height, width, 3), np.uint8)
    if kind == "black and white":
        return random.integers(0, 2, (height, width, 3), np.uint8) * np.uint8(255)
    y, x = np.indices((height, width))
    plane = (x + y) % 2 * 255 if kind == "chessboard" else (3 * x + 5 * y) % 256
    return np.repeat(plane[..., None], 3, axis=2).astype(np.uint8)


def planes(image: Any, device: str) -> Any:
    """View an array as (C, H, W) on a device; there, as here, the channels lie last."""
    return torch.from_numpy(np.array(image)).to(device).permute(2, 0, 1)


def pillows(image: Any, size: tuple[int, int], box: Box | None = None, flip: bool = False) -> Any:
    made = np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR, box=box))
    return made[:, ::-1] if flip else made


def apart(result: Any, expected: Any) -> int:
    """Largest difference between a result (3, h, w) and an array (h, w, 3)."""
    have = result.permute(1, 2, 0).cpu().numpy().astype(int)
    return int(np.abs(have - expected.astype(int)).max())


@st.composite
def pictures(draw: Any) -> tuple[Any, Box, bool]:
    """Draw a picture, a box with fractions inside it, and whether to flip."""
    height, width = draw(st.integers(1, 90)), draw(st.integers(1, 90))
    kind = draw(st.sampled_from(("noise", "black and white", "chessboard", "ramp")))
    edges = []
    for side in (width, height):
        share = st.floats(0, 1, allow_subnormal=False)
        low, high = sorted((draw(share) * side, draw(share) * side))
        edges.append((low, high) if high - low > 1e-3 else (0.0, float(side)))
    (left, right), (top, bottom) = edges
    image = image_of(kind, height, width, draw(st.integers(0, 9)))
    return image, (left, top, right, bottom), draw(st.booleans())


@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    batch=st.lists(pictures(), min_size=1, max_size=4), height=st.integers(1, 80), data=st.data()
)
def test_pixels_are_those_of_pillow(device: str, batch: Any, height: int, data: Any) -> None:
    """Any boxes, sizes and flips are at most 1 level from Pillow's resize(box=)."""
    size = height, data.draw(st.integers(1, 80))
    images, boxes, flips = zip(*batch, strict=True)

    result = resized([planes(i, device) for i in images], size, boxes=boxes, flips=flips)

    assert result.shape == (len(batch), 3, *size)
    for made, one in zip(result, batch, strict=True):
        assert apart(made, pillows(one[0], size, *one[1:])) <= 1


def test_a_photo_is_nearer_to_the_exact_result_than_to_pillow(device: str) -> None:
    """There is one rounding: the error has the variance of one, with no bias."""
    image = planes(image_of("ramp", 375, 500), device)
    exact = torch.nn.functional.interpolate(
        image[None].double(), (224, 200), mode="bilinear", antialias=True
    )

    off = resized([image], (224, 200)).double() - exact

    assert off.abs().max() < 0.9
    assert off.square().mean().sqrt() < 0.31  # sqrt(1 / 12) is 0.289
    assert off.mean().abs() < 0.02


@pytest.mark.parametrize("flip", [False, True])
def test_the_same_size_is_a_copy(device: str, flip: bool) -> None:
    """A box of whole pixels, of the result's size, is copied, or mirrored."""
    image = image_of("noise", 50, 70)
    part = image[12:42, 11:51]

    (result,) = resized([planes(image, device)], (30, 40), boxes=[(11, 12, 51, 42)], flips=[flip])

    assert apart(result, part[:, ::-1] if flip else part) == 0


@pytest.mark.parametrize("level", [0, 1, 127, 128, 254, 255])
def test_one_colour_stays_that_colour(device: str, level: int) -> None:
    """A picture of one level has no other after any resize."""
    images = [torch.full((3, h, w), level, dtype=torch.uint8, device=device) for h, w in SIDES]
    for size in ((224, 224), (1, 1), (300, 7)):
        assert (resized(images, size) == level).all()


SIDES = ((1, 1), (375, 500), (97, 3), (64, 1031))


@pytest.mark.parametrize("sides", EXTREMES.split())
def test_any_scale_works(device: str, sides: str) -> None:
    """From one pixel to the largest sides there are, values are those of Pillow."""
    width, height, *canvas = map(int, sides.replace(">", "x").split("x"))
    image = image_of("noise", height, width)
    size = canvas[1], canvas[0]

    (result,) = resized([planes(image, device)], size)

    assert apart(result, pillows(image, size)) <= 1


def test_grey_pictures_have_one_channel(device: str) -> None:
    """One channel gives one, with the same values as three that are equal."""
    image = planes(image_of("ramp", 60, 80), device)

    three, one = resized([image], (21, 34)), resized([image[:1]], (21, 34))

    assert one.shape == (1, 1, 21, 34)
    assert (three - one).abs().max() == 0


def test_strides_do_not_matter(device: str) -> None:
    """Planes, interleaved pixels, steps and one repeated row are all read as they are."""
    image = planes(image_of("noise", 60, 80), device)
    for view in (image, image.contiguous(), image[:, ::2, 3::3], image[:, :1].expand(3, 9, 80)):
        (result,) = resized([view], (20, 30))

        assert apart(result, pillows(view.permute(1, 2, 0).cpu().numpy().copy(), (20, 30))) <= 1


def test_a_box_that_sticks_out_is_black_there(device: str) -> None:
    """What lies outside of the picture is black, and the rest is as if there were nothing else."""
    image = image_of("noise", 20, 30)
    part = pillows(image, (40, 60))

    (result,) = resized([planes(image, device)], (60, 100), boxes=[(-5, -7, 45, 23)], flips=[True])

    expected = np.zeros((60, 100, 3), np.uint8)
    expected[14:54, 10:70] = part
    expected = expected[:, ::-1]
    assert apart(result, expected) <= 1
    outside = torch.from_numpy(np.arange(100)) < 30
    assert (result[:, :, outside.to(device)] == 0).all()
    assert (result[:, :14] == 0).all()
    assert (result[:, 54:] == 0).all()


TRANSFORMS: list[Any] = [
    RandomResizedCrop((31, 45), dtype=torch.uint8, quality="exact", flip=0.5),
    ResizeCenterCrop(40, 32, flip=0.5, dtype=torch.uint8, quality="exact"),
    ResizeCenterCrop(40, (64, 50), flip=0.5, dtype=torch.uint8, quality="exact"),
]


@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_a_transforms_plan_can_be_carried_out(device: str, transform: Any) -> None:
    """What is shown of the planned box gives what the transform gives, padding included."""
    for seed, image in enumerate(drawn(9)):
        seeded = torch.Generator().manual_seed
        want, _ = transform.with_geometry(
            encode(Image.fromarray(image), "png"), generator=seeded(seed)
        )
        plan = transform.plan(image.shape[1], image.shape[0], seeded(seed))
        left, top, right, bottom = plan.box
        across, down = (right - left) / plan.canvas[1], (bottom - top) / plan.canvas[0]
        box = (
            plan.left * across,
            plan.top * down,
            (plan.left + plan.size[1]) * across,
            (plan.top + plan.size[0]) * down,
        )
        part = planes(image, device)[:, top:bottom, left:right]

        (result,) = resized([part], plan.size, boxes=[box], flips=[plan.flip])

        assert apart(result, want.permute(1, 2, 0).numpy()) <= 1


def drawn(count: int) -> Iterator[Any]:
    for seed in range(count):
        height, width = np.random.default_rng(seed).integers(20, 200, 2)
        yield image_of("ramp", int(height), int(width), seed)
