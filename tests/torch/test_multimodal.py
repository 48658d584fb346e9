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
from PIL import ImageOps
from torch_reference import PHOTOS

from fastdecode.testing import encode
from fastdecode.torch.transforms import PadToSquare, SmartResize

try:
    from torchvision.transforms import InterpolationMode as Mode
    from torchvision.transforms import transforms as v1
except ImportError:
    from small_torchvision import Mode, v1

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
        assert (np.array(step(image)) == array).all()
        assert (step(np.array(image)) == array).all()
        tensor = step(torch.from_numpy(np.array(image)).permute(2, 0, 1))
        assert (tensor.permute(1, 2, 0).numpy() == array).all()
        dataset = Sources(file, transform=v1.Compose([step, v1.PILToTensor()]))
        with SeededLoader(dataset, 1, threads=2) as loader:
            [(batch, _)] = loader
        assert dataset.isolated
        assert (batch[0].permute(1, 2, 0).numpy() == array).all()


class Expands:
    """A class that many write."""

    def __init__(self, colour: Any) -> None:
        self.colour = colour

    def __call__(self, image: Any) -> Any:
        side = max(image.size)
        square = PillowImage.new("RGB", (side, side), self.colour)
        square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
        return square


class PadsEvenly:
    """What is copied most: by as many pixels at both ends, so that it may be no square."""

    def __call__(self, image: Any) -> Any:
        width, height = image.size
        most = np.max([width, height])
        across, down = int((most - width) / 2), int((most - height) / 2)
        return ImageOps.expand(image, (across, down, across, down), 0)


class PadsTheRest(Expands):
    """The same with what is left at the right and the bottom."""

    def __call__(self, image: Any) -> Any:
        most = max(image.size)
        left, top = [(most - side) // 2 for side in image.size]
        right, bottom = [most - (side + pad) for side, pad in zip(image.size, [left, top])]  # noqa: B905
        return ImageOps.expand(image, (left, top, right, bottom), self.colour)


def enclosed(colour: Any) -> Any:
    return lambda image: expand2square(image, colour)


def up_to_500(image: Any) -> Any:
    return expand2square(image, COLOUR) if image.size[0] < 500 else image


def at_the_top(image: Any) -> Any:
    made = PillowImage.new("RGB", (max(image.size),) * 2, COLOUR)
    made.paste(image, (0, 0))
    return made


def wide_ones(image: Any) -> Any:
    return expand2square(image, (224, 224, 224)) if image.size[0] != 224 else image


def of_other_sizes(image: Any) -> Any:
    return image if image.size == (640, 480) else expand2square(image, COLOUR)


def counts(image: Any) -> Any:
    SEEN.append(image)
    return expand2square(image, COLOUR)


SEEN: list[Any] = []
SQUARES = {
    "a lambda": (lambda image: expand2square(image, COLOUR), COLOUR),
    "with constants": (lambda image: expand2square(image, (127, 3, 255)), (127, 3, 255)),
    "a closure": (enclosed((9, 8, 7)), (9, 8, 7)),
    "of one level": (lambda image: expand2square(image, 0), (0, 0, 0)),
    "by its name": (lambda image: expand2square(image, "white"), (255, 255, 255)),
    "a class": (Expands(COLOUR), COLOUR),
    "all sides": (PadsTheRest(COLOUR), COLOUR),
}
if hasattr(v1, "Lambda"):
    SQUARES["a Lambda"] = v1.Lambda(lambda image: expand2square(image, COLOUR)), COLOUR
OTHERS = {
    "small": up_to_500, "top": at_the_top, "of one side": wide_ones, "of one size": of_other_sizes,
    "more": counts,
}  # fmt: skip


def _samples(step: Any) -> tuple[Any, list[Any]]:
    parts = [step, v1.Resize((48, 48), interpolation=Mode.BICUBIC), v1.PILToTensor()]
    dataset = Sources(*FILES, transform=v1.Compose(parts))
    with SeededLoader(dataset, 1, num_workers=0, collate_fn=list) as loader:
        return dataset, [sample for batch in loader for sample, _ in batch]


@pytest.mark.parametrize("name", SQUARES)
def test_functions_that_pad_to_squares_are_done_in_the_core(name: str) -> None:
    """Whoever writes LLaVA's function by hand gets the same pixels, without Python."""
    step, colour = SQUARES[name]
    dataset, made = _samples(step)

    assert not dataset._resolved_transform().in_loader.rest
    for image, sample in zip(IMAGES, made, strict=True):
        square = expand2square(image, colour)
        expected = np.array(square.resize((48, 48), PillowImage.Resampling.BICUBIC))
        assert (sample.permute(1, 2, 0).numpy() == expected).all()


def test_a_function_that_pads_evenly_is_done_in_the_core() -> None:
    """Its result may be a pixel short of a square, as written."""
    files = [encode(image.crop((0, 0, *size))) for image in IMAGES for size in ODD]
    parts = [PadsEvenly(), v1.ToTensor()]
    dataset = Sources(*files, transform=v1.Compose(parts))
    assert not dataset._resolved_transform().in_loader.rest
    with SeededLoader(dataset, 1, num_workers=0, collate_fn=list) as loader:
        samples = [sample for batch in loader for sample, _ in batch]
    for file, sample in zip(files, samples, strict=True):
        image = PillowImage.open(io.BytesIO(file)).convert("RGB")
        assert (sample - v1.ToTensor()(PadsEvenly()(image))).abs().max() <= 1e-6


ODD = ((40, 31), (31, 40), (30, 40), (7, 7), (1, 2))


@pytest.mark.parametrize("name", OTHERS)
def test_other_functions_are_called(name: str) -> None:
    """Not one that pads elsewhere, leaves some images as they are, or does something else."""
    dataset, made = _samples(OTHERS[name])

    fused = dataset._resolved_transform()
    assert fused.in_loader.rest
    for image, sample in zip(IMAGES, made, strict=True):
        resized = OTHERS[name](image).resize((48, 48), PillowImage.Resampling.BICUBIC)
        assert (sample.permute(1, 2, 0).numpy() == np.array(resized)).all()


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
