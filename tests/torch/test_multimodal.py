"""`SmartResize` and `PadToSquare`, against what Qwen2-VL and LLaVA do, and functions like these."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from corpus import native_core
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import SeededLoader, Sources
from PIL import Image as PillowImage
from same import assert_same
from torch_reference import PHOTOS

from fastdecode.testing import encode
from fastdecode.torch.transforms import Compose, PadToSquare, SmartResize

native_core()
FILES = [photo.read_bytes() for photo in PHOTOS[:3]]
IMAGES = [PillowImage.open(io.BytesIO(file)).convert("RGB") for file in FILES]
COLOUR = (122, 116, 104)


def smart_resize(
    height: int, width: int, factor: int = 28, min_pixels: int = 3136, max_pixels: int = 1003520
) -> tuple[int, int]:
    """Do what transformers' function of this name does."""
    if max(height, width) / min(height, width) > 200:
        raise ValueError("absolute aspect ratio must be smaller than 200")
    h_bar = round(height / factor) * factor
    w_bar = round(width / factor) * factor
    if h_bar * w_bar > max_pixels:
        beta = math.sqrt((height * width) / max_pixels)
        h_bar = max(factor, math.floor(height / beta / factor) * factor)
        w_bar = max(factor, math.floor(width / beta / factor) * factor)
    elif h_bar * w_bar < min_pixels:
        beta = math.sqrt(min_pixels / (height * width))
        h_bar = math.ceil(height * beta / factor) * factor
        w_bar = math.ceil(width * beta / factor) * factor
    return h_bar, w_bar


def expand2square(pil_img: Any, background_color: Any) -> Any:
    """Do what LLaVA's function of this name does."""
    width, height = pil_img.size
    if width == height:
        return pil_img
    if width > height:
        result = PillowImage.new(pil_img.mode, (width, width), background_color)
        result.paste(pil_img, (0, (width - height) // 2))
        return result
    result = PillowImage.new(pil_img.mode, (height, height), background_color)
    result.paste(pil_img, ((height - width) // 2, 0))
    return result


@given(
    st.integers(1, 300) | st.integers(1, 3000),
    st.integers(1, 300) | st.integers(1, 3000),
    st.sampled_from([1, 10, 28, 32]),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
)
@settings(deadline=None)
def test_sides_are_those_of_qwens_function(
    width: int, height: int, factor: int, one: int, other: int
) -> None:
    """For any image and limits; it refuses those that are too narrow."""
    limits = min(one, other), max(one, other)
    step = SmartResize(factor, *limits)
    from fastdecode.native._augment import Impossible, draw_in_core

    try:
        expected = smart_resize(height, width, factor, *limits)
    except ValueError:
        with pytest.raises(Impossible):
            draw_in_core(step.program, 0, width, height)
        return
    if max(expected) <= 16384:
        assert draw_in_core(step.program, 0, width, height).size == expected


@pytest.mark.parametrize("sides", [(70, 40), (40, 71), (5, 5), (1, 30)])
def test_pixels_are_pillows(sides: tuple[int, int]) -> None:
    """Of Pillow images, arrays and tensors alike, alone and in a Loader."""
    image = IMAGES[0].resize(sides)
    high, wide = smart_resize(sides[1], sides[0])
    expected = {
        SmartResize(): image.resize((wide, high), PillowImage.Resampling.BICUBIC),
        PadToSquare((1, 200, 30)): expand2square(image, (1, 200, 30)),
        PadToSquare(9): expand2square(image, (9, 9, 9)),
        PadToSquare(): expand2square(image, COLOUR),
    }
    file = encode(image, "png")
    for step, wanted in expected.items():
        array = np.array(wanted)
        assert_same(np.array(step(image)), array, step)
        assert_same(step(np.array(image)), array, step)
        tensor = step(torch.from_numpy(np.array(image)).permute(2, 0, 1))
        assert_same(tensor.permute(1, 2, 0).numpy(), array, step)
        dataset = Sources(file, transform=Compose([step]))
        with SeededLoader(dataset, 1, threads=2, collate_fn=list) as loader:
            [[(made, _)]] = loader
        assert dataset.isolated
        assert_same(np.array(made), array, step)


@pytest.mark.parametrize(
    "make",
    [
        lambda: SmartResize(0),
        lambda: SmartResize(28.0),  # type: ignore[arg-type]
        lambda: SmartResize(28, 5, 4),
        lambda: SmartResize(28, True),
        lambda: PadToSquare(256),
        lambda: PadToSquare(-1),
        lambda: PadToSquare((1, 2)),
        lambda: PadToSquare((1, 2, 0.5)),
        lambda: PadToSquare("black"),
    ],
)
def test_wrong_arguments_are_errors(make: Any) -> None:
    """They are found when the transform is made."""
    with pytest.raises(ValueError, match=r"fill|factor"):
        make()


def test_their_options_are_shown() -> None:
    """`repr` has the options of a transform."""
    assert repr(SmartResize(32, 9, 99)) == "SmartResize(factor=32, min_pixels=9, max_pixels=99)"
    assert repr(PadToSquare(7)) == "PadToSquare(fill=(7, 7, 7))"
