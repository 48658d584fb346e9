"""Hundreds of pipelines of torchvision and timm over files of every kind: fused, and as written.

Outside of a Loader, what is fused is within 1 level of the library that the pipeline was written
for, and the other parts get just that: the same draws and the same bits. What is not fused is
bit-identical altogether. In a Loader, the core's result is that of its parts, done one by one.

FASTDECODE_FILES is the number of files for each pipeline; FASTDECODE_CORPUS has larger ones.
"""

from __future__ import annotations

import importlib.util
import io
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpus import native_core, samples
from loading import SeededLoader, Sources
from PIL import Image as PillowImage
from same import assert_same
from torch_reference import PHOTOS

pytest.importorskip("torchvision")

import torchvision
from torchvision.transforms import AutoAugmentPolicy, autoaugment, v2
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import transforms as v1

from fastdecode import FastDecodeError, decode
from fastdecode.native._augment import Program, augment, draw_operations
from fastdecode.testing import encode
from fastdecode.torch import Fused, ImageList, fuse
from fastdecode.torch._loader.order import sample_seed
from fastdecode.torch._recognise import _letters, flatten
from fastdecode.torch.transforms._random_crop import SampleGenerator

native_core()

FILES = int(os.environ.get("FASTDECODE_FILES", "2"))
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SMALL = encode(PillowImage.open(PHOTOS[0]).resize((64, 48)))
Make = Callable[[], Any]

# ---- the files ----


@cache
def _files() -> list[Path]:
    """Return files of all kinds and of any size, the kinds in turn, and the package's photos."""
    kinds: dict[str, list[Path]] = {"photo": list(PHOTOS)}
    for sample in samples("jpeg_kinds", "formats", "photos"):
        good = sample.decodes_in_pillow and sample.format in ("jpeg", "png", "webp", "bmp", "tiff")
        if good and _is_ordinary(sample.path) and _is_as_pillow(sample.path):
            kinds.setdefault(f"{sample.format} {_mode(sample.path)}", []).append(sample.path)
    found = []
    numbers = random.Random(3)
    for several in kinds.values():
        numbers.shuffle(several)
    while any(kinds.values()):
        found += [several.pop() for several in kinds.values() if several]
    return found


def _mode(path: Path) -> str:
    with PillowImage.open(path) as image:
        return image.mode


def _is_ordinary(path: Path) -> bool:
    """Return whether a file has 8 bits, one frame, at most 2 megapixels, and is no strip."""
    with PillowImage.open(path) as image:
        still = getattr(image, "n_frames", 1) == 1
        short, long = sorted(image.size)
        known = image.mode in ("RGB", "L", "P", "1", "RGBA", "LA")
        return still and known and short * long <= 2_000_000 and long <= 30 * short


def _is_as_pillow(path: Path) -> bool:
    """Return whether a file is read as Pillow reads it: `test_corpus` says which, and why not."""
    with PillowImage.open(path) as image, suppress(FastDecodeError):
        return np.array_equal(decode(path.read_bytes()), np.asarray(image.convert("RGB")))
    return False


# ---- the pipelines ----


def _crops(m: Any) -> dict[str, list[Any]]:
    cubic = Mode.BICUBIC
    return {
        "random": [m.RandomResizedCrop(48, antialias=True)],
        "random cubic": [m.RandomResizedCrop(40, interpolation=cubic, antialias=True)],
        "random oblong": [m.RandomResizedCrop((33, 57), (0.3, 1.0), antialias=True)],
        "central": [m.Resize(57, antialias=True), m.CenterCrop(48)],
        "central cubic": [m.Resize(57, cubic, antialias=True), m.CenterCrop((48, 40))],
        "exact": [m.Resize((50, 44), antialias=True)],
        "longest": [m.Resize(48, max_size=75, antialias=True)],
    }


def _augmentations(m: Any, auto: Any) -> dict[str, list[Any]]:
    return {
        "nothing": [],
        "flip": [m.RandomHorizontalFlip()],
        "trivial": [m.RandomHorizontalFlip(), auto.TrivialAugmentWide()],
        "rand": [auto.RandAugment(interpolation=Mode.BILINEAR, fill=128), m.RandomHorizontalFlip()],
        **{policy.value: [auto.AutoAugment(policy)] for policy in AutoAugmentPolicy},
        "augmix": [auto.AugMix()],
        "jitter": [m.ColorJitter(0.4, 0.4, 0.4, 0.1), m.RandomGrayscale(0.2)],
        "simclr": [
            m.RandomHorizontalFlip(),
            m.RandomApply([m.ColorJitter(0.8, 0.8, 0.8, 0.2)], p=0.8),
            m.RandomGrayscale(p=0.2),
            m.RandomApply([m.GaussianBlur(9, (0.1, 2.0))], p=0.5),
            m.RandomSolarize(128, p=0.2),
        ],
        "moves": [m.RandomRotation(30), m.RandomAffine(10, (0.1, 0.1), (0.8, 1.2), 5)],
        "values": [m.RandomPosterize(4), m.RandomEqualize(), m.RandomAutocontrast()],
        "unknown": [m.RandomPerspective(), m.RandomHorizontalFlip()],
    }  # fmt: skip


def _finish(m: Any, by: str, *, of_tensors: bool) -> list[Any]:
    floats = (
        [m.ToDtype(torch.float32, scale=True)] if m is v2 else [m.ConvertImageDtype(torch.float32)]
    )
    bytes_ = [] if of_tensors else [m.PILToTensor()]
    normalised = [*bytes_, *floats, m.Normalize(MEAN, STD)]
    return {
        "bytes": bytes_,
        "normalised": normalised,
        "erased": [*normalised, m.RandomErasing(0.7, value="random")],
        "levels": [*bytes_, *floats, m.RandomErasing(0.7, value=[0.1, 0.2, 0.3])],
        "as it is": [],
    }[by]


WAYS = {
    "v1": (v1, autoaugment),
    "v2": (v2, v2),
    "v1 tensors": (v1, autoaugment),
    "v2 tensors": (v2, v2),
}
FINISHES = ("bytes", "normalised", "erased", "levels", "as it is")


def _built(way: str, crop: str, augmentation: str, finish: str) -> Any:
    m, auto = WAYS[way]
    of_tensors = way.endswith("tensors")
    begin = [] if not of_tensors else [v2.ToImage() if m is v2 else v1.PILToTensor()]
    middle = [*_crops(m)[crop], *_augmentations(m, auto)[augmentation]]
    return m.Compose([*begin, *middle, *_finish(m, finish, of_tensors=of_tensors)])


def _products() -> dict[str, Make]:
    """Return some of all combinations, the same ones each time."""
    parts = list(product(WAYS, _crops(v1), _augmentations(v1, autoaugment), FINISHES))
    chosen = random.Random(1).sample(parts, 340)
    return {" | ".join(names): partial(_built, *names) for names in chosen}


class ClassificationPresetTrain:
    """The presets of torchvision's references, as they are written there (0.21)."""

    __module__ = "presets"

    def __init__(self, policy: str, erase: float, interpolation: Mode, m: Any, auto: Any) -> None:
        policies = {
            "none": [],
            "ra": [auto.RandAugment(interpolation=interpolation, magnitude=9)],
            "ta_wide": [auto.TrivialAugmentWide(interpolation=interpolation)],
            "augmix": [auto.AugMix(severity=3)],  # it does not take bicubic
            "imagenet": [auto.AutoAugment(interpolation=interpolation)],
        }
        parts = [
            m.RandomResizedCrop(56, interpolation=interpolation, antialias=True),
            m.RandomHorizontalFlip(0.5),
            *policies[policy],
            *_finish(m, "normalised", of_tensors=False),
            *([m.RandomErasing(erase)] if erase else []),
            *([v2.ToPureTensor()] if m is v2 else []),
        ]
        self.transforms = m.Compose(parts)

    def __call__(self, img: Any) -> Any:
        """Apply them."""
        return self.transforms(img)


def _references() -> dict[str, Make]:
    policies, erasing = ("none", "ra", "ta_wide", "augmix", "imagenet"), (0.0, 0.5)
    return {
        f"references {policy} {erase} {mode.value} {version}": partial(
            ClassificationPresetTrain, policy, erase, mode, *WAYS[version]
        )
        for policy, erase, mode, version in product(
            policies, erasing, (Mode.BILINEAR, Mode.BICUBIC), ("v1", "v2")
        )
    }


def _weights() -> dict[str, Make]:
    """Return each preset of the weights of torchvision's models for classification."""
    presets = {}
    for name in torchvision.models.list_models(module=torchvision.models):
        for weights in torchvision.models.get_model_weights(name):
            presets[repr(weights.transforms())] = weights.transforms
    return {f"weights {number}": make for number, make in enumerate(presets.values())}


def _timm() -> dict[str, Make]:
    factory: Any = importlib.import_module("timm.data.transforms_factory")
    train = {
        "plain": {"color_jitter": None},
        "jitter": {},
        "more": {"vflip": 0.5, "grayscale_prob": 0.3, "gaussian_blur_prob": 0.5},
        **{
            policy: {"auto_augment": policy}
            for policy in ("rand-m9-mstd0.5-inc1", "rand-m7-n3-p0.6", "augmix-m5", "original", "3a")
        },
    }
    erasing = {
        "": {},
        "pixel": {"re_prob": 0.6, "re_mode": "pixel"},
        "const": {"re_prob": 0.6, "re_count": 2},
    }
    made = {
        f"timm {name} {mode} {erase}": partial(
            factory.create_transform,
            48,
            is_training=True,
            interpolation=mode,
            **how,
            **erasing[erase],
        )
        for (name, how), mode, erase in product(train.items(), ("bilinear", "bicubic"), erasing)
    }
    for mode, share, cut in product(
        ("bilinear", "bicubic"), (0.875, 1.0), ("center", "squash", "border")
    ):
        how = {"interpolation": mode, "crop_pct": share, "crop_mode": cut}
        made[f"timm eval {how}"] = partial(factory.create_transform, (48, 56), **how)
    return made


HAS_TIMM = importlib.util.find_spec("timm") is not None
PIPELINES = {**_products(), **_references(), **_weights(), **(_timm() if HAS_TIMM else {})}
IN_LOADER = [
    name
    for name in PIPELINES
    for fused in [fuse(PIPELINES[name]())]
    # Else there are no batches, or nothing beside what is done while decoding.
    if isinstance(fused, Fused) and fused.shape and fused.plan.head.augments_pixels
]


def _chosen(name: str) -> Iterator[tuple[int, Path]]:
    """Yield a seed and a file for each run of a pipeline: other files for other pipelines."""
    files, begin = _files(), list(PIPELINES).index(name)
    for number in range(begin, begin + FILES):
        yield number, files[number % len(files)]


# ---- comparing ----


def _seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 - timm draws from it


def _states() -> list[Any]:
    return [torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[2]]  # noqa: NPY002


def _bytes(result: Any) -> torch.Tensor:
    return v1.PILToTensor()(result) if isinstance(result, PillowImage.Image) else result


def _same(result: Any, expected: Any) -> None:
    assert type(result) is type(expected)
    assert_same(result, expected)


def _apply(parts: Sequence[Any], image: Any) -> Any:
    for part in parts:
        image = part(image)
    return image


def _levels(result: Any, expected: Any, parts: Sequence[Any], of: Any = torch.amax) -> float:
    """Return the largest difference in levels of 255 before normalising, or the mean `of` all."""
    assert result.__class__ is expected.__class__  # images not decoded yet have a type of their own
    first, second = _bytes(result), _bytes(expected)
    assert first.dtype == second.dtype
    assert first.shape == second.shape
    apart = (first.double() - second.double()).abs()
    apart *= 1 if first.dtype == torch.uint8 else 255
    for part in parts:
        if hasattr(part, "std") and not isinstance(part, v1.RandomErasing):
            apart = apart * torch.as_tensor(part.std).view(-1, 1, 1)
    return float(of(apart))


def _count_before_augmentations(parts: Sequence[Any]) -> int:
    """Return how many parts only crop, resize and flip the image, and convert its values."""
    for count in range(len(parts), 0, -1):
        fused = fuse(v1.Compose(parts[:count]))
        plan = fused.plan.alike if isinstance(fused, Fused) else None
        if plan and not plan.rest and not plan.head.augments_pixels:
            return count
    return 0


@pytest.mark.parametrize("name", PIPELINES)
def test_samples_are_those_of_the_pipeline_as_written(name: str) -> None:
    """What is fused is within 1 level; what is not gets that, the same draws, and no other bits."""
    transform = PIPELINES[name]()
    parts = list(flatten(transform))
    fused = fuse(transform)
    for number, path in _chosen(name):
        with PillowImage.open(path) as opened:
            image = opened.convert("RGB")
        dataset = ImageList([path], transform=transform)
        _seed(number)
        result = dataset[0]
        after = _states()
        _seed(number)
        if fused is transform:
            _same(result, transform(image))
        else:
            assert isinstance(fused, Fused)
            count = _count_before_augmentations(parts)
            expected = _apply(parts[:count], image)
            begun = _states()
            _seed(number)
            head = fuse(v1.Compose(parts[:count]))(path.read_bytes()) if count else image
            assert _states() == begun
            assert _levels(head, expected, parts[:count]) <= 1.001, path
            # Of tensors, each step is within a level, of which a policy may make many at a few
            # pixels. Other draws would be ten in the mean.
            written = _apply(parts[count:], head)
            assert _levels(result, written, parts, torch.mean) <= 1.0, path
        assert _states() == after


POLICIES = {
    f"{name} {version}": (name, version)
    for name, version in product(
        ("trivial", "rand", *(policy.value for policy in AutoAugmentPolicy), "augmix", "simclr"),
        ("v1", "v2"),
    )
}


def _with_policy(name: str, version: str) -> Any:
    """Return a pipeline whose crop is Pillow's, bit for bit, so all of it is."""
    m, auto = WAYS[version]
    crop = m.RandomResizedCrop(24, interpolation=Mode.BICUBIC)
    return m.Compose(
        [crop, *_augmentations(m, auto)[name], *_finish(m, "erased", of_tensors=False)]
    )


@pytest.mark.parametrize("name", POLICIES)
def test_policies_give_torchvisions_pixels_for_many_seeds(name: str) -> None:
    """After a bicubic crop of a Pillow image, each seed gives torchvision's own pixels.

    What is normalised in the core differs by roundings of floats, and what AugMix and a blur blend
    at a few pixels by more. FASTDECODE_SEEDS is the number of seeds.
    """
    few = 0.03 if "augmix" in name or "simclr" in name else 0.0
    transform = _with_policy(*POLICIES[name])
    dataset = Sources(SMALL, transform=transform)
    with PillowImage.open(io.BytesIO(SMALL)) as image:
        for seed in range(int(os.environ.get("FASTDECODE_SEEDS", "20"))):
            _seed(seed)
            expected, after = transform(image), _states()
            _seed(seed)
            result = dataset[0][0]
            assert result.shape == expected.shape
            assert ((result - expected).abs() > 1e-6).float().mean() <= few, seed
            assert _states() == after


class _AsWritten(torch.utils.data.Dataset):
    """A dataset as people write it, with Pillow."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        with PillowImage.open(io.BytesIO(SMALL)) as image:
            return self.transform(image), index


@pytest.mark.filterwarnings("ignore:.*use of fork.*:DeprecationWarning")
@pytest.mark.parametrize("workers", [0, 2])
def test_pytorchs_loader_gives_torchvisions_batches(workers: int) -> None:
    """In PyTorch's DataLoader and its worker processes, the batches are the same."""
    transform = _with_policy("trivial", "v2")
    batches = []
    for dataset in (_AsWritten(transform), Sources(*[SMALL] * 12, transform=transform)):
        torch.manual_seed(5)
        loader = torch.utils.data.DataLoader(dataset, 4, shuffle=True, num_workers=workers)
        batches.append([torch.cat(parts) for parts in zip(*loader, strict=True)])
    assert_same(*batches, within=1e-6)


@pytest.mark.parametrize("name", IN_LOADER)
def test_samples_of_a_loader_are_those_of_its_parts(name: str) -> None:
    """Crop, operations, conversion and erasing, done one after another, give the same values."""
    fused: Any = fuse(PIPELINES[name]())
    parts = list(flatten(PIPELINES[name]()))
    crop = fused.plan.head
    first = re.match("[bcmr]*", _letters(crop.program))
    count = len(first[0]) if first else 0
    begin, after = (
        Program(step for part in some for step in part)
        for some in (crop.program.parts[:count], crop.program.parts[count:])
    )
    plain = crop.in_bytes().doing(begin)
    paths = [path for _, path in _chosen(name)]
    with SeededLoader(ImageList(paths, transform=fused), 3, seed=4, threads=2) as loader:
        samples_made = [image.clone() for batch in loader for image in batch]
    normalize = [part for part in parts if type(part).__name__ == "Normalize"]
    for at, path in enumerate(paths):
        generator = SampleGenerator().manual_seed(sample_seed(4, 0, at))
        pixels = plain(path.read_bytes(), generator=generator).permute(1, 2, 0).numpy()
        operations, _ = draw_operations(after, generator.state, *pixels.shape[1::-1])
        boxes = [each for each in operations if each.kind == "erase"]
        made = augment(pixels, operations[: len(operations) - len(boxes)])
        expected = torch.from_numpy(made).permute(2, 0, 1)
        if crop.dtype == torch.float32:
            expected = expected / 255
            expected = _apply(normalize, expected)
        for each in boxes:
            left, top, width, height = map(int, each.value[:4])
            inside = np.s_[:, top : top + height, left : left + width]
            expected[inside] = samples_made[at][inside]
        assert_same(samples_made[at].as_subclass(torch.Tensor), expected, path, within=1e-5)
