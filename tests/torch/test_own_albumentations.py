"""`fuse` of albumentations' pipelines in a dataset of one's own, which calls them by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loading import COUNT, PROCESS_WARNINGS, encoded
from PIL import Image
from same import assert_same
from torch.utils.data import DataLoader, Dataset

import fastdecode
from fastdecode.torch import Fused, Loader, fuse
from fastdecode.torch._loader.order import sample_seed
from fastdecode.torch._recorded import LazyTensor
from fastdecode.torch._user_code import seed_global_generators

A = pytest.importorskip("albumentations")
ToTensorV2 = pytest.importorskip("albumentations.pytorch").ToTensorV2

pytestmark = pytest.mark.filterwarnings(*PROCESS_WARNINGS)

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    """Write small photos to files, and a mask beside each."""
    folder: Path = tmp_path_factory.mktemp("photos")
    for number, data in enumerate(encoded()):
        (folder / f"{number}.jpg").write_bytes(data)
        with Image.open(folder / f"{number}.jpg") as image:
            Image.fromarray(np.asarray(image.convert("L")) // 90).save(folder / f"{number}.png")
    return folder


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


def test_what_is_done_before_is_recorded(folder: Path) -> None:
    """As with any other pipeline."""
    pipeline, box = A.Compose([*fixed(), *end()]), (3, 4, 50, 40)
    path = folder / "0.jpg"

    made = fuse(pipeline)(image=fastdecode.open(path).convert("RGB").crop(box))["image"]

    assert _is_recorded(made)
    part = np.asarray(Image.open(path).convert("RGB").crop(box))
    assert_same(made, pipeline(image=part)["image"], within=LEVEL)


def test_without_a_tensor_at_the_end_it_is_an_array(folder: Path) -> None:
    """Of the values and the type that albumentations makes, and of its own memory."""
    for steps in (fixed(), [*fixed(), A.Normalize()], [], [A.NoOp()], [A.Lambda(image=inverted)]):
        pipeline, path = A.Compose(steps), folder / "1.jpg"
        made = fuse(pipeline)(image=fastdecode.open(path).convert("RGB"))["image"]
        expected = pipeline(image=_array(path))["image"]
        assert_same(made, expected, within=LEVEL if made.dtype == np.float32 else 1)
        assert made.flags.writeable


def test_what_comes_with_an_image_gets_its_geometry(folder: Path) -> None:
    """A mask, boxes and labels go through albumentations' own code, with the image as an array."""
    boxes = A.BboxParams("pascal_voc", label_fields=["labels"], min_visibility=0.2)
    named = {"bboxes": [[3, 4, 40, 30], [0, 0, 2, 2]], "labels": ["cat", "dog"]}
    pipeline = A.Compose(drawn(), bbox_params=boxes, seed=5)
    again = A.Compose(drawn(), bbox_params=boxes, seed=5)
    path, mask = folder / "2.jpg", folder / "2.png"

    made = fuse(pipeline)(image=fastdecode.open(path), mask=fastdecode.open(mask), **named)

    expected = again(image=_array(path), mask=np.asarray(Image.open(mask)), **named)
    assert_same(made, expected)


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
    assert_same(made["image"], expected["image"], within=1)
    # An array goes through albumentations' code.
    assert_same(fused(image=_array(path))["image"], expected["image"])


def test_wrong_names_are_albumentations_errors(folder: Path) -> None:
    """They are the same as without `fuse`."""
    pipeline = A.Compose(fixed())
    for named in ({}, {"imge": _array(folder / "0.jpg")}, {"image": 3}):
        errors = []
        for one in (pipeline, fuse(pipeline)):
            with pytest.raises(Exception) as raised:
                one(**named)
            errors.append(raised.value)
        assert_same(errors[1], errors[0])


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

    def __init__(self, folder: Path, transform: Any, *, with_mask: bool = False) -> None:
        self.folder, self.transform, self.with_mask = folder, transform, with_mask

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        named = {"image": fastdecode.open(self.folder / f"{index}.jpg").convert("RGB")}
        if self.with_mask:
            named["mask"] = fastdecode.open(self.folder / f"{index}.png")
        return self.transform(**named), index


class Seeded(Photos):
    """The same, with each sample seeded as a `Loader` does."""

    def __getitem__(self, index: int) -> Any:
        seed_global_generators(sample_seed(3, 0, index))
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("with_mask", [False, True])
def test_a_loader_makes_what_a_seeded_dataset_gives(
    folder: Path, workers: int, with_mask: bool
) -> None:
    """Without a seed of the pipeline's own, draws follow from the seed, the epoch and the item."""
    fused = fuse(A.Compose([*drawn(), *end()]))
    dataset = Photos(folder, fused, with_mask=with_mask)
    with Loader(dataset, 8, num_workers=workers, seed=3) as loader:
        got = [*loader]
    assert_same(got, [*DataLoader(Seeded(folder, fused, with_mask=with_mask), 8)])


def test_changes_of_the_pipeline_take_effect(folder: Path) -> None:
    """The next image is made with what is there then."""
    pipeline = A.Compose([A.Resize(32, 30), *end()])
    fused, path = fuse(pipeline), folder / "0.jpg"
    assert fused(image=fastdecode.open(path))["image"].shape == (3, 32, 30)
    pipeline.transforms[0].height = 20
    assert fused(image=fastdecode.open(path))["image"].shape == (3, 20, 30)
