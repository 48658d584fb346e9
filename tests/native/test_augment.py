"""The core's augmentations: Pillow's own results, and programs that draw them."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from cases import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from instructions import lib, with_each
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from same import assert_raises, assert_same

from fastdecode._decode.resizing import resize_unchanged
from fastdecode.native import _augment, _library
from fastdecode.native._augment import (
    Draw,
    Erasure,
    Impossible,
    Operation,
    Program,
    as_operations,
    do,
    draw_in_core,
    draw_operations,
    erase,
    group,
    mix,
)

FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
}
SIDES = st.one_of(st.integers(1, 8), st.integers(1, 300))


def augment(pixels: Any, operations: Sequence[Operation]) -> Any:
    """Do the operations with every instruction set."""
    return with_each(lambda: _augment.augment(pixels, operations))


@st.composite
def images(draw: Any) -> Any:
    """Draw pixels: noise, one colour, few levels, or a smooth ramp."""
    width, height, seed = draw(SIDES), draw(SIDES), draw(st.integers(0, 2**32))
    numbers = np.random.default_rng(seed)
    kind = draw(st.sampled_from(("noise", "flat", "narrow", "ramp")))
    if kind == "flat":
        return np.full((height, width, 3), numbers.integers(0, 256, 3), np.uint8)
    if kind == "ramp":
        across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
        return np.stack([across, down, 255 - across], axis=2).astype(np.uint8)
    low, high = (0, 256) if kind == "noise" else (100, 130)
    return numbers.integers(low, high, (height, width, 3)).astype(np.uint8)


def _shift_hue(image: Image.Image, shift: float) -> Image.Image:
    """Shift the hue as torchvision does for Pillow images."""
    hue, saturation, value = image.convert("HSV").split()
    turned = np.array(hue) + np.uint8(int(shift * 255) % 256)
    parts = (Image.fromarray(turned), saturation, value)
    return Image.merge("HSV", parts).convert("RGB")


FACTOR = st.one_of(st.sampled_from((0.0, 0.5, 1.0, 2.0)), st.floats(0, 4))
WITH_NUMBER: dict[str, tuple[Any, Callable[[Image.Image, Any], Image.Image]]] = {
    "brightness": (FACTOR, lambda image, v: ImageEnhance.Brightness(image).enhance(v)),
    "contrast": (FACTOR, lambda image, v: ImageEnhance.Contrast(image).enhance(v)),
    "saturation": (FACTOR, lambda image, v: ImageEnhance.Color(image).enhance(v)),
    "sharpness": (FACTOR, lambda image, v: ImageEnhance.Sharpness(image).enhance(v)),
    "hue": (st.floats(-0.5, 0.5), _shift_hue),
    "solarize": (st.floats(0, 256), ImageOps.solarize),
    "solarize_add": (
        st.integers(0, 255),
        lambda image, v: image.point([min(255, i + v * (i < 128)) for i in range(256)] * 3),
    ),
    "posterize": (st.integers(1, 8), ImageOps.posterize),
    "box_blur": (
        st.one_of(st.sampled_from((0.0, 0.1, 1.0)), st.floats(0, 40)),
        lambda image, v: image.filter(ImageFilter.GaussianBlur(v)),
    ),
}
WITHOUT: dict[str, Callable[[Image.Image], Image.Image]] = {
    "grey": lambda image: image.convert("L").convert("RGB"),
    "invert": ImageOps.invert,
    "equalize": ImageOps.equalize,
    "autocontrast": ImageOps.autocontrast,
    "mirror": ImageOps.mirror,
    "turn_over": ImageOps.flip,
    "permute": lambda image: Image.merge("RGB", [image.getchannel("R")] * 3),  # without numbers
}


@pytest.mark.parametrize("kind", [*WITH_NUMBER, *WITHOUT])
@given(data=st.data())
@settings(max_examples=examples(60))
def test_colours_are_those_of_pillow(kind: Any, data: Any) -> None:
    """Each operation on colours gives the bytes that Pillow gives."""
    pixels = data.draw(images())
    image = Image.fromarray(pixels)
    if kind in WITH_NUMBER:
        numbers, change = WITH_NUMBER[kind]
        number = data.draw(numbers)
        expected, operation = change(image, number), Operation(kind, (float(number),))
    else:
        expected, operation = WITHOUT[kind](image), Operation(kind)
    assert_same(augment(pixels, [operation]), np.asarray(expected))


ALL_COLOURS = np.arange(2**24, dtype="<u4").view(np.uint8).reshape(4096, 4096, 4)[..., :3]


@pytest.mark.parametrize(("half", "shift"), [(0, 0.0), (1, 0.37)])
def test_the_hue_of_every_colour_is_that_of_pillow(half: int, shift: float) -> None:
    """The steps that Pillow computes in doubles round no colour elsewhere."""
    colours = np.ascontiguousarray(ALL_COLOURS[half::2])
    expected = _shift_hue(Image.fromarray(colours), shift)
    made = augment(colours, [Operation("hue", (shift,))])
    assert_same(made, np.asarray(expected))


ANGLES = st.one_of(st.sampled_from((0.0, 90.0, 180.0, 270.0, -90.0)), st.floats(-400, 400))
MATRICES = st.one_of(
    st.tuples(*[st.floats(-1.5, 1.5), st.floats(-1.5, 1.5), st.floats(-100, 200)] * 2),
    st.builds(lambda shear: (1.0, shear, 0.0, 0.0, 1.0, 0.0), st.floats(-1, 1)),
    st.builds(lambda shear: (1.0, 0.0, 0.0, shear, 1.0, 0.0), st.floats(-1, 1)),
    st.builds(lambda x, y: (1.0, 0.0, x, 0.0, 1.0, y), st.integers(-99, 99), st.floats(-99, 99)),
    st.builds(lambda x, y: (x, 0.0, 3.5, 0.0, y, -2.0), st.floats(0.3, 2), st.floats(0.3, 2)),
)


TILTS = st.tuples(*[st.floats(-0.02, 0.02)] * 2)


@pytest.mark.parametrize("kind", ["warp", "rotate", "perspective"])
@pytest.mark.parametrize("name", FILTERS)
@given(data=st.data())
@settings(max_examples=examples(60))
def test_geometry_is_that_of_pillow(kind: Any, name: Any, data: Any) -> None:
    """Warps, also tilted ones, and rotations give Pillow's bytes, with each filter and any fill."""
    pixels, fill = data.draw(images()), data.draw(st.tuples(*[st.integers(0, 255)] * 3))
    image = Image.fromarray(pixels)
    if kind == "rotate":
        value: tuple[float, ...] = (data.draw(ANGLES),)
        expected = image.rotate(value[0], FILTERS[name], fillcolor=fill)
    else:
        value = data.draw(MATRICES) + (data.draw(TILTS) if kind == "perspective" else ())
        how = Image.Transform.AFFINE if kind == "warp" else Image.Transform.PERSPECTIVE
        expected = image.transform(image.size, how, value, FILTERS[name], fillcolor=fill)
    made = augment(pixels, [Operation(kind, value, name, fill)])
    assert_same(made, np.asarray(expected))


def _warped_tensor(pixels: Any, matrix: tuple[float, ...], fill: Any) -> Any:
    """Warp bilinearly with doubles; pixels from outside are black, or blended with a fill."""
    height, width = pixels.shape[:2]
    rows, columns = np.mgrid[:height, :width] + 0.5
    across, down = (a * columns + b * rows + c - 0.5 for a, b, c in (matrix[:3], matrix[3:]))
    sums, covered = np.zeros(pixels.shape), np.zeros((height, width, 1))
    for dx, dy in ((0, 0), (1, 0), (0, 1), (1, 1)):
        x, y = np.floor(across) + dx, np.floor(down) + dy
        share = (1 - abs(across - x)) * (1 - abs(down - y))
        share *= (x >= 0) & (x < width) & (y >= 0) & (y < height)
        at = (
            *(np.clip(place, 0, side - 1).astype(int) for place, side in ((y, height), (x, width))),
        )
        sums += share[..., None] * pixels[at]
        covered += share[..., None]
    return np.rint(sums if fill is None else sums * covered + (1 - covered) * np.array(fill))


@given(data=st.data())
@settings(max_examples=examples(100))
def test_warps_of_tensors(data: Any) -> None:
    """A bilinear warp is within 1 level of doubles."""
    pixels, matrix = data.draw(images()), data.draw(MATRICES)
    fill = data.draw(st.one_of(st.none(), st.tuples(*[st.integers(0, 255)] * 3)))
    black = (0, 0, 0)
    warp = Operation("warp", matrix, "bilinear", fill or black, fill is not None, "torchvision")
    assert abs(augment(pixels, [warp]) - _warped_tensor(pixels, matrix, fill)).max() <= 1


@given(data=st.data())
@settings(max_examples=examples(60))
def test_blur_is_the_gaussian_of_its_kernel(data: Any) -> None:
    """A blur is within 1 level of the sum of all products, with mirrored edges."""
    pixels, sigma = data.draw(images()), data.draw(st.floats(0.1, 3))
    down, across = (data.draw(st.integers(0, min(11, side - 1))) for side in pixels.shape[:2])
    expected = np.pad(pixels.astype(float), ((down, down), (across, across), (0, 0)), "reflect")
    for axis, edge in enumerate((down, across)):
        weights = np.exp(-0.5 * np.arange(-edge, edge + 1) ** 2 / sigma**2)
        weights /= weights.sum()
        expected = np.apply_along_axis(np.convolve, axis, expected, weights, "valid")
    other = [] if down == across and data.draw(st.booleans()) else [2 * down + 1]
    made = augment(pixels, [Operation("blur", (2 * across + 1, sigma, sigma, *other))])
    assert np.abs(made - np.rint(expected)).max() <= 1


def _finished(pixels: Any, program: Program, state: int, *, first: bool) -> tuple[Any, Any]:
    """Return pixels as floats from 0 to 1 after the operations of a sample, and these."""
    height, width = pixels.shape[:2]
    operations = draw_in_core(program, state, width, height).operations
    stored = _library.stored(((1 / 255,) * 3, (0.0,) * 3), channels_first=first)
    whole = resize_unchanged(width, height)

    def make() -> Any:
        out = np.empty((3, height, width) if first else pixels.shape, np.float32)
        assert _library.resize_pixels(pixels, whole, stored, out.ctypes.data, operations)
        return out

    out = with_each(make)
    return out if first else np.moveaxis(out, 2, 0), operations


LEVELS = (1.5, -2.0, 0.25)
ERASURES = st.builds(
    Erasure,
    st.sampled_from([(0.02, 0.4), (0.5, 1.0), (0.0, 0.0)]),
    st.sampled_from([(0.3, 3.3), (1.0, 1.0), (0.01, 100.0)]),
    st.sampled_from(("none", "channel", "pixel")),
    st.sampled_from([LEVELS, (-1.0, 7.0, 3.0), (4.0, 5.0, 6.0)]),
)


@given(images(), st.lists(ERASURES, min_size=1, max_size=3), st.integers(0, 2**63), st.booleans())
@settings(max_examples=examples(100))
def test_erasures_fill_their_boxes(
    pixels: Any, erasures: list[Erasure], state: int, first: bool
) -> None:
    """Each box gets its levels, one number a channel, or one a value; the rest stays as it is."""
    steps = [step for one in erasures for step in erase(one)]
    made, operations = _finished(
        pixels, Program([*do(Operation("invert")), *steps]), state, first=first
    )
    plain = np.moveaxis(255 - pixels, 2, 0) * np.float32(1 / 255)
    boxes = list(operations)[1:]
    assert len(boxes) <= len(erasures)  # if no box fits, there is none
    hidden = np.zeros(plain.shape[1:], bool)
    for box, erasure in zip(reversed(boxes), reversed(erasures), strict=False):
        left, top, width, height = map(int, list(box.value)[:4])
        assert 0 <= left <= left + width <= pixels.shape[1]
        assert 0 <= top <= top + height <= pixels.shape[0]
        inside = np.s_[top : top + height, left : left + width]
        erased = np.stack(
            [plane[inside][~hidden[inside]] for plane in made]
        )  # what no later one has covered
        hidden[inside] = True
        if len(boxes) < len(erasures):
            continue  # whose box is whose?
        if erasure.noise == "none":
            assert_same(erased, np.broadcast_to(np.float32(erasure.level)[:, None], erased.shape))
        elif erasure.noise == "channel":
            assert_same(erased, np.broadcast_to(erased[:, :1], erased.shape))
            assert len(np.unique(erased)) == (3 if erased.size else 0)
        elif erased.size > 300:
            assert len(np.unique(erased)) > 0.99 * erased.size
            assert abs(erased.mean()) < 5 / erased.size**0.5
            assert abs(erased.std() - 1) < 4 / erased.size**0.5
    assert_same(made[:, ~hidden], plain[:, ~hidden])
    for box in boxes:  # if one of them lies outside, none is done
        box.value[0] += pixels.shape[1] + 1
        height, width = pixels.shape[:2]
        stored = _library.stored(((1 / 255,) * 3, (0.0,) * 3), channels_first=first)
        whole = pixels, resize_unchanged(width, height), stored, made.ctypes.data
        assert not _library.resize_pixels(*whole, operations)
        box.value[0] -= pixels.shape[1] + 1


def test_noise_is_the_same_everywhere() -> None:
    """Its numbers follow from the seed alone, on every processor, and none from its neighbours."""
    pixels = np.zeros((100, 100, 3), np.uint8)
    whole = erase(Erasure((0.8, 0.8), (1.0, 1.0), "pixel"))
    made, operations = _finished(pixels, whole, 5, first=True)
    left, top, width, height = map(int, list(operations[0].value)[:4])
    numbers = made[:, top : top + height, left : left + width].ravel()
    assert numbers[:2].tolist() == [-0.9517598748207092, -0.49245792627334595]
    assert zlib.crc32(numbers.astype("<f4").tobytes()) == 3671103543
    for apart in (1, 2, 64, 128, 256):
        for one in (numbers, numbers**2, abs(numbers)):
            related = np.corrcoef(one[apart:], one[:-apart])[0, 1]
            assert abs(related) < 4 / len(numbers) ** 0.5


SHARE = (0.5,)
IMPOSSIBLE = {
    **{
        f"{kind} {value}": [Operation(kind, value)]  # type: ignore[arg-type]
        for kind, value in (
            ("posterize", (9.0,)),
            *(("blur", (size, 1.0, 1.0)) for size in (4.0, 23.0)),
            *(("blur", (3.0, 1.0, 1.0, size)) for size in (4.0, 257.0)),
            ("brightness", (float("nan"),)),
            ("warp", (1e9, 0.0, 0.0, 0.0, 1.0, 0.0)),
            ("permute", (0.0, 1.0, 3.0)),
            ("permute", (-1.0, 1.0, 2.0)),
            ("mix_begin", SHARE),
            ("mix_add", SHARE),
        )
    },
    "two mixes": [Operation("mix_begin", SHARE)] * 2,
    **{
        f"a mix with an image of {box[2:]} at its {kind}": [
            Operation("mix_begin", SHARE), Operation("crop", box, "constant"),
            Operation(kind, SHARE),
        ]
        for kind in ("mix_add", "mix_end")
        for box in ((0, 0, 9, 8), (0, 0, 8, 9))
    },
}  # fmt: skip


def test_impossible_operations_are_refused() -> None:
    """A number outside of its range, or a mix that does not end, is an error with the size.

    So is an angle by which an image that grows with it has no size, and too many operations.
    """
    square = np.zeros((9, 9, 3), np.uint8)
    for kind, operations in IMPOSSIBLE.items():
        assert_raises(ValueError, "9x9", partial(augment, square, operations), kind)
    for span in (math.inf, math.nan, 1e300):
        step = Program([*do(Operation("rotate", (0.0, 1.0)), Draw(0, 0.0, span))])
        assert_raises(Impossible, "", partial(draw_in_core, step, 7, 40, 30), span)
    with pytest.raises(ValueError):
        draw_operations(Program(GREY * (lib.FD_MOST_OPERATIONS + 1)), 0)


# ---- programs ----


def _drawn(program: Program, count: int = 4000) -> Counter[tuple[str, ...]]:
    """Count the kinds of operations that a program draws, one sample after another."""
    found: Counter[tuple[str, ...]] = Counter()
    for seed in range(count):
        operations, _ = draw_operations(program, seed * 977)
        found[tuple(operation.kind for operation in operations)] += 1
    return found


GREY, INVERT, MIRROR = (do(Operation(kind)) for kind in ("grey", "invert", "mirror"))
SHARES = {("grey",): 1 / 8, ("invert",): 2 / 8, ("mirror",): 5 / 8}
DRAWN: dict[str, tuple[Program, dict[tuple[str, ...], float]]] = {
    "one of three, by its weight": (
        group("choice", [GREY, INVERT, MIRROR], weights=[1, 2, 5]),
        SHARES,
    ),
    "two of three, of those left": (
        group("choice", [GREY, INVERT, MIRROR], weights=[1, 2, 5], picks=2),
        {
            one + other: SHARES[one] * SHARES[other] / (1 - SHARES[one])
            for one, other in permutations(SHARES, 2)
        },
    ),
    "any order": (
        group("shuffle", [GREY, INVERT, MIRROR]),
        dict.fromkeys(permutations(("grey", "invert", "mirror")), 1 / 6),
    ),
    "a group in whole or not at all": (
        group("sequence", [GREY, do(Operation("invert"), probability=0.5)], probability=0.2),
        {(): 0.8, ("grey",): 0.1, ("grey", "invert"): 0.1},
    ),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_programs_draw_with_their_probabilities(kind: str) -> None:
    """Choices, with and without replacement, orders and groups; the same for the same state."""
    program, shares = DRAWN[kind]
    found, count = _drawn(program), 4000

    assert found.keys() == shares.keys()
    squares = [(found[key] - count * share) ** 2 / (count * share) for key, share in shares.items()]
    assert sum(squares) < 20.5  # of at most 5 degrees of freedom: p = 0.001
    once = [draw_operations(program, 5) for _ in range(2)]
    assert once[0][1] == once[1][1] not in (5, draw_operations(program, 6)[1])
    assert {*_drawn(group("choice", [GREY, INVERT, MIRROR], picks=3), 100)} == {
        *permutations(("grey", "invert", "mirror"))
    }


@pytest.mark.parametrize("sides", [(10, 10), (6, 20), (30, 4)])
def test_erased_boxes_are_smaller_than_both_sides(sides: tuple[int, int]) -> None:
    """As in torchvision and timm, a box never has a side of the whole image."""
    height, width = sides
    ratio = height / width
    program = erase(Erasure((0.3, 1.0), (ratio / 2, 2 * ratio), "none", (0.0, 0.0, 0.0)))
    drawn = [draw_operations(program, seed * 977, width, height)[0] for seed in range(2000)]
    boxes = np.array([each.value for some in drawn for each in some])
    assert len(boxes) > 1000
    assert boxes[:, 2].max() == width - 1
    assert boxes[:, 3].max() == height - 1
    assert (boxes[:, 0] + boxes[:, 2]).max() <= width
    assert (boxes[:, 1] + boxes[:, 3]).max() <= height


@pytest.mark.parametrize("alpha", [0.3, 1.0, 4.0])
def test_weights_of_a_mix_are_of_a_dirichlet_distribution(alpha: float) -> None:
    """The weights add up to 1, and have the mean and deviation of the distribution."""
    program = mix([do(Operation("grey"))] * 3, alpha, "torchvision")
    kinds = ["mix_begin", *["grey", "mix_add"] * 3, "mix_end"]
    weights = []
    for seed in range(3000):
        operations, _ = draw_operations(program, seed * 977)
        assert [each.kind for each in operations] == kinds
        weights.append([each.value[0] for each in operations if each.kind.startswith("mix_")])
    drawn = np.array(weights)
    np.testing.assert_allclose(drawn[:, :4].sum(1), 1)
    assert_same(drawn[:, 4], 1)
    deviation = 0.5 / (2 * alpha + 1) ** 0.5  # of the beta distribution
    assert abs(drawn[:, 0].mean() - 0.5) < 4 * deviation / 3000**0.5
    assert abs(drawn[:, 0].std() - deviation) < 0.015
    shares = drawn[:, 1:4] / drawn[:, 1:4].sum(1, keepdims=True)
    deviation = (2 / 9 / (3 * alpha + 1)) ** 0.5
    assert (abs(shares.mean(0) - 1 / 3) < 4 * deviation / 3000**0.5).all()
    assert (abs(shares.std(0) - deviation) < 0.015).all()


def test_a_mix_is_the_weighted_sum_of_its_chains() -> None:
    """Both kinds of mix equal the same sums in NumPy."""
    pixels = np.random.default_rng(3).integers(0, 256, (40, 60, 3)).astype(np.uint8)
    chains = [[Operation("equalize")], [Operation("mirror"), Operation("sharpness", (1.7,))]]
    begin, shares, end = np.float32(0.25), np.float32([0.35, 0.4]), np.float32(0.3)
    steps = [Operation("mix_begin", (float(begin),))]
    expected = begin * pixels.astype(np.float32)
    for chain, share in zip(chains, shares, strict=True):
        steps += [*chain, Operation("mix_add", (float(share),))]
        expected += share * augment(pixels, chain).astype(np.float32)
    blended = Image.blend(
        Image.fromarray(pixels), Image.fromarray(expected.astype(np.uint8)), float(end)
    )
    made = augment(pixels, [*steps, Operation("mix_end", (float(end),))])
    assert_same(made, np.asarray(blended))
    whole = augment(pixels, [*steps, Operation("mix_end", (1.0,))])
    assert_same(whole, expected.astype(np.uint8))
    made[:] = 0  # by a resampler that has begun a mix, and not ended it
    sizes = resize_unchanged(60, 40), _library.stored(None, channels_first=False)
    for many, good in ((steps, False), ([*steps, Operation("mix_end", (1.0,))], True)):
        done = _library.resize_pixels(pixels, *sizes, made.ctypes.data, as_operations(many))
        assert done is good
    assert_same(made, whole)


def test_operations_follow_one_another() -> None:
    """As they would one by one."""
    pixels = np.random.default_rng(3).integers(0, 256, (40, 60, 3)).astype(np.uint8)
    others = [
        *(Operation("mirror"), Operation("turn_over"), Operation("invert")),
        *(Operation("rotate", (30.0,), "bilinear"), Operation("sharpness", (1.7,))),
        *(Operation("contrast", (0.4,)), Operation("solarize_add", (110.0,))),
    ]
    expected = pixels
    for one in others:
        expected = augment(expected, [one])
    assert_same(augment(pixels, others), expected)


def test_numbers_are_drawn_in_their_range() -> None:
    """Uniform, normal, whole and signed numbers have the ranges and moments that they promise."""

    def values(draw: Draw) -> Any:
        program = do(Operation("brightness", (1.0,)), draw)
        drawn = [draw_operations(program, seed * 977)[0][0].value for seed in range(4000)]
        return np.array([list(value) for value in drawn])

    uniform = values(Draw(0, 0.5, 2.0, copied=3))
    assert uniform[:, 0].min() >= 0.5
    assert uniform[:, 0].max() < 2.5
    assert abs(uniform[:, 0].mean() - 1.5) < 0.05
    assert_same(uniform[:, 0], uniform[:, 3])
    normal = values(Draw(1, 0.0, 10.0, mean=0.5, deviation=0.1))[:, 1]
    assert abs(normal.mean() - 5) < 0.1
    assert abs(normal.std() - 1) < 0.05
    limited = values(Draw(1, 0.0, 10.0, mean=0.9, deviation=0.2))[:, 1]
    assert limited.max() == 10
    whole = values(Draw(0, 4.0, -4.0, is_whole=True))[:, 0]
    assert set(whole) == {1.0, 2.0, 3.0, 4.0}
    signed = values(Draw(0, 1.0, 0.9, mean=1.0, deviation=0.0, either_sign=True))[:, 0]
    assert Counter(np.round(signed, 6)).keys() == {0.1, 1.9}
    assert abs((signed > 1).mean() - 0.5) < 0.04
