"""Batches that the native core draws by itself: as Python would, to the bit, or not at all."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import pytest

pytest.importorskip("fastdecode.native._core")
torch = pytest.importorskip("torch")

from loading import epoch, same  # noqa: E402
from native_lane import (  # noqa: E402
    CUT,
    PLAIN,
    SOURCES,
    TORN,
    Boxes,
    Made,
    Sources,
    _made,  # noqa: F401 - the fixture
    encoded,
    mixed,
)

from fastdecode.api import DEFAULT_MAX_PIXELS  # noqa: E402
from fastdecode.native import library  # noqa: E402
from fastdecode.native.batch import Items  # noqa: E402
from fastdecode.torch.transforms import (  # noqa: E402
    RandomResizedCrop,
    RandomResizedCropFlipNormalize,
    Resize,
    ResizeCenterCrop,
    ResizeCenterCropNormalize,
    direct,
    seeded,
)
from fastdecode.torch.transforms.described import plan_of  # noqa: E402
from fastdecode.torch.way import Way  # noqa: E402

ffi, lib = library.ffi, library.lib
LEAST_SURE = 0.99
SIDES = [(500, 375), (1, 1), (1, 900), (4000, 3000), (65500, 3), (300, 301), (33, 4000)]
GOOD = {"components": 3, "bits": 8, "sof": 0xC0, "ended": 1}


def drawn(crop: Any, width: int, height: int, seed: int, **header: int) -> Any:
    """Return the core's numbers; None if it leaves such a picture."""
    items = Items()
    items._make_room(1)
    item = items._items[0]
    head = ffi.new("fd_header *", {"width": width, "height": height, **GOOD, **header})
    args = (head, seed, crop, ffi.addressof(item, "request"), ffi.addressof(item, "resize"))
    if not lib.fd_plan_crop(*args):
        assert not any(bytes(ffi.buffer(ffi.addressof(item, "resize"))))
        return None
    assert (item.request.layout, item.request.strict) == (library.LAYOUTS["RGB"], 1)
    assert item.request.limits.scans == library.MAX_SCANS
    return items.numbers(0)


def in_python(transform: Any, width: int, height: int, seed: int) -> Any:
    return transform.numbers(transform.seeded_plan(width, height, seed), width, height)


def some_side(some: random.Random) -> tuple[int, int]:
    if some.random() < 0.2:
        return some.choice(SIDES)
    return some.randint(1, 1500), some.randint(1, 1500)


def some_random_crop(some: random.Random) -> RandomResizedCrop:
    size = (some.randint(1, 300), some.randint(1, 300))
    scale = sorted(some.choice([0.08, 1.0, some.uniform(0.01, 2)]) for _ in range(2))
    ratio = sorted(some.choice([3 / 4, 4 / 3, some.uniform(0.05, 20)]) for _ in range(2))
    flip, headroom = some.choice([0, 0.5, 1, some.random()]), some.choice([1, some.uniform(1, 4)])
    quality: Any = some.choice(["default", "exact"])
    return RandomResizedCropFlipNormalize(
        size, scale, ratio, flip=flip, quality=quality, headroom=headroom
    )


def test_the_core_draws_what_python_draws() -> None:
    """20 000 pictures, seeds and transforms: the same boxes, flips and reductions, to the bit."""
    some = random.Random(1)
    unsure = {"core": 0, "python": 0}
    for _ in range(400):
        transform = some_random_crop(some)
        crop = transform.described(orient=False)
        how = (transform.scale, transform.ratio, transform.flip)
        for _ in range(50):
            width, height = some_side(some)
            seed = some.choice([0, 2**32, 2**63 - 1, some.getrandbits(63), some.getrandbits(63)])
            ours = drawn(crop, width, height, seed)
            theirs = in_python(transform, width, height, seed)
            unsure["core"] += ours is None
            unsure["python"] += seeded.box_and_flip(width, height, *how, seed) is None

            assert ours is None or ours == theirs
    assert unsure["core"] == unsure["python"] < 1000


def test_of_usual_pictures_hardly_one_is_left() -> None:
    """Of a picture of a usual size the core is as sure as Python is."""
    crop = RandomResizedCropFlipNormalize(224).described(orient=False)
    sure = sum(drawn(crop, 500, 375, seed) is not None for seed in range(1000))

    assert sure >= LEAST_SURE * 1000


def test_central_and_whole_crops_are_pythons() -> None:
    """Sides and margins are rounded alike; what is padded or a giant is left."""
    some = random.Random(2)
    left = 0
    for _ in range(3000):
        width, height = some_side(some)
        shorter = some.choice([some.randint(1, 400), (some.randint(1, 400), some.randint(1, 400))])
        size = (some.randint(1, 400), some.randint(1, 400))
        flip: float = some.choice([0, 0.5, 1])
        quality: Any = some.choice(["default", "exact"])
        seed = some.getrandbits(63)
        for transform in (
            ResizeCenterCropNormalize(shorter, size, flip=flip, quality=quality),
            Resize(size, flip=flip, quality=quality),
        ):
            ours = drawn(transform.described(orient=False), width, height, seed)
            assert ours == in_python(transform, width, height, seed)
            left += ours is None
    assert 0 < left < 3000


def test_limits_are_pythons() -> None:
    """The largest canvas is taken, and what is drawn is below a probability, not equal to it."""
    for side, taken in ((65500, True), (65501, False)):
        for transform in (
            ResizeCenterCropNormalize((40, side), 40),
            RandomResizedCropFlipNormalize((40, side)),
        ):
            numbers = drawn(transform.described(orient=False), 500, 375, 3)
            assert numbers == in_python(transform, 500, 375, 3)
            assert (numbers is not None) == taken
    for seed in range(20):
        flip = torch.rand(1, generator=torch.Generator().manual_seed(seed)).item()
        central = ResizeCenterCropNormalize(44, 40, flip=flip)
        numbers = drawn(central.described(orient=False), 500, 375, seed)
        assert numbers == in_python(central, 500, 375, seed)
        assert numbers[-1] == 0


def test_the_core_takes_the_files_that_python_would_give_it() -> None:
    """Its rule is that of `direct.fits`, and it leaves files with Exif data to be turned."""
    transform = ResizeCenterCropNormalize(44, 40)
    crop, upright = (transform.described(orient=orient) for orient in (False, True))
    kinds = product(range(0xBF, 0xD0), (0, 1, 2, 3, 4), (8, 12), (0, 1))
    for sof, components, bits, ended in kinds:
        values = {"sof": sof, "components": components, "bits": bits, "ended": ended}
        header = ffi.new("fd_header *", {"width": 90, "height": 70, **values})
        assert (drawn(crop, 90, 70, 0, **values) is not None) == bool(direct.fits(header))
    side = int(DEFAULT_MAX_PIXELS**0.5)
    assert drawn(crop, side, side, 0) is not None
    assert drawn(crop, side, DEFAULT_MAX_PIXELS // side + 1, 0) is None
    assert drawn(crop, 90, 70, 0, has_exif=1) is not None
    assert drawn(upright, 90, 70, 0, has_exif=1) is None
    assert drawn(upright, 90, 70, 0) is not None


def test_a_plan_can_be_told_from_its_numbers() -> None:
    """`plan_of` gives back what was drawn, in whole pixels of the picture."""
    for transform in (
        RandomResizedCropFlipNormalize(20),
        ResizeCenterCropNormalize((50, 70), 40, flip=0.5),
    ):
        for seed in range(50):
            plan = transform.seeded_plan(501, 373, seed)
            numbers = transform.numbers(plan, 501, 373)

            assert numbers is not None
            assert plan_of(numbers) == plan
            assert all(type(side) is int for side in plan_of(numbers).box)


def test_only_what_does_as_its_class_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    """A subclass or an instance that plans in its own way draws in Python."""

    class Planned(RandomResizedCrop):
        def plan(self, width: int, height: int, generator: Any) -> Any:
            return super().plan(width, height, generator)

    class Reduced(ResizeCenterCrop):
        def _jpegs_reduction(self, plan: Any) -> Any:
            return 1

    class Named(Resize):
        """Changes nothing."""

    set_here = RandomResizedCropFlipNormalize(40)
    set_here.numbers = lambda *_: None  # type: ignore[method-assign]
    for transform in (Planned(40), Reduced(44, 40), Resize(40), set_here):
        assert transform.described(orient=False) is None
    for transform in (
        RandomResizedCropFlipNormalize(40),
        ResizeCenterCropNormalize(44, 40),
        Named((40, 41)),
    ):
        assert transform.described(orient=False) is not None
        with monkeypatch.context() as patch:
            patch.setattr(seeded, "same_as_torch", lambda: False)
            assert transform.described(orient=False) is None


def test_a_transform_that_was_changed_is_described_anew(made: Made) -> None:
    """Its size, scale and the rest are those that it has now; what does not fit is left."""
    transform = RandomResizedCrop(40, dtype=torch.uint8, flip=0.5)
    dataset = Sources(*[PLAIN] * 4, transform=transform)
    epoch(dataset, 4, threads=2)
    transform.scale, transform.flip = (0.5, 0.6), 1.0
    assert same(epoch(dataset, 4, threads=2), epoch(dataset, 4, threads=0))
    assert made == [(4, 4), (4, 4)]
    transform.size = (40, 30)
    for threads in (0, 2):
        with pytest.raises(ValueError, match="out must be"):
            epoch(dataset, 4, threads=threads)
    assert made == [(4, 4), (4, 4)]


@pytest.mark.parametrize(
    "transform",
    [
        RandomResizedCropFlipNormalize(40),
        RandomResizedCrop((24, 40), (0.5, 1), (1, 2), flip=0.2, dtype=torch.uint8, headroom=2),
        RandomResizedCrop(33, quality="exact", dtype=torch.float32, flip=0.5),
        RandomResizedCropFlipNormalize(30, (1.0, 1.0), (5.0, 6.0)),
        ResizeCenterCropNormalize(44, 40, flip=0.5),
        ResizeCenterCropNormalize(30, 40),
        Resize((33, 40), flip=0.5, dtype=torch.uint8),
    ],
    ids=repr,
)
@pytest.mark.parametrize("orient", [False, True])
def test_an_epoch_is_that_of_pythons_draws(
    transform: Any, orient: bool, monkeypatch: pytest.MonkeyPatch, made: Made
) -> None:
    """Files of all kinds, good, damaged and missing: batches and errors are the same to the bit."""
    extra = [TORN, "no such file", CUT, b"", encoded(quality=1), PLAIN]
    sources = [*(source for source, _ in SOURCES), *extra] * 2
    options: dict[str, Any] = {"transform": transform, "orient": orient, "on_error": "replace"}
    batches, errors, totals = [], [], []
    for draws_itself in (True, False):
        dataset = Sources(*sources, **options)
        made.clear()
        with monkeypatch.context() as patch:
            if not draws_itself:
                patch.setattr(Way, "described", lambda *_, **__: None)
            batches.append(epoch(dataset, 9, shuffle=True, seed=3, threads=2))
        errors.append(sorted(map(repr, dataset.errors)))
        totals.append((made.given, made.total))

    assert same(*batches)
    assert errors[0] == errors[1]
    assert totals[0] == totals[1]


def test_what_the_core_leaves_is_made_in_its_place(
    monkeypatch: pytest.MonkeyPatch, made: Made
) -> None:
    """Where rounding decides, Python draws and the core makes; targets come in their order."""
    described, doubting, seen = Way.described, ffi.new("fd_crop *"), []

    def doubtful(self: Way, *, orient: bool) -> Any:
        doubting[0] = described(self, orient=orient)[0]
        doubting.unsure = 1e-3
        return doubting

    def noticed(boxes: Any) -> Any:
        seen.append(float(boxes[0, 3]))
        return boxes

    expected = epoch(mixed(Boxes, target_transform=noticed), 20, threads=0)
    in_turn = seen[:]
    seen.clear()
    monkeypatch.setattr(Way, "described", doubtful)

    assert same(epoch(mixed(Boxes, target_transform=noticed), 20, threads=1), expected)
    assert len(made) == 2
    assert made[0][1] > 0
    assert made[1][1] > 0
    assert made.total == sum(for_core for _, for_core in SOURCES)
    assert sorted(seen) == sorted(in_turn)
