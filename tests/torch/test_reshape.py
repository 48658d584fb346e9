"""The operations of the core, compared with Pillow's and torchvision's, and programs of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import permutations, product
from typing import Any, get_args

import numpy as np
import pytest
import torch
from cases import examples
from corpus import native_core
from hypothesis import given, settings
from hypothesis import strategies as st
from loading import next_share
from PIL import Image, ImageOps
from same import assert_same
from torch_reference import PHOTOS

pytest.importorskip("torchvision")

from torchvision.transforms import InterpolationMode as Mode
from torchvision.transforms import functional as v1_functional
from torchvision.transforms import v2

from fastdecode.native._augment import (
    Draw,
    Impossible,
    Kind,
    Operation,
    Program,
    Step,
    as_operations,
    augment,
    central_crop,
    do,
    draw_in_core,
    draw_operations,
    fold,
    group,
    random_box,
    resized_to,
    scaled_by,
)
from fastdecode.testing import encode
from fastdecode.torch._programs import Look
from fastdecode.torch.transforms._random_crop import SampleGenerator
from fastdecode.torch.transforms.base import Recipe

native_core()
FILTERS = ("nearest", "bilinear", "bicubic", "lanczos", "hamming", "box")
WARPS = FILTERS[:3]
MODES = ("constant", "edge", "reflect", "symmetric")
SIDES = st.one_of(st.integers(1, 8), st.integers(1, 150))


def _image(width: int, height: int, seed: int) -> Image.Image:
    """Make noise, or a ramp with a little of it."""
    numbers = np.random.default_rng(seed)
    pixels = numbers.integers(0, 256, (height, width, 3))
    if seed % 2:
        ramp = np.add.outer(np.arange(height) * 2, np.arange(width))[..., None]
        pixels = (ramp + pixels // 32 + np.array([0, 50, 100])) % 256
    return Image.fromarray(pixels.astype(np.uint8))


IMAGES = st.builds(_image, SIDES, SIDES, st.integers(0, 2**32))


def _filter(name: str) -> Image.Resampling:
    return Image.Resampling[name.upper()]


def _pad(image: Image.Image, operation: Operation) -> Image.Image:
    left, top, right, bottom = map(int, operation.value[:4])
    if operation.filter == "constant":
        return ImageOps.expand(image, (left, top, right, bottom), operation.fill)
    around: Any = ((top, bottom), (left, right), (0, 0))
    return Image.fromarray(np.pad(np.asarray(image), around, mode=operation.filter))


def _crop(image: Image.Image, operation: Operation) -> Image.Image:
    left, top, width, height = map(int, operation.value[:4])
    return image.crop((left, top, left + width, top + height))


def _rotate(image: Image.Image, operation: Operation) -> Image.Image:
    degrees, grows = operation.value[:2]
    how = _filter(operation.filter)
    return image.rotate(degrees, how, expand=bool(grows), fillcolor=operation.fill)


def _map(image: Image.Image, operation: Operation) -> Image.Image:
    how = Image.Transform.PERSPECTIVE, operation.value, _filter(operation.filter)
    return image.transform(image.size, *how, fillcolor=operation.fill)


PILLOW: dict[str, Callable[[Image.Image, Operation], Image.Image]] = {
    "resize": lambda image, o: image.resize((int(o.value[0]), int(o.value[1])), _filter(o.filter)),
    "crop": _crop,
    "pad": _pad,
    "rotate": _rotate,
    "perspective": _map,
    "mirror": lambda image, _: ImageOps.mirror(image),
    "turn_over": lambda image, _: ImageOps.flip(image),
    "invert": lambda image, _: ImageOps.invert(image),
    "grey": lambda image, _: image.convert("L").convert("RGB"),
    "equalize": lambda image, _: ImageOps.equalize(image),
}
"""What each operation is in Pillow."""


def _step_by_step(image: Image.Image, operations: list[Operation]) -> np.ndarray:
    for operation in operations:
        image = PILLOW[operation.kind](image, operation)
    return np.asarray(image)


BORDERS = st.tuples(*[st.integers(0, 9)] * 4)
FILLS = st.tuples(*[st.integers(0, 255)] * 3)
DEGREES = st.sampled_from([0.0, 90, 180, 270, -90]) | st.floats(-400, 400)
NUMBERS = st.tuples(
    *[st.floats(-2, 2), st.floats(-1, 1), st.floats(-60, 60)] * 2, *[st.floats(-0.02, 0.02)] * 2
)


def _operations(kind: Any, values: Any, names: Any) -> st.SearchStrategy[Operation]:
    make = lambda value, name, fill: Operation(kind, value, name, fill)  # noqa: E731
    return st.builds(make, values, st.sampled_from(names), FILLS)


OPERATIONS = {
    "resize": _operations("resize", st.tuples(SIDES, SIDES), FILTERS),
    "pad": _operations("pad", BORDERS, MODES),  # also wider than the image, which is repeated
    "rotate": _operations("rotate", st.tuples(DEGREES, st.just(1.0)), WARPS),  # it grows
    "perspective": _operations("perspective", NUMBERS, WARPS),
}


@pytest.mark.parametrize("kind", OPERATIONS)
@given(IMAGES, st.data())
@settings(max_examples=examples(150))
def test_operations_are_those_of_pillow_and_numpy(kind: str, image: Any, data: Any) -> None:
    """With each filter and each way to pad, its size and its pixels."""
    program = do(data.draw(OPERATIONS[kind]))
    drawn = draw_in_core(program, 0, *image.size)
    operations, _ = draw_operations(program, 0, *image.size)
    expected = _step_by_step(image, operations)
    assert drawn.size == expected.shape[:2]
    assert_same(augment(np.asarray(image), operations, drawn.size), expected)


# ---- operations that are torchvision's ----

PHOTO = Image.open(PHOTOS[0]).convert("RGB")
SIDES_OF_WARPS = st.one_of(st.integers(1, 8), st.integers(1, 300))


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


@pytest.mark.parametrize("library", [v1_functional, v2.functional], ids=["v1", "v2"])
@given(st.integers(0, 2**32), SIDES_OF_WARPS, SIDES_OF_WARPS)
@settings(max_examples=examples(25))
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
@settings(max_examples=examples(50))
def test_affine_has_the_pixels_of_pillow_images(mode: Mode, data: Any) -> None:
    """Any angle, move, scale and shear of an image of any size is v2's, bit for bit.

    v1 rounds its matrix otherwise: a pixel that lies between two levels may get the other one.
    """
    width, height = data.draw(SIDES_OF_WARPS), data.draw(SIDES_OF_WARPS)
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


@pytest.mark.parametrize(
    ("seed", "sides", "turn", "scale", "moves"),
    [
        (5, (39, 33), 270, 1.0, (6, -2)), (337, (15, 39), 90, 3.0, (-4, -2)),
        (377, (40, 17), 270, 2.0, (3, -5)), (393, (25, 23), 180, 3.0, (2, -8)),
        (493, (4, 27), 90, 1.5, (2, 6)), (527, (14, 31), 270, 1.0, (-2, -2)),
    ],
)  # fmt: skip
def test_affine_where_pixels_meet(
    seed: int, sides: tuple[int, int], turn: float, scale: float, moves: tuple[int, int]
) -> None:
    """Centres of pixels fall on the edges of others, so the order in which is added shows."""
    pixels = np.random.default_rng(seed).integers(0, 256, (*sides[::-1], 3)).astype(np.uint8)
    given = Image.fromarray(pixels), turn, list(moves), scale, [0.0, 0.0], Mode.BICUBIC
    made = augment(pixels, [Operation("affine", (turn, *moves, scale, 0.0, 0.0), "bicubic")])
    assert_same(made, np.asarray(v2.functional.affine(*given)))


# ---- programs ----


def _random_crop(size: tuple[int, int], mode: Any, picks: int, border: Any) -> Program:
    value = (size[1], size[0], 0, 0, *(border if picks == 2 else (0, 0, 0, 0)))
    return Program([Step("random_crop", operation=Operation("crop", value, mode), picks=picks)])


TILTED = Step("perspective_change")
SMALL = st.tuples(st.integers(1, 40), st.integers(1, 40))
STEPS = st.one_of(
    st.builds(resized_to, st.one_of(SMALL, st.integers(1, 40)), st.sampled_from(FILTERS)),
    st.builds(lambda size, f: resized_to(size, f, size + 9), st.integers(1, 40), st.just("box")),
    st.just(random_box((0.1, 1.0), (0.5, 2.0))),
    st.builds(
        lambda size, pads, down: central_crop(size, pads=pads, rounds_down=down),
        *(SMALL, st.booleans(), st.booleans()),
    ),
    st.builds(_random_crop, SMALL, st.sampled_from(MODES), st.integers(0, 2), BORDERS),
    st.builds(lambda b, m: do(Operation("pad", b, m)), BORDERS, st.sampled_from(MODES)),
    st.builds(
        lambda f, grows: do(Operation("rotate", (0.0, grows), f), Draw(0, -90, 180)),
        st.sampled_from(WARPS),
        st.sampled_from([0.0, 1.0]),
    ),
    st.builds(
        lambda f: Program([TILTED._replace(operation=Operation("perspective", (0.6,), f))]),
        st.sampled_from(WARPS),
    ),
    st.sampled_from([do(Operation(k)) for k in ("mirror", "turn_over", "invert", "equalize")]),
    st.just(do(Operation("mirror"), probability=0.5)),
)


@st.composite
def programs(draw: st.DrawFn, depth: int = 0) -> Program:
    """Draw steps in any order, some of them inside others."""
    made = draw(st.lists(STEPS, max_size=5))
    if depth < 2 and draw(st.booleans()):
        inner = [draw(programs(depth + 1)) for _ in range(draw(st.integers(1, 3)))]
        kind = draw(st.sampled_from(["sequence", "choice", "shuffle"]))
        made.insert(draw(st.integers(0, len(made))), group(kind, inner, probability=0.8))
    return Program([step for each in made for step in each])


def _transform(program: Program, shape: Any = None, **options: Any) -> Recipe:
    return Recipe(**options).but(program=program, shape=shape)


@given(programs(), IMAGES, st.integers(0, 2**63))
@settings(max_examples=examples(300))
def test_a_program_is_its_steps_one_by_one(program: Program, image: Any, state: int) -> None:
    """In any order, and nested, from a file to the result, which parts of it are decoded or not."""
    try:
        operations, after = draw_operations(program, state, *image.size)
    except Impossible:
        return
    expected = _step_by_step(image, operations)
    assert draw_in_core(program, state, *image.size).size == expected.shape[:2]
    assert_same(augment(np.asarray(image), operations, expected.shape[:2]), expected)
    generator = SampleGenerator()
    generator.state = state
    data = encode(image, "png")
    made = _transform(program)(data, generator=generator)
    assert_same(made.permute(1, 2, 0).numpy(), expected)
    if program:
        assert generator.state == after


@pytest.mark.parametrize("name", FILTERS)
def test_two_mirrors_a_crop_and_a_resize_in_any_order(name: Any) -> None:
    """Two mirrors are none, and before a resize one is not the same as behind it.

    The box filter takes a pixel that is half inside on one side alone.
    """
    image, mirror = _image(25, 15, 0), Operation("mirror")
    crop, resize = Operation("crop", (2, 3, 5, 5), "constant"), Operation("resize", (10, 9), name)
    for operations in permutations([mirror, mirror, crop, resize]):
        program = Program([step for each in operations for step in do(each)])

        made = _transform(program)(encode(image, "png")).permute(1, 2, 0).numpy()
        assert_same(made, _step_by_step(image, [*operations]), operations)


def test_a_crop_of_a_mirrored_resize_shows_its_own_side() -> None:
    """A flip and a resize may both be done while decoding: the crop is then of their result."""
    crop = Operation("crop", (4, 3, 9, 8), "constant")
    steps = [do(Operation("mirror")), resized_to((20, 30), "own"), do(crop)]
    program, image = Program([step for each in steps for step in each]), _image(17, 23, 0)
    assert _transform(program).draw(17, 23, None).plan.size == (8, 9)

    operations, _ = draw_operations(program, 0, *image.size)
    expected = augment(np.asarray(image), operations, (8, 9))
    made = _transform(program)(encode(image, "png")).permute(1, 2, 0).numpy()
    assert_same(made, expected)


NUMBERS_OF: dict[Any, tuple[float, ...]] = {
    "blur": (3, 1, 1, 3),
    "brightness": (1.3,),
    "clahe": (2, 2, 2),
    "fill": (9, 8, 30, 20),
    "hue": (0.2,),
    "levels": (1.2, 3),
    "median": (5,),
    "mean_blur": (3, 0, 0, 0, 0, 1),
    "pad": (3, 4, 5, 6),
    "permute": (2, 0, 1),
    "posterize": (3,),
    "resize": (40, 70),
    "shift_colours": (20, 30, 40),
    "solarize": (99,),
    "solarize_add": (99,),
    "warp": (0.8, 0.1, 3, 0.2, 0.9, 4),
}
"""Numbers of the operations for which 0.4, or nothing, is none."""
OPENCVS = [(kind, "opencv") for kind in ("levels", "shift_colours", "gamma", "channels", "median")]
OTHERS = ("affine", "mix", "erase", "crop", "noise", "grid", "elastic", *dict(OPENCVS))
KINDS = [kind for kind in get_args(Kind) if not kind.startswith(OTHERS)]
ALIKE = product(KINDS, ["pillow", "torchvision", "opencv"])
WITHOUT_PIXELS = {"brightness", "saturation", "hue", "grey", "invert", "solarize", "solarize_add"}
WITHOUT_PIXELS |= {"posterize", "permute", "shift_colours", "levels", "mirror", "turn_over", "pad"}
"""Operations before which a crop leaves out what it will not show."""


@pytest.mark.parametrize(("kind", "library"), [*ALIKE, *OPENCVS])
def test_a_crop_comes_before_what_changes_each_pixel_alone(kind: Any, library: Any) -> None:
    """It shows the same pixels, and comes first unless an operation looks at others."""
    image = np.asarray(_image(61, 83, 2))
    value = NUMBERS_OF.get(kind, (0.4, 0.0, 0.0, 0.0))
    names: Any = {"pad": "constant", "resize": "box"}
    one = Operation(kind, value, names.get(kind, "nearest"), (7, 8, 9), library=library)
    crop = Operation("crop", (8, 7, 21, 30), "constant")
    expected = augment(image, [one, crop], (30, 21))
    made = _transform(Program([*do(one), *do(crop)]))(encode(Image.fromarray(image), "png"))
    assert_same(made.permute(1, 2, 0).numpy(), expected)
    resize, rest = fold(as_operations([one, crop]), 61, 83)
    first = kind in WITHOUT_PIXELS
    if kind != "resize":  # of which the window is computed
        assert ((resize.width, resize.height) == (21, 30)) == first
        assert len(rest) == (0 if kind in ("mirror", "pad") else 2 - first)


def test_levels_with_a_mean_come_before_a_crop() -> None:
    """The mean is that of the whole image."""
    image = np.asarray(_image(61, 83, 3))
    for mean in ((0.5, 0.0), (0.0, 0.5)):
        both = [
            Operation("levels", (1, 2, *mean), library="opencv"),
            Operation("crop", (8, 7, 21, 30), "constant"),
        ]
        program = Program([*do(both[0]), *do(both[1])])
        made = _transform(program)(encode(Image.fromarray(image), "png"))
        assert_same(made.permute(1, 2, 0).numpy(), augment(image, both, (30, 21)), mean)


@pytest.mark.parametrize("mode", MODES)
@given(BORDERS, st.data())
@settings(max_examples=examples(60))
def test_a_border_that_a_crop_leaves_out_is_not_made(mode: Any, border: Any, data: Any) -> None:
    """Only the part of the image that shows is decoded, and only the rest of its border made."""
    sides = 14 + border[0] + border[2], 12 + border[1] + border[3]
    box = [data.draw(st.integers(0, side - 1)) for side in sides]
    box += [data.draw(st.integers(1, side - at)) for side, at in zip(sides, box, strict=True)]
    pad = Operation("pad", border, mode, (1, 2, 3))
    image, crop = _image(14, 12, 5), Operation("crop", tuple(box), "constant")
    expected = _step_by_step(image, [pad, crop])
    made = _transform(Program([*do(pad), *do(crop)]))(encode(image, "png"))
    assert_same(made.permute(1, 2, 0).numpy(), expected)

    resize, rest = fold(as_operations([pad, crop]), 14, 12)
    begins = [at - before for at, before in zip(box[:2], border[:2], strict=True)]
    ends = [at + side for at, side in zip(begins, box[2:], strict=True)]
    if min(begins) >= 0 and ends[0] <= 14 and ends[1] <= 12:
        assert (resize.width, resize.height, len(rest)) == (*box[2:], 0)
    elif mode == "constant" and len(rest) == 1:
        assert tuple(rest[0].value[0:2]) == tuple(max(0, -at) for at in begins)


@given(SIDES, SIDES, st.integers(1, 99), st.integers(0, 99), st.integers(0, 2**63))
def test_sides_of_a_fit_are_torchvisions(
    width: int, height: int, side: int, longest: int, state: int
) -> None:
    """RandomShortestSize truncates products of float64, ScaleJitter those of float32."""
    scale = side / min(width, height)
    scale = min(scale, longest / max(width, height)) if longest else scale
    shortest = scaled_by((side, longest, 0, 0), (1.0, 1.0), "own")
    expected = tuple(max(1, int(length * scale)) for length in (height, width))
    assert draw_in_core(shortest, state, width, height).size == expected

    low, high = np.float32(0.3), np.float32(1.7)
    factor = low + np.float32(next_share(state)) * (high - low)
    fits = np.float32(min(side / width, (longest + 1) / height))
    jitter = scaled_by((0, 0, side, longest + 1), (float(low), float(high)), "own")
    expected = tuple(max(1, int(np.float32(n) * (fits * factor))) for n in (height, width))
    assert draw_in_core(jitter, state, width, height).size == expected
