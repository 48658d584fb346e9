"""More than 8 bits: mode "stored" returns all bits, the other modes the high ones."""

from __future__ import annotations

import io
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from corpus import decode_by_all, needs_tifffile, usable_backends
from deep import FILES, samples
from forged import tiff
from PIL import Image
from same import assert_same

from fastdecode import decode, probe
from fastdecode._pixels import box_reduce, converter
from fastdecode.errors import UnsupportedFormat
from fastdecode.types import REDUCES


@pytest.mark.parametrize("kind", FILES)
def test_sixteen_bits_of_colour(kind: str) -> None:
    """16-bit colour is uint16 with the encoded values, from every backend."""
    channels, data = FILES[kind]

    answers = decode_by_all(data, mode="stored")

    assert "auto" in answers or not answers
    for name, image in answers.items():
        assert image.dtype == np.uint16
        assert_same(image, samples(channels), name)
        assert image.flags.c_contiguous
        assert image.flags.writeable


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("name", sorted({"pillow", "opencv"} & {*usable_backends()}))
def test_eight_bits_are_the_high_byte(kind: str, name: str) -> None:
    """RGB and RGBA are the high byte of each value, from every backend."""
    channels, data = FILES[kind]
    high = (samples(channels) >> 8).astype(np.uint8)
    seen = high[:, :, [0] * 3 if channels == 2 else slice(3)]
    needs_tifffile(data)

    assert_same(decode(data), seen)
    with suppress(UnsupportedFormat):
        assert_same(decode(data, backend=name), seen)
    if channels in (2, 4):
        assert_same(decode(data, mode="RGBA")[:, :, 3], high[:, :, -1])


def test_sixteen_bits_of_ink() -> None:
    """CMYK of 16 bits is four channels of uint16."""
    data = tiff(samples(4), 16, 5)
    needs_tifffile(data)
    image = decode(data, mode="stored")

    assert_same(image, samples(4))


@pytest.mark.parametrize(
    "kind", ["PNG RGB", "PNG RGBA", "PNG grey with alpha", "TIFF of 3, {'planar': True}"]
)
@pytest.mark.parametrize("reduce", REDUCES)
def test_deep_colour_is_reduced_cut_and_written(kind: str, reduce: Any) -> None:
    """`reduce`, `region` and `out` mean the same for 16 bits as for 8."""
    channels, data = FILES[kind]
    whole = box_reduce(samples(channels), reduce)
    needs_tifffile(data)

    assert_same(decode(data, reduce, mode="stored"), whole)
    part = decode(data, reduce, mode="stored", region=(2, 1, 11, 8))
    columns, rows = slice(2 // reduce, -(-11 // reduce)), slice(1 // reduce, 8)
    assert_same(part, whole[rows, columns][: -(-8 // reduce)])
    out = np.zeros_like(whole)
    assert decode(data, reduce, mode="stored", out=out) is out
    assert_same(out, whole)
    with pytest.raises(ValueError, match="out"):
        decode(data, reduce, mode="stored", out=np.zeros(whole.shape, np.uint8))


def test_pillow_image_of_deep_colour_is_our_error() -> None:
    """Pillow has no mode for 16-bit colour, which the package's own error says."""
    with pytest.raises(UnsupportedFormat):
        converter("pil")(samples(3))
    assert isinstance(converter("pil")(samples(1)[:, :, 0]), Image.Image)


@pytest.mark.parametrize("bits", [10, 12])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
def test_deep_avif(channels: int, bits: int) -> None:
    """AVIF of 10 and 12 bits is uint16 in its own range, and 8 bits in other modes."""
    imagecodecs = pytest.importorskip("imagecodecs")
    image = samples(channels, bits)
    image = image[:, :, 0] if channels == 1 else image
    form = "400" if channels < 3 else "444"
    data = imagecodecs.avif_encode(image, level=100, bitspersample=bits, pixelformat=form)

    found = decode_by_all(data, mode="stored")
    assert found
    for name, stored in found.items():
        assert_same(stored, image, name)
        assert stored.dtype == np.uint16
    assert_same(decode(data), decode(data, backend="pillow"))
    with pytest.raises(UnsupportedFormat):
        decode(data, backend="imagecodecs")
    with pytest.raises(UnsupportedFormat, match=f"{bits}"):
        decode(data, mode="stored", backend="pillow")


@pytest.mark.parametrize("bits", [10, 12])
@pytest.mark.parametrize("mode", ["I;16", "RGB;16", "RGBA;16"])
def test_deep_heic(mode: str, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """HEIC of 10 and 12 bits is uint16 in its own range; 8 bits are within 3 of the high byte."""
    pillow_heif = pytest.importorskip("pillow_heif")
    monkeypatch.setattr(pillow_heif.options, "SAVE_HDR_TO_12_BIT", bits == 12)
    y, x = np.mgrid[:64, :96]
    channels = {"I;16": 1, "RGB;16": 3, "RGBA;16": 4}[mode]
    image = np.dstack([(x + y * 2 + c * 9) * 200 for c in range(channels)]).astype(np.uint16)
    stream = io.BytesIO()
    pillow_heif.from_bytes(mode, (96, 64), image.tobytes()).save(stream, quality=95)
    data = stream.getvalue()

    stored = np.atleast_3d(decode(data, mode="stored"))

    assert probe(data).bits == bits
    assert stored.dtype == np.uint16
    assert stored.max() < 1 << bits
    assert np.abs(stored.astype(int) - (image >> 16 - bits)).mean() < (1 << bits) / 50
    shown = decode(data, mode="L" if channels == 1 else "RGBA")
    assert (
        np.abs(np.atleast_3d(shown)[:, :, :channels] - (stored >> bits - 8).astype(int)).max() < 4
    )


@pytest.mark.parametrize("bits", [9, 10, 12, 16])
def test_deep_jpeg_xl_is_not_black(bits: int) -> None:
    """JPEG XL keeps the file's range, and 8 bits are its high byte."""
    imagecodecs = pytest.importorskip("imagecodecs")
    image = samples(3, bits)
    data = imagecodecs.jpegxl_encode(image, lossless=True, bitspersample=bits)

    assert_same(decode(data, mode="stored"), image)
    assert_same(decode(data), (image >> bits - 8).astype(np.uint8))
