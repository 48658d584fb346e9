"""Tests that JPEG 2000 gives the pixels of OpenJPEG, in every backend that accepts the file."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import numpy as np
import pytest
from corpus import TESTS, decode_by_all
from encoded import box
from same import assert_same

from fastdecode import UnsupportedFormat, decode, probe
from fastdecode.errors import DecodeError, FastDecodeError

imagecodecs = pytest.importorskip("imagecodecs")

WIDTH, HEIGHT = 31, 23
FILES = TESTS / "data" / "formats"
SRGB, GRAY, EYCC = 16, 17, 24


def samples(channels: int, bits: int) -> Any:
    """Make (H, W, C) samples over the whole range, including 0 and the highest value."""
    dtype = np.uint8 if bits <= 8 else np.uint16
    shape = (HEIGHT, WIDTH, channels)
    image = np.random.default_rng(bits).integers(0, 1 << bits, shape, dtype)
    image[0], image[-1] = 0, (1 << bits) - 1
    return image


def codestream(image: Any, bits: int) -> bytes:
    """Encode losslessly, each channel on its own."""
    squeezed = image[:, :, 0] if image.shape[2] == 1 else image
    options: dict[str, Any] = {"level": 0, "codecformat": "j2k", "bitspersample": bits}
    return bytes(imagecodecs.jpeg2k_encode(squeezed, reversible=True, mct=False, **options))


def jp2(image: Any, bits: int, space: int, *more: bytes) -> bytes:
    """Wrap a codestream in a JP2 file with a colour space."""
    ihdr = struct.pack(">IIHBBBB", HEIGHT, WIDTH, image.shape[2], bits - 1, 7, 0, 0)
    colr = b"\1\0\0" + struct.pack(">I", space)
    return b"".join(
        (
            box(b"jP  ", b"\r\n\x87\n"),
            box(b"ftyp", b"jp2 ", bytes(4), b"jp2 "),
            box(b"jp2h", box(b"ihdr", ihdr), box(b"colr", colr), *more),
            box(b"jp2c", codestream(image, bits)),
        )
    )


def palette(columns: int, bits: int = 8) -> tuple[Any, bytes]:
    """Make a palette of shape (256, columns), and the boxes that describe it."""
    dtype = np.uint8 if bits <= 8 else np.uint16
    colours = np.random.default_rng(3).integers(0, 1 << bits, (256, columns), dtype)
    head = struct.pack(">HB", 256, columns) + bytes([bits - 1] * columns)
    mapping = b"".join(struct.pack(">HBB", 0, 1, column) for column in range(columns))
    big = colours.astype(colours.dtype.newbyteorder(">")).tobytes()
    return colours, box(b"pclr", head, big) + box(b"cmap", mapping)


@pytest.mark.parametrize(
    ("name", "digest"),
    [("gen_ycc420.jp2", "060e9c2abdd3fc7f"), ("gen_422.j2k", "ebfbae63eb7699c8")],
)
def test_subsampled_chroma_matches_openjpeg(name: str, digest: str) -> None:
    """YCC 4:2:0 and a bare 4:2:2 codestream give the pixels of `opj_decompress` 2.5.0."""
    answers = decode_by_all((FILES / name).read_bytes())

    assert {"auto", "imagecodecs"} <= set(answers)
    for image in answers.values():
        assert hashlib.sha256(image.tobytes()).hexdigest()[:16] == digest


@pytest.mark.parametrize("bits", [1, 2, 4, 7, 8, 9, 10, 12, 16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4])
@pytest.mark.parametrize("boxed", [False, True], ids=["j2k", "jp2"])
def test_every_depth_is_decoded_exactly(channels: int, bits: int, boxed: bool) -> None:
    """Every backend gives the encoded samples in mode "stored", and 8-bit samples in RGB."""
    image = samples(channels, bits)
    space = GRAY if channels < 3 else SRGB
    data = jp2(image, bits, space) if boxed else codestream(image, bits)
    colours = image[:, :, :3] if channels > 2 else np.repeat(image[:, :, :1], 3, axis=2)
    spread = colours.astype(int) * 255 // ((1 << bits) - 1)
    expected = (colours >> bits - 8 if bits >= 8 else spread).astype(np.uint8)

    stored, shown = decode_by_all(data, mode="stored"), decode_by_all(data)

    assert {"auto", "imagecodecs"} <= set(stored)
    assert set(stored) == set(shown)
    for name, native in stored.items():
        assert_same(np.atleast_3d(native), image, name)
        assert native.dtype == image.dtype
        assert_same(shown[name], expected, name)


@pytest.mark.parametrize("bits", [8, 12, 16])
def test_signed_samples_count_from_zero(bits: int) -> None:
    """Every backend shifts signed grey by half its range, as `opj_decompress` does."""
    image = samples(1, bits)
    signed = (image.astype(np.int32) - (1 << bits - 1)).astype(f"i{image.itemsize}")
    data = codestream(signed, bits)

    answers = decode_by_all(data, mode="stored")

    assert {"auto", "imagecodecs", "pillow"} <= set(answers)
    for name, native in answers.items():
        assert_same(native, image[:, :, 0], name)


@pytest.mark.parametrize(
    ("columns", "bits"), [(3, 8), (4, 8), (1, 8), (2, 8), (3, 4), (3, 12), (1, 16)]
)
def test_palette(columns: int, bits: int) -> None:
    """RGB gives the colours of a palette, and mode "stored" the indices.

    Of a grey palette, or one that is not 8-bit, which Pillow misreads, both modes give the colours.
    """
    indices = samples(1, 8)
    colours, boxes = palette(columns, bits)
    data = jp2(indices, 8, SRGB if columns > 2 else GRAY, boxes)
    misread = columns < 3 or bits != 8
    seen = colours[indices[:, :, 0]]

    stored, shown = decode_by_all(data, mode="stored"), decode_by_all(data)

    assert not misread or set(stored) == set(shown) == {"auto", "imagecodecs"}
    for name, image in stored.items():
        assert_same(np.atleast_3d(image), seen if misread else indices, name)
    eight = seen >> bits - 8 if bits >= 8 else seen.astype(int) * 255 // ((1 << bits) - 1)
    for name, image in shown.items():
        assert_same(image, eight[:, :, [0] * 3 if columns < 3 else slice(3)].tolist(), name)
    assert misread or probe(data).color == "palette"


def test_channel_definition_in_another_order() -> None:
    """Components defined as blue, green, red are returned as red, green, blue."""
    image = samples(3, 8)
    order = struct.pack(">H9H", 3, 0, 0, 3, 1, 0, 2, 2, 0, 1)
    answers = decode_by_all(jp2(image, 8, SRGB, box(b"cdef", order)))

    assert set(answers) == {"auto", "imagecodecs"}
    for name, shown in answers.items():
        assert_same(shown, image[:, :, ::-1], name)


@pytest.mark.parametrize("space", [EYCC, 14, 1, 999])
def test_colours_of_an_unknown_space_are_not_guessed(space: int) -> None:
    """An unknown colour space is decoded in mode "stored" and unsupported in other modes."""
    image = samples(3, 8)
    data = jp2(image, 8, space)

    assert_same(decode(data, mode="stored"), image)
    for mode in ("RGB", "L", "RGBA"):
        with pytest.raises(UnsupportedFormat):
            decode(data, mode=mode)


@pytest.mark.parametrize("channels", [5, 6, 8, 17])
@pytest.mark.parametrize("bits", [1, 8, 16])
@pytest.mark.parametrize("boxed", [False, True], ids=["j2k", "jp2"])
def test_more_channels_than_colours(channels: int, bits: int, boxed: bool) -> None:
    """Five or more channels decode in mode "stored", also reduced; other modes are an error."""
    image = samples(channels, bits)
    data = jp2(image, bits, SRGB) if boxed else codestream(image, bits)

    assert_same(decode(data, mode="stored"), image)
    assert decode(data, 4, mode="stored").shape == (6, 8, channels)
    for mode in ("RGB", "L", "RGBA"):
        for backend in (None, "imagecodecs", "pillow"):
            with pytest.raises(FastDecodeError):
                decode(data, mode=mode, backend=backend)


def test_headers_that_cannot_be() -> None:
    """Fewer channels in a box than in the codestream, and components without samples, are damage.

    Subsampling other than 4:2:2 and 4:2:0 is unsupported.
    """
    data = jp2(samples(5, 8), 8, SRGB)
    sides = struct.pack(">II", HEIGHT, WIDTH)
    fewer = data.replace(sides + b"\0\5\7", sides + b"\0\3\7")
    assert fewer != data
    for backend in (None, "imagecodecs", "pillow"):
        with pytest.raises(FastDecodeError):
            decode(fewer, backend=backend)
    tall = bytearray(codestream(samples(3, 8), 8))
    tall[42 + 3 + 2] = tall[42 + 6 + 2] = 2  # YRsiz of the second and third component
    assert probe(bytes(tall)).subsampling == "4:4:0"
    with pytest.raises(UnsupportedFormat, match="4:4:0"):
        decode(bytes(tall))
    none = bytearray(codestream(samples(1, 8), 8))
    none[42 + 1] = 0
    with pytest.raises(DecodeError):
        probe(bytes(none))
