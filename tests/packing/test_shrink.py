"""Tests of shrinking images: sizes, formats and metadata."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from corpus import CORPUS
from PIL import Image, ImageCms
from same import assert_same

from fastdecode import DecodeError, decode, probe
from fastdecode.packing import pack
from fastdecode.packing._rewrite import EncodedImage, can_shrink, shrink, smaller_size
from fastdecode.stores import open_store
from fastdecode.testing import drawing, encode

PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def _shrunk(data: bytes, max_side: int = 32, quality: int = 90) -> tuple[EncodedImage, Image.Image]:
    made = shrink(data, probe(data), max_side, quality)
    image = Image.open(io.BytesIO(made.data))
    image.load()
    assert max(image.size) == max_side
    return made, image


PHOTO = drawing(120, 80)


@pytest.mark.parametrize(
    ("size", "most", "made"),
    [
        ((640, 480), 256, (256, 192)),
        ((641, 480), 256, (256, 192)),
        ((480, 641), 256, (192, 256)),
        ((9000, 2), 100, (100, 1)),
    ],
)
def test_sizes(size: tuple[int, int], most: int, made: tuple[int, int]) -> None:
    """The longer side gets the given length; the other keeps the proportion and is at least 1."""
    assert smaller_size(*size, most) == made


def test_jpeg_keeps_metadata() -> None:
    """A shrunk JPEG keeps orientation and profile alone; its pixels are those of a resize."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a description"
    data = encode(PHOTO, "jpeg", quality=95, exif=exif, icc_profile=PROFILE)

    made, image = _shrunk(data, 60)

    header = probe(made.data)
    assert (header.width, header.height, header.orientation) == (60, 40, 6)
    assert header.subsampling == "4:2:0"
    assert dict(image.getexif()) == {0x0112: 6}
    assert image.info["icc_profile"] == PROFILE
    wanted = Image.fromarray(decode(data)).resize((60, 40), Image.Resampling.LANCZOS)
    again = encode(wanted, "jpeg", quality=90, subsampling="4:2:0")
    assert_same(decode(again), decode(made.data))


def test_the_decoder_reduces_first() -> None:
    """A much larger JPEG is reduced while decoding first, with nearly the same result."""
    data = encode(drawing(1600, 1200), "jpeg", quality=95)
    _, image = _shrunk(data, 100)
    whole = Image.fromarray(decode(data)).resize((100, 75), Image.Resampling.LANCZOS)

    again = Image.open(io.BytesIO(encode(whole, "jpeg", quality=90)))

    assert np.abs(np.asarray(again).astype(int) - np.asarray(image)).mean() < 3


@pytest.mark.parametrize(
    ("mode", "format", "suffix", "becomes"),
    [
        ("L", "jpeg", ".jpg", "L"),
        ("CMYK", "jpeg", ".jpg", "RGB"),
        ("RGB", "png", ".jpg", "RGB"),
        ("RGB", "bmp", ".jpg", "RGB"),
        ("RGB", "webp", ".jpg", "RGB"),
        ("RGBA", "png", ".png", "RGBA"),
        ("RGBA", "webp", ".png", "RGBA"),
        ("P", "png", ".png", "RGB"),
        ("P", "gif", ".png", "RGB"),
        ("L", "png", ".jpg", "L"),
        ("LA", "png", ".png", "LA"),
        ("1", "png", ".png", "L"),
    ],
)
def test_formats(mode: str, format: str, suffix: str, becomes: str) -> None:
    """Opaque 8-bit images become JPEG; transparency and palettes become PNG.

    They keep their profile of colours.
    """
    if mode in ("RGBA", "LA"):
        image = PHOTO.convert(mode[:-1])
        image.putalpha(Image.linear_gradient("L").resize(image.size))
    else:
        image = PHOTO.convert(mode)

    made, small = _shrunk(encode(image, format, icc_profile=PROFILE))

    assert (made.suffix, small.mode) == (suffix, becomes)
    kept = format in ("jpeg", "png", "webp") and mode != "CMYK"  # that of inks is of no use
    assert small.info.get("icc_profile") == (PROFILE if kept else None)


def test_transparent_pixels_do_not_bleed() -> None:
    """The colours of transparent pixels do not bleed into visible ones."""
    pixels = np.zeros((80, 80, 4), np.uint8)
    pixels[::2] = (255, 0, 0, 255)
    pixels[1::2] = (0, 255, 0, 0)

    _, image = _shrunk(encode(Image.fromarray(pixels), "png"), 20)

    seen = np.asarray(image)
    assert_same(seen[..., 1][seen[..., 3] > 0], 0)


def test_orientation_is_not_applied_twice() -> None:
    """A TIFF is decoded upright, so its orientation is removed; a WebP keeps its orientation."""
    exif = Image.Exif()
    exif[0x0112] = 6
    tiff, _ = _shrunk(encode(PHOTO, "tiff", exif=exif))
    webp, _ = _shrunk(encode(PHOTO, "webp", exif=exif, lossless=True))

    assert (probe(tiff.data).orientation, probe(tiff.data).height) == (1, 32)
    assert (probe(webp.data).orientation, probe(webp.data).width) == (6, 32)


def test_damaged_and_strange_metadata() -> None:
    """Metadata that is damaged or too large is dropped, and the image is still shrunk."""
    exif = Image.Exif()
    exif[0x0112] = 8
    large = encode(PHOTO, "png", exif=exif.tobytes() + bytes(70_000))
    broken = encode(PHOTO, "jpeg", exif=b"Exif\0\0MM\0*\xff\xff\xff\xff")
    exif[0x0112] = 9

    for data, orientation in ((large, 8), (broken, 1), (encode(PHOTO, "jpeg", exif=exif), 1)):
        assert probe(_shrunk(data)[0].data).orientation == orientation


def test_images_that_cannot_be_shrunk_keep_their_bytes(tmp_path: Path) -> None:
    """Animations and 16-bit images are not shrunk: they keep their bytes and are counted."""
    (tmp_path / "source").mkdir()
    frames = [PHOTO.rotate(angle) for angle in (0, 90, 180)]
    data = encode(frames[0], "gif", save_all=True, append_images=frames[1:])
    (tmp_path / "source" / "a.gif").write_bytes(data)

    packed = pack(tmp_path / "source", tmp_path / "out.tar", max_side=32)

    assert not can_shrink(probe(data))
    deep = Image.fromarray((np.arange(120 * 80, dtype=np.uint16) * 6).reshape(80, 120))
    assert not any(can_shrink(probe(encode(deep, format))) for format in ("png", "tiff"))
    assert packed.notes == {"too large": 1}
    with open_store(tmp_path / "out.tar") as store:
        assert bytes(store.read(0)) == data


def test_truncated_jpeg_is_an_error() -> None:
    """A truncated JPEG is an error when it is shrunk, as when it is decoded at full size."""
    data = (CORPUS / "malformed" / "gen_jpg_cut667.jpg").read_bytes()

    with pytest.raises(DecodeError):
        shrink(data, probe(data), 8, 90)


def test_only_larger_images_change(tmp_path: Path) -> None:
    """Only larger images change; a new format's suffix is added to the name."""
    source = tmp_path / "source"
    source.mkdir()
    small = encode(drawing(30, 20), "png")
    (source / "small.png").write_bytes(small)
    (source / "a.png").write_bytes(encode(PHOTO, "png"))
    (source / "a.bmp").write_bytes(encode(PHOTO, "bmp"))
    (source / "b.PNG").write_bytes(encode(PHOTO, "png"))
    (source / "c.JPEG").write_bytes(encode(PHOTO, "jpeg"))
    (source / "wide.jpg").write_bytes(encode(drawing(40, 20), "jpeg"))
    same = encode(drawing(32, 32), "jpeg")
    (source / "same.jpg").write_bytes(same)

    packed = pack(source, tmp_path / "out", max_side=32)

    names = sorted(path.name for path in (tmp_path / "out").iterdir() if path.suffix != ".fdx")
    assert names == [
        *("a.bmp.jpg", "a.png.jpg", "b.PNG.jpg", "c.JPEG", "same.jpg", "small.png", "wide.jpg")
    ]
    assert packed.notes == {"shrunk": 5}
    assert (tmp_path / "out" / "same.jpg").read_bytes() == same
    assert (tmp_path / "out" / "small.png").read_bytes() == small
