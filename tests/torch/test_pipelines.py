"""Pipelines of torchvision and timm as people write them, compared with what they give as written.

`PIPELINES` says how far each result may be from that of the library for the image of Pillow. Each
pipeline is run for a file's bytes, for an opened image, in a dataset, and in a `Loader`. The states
of all generators are compared, too.
"""

from __future__ import annotations

import io
import pickle
import random
from collections.abc import Callable
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from cases import examples
from corpus import native_core
from encoded import saved
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import SeededLoader, Sources, encoded
from PIL import Image as PillowImage
from random_transforms import WITHOUT_SHRINKING
from same import assert_same
from torch_reference import MEAN, PHOTOS, STD

import fastdecode
from fastdecode.testing import encode
from fastdecode.torch import ImageFolder, ImageList, fuse

pytest.importorskip("torchvision")
pytest.importorskip("timm")

import torchvision
from timm.data import create_transform
from timm.data import transforms as timm
from torchvision import transforms as v1
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import _presets, v2

native_core()

# ---- the pipelines ----


TENSOR, FLOAT = v1.ToTensor(), v2.ToDtype(torch.float32, scale=True)


class Case(NamedTuple):
    """A pipeline, and by how many levels of 255 all values but a share may differ."""

    make: Callable[[], Any]
    level: float = 1.001
    share: float = 1e-4


EXACT = {"level": 1e-3, "share": 0.0}
ROUGHLY = {"level": 3.0, "share": 0.3}
"""Policies make more of one level."""


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
        how: Any = EXACT if mode is Mode.BICUBIC else {} if policy == "none" else ROUGHLY
        how = {"level": 2.01, "share": 0.05} if (policy, mode) == ("augmix", Mode.BICUBIC) else how
        name = f"references {policy} {erase} {mode.value} {'v2' if m is v2 else 'v1'}"
        made[name] = Case(partial(_reference, policy, erase, mode, m), **how)
    return made


def _weights() -> dict[str, Case]:
    """Return each preset of the weights of torchvision's models for classification."""
    presets = {}
    for name in torchvision.models.list_models(module=torchvision.models):
        for weights in torchvision.models.get_model_weights(name):
            presets[repr(weights.transforms())] = weights.transforms
    return {f"weights {number}": Case(make) for number, make in enumerate(presets.values())}


def _timm() -> dict[str, Case]:
    policies = [
        *("rand-m9-mstd0.5-inc1", "rand-m7-n3-mstd101-inc1", "rand-m6-n2-p0.7-mstd1-t3a"),
        *("rand-m9-n3-mstd0.5-tweights-inc1", "original-mstd0.5", "v0-mstd0.5", "3a", "augmix-m5"),
    ]
    plain = {"color_jitter": None}
    train: dict[str, tuple[dict[str, Any], Any]] = {
        "plain": (plain, {}),
        "its own ranges": ({"scale": (0.5, 0.6), "ratio": (1.0, 3.0), "hflip": 1.0, **plain}, {}),
        "no flip": ({"hflip": 0.0, **plain}, {}),
        "bytes for its prefetcher": ({"normalize": False, **plain}, {}),
        "either filter": ({"interpolation": "random", **plain}, {}),
        "upside down": ({"vflip": 0.5, **plain}, {}),
        "jitter": ({"color_jitter_prob": 0.7, "grayscale_prob": 0.4}, EXACT),
        "blur": ({"gaussian_blur_prob": 0.4, **plain}, EXACT | {"level": 1.01}),
        "erased": ({"re_prob": 0.7, "re_mode": "const", "re_count": 3, **plain}, EXACT),
        "noise": ({"re_prob": 0.6, "re_mode": "pixel", **plain}, EXACT),
        **{name: ({"auto_augment": name, **plain}, EXACT) for name in policies},
    }
    make = partial(create_transform, is_training=True)
    made = {
        f"timm {name}": Case(partial(make, 48, **{"interpolation": "bicubic", **how}), **far)
        for name, (how, far) in train.items()
    }
    made["timm bilinear"] = Case(partial(make, 48, interpolation="bilinear", **plain))
    made["timm augmix-m5"] = made["timm augmix-m5"]._replace(level=2.01, share=0.05)
    for mode, share, cut in product(
        ("bilinear", "bicubic"), (0.875, 1.0), ("center", "squash", "border")
    ):
        how = {"interpolation": mode, "crop_pct": share, "crop_mode": cut}
        made[f"timm eval {how}"] = Case(partial(create_transform, (48, 56), **how))
    return made


TRAIN = [v1.RandomResizedCrop(64), v1.RandomHorizontalFlip()]
NORMALIZED = [TENSOR, v1.Normalize(MEAN, STD)]
FLOATS = [FLOAT, v2.Normalize(MEAN, STD)]
CUBIC: Any = {"interpolation": Mode.BICUBIC}


def _sharper(image: Any) -> Any:
    return image.convert("RGB")


WRITTEN: dict[str, list[Any]] = {
    "train": [*TRAIN, *NORMALIZED],
    "flip before the crop": [*TRAIN[::-1], TENSOR],
    "flip last": [v1.RandomResizedCrop(96), TENSOR, v1.RandomHorizontalFlip()],
    "certain flip": [TRAIN[0], v1.RandomHorizontalFlip(1.0), *NORMALIZED],
    "two flips": [TRAIN[0], v1.RandomHorizontalFlip(1.0), v1.RandomHorizontalFlip(), TENSOR],
    "normalised twice": [*TRAIN, *NORMALIZED, v1.Normalize((0.1,), (2.0,))],
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
}
IN_PYTHON = [*WRITTEN][-4:]
PIPELINES = {
    **{name: Case(partial(v1.Compose, parts)) for name, parts in WRITTEN.items()},
    "a Sequential": Case(lambda: torch.nn.Sequential(v1.Resize([96]), v2.PILToTensor())),
    **_references(),
    **_weights(),
    **_timm(),
}
STEADY = [name for name in PIPELINES if "eval" in name or name.startswith("weights")]
"""These draw nothing."""


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
    except (ValueError, RuntimeError) as error:
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


def _check(result: Any, expected: Any, transform: Any, case: Case) -> None:
    """Compare types, shapes and pixels, these in levels of 255 before normalising."""
    assert result.__class__ is expected.__class__ or _is_recorded(result)
    assert isinstance(result, type(expected))
    first, second = (
        v1.PILToTensor()(one) if isinstance(one, PillowImage.Image) else torch.as_tensor(one)
        for one in (result, expected)
    )
    assert first.dtype == second.dtype
    assert first.shape == second.shape
    apart = (first.double() - second.double()).abs()
    if first.dtype != torch.uint8 and second.max() < 20:
        apart = 255 * apart * _deviations(transform)
    assert (apart > case.level).double().mean() <= case.share, apart.max()


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "bytes": lambda transform, data: fuse(transform)(data),
    "opened": lambda transform, data: fuse(transform)(_opened(data)),
    "dataset": lambda transform, data: Sources(data, transform=transform)[0][0],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PIPELINES)
def test_results_are_those_of_the_pipeline_as_written(name: str, way: str) -> None:
    """Types, shapes, draws and, within the tolerance, pixels."""
    case = PIPELINES[name]
    transform, files = case.make(), _files()
    begin = random.Random(name + way).randrange(99)
    for seed in range(begin, begin + 3):
        data = files[seed % len(files)]
        expected, states = _run(transform, _image(data), seed)
        result, after = _run(lambda data: WAYS[way](transform, data), data, seed)
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


@pytest.mark.parametrize("name", STEADY)
def test_a_folder_in_a_loader_gives_the_same(name: str, tmp_path: Path) -> None:
    """What draws nothing gives, in the Loader's threads, what it gives as written."""
    case = PIPELINES[name]
    transform = case.make()
    for at, data in enumerate(_files()):
        (tmp_path / str(at % 2)).mkdir(exist_ok=True)
        (tmp_path / str(at % 2) / f"{at}.png").write_bytes(data)
    dataset = ImageFolder(tmp_path, transform)
    with SeededLoader(dataset, 3, threads=2) as loader:
        made = [image.clone() for images, _ in loader for image in images]
    for result, (path, _) in zip(made, dataset.samples, strict=True):
        expected = torch.as_tensor(transform(_image(Path(path).read_bytes())))
        _check(result, expected.as_subclass(torch.Tensor), transform, case)


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


@pytest.mark.parametrize("size", [(400, 9), (9, 400)])
def test_a_strip_gets_the_central_box_of_timms_crop(size: tuple[int, int]) -> None:
    """Where no box fits, the central one is taken, of at least one pixel."""
    strip = encode(PillowImage.open(PHOTOS[0]).resize(size))
    crop = timm.RandomResizedCropAndInterpolation(64, interpolation="bilinear")
    assert fuse(v1.Compose([crop, TENSOR]))(strip).shape == (3, 64, 64)


# ---- floats ----

JITTERS: dict[str, Any] = {
    "brightness": {"brightness": (1.4, 1.4)},
    "contrast": {"contrast": (1.7, 1.7)},
    "less contrast": {"contrast": (0.3, 0.3)},
    "saturation": {"saturation": (1.8, 1.8)},
    "hue": {"hue": (-0.2, -0.2)},
    "brightness and hue": {"brightness": (0.7, 0.7), "hue": (0.0, 0.0)},
}
SMOOTH = {"interpolation": Mode.BILINEAR}
NORMALIZE = v1.Normalize(MEAN, STD)
OF_FLOATS: dict[str, tuple[list[Any], bool]] = {
    **{name: ([v1.ColorJitter(**how)], True) for name, how in JITTERS.items()},
    **{
        f"normalised {name}": ([NORMALIZE, v2.ColorJitter(**how)], name != "hue")
        for name, how in JITTERS.items()
    },
    "grey": ([v2.Grayscale(3)], True),
    "inverted": ([v1.RandomInvert(1.0)], True),
    "turned": ([v1.RandomRotation((7.0, 7.0))], True),
    "turned with a level": ([v2.RandomRotation((7.0, 7.0), **SMOOTH)], True),
    "moved": ([v1.RandomAffine((9.0, 9.0), fill=0.25)], True),
    "normalised and moved": ([NORMALIZE, v1.RandomAffine((9.0, 9.0))], True),
    "filled with colours": ([NORMALIZE, v2.RandomAffine((9.0, 9.0), fill=[0.5, -0.25, 1])], True),
    "padded": ([v1.Pad((3, 4, 5, 6), fill=0.5)], True),
    "larger": ([v1.RandomRotation((9.0, 9.0)), v1.CenterCrop(90)], True),
    "softened": ([NORMALIZE, v1.GaussianBlur(5, (1.0, 1.0))], True),
    # At the border torchvision blends pixels with zeros, which are grey there, and with `fill`.
    "normalised and turned": ([NORMALIZE, v1.RandomRotation((7.0, 7.0), **SMOOTH)], False),
    "blended with colours": (
        [NORMALIZE, v2.RandomAffine((9.0, 9.0), **SMOOTH, fill=[0.5, -0.25, 1.0])],
        False,
    ),
    "normalised and tilted": ([NORMALIZE, v2.RandomPerspective(0.3, 1.0)], False),
}


@pytest.mark.parametrize("name", OF_FLOATS)
def test_floats_are_changed_in_the_core(name: str) -> None:
    """What moves or blends pixels does so in bytes, and a border becomes the nearest level.

    Normalised values are left to torchvision where it clamps them, or blends them with a border.
    """
    steps, is_core = OF_FLOATS[name]
    transform = v1.Compose([v1.Resize((60, 90)), TENSOR, *steps])
    dataset = Sources(*_files()[: len(PHOTOS)], transform=transform)
    assert ("in Python, in" not in repr(dataset)) == is_core
    if name == "normalised and tilted":  # its corners are drawn
        return
    with SeededLoader(dataset, 1, threads=1) as loader:
        made = torch.cat([images.clone() for images, _ in loader])
    case = Case(list, 3.2, 0.02)  # both resizes are within a level, which colours amplify
    for result, data in zip(made, _files(), strict=False):
        _check(result, transform(_image(data)), transform, case)


# ---- steps in any order ----

Step = Callable[[Any], Any]
STEPS: dict[str, Step] = {
    "jitter": lambda m: m.ColorJitter(0.4, (0.5, 1.6), 0.4, 0.1),
    "only some jitter": lambda m: m.ColorJitter(0, 0.3, 0, 0.4),
    "rotation": lambda m: m.RandomRotation((-40, 70)),
    "larger rotation": lambda m: m.RandomRotation(30, Mode.BILINEAR, expand=True),
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
    "resize": lambda m: m.Resize((40, 37), Mode.BICUBIC),
    "apply": lambda m: m.RandomApply([m.ColorJitter(0.4), m.Compose([m.RandomRotation(9)])], 0.6),
    "choice": lambda m: m.RandomChoice([m.ColorJitter(0.4), m.RandomVerticalFlip()]),
    "weighted choice": lambda m: m.RandomChoice([m.RandomInvert(), m.RandomAffine(9)], [0.2, 0.8]),
    "order": lambda m: m.RandomOrder([m.ColorJitter(0.4), m.RandomSolarize(99), m.RandomInvert()]),
    "trivial": lambda m: m.TrivialAugmentWide(),
    "few magnitudes": lambda m: m.TrivialAugmentWide(5, Mode.BILINEAR, [9, 128, 200]),
    "rand": lambda m: m.RandAugment(),
    "rand, 3": lambda m: m.RandAugment(3, 13, interpolation=Mode.BILINEAR, fill=128),
    "auto": lambda m: m.AutoAugment(),
    "svhn": lambda m: m.AutoAugment(m.AutoAugmentPolicy.SVHN),
    "cifar10": lambda m: m.AutoAugment(m.AutoAugmentPolicy.CIFAR10, Mode.BILINEAR, 7),
}
"""The core has Pillow's own pixels."""
WITHIN_LEVELS: dict[str, Step] = {
    "blur": lambda m: m.GaussianBlur((3, 5), (0.1, 2.0)),
    "mix": lambda m: m.AugMix(),
    "short mix": lambda m: m.AugMix(1, 2, 2, 0.7, all_ops=False),
}
MODULES = {"v1": v1, "v2": v2}


def _check_recorded(transform: Any, data: bytes, seed: int, case: Case) -> None:
    """Compare a pickled copy of what `fuse` returns: of an opened image, then of bytes."""
    fused = pickle.loads(pickle.dumps(fuse(transform)))
    expected, states = _run(transform, _image(data), seed)
    result, after = _run(fused, _opened(data), seed)
    if states is None:
        assert type(result) is type(expected)
        return
    assert _is_recorded(result)
    assert after == states
    _check(result, expected, transform, case)
    again, after = _run(fused, data, seed)
    assert_same(again, result)
    assert after == states


@given(
    st.sampled_from([*MODULES]),
    st.lists(st.sampled_from([*STEPS, *WITHIN_LEVELS]), min_size=1, max_size=3),
    st.sampled_from(["images", "bytes", "floats", "erased"]),
    st.sampled_from([0, (0.2, 1.0, 3.0)]),
    st.integers(0, len(encoded()) - 1),
    st.integers(0, 2**32 - 1),
)
@settings(WITHOUT_SHRINKING, max_examples=examples(200))
def test_steps_in_any_order_draw_as_written(
    version: str, names: list[str], form: str, value: Any, photo: int, seed: int
) -> None:
    """Pixels, and the states of all generators, are those of the pipeline as written."""
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
    exact = form in ("images", "erased") and WITHIN_LEVELS.keys().isdisjoint(names)
    transform = module.Compose([*first, *steps, *end])
    data = encoded()[photo]
    if not _is_recorded(_run(fuse(transform), _opened(data), seed)[0]):
        is_long = sum("mix" in name for name in names) > 1  # for a program of the core
        assert form == "bytes" or "larger rotation" in names or is_long
        return
    case = Case(list, **EXACT) if exact else Case(list, 2.01, 0.05)
    _check_recorded(transform, data, seed, case)


@pytest.mark.parametrize("version", MODULES)
def test_each_step_draws_as_written(version: str) -> None:
    """Every run tries them all, also alone."""
    module = MODULES[version]
    for seed, name in enumerate(sorted(STEPS.keys() - {"larger rotation"})):
        steps = [module.Resize((48, 40), **CUBIC), STEPS[name](module), TENSOR]
        _check_recorded(v1.Compose(steps), encoded()[0], seed, Case(list, **EXACT))


SIZES = [
    v2.RandomShortestSize([40, 50, 60], 90, **CUBIC),
    v2.ScaleJitter((60, 70), (0.8, 1.4), **CUBIC),
    v2.Compose([v2.CenterCrop(40), v2.RandomPhotometricDistort(), v2.RandomChannelPermutation()]),
]


@pytest.mark.parametrize("step", SIZES, ids=lambda step: type(step).__name__)
def test_the_classes_of_v2_alone(step: Any) -> None:
    """Sizes are drawn, too; and where a crop does not fit, nothing is drawn twice."""
    transform = v2.Compose([step, v2.RandomHorizontalFlip(), v2.RandomCrop(40), TENSOR])
    for seed, data in enumerate(encoded()[:8]):
        _check_recorded(transform, data, seed, Case(list, **EXACT))


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

    assert not _is_recorded(result[0])
    assert result[1] == expected[1]
    assert_same(result[0], expected[0], within=1.01 / 255)
