"""`fuse` draws what the classes of the libraries draw, in their order: they are the judges."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cases import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import encoded
from PIL import Image as PillowImage
from random_transforms import WITHOUT_SHRINKING
from same import assert_same

import fastdecode
from fastdecode.torch import fuse
from fastdecode.torch._recorded import LazyTensor

v1 = pytest.importorskip("torchvision.transforms")

v2 = pytest.importorskip("torchvision.transforms.v2")

BICUBIC, BILINEAR = v1.InterpolationMode.BICUBIC, v1.InterpolationMode.BILINEAR
MODULES = {"v1": v1, "v2": v2}

EXACT: dict[str, Callable[[Any], Any]] = {
    "jitter": lambda m: m.ColorJitter(0.4, (0.5, 1.6), 0.4, 0.1),
    "only some jitter": lambda m: m.ColorJitter(0, 0.3, 0, 0.4),
    "rotation": lambda m: m.RandomRotation((-40, 70)),
    "larger rotation": lambda m: m.RandomRotation(30, BILINEAR, expand=True),
    "affine": lambda m: m.RandomAffine(30, (0.2, 0.1), (0.5, 1.5), (-9, 9, -5, 7), fill=[1, 2, 3]),
    "perspective": lambda m: m.RandomPerspective(0.6, 0.7),
    "grey sometimes": lambda m: m.RandomGrayscale(0.4),
    "grey": lambda m: m.Grayscale(3),
    "flip": lambda m: m.RandomHorizontalFlip(0.3),
    "no flip": lambda m: m.RandomHorizontalFlip(0),
    "upside down": lambda m: m.RandomVerticalFlip(1.0),
    "invert": lambda m: m.RandomInvert(0.3),
    "posterize": lambda m: m.RandomPosterize(3, 0.6),
    "solarize": lambda m: m.RandomSolarize(100, 0.6),
    "sharpness": lambda m: m.RandomAdjustSharpness(2, 0.6),
    "autocontrast": lambda m: m.RandomAutocontrast(0.6),
    "equalize": lambda m: m.RandomEqualize(0.6),
    "padded crop": lambda m: m.RandomCrop((24, 32), 4, padding_mode="reflect"),
    "crop if needed": lambda m: m.RandomCrop((60, 20), pad_if_needed=True, fill=(9, 8, 7)),
    "resize": lambda m: m.Resize((40, 37), BICUBIC),
    "apply": lambda m: m.RandomApply([m.ColorJitter(0.4), m.Compose([m.RandomRotation(9)])], 0.6),
    "choice": lambda m: m.RandomChoice([m.ColorJitter(0.4), m.RandomVerticalFlip()]),
    "weighted choice": lambda m: m.RandomChoice([m.RandomInvert(), m.RandomAffine(9)], [0.2, 0.8]),
    "order": lambda m: m.RandomOrder([m.ColorJitter(0.4), m.RandomSolarize(99), m.RandomInvert()]),
    "trivial": lambda m: m.TrivialAugmentWide(),
    "few magnitudes": lambda m: m.TrivialAugmentWide(5, BILINEAR, [9, 128, 200]),
    "rand": lambda m: m.RandAugment(),
    "rand, 3": lambda m: m.RandAugment(3, 13, interpolation=BILINEAR),
    "auto": lambda m: m.AutoAugment(),
    "svhn": lambda m: m.AutoAugment(m.AutoAugmentPolicy.SVHN),
}
"""The core has Pillow's own pixels."""
WITHIN_LEVELS: dict[str, Callable[[Any], Any]] = {
    "blur": lambda m: m.GaussianBlur((3, 5), (0.1, 2.0)),
    "mix": lambda m: m.AugMix(),
    "short mix": lambda m: m.AugMix(1, 2, 2, 0.7, all_ops=False),
}
STEPS = {**EXACT, **WITHIN_LEVELS}
ERASINGS = st.sampled_from([0, (0.2, 1.0, 3.0)])


@pytest.fixture(scope="module")
def paths(tmp_path_factory: Any) -> list[Path]:
    folder = tmp_path_factory.mktemp("photos")
    made = [folder / f"{number}.jpg" for number in range(len(encoded()))]
    for path, data in zip(made, encoded(), strict=True):
        path.write_bytes(data)
    return made


def _run(transform: Any, image: Any, seed: int) -> tuple[Any, Any]:
    """Return a result, or the kind of the error, and the states of the generators after it."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - timm draws from it
    try:
        result = transform(image)
    except (ValueError, RuntimeError) as error:
        return type(error), None
    states = torch.get_rng_state().tolist(), random.getstate()
    return result, (*states, np.random.get_state()[1:3])  # noqa: NPY002


def _check(transform: Any, path: Path, seed: int, *, exact: bool, unit: float = 255) -> None:
    fused = pickle.loads(pickle.dumps(fuse(transform)))
    with PillowImage.open(path) as image:
        expected, states = _run(transform, image.convert("RGB"), seed)
    result, after = _run(fused, fastdecode.open(path), seed)
    if states is None:
        assert result is expected
        return
    assert isinstance(result, LazyTensor)
    assert_same(after, states)
    if exact:
        assert_same(result, expected, transform, within=1e-5)
    assert result.shape == expected.shape
    far = (result.double() - expected).abs() * unit > 2.01
    assert far.float().mean() < 0.05, transform
    from_bytes, after = _run(fused, path.read_bytes(), seed)
    assert_same(from_bytes, result)
    assert_same(after, states)


@given(
    st.sampled_from([*MODULES]),
    st.lists(st.sampled_from([*STEPS]), min_size=1, max_size=3),
    st.sampled_from(["images", "bytes", "floats", "erased"]),
    ERASINGS,
    st.integers(0, 22),
    st.integers(0, 2**32 - 1),
)
@settings(WITHOUT_SHRINKING, max_examples=examples(150))
def test_torchvisions_classes(
    paths: list[Path], version: str, names: list[str], form: str, value: Any, photo: int, seed: int
) -> None:
    """Pixels, and the states of all generators, are those of the pipeline as written."""
    module = MODULES[version]
    crop = (v1 if version == "v1" else v2).RandomResizedCrop((48, 40), interpolation=BICUBIC)
    steps = [STEPS[name](module) for name in names]
    first, end = [module.RandomHorizontalFlip(), crop], [v1.ToTensor()]
    if form == "bytes":
        first, end = [module.RandomCrop((48, 40), pad_if_needed=True), v2.PILToTensor()], []
    if form == "floats":
        steps, end = [STEPS["jitter"](module), module.RandomVerticalFlip()], []
        first.append(v1.ToTensor())
    if form == "erased":
        normalize = v1.Normalize([0.4] * 3, [0.3] * 3)
        end += [module.RandomErasing(0.7, (0.1, 0.9), value=value), normalize]
        end.append(module.RandomErasing(0.7, (0.05, 0.3)))
    exact = form in ("images", "erased") and WITHIN_LEVELS.keys().isdisjoint(names)
    unit = 1.0 if form == "bytes" else 255.0
    transform = module.Compose([*first, *steps, *end])
    fused: Any = fuse(transform)
    plan = None if fused is transform else fused.plan.alike
    if plan is None or not plan.is_recordable:  # the core does not do it
        is_long = sum("mix" in name for name in names) > 1  # for a program of the core
        assert form == "bytes" or "larger rotation" in names or is_long
        return
    _check(transform, paths[photo % len(paths)], seed, exact=exact, unit=unit)


TIMM = {
    "crop": {},
    "either filter": {"interpolation": "random"},
    "jitter": {"color_jitter_prob": 0.7, "grayscale_prob": 0.4, "gaussian_blur_prob": 0.4},
    "erased": {"re_prob": 0.7, "re_mode": "const", "re_count": 3},
    **{
        name: {"auto_augment": name}
        for name in (
            *("rand-m9-mstd0.5-inc1", "rand-m7-n3-mstd101-inc1", "rand-m6-n2-p0.7-mstd1-t3a"),
            *("rand-m9-n3-mstd0.5-tweights-inc1", "original-mstd0.5", "v0-mstd0.5"),
        )
    },
}


@pytest.mark.parametrize("name", TIMM)
def test_timms_classes(paths: list[Path], name: str) -> None:
    """These draw from Python's generator and NumPy's as well."""
    create = pytest.importorskip("timm.data").create_transform
    how = {"interpolation": "bicubic", **TIMM[name]}
    transform = create(48, is_training=True, **how)
    for seed in range(6):
        exact = name not in ("either filter", "jitter")
        _check(transform, paths[seed], seed, exact=exact, unit=255 * 0.22)


SIZES = [
    v2.RandomShortestSize([40, 50, 60], 90, interpolation=BICUBIC),
    v2.ScaleJitter((60, 70), (0.8, 1.4), interpolation=BICUBIC),
    v2.Compose([v2.CenterCrop(40), v2.RandomPhotometricDistort(), v2.RandomChannelPermutation()]),
]


@pytest.mark.parametrize("step", SIZES, ids=lambda step: type(step).__name__)
def test_the_classes_of_v2_alone(paths: list[Path], step: Any) -> None:
    """Sizes are drawn, too; and where a crop does not fit, nothing is drawn twice."""
    transform = v2.Compose([step, v2.RandomHorizontalFlip(), v2.RandomCrop(40), v1.ToTensor()])
    for seed in range(8):
        _check(transform, paths[seed], seed, exact=True)


def test_what_cannot_be_recorded_runs_as_written(paths: list[Path]) -> None:
    """Noise of torch's generator, and a class whose draws are unknown, are left to the library."""
    begin = [v1.RandomResizedCrop(40, interpolation=BICUBIC), v1.ToTensor()]
    for end in (v1.RandomErasing(1.0, value="random"), v2.GaussianNoise()):
        transform = v1.Compose([*begin, end])
        with PillowImage.open(paths[0]) as image:
            expected = _run(transform, image.convert("RGB"), 3)
        result = _run(fuse(transform), fastdecode.open(paths[0]), 3)

        assert not isinstance(result[0], LazyTensor)
        assert_same(result, expected, within=1e-6)


def test_what_the_core_refuses_draws_nothing(paths: list[Path]) -> None:
    """Then the pipeline runs as written, from the states before: all generators are set back."""
    choice = v1.RandomChoice([v1.RandomInvert(), v1.RandomHorizontalFlip()])
    transform = v1.Compose([choice, v1.Resize((7, 20000)), v1.RandomCrop(7), v1.ToTensor()])
    fused = fuse(transform)

    assert fused.plan.alike.rest or not isinstance(fused(fastdecode.open(paths[0])), LazyTensor)
    with PillowImage.open(paths[0]) as image:
        expected = _run(transform, image.convert("RGB"), 4)
    assert_same(_run(fused, fastdecode.open(paths[0]), 4), expected, within=1.01 / 255)
