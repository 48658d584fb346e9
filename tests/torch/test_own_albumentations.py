"""`fuse` of albumentations' pipelines in a dataset of one's own, which calls them by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loading import COUNT, PROCESS_WARNINGS, Seeded
from PIL import Image
from same import assert_same
from torch.utils.data import DataLoader, Dataset

import fastdecode
from fastdecode.torch import Fused, Loader, fuse
from fastdecode.torch._recorded import LazyTensor

A = pytest.importorskip("albumentations")
ToTensorV2 = pytest.importorskip("albumentations.pytorch").ToTensorV2

pytestmark = pytest.mark.filterwarnings(
    *PROCESS_WARNINGS, "ignore:Got processor for", "ignore:ShiftScaleRotate is a special case"
)

LEVEL = 1.01 / 255 / 0.22  # of what A.Normalize returns


def end() -> list[Any]:
    return [A.Normalize(), ToTensorV2()]


def fixed() -> list[Any]:
    """Return steps that draw nothing: new ones, because ReplayCompose changes them."""
    return [A.Resize(32, 30), A.CenterCrop(24, 24)]


def inverted(image: Any, **_: Any) -> Any:
    return 255 - image


def drawn() -> list[Any]:
    return [A.RandomResizedCrop((24, 24)), A.HorizontalFlip(), A.RandomBrightnessContrast(p=1)]


def _is_recorded(found: Any) -> bool:
    return isinstance(found, LazyTensor) and found._recordings is not None


def _array(path: Path) -> Any:
    return np.asarray(Image.open(path).convert("RGB"))


def test_an_image_by_name_is_recorded(folder: Path) -> None:
    """The result is albumentations' dictionary, within a level of what it makes of the array."""
    pipeline = A.Compose([*fixed(), *end()])
    path = folder / "0.jpg"

    made = fuse(pipeline)(image=fastdecode.open(path).convert("RGB"))

    assert made.keys() == {"image"}
    assert _is_recorded(made["image"])
    assert_same(made["image"], pipeline(image=_array(path))["image"], within=LEVEL)


def test_without_a_tensor_at_the_end_it_is_an_array(folder: Path) -> None:
    """Of the values and the type that albumentations makes, and of its own memory."""
    for steps in (fixed(), [*fixed(), A.Normalize()], [], [A.NoOp()], [A.Lambda(image=inverted)]):
        pipeline, path = A.Compose(steps), folder / "1.jpg"
        made = fuse(pipeline)(image=fastdecode.open(path).convert("RGB"))["image"]
        expected = pipeline(image=_array(path))["image"]
        assert_same(made, expected, within=LEVEL if made.dtype == np.float32 else 1)
        assert made.flags.writeable


BY_THE_CORE = {
    "affine": lambda: [A.Affine((0.7, 1.3), (-0.2, 0.2), rotate=(-40, 40), shear=(-9, 9), p=1)],
    "blur": lambda: [A.Blur(p=1)],
    "channel dropout": lambda: [A.ChannelDropout(fill=9, p=1)],
    "channel shuffle": lambda: [A.ChannelShuffle(p=1)],
    "clahe": lambda: [A.CLAHE(p=1)],
    "coarse dropout": lambda: [A.CoarseDropout(fill=(1, 2, 3), p=1)],
    "crop": lambda: [A.Crop(3, 5, 30, 40)],
    "crop and pad": lambda: [A.CenterCrop(70, 40, pad_if_needed=True, fill=7)],
    "d4": lambda: [A.D4(p=1)],
    "equalize": lambda: [A.Equalize(p=1)],
    "from borders": lambda: [A.RandomCropFromBorders(p=1)],
    "gamma": lambda: [A.RandomGamma(p=1)],
    "grey": lambda: [A.ToGray(p=1)],
    "grid dropout": lambda: [A.GridDropout(holes_number_xy=(3, 2), p=1)],
    "hue": lambda: [A.HueSaturationValue(p=1)],
    "invert": lambda: [A.InvertImg(p=1)],
    "jitter": lambda: [A.ColorJitter(p=1)],
    "longest": lambda: [A.LongestMaxSize(40)],
    "median": lambda: [A.MedianBlur(p=1)],
    "pad": lambda: [A.Pad((1, 2, 3, 4), border_mode=4)],
    "pad if needed": lambda: [A.PadIfNeeded(70, 90, position="random", border_mode=1)],
    "posterize": lambda: [A.Posterize(p=1)],
    "random crop": lambda: [A.RandomCrop(20, 70, pad_if_needed=True, border_mode=2)],
    "rotate": lambda: [A.Rotate(border_mode=4, p=1)],
    "rotate and crop": lambda: [A.Rotate(crop_border=True, p=1)],
    "quarters": lambda: [A.RandomRotate90(p=1), A.Transpose(), A.VerticalFlip()],
    "safe box crop": lambda: [A.RandomSizedBBoxSafeCrop(30, 30)],
    "safe rotate": lambda: [A.SafeRotate(p=1)],
    "scale": lambda: [A.RandomScale(0.3, p=1)],
    "shift": lambda: [A.ShiftScaleRotate(fill=200, p=1)],
    "sized crop": lambda: [A.RandomSizedCrop((10, 40), (20, 20))],
    "smallest by area": lambda: [A.SmallestMaxSize(20, area_for_downscale="image")],
    "solarize": lambda: [A.Solarize(p=1)],
    "symmetry": lambda: [A.SquareSymmetry(p=1), A.HorizontalFlip(p=1)],
    "choice": lambda: [A.OneOf([A.HorizontalFlip(), A.Sequential([A.Transpose(p=1)])], p=0.9)],
    "either": lambda: [A.OneOrOther(A.HorizontalFlip(p=1), A.Transpose(p=1))],
    "nested": lambda: [A.Compose([A.SomeOf([A.Transpose(), A.VerticalFlip()], n=1)], p=0.8)],
    "order": lambda: [A.RandomOrder([A.Transpose(), A.CenterCrop(20, 30)], n=2)],
}
"""Steps that are recorded, each with its albumentations' options."""

BY_ALBUMENTATIONS = {
    "cubic": lambda: [A.Resize(20, 30, interpolation=2), A.Rotate(interpolation=2, p=1)],
    "fit": lambda: [A.Affine(rotate=(9, 40), fit_output=True, p=1)],
    "function": lambda: [A.Lambda(image=inverted, p=1)],
    "noise": lambda: [A.GaussNoise(p=1), A.GaussianBlur(p=1), A.ElasticTransform(p=1)],
    "of the mean": lambda: [A.RandomBrightnessContrast(brightness_by_max=False, p=1)],
    "one's own": lambda: [Brightest(p=1)],
    "random fill": lambda: [A.CoarseDropout(fill="random", p=1)],
    "rain": lambda: [A.RandomRain(p=1), A.ImageCompression(p=1), A.Perspective(p=1)],
    "stain": lambda: [A.HEStain("macenko", p=1)],
    "too many tiles": lambda: [A.Posterize([(1, 2), (3, 4), (5, 6)], p=1)],
}
"""Steps that get the pixels, or look at them before they draw."""


class Brightest(A.ImageOnlyTransform):
    """A step of one's own that looks at the image."""

    def get_params_dependent_on_data(self, params: Any, data: Any) -> Any:
        assert type(data["image"]) is np.ndarray
        return {"most": int(data["image"].max())}

    def apply(self, img: Any, most: int = 0, **_: Any) -> Any:
        return most - img


@pytest.mark.parametrize(
    "then", [[], [A.RandomBrightnessContrast(p=1), A.Normalize(), ToTensorV2()]]
)
@pytest.mark.parametrize("name", [*BY_THE_CORE, *BY_ALBUMENTATIONS])
def test_what_comes_with_an_image_gets_its_geometry(folder: Path, name: str, then: Any) -> None:
    """All draws are albumentations' own, so masks, boxes, labels and points are equal."""
    steps = (BY_THE_CORE | BY_ALBUMENTATIONS)[name]
    boxes = A.BboxParams("pascal_voc", label_fields=["labels"], min_visibility=0.2)
    path, mask = folder / "2.jpg", folder / "2.png"
    found = []
    for opened in (False, True):
        how = {"bbox_params": boxes, "keypoint_params": A.KeypointParams("xy"), "seed": 5}
        pipeline = A.Compose([*steps(), *then], additional_targets={"other": "image"}, **how)
        read: Any = fastdecode.open if opened else lambda one: np.array(Image.open(one))
        made: dict[str, Any] = {"image": read(path), "other": read(path), "mask": read(mask)}
        made |= {"masks": [read(mask)], "keypoints": [(4, 5), (30, 8)], "name": "cat"}
        made |= {"bboxes": [[3, 4, 40, 30], [0, 0, 2, 2]], "labels": ["cat", "dog"]}
        transform = fuse(pipeline) if opened else pipeline
        made = transform(**made)
        images = [made.pop("image"), made.pop("other")]
        found.append((images, made))

    (expected, beside), (images, ours) = found
    assert_same(ours, beside)
    if then:  # what a step has made travels as bytes, with what is done to it after that
        assert all(map(_is_recorded, images))
    for one, other in zip(images, expected, strict=True):
        assert_same(one, other, within=3 * (LEVEL if then else 1))


def test_boxes_are_looked_at_after_each_step(folder: Path) -> None:
    """As albumentations does it, which leaves out those that a crop has cut away."""
    boxes = A.BboxParams("yolo", check_each_transform=True, min_area=100)
    steps = [A.CenterCrop(30, 30), A.Resize(90, 90), *end()]
    named: Any = {"bboxes": [[0.5, 0.5, 0.1, 0.1], [0.5, 0.5, 0.9, 0.9]]}

    made = fuse(A.Compose(steps, bbox_params=boxes))(
        image=fastdecode.open(folder / "0.jpg"), **named
    )

    expected = A.Compose(steps, bbox_params=boxes)(image=_array(folder / "0.jpg"), **named)
    assert len(expected["bboxes"]) == 1
    assert_same(made["bboxes"], expected["bboxes"])


@pytest.mark.parametrize(
    "pipeline",
    [
        lambda: A.Compose(fixed(), save_applied_params=True),
        lambda: A.ReplayCompose(fixed()),
        lambda: A.Compose([*fixed(), A.Lambda(image=inverted, p=1)]),
        lambda: A.Compose([A.Lambda(image=inverted, p=1)]),
        lambda: A.Resize(20, 30),
        lambda: A.Compose([A.Compose(fixed()), A.ToFloat()]),
    ],
)
def test_any_pipeline_of_albumentations_takes_an_opened_image(folder: Path, pipeline: Any) -> None:
    """What it returns beside the image is there, too."""
    path = folder / "3.jpg"
    fused = fuse(pipeline())
    assert isinstance(fused, Fused)

    made, expected = fused(image=fastdecode.open(path)), pipeline()(image=_array(path))

    assert made.keys() == expected.keys()
    names = [[name for name, _ in one.get("applied_transforms", ())] for one in (made, expected)]
    assert names[0] == names[1]
    assert_same(made["image"], expected["image"], within=1)
    # An array goes through albumentations' code.
    assert_same(fused(image=_array(path))["image"], expected["image"])


def test_a_seed_of_the_pipeline_is_followed(folder: Path) -> None:
    """Two with the same seed draw the same, whatever torch's generator; their images differ."""
    image = fastdecode.open(folder / "0.jpg").convert("RGB")
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(len(runs))
        fused = fuse(A.Compose([*drawn(), *end()], seed=seed))
        runs.append([fused(image=image)["image"] for _ in range(3)])
    assert_same(runs[0], runs[1])
    values = {one.numpy().tobytes() for run in (runs[0], runs[2]) for one in run}
    assert len(values) == 6


class Photos(Dataset[Any]):
    """A dataset as people write it with albumentations."""

    def __init__(self, folder: Path, transform: Any) -> None:
        self.folder, self.transform = folder, transform

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        image = fastdecode.open(self.folder / f"{index}.jpg").convert("RGB")
        return self.transform(image=image)["image"], index


class Masked(Photos):
    """The same, with masks."""

    def __getitem__(self, index: int) -> Any:
        image = fastdecode.open(self.folder / f"{index}.jpg").convert("RGB")
        mask = fastdecode.open(self.folder / f"{index}.png")
        made = self.transform(image=image, masks=[mask, mask])
        return made["image"], *made["masks"]


@pytest.mark.parametrize("kind", [Photos, Masked])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_makes_what_a_seeded_dataset_gives(
    folder: Path, workers: int, kind: Callable[..., Any]
) -> None:
    """Without a seed of the pipeline's own, draws follow from the seed, the epoch and the item."""
    dataset = kind(folder, fuse(A.Compose([*drawn(), *end()])))
    with Loader(dataset, 8, num_workers=workers, seed=3) as loader:
        for epoch in range(2):
            assert_same([*loader], [*DataLoader(Seeded(dataset, 3, epoch), 8)])
