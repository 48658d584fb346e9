"""albumentations' transforms in the core, against the same transforms as written.

FASTDECODE_SEEDS is the number of pipelines.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from cases import examples
from corpus import native_core
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import SeededLoader, Sources
from PIL import Image as PillowImage
from random_transforms import WITHOUT_SHRINKING
from same import assert_same
from torch_reference import PHOTOS

from fastdecode.native._augment import Impossible, Operation, augment, draw_in_core, draw_operations
from fastdecode.testing import encode
from fastdecode.torch._albumentations import program_of

pytest.importorskip("albumentations")
import cv2
from albumentations_steps import MOVES, NO, SAME, SCALED, STEPS, A, ToTensorV2, axes

native_core()
SEEDS = settings(WITHOUT_SHRINKING, max_examples=examples(100))
HEIGHT, WIDTH = 48, 64
with PillowImage.open(PHOTOS[0]) as opened:
    _SMALL = opened.convert("RGB").resize((WIDTH, HEIGHT))
FILES = [encode(_SMALL), encode(_SMALL.transpose(PillowImage.Transpose.ROTATE_90), "png")]
IMAGES = [np.array(PillowImage.open(io.BytesIO(file)).convert("RGB")) for file in FILES]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Ignore what albumentations warns of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def made(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {**STEPS, **SCALED}[name].make()


def loaded(compose: Any, *files: bytes, in_core: bool = True, **options: Any) -> list[Any]:
    """Return the samples of a Loader in threads; the core makes them unless some step is called."""
    dataset = Sources(*(files or FILES), transform=compose, **options)
    assert ("in Python, in" not in repr(dataset)) == in_core
    with SeededLoader(dataset, 1, threads=2, collate_fn=list) as loader:
        return [sample for batch in loader for sample, _ in batch]


def check(result: Any, expected: Any, allowed: float) -> None:
    """Check the type, the shape and the values of a result."""
    assert type(result) is type(expected)
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    apart = np.abs(np.asarray(result, np.float64) - np.asarray(expected, np.float64))
    if np.isfinite(allowed):
        # A warp may take a pixel on the other side of a tie, and a hue may be on that of a jump.
        assert (apart > allowed + 1e-4).mean() <= 2e-3
    else:
        assert apart.mean() <= (10 if result.dtype in (np.uint8, torch.uint8) else 0.2)


@pytest.mark.parametrize("name", STEPS)
def test_each_step_is_that_of_albumentations(name: str) -> None:
    """It is within a level of albumentations' result, for arrays as for Pillow images."""
    step = made(name)
    compose = A.Compose([step])
    for result, image in zip(loaded(compose), IMAGES, strict=True):
        check(result, compose(image=image)["image"], STEPS[name].error)
    check(loaded(compose, output="array")[0], compose(image=IMAGES[0])["image"], STEPS[name].error)


WHITE = [
    [[[255, 255, 0], [255, 9, 0], [255, 255, 255]]],
    [[[255, 20, 3], [100, 30, 255], [100, 255, 70], [255, 30, 255], [255, 255, 3]]],
]
"""Images of one row: each channel has another number of levels below white."""


@pytest.mark.parametrize("rows", WHITE)
def test_white_is_not_among_the_levels_that_autocontrast_spreads(rows: Any) -> None:
    """It stays white; and one other level alone stays, too."""
    image, compose = np.array(rows, np.uint8), A.Compose([made("AutoContrast")])
    (result,) = loaded(compose, encode(PillowImage.fromarray(image), "png"))
    check(result, compose(image=image)["image"], 1)


@pytest.mark.parametrize("sides", [(1, 9), (9, 1), (1, 1)])
def test_perspective_of_an_image_of_a_row_is_as_written(sides: tuple[int, int]) -> None:
    """There, albumentations moves corners that are less than two pixels apart."""
    image = np.random.default_rng(5).integers(0, 256, (*sides, 3), np.uint8)
    step = made("Perspective of nothing")
    with pytest.raises(Impossible):
        draw_in_core(program_of(step, sides), 1, sides[1], sides[0])
    compose = A.Compose([step])
    (result,) = loaded(compose, encode(PillowImage.fromarray(image), "png"))
    check(result, compose(image=image)["image"], 0)


def nested(names: list[str], how: str) -> Any:
    """Return steps as they may be nested."""
    steps = [made(name) for name in names]
    if how == "OneOf":
        return A.OneOf([A.Sequential(steps, p=1), A.NoOp(p=0)], p=1)
    return {"Sequential": A.Sequential, "Compose": A.Compose}[how](steps, p=1)


@SEEDS
@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, None, "OneOf", "Sequential", "Compose"]),
            st.lists(st.sampled_from(list(STEPS)), min_size=1, max_size=3),
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([None, *SCALED]),
    st.lists(st.sampled_from(list(MOVES)), max_size=1),
    st.booleans(),
)
def test_steps_in_any_order_give_what_they_give_as_written(
    groups: list[tuple[str | None, list[str]]], scaled: str | None, last: list[str], tensor: bool
) -> None:
    """The core does them all, nested or not, within the sum of what each may add and amplify."""
    parts: list[Any] = []
    allowed = 0.0
    for how, names in groups:
        parts += [made(name) for name in names] if how is None else [nested(names, how)]
        for name in names:
            step = STEPS[name]
            allowed = (allowed * step.gain if allowed else 0.0) + step.error
    parts += [made(scaled)] if scaled else []
    parts += [made(name) for name in last]
    parts += [ToTensorV2()] if tensor else []
    allowed *= SCALED[scaled].gain if scaled else 1
    compose = A.Compose(parts)
    expected = []
    try:
        expected = [compose(image=image)["image"] for image in IMAGES]
    except Exception:  # of any kind: a crop that is larger than the image
        return
    for result, theirs in zip(loaded(compose), expected, strict=True):
        check(result, theirs, allowed)


# ---- draws ----

FLIPS = [A.HorizontalFlip(p=0.2), A.VerticalFlip(p=0.6)]
DRAWS = 4000


def affine(**how: Any) -> Any:
    return A.Affine(**{"scale": axes(1, 1), "shear": axes(0, 0), "rotate": NO, **how})


# For each operation how often it comes, or the means of its numbers; None is not compared. The mean
# of an affine translation is half a pixel less, because it is truncated. A side of a crop is the
# root of its area, whose mean over 0.1 to 0.3 is 0.44115.
ROOT, CORNER = 80 * 0.44115, 80 * 0.05 * 0.798
DRAWN: dict[str, tuple[Callable[[], Any], dict[str, float | tuple[float | None, ...]]]] = {
    "a probability": (lambda: A.HorizontalFlip(p=0.3), {"mirror": 0.3}),
    "OneOf": (lambda: A.OneOf(FLIPS, p=0.5), {"mirror": 0.125, "turn_over": 0.375}),
    "OneOrOther": (
        lambda: A.OneOrOther(transforms=FLIPS, p=0.3),
        {"mirror": 0.3, "turn_over": 0.7},
    ),
    "Sequential": (lambda: A.Sequential(FLIPS, p=0.5), {"mirror": 0.1, "turn_over": 0.3}),
    "RandomCrop": (lambda: A.RandomCrop(40, 60, p=1), {"crop": (10.0, 20.0)}),
    "how often RandomRotate90": (lambda: A.RandomRotate90(p=1), {"rotate": 0.75}),
    "RandomRotate90": (lambda: A.RandomRotate90(p=1), {"rotate": (135.0,)}),
    "RandomResizedCrop": (
        lambda: A.RandomResizedCrop(size=(8, 8), scale=(0.1, 0.3), ratio=SAME, p=1),
        {"crop": (None, None, ROOT, ROOT)},
    ),
    "Affine": (
        lambda: affine(
            scale={"x": (0.5, 1.5), "y": SAME},
            shear={"x": (2.0, 6.0), "y": (-6.0, -2.0)},
            rotate=(-20.0, 40.0),
            translate_percent={"x": (0.0, 0.5), "y": (-0.5, 0.0)},
            p=1,
        ),
        {"affine": (10.0, 19.5, -19.5, 1.0, -4.0, 4.0, 1.0)},
    ),
    "Affine by pixels": (
        lambda: affine(translate_px={"x": (-3, 4), "y": (2, 2)}, p=0.5),
        {"affine": (None, 0.25, 1.0)},
    ),
    "RandomBrightnessContrast": (
        lambda: A.RandomBrightnessContrast((-0.2, 0.4), (0.0, 0.5), p=1),
        {"levels": (1.25, 25.5)},
    ),
    "GaussianBlur": (
        lambda: A.GaussianBlur(blur_limit=(3, 6), sigma_limit=(1.0, 2.0), p=1),
        {"blur": (5.0, 1.5, 1.5)},
    ),
    "RandomGamma": (lambda: A.RandomGamma(gamma_limit=(60.0, 160.0), p=1), {"gamma": (1.1,)}),
    "RGBShift": (
        lambda: A.RGBShift((-10, 20), (-30, 10), (4, 4), p=1),
        {"channels": (None, None, None, 5.0, -10.0, 4.0)},
    ),
    "Sharpen": (
        lambda: A.Sharpen(alpha=(0.2, 0.6), lightness=(0.5, 1.0), method="kernel", p=1),
        {"convolve": (0.4, 0.75)},
    ),
    "Posterize": (lambda: A.Posterize(num_bits=(2, 5), p=1), {"posterize": (3.5,)}),
    "MedianBlur": (lambda: A.MedianBlur(blur_limit=(3, 7), p=1), {"median": (5.0,)}),
    "Downscale": (lambda: A.Downscale(scale_range=(0.2, 0.6), p=1), {"downscale": (0.4,)}),
    "ChannelDropout": (
        lambda: A.ChannelDropout(channel_drop_range=(1, 2), fill=30.0, p=1),
        {"channels": (0.5, 0.5, 0.5, 15.0, 15.0, 15.0)},
    ),
    "MultiplicativeNoise": (
        lambda: A.MultiplicativeNoise((0.5, 0.9), per_channel=False, elementwise=False, p=1),
        {"levels": (0.7,)},
    ),
    "RandomScale": (lambda: A.RandomScale(scale_limit=(-0.5, 0.0), p=1), {"resize": (59.5, 59.5)}),
    "RandomSizedCrop": (
        lambda: A.RandomSizedCrop(min_max_height=(20, 40), size=(9, 7), w2h_ratio=0.5, p=1),
        {"crop": ((80 - 14.76) / 2, 25.0, 14.76, 30.0), "resize": (7.0,)},
    ),
    "OpticalDistortion": (lambda: A.OpticalDistortion((-0.1, 0.5), p=1), {"lens": (0.2,)}),
    "Perspective": (
        lambda: A.Perspective(scale=(0.05, 0.05), p=1),
        {"perspective": (None, None, CORNER, None, None, CORNER)},
    ),
    "PadIfNeeded": (
        lambda: A.PadIfNeeded(min_height=90, min_width=100, position="random", p=1),
        {"pad": (10.0, 5.0, 10.0)},
    ),
    "LongestMaxSize": (lambda: A.LongestMaxSize(max_size=[20, 40]), {"resize": (30.0, 30.0)}),
}


@pytest.mark.parametrize("name", DRAWN)
def test_draws_have_the_distribution_of_albumentations(name: str) -> None:
    """The means over many draws for an image of 80 x 80 are those of its documentation."""
    make, expected = DRAWN[name]
    program = program_of(make(), (80, 80))
    drawn = [draw_operations(program, 7919 * at, 80, 80)[0] for at in range(DRAWS)]
    for kind, means in expected.items():
        found = [[one for one in operations if one.kind == kind] for operations in drawn]
        is_count = isinstance(means, float)
        for at, mean in enumerate([means] if is_count else means):
            if mean is None:
                continue
            values = np.array([len(f) if is_count else sum(o.value[at] for o in f) for f in found])
            error = 4.5 * values.std() / DRAWS**0.5 + 0.02 * abs(mean) + 0.01
            assert abs(values.mean() - mean) < error, (kind, at)


def test_noise_has_the_deviation_and_the_mean_that_are_drawn() -> None:
    """Of one number for a pixel, or one for each of its channels."""
    grey = np.full((200, 200, 3), 128, np.uint8)
    for per_channel in (True, False):
        how = {"std_range": (0.1, 0.1), "mean_range": (0.05, 0.05), "noise_scale_factor": 1}
        noise = A.GaussNoise(**how, per_channel=per_channel, p=1)
        operations, _ = draw_operations(program_of(noise, (200, 200)), 5, 200, 200)
        apart = augment(grey, operations).astype(float) - 128

        assert abs(apart.std() - 25.5) < 0.7
        assert abs(apart.mean() - 12.75) < 0.7
        assert (np.ptp(apart, axis=2) == 0).all() == (not per_channel)


def moved(transform: Any, seed: int, side: int = 120, rows: slice = slice(30, -30)) -> Any:
    """Return how far each pixel of a square comes from across and down."""
    ramp = np.arange(side, dtype=np.uint8)
    image = np.stack([*np.meshgrid(ramp, ramp), np.zeros((side, side), np.uint8)], axis=2)
    drawn = draw_in_core(program_of(transform, (side, side)), seed, side, side)
    made = augment(image, drawn.operations)
    return (made.astype(float) - image)[rows, 30:-30, :2]


@pytest.mark.parametrize("noise", ["gaussian", "uniform"])
def test_an_elastic_transform_moves_pixels_as_far_as_that_of_albumentations(noise: Any) -> None:
    """By noise that is blurred, of another seed for each sample, and alike on both axes if so."""
    numbers, apart = np.random.default_rng(0), []
    for _ in range(20):
        field = np.asarray(numbers.standard_normal((120, 120)), np.float32)
        field /= np.abs(field).max()
        field = numbers.uniform(-1, 1, (120, 120)) if noise == "uniform" else field
        apart.append(cv2.GaussianBlur(field, (0, 0), 4.0) * 150)
    how = {"alpha": 150, "sigma": 4.0, "noise_distribution": noise, "p": 1}
    ours = np.array([moved(A.ElasticTransform(**how), seed) for seed in range(20)])
    alike = moved(A.ElasticTransform(**how, same_dxdy=True), 3)

    assert ours.std() == pytest.approx(np.std(apart), rel=0.1)
    assert abs(np.corrcoef(ours[..., 0].ravel(), ours[..., 1].ravel())[0, 1]) < 0.2
    assert np.corrcoef(alike[..., 0].ravel(), alike[..., 1].ravel())[0, 1] > 0.9
    assert not np.array_equal(ours[0], ours[1])


def test_the_steps_of_a_grid_are_drawn_alone() -> None:
    """Where the first of two ends is uniform, and says nothing of where that of the rows does."""
    grid = A.GridDistortion(2, (-0.3, 0.3), normalized=False, border_mode=1, p=1)
    ends = np.array([moved(grid, seed)[29, 29] for seed in range(400)])

    assert abs(ends.mean()) < 2
    assert ends.std() == pytest.approx(60 * 0.6 / 12**0.5, rel=0.1)
    assert abs(np.corrcoef(ends.T)[0, 1]) < 0.2


@SEEDS
@given(st.integers(3, 70), st.integers(3, 70), st.sampled_from([3, 5, 7, 15]), st.integers(0, 99))
def test_a_median_is_that_of_opencv(height: int, width: int, side: int, seed: int) -> None:
    """Bit for bit, whatever the sizes."""
    image = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)
    made = augment(image, [Operation("median", (float(side),), library="opencv")])

    assert_same(made, cv2.medianBlur(image, side))


def test_holes_have_the_sizes_that_are_drawn_and_lie_anywhere() -> None:
    """Their number, their sides, in pixels or shares, and their places are all drawn."""
    for sides, low, high in (((10, 20), 10, 20), ((0.125, 0.25), 10, 19)):
        dropout = A.CoarseDropout(
            num_holes_range=(2, 4), hole_height_range=sides, hole_width_range=sides, fill=9.0, p=1
        )
        program = program_of(dropout, (80, 80))
        drawn = [draw_operations(program, at, 80, 80)[0] for at in range(500)]
        boxes = np.array([one.value[:4] for some in drawn for one in some])

        assert {len(some) for some in drawn} == {2, 3, 4}
        assert set(boxes[:, 2:].ravel()) == set(range(low, high + 1))
        assert boxes[:, :2].min() == 0
        assert (boxes[:, :2] + boxes[:, 2:]).max() == 80
        assert (augment(IMAGES[0], draw_operations(program, 1, 64, 48)[0]) == 9).any()


def test_a_border_after_the_normalisation_is_not_normalised() -> None:
    """What fills floats is what was given."""
    compose = A.Compose([made("Resize"), made("Normalize"), made("CenterCrop padded")])
    for sample, image in zip(loaded(compose, in_core=False), IMAGES, strict=True):
        check(sample, compose(image=image)["image"], 1 / 51)


@pytest.mark.parametrize("kind", [A.ToSepia, A.ISONoise])
def test_a_step_of_albumentations_itself_is_seeded_and_ends_nothing(kind: Any) -> None:
    """Threads call copies of it, which draw from the sample's seed; the rest is in the core."""
    parts = [made("Resize"), A.HorizontalFlip(p=0.5), kind(p=1), made("InvertImg"), ToTensorV2()]
    dataset = Sources(*FILES * 4, transform=A.Compose(parts))
    fused = dataset._resolved_transform()

    assert fused.isolated
    assert [type(stage).__name__ for stage in fused.steps] == ["Called", "Following"]
    results = []
    for how in ({"threads": 1}, {"threads": 3}, {"num_workers": 1}):
        with SeededLoader(dataset, 1, shuffle=False, **how) as loader:
            results.append([batch[0] for batch in loader])
    assert_same(results[0], results[1])
    assert_same(results[0], results[2])
    if kind is A.ISONoise:  # it draws from its own generator
        assert len({one.numpy().tobytes() for one in results[0][::2]}) > 2
