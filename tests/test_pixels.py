"""From what a backend hands out to what the caller asked for, and what it is handed out as."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from fastdecode import _pixels, decode
from fastdecode._pixels import converter
from fastdecode.testing import drawing, encode
from fastdecode.types import MODES, Header, Mode

WIDTH, HEIGHT = 7, 5
CHANNELS = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4, "CMYK": 4}


def noise(mode: str) -> Image.Image:
    """Make an image of random samples."""
    count = WIDTH * HEIGHT * CHANNELS[mode]
    samples = np.random.default_rng(count).integers(0, 256, count, dtype=np.uint8)
    return Image.frombytes(mode, (WIDTH, HEIGHT), samples.tobytes())


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
    np.testing.assert_array_equal(converted, np.array(source.convert(mode)))


@pytest.mark.parametrize("layout", ["L", "RGB", "RGBA", "CMYK", "stored"])
def test_native_is_handed_through(layout: str) -> None:
    """For mode "stored" nothing is converted, whatever the layout and the type."""
    image = np.zeros((HEIGHT, WIDTH, 4), np.uint16)

    assert _pixels.convert(image, layout, "stored", header(16)) is image


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
def test_image_that_is_a_view_is_converted(mode: Mode) -> None:
    """A mirrored or cropped image is converted like its copy."""
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
    """A window speaks of the reduced image; its blocks are those of the whole."""
    image = np.arange(40 * 24).reshape(24, 40)

    part = _pixels.crop(image, (1, 0, 4, 2), reduce)

    np.testing.assert_array_equal(part[::reduce, ::reduce], image[::reduce, ::reduce][0:2, 1:4])


def test_array_and_pillow_image() -> None:
    """An array is handed out as it is; a Pillow image has the same pixels, and its own memory."""
    image = np.array(drawing(13, 7))
    made = converter("pil")(image)

    assert converter("array")(image) is image
    assert isinstance(made, Image.Image)
    assert (np.asarray(made) == image).all()
    assert made.size == (13, 7)
    assert not np.shares_memory(np.asarray(made), image)


def test_tensor_shares_the_memory() -> None:
    """A tensor has the channels first, and is a view of the array."""
    torch = pytest.importorskip("torch", reason="tensors are PyTorch's")
    image = np.array(drawing(13, 7))
    made, gray = converter("tensor")(image), converter("tensor")(image[:, :, 0])

    assert isinstance(made, torch.Tensor)
    assert tuple(made.shape) == (3, 7, 13)
    assert tuple(gray.shape) == (7, 13)
    image[2, 5] = 77
    assert made[:, 2, 5].tolist() == [77, 77, 77]
