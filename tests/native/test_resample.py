"""The core's antialiased resize: torch's and Pillow's filter, for all instruction sets."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from cases import examples
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from instructions import INSTRUCTIONS, ffi, lib, with_each
from patterns import KINDS, pattern
from PIL import Image
from same import assert_same

DTYPES = {"uint8": lib.FD_UINT8, "float32": lib.FD_FLOAT32}
MEAN, STD = np.float32([0.485, 0.456, 0.406]), np.float32([0.229, 0.224, 0.225])
SCALE, BIAS = 1 / (255 * STD), -MEAN / STD
EXTREMES = (
    "1x1>1x1 1x1>300x200 1x500>224x224 500x1>224x1 65500x2>1x1 2x65500>3x2 65500x3>40x2 "
    "3x2>65500x1 2x3>1x65500 900x9>2x500 1000x800>17x40 800x1000>100x1"
)

SIDES = st.one_of(st.integers(1, 12), st.integers(1, 250))

Box = tuple[float, float, float, float]


def new_resampler() -> Any:
    return ffi.gc(lib.fd_resampler_create(), lib.fd_resampler_destroy)


def resized(image: Any, canvas: tuple[int, int], status: int = lib.FD_OK, **options: Any) -> Any:
    """Resize to `canvas` (width, height) with every instruction set.

    The options are fields of fd_resize and fd_pixels.
    """
    height, width = image.shape[:2]
    area = options.get("part", (0, 0, *canvas))
    resize = ffi.new("fd_resize *")
    resize.left, resize.top, resize.right, resize.bottom = options.get("box", (0, 0, width, height))
    resize.in_left, resize.in_top, resize.in_right, resize.in_bottom = options.get(
        "inside", (0, 0, width, height)
    )
    resize.canvas_width, resize.canvas_height = canvas
    resize.x, resize.y, resize.width, resize.height = area
    resize.flip = options.get("flip", False)
    resize.filter = options.get("filter", lib.FD_FILTER_OWN)
    pixels = ffi.new("fd_pixels *")
    dtype = options.get("dtype", "uint8")
    pixels.dtype, pixels.channels = DTYPES.get(dtype, 0), options.get("channels", 3)
    pixels.channels_first = options.get("channels_first", False)
    pixels.scale, pixels.bias = SCALE.tolist(), BIAS.tolist()
    sides = (area[3], area[2]) if status == lib.FD_OK else (9, 9)
    shape = (3, *sides) if pixels.channels_first else (*sides, pixels.channels)
    resampler = options.get("resampler") or new_resampler()
    memory = ffi.cast("uint8_t *", image.ctypes.data)
    source = (memory, width, height, image.shape[2], image.strides[0])

    def make() -> Any:
        memory = np.full(int(np.prod(shape)) + 64, 77, dtype if dtype in DTYPES else "uint8")
        what = resize, ffi.NULL, 0, pixels, ffi.from_buffer(memory)
        assert lib.fd_resize_rgb(resampler, *source, *what) == status
        if pixels.channels == 4:
            memory[3:-64:4] = 77  # may be anything
        return memory

    guarded = with_each(make)
    assert_same(guarded[-64:], 77)
    if status != lib.FD_OK:
        assert_same(guarded, 77)
    return guarded[:-64].reshape(shape)


def images(seed: int, count: int, largest: int = 300) -> Iterator[tuple[Any, Any, Box, Any]]:
    """Draw images, canvases, boxes with fractions, of which some stick out, and generators."""
    for i in range(count):
        random = np.random.default_rng((seed, i))
        width, height, *canvas = np.exp(random.uniform(np.log(2), np.log(largest), 4)).astype(int)
        beyond = random.choice([0, 0, 0.2])
        left, right = np.sort(random.uniform(-beyond * width, (1 + beyond) * width, 2))
        top, bottom = np.sort(random.uniform(-beyond * height, (1 + beyond) * height, 2))
        box = (min(left, width - 0.1), min(top, height - 0.1), max(right, 0.1), max(bottom, 0.1))
        if i % 5 == 4:  # of the canvas's size, or nearly: is it a copy?
            canvas = [int(random.integers(1, side + 1)) for side in (width, height)]
            begin = [
                random.integers(0, width - canvas[0] + 1) + random.choice([0, 0, 0.4]),
                random.integers(0, height - canvas[1] + 1) + random.choice([0, 0, 0.4]),
            ]
            sides = np.array(canvas) + random.choice([0, 0, 0.4], 2)
            box = (*begin, begin[0] + sides[0], begin[1] + sides[1])
        far = max(box[2], box[0] + 0.01), max(box[3], box[1] + 0.01)
        edges = tuple(map(float, (*box[:2], *far)))
        yield pattern(KINDS[i % 4], height, width, random), tuple(map(int, canvas)), edges, random


def touched(image: Any, box: Box) -> tuple[int, int, int, int]:
    """Return the edges of the pixels that a box touches, or of the nearest one."""
    height, width = image.shape[:2]
    left, top = (
        min(max(0, int(at)), side - 1) for at, side in zip(box[:2], (width, height), strict=True)
    )
    right, bottom = (
        min(int(np.ceil(at)), side) for at, side in zip(box[2:], (width, height), strict=True)
    )
    return left, top, max(right, left + 1), max(bottom, top + 1)


def exact(image: Any, canvas: tuple[int, int], box: Box) -> Any:
    """Compute the filter in double precision, without any rounding; out of reach is the edge."""
    for axis, (low, high, results) in enumerate(
        ((box[1], box[3], canvas[1]), (box[0], box[2], canvas[0]))
    ):
        scale, side = (high - low) / results, image.shape[axis]
        centers = low + (np.arange(results) + 0.5) * scale
        offsets = np.arange(side) + 0.5 - centers[:, None]
        weights = np.maximum(0, 1 - np.abs(offsets) / max(scale, 1))
        nearest = np.clip(centers, 0.5, side - 0.5).astype(int)
        weights[np.arange(results), nearest] += weights.sum(axis=1) == 0
        weights /= weights.sum(axis=1, keepdims=True)
        image = np.moveaxis(np.tensordot(weights, image.astype(float), (1, axis)), 0, axis)
    return image


def test_pixels_are_the_exact_ones_rounded_once() -> None:
    """Of any box, also beyond the image; floats are v * scale + bias, each step in float32.

    A rectangle equals that of the whole canvas, flip mirrors it, rows may lie anywhere, and pixels
    that may not be read have no influence.
    """
    for image, canvas, box, random in images(1, 200):
        want = resized(image, canvas, box=box)
        assert np.abs(want - exact(image, canvas, box)).max() < 0.6, (image.shape, canvas, box)

        x, y = int(random.integers(canvas[0])), int(random.integers(canvas[1]))
        width, height = (
            int(random.integers(1, side + 1)) for side in (canvas[0] - x, canvas[1] - y)
        )
        dtype, first, flip = str(random.choice(list(DTYPES))), *map(bool, random.integers(0, 2, 2))
        part: dict[str, Any] = {"box": box, "part": (x, y, width, height), "flip": flip}
        levels = want[y : y + height, x : x + width][:, :: -1 if flip else 1]
        values = levels if dtype == "uint8" else (levels.astype(np.float32) * SCALE + BIAS)
        made = resized(image[::-1].copy()[::-1], canvas, dtype=dtype, channels_first=first, **part)
        made = made.transpose(1, 2, 0) if first else made
        assert_same(made, values.astype(dtype), (canvas, part))

        left, top, right, bottom = touched(image, box)
        cut = np.ascontiguousarray(image[top:bottom, left:right])
        moved = {**part, "box": (box[0] - left, box[1] - top, box[2] - left, box[3] - top)}
        seen = resized(image, canvas, inside=(left, top, right, bottom), **part)
        assert_same(seen, resized(cut, canvas, **moved))


@pytest.mark.parametrize("scale", [2.02, 4.02, 8.02, 16.02])
def test_a_part_inside_has_the_bits_of_the_whole_canvas(scale: float) -> None:
    """The largest weights, which the bits depend on, are those of the canvas's outermost pixels."""
    side = round(50 * scale)
    image = pattern("black and white", side, side, np.random.default_rng(6))
    want = resized(image, (50, 50))[5:45, 5:45]

    assert_same(resized(image, (50, 50), part=(5, 5, 40, 40)), want)


@pytest.mark.parametrize("sides", EXTREMES.split())
def test_any_scale_works(sides: str) -> None:
    """From one pixel to the largest sides, values are the exact ones, rounded."""
    width, height, *canvas = map(int, sides.replace(">", "x").split("x"))
    image = pattern("noise", height, width, np.random.default_rng(9))
    want = exact(image, (canvas[0], canvas[1]), (0, 0, width, height))

    assert np.abs(resized(image, (canvas[0], canvas[1])) - want).max() < 0.6


@pytest.mark.parametrize(("x", "y"), [(5, 0), (-5, 0), (0, 5), (0, -5)])
def test_a_box_of_the_same_size_that_sticks_out_is_no_copy(x: int, y: int) -> None:
    """It repeats the edge, too, beyond which pixels may not be read."""
    image = pattern("noise", 50, 70, np.random.default_rng(11))
    rows = np.clip(np.arange(10 + y, 30 + y), 10, 29)
    columns = np.clip(np.arange(10 + x, 40 + x), 10, 39)

    result = resized(image, (30, 20), box=(10 + x, 10 + y, 40 + x, 30 + y), inside=(10, 10, 40, 30))

    assert_same(result, image[np.ix_(rows, columns)])


@pytest.mark.parametrize("size", [(1, 1), (9, 1), (40, 50)])
@pytest.mark.parametrize("name", ["OWN", "CUBIC", "TORCH_LANCZOS", "TORCH_CUBIC"])
def test_pixels_may_have_four_bytes(name: str, size: tuple[int, int]) -> None:
    """In memory and in the result, where the fourth is of no account; not if they are floats."""
    rows = np.random.default_rng(12).integers(0, 256, (*size, 4), np.uint8)
    how = {"filter": getattr(lib, f"FD_FILTER_{name}")}
    for canvas in (size[::-1], (33, 20)):
        wanted = resized(rows[:, :, :3].copy(), canvas, **how)
        assert_same(resized(rows, canvas, **how), wanted)
        assert_same(resized(rows, canvas, channels=4, **how)[:, :, :3], wanted)
    for wrong in ({"dtype": "float32"}, {"channels_first": True}):
        resized(rows, canvas, lib.FD_ARGUMENT, channels=4, part=(0, 0, 9, 9), **wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"box": (float("nan"), 0, 9, 9)},
        {"box": (0, 0, float("inf"), 9)},
        {"box": (0, -1e9, 9, 9)},
        {"box": (5, 0, 5, 9)},
        {"box": (0, 9, 9, 0)},
        {"box": (10, 0, 12, 9)},
        {"box": (-3, 0, 0, 9)},
        {"inside": (0, 0, 11, 10)},
        {"inside": (-1, 0, 10, 10)},
        {"inside": (4, 0, 4, 10)},
        {"inside": (0, 2**31 - 1, 10, -(2**31))},
        {"part": (0, 0, 9, 8)},
        {"part": (-1, 0, 5, 5)},
        {"part": (7, 7, 2**31 - 1, 1)},
        {"part": (0, 8, 1, 1)},
        {"part": (0, 0, 0, 1)},
        {"part": (0, 0, 1, -1)},
        {"dtype": "int8"},
        {"canvas": (0, 8)},
        {"canvas": (65501, 8)},
        {"canvas": (8, 2**31 - 1)},
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    """Impossible boxes, areas, canvases and types are refused, and nothing is written."""
    image = np.zeros((10, 10, 3), np.uint8)

    resized(image, **{"canvas": (8, 8), "part": (0, 0, 4, 4), "status": lib.FD_ARGUMENT, **wrong})


def test_instructions_are_chosen_by_name() -> None:
    """Vectors and plain loops always exist; an unknown set is refused, and changes nothing."""
    names = {"x86_64": "sse2", "AMD64": "sse2", "aarch64": "neon", "arm64": "neon"}
    assert INSTRUCTIONS[-2:] == [names.get(platform.machine(), "vectors"), "plain"]
    for name in (b"avx2 plain", b"plain ", b"mmx"):
        assert lib.fd_use_instructions(name) == lib.FD_ARGUMENT
    assert lib.fd_use_instructions(ffi.NULL) == lib.FD_ARGUMENT


PILLOW_FILTERS = {
    "TRIANGLE": Image.Resampling.BILINEAR,
    "CUBIC": Image.Resampling.BICUBIC,
    "LANCZOS": Image.Resampling.LANCZOS,
    "HAMMING": Image.Resampling.HAMMING,
}


TORCH_FILTERS = {
    "TORCH_TRIANGLE": "bilinear",
    "TORCH_CUBIC": "bicubic",
    "TORCH_LANCZOS": "lanczos",
}


def _resized_elsewhere(name: str, pixels: np.ndarray, canvas: tuple[int, int]) -> np.ndarray:
    """Return pixels as the library resizes them whose filter this is."""
    if name in PILLOW_FILTERS:
        return np.asarray(Image.fromarray(pixels).resize(canvas, PILLOW_FILTERS[name]))
    interpolate = pytest.importorskip("torch.nn.functional").interpolate
    image = sys.modules["torch"].from_numpy(pixels.copy()).permute(2, 0, 1)[None]
    how = {"align_corners": False, "antialias": True, "mode": TORCH_FILTERS[name]}
    try:
        made = interpolate(image, canvas[::-1], **how)
    except NotImplementedError:
        pytest.skip("an older torch has no Lanczos")
    return np.asarray(made[0].permute(1, 2, 0))


@pytest.mark.parametrize("name", ["OWN", *PILLOW_FILTERS, *TORCH_FILTERS])
def test_nothing_is_left_of_the_image_before(name: str) -> None:
    """A resampler that has resized other images gives the pixels of a new one."""
    used, filter = new_resampler(), getattr(lib, f"FD_FILTER_{name}")
    for image, canvas, box, _ in images(13, 40, 120):
        whole = touched(image, box)
        how = {"box": whole, "inside": whole, "filter": filter}
        want = resized(image, canvas, **how)

        assert_same(resized(image, canvas, resampler=used, **how), want, (canvas, box))


@pytest.mark.parametrize("name", PILLOW_FILTERS)
@pytest.mark.parametrize("more", [-1, 0, 1])
def test_the_order_of_the_passes_is_pillows(name: str, more: int) -> None:
    """Which direction comes first decides the last bit, also if the height shrinks twice as much.

    Pillow resizes rows first, unless that is more work by its estimate.
    """
    random = np.random.default_rng(more + 1)
    for width, height, across in ((200, 200, 50), (90, 120, 20), (33, 300, 3), (64, 64, 0)):
        pixels = random.integers(0, 256, (height, width, 3)).astype(np.uint8)
        canvas = width - across, height - 2 * across - more
        expected = Image.fromarray(pixels).resize(canvas, PILLOW_FILTERS[name])
        made = resized(pixels, canvas, filter=getattr(lib, f"FD_FILTER_{name}"))
        assert_same(made, np.asarray(expected), (width, height, across))


@pytest.mark.parametrize("name", [*PILLOW_FILTERS, *TORCH_FILTERS])
@given(data=st.data())
@settings(max_examples=examples(80))
def test_filters_of_libraries_give_their_bytes(name: str, data: Any) -> None:
    """A box resized with a filter of Pillow or torch, or a part, equals crop and resize there."""
    width, height = data.draw(SIDES), data.draw(SIDES)
    left, top = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    right = data.draw(st.integers(left + 1, width))
    bottom = data.draw(st.integers(top + 1, height))
    same = st.just(right - left), st.just(bottom - top)  # which is not resized
    canvas = data.draw(SIDES | same[0]), data.draw(SIDES | same[1])
    assume(canvas != (1, 1))  # of which torch 2.13 says that it has a bug
    x, y = data.draw(st.integers(0, canvas[0] - 1)), data.draw(st.integers(0, canvas[1] - 1))
    part = x, y, data.draw(st.integers(1, canvas[0] - x)), data.draw(st.integers(1, canvas[1] - y))
    flip, seed = data.draw(st.booleans()), data.draw(st.integers(0, 2**32))
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3)).astype(np.uint8)

    expected = _resized_elsewhere(name, pixels[top:bottom, left:right], canvas)
    expected = expected[y : y + part[3], x : x + part[2]][:, :: -1 if flip else 1]
    box = left, top, right, bottom
    options = {"filter": getattr(lib, f"FD_FILTER_{name}"), "flip": flip, "part": part}
    made = resized(pixels, canvas, box=box, inside=box, **options)
    assert_same(made, expected)
