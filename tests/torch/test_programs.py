"""Programs of augmentations compared with torchvision and timm: operations, pixels and draws."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch_reference import PHOTOS

pytest.importorskip("torchvision")

from torchvision.transforms import AutoAugmentPolicy, autoaugment, v2
from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import transforms as v1

from fastdecode.native._augment import augment, draw_operations
from fastdecode.torch import _programs, fuse
from fastdecode.torch._programs import Unsupported, program_of

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
    """What a policy draws is in its program, and the core's result equals torchvision's."""
    possible = {step.operation for step in program_of(policy, SIZE)}
    record = _recorded(policy, monkeypatch)
    fill = policy.fill if isinstance(policy.fill, (list, int, float)) else None
    how = _programs._filter(policy.interpolation), _programs._fill(fill), SIZE
    for seed in range(40):
        record.clear()
        torch.manual_seed(seed)
        expected = np.asarray(policy(PHOTO))
        programs = [_programs._torchvision_operation(*drawn, *how) for drawn in record]
        operations = [step.operation for program in programs for step in program if step.operation]
        assert set(operations) <= possible
        np.testing.assert_array_equal(augment(PIXELS, operations), expected)


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
        v1.RandomRotation(10, expand=True),
        v1.RandomRotation(10, center=(1, 2)),
        v1.Grayscale(1),
        v1.GaussianBlur((3, 5)),
        v1.GaussianBlur(201),
        v1.RandomPerspective(),
        v1.RandomApply([v1.RandomPerspective()]),
        v1.RandomApply([v1.RandomErasing(1.0, value=255)]),
        v1.RandomChoice([]),
        v1.RandomChoice([v1.Grayscale(3)], p=[0]),
        v1.RandomChoice([v1.Grayscale(3)], p=[0.5, 0.5]),
        v1.GaussianBlur(301, 5.0),
        autoaugment.RandAugment(2, 31),
        autoaugment.RandAugment(2, 9.0),  # type: ignore[arg-type]
        autoaugment.TrivialAugmentWide(num_magnitude_bins=1),
        v2.RandomRotation(10, fill={Image.Image: 128, "others": 0}),
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
    """A pipeline beyond the core's limits is not done in the core, in a Loader either."""
    parts = [v1.RandomResizedCrop(64), transform, v1.ToTensor()]
    assert fuse(v1.Compose(parts)).in_loader is None
    assert fuse(v1.Compose([parts[0], v1.Grayscale(3), parts[2]])).in_loader is not None


def test_hooks_and_replaced_methods_of_parts_count() -> None:
    """A part that its user changed is called, also inside RandomApply."""
    hooked, replaced = v1.RandomInvert(1.0), v1.ColorJitter(0.4)
    hooked.register_forward_hook(lambda *_: None)
    replaced.get_params = lambda *_: None  # type: ignore[method-assign]
    for part in (hooked, replaced):
        for transform in (part, v1.RandomApply([part]), v1.RandomChoice([part])):
            with pytest.raises(Unsupported):
                program_of(transform, SIZE)


def test_subclasses_are_not_recognised() -> None:
    """A subclass may do anything, so it is not replaced."""

    class Mine(v1.ColorJitter):
        pass

    with pytest.raises(Unsupported):
        program_of(Mine(0.4), SIZE)
