"""`fuse` compared with torchvision: the same pixels, draws and types."""

from __future__ import annotations

import io
import pickle
from functools import partial
from pathlib import Path

import pytest
import torch
from encoded import saved
from loading import SeededLoader, Sources
from PIL import Image as PillowImage
from same import assert_same

import fastdecode

pytest.importorskip("torchvision")

from torchvision import tv_tensors
from torchvision.transforms import _presets, v2
from torchvision.transforms import transforms as v1

from fastdecode.torch import Fused, fuse
from fastdecode.torch._recognise import flatten
from fastdecode.torch.transforms._random_crop import SampleGenerator

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
PHOTO = PHOTOS[0].read_bytes()
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def _v1_train(p: float = 0.5) -> list:
    return [
        v1.RandomResizedCrop(112),
        v1.RandomHorizontalFlip(p),
        v1.ToTensor(),
        v1.Normalize(MEAN, STD),
    ]


def _v2_finish() -> list:
    return [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]


_NORMALIZE = v2.Normalize(MEAN, STD)
_ON_FLOATS = {
    "brightness": ({"brightness": (1.4, 1.4)}, 1),
    "contrast": ({"contrast": (1.7, 1.7)}, 1),
    "contrast, less": ({"contrast": (0.3, 0.3)}, 1),
    "saturation": ({"saturation": (1.8, 1.8)}, 1),
    "hue": ({"hue": (-0.2, -0.2)}, 0),
    "brightness and hue": ({"brightness": (0.7, 0.7), "hue": (0.0, 0.0)}, 1),
}


@pytest.mark.parametrize("v", [v1, v2])
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("name", [*_ON_FLOATS, "Grayscale", "RandomGrayscale", "RandomInvert"])
def test_a_loader_changes_the_colours_of_floats_in_the_core(
    name: str, normalised: bool, v: object
) -> None:
    """Within one level of torchvision; of normalised ones, where these clamp to 0 to 1."""
    arguments, fits = _ON_FLOATS.get(name, (None, 0))
    step = (
        v.ColorJitter(**arguments)
        if arguments
        else {"Grayscale": partial(v.Grayscale, 3)}.get(name, partial(getattr(v, name), p=1.0))()
    )
    tail = [_NORMALIZE] if normalised else []
    pipeline = v.Compose([v.Resize((60, 90)), v1.ToTensor(), *tail, step])
    dataset = Sources(*(photo.read_bytes() for photo in PHOTOS), transform=pipeline)
    fused = dataset._resolved_transform()

    assert (not fused.rest) == (bool(fits) or not normalised)
    with SeededLoader(dataset, 1, threads=1) as loader:
        made = torch.cat([images for images, _ in loader])
    for result, photo in zip(made, PHOTOS, strict=True):
        image = PillowImage.open(photo).convert("RGB").resize((90, 60), 2)
        expected = pipeline.transforms[-1](v1.Compose([v1.ToTensor(), *tail])(image))
        level = (1 / 255 / torch.tensor(STD if normalised else (1.0,))).view(-1, 1, 1)
        apart = (result - expected).abs() / level
        # Both resizes are within one level, which colours amplify; a hue jumps.
        assert apart.mean() < 1
        assert (apart > 3.2).float().mean() < (0.02 if name == "hue" else 1e-3)


class ClassificationPresetEval:
    """A preset like those of torchvision's references, which only calls its own pipeline."""

    __module__ = "presets"

    def __init__(self, *parts: object) -> None:
        self.transforms = v1.Compose(list(parts))

    def __call__(self, img: object) -> object:
        """Apply them."""
        return self.transforms(img)


_Preset = ClassificationPresetEval


def _reference() -> list:
    """Return the last parts of the references' presets."""
    return [
        v1.PILToTensor(),
        v1.ConvertImageDtype(torch.float),
        v1.Normalize(mean=MEAN, std=STD),
    ]


PIPELINES = {
    "two normalised": lambda: v1.Compose([*_v1_train(), v1.Normalize((0.1,), (2.0,))]),
    "references' train": lambda: v1.Compose(
        [v1.RandomResizedCrop(96), v1.RandomHorizontalFlip(0.5), *_reference()]
    ),
    "references' eval": lambda: v1.Compose([v1.Resize(128), v1.CenterCrop(112), *_reference()]),
    "weights' preset": lambda: _presets.ImageClassification(crop_size=96, resize_size=111),
    "weights' preset, bicubic": lambda: _presets.ImageClassification(
        crop_size=96, resize_size=111, interpolation=v1.InterpolationMode.BICUBIC, mean=(0.5,) * 3
    ),
    "Hugging Face's": lambda: v1.Compose(
        [
            v1.RandomResizedCrop((64, 64)),
            v1.RandomHorizontalFlip(),
            v1.ToTensor(),
            v1.Normalize(MEAN, STD),
        ]
    ),
    "nothing happens first": lambda: v2.Compose(
        [v2.RGB(), v2.Identity(), torch.nn.Identity(), *_v1_train()]
    ),
    "bicubic train": lambda: v2.Compose(
        [
            v2.RandomResizedCrop(64, interpolation="bicubic"),
            v2.RandomHorizontalFlip(),
            v1.ToTensor(),
        ]
    ),
    "bicubic tensors": lambda: v2.Compose(
        [v2.ToImage(), v2.RandomResizedCrop(64, interpolation=3), v2.RandomHorizontalFlip()]
    ),
    "max_size": lambda: v1.Compose([v1.Resize(64, max_size=80), v1.ToTensor()]),
    "max_size alone": lambda: v2.Compose([v2.Resize(None, max_size=80), v2.ToImage()]),
    "means as tensors": lambda: v1.Compose(
        [v1.Resize(64), v1.ToTensor(), v1.Normalize(torch.tensor(MEAN), torch.tensor(STD))]
    ),
    "v1 PIL train": lambda: v1.Compose(_v1_train()),
    "v1 flip last": lambda: v1.Compose(
        [v1.RandomResizedCrop(96), v1.ToTensor(), v1.RandomHorizontalFlip()]
    ),
    "v1 p=1": lambda: v1.Compose(_v1_train(1.0)),
    "v1 PIL eval": lambda: v1.Compose(
        [v1.Resize(128), v1.CenterCrop(111), v1.ToTensor(), v1.Normalize(MEAN, STD, inplace=True)]
    ),
    "v1 padded": lambda: v1.Compose([v1.Resize(90), v1.CenterCrop((101, 160)), v1.ToTensor()]),
    "v1 pairs": lambda: v1.Compose([v1.Resize((100, 90)), v1.CenterCrop((95, 81)), v1.ToTensor()]),
    "v1 crop after ToTensor": lambda: v1.Compose([v1.Resize(96), v1.ToTensor(), v1.CenterCrop(83)]),
    "v1 bytes": lambda: v1.Compose([v1.Resize((80, 120)), v1.PILToTensor()]),
    "v1 tensor": lambda: v1.Compose(
        [v1.PILToTensor(), *_v1_train()[:2], v1.ConvertImageDtype(torch.float32)]
    ),
    "v1 one mean": lambda: v1.Compose([v1.Resize(64), v1.ToTensor(), v1.Normalize([0.5], [0.5])]),
    "v1 nested": lambda: v1.Compose([v1.Compose(_v1_train()[:2]), v1.Compose(_v1_train()[2:])]),
    "v1 PIL alone": lambda: v1.RandomResizedCrop(80),
    "v1 PIL at the end": lambda: v1.Compose([v1.Resize(72), v1.RandomHorizontalFlip()]),
    "Sequential": lambda: torch.nn.Sequential(
        v1.Resize([96]), v1.CenterCrop([90]), v1.RandomHorizontalFlip(), v2.PILToTensor()
    ),
    "v2 PIL train": lambda: v2.Compose(
        [v2.RandomResizedCrop(112), v2.RandomHorizontalFlip(), v2.ToImage(), *_v2_finish()]
    ),
    "v2 tensor train": lambda: v2.Compose(
        [
            v2.ToImage(),
            v2.RandomResizedCrop(112, (0.3, 0.9)),
            v2.RandomHorizontalFlip(),
            *_v2_finish(),
        ]
    ),
    "v2 tensor eval": lambda: v2.Compose(
        [v2.ToImage(), v2.Resize(128, antialias=True), v2.CenterCrop(111), *_v2_finish()]
    ),
    "v2 pure": lambda: v2.Compose(
        [v2.PILToTensor(), v2.Resize((90, 70), 2), *_v2_finish(), v2.RandomHorizontalFlip(1.0)]
    ),
    "v2 made pure": lambda: v2.Compose(
        [v2.ToImage(), v2.RandomResizedCrop((64, 96)), *_v2_finish(), v2.ToPureTensor()]
    ),
    "v2 bytes": lambda: v2.Compose(
        [v2.Resize(80, "bilinear"), v2.RandomHorizontalFlip(1.0), v2.ToImage()]
    ),
    "v2 ConvertImageDtype": lambda: v2.Compose(
        [v2.Resize(80), v2.ToImage(), v2.ConvertImageDtype(), v2.Normalize(MEAN, STD)]
    ),
    "v1 and v2": lambda: v1.Compose([v2.ToImage(), v2.RandomResizedCrop(64), v2.ToPureTensor()]),
    "extreme ratio": lambda: v1.Compose([v1.RandomResizedCrop(64, ratio=(4, 5)), v1.ToTensor()]),
    "second flip": lambda: v1.Compose(
        [*_v1_train(1.0)[:2], v1.RandomHorizontalFlip(), v1.ToTensor()]
    ),
    "flip before crop": lambda: v1.Compose(
        [v1.Resize(97), v1.RandomHorizontalFlip(1.0), v1.CenterCrop(90), v1.ToTensor()]
    ),
}
"""Every part of these is fused."""

RESTS = {
    "pil": lambda: v1.Compose(
        [*_v1_train()[:2], v1.RandomRotation(0), v1.RandomVerticalFlip(), *_v1_train()[2:]]
    ),
    "crop of normalised": lambda: v1.Compose(
        [v1.Resize(50), v1.ToTensor(), v1.Normalize(MEAN, STD), v1.CenterCrop(81)]
    ),
    "normalised": lambda: v1.Compose([*_v1_train(), v1.RandomErasing(p=1.0)]),
    "0 to 1": lambda: v1.Compose([*_v1_train()[:3], v1.RandomErasing(p=0.5, value="random")]),
    "bytes": lambda: v2.Compose(
        [v2.ToImage(), v2.RandomResizedCrop(64), v2.RandomVerticalFlip(), *_v2_finish()]
    ),
    "image": lambda: v2.Compose([v2.Resize((64, 64)), v2.ToImage(), *_v2_finish(), _ImageOnly()]),
    "CLIP's": lambda: v1.Compose(
        [
            v1.Resize(96, interpolation=v1.InterpolationMode.BICUBIC),
            v1.CenterCrop(96),
            lambda image: image.convert("RGB"),
            v1.ToTensor(),
            v1.Normalize(MEAN, STD),
        ]
    ),
    "v1 on an image": lambda: v1.Compose(
        [v2.RandomResizedCrop(64), v2.ToImage(), v1.ConvertImageDtype(torch.float32)]
    ),
}
"""Something of these runs as written."""


class _ImageOnly:
    """A user's own part that checks the type of its input."""

    def __call__(self, image: object) -> object:
        assert type(image) is tv_tensors.Image
        return image


def _both(transform: object, fused: object, data: bytes, seed: int) -> tuple:
    """Run a pipeline and its fused form from one seed; also return the generator's states."""
    drawing = PillowImage.open(io.BytesIO(data)).convert("RGB")
    torch.manual_seed(seed)
    expected = transform(drawing)
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    result = fused(data)
    return expected, state, result, torch.get_rng_state()


def _check(expected: object, result: object, transform: object) -> None:
    """Compare types, shapes and pixels, these in levels of 255 before normalising.

    Pillow computes its weights with more bits than torch: one value in many may be 2 levels off.
    """
    assert type(result) is type(expected)
    by_pillow = not isinstance(
        next(flatten(transform)), (v1.PILToTensor, v2.PILToTensor, v2.ToImage)
    )
    if isinstance(expected, PillowImage.Image):
        assert result.mode == expected.mode == "RGB"
        expected, result = v1.PILToTensor()(expected), v1.PILToTensor()(result)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    levels = (result.double() - expected.double()).abs()
    levels *= 1 if result.dtype == torch.uint8 else 255
    for part in flatten(transform):
        if isinstance(part, (v1.Normalize, v2.Normalize, _presets.ImageClassification)):
            levels = levels * torch.as_tensor(part.std).view(-1, 1, 1)
    assert levels.max() <= (2.001 if by_pillow else 1.001)
    assert (levels > 1.001).double().mean() <= 1e-4


@pytest.mark.parametrize("name", PIPELINES)
@pytest.mark.parametrize("photo", PHOTOS, ids=lambda photo: photo.stem)
def test_fused_pipelines_give_the_pixels_of_torchvision(name: str, photo: Path) -> None:
    """Types, shapes, boxes, flips and draws are equal, and pixels within one level."""
    transform = PIPELINES[name]()
    fused = fuse(transform)

    assert fused.plan.rest == ()
    for seed in range(4):
        expected, state, result, state_after = _both(transform, fused, photo.read_bytes(), seed)
        assert_same(state, state_after)
        _check(expected, result, transform)


@pytest.mark.parametrize("name", RESTS)
def test_the_rest_runs_as_written(name: str) -> None:
    """Unknown parts get the same input, and draw the same numbers."""
    transform = RESTS[name]()
    fused = fuse(transform)

    assert not (fused.plan.rest and fused.shape)
    for seed in range(4):
        expected, state, result, state_after = _both(transform, fused, PHOTOS[0].read_bytes(), seed)
        assert_same(state, state_after)
        _check(expected, result, transform)


class _Changes(_Preset):
    """A copy of the preset that does something besides."""

    __module__, __qualname__ = "presets", "ClassificationPresetEval"

    def __call__(self, img: PillowImage.Image) -> object:
        return self.transforms(img.rotate(90))


class _Inherits(_Preset):
    """A user's own preset."""


def _by_method() -> object:
    preset = _Preset(*_v1_train())
    preset.transforms.forward = repr
    return preset


def test_functions_are_the_rest() -> None:
    """A function is never fused, whatever it does."""
    for part in (v1.Lambda(lambda x: x), lambda x: x.convert("RGB"), torch.neg):
        assert fuse(v1.Compose([v1.Resize(8), part])).plan.rest == (part,)


def test_a_flip_that_never_happens_draws_nothing() -> None:
    """With p=0 the pixels are torchvision's, which draws and ignores one number more."""
    for seed in range(4):
        transform = v1.Compose(_v1_train(0.0))
        expected, _, result, _ = _both(transform, fuse(transform), PHOTO, seed)
        _check(expected, result, transform)


def _hooked() -> object:
    crop = v1.RandomResizedCrop(64)
    crop.register_forward_hook(lambda *_: None)
    return crop


def _changed() -> object:
    crop = v2.RandomResizedCrop(64)
    crop.ratio = (1.0, 1.0)  # the draws go on as before
    return crop


class _Subclass(v1.RandomResizedCrop):
    pass


# What only torchvision's own objects can show; test_recognise has the others.
UNKNOWN = {
    "a copy of a preset that rotates": lambda: _Changes(*_v1_train()),
    "a subclass of a preset": lambda: _Inherits(*_v1_train()),
    "a replaced method": _by_method,
    "a function": lambda: v1.Resize(64).forward,
    "a subclass": lambda: v1.Compose([_Subclass(64), v1.ToTensor()]),
    "a hook": _hooked,
    "a changed ratio": _changed,
    "nearest in v2": lambda: v2.Resize(64, interpolation="nearest"),
    "not antialiased": lambda: v2.Compose([v2.ToImage(), v2.Resize(64, antialias=False)]),
    "colour first": lambda: v2.Compose([v2.ColorJitter(0.1), v2.RandomResizedCrop(64)]),
    "floats are resized": lambda: v1.Compose([v1.ToTensor(), v1.Resize(64)]),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_unknown_pipelines_are_left_alone(name: str) -> None:
    """`fuse` returns the very same object, or keeps all its parts and does later ones."""
    transform = UNKNOWN[name]()
    fused = fuse(transform)

    if fused is not transform:
        assert fused.plan.parts == tuple(flatten(transform))
        assert fused.plan.count or len(fused.plan.parts) > 1


def test_antialias_does_not_matter_for_pillow_images() -> None:
    """Pillow always antialiases, so the old defaults are fused."""
    for antialias in (None, False, "warn"):
        assert isinstance(fuse(v1.Resize(64, antialias=antialias)), Fused)


def test_other_conversions_are_left_to_the_rest() -> None:
    """Half precision, and a Normalize that would raise, are not fused."""
    for part in (
        v2.ToDtype(torch.float16, scale=True),
        v2.Normalize(MEAN, STD),
        v1.ConvertImageDtype(torch.float64),
    ):
        fused = fuse(v2.Compose([v2.Resize((32, 32)), v2.PILToTensor(), part]))
        assert fused.plan.rest == (part,)
        assert fused.plan.head.dtype == torch.uint8


def test_png_and_grey_are_fused_too() -> None:
    """Any format gives the same result as torchvision for its RGB image."""
    transform = v1.Compose([v1.Resize((5, 6)), v1.ToTensor()])

    for mode in ("RGB", "L", "P", "RGBA"):
        expected, _, result, _ = _both(transform, fuse(transform), saved("PNG", mode), 0)
        _check(expected, result, transform)


def test_it_is_pickled_with_the_class_of_its_tensors() -> None:
    """A copy gives the same tv_tensors.Image, and torch's DataLoader stacks the results."""
    fused = fuse(PIPELINES["v2 tensor train"]())
    copy = pickle.loads(pickle.dumps(fused))

    torch.manual_seed(5)
    first = fused(PHOTOS[0].read_bytes())
    torch.manual_seed(5)
    second = copy(PHOTOS[0].read_bytes())

    assert type(second) is tv_tensors.Image
    assert_same(first, second)
    (batch,) = torch.utils.data.DataLoader([first, second], batch_size=2)
    assert batch.shape == (2, 3, 112, 112)


WARPS_OF_FLOATS = {
    "turned": lambda: [v1.RandomRotation((7.0, 7.0))],
    "turned with a level": lambda: [v2.RandomRotation((7.0, 7.0), v2.InterpolationMode.BILINEAR)],
    "moved": lambda: [v1.RandomAffine((9.0, 9.0), fill=0.25)],
    "normalised": lambda: [v1.Normalize(MEAN, STD), v1.RandomAffine((9.0, 9.0))],
    "normalised, with colours": lambda: [
        v2.Normalize(MEAN, STD),
        v2.RandomAffine((9.0, 9.0), fill=[0.5, -0.25, 1.0]),
    ],
    "padded": lambda: [v1.Pad((3, 4, 5, 6), fill=0.5)],
    "larger": lambda: [v1.RandomRotation((9.0, 9.0)), v1.CenterCrop(90)],
    "softened": lambda: [v1.Normalize(MEAN, STD), v1.GaussianBlur(5, (1.0, 1.0))],
}
SMOOTH = [
    v1.RandomRotation((7.0, 7.0), v1.InterpolationMode.BILINEAR),
    v2.RandomAffine(
        (9.0, 9.0), interpolation=v1.InterpolationMode.BILINEAR, fill=[0.5, -0.25, 1.0]
    ),
    v2.RandomPerspective(0.3, 1.0),
]


@pytest.mark.parametrize("warp", SMOOTH, ids=lambda one: type(one).__name__)
def test_smooth_warps_of_normalised_values_run_as_written(warp: object) -> None:
    """At the border torchvision blends pixels with zeros, which are grey there, and with `fill`."""
    steps = [v1.Resize((64, 64)), v1.ToTensor(), v1.Normalize(MEAN, STD), warp]
    assert fuse(v1.Compose(steps)).plan.rest


@pytest.mark.parametrize("name", WARPS_OF_FLOATS)
def test_floats_are_warped_in_the_core(name: str) -> None:
    """What moves or blends pixels does so in bytes; a border becomes the nearest level.

    A few pixels lie on the other side of a tie.
    """
    transform = v1.Compose([v1.Resize((64, 64)), v1.ToTensor(), *WARPS_OF_FLOATS[name]()])
    fused = fuse(transform)
    assert not fused.plan.rest
    for photo in PHOTOS[:2]:
        data = photo.read_bytes()
        expected = transform(PillowImage.open(io.BytesIO(data)).convert("RGB"))
        result = fused(data, generator=SampleGenerator().manual_seed(1))
        assert result.shape == expected.shape
        scale = 255 * torch.tensor(STD if "Normalize" in repr(transform) else (1.0,) * 3)
        levels = (result - expected).abs() * scale.view(-1, 1, 1)
        assert (levels > 1.01).double().mean() <= 1e-2
