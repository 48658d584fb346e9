"""The package's transforms of decoded images, against what each is in the library it comes from."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from corpus import native_core
from hypothesis import given
from hypothesis import strategies as st
from loading import SeededLoader, Sources
from PIL import Image as PillowImage
from same import assert_raises, assert_same
from torch_reference import MEAN, PHOTOS, STD, normalized

from fastdecode.native._augment import Impossible, draw_in_core
from fastdecode.testing import encode
from fastdecode.torch.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Compose,
    LetterBox,
    Normalize,
    OpenCVResize,
    PadToSquare,
    SmartResize,
    ToTensor,
)

# ---- Normalize ----

LEVELS = torch.arange(256, dtype=torch.uint8).view(16, 16).expand(3, 16, 16).contiguous()


def test_every_level_is_normalised_as_by_torchvision() -> None:
    """All 256 levels are scaled to 0 to 1, less the mean, divided by the std; or only scaled."""
    assert (IMAGENET_MEAN, IMAGENET_STD) == (MEAN, STD)
    assert_same(Normalize()(LEVELS), normalized(LEVELS), within=1e-6)
    assert_same(Normalize(None)(LEVELS), LEVELS / 255, within=1e-7)
    assert (Normalize(None)(LEVELS).min(), Normalize(None)(LEVELS).max()) == (0, 1)


@pytest.mark.parametrize(
    ("pixels", "out", "named"),
    [
        (LEVELS, torch.zeros(3, 8, 8), "out"),
        (LEVELS, torch.zeros(1, 3, 16, 16), "out"),
        (LEVELS, torch.zeros(3, 16, 16, dtype=torch.float64), "out"),
        *((pixels, None, "uint8") for pixels in (LEVELS.int(), LEVELS[:1], LEVELS[0].float())),
        (LEVELS.permute(1, 2, 0), None, "uint8"),
    ],
    ids="1234567",
)
def test_other_pixels_and_slots_are_refused(pixels: Any, out: Any, named: str) -> None:
    """Integers of other types, and wrong shapes, are errors; `out` is not written or resized."""
    shape = getattr(out, "shape", None)

    with pytest.raises(ValueError, match=named):
        Normalize()(pixels, out=out)

    assert getattr(out, "shape", None) == shape
    assert out is None or not out.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("inplace", [False, True])
def test_floats_are_normalised_as_they_are(dtype: Any, inplace: bool) -> None:
    """As in torchvision, floats are normalised in their type, without scaling."""
    values = (LEVELS / 255).to(dtype)
    mean, std = (torch.tensor(three, dtype=dtype).view(3, 1, 1) for three in (MEAN, STD))
    given, out = values.clone(), torch.zeros((16, 16, 3), dtype=dtype).permute(2, 0, 1)

    result = Normalize(inplace=inplace)(given)

    assert (result is given) == inplace
    assert_same(given, result if inplace else values)
    assert_same(result, (values - mean) / std)
    assert Normalize()(values, out=out) is out
    assert_same(out, result)
    assert_same(Normalize(None)(values), values)


@pytest.mark.parametrize(
    ("mean", "std"),
    [(IMAGENET_MEAN, IMAGENET_STD), (None, None), ((-2, 0.5, 9), (1e-3, 40, -0.7))],
)
def test_it_can_be_undone(mean: Any, std: Any) -> None:
    """Every level is restored from its float; other values go to the nearest."""
    normalize = Normalize(mean, std)

    for pixels in (LEVELS, LEVELS.expand(2, 3, 16, 16)):
        assert_same(normalize.undo(normalize(pixels)), pixels)
    factor, bias = (torch.tensor(three).view(3, 1, 1) for three in normalize.affine)
    for level, expected in ((3.4, 3), (-20.0, 0), (300.0, 255)):
        assert_same(normalize.undo(level * factor + bias), expected, level)


# ---- OpenCVResize and LetterBox ----

SHAPES = ((50, 70), (71, 33), (1, 9), (96, 96), (95, 200), (300, 301))
IMAGES = [np.random.default_rng(7).integers(0, 256, (*shape, 3), np.uint8) for shape in SHAPES]


@pytest.fixture(scope="module")
def cv2() -> Any:
    native_core()
    return pytest.importorskip("cv2")


def ultralytics(
    cv2: Any, image: Any, shape: tuple[int, int], *, scaleup: bool, center: bool, fill: int
) -> Any:
    """Do what the LetterBox of ultralytics 8 does, without `auto`."""
    factor = min(shape[0] / image.shape[0], shape[1] / image.shape[1])
    factor = factor if scaleup else min(factor, 1.0)
    size = round(image.shape[1] * factor), round(image.shape[0] * factor)
    dw, dh = shape[1] - size[0], shape[0] - size[1]
    if center:
        dw, dh = dw / 2, dh / 2
    if image.shape[1::-1] != size:
        image = cv2.resize(image, size, interpolation=cv2.INTER_LINEAR)
    top, bottom = round(dh - 0.1) if center else 0, round(dh + 0.1)
    left, right = round(dw - 0.1) if center else 0, round(dw + 0.1)
    borders = (top, bottom, left, right)
    return cv2.copyMakeBorder(image, *borders, cv2.BORDER_CONSTANT, value=(fill,) * 3)


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("enlarges", [True, False])
def test_letter_boxes_are_those_of_ultralytics(cv2: Any, enlarges: bool, center: bool) -> None:
    """Of every shape: resized by one factor as OpenCV does, within a level, and padded with 114."""
    for image in IMAGES:
        if enlarges or max(image.shape) > 10:
            how: Any = {"center": center, "fill": 114} if center else {"center": False, "fill": 7}
            box = LetterBox((96, 128), enlarges=enlarges, **how)
            theirs = ultralytics(cv2, image, (96, 128), scaleup=enlarges, **how)
            assert_same(box(image), theirs, image.shape, within=1)


@pytest.mark.parametrize("way", ["linear", "area", "nearest"])
def test_resizes_are_those_of_opencv(cv2: Any, way: Any) -> None:
    """To both sides, or to the shorter one; nearest bit for bit, others within a level."""
    for image in IMAGES:
        height, width = image.shape[:2]
        factor = 40 / min(height, width)
        sides = max(1, round(height * factor)), max(1, round(width * factor))
        for size in (40, (17, 11), (400, 500)):
            rows, columns = sides if isinstance(size, int) else size
            mixed = (rows < height and columns > width) or (rows > height and columns < width)
            if way == "area" and mixed:
                with pytest.raises(ValueError, match="not possible"):
                    OpenCVResize(size, way)(image)
                continue
            how = getattr(cv2, f"INTER_{way.upper()}")
            theirs = cv2.resize(image, (columns, rows), interpolation=how)
            made = OpenCVResize(size, way)(image)
            assert_same(made, theirs, (image.shape, size), within=way != "nearest")


@pytest.mark.parametrize("step", [LetterBox((90, 70)), OpenCVResize((90, 70), "area")])
def test_a_loader_does_them_in_the_core(cv2: Any, step: Any) -> None:
    """Its batches have one shape, and differ by at most one level from what a call gives."""
    v1 = pytest.importorskip("torchvision.transforms")
    transform = Compose([step, v1.RandomHorizontalFlip(p=1.0), ToTensor()])
    dataset = Sources(*FILES, transform=transform)
    with SeededLoader(dataset, 3, threads=2) as loader:
        (batch,) = [images for images, _ in loader]

    assert dataset.isolated
    assert dataset.sample_shape == (3, 90, 70)
    assert "in the core" in repr(dataset)
    assert_same([*batch], [dataset[at][0] for at in range(3)], within=1.01 / 255)


# ---- SmartResize and PadToSquare ----

FILES = [photo.read_bytes() for photo in PHOTOS[:3]]
PHOTO = PillowImage.open(io.BytesIO(FILES[0])).convert("RGB")


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


def expand2square(image: PillowImage.Image, fill: Any) -> PillowImage.Image:
    """Do what LLaVA's function of this name does."""
    width, height = image.size
    side = max(width, height)
    result = PillowImage.new(image.mode, (side, side), fill)
    result.paste(image, ((side - width) // 2, (side - height) // 2))
    return result


@given(
    st.integers(1, 300) | st.integers(1, 3000),
    st.integers(1, 300) | st.integers(1, 3000),
    st.sampled_from([1, 10, 28, 32]),
    st.integers(1, 10**6),
    st.integers(1, 10**6),
)
def test_sides_are_those_of_qwens_function(
    width: int, height: int, factor: int, one: int, other: int
) -> None:
    """For any image and limits; it refuses those that are too narrow."""
    limits = min(one, other), max(one, other)
    step = SmartResize(factor, *limits)
    try:
        expected = smart_resize(height, width, factor, *limits)
    except ValueError:
        with pytest.raises(Impossible):
            draw_in_core(step.program, 0, width, height)
        return
    if max(expected) <= 16384:
        assert draw_in_core(step.program, 0, width, height).size == expected


STEPS: list[tuple[Any, Callable[[PillowImage.Image], Any]]] = [
    (
        SmartResize(),
        lambda image: image.resize(
            smart_resize(*image.size[::-1])[::-1], PillowImage.Resampling.BICUBIC
        ),
    ),
    (PadToSquare(), lambda image: expand2square(image, (122, 116, 104))),
    (PadToSquare((1, 200, 30)), lambda image: expand2square(image, (1, 200, 30))),
    (
        LetterBox(48, fill=7),
        lambda image: PillowImage.fromarray(LetterBox(48, fill=7)(np.array(image))),
    ),
]


class Image(torch.Tensor):
    """A tensor class like torchvision's Image."""


@pytest.mark.parametrize("sides", [(70, 40), (40, 71), (5, 5), (1, 30)])
@pytest.mark.parametrize(("step", "expected"), STEPS)
def test_every_kind_of_image_has_the_same_result_of_its_kind(
    step: Any, expected: Any, sides: tuple[int, int]
) -> None:
    """Of Pillow images, arrays, and tensors of any class alike, alone and in a Loader."""
    native_core()
    image = PHOTO.resize(sides)
    wanted = expected(image)
    array = np.array(wanted)
    tensor = step(torch.from_numpy(np.array(image)).permute(2, 0, 1).as_subclass(Image))
    dataset = Sources(encode(image, "png"), transform=Compose([step]))
    with SeededLoader(dataset, 1, threads=2, collate_fn=list) as loader:
        [[(made, _)]] = loader

    assert type(tensor) is Image
    assert_same(tensor.as_subclass(torch.Tensor).permute(1, 2, 0).numpy(), array)
    assert_same(step(image), wanted)
    assert_same(step(np.array(image)), array)
    assert_same(np.array(made), array)
    assert dataset.isolated


# ---- arguments ----


BYTES = np.zeros((5, 5, 3), np.uint8)


WRONG = [
    lambda: LetterBox(0),
    lambda: LetterBox(64, fill=256),
    lambda: LetterBox(64, fill=1.5),
    lambda: OpenCVResize("64"),
    lambda: OpenCVResize(64, "cubic"),
    lambda: OpenCVResize(64)(BYTES[:, :, 0]),
    lambda: OpenCVResize(64)(BYTES.astype(np.float32)),
    lambda: LetterBox(64)(torch.zeros(2, 3, 5, 5, dtype=torch.uint8)),
    lambda: LetterBox(64)(torch.zeros(3, 5, 5, requires_grad=True)),
    lambda: LetterBox(64)(torch.zeros(3, 5, 5)),
    lambda: SmartResize(0),
    lambda: SmartResize(28.0),  # type: ignore[arg-type]
    lambda: SmartResize(28, 5, 4),
    lambda: SmartResize(28, True),
    lambda: PadToSquare(256),
    lambda: PadToSquare(-1),
    lambda: PadToSquare((1, 2)),
    lambda: PadToSquare((1, 2, 0.5)),
    lambda: PadToSquare("black"),
]


def test_wrong_values_are_refused() -> None:
    """Sizes, levels and names that are none, and images that are not RGB in bytes."""
    told = "size|fill|factor|min_pixels|interpolation|RGB|bytes|'cubic'"
    for at, make in enumerate(WRONG):
        assert_raises(ValueError, told, make, f"WRONG[{at}]")
