"""`fuse`: which steps of torchvision and timm it recognises, and which it calls, with reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from same import assert_same
from torch_reference import PHOTOS

import fastdecode
from fastdecode.torch import DecodeOptions, Fused, ImageList, Views, fuse
from fastdecode.torch._joint import JointPlan
from fastdecode.torch._plan import first_recipe
from fastdecode.torch.transforms import (
    Normalize,
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
)

pytest.importorskip("timm", reason="needs torchvision and timm")

from timm.data import transforms as timm
from torchvision import tv_tensors
from torchvision.transforms import InterpolationMode as Mode
from torchvision_steps import timm_operation, v1, v2

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.4)
PHOTO = (Path(fastdecode.__file__).parent / "samples" / "canyon-wren.jpg").read_bytes()


PLAIN: dict[str, Any] = {"dtype": torch.float32}

BICUBICALLY: dict[str, Any] = {"interpolation": "bicubic"}

TENSOR = v1.ToTensor()
FLOAT = v2.ToDtype(torch.float32, scale=True)


def crop(m: Any = v1, **options: Any) -> Any:
    return m.RandomResizedCrop(64, **options)


def resize(size: Any = 64, m: Any = v1, **options: Any) -> Any:
    return m.Resize(size, **options)


def center() -> Any:
    return v1.CenterCrop(48)


def flip(p: float = 0.5) -> Any:
    return v1.RandomHorizontalFlip(p)


def normalize(mean: Any = MEAN, std: Any = STD) -> Any:
    return v1.Normalize(mean, std)


def compose(*parts: Any) -> Any:
    return v1.Compose(list(parts))


def timm_crop(interpolation: str = "bilinear") -> Any:
    return timm.RandomResizedCropAndInterpolation(64, interpolation=interpolation)


def changed(part: Any, **attributes: Any) -> Any:
    """Return a transform with attributes that its user has set."""
    for name, value in attributes.items():
        setattr(part, name, value)
    return part


def hooked(part: Any) -> Any:
    part.register_forward_hook(repr)
    return part


class Turned(v1.Resize):
    """A class of the user's that looks like torchvision's."""

    __module__, __qualname__ = v1.Resize.__module__, "Resize"

    def forward(self, image: Any) -> Any:
        """Do something else."""
        return image.rotate(90)


KNOWN = {
    "the crop alone": (
        [RandomResizedCrop(64), flip(), FLOAT, normalize()],
        RandomResizedCrop(64, flip=0.5, mean=MEAN, std=STD),
    ),
    "Resize and CenterCrop": (
        [Resize(64, **BICUBICALLY), center(), FLOAT],
        ResizeCenterCrop(64, 48, **PLAIN, **BICUBICALLY),
    ),
    "its own options": (
        [Resize((40, 50), quality="fast", headroom=2.0), Normalize(MEAN, STD)],
        Resize((40, 50), mean=MEAN, std=STD, quality="fast", headroom=2.0),
    ),
    "normalised already": (
        [RandomResizedCropFlipNormalize(64, flip=0.0), flip(), v2.ToPureTensor()],
        RandomResizedCropFlipNormalize(64, flip=0.5),
    ),
    "a longest side": ([Resize(64, max_size=100), flip()], Resize(64, max_size=100, flip=0.5)),
    "0 to 1": ([Resize(64, dtype=torch.float32), normalize()], Resize(64, mean=MEAN, std=STD)),
    "our Normalize after theirs": (
        [resize(), v1.PILToTensor(), Normalize(MEAN, STD)],
        Resize(64, mean=MEAN, std=STD),
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_what_follows_our_own_becomes_one_transform(name: str) -> None:
    """What follows one of our own is done with it: one transform has the same numbers."""
    parts, expected = KNOWN[name]
    fused = fuse(compose(*parts))

    assert fused.plan.head.program == expected.program
    for name_ in ("quality", "headroom"):
        assert getattr(fused.plan.head, name_) == getattr(expected, name_)
    assert fused.plan.rest == ()
    assert (fused.shape, fused.dtype, fused.isolated) == (expected.shape, expected.dtype, True)
    result = fused(PHOTO, generator=torch.Generator().manual_seed(3))
    assert_same(result, expected(PHOTO, generator=torch.Generator().manual_seed(3)))


# For each pipeline, how many of its parts are done in the core.
CALLED: dict[str, tuple[list[Any], int]] = {
    "not torchvision's": ([Turned(64)], 0),
    "timm's of another filter": ([timm_crop("nearest")], 0),
    "timm's order of filters": (
        [changed(timm_crop(), interpolation=(Mode.BICUBIC, Mode.BILINEAR))],
        0,
    ),
    "timm's crop of tensors": ([timm.MaybePILToTensor(), timm_crop()], 1),
    "a function": ([lambda image: image, crop()], 0),
    "a word in v1": ([resize(interpolation="bilinear")], 0),
    "antialias of 0.16 on tensors": ([v1.PILToTensor(), resize(antialias="warn")], 1),
    "no antialias": ([v1.PILToTensor(), crop(antialias=None)], 1),
    "max_size is not larger": ([resize(max_size=64)], 0),
    "max_size for two sides": ([resize([64, 80], max_size=100)], 0),
    "no size": ([changed(resize(max_size=100), size=None, max_size=100.0)], 0),
    "no area": ([crop(scale=(0.0, 1.0))], 0),
    "replaced method": ([changed(resize(), forward=repr)], 0),
    "hook": ([hooked(resize())], 0),
    "ratio changed later": ([changed(crop(v2), ratio=(1.0, 1.0))], 0),
    "after crops and flips in any order": ([resize(max_size=80), flip(), center(), flip()], 4),
    "crop after a random crop": ([crop(), v1.RandomCrop(9)], 2),
    "impossible flip": ([resize(), flip(2)], 2),
    "two geometries": ([resize(), crop()], 2),
    "crop of normalised": ([resize(), TENSOR, normalize(), center()], 3),
    "half precision": ([resize(), v1.PILToTensor(), v2.ToDtype(torch.half, scale=True)], 2),
    "unscaled": ([resize(), v1.PILToTensor(), v2.ToDtype(torch.float32)], 3),
    "normalised bytes": ([resize(), v1.PILToTensor(), normalize()], 2),
    "no deviation": ([resize(), TENSOR, normalize(std=(0.2, 0, 0.2))], 2),
    "half of timm": ([resize(), timm.ToTensor(torch.half)], 1),
    "four channels": ([resize(), TENSOR, normalize((0.5,) * 4)], 2),
    "converted twice": ([resize(), TENSOR, TENSOR], 2),
    "v1 of an image": ([resize(), v2.ToImage(), flip()], 2),
    "v1 of an image, held": ([v2.ToImage(), resize(m=v2), v2.RandomApply([compose(flip())])], 2),
    "v2 of an image, held": ([v2.ToImage(), resize(m=v2), v2.RandomApply([v2.RandomInvert()])], 3),
    "timm's policy": ([crop(), timm_operation("Posterize", 4, None, 0)], 2),
    "timm's policy of tensors": (
        [v1.PILToTensor(), crop(), timm_operation("Posterize", 4, None, 0)],
        2,
    ),
    "timm's policy of tensors, held": (
        [v1.PILToTensor(), crop(), v1.RandomApply([timm_operation("Posterize", 4, None, 0)])],
        2,
    ),
}
BEYOND_THE_CORE = [
    v1.RandomApply([v1.Grayscale(1)]),
    v1.Pad(-3),
    v1.Resize(20, max_size=20.5),
    v1.GaussianBlur((3, 251)),
    v1.GaussianBlur(201),
    v1.FiveCrop(9),
    v1.RandomApply([v1.FiveCrop(9)]),
    v1.RandomApply([v1.RandomErasing(1.0, value=255)]),
    v1.RandomApply([hooked(v1.RandomInvert(1.0))]),
    v1.RandomChoice([changed(v1.ColorJitter(0.4), get_params=repr)]),
    v1.RandomChoice([]),
    v1.RandomChoice([v1.Grayscale(3)], p=[0]),
    v1.RandomChoice([v1.Grayscale(3)], p=[0.5, 0.5]),
    v1.RandAugment(2, 31),
    v1.RandAugment(2, 9.0),  # type: ignore[arg-type]
    v1.TrivialAugmentWide(num_magnitude_bins=1),
    v2.RandomRotation(10, fill={Image.Image: 128, "others": 0}),
    v2.AugMix(alpha=0.01),
    v1.RandAugment(100, 3),
    v1.RandomOrder([v1.RandomInvert(0.01)] * 100),
    v1.RandomSolarize(1e9),
    v1.RandomRotation((0, 1e8)),
    v1.ColorJitter(brightness=(0, 1e7)),
    v1.RandomPosterize(9),
]
CALLED |= {repr(step): ([crop(), step], 1) for step in BEYOND_THE_CORE}
CALLED["a large blur"] = ([resize((400, 400)), v1.GaussianBlur(301, 5.0)], 1)


def test_parts_are_called_from_the_first_unknown_one_on() -> None:
    """They are kept, in order, and nothing is done in their place."""
    for name, (parts, count) in CALLED.items():
        fused: Any = fuse(compose(*parts, repr))
        if count:
            assert list(fused.plan.rest) == [*parts[count:], repr], name
            assert (fused.shape, fused.isolated) == (None, False), name
        else:
            assert not isinstance(fused, Fused) or [*fused.plan.parts] == [*parts, repr], name


def test_parts_that_are_drawn_are_left_alone() -> None:
    """An iterator, which has no second run, is not read."""
    pipeline = v1.Compose(iter([crop()]))
    assert fuse(pipeline) is pipeline


def test_floats_that_are_not_scaled_keep_the_levels() -> None:
    """ToDtype makes floats of 0 to 255 unless it is to scale them."""
    convert = [resize(), v1.PILToTensor()]
    levels, bytes_ = (fuse(compose(*convert, *end)) for end in ([v2.ToDtype(torch.float32)], []))
    assert "in Python, in" not in repr(levels)
    assert_same(levels(PHOTO), bytes_(PHOTO).float())


def test_a_loader_draws_a_flip_after_the_random_crop_that_follows_it() -> None:
    """Both commute; so an epoch that began with an earlier version goes on with its draws."""
    program = fuse(compose(flip(), crop(), TENSOR)).plan.head.program
    assert [step.operation.kind for step in program] == ["crop", "resize", "mirror"]


SMALLER = resize(m=v2)
JOINT = {
    "all": ([v2.RandomHorizontalFlip(1.0), SMALLER, v2.PILToTensor(), FLOAT], 4),
    "crop of the resized": ([SMALLER, v2.CenterCrop(48)], 1),
    "types of targets": ([SMALLER, v2.PILToTensor(), v2.ToPureTensor()], 2),
    "masks as floats": (
        [SMALLER, v2.PILToTensor(), v2.ConvertImageDtype(torch.float32)],
        2,
    ),
    "v1": ([SMALLER, v1.PILToTensor()], 1),
    "timm's": ([SMALLER, timm.MaybeToTensor()], 1),
    "flip of floats": ([v2.PILToTensor(), FLOAT, v2.RandomHorizontalFlip(1.0), SMALLER], 4),
}


@pytest.mark.parametrize("name", JOINT)
def test_targets_stop_fusing_where_they_would_not_follow(name: str) -> None:
    """With targets, a part is fused only if it leaves them alone, or they follow the crop."""
    parts, count = JOINT[name]
    plan = JointPlan(parts, first_recipe(DecodeOptions(), joint=True)).plan

    assert plan.count == count


@pytest.mark.parametrize("transform", [Resize(9), compose(Resize(9), flip()), Views(Resize(9), 2)])
def test_an_output_that_the_transform_does_not_make_is_refused(transform: Any) -> None:
    """A transform of the file's bytes makes tensors, and Views give their pipelines images."""
    fits = {None, "pil" if isinstance(transform, Views) else "tensor"}
    for output in (None, "pil", "tensor", "array"):
        if output in fits:
            assert len(ImageList(PHOTOS, transform=transform, output=output)[0]) in (2, 3)
        else:
            with pytest.raises(ValueError, match="output="):
                ImageList(PHOTOS, transform=transform, output=output)


def test_one_of_our_own_that_was_changed_stays_as_it_is() -> None:
    """A subclass, or an object with its own method, is not fused with what follows."""

    class Mine(RandomResizedCrop):
        pass

    replaced = Resize(64)
    replaced.numbers = lambda *_: None  # type: ignore[method-assign]
    for head in (Mine(64), replaced):
        part = flip()
        fused = fuse(compose(head, part))
        assert (fused.plan.head, fused.plan.rest) == (head, (part,))


def test_normalising_twice_is_refused() -> None:
    """A second Normalize is refused, unless an unknown part comes before it."""

    class Mine(RandomResizedCrop):
        """A user's own subclass."""

    heads = [RandomResizedCropFlipNormalize(64), Resize(64, mean=MEAN, std=STD)]
    heads.append(Mine(64, mean=MEAN, std=STD))
    heads.append(fuse(compose(crop(), TENSOR, normalize())))
    for head in heads:
        for again in (normalize(), v2.Normalize(MEAN, STD), Normalize()):
            for between in ([], [flip()], [v1.RandomErasing()]):
                with pytest.raises(ValueError, match="normalised"):
                    fuse(compose(head, *between, again))
        fused = fuse(compose(head, torch.neg, normalize()))
        assert len(fused.plan.rest) == 2


@pytest.mark.parametrize("part", [TENSOR, v1.PILToTensor(), v2.PILToTensor()], ids="123")
def test_parts_for_pillow_images_are_refused_after_our_own(part: Any) -> None:
    """The message says what to leave out, when the dataset is created."""
    name = type(part).__name__
    with pytest.raises(ValueError, match=f"{name}.*dtype="):
        ImageList(PHOTOS, transform=compose(RandomResizedCrop(64), part))


WHY: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"transform": repr}, "nothing fused (it begins with repr"),
    "a filter": ({"transform": timm_crop("nearest")}, "its interpolation"),
    "an argument": ({"transform": crop(scale=(0.0, 1.0))}, "its arguments"),
    "another reduction": ({"transform": crop(), "reduce": 2}, "nothing fused (reduce=2"),
    "another result": ({"transform": crop(), "output": "array"}, "gets arrays"),
    "not wanted": ({"transform": crop(), "fuse": False}, "nothing fused"),
    "no transform": ({}, "nothing fused"),
    "all": ({"transform": compose(crop(), flip(), TENSOR)}, "while decoding: RandomResizedCrop"),
    "one part": ({"transform": compose(crop(), TENSOR, torch.nn.ReLU())}, "processes: ReLU()"),
}


@pytest.mark.parametrize("name", WHY)
def test_a_dataset_says_what_is_fused_and_why_the_rest_is_not(name: str) -> None:
    """`repr` names the part or the option that keeps the pipeline from being fused."""
    options, why = WHY[name]
    shown = repr(ImageList([], **options))

    assert why in shown
    assert shown.endswith(why) == (why == "nothing fused")  # there is nothing to explain


def test_tensors_of_torchvisions_class_are_handed_out() -> None:
    """After ToImage the tensors have the class of the user's torchvision."""
    parts = [v2.ToImage(), resize((20, 30), v2), FLOAT]

    assert type(fuse(compose(*parts))(PHOTO)) is tv_tensors.Image
    assert type(fuse(compose(*parts, v2.ToPureTensor()))(PHOTO)) is torch.Tensor


def test_what_is_no_pipeline() -> None:
    """None stays None, and transforms that take bytes are not wrapped; others are refused."""
    own = Resize(32)
    assert (fuse(None), fuse(own)) == (None, own)
    assert isinstance(fuse(fuse(crop())), Fused)
    with pytest.raises(TypeError, match="callable"):
        fuse(5)
