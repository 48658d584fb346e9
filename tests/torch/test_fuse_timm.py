"""`fuse` compared with timm: draws from both generators, pixels and types."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pytest
import torch
from loading import SeededLoader as Loader
from PIL import Image as PillowImage

pytest.importorskip("timm", reason="the pipelines are timm's")

from timm.data import transforms as timm
from timm.data.transforms_factory import create_transform
from torch_reference import PHOTOS
from torchvision.transforms import transforms as v1

from fastdecode.testing import encode
from fastdecode.torch import ImageList, fuse

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STRIPS = [encode(PillowImage.open(PHOTOS[0]).resize(size)) for size in ((400, 9), (9, 400))]
FILES = [*(path.read_bytes() for path in PHOTOS), *STRIPS]
TRAIN: dict[str, Any] = {"is_training": True, "color_jitter": None}

WHOLE = {
    "train": lambda: create_transform(64, **TRAIN),
    "train, bicubic": lambda: create_transform(64, interpolation="bicubic", **TRAIN),
    "train, either": lambda: create_transform((3, 64, 48), interpolation="random", **TRAIN),
    "train, its own ranges": lambda: create_transform(
        64, scale=(0.5, 0.6), ratio=(1.0, 3.0), hflip=1.0, **TRAIN
    ),
    "train, no flip": lambda: create_transform(64, hflip=0.0, **TRAIN),
    "train for its prefetcher's bytes": lambda: create_transform(64, normalize=False, **TRAIN),
    "eval": lambda: create_transform(64, crop_pct=0.9),
    "eval, bicubic": lambda: create_transform(64, interpolation="bicubic"),
    "eval, squashed": lambda: create_transform((64, 80), crop_mode="squash", crop_pct=0.9),
    "its ToTensor": lambda: v1.Compose([v1.Resize(64), v1.CenterCrop(56), timm.ToTensor()]),
    "its crop alone": lambda: timm.RandomResizedCropAndInterpolation((40, 50)),
    "tensors stay": lambda: v1.Compose(
        [v1.Resize(64), timm.MaybePILToTensor(), timm.MaybePILToTensor(), timm.MaybeToTensor()]
    ),
}
RESTS = {
    "colour": lambda: create_transform(64, is_training=True),
    "augmented": lambda: create_transform(
        64, auto_augment="rand-m9-mstd0.5-inc1", interpolation="random", **TRAIN
    ),
    "erased": lambda: create_transform(64, re_prob=1.0, re_mode="pixel", **TRAIN),
    "upside down": lambda: create_transform(64, vflip=0.5, **TRAIN),
    "for its prefetcher": lambda: v1.Compose([*WHOLE["train"]().transforms[:2], timm.ToNumpy()]),
}


def _both(transform: Any, fused: Any, data: bytes, seed: int) -> Any:
    """Run a pipeline and its fused form from the same seeds, and compare their draws."""
    results, states = [], []
    for run, given in (
        (transform, PillowImage.open(io.BytesIO(data)).convert("RGB")),
        (fused, data),
    ):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - timm's augmentations draw from it
        results.append(run(given))
        drawn = np.random.get_state()[2:]  # noqa: NPY002
        states.append((torch.get_rng_state().tolist(), random.getstate(), drawn))
    assert states[0] == states[1]
    return results


def _check(expected: Any, result: Any, most: float = 2.001) -> None:
    assert type(result) is type(expected)
    scale = 1.0
    if isinstance(expected, PillowImage.Image):
        expected, result = v1.PILToTensor()(expected), v1.PILToTensor()(result)
    elif isinstance(expected, torch.Tensor):
        assert result.stride() == expected.stride()
        scale = 255 * 0.229 if expected.max() < 10 else 1.0
    expected, result = torch.as_tensor(expected), torch.as_tensor(result)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert (result.double() - expected.double()).abs().max() * scale <= most


@pytest.mark.parametrize("name", WHOLE)
def test_exact_is_the_pipeline_as_written(name: str) -> None:
    """All parts are fused; boxes, flips and interpolations are timm's, pixels within two levels."""
    transform = WHOLE[name]()
    fused = fuse(transform, quality="exact")

    assert fused.rest == ()
    assert fused.isolated
    for number, data in enumerate(FILES):
        for seed in range(3):
            _check(*_both(transform, fused, data, 10 * number + seed))


@pytest.mark.parametrize("name", RESTS)
def test_the_rest_runs_as_written(name: str) -> None:
    """Unknown parts get the same input, so all draws stay timm's."""
    transform = RESTS[name]()
    fused = fuse(transform, quality="exact")

    assert fused.rest
    assert "RandomResizedCropAndInterpolation" in fused.fused
    for number, data in enumerate(FILES):
        expected, result = _both(transform, fused, data, number)
        if name != "augmented":  # which makes more of a level's difference than one can bound
            _check(expected, result, most=6 if name == "colour" else 2.001)


@pytest.mark.parametrize("interpolation", ["bilinear", "random"])
def test_a_loaders_batches_follow_from_its_seed(interpolation: str) -> None:
    """Threads and processes give the same batches, whatever the global generators do."""
    transform = create_transform(64, interpolation=interpolation, **TRAIN)
    dataset = ImageList(PHOTOS * 4, transform=transform)
    epochs = []
    for how in ({"threads": 0}, {"threads": 3}, {"workers": 1}):
        random.seed(len(epochs))
        torch.manual_seed(len(epochs))
        with Loader(dataset, 5, shuffle=True, seed=7, **how) as loader:
            epochs.append(torch.cat([batch.clone() for batch in loader]))

    assert all(torch.equal(epochs[0], other) for other in epochs)
    assert torch.unique(epochs[0].flatten(1), dim=0).shape[0] == len(dataset)


def test_pytorchs_own_loader_draws_as_timm() -> None:
    """In the training process, boxes are those of timm's own draws, batch after batch."""
    transform = create_transform(48, **TRAIN)
    dataset = ImageList(PHOTOS * 2, transform=transform, quality="exact")
    random.seed(5)
    torch.manual_seed(5)
    batches = torch.cat(list(torch.utils.data.DataLoader(dataset, batch_size=4)))
    random.seed(5)
    torch.manual_seed(5)
    torch.empty((), dtype=torch.int64).random_()  # DataLoader's base seed
    written = [transform(PillowImage.open(path).convert("RGB")) for path in PHOTOS * 2]

    for result, expected in zip(batches, written, strict=True):
        _check(expected, result)


@pytest.mark.parametrize(
    "change",
    [{"interpolation": v1.InterpolationMode.LANCZOS}, {"scale": (0.0, 1.0)}, {"get_params": print}],
    ids=str,
)
def test_what_is_not_known_for_certain_is_left_alone(change: dict[str, Any]) -> None:
    """A crop with another filter, range or method is not fused."""
    crop = timm.RandomResizedCropAndInterpolation(64)
    vars(crop).update(change)

    assert fuse(crop) is crop


def test_a_subclass_is_left_alone() -> None:
    """A subclass may do anything, so it is not fused."""

    class Mine(timm.RandomResizedCropAndInterpolation):
        pass

    crop = Mine(64)
    assert fuse(crop) is crop
