"""Programs of augmentations compared with torchvision and timm: operations, pixels and draws."""

from __future__ import annotations

import os
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

from torchvision.transforms import AutoAugmentPolicy, autoaugment, v2
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import functional as v1_functional
from torchvision.transforms import transforms as v1

from fastdecode.native._augment import Operation, augment, draw_operations
from fastdecode.torch import _programs, fuse
from fastdecode.torch._programs import Unsupported
from fastdecode.torch._recognise import program_of, tensor_program_of

SIZE = (96, 128)
PHOTO = Image.open(PHOTOS[0]).convert("RGB").resize(SIZE[::-1])
PIXELS = np.asarray(PHOTO)
POLICIES = [
    make(interpolation=mode)
    for mode in (Mode.NEAREST, Mode.BILINEAR)
    for module in (autoaugment, v2)
    for make in (
        module.TrivialAugmentWide,
        module.RandAugment,
        lambda module=module, **how: module.RandAugment(3, 13, fill=[9, 128, 200], **how),
        *(
            lambda module=module, policy=policy, **how: module.AutoAugment(policy, fill=7, **how)
            for policy in AutoAugmentPolicy
        ),
    )
]


def _recorded(policy: Any, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Record the operations that a policy applies, in their order."""
    record: list[tuple[str, float]] = []
    if hasattr(policy, "_apply_image_or_video_transform"):
        original = policy._apply_image_or_video_transform

        def apply(image: Any, name: str, magnitude: float, **how: Any) -> Any:
            record.append((name, magnitude * (255.0 if name == "Solarize" else 1.0)))
            return original(image, name, magnitude, **how)

        monkeypatch.setattr(policy, "_apply_image_or_video_transform", apply)
    else:
        apply_op = autoaugment._apply_op

        def apply_v1(image: Any, name: str, magnitude: float, **how: Any) -> Any:
            record.append((name, magnitude))
            return apply_op(image, name, magnitude, **how)

        monkeypatch.setattr(autoaugment, "_apply_op", apply_v1)
    return record


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_policies_give_torchvisions_pixels(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a policy draws is in its program, and the core's result equals torchvision's.

    FASTDECODE_SEEDS is the number of draws.
    """
    possible = {step.operation for step in program_of(policy, SIZE)}
    record = _recorded(policy, monkeypatch)
    fill = policy.fill if isinstance(policy.fill, (list, int, float)) else None
    how = (_programs.Look.of(policy.interpolation, fill),)
    for seed in range(int(os.environ.get("FASTDECODE_SEEDS", "40"))):
        record.clear()
        torch.manual_seed(seed)
        expected = np.asarray(policy(PHOTO))
        programs = [_programs.torchvision_operation(*drawn, *how) for drawn in record]
        operations = [step.operation for program in programs for step in program if step.operation]
        assert set(operations) <= possible
        assert_same(augment(PIXELS, operations), expected, seed)


def _chances(observed: Counter[Any], expected: Counter[Any]) -> float:
    """Return chi-square over its degrees of freedom for two samples; about 1 if they agree."""
    total, other = sum(observed.values()), sum(expected.values())
    keys = observed.keys() | expected.keys()
    squares = [
        (observed[key] * (other / total) ** 0.5 - expected[key] * (total / other) ** 0.5) ** 2
        / (observed[key] + expected[key])
        for key in keys
    ]
    return sum(squares) / max(1, len(keys) - 1)


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
        look = _programs.Look.of(mode, fill)
        expected[Operation("rotate", (turn,), *look)] = library.rotate(image, turn, mode, fill=fill)
        expected[Operation("affine", (turn, *moved, scale, *shear), *look)] = library.affine(
            image, turn, moved, scale, shear, mode, fill
        )
    for operation, theirs in expected.items():
        made = augment(pixels, [operation._replace(library="torchvision")])
        _near(made, theirs.permute(1, 2, 0).numpy(), operation)


@pytest.mark.parametrize("tensor", [False, True], ids=["pillow", "tensor"])
@pytest.mark.parametrize("module", [autoaugment, v2], ids=["v1", "v2"])
def test_augmix_is_torchvisions(module: Any, tensor: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With torchvision's operations and weights, the mix is torchvision's.

    Differences of 1 level grow along a chain, for instance where Equalize follows.
    """
    policy = module.AugMix(severity=5, fill=[9, 128, 200])
    program = program_of(policy, SIZE)
    assert program[0].kind == "mix"
    possible = {step.operation for step in program}
    record, weights = _recorded(policy, monkeypatch), []
    sample = policy._sample_dirichlet

    def dirichlet(parameters: torch.Tensor) -> torch.Tensor:
        weights.append(sample(parameters))
        record.append(("weights", 0.0))
        return weights[-1]

    policy._sample_dirichlet = dirichlet
    randint = torch.randint

    def chain_length(*arguments: Any, **options: Any) -> torch.Tensor:
        drawn = randint(*arguments, **options)
        if options.get("low") == 1:
            record.append(("chain", float(drawn)))
        return drawn

    monkeypatch.setattr(torch, "randint", chain_length)
    image = v1_functional.pil_to_tensor(PHOTO) if tensor else PHOTO
    for seed in range(10):
        record.clear()
        weights.clear()
        torch.manual_seed(seed)
        result = policy(image)
        expected = result.permute(1, 2, 0).numpy() if tensor else np.asarray(result)
        (both,), (chains,) = weights[0].tolist(), weights[1].tolist()
        operations = [Operation("mix_begin", (both[0],))]
        starts = [at for at, (name, _) in enumerate(record) if name == "chain"]
        for start, share in zip(starts, chains, strict=True):
            for name, level in record[start + 1 : start + 1 + int(record[start][1])]:
                look = _programs.Look.of(policy.interpolation, policy.fill)
                made = _programs.torchvision_operation(name, level, look)
                one = _programs.for_tensors(made)[0].operation
                assert one in possible or one is None
                operations += [one] if one else []
            operations.append(Operation("mix_add", (float(np.float32(share) * both[1]),)))
        ours = augment(PIXELS, [*operations, Operation("mix_end", (1.0,))])
        assert np.abs(ours.astype(int) - expected).mean() < 0.5


@pytest.mark.parametrize("policy", POLICIES[:6], ids=repr)
def test_policies_draw_as_often_as_torchvision(
    policy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of operations and their kinds are distributed as in torchvision."""
    count, record = 2000, _recorded(policy, monkeypatch)
    small = Image.new("RGB", (8, 8))
    program = program_of(policy, (8, 8))
    theirs: Counter[Any] = Counter()
    torch.manual_seed(0)
    for _ in range(count):
        record.clear()
        policy(small)
        theirs[sum(name != "Identity" for name, _ in record)] += 1
        theirs.update(name for name, _ in record if name in ("Equalize", "Posterize", "Rotate"))
    ours: Counter[Any] = Counter()
    names = {"equalize": "Equalize", "posterize": "Posterize", "rotate": "Rotate"}
    for seed in range(count):
        operations, _ = draw_operations(program, seed * 7919)
        ours[len(operations)] += 1
        ours.update(names[each.kind] for each in operations if each.kind in names)
    assert _chances(ours, theirs) < 4


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
    look = _programs.Look.of(mode, fill)
    made = augment(pixels, [Operation("affine", (turn, *moves, scale, *shear), *look)])
    assert_same(made, by_v2)
    assert np.abs(made.astype(int) - by_v1).max() <= (mode is not Mode.NEAREST)


def test_affine_is_torchvisions() -> None:
    """Draws lie in their ranges, moves are whole, and the pixels are those of torchvision."""
    transform = v1.RandomAffine(30, (0.1, 0.2), (0.5, 1.5), (-9, 9, -5, 7), Mode.BILINEAR, fill=7)
    program = program_of(transform, SIZE)
    drawn = []
    for seed in range(300):
        (operation,), _ = draw_operations(program, seed * 7919, *SIZE[::-1])
        turn, right, down, scale, *shear = operation.value[:6]
        expected = v1_functional.affine(
            PHOTO, turn, [int(right), int(down)], scale, shear, Mode.BILINEAR, fill=7
        )
        if seed < 30:
            assert_same(augment(PIXELS, [operation]), np.asarray(expected), operation)
        drawn.append(operation.value[:6])
    values = np.array(drawn)
    assert_same(values[:, 1:3], np.rint(values[:, 1:3]))
    lowest = [-30, -0.1 * SIZE[1], -0.2 * SIZE[0], 0.5, -9, -5]
    highest = [30, 0.1 * SIZE[1], 0.2 * SIZE[0], 1.5, 9, 7]
    reach = np.subtract(highest, lowest)
    assert (np.abs(values.min(0) - lowest) < 0.05 * reach).all()
    assert (np.abs(values.max(0) - highest) < 0.05 * reach).all()


TENSORS = [
    v2.ColorJitter(0.4, 0.4, 0.4, 0.1),
    v2.RandAugment(fill=3),
    v2.TrivialAugmentWide(interpolation=Mode.BILINEAR),
    v2.AutoAugment(),
    v2.AugMix(),
    v2.RandomApply([v2.GaussianBlur(5, (0.1, 2.0))], p=0.5),
    v2.RandomAffine(10, (0.1, 0.1)),
]


@pytest.mark.parametrize("transform", TENSORS, ids=repr)
def test_pipelines_of_tensors_are_done_in_the_core(transform: Any) -> None:
    """In a Loader, a pipeline that begins with ToImage is done in the core, as for tensors."""
    floats = [v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.2] * 3)]
    crop = v2.RandomResizedCrop(64, antialias=True)
    fused = fuse(v2.Compose([v2.ToImage(), crop, v2.RandomHorizontalFlip(), transform, *floats]))
    program = fused.plan.head.program
    operations = [step.operation for step in program if step.operation is not None]
    moved = ("crop", "resize", "mirror")  # while decoding, for both alike
    assert {one.library for one in operations if one.kind not in moved} == {"torchvision"}
    pillow = fuse(v2.Compose([crop, transform, v2.ToImage(), *floats])).plan
    assert pillow.head.program != fused.plan.head.program or isinstance(transform, v2.AugMix)


def test_jitter_draws_factors_and_order() -> None:
    """ColorJitter's factors stay in their ranges, and the order of the four varies."""
    program = program_of(v1.ColorJitter(0.4, 0.3, 0.2, 0.1), SIZE)
    orders, values = set(), []
    for seed in range(300):
        operations, _ = draw_operations(program, seed * 7919)
        orders.add(tuple(each.kind for each in operations))
        values.append({each.kind: each.value[0] for each in operations})
    assert len(orders) == 24
    reaches = {"brightness": 0.4, "contrast": 0.3, "saturation": 0.2, "hue": 0.1}
    for kind, reach in reaches.items():
        middle = 0 if kind == "hue" else 1
        drawn = [each[kind] for each in values]
        assert middle - reach <= min(drawn) < middle - 0.9 * reach
        assert middle + 0.9 * reach < max(drawn) <= middle + reach


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


def test_wrappers_hold_their_parts() -> None:
    """RandomApply, RandomChoice, RandomOrder and Compose become groups of their parts."""
    grey, invert = v1.Grayscale(3), v1.RandomInvert(1.0)
    whole = v1.Compose(
        [
            v1.RandomApply([grey, invert], p=0.25),
            v1.RandomChoice([grey, invert], p=[1, 2]),
            v1.RandomOrder([grey, invert]),
        ]
    )
    kinds = [step.kind for step in program_of(whole, SIZE)]
    assert kinds.count("operation") == 6
    assert {"sequence", "choice", "shuffle"} <= set(kinds)


@pytest.mark.parametrize(
    "transform",
    [
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
    ],
    ids=repr,
)
def test_what_the_core_cannot_do_is_unsupported(transform: Any) -> None:
    """A transform that the core cannot do raises Unsupported instead of doing something else."""
    with pytest.raises(Unsupported):
        program_of(transform, (400, 400) if "301" in repr(transform) else SIZE)
    fuse(v1.Compose([v1.RandomResizedCrop(64), transform]))  # it runs as written


@pytest.mark.parametrize(
    "transform",
    [
        autoaugment.RandAugment(100, 3),
        v1.RandomOrder([v1.RandomInvert(0.01)] * 100),
        v1.RandomSolarize(1e9),
        v1.RandomRotation((0, 1e8)),
        v1.ColorJitter(brightness=(0, 1e7)),
        v1.RandomPosterize(9),
    ],
    ids=lambda one: type(one).__name__,
)
def test_what_the_core_would_refuse_runs_as_written(transform: Any) -> None:
    """What is beyond the core's limits is not done in the core, in a Loader either."""
    parts = [v1.RandomResizedCrop(64), transform, v1.ToTensor()]
    assert fuse(v1.Compose(parts)).plan.names == ["RandomResizedCrop"]
    assert not fuse(v1.Compose([parts[0], v1.Grayscale(3), parts[2]])).plan.rest


TIMM = [
    "rand-m9-inc1", "rand-m7-n3-p1.0-t3a", "rand-m9-n2-p1.0-t3aw", "rand-m5-n4-p1.0-tweights",
    "augmix-m5-w4-d2-mstd0", "original", "v0r",
]  # fmt: skip


def _timm(name: str) -> Any:
    """Return timm's transform of a name, whose warps have one interpolation."""
    timm = pytest.importorskip("timm.data.auto_augment")
    options = {"interpolation": Image.Resampling.BICUBIC, "img_mean": (124, 116, 104)}
    makers = {"rand": timm.rand_augment_transform, "augmix": timm.augment_and_mix_transform}
    return makers.get(name.partition("-")[0], timm.auto_augment_transform)(name, options)


@pytest.mark.parametrize("name", TIMM)
def test_timms_operations_give_its_pixels(name: str) -> None:
    """Each operation of a policy gives timm's pixels, with one sign or the other."""
    policy = _timm(name)
    ops = policy.ops if hasattr(policy, "ops") else [op for one in policy.policy for op in one]
    for op in ops:
        op.prob = 1.0
        random.seed(op.name)
        expected = np.asarray(op(PHOTO))
        program = _programs._timm_operation(op, SIZE)
        drawn = {draw_operations(program, seed)[0][0] for seed in range(20)}
        assert len(drawn) <= 2
        assert any(np.array_equal(augment(PIXELS, [each]), expected) for each in drawn), op.name


def test_timms_choices_are_as_frequent() -> None:
    """A weighted choice without replacement draws the operations as often as timm."""
    policy, count = _timm("rand-m5-n3-p1.0-tweights"), 3000
    program = program_of(policy, SIZE)
    groups = {"rotate": "Rotate", "equalize": "Equalize", "saturation": "ColorIncreasing"}
    theirs: Counter[str] = Counter()
    ours: Counter[str] = Counter()
    names = [op.name for op in policy.ops]
    draws = np.random.RandomState(0)  # timm draws from such a generator
    for seed in range(count):
        drawn = draws.choice(names, 3, replace=False, p=policy.choice_weights)
        theirs.update(name for name in drawn if name in groups.values())
        operations, _ = draw_operations(program, seed * 7919, *SIZE[::-1])
        assert len(operations) == 3
        ours.update(groups[each.kind] for each in operations if each.kind in groups)
    assert _chances(ours, theirs) < 5


@pytest.mark.parametrize(("mode", "count"), [("const", 1), ("rand", 3), ("pixel", 2)])
def test_timms_erasing_draws_its_boxes(mode: str, count: int) -> None:
    """The number of boxes, their area and what fills them are those of timm."""
    timm = pytest.importorskip("timm.data.random_erasing")
    erasing = timm.RandomErasing(0.75, 0.1, 0.2, mode=mode, max_count=count, device="cpu")
    program = program_of(erasing, SIZE)
    assert {step.erasure.noise for step in program if step.erasure} == {
        {"const": "none", "rand": "channel", "pixel": "pixel"}[mode]
    }
    random.seed(0)
    theirs, ours, areas = Counter(), Counter(), []
    for seed in range(1500):
        operations, _ = draw_operations(program, seed * 7919, *SIZE[::-1])
        ours[len(operations)] += 1
        boxes = [each.value[2] * each.value[3] for each in operations]
        areas += [sum(boxes) / (SIZE[0] * SIZE[1])] if boxes else []
        theirs[0 if random.random() > 0.75 else random.randint(1, count)] += 1
    assert _chances(ours, theirs) < 5
    assert 0.09 < min(areas) < 0.12
    assert 0.18 < max(areas) < 0.21


def test_timms_augmix_has_chains_of_its_operations() -> None:
    """Three chains of one to three operations are mixed with the image."""
    lengths: Counter[int] = Counter()
    for seed in range(900):
        operations, _ = draw_operations(program_of(_timm("augmix-m5"), SIZE), seed * 7919)
        kinds = [each.kind for each in operations]
        assert (kinds[0], kinds[-2:]) == ("mix_begin", ["mix_add", "mix_end"])
        assert kinds.count("mix_add") == 3
        assert operations[0].value[0] == 0
        lengths[len(operations) - 5] += 1
    sums = Counter(sum(three) for three in product((1, 2, 3), repeat=3))
    expected = Counter({length: 900 * count // 27 for length, count in sums.items()})
    assert _chances(lengths, expected) < 3


def test_hooks_and_replaced_methods_of_parts_count() -> None:
    """A part that its user changed is called, also inside RandomApply."""
    hooked, replaced = v1.RandomInvert(1.0), v1.ColorJitter(0.4)
    hooked.register_forward_hook(lambda *_: None)
    replaced.get_params = lambda *_: None  # type: ignore[method-assign]
    for part in (hooked, replaced):
        for transform in (part, v1.RandomApply([part]), v1.RandomChoice([part])):
            with pytest.raises(Unsupported):
                program_of(transform, SIZE)


def test_a_part_of_several_steps_is_one_choice() -> None:
    """RandomChoice and RandomOrder choose among their parts, however many steps each has."""
    crops = [v1.RandomCrop(9, padding=4), v1.RandomResizedCrop(9)]
    for holder in (v1.RandomChoice(crops), v1.RandomChoice([crops[0], v1.Pad(2)])):
        program = program_of(holder, (40, 40))
        assert len(program.parts[0].inner) == 2
        for state in range(40):
            kinds = [each.kind for each in draw_operations(program, state, 40, 40)[0]]
            assert kinds in (["pad", "crop"], ["crop", "resize"], ["pad"])


def test_subclasses_are_not_recognised() -> None:
    """A subclass may do anything, so it is not replaced."""

    class Mine(v1.ColorJitter):
        pass

    with pytest.raises(Unsupported):
        program_of(Mine(0.4), SIZE)
