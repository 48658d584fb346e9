"""The transforms with torchvision's names, called with images: against torchvision, and alone.

`test_step_orders` has them in pipelines of a `Loader`.
"""

from __future__ import annotations

import pickle
import zlib
from typing import Any

import numpy as np
import pytest
import torch
from corpus import native_core
from hypothesis import given
from hypothesis import strategies as st
from loading import SeededLoader, Sources
from PIL import Image as PillowImage
from random_transforms import WITHOUT_SHRINKING
from torch_reference import PHOTOS

from fastdecode.torch import transforms as own

native_core()

# ---- images, and the calls that are compared ----


def _pixels(height: int, width: int) -> np.ndarray:
    """Return smooth colours with noise, as photos have them."""
    ramp = np.add.outer(np.arange(height) * 3, np.arange(width) * 2)[..., None] + (0, 60, 130)
    noise = np.random.default_rng(height * 1000 + width).integers(0, 40, (height, width, 3))
    return ((ramp + noise) % 256).astype(np.uint8)


IMAGES = [PillowImage.fromarray(_pixels(*size)) for size in ((60, 80), (97, 64), (33, 33))]
SEEDS = range(4)
LINEAR = {"interpolation": "bilinear"}
CALLS: list[tuple[str, dict[str, Any], int]] = [
    ("CenterCrop", {"size": (100, 20)}, 3403222889),
    (
        "ColorJitter",
        {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1},
        2688551093,
    ),
    ("ColorJitter", {"contrast": (0.5, 0.9), "hue": 0.5}, 3464107895),
    ("Grayscale", {}, 1540682644),
    ("Grayscale", {"num_output_channels": 3}, 1533538106),
    ("Pad", {"padding": (1, 2), "fill": (9, 8, 7)}, 1401519606),
    ("Pad", {"padding": [1, 2, 3, 4], "padding_mode": "reflect"}, 4081973482),
    ("RandomAdjustSharpness", {"sharpness_factor": 2}, 2581226252),
    ("RandomAffine", {"degrees": 20}, 1091919980),
    (
        "RandomAffine",
        {"degrees": 0, "shear": (-5, 5, -7, 9), "interpolation": "bicubic"},
        2460789484,
    ),
    (
        "RandomAffine",
        {"degrees": 9, "translate": (0.1, 0.2), "scale": (0.8, 1.2), "shear": 9, "fill": 7},
        1416844036,
    ),
    (
        "RandomAffine",
        {"degrees": (40, 90), "center": (5, 30.5), "scale": (1, 2), "fill": 9},
        2395511249,
    ),
    ("RandomAutocontrast", {}, 2248998197),
    ("RandomCrop", {"size": 33}, 1387137638),
    ("RandomCrop", {"size": (70, 90), "padding": (1, 2, 3, 4), "pad_if_needed": True}, 806500411),
    ("RandomEqualize", {}, 4187324731),
    ("RandomGrayscale", {"p": 0.5}, 1405774410),
    ("RandomHorizontalFlip", {"p": 1.0}, 4014871767),
    ("RandomHorizontalFlip", {}, 2918100340),
    ("RandomInvert", {}, 2858845009),
    ("RandomPerspective", {}, 2293739461),
    ("RandomPerspective", {"distortion_scale": 0.3, "p": 0.9, "fill": (1, 2, 3)}, 2792926491),
    ("RandomPosterize", {"bits": 3}, 3475658038),
    ("RandomResizedCrop", {"size": (20, 44), "scale": (0.2, 1)}, 1473024054),
    ("RandomResizedCrop", {"size": 24, "interpolation": "nearest"}, 3723758241),
    ("RandomRotation", {"degrees": 30}, 473342055),
    (
        "RandomRotation",
        {"degrees": (10, 80), "expand": True, "fill": (10, 20, 30), **LINEAR},
        1733345424,
    ),
    ("RandomRotation", {"degrees": 170, "center": [10, -7.5], "fill": 200, **LINEAR}, 3864962247),
    ("RandomRotation", {"degrees": (180, 180), "center": (20, 9)}, 1162711624),
    ("RandomSolarize", {"threshold": 100}, 3162178227),
    ("RandomVerticalFlip", {"p": 0.7}, 197897129),
    ("Resize", {"size": 30, "max_size": 35}, 2384608219),
    ("Resize", {"size": [50], "interpolation": "bicubic"}, 4042766500),
    ("Resize", {"size": (31, 17), "interpolation": "lanczos"}, 1960482357),
    ("AutoAugment", {}, 3085683600),
    ("AutoAugment", {"policy": own.AutoAugmentPolicy.CIFAR10, "fill": 99, **LINEAR}, 2100353648),
    ("AutoAugment", {"policy": own.AutoAugmentPolicy.SVHN}, 2721602646),
    ("RandAugment", {}, 1103223742),
    ("RandAugment", {"num_ops": 3, "magnitude": 15, **LINEAR}, 1244642673),
    ("TrivialAugmentWide", {"fill": 128}, 1849202696),
]
"""Each with the checksum of torchvision 0.29's results, which running this file prints."""
IDS = [f"{name} {number}" for number, (name, _, _) in enumerate(CALLS)]


def _called(transform: Any, image: Any, seed: int) -> np.ndarray:
    torch.manual_seed(seed)
    made = transform(image)
    end = torch.rand(1).numpy()  # so every draw counts
    pixels = made.numpy() if isinstance(made, torch.Tensor) else np.asarray(made)
    return np.append(pixels.ravel(), (end * 1e6).astype(np.uint8))


def checksum(transform: Any) -> int:
    made = [_called(transform, image, seed) for image in IMAGES for seed in SEEDS]
    return zlib.crc32(b"".join(one.tobytes() for one in made))


def _theirs(name: str, arguments: dict[str, Any]) -> Any:
    v2 = pytest.importorskip("torchvision.transforms.v2")
    named = {
        key: v2.AutoAugmentPolicy(value.value) if key == "policy" else value
        for key, value in arguments.items()
    }
    return getattr(v2, name)(**named)


@pytest.mark.parametrize(("name", "arguments", "expected"), CALLS, ids=IDS)
def test_results_and_draws_are_those_of_torchvision(
    name: str, arguments: dict[str, Any], expected: int
) -> None:
    """On Pillow images bit for bit, for the same generator, which is then in the same state."""
    assert checksum(getattr(own, name)(**arguments)) == expected


@pytest.mark.parametrize(("name", "arguments", "expected"), CALLS, ids=IDS)
def test_the_checksums_are_those_of_torchvision(
    name: str, arguments: dict[str, Any], expected: int
) -> None:
    """Where it is installed, the expected checksums are what it makes."""
    assert checksum(_theirs(name, arguments)) == expected


def _kinds(image: PillowImage.Image) -> list[Any]:
    tensor = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
    return [image, image.convert("L"), tensor, tensor / 255]


AMPLIFIED = ("AugMix", "AutoAugment", "RandAugment", "TrivialAugmentWide")
BLURS: list[tuple[str, dict[str, Any], int]] = [
    ("GaussianBlur", {"kernel_size": 5}, 0),
    ("GaussianBlur", {"kernel_size": 9, "sigma": 2.0}, 0),
    ("GaussianBlur", {"kernel_size": (3, 9), "sigma": 2.0}, 0),
    ("GaussianBlur", {"kernel_size": (7, 1), "sigma": (1, 3)}, 0),
    ("AugMix", {}, 0),
    ("AugMix", {"all_ops": False, "chain_depth": 2, "severity": 5}, 0),
]


@pytest.mark.parametrize(("name", "arguments", "_"), [*CALLS, *BLURS])
def test_grey_images_and_tensors_have_torchvisions_results(
    name: str, arguments: dict[str, Any], _: int
) -> None:
    """Within one level, or what an operation makes of that; but for ties of the nearest pixel."""
    theirs, ours = _theirs(name, arguments), getattr(own, name)(**arguments)
    compared = 0
    for image in IMAGES:
        for given_, seed in ((one, seed) for one in _kinds(image) for seed in SEEDS):
            try:
                made = _called(ours, given_, seed)
            except ValueError:  # it says what it does not take
                continue
            expected = _called(theirs, given_, seed)
            compared += 1
            scale = 255 if made.dtype == np.float32 else 1
            apart = np.abs(made.astype(float) - expected.astype(float)) * scale
            assert (apart > 1.01).mean() <= (0.2 if name in AMPLIFIED else 0.01)
    assert compared >= len(IMAGES) * len(SEEDS) * (1 if name == "RandomRotation" else 2)


# ---- what needs no torchvision ----


SIDES, SHARE = st.integers(1, 50), st.floats(0, 1)
FILL = st.integers(0, 255) | st.tuples(*[st.integers(0, 255)] * 3)
LOOK = {"interpolation": st.sampled_from(["nearest", "bilinear", "bicubic"]), "fill": FILL}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "CenterCrop": {"size": SIDES | st.tuples(SIDES, SIDES)},
    "ColorJitter": {"brightness": SHARE, "contrast": SHARE, "saturation": SHARE},
    "GaussianBlur": {"kernel_size": st.sampled_from([3, 5, 7]), "sigma": st.floats(0.1, 3)},
    "Pad": {"padding": st.integers(0, 9), "fill": FILL},
    "RandAugment": {"num_ops": st.integers(0, 3), "magnitude": st.integers(0, 30)},
    "RandomAffine": {
        "degrees": st.floats(0, 180),
        "shear": st.floats(0, 45),
        "center": st.none() | st.tuples(SIDES, SIDES),
        **LOOK,
    },
    "RandomCrop": {"size": SIDES, "pad_if_needed": st.just(True), "fill": FILL},
    "RandomHorizontalFlip": {"p": SHARE},
    "RandomPerspective": {"distortion_scale": SHARE, "p": SHARE, **LOOK},
    "RandomPosterize": {"bits": st.integers(0, 8), "p": SHARE},
    "RandomResizedCrop": {"size": SIDES},
    "RandomRotation": {"degrees": st.floats(0, 180), "expand": st.booleans(), **LOOK},
    "RandomSolarize": {"threshold": st.integers(0, 255), "p": SHARE},
    "Resize": {"size": st.tuples(SIDES, SIDES)},
    "TrivialAugmentWide": {"num_magnitude_bins": st.integers(2, 31)},
}


@st.composite
def _transforms(draw: st.DrawFn) -> Any:
    name = draw(st.sampled_from(sorted(ARGUMENTS)))
    return getattr(own, name)(**draw(st.fixed_dictionaries(ARGUMENTS[name])))


@given(_transforms(), st.integers(0, 99), st.integers(20, 60), st.integers(20, 60))
@WITHOUT_SHRINKING
def test_any_call_has_one_result(transform: Any, seed: int, height: int, width: int) -> None:
    """An array has the pixels of a Pillow image, a copy those of the transform, grey stays grey."""
    image = PillowImage.fromarray(_pixels(height, width))
    expected = _called(transform, image, seed)

    assert np.array_equal(_called(transform, np.array(image), seed), expected)
    assert np.array_equal(_called(pickle.loads(pickle.dumps(transform)), image, seed), expected)
    if not isinstance(getattr(transform, "fill", None), tuple):
        grey = image.convert("L")
        coloured = _called(transform, grey.convert("RGB"), seed)[:-1].reshape(-1, 3)
        assert np.array_equal(_called(transform, grey, seed)[:-1], coloured[:, 0])
    assert repr(transform).startswith(f"{type(transform).__name__}(")


WHOLE = {"scale": (1.0, 1.0), "ratio": (4 / 3, 4 / 3)}


def _pipeline() -> own.Compose:
    return own.Compose(
        [
            own.RandomResizedCrop((48, 64), **WHOLE, interpolation="bicubic"),
            own.RandomHorizontalFlip(p=1.0),
            own.RandomApply([own.ColorJitter(contrast=(2.0, 2.0))], p=1.0),
            own.RandomCrop((40, 50), pad_if_needed=True, fill=3, padding=0),
            own.Resize((36, 44), interpolation="lanczos"),
            own.ToTensor(),
            own.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4)),
            own.RandomErasing(p=0.0),
        ]
    )


def test_a_pipeline_needs_no_torchvision() -> None:
    """A Loader does all of it in the core; what is called with a file or an image is the same."""
    files = [photo.read_bytes() for photo in PHOTOS[:3]]
    dataset = Sources(*files, transform=_pipeline())
    with SeededLoader(dataset, 3, threads=2) as loader:
        (batch,) = [images for images, _ in loader]

    assert dataset.isolated
    assert batch.shape == (3, 3, 36, 44)
    for number, file in enumerate(files):
        torch.manual_seed(number)
        of_file = _pipeline()(file)
        torch.manual_seed(number)
        assert torch.equal(dataset[number][0], of_file)


def test_printing_a_dataset_shows_the_steps_by_their_names() -> None:
    """As it shows torchvision's; and a Compose prints each of its steps in a line."""
    text = repr(Sources(PHOTOS[0].read_bytes(), transform=_pipeline()))
    assert "while decoding: RandomResizedCrop, RandomHorizontalFlip" in text
    assert (
        "in the core: RandomApply, RandomCrop, Resize, ToTensor, Normalize, RandomErasing" in text
    )
    lines = repr(_pipeline()).splitlines()
    assert lines[0] == "Compose("
    assert "    RandomHorizontalFlip(p=1.0)" in lines
    assert (
        "        ColorJitter(brightness=None, contrast=(2.0, 2.0), saturation=None, hue=None)"
        in lines
    )


def test_a_crop_with_a_mean_is_one_in_a_pipeline() -> None:
    """It makes floats in a Loader and of an image as it does of a file."""
    crop = own.Resize((36, 44), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4), flip=1.0)
    file = PHOTOS[0].read_bytes()
    dataset = Sources(file, transform=own.Compose([crop]))
    with SeededLoader(dataset, 1, threads=0) as loader:
        (batch,) = [images for images, _ in loader]

    assert torch.equal(batch[0], crop(file))
    assert torch.allclose(own.Compose([crop])(file), crop(file), atol=1.01 / 255 / 0.2)


def test_one_channel_is_normalised_as_three() -> None:
    """With one mean for all; with three of them it is refused."""
    image = PHOTOS[0].read_bytes()
    grey = own.Compose(
        [own.Resize((24, 32)), own.Grayscale(), own.ToTensor(), own.Normalize([0.5], [0.2])]
    )
    made = grey(image)
    assert made.shape == (1, 24, 32)
    three = own.Compose(
        [own.Resize((24, 32)), own.Grayscale(3), own.ToTensor(), own.Normalize([0.5], [0.2])]
    )
    assert torch.allclose(made.expand(3, -1, -1), three(image))
    with pytest.raises(ValueError, match="shape"):
        own.Normalize((0.1, 0.2, 0.3), (1, 1, 1))(torch.zeros(1, 4, 4))


def test_a_subclass_of_a_users_does_what_its_base_does() -> None:
    """Called with an image; the Loader calls it as well, as it might do something else."""

    class Mine(own.RandomInvert):
        pass

    image = IMAGES[0]
    assert np.array_equal(
        _called(Mine(p=1.0), image, 0), _called(own.RandomInvert(p=1.0), image, 0)
    )


def test_blurs_of_dino_are_told_from_torchvisions() -> None:
    """By a float or a name that only one of them has; 0 and 1 are probabilities."""
    assert own.GaussianBlur(0.5, 0.1, 2.0).kernel_size is None
    assert own.GaussianBlur(1).p == 1
    assert own.GaussianBlur(radius_max=1.5).p == 0.5
    assert own.GaussianBlur(3).kernel_size == (3, 3)
    assert own.GaussianBlur(kernel_size=(5, 5), sigma=1.0).sigma == (1.0, 1.0)
    with pytest.raises(TypeError):
        own.GaussianBlur(sigma=1.0)


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("AugMix", {"severity": 11}),
    ("AugMix", {"alpha": 0}),
    ("AutoAugment", {"policy": "mnist"}),
    ("CenterCrop", {"size": 0}),
    ("ColorJitter", {"brightness": -1}),
    ("ColorJitter", {"contrast": (2, 1)}),
    ("ColorJitter", {"hue": 0.6}),
    ("GaussianBlur", {"kernel_size": 4}),
    ("GaussianBlur", {"kernel_size": 3, "sigma": 0}),
    ("Grayscale", {"num_output_channels": 2}),
    ("Pad", {"padding": -1}),
    ("Pad", {"padding": (1, 2, 3)}),
    ("Pad", {"padding": 1, "fill": 256}),
    ("Pad", {"padding": 1, "fill": 0.5}),
    ("Pad", {"padding": 1, "padding_mode": "wrap"}),
    ("RandAugment", {"magnitude": 31}),
    ("RandAugment", {"num_ops": 1.5}),
    ("RandomAdjustSharpness", {"sharpness_factor": -1}),
    ("RandomAffine", {"degrees": (3, 1)}),
    ("RandomAffine", {"degrees": 0, "translate": (0.1, 2)}),
    ("RandomAffine", {"degrees": 0, "scale": (0, 1)}),
    ("RandomAffine", {"degrees": 0, "center": (1,)}),
    ("RandomAffine", {"degrees": 0, "center": (1, float("nan"))}),
    ("RandomRotation", {"degrees": 9, "center": "middle"}),
    ("GaussianBlur", {"kernel_size": (3, 4)}),
    ("RandomAffine", {"degrees": 0, "interpolation": "lanczos"}),
    ("RandomApply", {"transforms": [own.RandomInvert()], "p": 2}),
    ("RandomChoice", {"transforms": [own.RandomInvert()], "p": [0]}),
    ("RandomChoice", {"transforms": [own.RandomInvert()], "p": [1, 1]}),
    ("RandomCrop", {"size": "12"}),
    ("RandomErasing", {"scale": (0.5, 2)}),
    ("RandomErasing", {"value": "noise"}),
    ("RandomHorizontalFlip", {"p": 1.5}),
    ("RandomPerspective", {"distortion_scale": 2}),
    ("RandomPosterize", {"bits": 9}),
    ("RandomRotation", {"degrees": -3}),
    ("RandomSolarize", {"threshold": "100"}),
    ("Resize", {"size": 5, "interpolation": "cubic"}),
    ("ToDtype", {"dtype": torch.int64}),
    ("TrivialAugmentWide", {"num_magnitude_bins": 1}),
    ("Compose", {"transforms": []}),
    ("Compose", {"transforms": [3]}),
]


@pytest.mark.parametrize(("name", "arguments"), WRONG)
def test_wrong_arguments_are_refused(name: str, arguments: dict[str, Any]) -> None:
    """When the transform is made, and not in the middle of an epoch."""
    with pytest.raises(ValueError, match=r"\w"):
        getattr(own, name)(**arguments)


@pytest.mark.parametrize(
    ("transform", "image"),
    [
        (own.RandomInvert(p=1.0), IMAGES[0].convert("RGBA")),
        (own.RandomInvert(p=1.0), np.zeros((5, 5, 3), np.float32)),
        (own.RandomInvert(p=1.0), torch.zeros(3, 5, 5)),
        (own.RandomInvert(p=1.0), torch.zeros(2, 3, 5, 5, dtype=torch.uint8)),
        (own.RandomCrop(100), IMAGES[0]),
        (own.Pad(1, fill=(1, 2, 3)), IMAGES[0].convert("L")),
        (own.RandomErasing(p=1.0, value=(1, 2)), torch.zeros(3, 5, 5)),
    ],
    ids="1234567",
)
def test_wrong_images_are_refused(transform: Any, image: Any) -> None:
    """Of other modes or dtypes, too small ones, and those with too few channels for the levels."""
    with pytest.raises(ValueError, match=r"\w"):
        transform(image)


@pytest.mark.parametrize("value", [0.0, (0.1, 0.2, 0.3), "random"])
def test_boxes_are_erased_as_torchvision_does(value: Any) -> None:
    """Of tensors, with the same draws."""
    for seed in range(8):
        image = torch.rand(3, 40, 50, generator=torch.Generator().manual_seed(seed))
        ours = _called(own.RandomErasing(value=value), image, seed)
        assert np.array_equal(
            ours, _called(_theirs("RandomErasing", {"value": value}), image, seed)
        )
        arguments = {"p": 1.0, "value": value, "inplace": True}
        assert own.RandomErasing(**arguments)(image) is image


@pytest.mark.parametrize("make", ["RandomApply", "RandomChoice", "RandomOrder"])
def test_containers_draw_as_torchvisions(make: str) -> None:
    """Which of the transforms are called, and in which order."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    parts = [own.RandomInvert(p=0.5), own.RandomSolarize(99, p=0.8), own.RandomPosterize(2, p=0.7)]
    for seed in range(20):
        expected = _called(getattr(v2, make)(parts), IMAGES[0], seed)
        assert np.array_equal(_called(getattr(own, make)(parts), IMAGES[0], seed), expected)


def test_conversions_are_those_of_torchvision() -> None:
    """Of bytes and floats, there and back."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    v1 = pytest.importorskip("torchvision.transforms")
    levels = torch.arange(256, dtype=torch.uint8).view(1, 16, 16)
    for dtype in (torch.uint8, torch.float32, torch.float16, torch.float64):
        for scale in (False, True):
            ours, theirs = own.ToDtype(dtype, scale), v2.ToDtype(dtype, scale)
            for image in (levels, levels / 255, levels.double() / 255):
                assert torch.equal(ours(image), theirs(image))
    assert torch.equal(own.ConvertImageDtype()(levels), v2.ConvertImageDtype()(levels))
    for mode in ("RGB", "L", "1", "I", "F"):
        image = IMAGES[0].convert("L").convert(mode)
        assert torch.equal(own.PILToTensor()(image), v2.PILToTensor()(image)), mode
        assert torch.equal(own.ToTensor()(image), v1.ToTensor()(image)), mode


if __name__ == "__main__":
    for at, (called, how, _) in enumerate(CALLS):
        print(at, called, checksum(_theirs(called, how)))  # noqa: T201
