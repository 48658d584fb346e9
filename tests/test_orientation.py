"""EXIF orientation: turning images, turning them back, and turning boxes."""

from __future__ import annotations

import io

import numpy as np
import pytest
from encoded import with_orientation
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, ImageOps

from fastdecode import _pixels, decode

ORIENTATIONS = range(1, 9)
WIDTH, HEIGHT = 5, 3


def numbered(width: int = WIDTH, height: int = HEIGHT, channels: int = 3) -> np.ndarray:
    """Make an image in which no two pixels are alike."""
    values = np.arange(width * height * max(channels, 1), dtype=np.uint8)
    return values.reshape((height, width, channels) if channels else (height, width))


def upright(stored: np.ndarray, value: int) -> np.ndarray:
    """Turn an image as Pillow does."""
    image = Image.fromarray(stored)
    image.getexif()[0x0112] = value
    return np.array(ImageOps.exif_transpose(image))


@pytest.mark.parametrize("value", ORIENTATIONS)
@pytest.mark.parametrize("channels", [0, 3, 4])
def test_apply_is_what_pillow_shows(value: int, channels: int) -> None:
    """Stored pixels become a view of what `PIL.ImageOps.exif_transpose` makes, and back again."""
    stored = numbered(channels=channels)

    seen = _pixels.apply_orientation(stored, value)
    back_and_there = _pixels.apply_orientation(_pixels.undo_orientation(stored, value), value)

    np.testing.assert_array_equal(seen, upright(stored, value))
    np.testing.assert_array_equal(stored, numbered(channels=channels))
    np.testing.assert_array_equal(_pixels.undo_orientation(seen, value), stored)
    np.testing.assert_array_equal(back_and_there, stored)
    assert np.shares_memory(seen, stored)
    assert _pixels.seen_size(WIDTH, HEIGHT, value) == (seen.shape[1], seen.shape[0])


@given(
    value=st.sampled_from(ORIENTATIONS), width=st.integers(1, 12), height=st.integers(1, 12),
    data=st.data(),
)  # fmt: skip
def test_stored_box_holds_the_same_pixels(
    value: int, width: int, height: int, data: st.DataObject
) -> None:
    """A box of the image as seen, cut from the stored one and turned, shows the same pixels."""
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


@pytest.mark.parametrize("value", [*ORIENTATIONS, 0, 9, 255])
def test_decode_turns_only_when_asked(value: int) -> None:
    """By default `decode` gives stored pixels; with orient=True those that Pillow shows.

    A value outside 1 to 8 leaves the image as it is stored.
    """
    stream = io.BytesIO()
    Image.fromarray(numbered()).save(stream, "PNG", exif=with_orientation(value))

    seen = decode(stream.getvalue(), orient=True)

    np.testing.assert_array_equal(decode(stream.getvalue()), numbered())
    possible = value if value in ORIENTATIONS else 1
    np.testing.assert_array_equal(seen, upright(numbered(), possible))
    assert seen.flags.c_contiguous
