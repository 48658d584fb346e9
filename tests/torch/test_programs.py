"""Programs of augmentations compared with torchvision and timm: operations, pixels and draws."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from cases import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from same import assert_same
from torch_reference import PHOTOS

pytest.importorskip("torchvision")
pytest.importorskip("timm")

import timm.data.auto_augment as timm
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import autoaugment, v2
from torchvision.transforms import functional as v1_functional
from torchvision.transforms import transforms as v1

from fastdecode.native._augment import Operation, augment, draw_operations
from fastdecode.torch import fuse
from fastdecode.torch._programs import Look
from fastdecode.torch._recognise import program_of, tensor_program_of

SIZE = (96, 128)
PHOTO = Image.open(PHOTOS[0]).convert("RGB").resize(SIZE[::-1])
PIXELS = np.asarray(PHOTO)


def _near(made: Any, expected: Any, operation: Operation) -> None:
    """Assert that nearly all values are equal, and the others within 1 level.

    Nearest neighbours may be others for a few pixels. Torchvision's two versions, and its kernels,
    round autocontrast and sharpness differently.
    """
    levels = np.abs(made.astype(int) - expected)
    apart = (levels > 1).any(-1)
    assert apart.sum() <= (max(4, 1e-3 * apart.size) if operation.filter == "nearest" else 0)
    if operation.kind not in ("autocontrast", "sharpness"):
        assert (levels > 0).sum() <= 20 + 0.02 * levels.size, operation


COLOURS = ("brightness", "contrast", "saturation", "sharpness")
SIDES = st.one_of(st.integers(1, 8), st.integers(1, 300))


@pytest.mark.parametrize("library", [v1_functional, v2.functional], ids=["v1", "v2"])
@given(st.integers(0, 2**32), SIDES, SIDES)
@settings(deadline=None, max_examples=examples(25))
def test_tensors_get_torchvisions_results(library: Any, seed: int, height: int, width: int) -> None:
    """Each operation for tensors is within 1 level of torchvision's function."""
    draws, noise = random.Random(seed), np.random.default_rng(seed)
    pixels = np.asarray(PHOTO.resize((width, height)))
    if seed % 2:
        pixels = noise.integers(0, 256, (height, width, 3)).astype(np.uint8)
    image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    factor, shift = draws.uniform(0, 2.5), draws.uniform(-0.5, 0.5)
    turn, scale = draws.uniform(-200, 200), draws.uniform(0.4, 2.0)
    moved = [draws.randint(-20, 20) for _ in "xy"]
    shear = [draws.uniform(-40, 40) for _ in "xy"]
    expected = {
        Operation(kind, (factor,)): getattr(library, f"adjust_{kind}")(image, factor)
        for kind in COLOURS
    }
    expected |= {
        Operation("hue", (shift,)): library.adjust_hue(image, shift),
        Operation("grey"): library.rgb_to_grayscale(image, 3),
        Operation("autocontrast"): library.autocontrast(image),
        Operation("equalize"): library.equalize(image),
        Operation("solarize", (100 * factor,)): library.solarize(image, 100 * factor),
        Operation("posterize", (3.0,)): library.posterize(image, 3),
    }
    for mode, fill in product((Mode.NEAREST, Mode.BILINEAR), (None, [9.0, 128.0, 200.0])):
        look = Look.of(mode, fill)
        expected[Operation("rotate", (turn,), *look)] = library.rotate(image, turn, mode, fill=fill)
        expected[Operation("affine", (turn, *moved, scale, *shear), *look)] = library.affine(
            image, turn, moved, scale, shear, mode, fill
        )
    for operation, theirs in expected.items():
        made = augment(pixels, [operation._replace(library="torchvision")])
        _near(made, theirs.permute(1, 2, 0).numpy(), operation)


@pytest.mark.parametrize("mode", [Mode.NEAREST, Mode.BILINEAR, Mode.BICUBIC], ids=str)
@given(st.data())
@settings(deadline=None, max_examples=examples(50))
def test_affine_has_the_pixels_of_pillow_images(mode: Mode, data: Any) -> None:
    """Any angle, move, scale and shear of an image of any size is v2's, bit for bit.

    v1 rounds its matrix otherwise: a pixel that lies between two levels may get the other one.
    """
    width, height = data.draw(SIDES), data.draw(SIDES)
    noise = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    pixels = noise.integers(0, 256, (height, width, 3)).astype(np.uint8)
    turn, scale = data.draw(st.floats(-400, 400)), data.draw(st.floats(0.05, 4))
    moves = [data.draw(st.integers(-side, side)) for side in (width, height)]
    shear = [data.draw(st.floats(-60, 60)) for _ in "xy"]
    fill = data.draw(st.tuples(*[st.integers(0, 255)] * 3))
    given = (Image.fromarray(pixels), turn, moves, scale, shear, mode)
    by_v2, by_v1 = (
        np.asarray(m.affine(*given, fill=list(fill))) for m in (v2.functional, v1_functional)
    )
    look = Look.of(mode, fill)
    made = augment(pixels, [Operation("affine", (turn, *moves, scale, *shear), *look)])
    assert_same(made, by_v2)
    assert np.abs(made.astype(int) - by_v1).max() <= (mode is not Mode.NEAREST)


@pytest.mark.parametrize("of_tensors", [False, True])
def test_photometric_distort_is_torchvisions(of_tensors: bool) -> None:
    """Each drawn program has torchvision's result for the same numbers; all orders are drawn."""
    transform, kinds = v2.RandomPhotometricDistort(), Counter[str]()
    colours = ("brightness", "contrast", "saturation", "hue")
    make = tensor_program_of if of_tensors else program_of
    image = v2.functional.to_image(PHOTO) if of_tensors else PHOTO
    orders, permutations = set(), set()
    for seed in range(1500):
        operations, _ = draw_operations(make(transform, SIZE), seed * 7919)
        names = [operation.kind for operation in operations]
        kinds.update(names)
        orders.add(tuple(names))
        drawn: dict[str, Any] = {one.kind: one.value[0] for one in operations}
        params: dict[str, Any] = {f"{name}_factor": drawn.get(name) for name in colours}
        later = [name for name in names if name in ("contrast", "saturation", "hue")]
        params["contrast_before"] = later[:1] == ["contrast"]
        params["channel_permutation"] = None
        if names[-1:] == ["permute"]:
            permutations.add(operations[-1].value[:3])
            params["channel_permutation"] = torch.tensor(operations[-1].value[:3]).long()
        if seed < 60:
            expected = v2.functional.to_image(transform.transform(image, params))
            levels = augment(PIXELS, operations) - expected.permute(1, 2, 0).numpy().astype(int)
            assert abs(levels).max() <= (6 if of_tensors else 0)
    assert len(orders) == 2 * 2 * (4 + 7)
    assert len(permutations) == 6
    assert all(abs(kinds[name] - 750) < 90 for name in (*colours, "permute"))


UNKNOWN = [
    v1.RandomApply([v1.Grayscale(1)]),
    v1.Pad(-3),
    v1.Resize(20, max_size=20.5),
    v1.GaussianBlur((3, 251)),
    v1.GaussianBlur(201),
    v1.FiveCrop(9),
    v1.RandomApply([v1.FiveCrop(9)]),
    v1.RandomApply([v1.RandomErasing(1.0, value=255)]),
    v1.RandomChoice([]),
    v1.RandomChoice([v1.Grayscale(3)], p=[0]),
    v1.RandomChoice([v1.Grayscale(3)], p=[0.5, 0.5]),
    v1.GaussianBlur(301, 5.0),
    autoaugment.RandAugment(2, 31),
    autoaugment.RandAugment(2, 9.0),  # type: ignore[arg-type]
    autoaugment.TrivialAugmentWide(num_magnitude_bins=1),
    v2.RandomRotation(10, fill={Image.Image: 128, "others": 0}),
    v2.AugMix(alpha=0.01),
    # These are beyond the limits of the core.
    autoaugment.RandAugment(100, 3),
    v1.RandomOrder([v1.RandomInvert(0.01)] * 100),
    v1.RandomSolarize(1e9),
    v1.RandomRotation((0, 1e8)),
    v1.ColorJitter(brightness=(0, 1e7)),
    v1.RandomPosterize(9),
]


@pytest.mark.parametrize("transform", UNKNOWN, ids=repr)
def test_what_the_core_cannot_do_runs_as_written(transform: Any) -> None:
    """It is called, in a Loader too, and nothing else is done in its place."""
    side = 400 if "301" in repr(transform) else 64
    shown = repr(fuse(v1.Compose([v1.RandomResizedCrop(side), transform, v1.ToTensor()])))
    assert "while decoding: RandomResizedCrop" in shown
    assert "in Python, in" in shown


TIMM = {
    "rand-m9-inc1": timm.rand_augment_transform,
    "rand-m7-n3-p1.0-t3a": timm.rand_augment_transform,
    "rand-m9-n2-p1.0-t3aw": timm.rand_augment_transform,
    "rand-m5-n4-p1.0-tweights": timm.rand_augment_transform,
    "augmix-m5-w4-d2-mstd0": timm.augment_and_mix_transform,
    "original": timm.auto_augment_transform,
    "v0r": timm.auto_augment_transform,
}


@pytest.mark.parametrize("name", TIMM)
def test_timms_operations_give_its_pixels(name: str) -> None:
    """Each operation of a policy gives timm's pixels, with one sign or the other."""
    how = {"interpolation": Image.Resampling.BICUBIC, "img_mean": (124, 116, 104)}
    policy = TIMM[name](name, how)
    ops = policy.ops if hasattr(policy, "ops") else [op for one in policy.policy for op in one]
    for op in ops:
        op.prob = 1.0
        random.seed(op.name)
        expected = np.asarray(op(PHOTO))
        program = program_of(timm.AutoAugment([[op]]), SIZE)
        drawn = {draw_operations(program, seed)[0][0] for seed in range(20)}
        assert len(drawn) <= 2
        assert any(np.array_equal(augment(PIXELS, [each]), expected) for each in drawn), op.name


@pytest.mark.parametrize("holder", [lambda part: part, lambda part: v1.RandomApply([part])])
def test_timms_augmentations_of_tensors_are_called(holder: Any) -> None:
    """They take Pillow images, also inside of another transform."""
    policy = holder(timm.AutoAugment([[timm.AugmentOp("Posterize")]]))
    for begin, is_called in (([], False), ([v1.PILToTensor()], True)):
        shown = repr(fuse(v1.Compose([*begin, v1.RandomResizedCrop(64), policy])))
        assert ("in Python, in" in shown) == is_called


def test_a_part_of_several_steps_is_one_choice() -> None:
    """RandomChoice and RandomOrder choose among their parts, however many steps each has."""
    crops = [v1.RandomCrop(9, padding=4), v1.RandomResizedCrop(9)]
    for holder in (v1.RandomChoice(crops), v1.RandomChoice([crops[0], v1.Pad(2)])):
        program = program_of(holder, (40, 40))
        assert len(program.parts[0].inner) == 2
        for state in range(40):
            kinds = [each.kind for each in draw_operations(program, state, 40, 40)[0]]
            assert kinds in (["pad", "crop"], ["crop", "resize"], ["pad"])
