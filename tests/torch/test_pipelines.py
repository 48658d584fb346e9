"""Pipelines of torchvision and timm as people write them, compared with what they give as written.

The oracle is the library itself, with the same draws, on the image of Pillow; the states of all
generators are compared, too. `PIPELINES` says how far each result may be from it: most are equal,
and a bilinear resize is within a level. Each pipeline is run for a file's bytes, for an opened
image, in a dataset, and in a `Loader`.
"""

from __future__ import annotations

import io
import pickle
import random
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from cases import Run, examples
from corpus import native_core
from encoded import saved
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import Sources, encoded
from PIL import Image as PillowImage
from random_transforms import WITHOUT_SHRINKING
from same import assert_same
from torch_reference import MEAN, PHOTOS, STD

import fastdecode
from fastdecode.testing import encode
from fastdecode.torch import ImageList, fuse

pytest.importorskip("torchvision")
pytest.importorskip("timm")

import torchvision
from timm.data import create_transform
from timm.data import transforms as timm
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import _presets
from torchvision_steps import ALONE, CUBIC, MODULES, STEPS, TIMM_POLICIES, WITHIN_LEVELS, v1, v2

native_core()

# ---- the pipelines ----


TENSOR, FLOAT = v1.ToTensor(), v2.ToDtype(torch.float32, scale=True)


class Case(NamedTuple):
    """A pipeline, and how many values may differ: by a level of 255, and by more than that.

    A resize in `first` parts is within a level, of which a policy makes more: what comes after them
    is compared with that of the library for the core's own image.
    """

    make: Callable[[], Any]
    differing: float = 0.0
    beyond: float = 0.0
    first: int = 0


BILINEAR, BLURRED = {"differing": 0.3}, {"differing": 1e-3}
MIXED = {"differing": 0.2, "beyond": 0.01}
"""AugMix rounds its sum of chains, in which an equalisation makes more of a level."""


def _reference(policy: str, erase: float, interpolation: Mode, m: Any) -> Any:
    """Return the preset for training of torchvision's references, as it is written there (0.21)."""
    policies = {
        "none": [],
        "ra": [m.RandAugment(interpolation=interpolation, magnitude=9)],
        "ta_wide": [m.TrivialAugmentWide(interpolation=interpolation)],
        "augmix": [m.AugMix(severity=3)],  # it does not take bicubic
        "imagenet": [m.AutoAugment(interpolation=interpolation)],
    }
    parts = [
        m.RandomResizedCrop(56, interpolation=interpolation, antialias=True),
        m.RandomHorizontalFlip(0.5),
        *policies[policy],
        m.PILToTensor(),
        FLOAT if m is v2 else v1.ConvertImageDtype(torch.float32),
        m.Normalize(MEAN, STD),
        *([m.RandomErasing(erase)] if erase else []),
        *([v2.ToPureTensor()] if m is v2 else []),
    ]
    return m.Compose(parts)


def _references() -> dict[str, Case]:
    made, modes = {}, (Mode.BILINEAR, Mode.BICUBIC)
    policies = ("none", "ra", "ta_wide", "augmix", "imagenet")
    for policy, erase, mode, m in product(policies, (0.0, 0.5), modes, (v1, v2)):
        how: Any = {"first": 1} if mode is Mode.BILINEAR else {}
        how = BILINEAR if how and policy == "none" else how
        how |= MIXED if policy == "augmix" else {}
        name = f"references {policy} {erase} {mode.value} {'v2' if m is v2 else 'v1'}"
        made[name] = Case(partial(_reference, policy, erase, mode, m), **how)
    return made


def _weights() -> dict[str, Case]:
    """Return each preset of the weights of torchvision's models for classification."""
    presets = {}
    for name in torchvision.models.list_models(module=torchvision.models):
        for weights in torchvision.models.get_model_weights(name):
            presets[repr(weights.transforms())] = weights.transforms
    return {
        f"weights {number}": Case(make, **(BILINEAR if "BILINEAR" in shown else {}))
        for number, (shown, make) in enumerate(presets.items())
    }


def _timm() -> dict[str, Case]:
    plain = {"color_jitter": None}
    train: dict[str, tuple[dict[str, Any], Any]] = {
        "plain": (plain, {}),
        "bilinear": ({"interpolation": "bilinear", **plain}, BILINEAR),
        "its own ranges": ({"scale": (0.5, 0.6), "ratio": (1.0, 3.0), "hflip": 1.0, **plain}, {}),
        "no flip": ({"hflip": 0.0, **plain}, {}),
        "bytes for its prefetcher": ({"normalize": False, **plain}, {}),
        "either filter": ({"interpolation": "random", **plain}, BILINEAR),
        "upside down": ({"vflip": 0.5, **plain}, {}),
        "jitter": ({"color_jitter_prob": 0.7, "grayscale_prob": 0.4}, {}),
        "blur": ({"gaussian_blur_prob": 0.4, **plain}, BLURRED),
        "erased": ({"re_prob": 0.7, "re_mode": "const", "re_count": 3, **plain}, {}),
        "noise": ({"re_prob": 0.6, "re_mode": "pixel", **plain}, {}),
        **{
            name: ({"auto_augment": name, **plain}, {})
            for name in (*TIMM_POLICIES, "3a", "augmix-m5")
        },
    }
    make = partial(create_transform, is_training=True)
    made = {
        f"timm {name}": Case(partial(make, 48, **{"interpolation": "bicubic", **how}), **far)
        for name, (how, far) in train.items()
    }
    for mode, share, cut in product(
        ("bilinear", "bicubic"), (0.875, 1.0), ("center", "squash", "border")
    ):
        how = {"interpolation": mode, "crop_pct": share, "crop_mode": cut}
        far = BILINEAR if (mode, cut) == ("bilinear", "squash") else {}
        made[f"timm eval {how}"] = Case(partial(create_transform, (48, 56), **how), **far)
    return made


TRAIN = [v1.RandomResizedCrop(64), v1.RandomHorizontalFlip()]
NORMALIZED = [TENSOR, v1.Normalize(MEAN, STD)]
FLOATS = [FLOAT, v2.Normalize(MEAN, STD)]


def _sharper(image: Any) -> Any:
    return image.convert("RGB")


WRITTEN: dict[str, list[Any]] = {
    "train": [*TRAIN, *NORMALIZED],
    "flip before the crop": [*TRAIN[::-1], TENSOR],
    "flip last": [v1.RandomResizedCrop(96), TENSOR, v1.RandomHorizontalFlip()],
    "certain flip": [TRAIN[0], v1.RandomHorizontalFlip(1.0), *NORMALIZED],
    "two flips": [TRAIN[0], v1.RandomHorizontalFlip(1.0), v1.RandomHorizontalFlip(), TENSOR],
    "extreme ratio": [v1.RandomResizedCrop(64, ratio=(4, 5)), TENSOR],
    "nested": [v1.Compose(TRAIN), v1.Compose(NORMALIZED)],
    "of a tensor": [v1.PILToTensor(), *TRAIN, v1.ConvertImageDtype(torch.float32)],
    "eval": [v1.Resize(128), v1.CenterCrop(111), TENSOR, v1.Normalize(MEAN, STD, inplace=True)],
    "padded": [v1.Resize(90), v1.CenterCrop((101, 160)), TENSOR],
    "pairs": [v1.Resize((100, 90)), v1.CenterCrop((95, 81)), TENSOR],
    "crop after ToTensor": [v1.Resize(96), TENSOR, v1.CenterCrop(83)],
    "flip before a central crop": [v1.Resize(97), v1.RandomHorizontalFlip(1.0), v1.CenterCrop(90)],
    "one side in a list": [v1.Resize([96]), v1.CenterCrop([90]), v2.PILToTensor()],
    "max_size": [v1.Resize(64, max_size=80), TENSOR],
    "max_size alone": [v2.Resize(None, max_size=80), v2.ToImage()],
    "one mean": [v1.Resize(64), TENSOR, v1.Normalize([0.5], [0.25])],
    "means as tensors": [v1.Resize(64), TENSOR, v1.Normalize(*map(torch.tensor, (MEAN, STD)))],
    "Pillow's constant": [v1.Resize(64, interpolation=2), TENSOR],
    "antialias of Pillow": [v1.Resize(64, antialias="warn"), TENSOR],
    "a Pillow image": [v1.Resize(72), v1.RandomHorizontalFlip()],
    "nothing happens": [v2.RGB(), torch.nn.Identity(), *TRAIN, TENSOR, v2.Identity()],
    "nearest": [v1.RandomResizedCrop(64, interpolation=Mode.NEAREST), TENSOR],
    "bicubic": [v2.RandomResizedCrop(64, interpolation="bicubic"), TENSOR],
    "bicubic tensors": [v2.ToImage(), v2.RandomResizedCrop(64, interpolation=3)],
    "v2": [v2.RandomResizedCrop(112), v2.RandomHorizontalFlip(), v2.ToImage(), *FLOATS],
    "v2 tensors": [v2.ToImage(), v2.RandomResizedCrop(112, (0.3, 0.9)), *FLOATS],
    "v2 tensors, eval": [v2.ToImage(), v2.Resize(128, antialias=True), v2.CenterCrop(111), *FLOATS],
    "v2 pure": [v2.PILToTensor(), v2.Resize((90, 70), 2), *FLOATS, v2.RandomHorizontalFlip(1.0)],
    "v2 made pure": [v2.ToImage(), v2.RandomResizedCrop((64, 96)), *FLOATS, v2.ToPureTensor()],
    "v2 bytes": [v2.Resize(80, "bilinear"), v2.RandomHorizontalFlip(1.0), v2.ToImage()],
    "v2 ConvertImageDtype": [v2.Resize(80), v2.ToImage(), v2.ConvertImageDtype(), FLOATS[1]],
    "v1 and v2": [v2.ToImage(), v2.RandomResizedCrop(64), v2.ToPureTensor()],
    "levels as floats": [v1.Resize(64), v1.PILToTensor(), v2.ToDtype(torch.float32)],
    "timm's ToTensor": [v1.Resize(64), v1.CenterCrop(56), timm.ToTensor()],
    "timm's crop alone": [timm.RandomResizedCropAndInterpolation((40, 50))],
    "timm's tensors": [v1.Resize(64), timm.MaybePILToTensor(), timm.MaybeToTensor()],
    "weights' preset": [_presets.ImageClassification(crop_size=96, resize_size=111)],
    "weights' preset, bicubic": [
        _presets.ImageClassification(crop_size=96, resize_size=111, mean=(0.5,) * 3, **CUBIC)
    ],
    # Parts of these are called.
    "erased": [*TRAIN, *NORMALIZED, v1.RandomErasing(p=1.0)],
    "noise": [*TRAIN, TENSOR, v1.RandomErasing(p=0.5, value="random")],
    "v1 of an image": [v2.RandomResizedCrop(64), v2.ToImage(), v1.ConvertImageDtype(torch.float32)],
    "crop of normalised": [v1.Resize(50), *NORMALIZED, v1.CenterCrop(81)],
    "CLIP's": [v1.Resize(96, **CUBIC), v1.CenterCrop(96), _sharper, *NORMALIZED],
    "timm's ToNumpy": [*TRAIN, timm.ToNumpy()],
    "normalised twice": [*TRAIN, *NORMALIZED, v1.Normalize((0.1,), (2.0,))],
}
IN_PYTHON = [*WRITTEN][-5:]
AS_PILLOW = ("bicubic", "nearest", "CLIP's")
PIPELINES = {
    **{
        name: Case(
            partial(v1.Compose, parts), 0.0 if any(one in name for one in AS_PILLOW) else 0.3
        )
        for name, parts in WRITTEN.items()
    },
    "a Sequential": Case(lambda: torch.nn.Sequential(v1.Resize([96]), v2.PILToTensor()), 0.3),
    **_references(),
    **_weights(),
    **_timm(),
}


# ---- comparing ----


@cache
def _files() -> list[bytes]:
    """Return the package's photos, and files of other kinds."""
    photo = PillowImage.open(PHOTOS[0]).resize((250, 167))
    files = [path.read_bytes() for path in PHOTOS]
    files += [encode(photo, kind) for kind in ("webp", "bmp", "tiff")]
    return [*files, *(saved("PNG", mode) for mode in ("L", "P", "RGBA"))]


def _image(data: bytes) -> PillowImage.Image:
    return PillowImage.open(io.BytesIO(data)).convert("RGB")


def _opened(data: bytes) -> Any:
    return fastdecode.open(io.BytesIO(data)).convert("RGB")


def _run(transform: Any, image: Any, seed: int) -> tuple[Any, Any]:
    """Return a result, or the error, and the states of all generators after it."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - timm draws from it
    try:
        result = transform(image)
    except (ValueError, RuntimeError, TypeError) as error:
        return error, None
    numpys = np.random.get_state()  # noqa: NPY002
    return result, hash((torch.get_rng_state().numpy().tobytes(), random.getstate(), str(numpys)))


def _is_recorded(image: Any) -> bool:
    """Return whether the core is still to make an image."""
    return isinstance(image, torch.Tensor) and type(image) not in (torch.Tensor, tv_tensors.Image)


def _deviations(transform: Any) -> torch.Tensor:
    """Return by how much a pipeline has divided the levels of each channel."""
    product_ = torch.ones(3, 1, 1)
    for part in getattr(transform, "transforms", [transform]):
        if isinstance(part, v1.Compose | v2.Compose):
            product_ = product_ * _deviations(part)
        elif hasattr(part, "std") and not isinstance(part, v1.RandomErasing):
            product_ = product_ * torch.as_tensor(part.std).view(-1, 1, 1)
    return product_


def _levels(image: Any) -> torch.Tensor:
    if isinstance(image, PillowImage.Image):
        image = v1.PILToTensor()(image)
    return torch.as_tensor(image).as_subclass(torch.Tensor)


def _check(result: Any, expected: Any, transform: Any, case: Case, most: float = 1.0) -> None:
    """Compare types, shapes and pixels, these in levels of 255 before normalising.

    What differs by more than `most` levels is beyond.
    """
    assert result.__class__ is expected.__class__ or _is_recorded(result)
    assert isinstance(result, type(expected))
    first, second = _levels(result), _levels(expected)
    unit: Any = 1.0
    if second.dtype != torch.uint8 and second.max() < 20:
        unit = 255 * _deviations(transform)
        first, second = first * unit, second * unit
    if not case.differing and not case.beyond:
        assert_same(first, second, transform, within=1e-3)
    assert (first.dtype, first.shape) == (second.dtype, second.shape)
    apart = (first.double() - second.double()).abs()
    differing, beyond = ((apart > level + 1e-3).double().mean() for level in (0, most))
    told = f"{differing:.4f} of the values differ, {beyond:.4f} by more than {most:g} levels"
    assert (differing <= case.differing) & (beyond <= case.beyond), f"{told}, {apart.max():.3f}"


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "bytes": lambda transform, data: fuse(transform)(data),
    "opened": lambda transform, data: fuse(transform)(_opened(data)),
    "dataset": lambda transform, data: Sources(data, transform=transform)[0][0],
}


def _after_the_first(transform: Any, count: int) -> Any:
    """Return a pipeline whose first parts are done in the core."""
    parts = transform.transforms
    return v1.Compose([_as_bytes(fuse(v1.Compose(parts[:count]))), *parts[count:]])


def _as_bytes(fused: Any) -> Callable[[Any], Any]:
    return lambda image: fused(encode(image, "png"))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PIPELINES)
def test_results_are_those_of_the_pipeline_as_written(name: str, way: str) -> None:
    """Types, shapes, draws and pixels."""
    case = PIPELINES[name]
    transform, files = case.make(), _files()
    begin = random.Random(name + way).randrange(99)
    for seed in range(begin, begin + 3):
        data = files[seed % len(files)]
        result, after = _run(lambda data: WAYS[way](transform, data), data, seed)
        is_core = way != "opened" or _is_recorded(result)
        written = _after_the_first(transform, case.first) if case.first and is_core else transform
        expected, states = _run(written, _image(data), seed)
        assert after == states, result
        _check(result, expected, transform, case)


def test_a_loader_does_all_of_these_in_the_core() -> None:
    """`print` of a dataset names what is called instead."""
    called = {
        name
        for name, case in PIPELINES.items()
        if "in Python, in" in repr(ImageList([], transform=case.make()))
    }
    resized_by_timm = {
        name for name in PIPELINES if name[:9] == "timm eval" and "squash" not in name
    }
    assert called == {*IN_PYTHON, "timm 3a", *resized_by_timm}


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_pytorchs_loader_gives_torchvisions_batches(workers: int) -> None:
    """In PyTorch's DataLoader and its worker processes, the batches are the same."""
    crop = v2.RandomResizedCrop(24, interpolation=Mode.BICUBIC)
    transform = v2.Compose([crop, v2.TrivialAugmentWide(), *NORMALIZED])
    batches = []
    for fuses in (True, False):
        torch.manual_seed(5)
        dataset = Sources(*encoded()[:12], transform=transform, fuse=fuses)
        loader = torch.utils.data.DataLoader(dataset, 4, shuffle=True, num_workers=workers)
        batches.append([torch.cat(parts) for parts in zip(*loader, strict=True)])
    assert_same(*batches, within=1e-6)


# ---- steps in any order ----


EXACT = Case(list)


def _check_as_written(transform: Any, data: bytes, seed: int, case: Case = EXACT) -> bool:
    """Compare a pickled copy of `fuse`: for an opened image, then for bytes.

    Return whether the core is still to make the first of the two results.
    """
    fused = pickle.loads(pickle.dumps(fuse(transform)))
    expected, states = _run(transform, _image(data), seed)
    result, after = _run(fused, _opened(data), seed)
    if states is None:
        assert type(result) is type(expected)
        return True  # as the library, which raises an error
    recorded = _is_recorded(result)
    assert after == states
    _check(result, expected, transform, case)
    again, after = _run(fused, data, seed)
    assert_same(again, result)
    assert after == states
    return recorded


@given(
    st.sampled_from([*MODULES]),
    st.lists(st.sampled_from([*STEPS]), max_size=2),
    st.sampled_from([*STEPS, *WITHIN_LEVELS]),
    st.sampled_from(["images", "bytes", "floats", "erased"]),
    st.sampled_from([0, (0.2, 1.0, 3.0)]),
    st.integers(0, len(encoded()) - 1),
    st.integers(0, 2**32 - 1),
)
@settings(WITHOUT_SHRINKING, max_examples=examples(200))
def test_steps_in_any_order_draw_as_written(
    version: str, before: list[str], last: str, form: str, value: Any, photo: int, seed: int
) -> None:
    """Pixels, and the states of all generators, are those of the pipeline as written.

    What is within a level comes last: other steps make any number of levels of one.
    """
    names = [*before, last]
    module = MODULES[version]
    crop = module.RandomResizedCrop((48, 40), **CUBIC)
    steps = [{**STEPS, **WITHIN_LEVELS}[name](module) for name in names]
    first, end = [module.RandomHorizontalFlip(), crop], [TENSOR]
    if form == "bytes":
        first, end = [module.RandomCrop((48, 40), pad_if_needed=True), v2.PILToTensor()], []
    if form == "floats":
        steps, end = [STEPS["jitter"](module), module.RandomVerticalFlip()], []
        first.append(TENSOR)
    if form == "erased":
        end += [module.RandomErasing(0.7, (0.1, 0.9), value=value)]
        end += [v1.Normalize([0.4] * 3, [0.3] * 3), module.RandomErasing(0.7, (0.05, 0.3))]
    transform = module.Compose([*first, *steps, *end])
    data, case = encoded()[photo], EXACT
    if form == "bytes":  # where a move lands between two pixels, tensors may take the other one
        case = Case(list, 0.5, 0.2)
    elif last in WITHIN_LEVELS and form != "floats":
        case = Case(list, 0.5, 0.01)
    _check_as_written(transform, data, seed, case)


@pytest.mark.parametrize("version", MODULES)
def test_each_step_draws_as_written(version: str) -> None:
    """Every run tries them all, also alone."""
    module, first = MODULES[version], Run.seed % 2**16
    for name in STEPS.keys() - {"larger rotation"}:
        steps = [module.Resize((48, 40), **CUBIC), STEPS[name](module), TENSOR]
        for seed in range(first, first + 4):
            assert _check_as_written(v1.Compose(steps), encoded()[seed % len(encoded())], seed)


@pytest.mark.parametrize("name", ALONE)
def test_classes_of_one_version_alone(name: str) -> None:
    """Sizes are drawn, too; and where a crop does not fit, nothing is drawn twice."""
    end = [v2.RandomHorizontalFlip(), v2.RandomCrop(40), TENSOR]
    pipelines = [v2.Compose([ALONE[name](), *end]) for _ in range(8)]
    assert any([*map(_check_as_written, pipelines, encoded(), range(8))])


@pytest.mark.parametrize(
    "steps",
    [
        [v1.RandomResizedCrop(40, **CUBIC), TENSOR, v1.RandomErasing(1.0, value="random")],
        [v1.RandomResizedCrop(40, **CUBIC), TENSOR, v2.GaussianNoise()],
        [v1.RandomChoice([v1.RandomInvert()]), v1.Resize((7, 20000)), v1.RandomCrop(7), TENSOR],
    ],
    ids=["torch's noise", "unknown draws", "what the core refuses"],
)
def test_what_cannot_be_recorded_runs_as_written(steps: list[Any]) -> None:
    """The library draws from the states before: all generators are set back."""
    transform = v1.Compose(steps)
    expected = _run(transform, _image(encoded()[0]), 3)
    result = _run(fuse(transform), _opened(encoded()[0]), 3)

    assert result[1] == expected[1]
    assert_same(result[0], expected[0], within=1.01 / 255)
