"""Conversion of a backend's result to the mode, size and type that the caller asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from corpus import needs_tifffile
from encoded import INVERSE
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps
from same import assert_same

from fastdecode import _pixels, decode
from fastdecode._pixels import box_reduce
from fastdecode.testing import encode
from fastdecode.types import REDUCES, Header, Mode, Reduce

WIDTH, HEIGHT = 7, 5
SIZES = ((1, 1), (3, 5), (7, 13), (8, 1))
ORIENTATIONS = range(1, 9)
CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}


def noise(mode: str, width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """Return an image of random values, alpha included."""
    count = width * height * CHANNELS[mode]
    samples = np.random.default_rng(count).integers(0, 256, count, dtype=np.uint8)
    return Image.frombytes(mode, (width, height), samples.tobytes())


def header(bits: int = 8, format: str = "png", color: str = "rgb") -> Header:
    return Header(format, WIDTH, HEIGHT, bits=bits, color=color)


CONVERTED = [
    *((kind, kind) for kind in ("L", "RGB", "RGBA", "CMYK")),
    *((kind, "stored") for kind in ("L", "L with an axis", "LA", "RGB", "RGBA", "CMYK")),
]


@pytest.mark.parametrize(("kind", "layout"), CONVERTED)
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_convert_is_pillows(kind: str, layout: str, mode: Mode) -> None:
    """Every layout becomes every mode as Pillow's own `convert` makes it, by way of RGB for ink.

    What a file holds is grey, grey and alpha, RGB or RGBA by the number of its channels, but for
    inks, which the header names.
    """
    image = noise(kind.split(maxsplit=1)[0])
    source = image.convert("RGB") if kind == "CMYK" else image
    given = np.array(image)[:, :, None] if "axis" in kind else np.array(image)
    color = "cmyk" if kind == "CMYK" else "rgb"

    converted = _pixels.convert(given, layout, mode, header(color=color))

    assert converted.dtype == np.uint8
    assert_same(converted, np.array(source.convert(mode)))


@pytest.mark.parametrize(
    ("format", "bits", "dtype", "samples", "expected"),
    [
        ("png", 16, np.uint16, [0, 255, 256, 32767, 65535], [0, 0, 1, 127, 255]),
        ("jpeg", 12, np.uint16, [0, 15, 16, 2047, 4095], [0, 0, 1, 127, 255]),
        ("jpeg2000", 16, np.uint16, [0, 255, 256, 65535], [0, 0, 1, 255]),
        ("jpeg2000", 12, np.uint16, [0, 15, 16, 4095], [0, 0, 1, 255]),
        ("jpeg2000", 4, np.uint8, [0, 1, 8, 15], [0, 17, 136, 255]),
        ("jpeg", 2, np.uint8, [0, 1, 2, 3], [0, 85, 170, 255]),
        ("jxl", 10, np.uint16, [0, 4, 1023], [0, 1, 255]),
        ("heic", 12, np.uint16, [0, 16, 4095], [0, 1, 255]),
        ("jxl", 4, np.uint8, [0, 17, 255], [0, 17, 255]),
        ("png", 1, np.bool_, [False, True], [0, 255]),
    ],
    ids=str,
)
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_other_depths_become_eight_bits(format, bits, dtype, samples, expected, mode) -> None:
    """More than 8 bits are cut to the high 8, fewer are spread over 0 to 255, floats are clipped.

    Samples of more than 8 bits keep the range that the header names.
    """
    image = np.array([samples], dtype)

    converted = _pixels.convert(image, "stored", mode, header(bits, format))

    assert converted.dtype == np.uint8
    assert (converted if mode == "L" else converted[:, :, 1]).tolist() == [expected]


# ---- reducing: the box filter by which everything is shrunk that no decoder can shrink ----


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_decode_reduces_as_pillow(mode: str, reduce: Reduce, size: tuple[int, int]) -> None:
    """Files are reduced as in Pillow, with smaller blocks at the far edges.

    The fourth channel of CMYK is not alpha.
    """
    image = noise(mode, *size)

    data = encode(image, "tiff" if mode == "CMYK" else "png")
    needs_tifffile(data)
    reduced = decode(data, reduce, mode="stored")

    assert_same(reduced, np.array(image.reduce(reduce)))


@pytest.mark.parametrize("channels", [2, 4])
@pytest.mark.parametrize("reduce", [2, 4, 8])
def test_wide_colours_are_weighted_by_their_alpha(channels, reduce) -> None:
    """16-bit images with alpha are averaged weighted by alpha, like 8-bit ones."""
    image = np.random.default_rng(2).integers(0, 256, (17, 13, channels), np.uint8)
    image[:, :, -1] = np.where(image[:, :, -1] > 200, 255, 0)  # 8 bits premultiply without loss

    reduced = box_reduce(image.astype(np.uint16) * 257, reduce)

    expected = box_reduce(image, reduce).astype(int)
    seen = expected[:, :, -1] > 0
    limit = 255 // np.maximum(expected[:, :, -1:], 1) + 1  # by which 8 bits are rounded
    assert (np.abs(reduced / 257 - expected) <= limit)[seen].all()


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("channels", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("reduce", [2, 4, 8])
def test_wide_means_are_rounded_to_the_nearest(dtype: Any, channels: int, reduce: Reduce) -> None:
    """Values above 255 are not clipped, and no mean is rounded down, with and without alpha."""
    shape = (13, 26, channels) if channels else (13, 26)
    image = np.random.default_rng(3).integers(0, 65536, shape).astype(dtype)
    opaque = channels in (2, 4) and dtype == np.uint16
    if opaque:
        image[:, :, -1] = 65535

    reduced = box_reduce(image, reduce, color="rgb" if opaque else "cmyk")  # whose 4th is ink

    for y, x in np.ndindex(reduced.shape[:2]):
        block = image[reduce * y : reduce * (y + 1), reduce * x : reduce * (x + 1)]
        mean = block.mean(axis=(0, 1), dtype=float)
        np.testing.assert_allclose(reduced[y, x], mean, atol=0.51, rtol=1e-5)


@pytest.mark.parametrize("reduce", [2, 4, 8])
def test_palette_indices_and_masks_are_sampled(reduce: Reduce) -> None:
    """The stored pixels of a reduced palette image, or a mask, are the middle ones of blocks."""
    indices = np.random.default_rng(3).choice([0, 40, 200], (13, 21)).astype(np.uint8)
    image = Image.fromarray(indices).convert("P")
    image.putdata(indices.ravel().tolist())
    data = encode(image, "png")
    whole = decode(data, mode="stored")

    reduced = decode(data, reduce, mode="stored")

    rows, columns = (
        [min(at + reduce // 2, side - 1) for at in range(0, side, reduce)] for side in whole.shape
    )
    assert_same(reduced, whole[np.ix_(rows, columns)])
    assert_same(box_reduce(whole == 40, reduce), whole[np.ix_(rows, columns)] == 40)


def test_stored_jpegs_have_their_own_channels() -> None:
    """The stored pixels of a grey JPEG are (H, W), those of one in colour (H, W, 3)."""
    colour = noise("RGB", 13, 7)

    assert decode(encode(colour.convert("L"), "jpeg"), mode="stored").shape == (7, 13)
    assert decode(encode(colour, "jpeg"), mode="stored").shape == (7, 13, 3)


# ---- EXIF orientation: turning images, turning them back, and turning boxes ----


def numbered(width: int = 5, height: int = 3, channels: int = 3) -> np.ndarray:
    """Return an image in which all pixels differ."""
    values = np.arange(width * height * max(channels, 1), dtype=np.uint8)
    return values.reshape((height, width, channels) if channels else (height, width))


def upright(stored: np.ndarray, value: int) -> np.ndarray:
    """Apply the orientation as Pillow does."""
    image = Image.fromarray(stored)
    image.getexif()[0x0112] = value
    return np.array(ImageOps.exif_transpose(image))


@pytest.mark.parametrize("value", ORIENTATIONS)
@pytest.mark.parametrize("channels", [0, 3, 4])
def test_apply_is_what_pillow_shows(value: int, channels: int) -> None:
    """`apply_orientation` equals `ImageOps.exif_transpose`, and `INVERSE` inverts it."""
    stored = numbered(channels=channels)

    seen = _pixels.apply_orientation(stored, value)

    assert_same(seen, upright(stored, value))
    assert_same(stored, numbered(channels=channels))
    assert_same(_pixels.apply_orientation(seen, INVERSE[value]), stored)
    assert np.shares_memory(seen, stored)
    assert _pixels.seen_size(5, 3, value) == (seen.shape[1], seen.shape[0])


@given(
    value=st.sampled_from(ORIENTATIONS), width=st.integers(1, 12), height=st.integers(1, 12),
    data=st.data(),
)  # fmt: skip
def test_stored_box_holds_the_same_pixels(
    value: int, width: int, height: int, data: st.DataObject
) -> None:
    """A box of the upright image, cut from the stored one and rotated, shows the same pixels."""
    stored = numbered(width, height, 0)
    seen = _pixels.apply_orientation(stored, value)
    left = data.draw(st.integers(0, seen.shape[1] - 1))
    top = data.draw(st.integers(0, seen.shape[0] - 1))
    right = data.draw(st.integers(left + 1, seen.shape[1]))
    bottom = data.draw(st.integers(top + 1, seen.shape[0]))

    a, b, c, d = _pixels.stored_box((left, top, right, bottom), seen.shape[1], seen.shape[0], value)

    assert 0 <= a < c <= width
    assert 0 <= b < d <= height
    turned = _pixels.apply_orientation(stored[b:d, a:c], value)
    assert_same(turned, seen[top:bottom, left:right])
