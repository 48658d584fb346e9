"""`fuse` compared with timm: sizes, pixels and types; only the draws of boxes are torchvision's."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import pytest
import torch
from loading import SeededLoader as Loader
from PIL import Image as PillowImage
from same import assert_same

pytest.importorskip("timm", reason="the pipelines are timm's")

from timm.data import auto_augment as policies
from timm.data import transforms as timm
from timm.data.transforms_factory import create_transform
from torch_reference import PHOTOS
from torchvision.transforms import transforms as v1

from fastdecode.native._augment import draw_operations
from fastdecode.testing import encode
from fastdecode.torch import ImageList, fuse
from fastdecode.torch._programs import Unsupported
from fastdecode.torch._recognise import program_of, tensor_program_of

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STRIPS = [encode(PillowImage.open(PHOTOS[0]).resize(size)) for size in ((400, 9), (9, 400))]
TRAIN: dict[str, Any] = {"is_training": True, "color_jitter": None}

WHOLE = {
    "train": lambda: create_transform(64, **TRAIN),
    "train, bicubic": lambda: create_transform(64, interpolation="bicubic", **TRAIN),
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
        64, auto_augment="rand-m9-mstd0.5-inc1", interpolation="bicubic", **TRAIN
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
        scale = 255 * 0.229 if expected.max() < 10 else 1.0
    expected, result = torch.as_tensor(expected), torch.as_tensor(result)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert (result.double() - expected.double()).abs().max() * scale <= most


@pytest.mark.parametrize("name", WHOLE)
def test_fused_pipelines_give_the_pixels_of_timm(name: str) -> None:
    """All parts are fused; pixels are timm's within two levels."""
    transform = WHOLE[name]()
    fused = fuse(transform)

    assert fused.plan.rest == ()
    assert fused.isolated
    for number, path in enumerate(PHOTOS):
        for seed in range(3):
            _check(*_both(transform, fused, path.read_bytes(), 10 * number + seed))


@pytest.mark.parametrize("data", STRIPS, ids=["wide", "high"])
def test_a_strip_gets_the_central_box(data: bytes) -> None:
    """Where no box fits, the central one is taken, of at least one pixel."""
    result = fuse(WHOLE["train"]())(data)

    assert result.shape == (3, 64, 64)


@pytest.mark.parametrize("name", RESTS)
def test_the_rest_runs_as_written(name: str) -> None:
    """Unknown parts get the same input, and draw as timm's."""
    transform = RESTS[name]()
    fused = fuse(transform)

    assert "RandomResizedCropAndInterpolation" in fused.plan.names
    for number, path in enumerate(PHOTOS):
        expected, result = _both(transform, fused, path.read_bytes(), number)
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

    assert_same(epochs[1:], epochs[:1] * 2)
    assert torch.unique(epochs[0].flatten(1), dim=0).shape[0] == len(dataset)


def test_pytorchs_own_loader_draws_as_timm() -> None:
    """In the training process, boxes and flips are timm's, sample after sample."""
    transform = create_transform(48, **TRAIN)
    torch.manual_seed(5)
    random.seed(5)
    dataset = ImageList(PHOTOS * 2, transform=transform)
    batches = torch.cat(list(torch.utils.data.DataLoader(dataset, batch_size=4)))
    torch.manual_seed(5)
    random.seed(5)
    torch.empty((), dtype=torch.int64).random_()  # DataLoader's base seed

    for result, path in zip(batches, PHOTOS * 2, strict=True):
        _check(transform(PillowImage.open(path).convert("RGB")), result)


def test_a_changed_crop_is_left_alone() -> None:
    """A crop with another filter, range or method, or of a subclass, is not fused."""

    class Mine(timm.RandomResizedCropAndInterpolation):
        pass

    for kind, change in (
        (timm.RandomResizedCropAndInterpolation, {"interpolation": v1.InterpolationMode.LANCZOS}),
        (timm.RandomResizedCropAndInterpolation, {"scale": (0.0, 1.0)}),
        (timm.RandomResizedCropAndInterpolation, {"get_params": repr}),
        (Mine, {}),
    ):
        crop = kind(64)
        vars(crop).update(change)
        assert fuse(crop) is crop


LEVELS = [
    *("Posterize", "PosterizeOriginal", "Solarize", "SolarizeIncreasing", "SolarizeAdd"),
    *("Brightness", "Desaturate", "GaussianBlur"),
]


@pytest.mark.parametrize(
    ("magnitude", "most", "spread"),
    [
        *((4, None, 0.0), (10, None, 0.5), (4, 6, 0.0), (4, 6, 0.5), (4, 6, float("inf"))),
        *((5, 9.5, 0.0), (8, 6, 0.0), (8, 6, 2.5), (6, 6, float("inf")), (3, 10, 2.5)),
    ],
)
@pytest.mark.parametrize("name", LEVELS)
def test_timms_magnitudes_are_limited_as_timm_does(
    name: str, magnitude: float, most: float | None, spread: float
) -> None:
    """The numbers of an operation are those of timm: the same, or of the same distribution."""
    how = {"magnitude_max": most, "magnitude_std": spread}
    program = program_of(
        policies.AutoAugment([[policies.AugmentOp(name, 1.0, magnitude, how)]]), (48, 64)
    )

    def number(_: Any, given: float, **options: Any) -> float:
        return 1 - given if name == "Desaturate" else given  # it takes the part that is lost

    def at(level: float) -> float:
        return number(None, *policies.LEVEL_TO_ARG[name](level, {}))

    theirs = policies.AugmentOp(name, 1.0, magnitude, how)
    theirs.aug_fn = number
    random.seed(1)
    uniform, count = spread == float("inf"), 1 if spread == 0 else 1500
    expected = [theirs(None) for _ in range(count)]
    made = [draw_operations(program, 7919 * seed)[0][0].value[0] for seed in range(count)]
    reach = abs(at(10) - at(0))
    apart = np.quantile(made, [0, 0.3, 0.5, 0.7, 1]) - np.quantile(expected, [0, 0.3, 0.5, 0.7, 1])
    if count == 1:
        assert abs(apart).max() < 1e-12
    else:
        assert abs(np.mean(made) - np.mean(expected)) < 0.03 * reach
        assert abs(apart[1:-1]).max() <= max(0.05 * reach, float(name.startswith("Poster")))
        assert max(made) <= max(map(at, (0, magnitude if uniform else most or 10)))


def test_timms_augmentations_of_tensors_are_not_done() -> None:
    """They take Pillow images, also inside of another transform."""
    policy = policies.AutoAugment([[policies.AugmentOp("Posterize")]])
    held = v1.Compose([policy])
    program_of(held, (48, 64))
    for transform in (policy, held):
        with pytest.raises(Unsupported):
            tensor_program_of(transform, (48, 64))
