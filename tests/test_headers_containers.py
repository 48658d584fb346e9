"""JPEG 2000, JPEG XL, AVIF and HEIC headers, and orientation in every format."""

from __future__ import annotations

import io
import struct
from typing import Any

import pytest
from encoded import HEIGHT, WIDTH, JxlBits, box, heif, ispe, saved, with_orientation
from PIL import Image

from fastdecode._headers import probe
from fastdecode.errors import DecodeError


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("pillow_format", ["JPEG", "PNG", "WEBP", "AVIF"])
def test_stored_orientation_is_reported(pillow_format: str, value: int) -> None:
    """Where the decoder gives stored pixels, the header has their size and the orientation."""
    header = probe(saved(pillow_format, exif=with_orientation(value).tobytes()))
    assert (header.width, header.height, header.orientation) == (WIDTH, HEIGHT, value)


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize(
    "options", [{}, {"compression": "tiff_lzw"}, {"big_tiff": True}], ids=["raw", "lzw", "big"]
)
def test_tiff_is_described_upright(options: dict[str, Any], value: int) -> None:
    """Pillow turns a TIFF while it loads it, and the header has the size after that."""
    data = saved("TIFF", tiffinfo={0x0112: value}, **options)
    header = probe(data)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert (header.width, header.height, header.orientation) == (*image.size, 1)
    assert (header.width < header.height) == (value >= 5)


@pytest.mark.parametrize("value", range(1, 9))
def test_heic_is_described_upright(value: int) -> None:
    """Libheif turns a HEIC, and the header has the size after that."""
    pillow_heif = pytest.importorskip("pillow_heif")
    stream = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (64, 48))).save(
        stream, exif=with_orientation(value).tobytes()
    )
    header = probe(stream.getvalue())
    decoded = pillow_heif.open_heif(stream.getvalue())
    assert (header.width, header.height, header.orientation) == (*decoded.size, 1)


def test_jpeg2000_codestream_has_an_origin() -> None:
    """The picture begins at the image offset, which counts from the size."""
    siz = struct.pack(">HHHIIII", 0xFF51, 50, 0, WIDTH + 3, HEIGHT + 2, 3, 2) + bytes(16)
    header = probe(b"\xff\x4f" + siz + struct.pack(">H", 3) + bytes((11, 1, 1)) * 3)
    assert (header.width, header.height) == (WIDTH, HEIGHT)
    assert (header.channels, header.bits, header.color) == (3, 12, "rgb")


def test_jpeg2000_header_box() -> None:
    """Depths that vary come from bpcc; the enumerated colour space is used."""
    boxes = (
        box(b"ihdr", struct.pack(">IIHBBBB", HEIGHT, WIDTH, 4, 255, 7, 0, 0)),
        box(b"bpcc", b"\x0f\x0f\x0f\x0f"),
        box(b"colr", struct.pack(">BBBI", 1, 0, 0, 12)),
    )
    header = probe(b"\0\0\0\x0cjP  \r\n\x87\n" + box(b"jp2h", *boxes))
    assert (header.width, header.height, header.channels) == (WIDTH, HEIGHT, 4)
    assert (header.bits, header.color) == (16, "cmyk")


@pytest.mark.parametrize(
    ("ratio", "width"), [(1, 200), (2, 240), (3, 266), (4, 300), (5, 355), (6, 250), (7, 400)]
)
def test_jxl_ratios(ratio: int, width: int) -> None:
    """The width may be a fraction of the height, rounded down."""
    bits = JxlBits().put(0, 1).put(0, 2).put(199, 9).put(ratio, 3).put(1, 1)
    header = probe(bits.bytes())
    assert (header.width, header.height, header.bits) == (width, 200, 8)


@pytest.mark.parametrize("value", range(1, 9))
def test_jxl_is_described_upright(value: int) -> None:
    """Libjxl turns the pixels, and the header has the size after that."""
    bits = JxlBits().size(WIDTH, HEIGHT).put(0, 1).put(1, 1).put(value - 1, 3).put(0, 3)
    header = probe(bits.bytes())
    expected = (WIDTH, HEIGHT) if value < 5 else (HEIGHT, WIDTH)
    assert (header.width, header.height, header.orientation) == (*expected, 1)


def test_jxl_metadata() -> None:
    """Bit depth, an alpha channel, grey and an animation are read from the bits."""
    bits = JxlBits().size(WIDTH, HEIGHT).put(0, 1)
    bits.put(1, 1).put(0, 3).put(0, 1).put(0, 1)  # extra fields: upright, nothing optional …
    bits.put(1, 1).put(0, 2).put(0, 2).put(0, 2).put(0, 1)  # … but an animation
    bits.put(0, 1).put(3, 2).put(15, 6)  # 16-bit integers
    bits.put(1, 1).put(1, 2).put(1, 1)  # one extra channel, alpha by default
    bits.put(0, 1).put(0, 1).put(0, 1).put(1, 2)  # not XYB, a colour encoding: grey
    header = probe(bits.bytes())
    assert (header.bits, header.channels, header.color) == (16, 2, "gray")
    assert header.animated


def test_jxl_container_joins_its_parts() -> None:
    """A codestream that is split over jxlp boxes is read across them."""
    code = JxlBits().size(WIDTH, HEIGHT).put(1, 1).bytes()
    start = b"\0\0\0\x0cJXL \r\n\x87\n" + box(b"Exif", bytes(20))
    parts = box(b"jxlp", bytes(4), code[:3]) + box(b"jxlp", b"\x80\0\0\1", code[3:])
    for data in (start + parts, start + box(b"jxlc", code)):
        header = probe(data)
        assert (header.width, header.height) == (WIDTH, HEIGHT)


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\x0a",
        b"\0\0\0\x0cJXL \r\n\x87\n",
        b"\0\0\0\x0cJXL \r\n\x87\n" + box(b"jxlc", b"nonsense"),
    ],
)
def test_jxl_damaged(data: bytes) -> None:
    """No codestream, or one that ends in its header, is a DecodeError."""
    with pytest.raises(DecodeError):
        probe(data)


@pytest.mark.parametrize(
    ("angle", "axis", "orientation"),
    [(1, None, 8), (2, None, 3), (3, None, 6), (None, 0, 4), (None, 1, 2), (1, 0, 5), (3, 0, 7)],
)
def test_avif_rotation_and_mirror_are_an_orientation(
    angle: int | None, axis: int | None, orientation: int
) -> None:
    """Irot (anticlockwise) and imir say what EXIF would, and do not change the stored size."""
    properties = [ispe(WIDTH, HEIGHT)]
    properties += [] if angle is None else [box(b"irot", bytes([angle]))]
    properties += [] if axis is None else [box(b"imir", bytes([axis]))]
    header = probe(heif(b"avif", *properties))
    assert (header.width, header.height, header.orientation) == (WIDTH, HEIGHT, orientation)


def test_heic_is_cropped_then_turned() -> None:
    """The clean aperture and the rotation change a HEIC's size, in the file's order."""
    clap = box(b"clap", struct.pack(">IIIIiIiI", 10, 1, 5, 1, -3, 2, -2, 2))
    turned = heif(b"heic", ispe(WIDTH, HEIGHT), clap, box(b"irot", b"\x01"))
    header = probe(turned)
    assert (header.width, header.height, header.orientation) == (5, 10, 1)
    assert (probe(heif(b"avif", ispe(WIDTH, HEIGHT), clap)).width) == WIDTH


def test_codec_configuration_gives_bits_and_gray() -> None:
    """10-bit AVIF and grey HEIC are known from av1C and hvcC."""
    deep = heif(b"avif", ispe(WIDTH, HEIGHT), box(b"av1C", b"\x81\x00\x40\x00"))
    gray = heif(b"heic", ispe(WIDTH, HEIGHT), box(b"hvcC", bytes(17) + b"\x02" + bytes(5)))
    assert (probe(deep).bits, probe(deep).channels) == (10, 3)
    assert (probe(gray).bits, probe(gray).channels, probe(gray).color) == (10, 1, "gray")


def test_avif_sequence_shows_its_track() -> None:
    """An AVIF whose major brand is avis has its track's size, and is animated."""
    pytest.importorskip("PIL._avif")
    frames = [Image.new("RGB", (WIDTH, HEIGHT), color) for color in ("red", "blue")]
    stream = io.BytesIO()
    frames[0].save(stream, "AVIF", save_all=True, append_images=frames[1:])
    header = probe(stream.getvalue())
    assert (header.width, header.height, header.animated) == (WIDTH, HEIGHT, True)


@pytest.mark.parametrize(
    "data",
    [
        heif(b"avif"),
        heif(b"heic", ispe(0, 5)),
        box(b"ftyp", b"avif", bytes(4)),
        box(b"ftyp", b"heic", bytes(4)) + b"\0\0\0\x03meta",
        heif(b"heic", ispe(4, 4), box(b"clap", struct.pack(">IIIIiIiI", 1, 0, 1, 1, 0, 1, 0, 1))),
    ],
)
def test_heif_damaged(data: bytes) -> None:
    """No primary image, no size or an impossible box is a DecodeError."""
    with pytest.raises(DecodeError):
        probe(data)
