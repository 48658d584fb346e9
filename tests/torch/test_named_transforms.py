"""The transforms with torchvision's names, called with images: against torchvision, and alone.

`test_step_orders` has them in pipelines of a `Loader`.
"""

from __future__ import annotations

import pickle
import zlib
from contextlib import suppress
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
from same import assert_same
from torch_reference import PHOTOS

from fastdecode.native._augment import as_operation, augment, do
from fastdecode.torch import transforms as own
from fastdecode.torch._programs import for_tensors
from fastdecode.torch.transforms import _tensors, images

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
    # These sums are near whole levels.
    ("RandomAffine", {"degrees": (-90, -90), "center": (3, 4), **LINEAR}, 2369078454),
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


MIXES: list[tuple[str, dict[str, Any], float]] = [
    ("GaussianBlur", {"kernel_size": 5}, 145.376),
    ("GaussianBlur", {"kernel_size": 9, "sigma": 2.0}, 143.412),
    ("GaussianBlur", {"kernel_size": (3, 9), "sigma": 2.0}, 143.732),
    ("GaussianBlur", {"kernel_size": (7, 1), "sigma": (1, 3)}, 144.862),
    ("AugMix", {}, 146.861),
    ("AugMix", {"all_ops": False, "chain_depth": 2, "severity": 5}, 142.39),
    ("AugMix", {"severity": 9, "mixture_width": 2, "alpha": 0.4, "fill": (200, 9, 90)}, 140.473),
]
"""With the root of the mean square; another processor may round a few values to the next level."""


def _level(transform: Any) -> float:
    made = [_called(transform, image, seed)[:-1] for image in IMAGES for seed in SEEDS]
    return float(np.sqrt(np.mean(np.concatenate(made).astype(float) ** 2)))


@pytest.mark.parametrize(("name", "arguments", "expected"), MIXES)
def test_blurs_and_mixes_have_torchvisions_levels(
    name: str, arguments: dict[str, Any], expected: float
) -> None:
    """Draws, operations and rounding are torchvision 0.29's: each changes the mean square."""
    assert _level(getattr(own, name)(**arguments)) == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(
    ("name", "arguments", "_"), [*CALLS, *MIXES, ("RandomPerspective", {"distortion_scale": 0}, 0)]
)
def test_results_for_every_kind_of_image_are_those_of_torchvision(
    name: str, arguments: dict[str, Any], _: float
) -> None:
    """Bit for bit, also for grey images and for tensors of bytes and floats."""
    theirs, ours = _theirs(name, arguments), getattr(own, name)(**arguments)
    compared = 0
    for image in IMAGES:
        for given_, seed in ((one, seed) for one in _kinds(image) for seed in SEEDS):
            try:
                made = _called(ours, given_, seed)
            except ValueError:  # it says what it does not take
                continue
            compared += 1
            assert_same(made, _called(theirs, given_, seed), (image, seed))
    assert compared >= len(IMAGES) * len(SEEDS)


# ---- what needs no torchvision ----

EXACT = [
    f"Random{kind}" for kind in ("Autocontrast", "Equalize", "Invert", "Posterize", "Solarize")
]


@pytest.mark.parametrize(
    ("name", "arguments", "_"), [call for call in (*CALLS, *MIXES) if "expand" not in call[1]]
)
def test_the_core_does_to_tensors_what_torch_does(
    name: str, arguments: dict[str, Any], _: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one level, or exactly, but for ties of the nearest pixel, and what follows from it."""
    compared = []

    def by_core(image: torch.Tensor, operations: Any) -> torch.Tensor:
        expected = _tensors.changed(image, operations)
        several = [do(as_operation(one)) for one in operations]
        try:
            steps = [step.operation for one in several for step in for_tensors(one)]
        except ValueError:  # the core has not every result of tensors
            return expected
        pixels = image.permute(1, 2, 0).contiguous().numpy()
        made = augment(pixels, [one for one in steps if one], expected.shape[1:])
        compared.append((made[..., : len(expected)], expected.permute(1, 2, 0).numpy()))
        return expected

    monkeypatch.setattr(images, "on_tensor", by_core)
    for image, seed in ((one, seed) for one in IMAGES for seed in range(8)):
        dull = image.point([20 + level * 3 // 5 for level in range(256)] * 3)
        with suppress(ValueError):  # tensors are not warped with bicubic interpolation
            _called(getattr(own, name)(**arguments), _kinds(dull)[2], seed)
    level = 0 if name in EXACT else 1
    apart = [np.abs(made.astype(int) - expected) > level for made, expected in compared]
    share = np.mean(np.concatenate([one.ravel() for one in apart] or [[False]]))
    assert share <= (0 if name in EXACT else 0.01)


SIDES, SHARE = st.integers(1, 50), st.floats(0, 1)
ODD = st.sampled_from([1, 3, 5, 7, 13])
BORDERS = st.sampled_from(["constant", "edge", "reflect", "symmetric"])
FILL = st.integers(0, 255) | st.tuples(*[st.integers(0, 255)] * 3)
LOOK = {"interpolation": st.sampled_from(["nearest", "bilinear", "bicubic"]), "fill": FILL}
AUTOMATIC = {"fill": st.none() | FILL, "interpolation": LOOK["interpolation"]}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "AugMix": {
        "severity": st.integers(1, 10),
        "mixture_width": st.integers(1, 4),
        "chain_depth": st.integers(-1, 3),
        "all_ops": st.booleans(),
        "fill": st.none() | FILL,
    },
    "AutoAugment": {"policy": st.sampled_from(own.AutoAugmentPolicy), **AUTOMATIC},
    "CenterCrop": {"size": SIDES | st.tuples(SIDES, SIDES)},
    "ColorJitter": {
        **dict.fromkeys(("brightness", "contrast", "saturation"), SHARE),
        "hue": st.floats(0, 0.5),
    },
    "GaussianBlur": {"kernel_size": ODD | st.tuples(ODD, ODD), "sigma": st.floats(0.1, 9)},
    "Pad": {"padding": st.integers(0, 9), "fill": FILL, "padding_mode": BORDERS},
    "RandAugment": {"num_ops": st.integers(0, 3), "magnitude": st.integers(0, 30), **AUTOMATIC},
    "RandomAdjustSharpness": {"sharpness_factor": st.floats(0, 5), "p": SHARE},
    "RandomAffine": {
        "degrees": st.floats(0, 180),
        "shear": st.floats(0, 45),
        "center": st.none() | st.tuples(SIDES, SIDES),
        **LOOK,
    },
    "RandomAutocontrast": {"p": SHARE},
    "RandomCrop": {
        "size": SIDES,
        "pad_if_needed": st.just(True),
        "fill": FILL,
        "padding_mode": BORDERS,
    },
    "RandomEqualize": {"p": SHARE},
    "RandomGrayscale": {"p": SHARE},
    "RandomHorizontalFlip": {"p": SHARE},
    "RandomInvert": {"p": SHARE},
    "RandomPerspective": {"distortion_scale": SHARE, "p": SHARE, **LOOK},
    "RandomPosterize": {"bits": st.integers(1, 8), "p": SHARE},
    "RandomResizedCrop": {"size": SIDES},
    "RandomRotation": {"degrees": st.floats(0, 180), "expand": st.booleans(), **LOOK},
    "RandomSolarize": {"threshold": st.integers(0, 255), "p": SHARE},
    "Resize": {"size": st.tuples(SIDES, SIDES)},
    "TrivialAugmentWide": {"num_magnitude_bins": st.integers(2, 31), **AUTOMATIC},
}


@st.composite
def _calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    name = draw(st.sampled_from(sorted(ARGUMENTS)))
    return name, draw(st.fixed_dictionaries(ARGUMENTS[name]))


def _made(call: tuple[str, dict[str, Any]]) -> Any:
    return getattr(own, call[0])(**call[1])


@given(st.lists(_calls(), min_size=1, max_size=4), st.integers(0, 99), *[st.integers(1, 60)] * 2)
@WITHOUT_SHRINKING
def test_any_steps_in_turn_are_torchvisions(
    calls: list[Any], seed: int, height: int, width: int
) -> None:
    """Bit for bit on Pillow images and tensors of bytes of any size, if torchvision takes them."""
    theirs, ours = (
        own.Compose([_theirs(*call) for call in calls]),
        own.Compose(list(map(_made, calls))),
    )
    image, _grey, tensor, _floats = _kinds(PillowImage.fromarray(_pixels(height, width)))
    for given_ in (image, tensor):
        try:
            expected = _called(theirs, given_, seed)
        except (IndexError, RuntimeError, TypeError, ValueError):
            continue
        assert_same(_called(ours, given_, seed), expected, type(given_))


@given(_calls().map(_made), st.integers(0, 99), st.integers(20, 60), st.integers(20, 60))
@WITHOUT_SHRINKING
def test_any_call_has_one_result(transform: Any, seed: int, height: int, width: int) -> None:
    """An array has the pixels of a Pillow image, a copy those of the transform, grey stays grey."""
    image = PillowImage.fromarray(_pixels(height, width))
    expected = _called(transform, image, seed)

    assert_same(_called(transform, np.array(image), seed), expected)
    assert_same(_called(pickle.loads(pickle.dumps(transform)), image, seed), expected)
    one_channel = not isinstance(getattr(transform, "fill", None), tuple)
    if one_channel and not isinstance(transform, (own.AugMix, own.GaussianBlur)):  # by torch
        grey = image.convert("L")
        coloured = _called(transform, grey.convert("RGB"), seed)[:-1].reshape(-1, 3)
        assert_same(_called(transform, grey, seed)[:-1], coloured[:, 0])
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
        assert_same(dataset[number][0], of_file, number, within=1e-5)


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

    assert_same(batch[0], crop(file))
    assert torch.allclose(own.Compose([crop])(file), crop(file), atol=1.01 / 255 / 0.2)


ON_FLOATS = [
    own.ColorJitter(brightness=(1.4, 1.4)),
    own.ColorJitter(contrast=(1.7, 1.7)),
    own.ColorJitter(saturation=(1.8, 1.8)),
    own.Grayscale(3),
    own.RandomInvert(p=1.0),
]


@pytest.mark.parametrize(
    ("step", "normalised"),
    [*((one, False) for one in ON_FLOATS), *((one, True) for one in ON_FLOATS[:3])],
)
def test_colours_of_floats_in_a_loader(step: Any, normalised: bool) -> None:
    """Within half a level of the same on a tensor of floats, which clamps to 0 to 1."""
    tail = [own.Normalize((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))] if normalised else []
    pipeline = own.Compose([own.ToTensor(), *tail, step])
    dataset = Sources(PHOTOS[0].read_bytes(), transform=pipeline)
    with SeededLoader(dataset, 1, threads=1) as loader:
        (made,) = [images[0] for images, _ in loader]
    level = torch.tensor((0.2, 0.3, 0.4) if normalised else (1.0,)).reciprocal().view(-1, 1, 1)

    assert not dataset._resolved_transform().rest
    image = PillowImage.open(PHOTOS[0]).convert("RGB")
    assert ((made - pipeline(image)).abs() <= 0.51 * level / 255).all()


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
    assert_same(_called(Mine(p=1.0), image, 0), _called(own.RandomInvert(p=1.0), image, 0))


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
        (own.RandAugment(), torch.zeros(3, 5, 5)),
        (own.AugMix(), torch.zeros(3, 5, 5)),
        (own.RandomSolarize(100, p=1.0), torch.zeros(3, 5, 5)),
        (own.RandomAffine(9, interpolation="bicubic"), torch.zeros(3, 5, 5)),
        (own.GaussianBlur(11), torch.zeros(3, 5, 5)),
        (own.RandomInvert(p=1.0), torch.zeros(2, 3, 5, 5, dtype=torch.uint8)),
        (own.RandomCrop(100), IMAGES[0]),
        (own.Pad(1, fill=(1, 2, 3)), IMAGES[0].convert("L")),
        (own.RandomErasing(p=1.0, value=(1, 2)), torch.zeros(3, 5, 5)),
    ],
    ids=lambda one: type(one).__name__,
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
        assert_same(ours, _called(_theirs("RandomErasing", {"value": value}), image, seed), seed)
        arguments = {"p": 1.0, "value": value, "inplace": True}
        assert own.RandomErasing(**arguments)(image) is image


@pytest.mark.parametrize("make", ["RandomApply", "RandomChoice", "RandomOrder"])
def test_containers_draw_as_torchvisions(make: str) -> None:
    """Which of the transforms are called, and in which order."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    parts = [own.RandomInvert(p=0.5), own.RandomSolarize(99, p=0.8), own.RandomPosterize(2, p=0.7)]
    for seed in range(20):
        expected = _called(getattr(v2, make)(parts), IMAGES[0], seed)
        assert_same(_called(getattr(own, make)(parts), IMAGES[0], seed), expected, seed)


def test_conversions_are_those_of_torchvision() -> None:
    """Of bytes and floats, there and back."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    v1 = pytest.importorskip("torchvision.transforms")
    levels = torch.arange(256, dtype=torch.uint8).view(1, 16, 16)
    for dtype in (torch.uint8, torch.float32, torch.float16, torch.float64):
        for scale in (False, True):
            ours, theirs = own.ToDtype(dtype, scale), v2.ToDtype(dtype, scale)
            for image in (levels, levels / 255, levels.double() / 255):
                assert_same(ours(image), theirs(image), (dtype, scale, image.dtype))
    assert_same(own.ConvertImageDtype()(levels), v2.ConvertImageDtype()(levels))
    for mode in ("RGB", "L", "1", "I", "F"):
        image = IMAGES[0].convert("L").convert(mode)
        assert_same(own.PILToTensor()(image), v2.PILToTensor()(image), mode)
        assert_same(own.ToTensor()(image), v1.ToTensor()(image), mode)


if __name__ == "__main__":
    for at, (called, how, _) in enumerate(CALLS):
        print(at, called, checksum(_theirs(called, how)))  # noqa: T201
    for called, how, _ in MIXES:
        print(called, how, round(_level(_theirs(called, how)), 3))  # noqa: T201
