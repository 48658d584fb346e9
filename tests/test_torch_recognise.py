"""What is read as torchvision's, and how far: on doubles, so that it runs without torchvision."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import fastdecode

torch = pytest.importorskip("torch")

from torchvision_doubles import (  # noqa: E402
    BICUBIC,
    FLOAT,
    MEAN,
    NEAREST,
    STD,
    TENSOR,
    center,
    compose,
    crop,
    double,
    flip,
    normalize,
    resize,
    v1,
    v2,
)

from fastdecode.torch.fusing import fuse  # noqa: E402
from fastdecode.torch.recognise import flatten  # noqa: E402
from fastdecode.torch.transforms import (  # noqa: E402
    RandomResizedCrop,
    Resize,
    ResizeCenterCrop,
)

PHOTO = (Path(fastdecode.__file__).parent / "samples" / "canyon-wren.jpg").read_bytes()
BYTES: dict[str, Any] = {"mean": None, "dtype": torch.uint8}
PLAIN: dict[str, Any] = {"dtype": torch.float32}

BICUBICALLY: dict[str, Any] = {"interpolation": "bicubic"}

KNOWN = {
    "train": (
        [crop(), flip(), TENSOR, normalize()],
        RandomResizedCrop(64, mean=MEAN, std=STD, flip=0.5),
    ),
    "eval": ([resize(), center(), TENSOR], ResizeCenterCrop(64, 48, **PLAIN)),
    "one side in a list": ([resize([64]), center(), TENSOR], ResizeCenterCrop(64, 48, **PLAIN)),
    "both sides": ([resize([40, 50]), v1("PILToTensor")], Resize((40, 50), **BYTES)),
    "flip last": (
        [resize(), TENSOR, normalize(), flip(1)],
        Resize(64, flip=1.0, mean=MEAN, std=STD),
    ),
    "crop after ToTensor": ([resize(), TENSOR, center()], ResizeCenterCrop(64, 48, **PLAIN)),
    "one mean": (
        [crop(), TENSOR, normalize([0.5], [0.25])],
        RandomResizedCrop(64, flip=0, mean=[0.5] * 3, std=[0.25] * 3),
    ),
    "nested": (
        [compose(crop(scale=[0.5, 1]), flip()), compose(v1("PILToTensor"), FLOAT)],
        RandomResizedCrop(64, (0.5, 1), **PLAIN, flip=0.5),
    ),
    "tensors in v2": (
        [v2("PILToTensor"), crop(v2), flip(), FLOAT, v2("ToPureTensor")],
        RandomResizedCrop(64, **PLAIN, flip=0.5),
    ),
    "v2's words": (
        [crop(v2, interpolation="bilinear"), TENSOR],
        RandomResizedCrop(64, flip=0, **PLAIN),
    ),
    "bicubic": (
        [crop(interpolation=BICUBIC), TENSOR],
        RandomResizedCrop(64, **PLAIN, **BICUBICALLY),
    ),
    "bicubic by Pillow's constant": (
        [resize(interpolation=3), center(), TENSOR],
        ResizeCenterCrop(64, 48, **PLAIN, **BICUBICALLY),
    ),
    "Pillow's constant": ([resize(interpolation=2), TENSOR], Resize(64, **PLAIN)),
    "antialias of Pillow": ([resize(antialias="warn"), TENSOR], Resize(64, **PLAIN)),
    "ConvertImageDtype": (
        [v1("PILToTensor"), resize(), v1("ConvertImageDtype", dtype=torch.float32)],
        Resize(64, **PLAIN),
    ),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_pipelines_become_one_transform(name: str) -> None:
    """The package's own transform, with the same sizes, flip, mean and dtype, does it all."""
    parts, expected = KNOWN[name]
    fused = fuse(compose(*parts))

    assert repr(fused.head) == repr(expected)
    assert fused.rest == ()
    assert (fused.shape, fused.dtype, fused.isolated) == (expected.shape, expected.dtype, True)
    result = fused(PHOTO, generator=torch.Generator().manual_seed(3))
    assert torch.equal(result, expected(PHOTO, generator=torch.Generator().manual_seed(3)))


UNKNOWN = {
    "not torchvision's": double("mine", "Resize", size=64),
    "nearest": crop(interpolation=NEAREST),
    "a word in v1": resize(interpolation="bilinear"),
    "antialias of 0.16 on tensors": compose(v1("PILToTensor"), resize(antialias="warn")),
    "no antialias": compose(v1("PILToTensor"), crop(antialias=None)),
    "floats are resized": compose(TENSOR, resize()),
    "max_size": resize(max_size=100),
    "no size": resize(None, max_size=100),
    "flip first": compose(flip(), crop()),
    "unknown first": compose(v1("ColorJitter"), crop()),
    "crop alone": center(),
    "no area": crop(scale=(0.0, 1.0)),
    "replaced method": resize(forward=print),
    "hook": resize(_forward_hooks={0: print}),
    "ratio changed later": crop(v2, _log_ratio=torch.zeros(2)),
    "parts that are drawn": v1("Compose", transforms=iter([crop()])),
    "nothing": compose(),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_not_known_for_certain_is_left_alone(name: str) -> None:
    """The very same object comes back."""
    assert fuse(UNKNOWN[name]) is UNKNOWN[name]


STOPS = {
    "second flip": ([resize(), flip(), flip()], 2),
    "flip before crop": ([resize(), flip(), center()], 2),
    "impossible flip": ([resize(), flip(2)], 1),
    "two geometries": ([resize(), crop()], 1),
    "crop of normalised": ([resize(), TENSOR, normalize(), center()], 3),
    "half precision": (
        [resize(), v1("PILToTensor"), v2("ToDtype", dtype=torch.half, scale=True)],
        2,
    ),
    "unscaled": ([resize(), v1("PILToTensor"), v2("ToDtype", dtype=torch.float32, scale=False)], 2),
    "normalised bytes": ([resize(), v1("PILToTensor"), normalize()], 2),
    "normalised twice": ([resize(), TENSOR, normalize(), normalize()], 3),
    "no deviation": ([resize(), TENSOR, normalize(std=(0.2, 0, 0.2))], 2),
    "four channels": ([resize(), TENSOR, normalize((0.5,) * 4)], 2),
    "ToImage without tv_tensors": ([resize(), v2("ToImage")], 1),
    "converted twice": ([resize(), TENSOR, TENSOR], 2),
}


@pytest.mark.parametrize("name", STOPS)
def test_fusing_stops_before_the_first_unknown_part(name: str, monkeypatch: Any) -> None:
    """All that follows it is kept as it was, the same objects in the same order."""
    monkeypatch.delitem(sys.modules, "torchvision.tv_tensors", raising=False)
    parts, count = STOPS[name]

    fused = fuse(compose(*parts, print))

    assert list(fused.rest) == [*parts[count:], print]
    assert (fused.shape, fused.isolated) == (None, False)


def test_a_sequential_is_read_like_a_compose() -> None:
    """nn.Sequential counts if it is just that; a hook on it may do anything."""
    plain = torch.nn.Sequential(torch.nn.Identity(), torch.nn.Sequential(torch.nn.ReLU()))
    hooked = torch.nn.Sequential(torch.nn.Identity())
    hooked.register_forward_hook(lambda *_: None)

    assert [type(part) for part in flatten(plain)] == [torch.nn.Identity, torch.nn.ReLU]
    assert list(flatten(hooked)) == [hooked]
