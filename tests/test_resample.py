"""The box filter by which everything is shrunk that no decoder can shrink."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from fastdecode import decode
from fastdecode._pixels import box_reduce, sample_reduce
from fastdecode.testing import encode
from fastdecode.types import REDUCES, Reduce

SIZES = ((1, 1), (3, 5), (7, 13), (8, 1))
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4, "LA": 2, "CMYK": 4}


def noise(width: int, height: int, mode: str) -> Image.Image:
    """Make an image of random samples, alpha included."""
    count = width * height * CHANNELS[mode]
    samples = np.random.default_rng(count).integers(0, 256, count, dtype=np.uint8)
    return Image.frombytes(mode, (width, height), samples.tobytes())


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA"])
@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_box_reduce_is_pillows(mode: str, reduce: Reduce, size: tuple[int, int]) -> None:
    """Blocks are averaged as by `PIL.Image.reduce`, the smaller ones at the far edges too."""
    image = noise(*size, mode)

    reduced = box_reduce(np.array(image), reduce)

    assert reduced.dtype == np.uint8
    np.testing.assert_array_equal(reduced, np.array(image.reduce(reduce)))


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "CMYK"])
@pytest.mark.parametrize("reduce", [2, 4, 8])
def test_decode_reduces_as_pillow(mode: str, reduce: Reduce) -> None:
    """What a file holds is reduced as Pillow reduces it; the fourth ink, black, is no alpha."""
    image = noise(13, 7, mode)

    reduced = decode(encode(image, "tiff" if mode == "CMYK" else "png"), reduce, mode="stored")

    np.testing.assert_array_equal(reduced, np.array(image.reduce(reduce)))


@pytest.mark.parametrize("filter_", [box_reduce, sample_reduce])
@pytest.mark.parametrize("reduce", REDUCES)
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("channels", [(), (1,), (3,), (4,), (5,)], ids=str)
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.bool_, np.float32])
def test_size_is_the_ceiling(filter_, reduce, size, channels, dtype) -> None:
    """Every reduction of every type gives ceil(side / reduce), and keeps dtype and channels."""
    width, height = size
    image = np.full((height, width, *channels), 255).astype(dtype)

    reduced = filter_(image, reduce)

    assert reduced.shape == (-(-height // reduce), -(-width // reduce), *channels)
    assert reduced.dtype == dtype
    assert (reduced == image[0, 0]).all()


@pytest.mark.parametrize("dtype", [np.uint16, np.int32, np.float32, np.float64])
@pytest.mark.parametrize("channels", [(), (3,), (4,)], ids=str)
def test_wide_types_are_averaged_in_their_own_range(dtype, channels) -> None:
    """Samples above 255 are averaged, not clipped: each block's mean, within rounding."""
    image = np.random.default_rng(1).integers(0, 65536, (7, 13, *channels)).astype(dtype)

    reduced = box_reduce(image, 4, color="cmyk")  # a fourth channel is ink, not alpha

    for y, x in np.ndindex(reduced.shape[:2]):
        block = image[4 * y : 4 * y + 4, 4 * x : 4 * x + 4]
        np.testing.assert_allclose(reduced[y, x], block.mean(axis=(0, 1)), atol=0.6, rtol=1e-5)


@pytest.mark.parametrize("channels", [2, 4])
@pytest.mark.parametrize("reduce", [2, 4, 8])
def test_wide_colours_are_weighted_by_their_alpha(channels, reduce) -> None:
    """16 bits with alpha are averaged as 8 bits are: what is transparent lends no colour."""
    image = np.random.default_rng(2).integers(0, 256, (17, 13, channels), np.uint8)
    image[:, :, -1] = np.where(image[:, :, -1] > 200, 255, 0)  # 8 bits premultiply without loss

    reduced = box_reduce(image.astype(np.uint16) * 257, reduce)

    expected = box_reduce(image, reduce).astype(int)
    seen = expected[:, :, -1] > 0
    limit = 255 // np.maximum(expected[:, :, -1:], 1) + 1  # by which 8 bits are rounded
    assert (np.abs(reduced / 257 - expected) <= limit)[seen].all()


def test_byte_order_is_kept() -> None:
    """Samples in the other byte order are averaged by their value."""
    image = np.array([[256, 512], [256, 512]], ">u2")

    reduced = box_reduce(image, 2)

    assert reduced.dtype == np.dtype(">u2")
    assert reduced.tolist() == [[384]]


@pytest.mark.parametrize("reduce", [2, 4, 8])
def test_mask_stays_a_mask(reduce: Reduce) -> None:
    """Of a bool mask one pixel of each block is taken: an average would be neither."""
    image = np.random.default_rng(2).random((13, 21)) < 0.5

    np.testing.assert_array_equal(box_reduce(image, reduce), sample_reduce(image, reduce))


@given(
    image=arrays(np.uint8, st.tuples(st.integers(1, 20), st.integers(1, 20))),
    reduce=st.sampled_from(REDUCES),
)
def test_sample_reduce_never_invents_a_value(image: np.ndarray, reduce: Reduce) -> None:
    """Every class number of the result stands in the block that it is taken from."""
    reduced = sample_reduce(image, reduce)

    for y, x in np.ndindex(reduced.shape):
        block = image[reduce * y : reduce * (y + 1), reduce * x : reduce * (x + 1)]
        assert reduced[y, x] in block


@pytest.mark.parametrize("reduce", [2, 4, 8])
def test_palette_indices_are_sampled(reduce: Reduce) -> None:
    """The native pixels of a palette image stay indices of the file at every reduction."""
    indices = np.random.default_rng(3).choice([0, 40, 200], (13, 21)).astype(np.uint8)
    image = Image.fromarray(indices).convert("P")
    image.putdata(indices.ravel().tolist())
    data = encode(image, "png")
    whole = decode(data, mode="stored")

    reduced = decode(data, reduce, mode="stored")

    np.testing.assert_array_equal(reduced, sample_reduce(whole, reduce))
    assert set(np.unique(reduced)) <= set(np.unique(whole))


def test_views_and_read_only_images_are_read() -> None:
    """An image that is neither contiguous nor writable is reduced like its copy."""
    image = np.array(noise(16, 24, "RGB"))[::-1, ::2]
    image.flags.writeable = False

    np.testing.assert_array_equal(box_reduce(image, 2), box_reduce(image.copy(), 2))
