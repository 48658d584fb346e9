"""From what a backend hands out to what the caller asked for."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from fastdecode import _pixels, decode
from fastdecode.testing import encode
from fastdecode.types import MODES, Header, Mode

WIDTH, HEIGHT = 7, 5
CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}


def noise(mode: str) -> Image.Image:
    """Make a picture of random samples."""
    count = WIDTH * HEIGHT * CHANNELS[mode]
    samples = np.random.default_rng(count).integers(0, 256, count, dtype=np.uint8)
    return Image.frombytes(mode, (WIDTH, HEIGHT), samples.tobytes())


def header(bits: int = 8, format: str = "png", color: str = "rgb") -> Header:
    return Header(format, WIDTH, HEIGHT, bits=bits, color=color)


@pytest.mark.parametrize("layout", ["L", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_convert_is_pillows(layout: str, mode: Mode) -> None:
    """Every layout becomes every mode as Pillow's own `convert` makes it, by way of RGB for ink."""
    image = noise(layout)
    source = image.convert("RGB") if layout == "CMYK" else image

    converted = _pixels.convert(np.array(image), layout, mode, header())

    assert converted.dtype == np.uint8
    np.testing.assert_array_equal(converted, np.array(source.convert(mode)))


@pytest.mark.parametrize("source", ["L", "LA", "RGB", "RGBA"])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_native_pixels_are_converted_by_their_channels(source: str, mode: Mode) -> None:
    """What a file holds is grey, grey and alpha, RGB or RGBA by the number of its channels."""
    image = noise(source)

    converted = _pixels.convert(np.array(image), "stored", mode, header())

    np.testing.assert_array_equal(converted, np.array(image.convert(mode)))


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_native_inks_are_converted_as_inks(mode: Mode) -> None:
    """Four native channels that the header calls CMYK are inks, not RGBA."""
    image = noise("CMYK")

    converted = _pixels.convert(np.array(image), "stored", mode, header(color="cmyk"))

    np.testing.assert_array_equal(converted, np.array(image.convert("RGB").convert(mode)))


@pytest.mark.parametrize("layout", ["L", "RGB", "RGBA", "CMYK", "stored"])
def test_native_is_handed_through(layout: str) -> None:
    """For mode "stored" nothing is converted, whatever the layout and the type."""
    image = np.zeros((HEIGHT, WIDTH, 4), np.uint16)

    assert _pixels.convert(image, layout, "stored", header(16)) is image


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_one_channel_may_have_an_axis_of_its_own(mode: Mode) -> None:
    """(H, W, 1) native pixels are grey."""
    image = noise("L")

    converted = _pixels.convert(np.array(image)[:, :, None], "stored", mode, header())

    np.testing.assert_array_equal(converted, np.array(image.convert(mode)))


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
        ("tiff", 32, np.float32, [-1, 0, 0.5, 1, 2], [0, 0, 128, 255, 255]),
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


@pytest.mark.parametrize("mode", MODES)
def test_picture_that_is_a_view_is_converted(mode: Mode) -> None:
    """A mirrored or cropped picture is converted like its copy."""
    image = np.array(noise("RGBA"))[::-1, 2:5]

    converted = _pixels.convert(image, "RGBA", mode, header())

    np.testing.assert_array_equal(converted, _pixels.convert(image.copy(), "RGBA", mode, header()))


@pytest.mark.parametrize("source", ["L", "LA", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
def test_decode_converts_as_pillow(source: str, mode: Mode) -> None:
    """`decode` gives what Pillow's `convert` makes of the file's own mode."""
    image = noise(source)

    converted = decode(encode(image, "tiff"), mode=mode)

    original = image.convert("RGB") if source == "CMYK" else image
    np.testing.assert_array_equal(converted, np.array(original.convert(mode)))


@pytest.mark.parametrize("reduce", [1, 2, 4, 8])
def test_crop_then_reduce_equals_reduce_then_crop(reduce: int) -> None:
    """A window speaks of the reduced picture; its blocks are those of the whole."""
    image = np.arange(40 * 24).reshape(24, 40)

    part = _pixels.crop(image, (1, 0, 4, 2), reduce)

    np.testing.assert_array_equal(part[::reduce, ::reduce], image[::reduce, ::reduce][0:2, 1:4])


WRONG_OUTS = {
    "shape": np.full((HEIGHT, WIDTH + 1, 3), 9, np.uint8),
    "dimensions": np.full((HEIGHT, WIDTH), 9, np.uint8),
    "broadcast": np.full((2, HEIGHT, WIDTH, 3), 9, np.uint8),
    "wider type": np.full((HEIGHT, WIDTH, 3), 9, np.uint16),
    "other type": np.full((HEIGHT, WIDTH, 3), 9, np.int8),
}


@pytest.mark.parametrize("out", WRONG_OUTS.values(), ids=WRONG_OUTS)
def test_deliver_writes_nothing_into_a_wrong_array(out: np.ndarray) -> None:
    """An array of another shape or type is a ValueError that names both, and stays as it was."""
    image = np.array(noise("RGB"))

    with pytest.raises(ValueError, match=r"\(5, 7, 3\) and dtype uint8, not .*" + str(out.dtype)):
        _pixels.deliver(image, out)

    assert (out == 9).all()


def test_deliver_fills_and_returns_out() -> None:
    """The caller's array gets the pixels and is what comes back."""
    image = np.array(noise("RGB"))
    out = np.zeros_like(image)

    assert _pixels.deliver(image, out) is out
    np.testing.assert_array_equal(out, image)


def read_only(image: np.ndarray) -> np.ndarray:
    image.flags.writeable = False
    return image


VIEWS = {
    "as it is": lambda image: image,
    "read-only": read_only,
    "mirrored": lambda image: image[:, ::-1],
    "turned": lambda image: image.swapaxes(0, 1),
    "columns": lambda image: image[:, 2:4],
    "rows": lambda image: image[1:3],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_deliver_gives_the_caller_an_array_of_his_own(view) -> None:
    """The result is C-contiguous and writable, and keeps no larger picture in memory."""
    image = view(np.array(noise("RGB")))

    result = _pixels.deliver(image, None)

    assert result.flags.c_contiguous
    assert result.flags.writeable
    assert result.base is None or result.base.nbytes == result.nbytes
    np.testing.assert_array_equal(result, image)
