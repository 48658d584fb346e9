"""`OpenCVResize` and `LetterBox`, against OpenCV and what ultralytics does with it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from corpus import native_core
from loading import SeededLoader, Sources
from PIL import Image as PillowImage
from same import assert_same
from torch_reference import PHOTOS

from fastdecode.torch.transforms import (
    Compose,
    LetterBox,
    OpenCVResize,
    ToTensor,
)

cv2 = pytest.importorskip("cv2")
native_core()

SHAPES = ((50, 70), (71, 33), (1, 9), (96, 96), (95, 200), (300, 301))
IMAGES = [np.random.default_rng(7).integers(0, 256, (*shape, 3), np.uint8) for shape in SHAPES]
WAYS = {"linear": cv2.INTER_LINEAR, "area": cv2.INTER_AREA, "nearest": cv2.INTER_NEAREST}


def ultralytics(image: Any, shape: tuple[int, int], *, scaleup: bool, center: bool) -> Any:
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
    return cv2.copyMakeBorder(image, *borders, cv2.BORDER_CONSTANT, value=(114,) * 3)


def check(ours: Any, theirs: Any) -> None:
    assert ours.shape == theirs.shape
    assert np.abs(ours.astype(int) - theirs.astype(int)).max() <= 1


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("enlarges", [True, False])
def test_letter_boxes_are_those_of_ultralytics(enlarges: bool, center: bool) -> None:
    """Of every shape: resized by one factor as OpenCV does, within a level, and padded with 114."""
    for image in IMAGES:
        if enlarges or max(image.shape) > 10:
            box = LetterBox((96, 128), enlarges=enlarges, center=center)
            check(box(image), ultralytics(image, (96, 128), scaleup=enlarges, center=center))


@pytest.mark.parametrize("way", WAYS)
def test_resizes_are_those_of_opencv(way: Any) -> None:
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
            theirs = cv2.resize(image, (columns, rows), interpolation=WAYS[way])
            check(OpenCVResize(size, way)(image), theirs)
            if way == "nearest":
                assert_same(OpenCVResize(size, way)(image), theirs, (image, size))


def test_every_kind_of_image_has_the_same_result_of_its_kind() -> None:
    """A Pillow image gives one, a tensor a tensor of its class, and an array an array."""

    class Image(torch.Tensor):
        pass

    box, image = LetterBox(48, fill=7), IMAGES[0]
    expected = box(image)
    pillow = box(PillowImage.fromarray(image))
    tensor = box(torch.from_numpy(image).permute(2, 0, 1).as_subclass(Image))

    assert isinstance(pillow, PillowImage.Image)
    assert_same(np.array(pillow), expected)
    assert type(tensor) is Image
    assert_same(tensor.permute(1, 2, 0).numpy(), expected)
    assert tuple(expected[0, 0]) == (7, 7, 7)
    with pytest.raises(ValueError, match="in bytes, not"):
        box(tensor.as_subclass(torch.Tensor) / 255)


@pytest.mark.parametrize("step", [LetterBox((90, 70)), OpenCVResize((90, 70), "area")])
def test_a_loader_does_them_in_the_core(step: Any) -> None:
    """Its batches have one shape, and differ by at most one level from what a call gives."""
    v1 = pytest.importorskip("torchvision.transforms")
    transform = Compose([step, v1.RandomHorizontalFlip(p=1.0), ToTensor()])
    dataset = Sources(*(photo.read_bytes() for photo in PHOTOS[:3]), transform=transform)
    with SeededLoader(dataset, 3, threads=2) as loader:
        (batch,) = [images for images, _ in loader]

    assert dataset.isolated
    assert dataset.sample_shape == (3, 90, 70)
    assert "in the core" in repr(dataset)
    for made, at in zip(batch, range(3), strict=True):
        assert (made - dataset[at][0]).abs().max() <= 1.01 / 255


@pytest.mark.parametrize(
    "make",
    [
        lambda: LetterBox(0),
        lambda: LetterBox(64, fill=256),
        lambda: LetterBox(64, fill=1.5),
        lambda: OpenCVResize("64"),
        lambda: OpenCVResize(64, "cubic"),
        lambda: OpenCVResize(64)(np.zeros((5, 5), np.uint8)),
        lambda: OpenCVResize(64)(np.zeros((5, 5, 3), np.float32)),
        lambda: LetterBox(64)(torch.zeros(2, 3, 5, 5, dtype=torch.uint8)),
        lambda: LetterBox(64)(torch.zeros(3, 5, 5, requires_grad=True)),
    ],
    ids="123456789",
)
def test_wrong_values_are_refused(make: Any) -> None:
    """Sizes, levels and names that are none, and images that are not RGB in bytes."""
    with pytest.raises(ValueError, match=r"\w"):
        make()
