"""EXIF orientation: turning pictures, turning them back, and turning boxes."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from fastdecode import _pixels, decode

ORIENTATIONS = range(1, 9)
WIDTH, HEIGHT = 5, 3


def numbered(width: int = WIDTH, height: int = HEIGHT, channels: int = 3) -> np.ndarray:
    """Make a picture in which no two pixels are alike."""
    values = np.arange(width * height * max(channels, 1), dtype=np.uint8)
    return values.reshape((height, width, channels) if channels else (height, width))


def upright(stored: np.ndarray, value: int) -> np.ndarray:
    """Turn a picture as Pillow does."""
    image = Image.fromarray(stored)
    image.getexif()[0x0112] = value
    return np.array(ImageOps.exif_transpose(image))


@pytest.mark.parametrize("value", ORIENTATIONS)
@pytest.mark.parametrize("channels", [0, 3, 4])
def test_apply_is_what_pillow_shows(value: int, channels: int) -> None:
    """Stored pixels become the picture that `PIL.ImageOps.exif_transpose` makes of them."""
    stored = numbered(channels=channels)

    np.testing.assert_array_equal(_pixels.apply_orientation(stored, value), upright(stored, value))


@pytest.mark.parametrize("value", ORIENTATIONS)
def test_apply_takes_no_copy(value: int) -> None:
    """Turning gives a view, and leaves the stored pixels as they were."""
    stored = numbered()

    assert np.shares_memory(_pixels.apply_orientation(stored, value), stored)
    np.testing.assert_array_equal(stored, numbered())


@pytest.mark.parametrize("value", ORIENTATIONS)
@pytest.mark.parametrize("channels", [0, 3])
def test_undo_is_the_inverse(value: int, channels: int) -> None:
    """Undoing what was applied gives the stored pixels, and the other way round."""
    stored = numbered(channels=channels)

    there_and_back = _pixels.undo_orientation(_pixels.apply_orientation(stored, value), value)
    back_and_there = _pixels.apply_orientation(_pixels.undo_orientation(stored, value), value)

    np.testing.assert_array_equal(there_and_back, stored)
    np.testing.assert_array_equal(back_and_there, stored)


@pytest.mark.parametrize("value", ORIENTATIONS)
def test_seen_size_is_that_of_the_turned_picture(value: int) -> None:
    """Width and height change places exactly where the pixels do."""
    height, width = _pixels.apply_orientation(numbered(), value).shape[:2]

    assert _pixels.seen_size(WIDTH, HEIGHT, value) == (width, height)


@given(
    value=st.sampled_from(ORIENTATIONS), width=st.integers(1, 12), height=st.integers(1, 12),
    data=st.data(),
)  # fmt: skip
def test_stored_box_holds_the_same_pixels(
    value: int, width: int, height: int, data: st.DataObject
) -> None:
    """A box of the picture as seen, cut from the stored one and turned, shows the same pixels."""
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
    np.testing.assert_array_equal(turned, seen[top:bottom, left:right])


@pytest.mark.parametrize("value", ORIENTATIONS)
def test_decode_turns_only_when_asked(value: int) -> None:
    """By default `decode` gives stored pixels; with orient=True those that Pillow shows."""
    exif = Image.Exif()
    exif[0x0112] = value
    stream = io.BytesIO()
    Image.fromarray(numbered()).save(stream, "PNG", exif=exif)

    seen = decode(stream.getvalue(), orient=True)

    np.testing.assert_array_equal(decode(stream.getvalue()), numbered())
    np.testing.assert_array_equal(seen, upright(numbered(), value))
    assert seen.flags.c_contiguous


@pytest.mark.parametrize("value", [0, 9, 255])
def test_impossible_value_is_ignored(value: int) -> None:
    """An EXIF value outside 1 to 8 leaves the picture as it is stored."""
    exif = Image.Exif()
    exif[0x0112] = value
    stream = io.BytesIO()
    Image.fromarray(numbered()).save(stream, "PNG", exif=exif)

    np.testing.assert_array_equal(decode(stream.getvalue(), orient=True), numbered())
