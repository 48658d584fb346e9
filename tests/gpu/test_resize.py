"""Resizing on a device gives Pillow's pixels for every size, window and flip."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from cases import examples
from gpus import LATE, NEEDS_CUDA
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patterns import KINDS, pattern
from PIL import Image
from same import assert_same

from fastdecode.gpu import resize_into
from fastdecode.testing import encode
from fastdecode.torch.transforms import RandomResizedCrop, ResizeCenterCrop

EXTREMES = "1x1>1x1 1x1>300x200 1x500>224x224 500x1>224x1 65500x2>1x1 2x65500>3x2 3x2>9000x1"


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=NEEDS_CUDA)])
def device(request: pytest.FixtureRequest) -> str:
    """Return each device."""
    return str(request.param)


def image_of(kind: str, height: int, width: int, seed: int = 0) -> Any:
    """Return an image of bytes (height, width, 3)."""
    return pattern(kind, height, width, np.random.default_rng((seed, height, width)))


def planes(image: Any, device: str) -> Any:
    """View an array as (C, H, W) on a device, with channels last in memory."""
    return torch.from_numpy(np.array(image)).to(device).permute(2, 0, 1)


def resized(image: Any, size: tuple[int, int], *plan: Any, **more: Any) -> Any:
    out = torch.full((len(image), *size), 77, dtype=torch.uint8, device=image.device)
    resize_into(out, image, *plan, **more)
    return out


def pillows(image: Any, size: tuple[int, int]) -> Any:
    return np.asarray(Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR))


def apart(result: Any, expected: Any) -> int:
    """Return the largest difference between a result (3, h, w) and an array (h, w, 3)."""
    have = result.permute(1, 2, 0).cpu().numpy().astype(int)
    return int(np.abs(have - expected.astype(int)).max())


@settings(max_examples=examples(80), suppress_health_check=list(HealthCheck))
@given(
    kind=st.sampled_from(KINDS),
    sides=st.tuples(st.integers(1, 90), st.integers(1, 90)),
    box=st.tuples(*[st.integers(0, 89)] * 4),
    size=st.tuples(st.integers(1, 80), st.integers(1, 80)),
    flip=st.booleans(),
)
def test_pixels_are_those_of_pillow(
    device: str, kind: str, sides: Any, box: Any, size: Any, flip: bool
) -> None:
    """Any part, size and flip differ by at most 1 level from Pillow."""
    image = image_of(kind, *sides)
    top, bottom = sorted(edge % sides[0] for edge in box[:2])
    left, right = sorted(edge % sides[1] for edge in box[2:])
    part = image[top : bottom + 1, left : right + 1]

    result = resized(planes(image, device)[:, top : bottom + 1, left : right + 1], size, flip=flip)

    expected = pillows(part, size)
    assert apart(result, expected[:, ::-1] if flip else expected) <= 1


def test_it_is_nearer_to_the_exact_result_than_pillow(device: str) -> None:
    """There is only one rounding: the error has its variance, and no bias."""
    image = planes(image_of("ramp", 375, 500), device)
    exact = torch.nn.functional.interpolate(
        image[None].double(), (224, 200), mode="bilinear", antialias=True
    )

    off = resized(image, (224, 200)).double() - exact[0]

    assert off.abs().max() < 0.9
    assert off.square().mean().sqrt() < 0.31  # sqrt(1 / 12) is 0.289
    assert off.mean().abs() < 0.02


@pytest.mark.parametrize("sides", EXTREMES.split())
def test_any_scale_works(device: str, sides: str) -> None:
    """From one pixel to the largest sides, values are those of Pillow."""
    width, height, *canvas = map(int, sides.replace(">", "x").split("x"))
    image = image_of("noise", height, width)
    size = canvas[1], canvas[0]

    assert apart(resized(planes(image, device), size), pillows(image, size)) <= 1


def test_strides_do_not_matter(device: str) -> None:
    """Planes, interleaved pixels, steps, expanded rows and one channel are read correctly.

    An image of the result's size is copied. The result may lie in a larger tensor.
    """
    image = planes(image_of("noise", 60, 80), device)
    assert_same(resized(image, (60, 80), flip=True), image.flip(-1))
    assert_same(resized(image[:1], (20, 30)), resized(image, (20, 30))[:1])
    room = torch.full((21, 32, 4), 77, dtype=torch.uint8, device=device)
    for view in (image, image.contiguous(), image[:, ::2, 3::3], image[:, :1].expand(3, 9, 80)):
        out = room[:20, 1:-1, :3].permute(2, 0, 1)
        resize_into(out, view)

        assert apart(out, pillows(view.permute(1, 2, 0).cpu().numpy().copy(), (20, 30))) <= 1
    out.fill_(77)
    assert_same(room, 77)


@pytest.mark.parametrize("flip", [False, True])
def test_a_window_beyond_the_canvas_is_black_there(device: str, flip: bool) -> None:
    """Outside the image the canvas is black, and the rest is not affected."""
    image = image_of("noise", 20, 30)
    expected = np.zeros((60, 100, 3), np.uint8)
    expected[14:54, 10:70] = pillows(image, (40, 60))
    black = np.zeros((60, 100), bool)
    black[:14] = black[54:] = black[:, :10] = black[:, 70:] = True
    if flip:
        expected, black = expected[:, ::-1], black[:, ::-1].copy()

    result = resized(planes(image, device), (60, 100), (40, 60), top=-14, left=-10, flip=flip)

    assert apart(result, expected) <= 1
    assert_same(result.cpu()[:, torch.from_numpy(black)], 0)


TRANSFORMS: list[Any] = [
    RandomResizedCrop((31, 45), dtype=torch.uint8, quality="exact", flip=0.5),
    ResizeCenterCrop(40, 32, flip=0.5, dtype=torch.uint8, quality="exact"),
    ResizeCenterCrop(40, (64, 50), flip=0.5, dtype=torch.uint8, quality="exact"),
]


@pytest.mark.parametrize("seed", range(9))
@pytest.mark.parametrize("transform", TRANSFORMS, ids=repr)
def test_a_transforms_plan_can_be_carried_out(device: str, transform: Any, seed: int) -> None:
    """A plan carried out on a device gives the transform's result, including padding."""
    height, width = map(int, np.random.default_rng(seed).integers(20, 200, 2))
    image = image_of("ramp", height, width, seed)
    data = encode(Image.fromarray(image), "png")
    want, _ = transform.with_geometry(data, generator=torch.Generator().manual_seed(seed))
    plan = transform.draw(width, height, torch.Generator().manual_seed(seed)).whole_plan()
    left, top, right, bottom = plan.box
    part = planes(image, device)[:, top:bottom, left:right]

    result = resized(part, plan.size, plan.canvas, top=plan.top, left=plan.left, flip=plan.flip)

    assert apart(result, want.permute(1, 2, 0).numpy()) <= 1


@NEEDS_CUDA
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")  # that it is a prototype
def test_nothing_waits_for_the_device() -> None:
    """No call synchronises, except the first one, which initialises libraries."""
    image = planes(image_of("ramp", 61, 77), "cuda")
    resized(image, (20, 30))
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        result = resized(image, (20, 30), (40, 60), top=-2, left=3, flip=True)
    finally:
        torch.cuda.set_sync_debug_mode("default")

    assert result.is_cuda


@NEEDS_CUDA
def test_work_is_in_the_order_of_the_current_stream() -> None:
    """An image that is late on another stream is waited for, and so is the result."""
    host = planes(image_of("ramp", 60, 80), "cpu").contiguous().pin_memory()
    want = resized(host.cuda(), (20, 30)).cpu()
    with torch.cuda.stream(torch.cuda.Stream()):
        image = torch.zeros(3, 60, 80, dtype=torch.uint8, device="cuda")
        torch.cuda._sleep(LATE)
        image.copy_(host, non_blocking=True)
        result = resized(image, (20, 30))
        del image
        torch.zeros(1 << 20, dtype=torch.uint8, device="cuda").fill_(255)
        have = result.cpu()

    assert_same(have, want)
