"""PNG, GIF, BMP, WebP and TIFF headers."""

from __future__ import annotations

import io
import struct

import pytest
from encoded import HEIGHT, WIDTH, bmp, chunk, gif, gif_picture, png, saved, tiff, with_orientation
from PIL import Image

from fastdecode._headers import probe
from fastdecode.errors import DecodeError


@pytest.mark.parametrize(
    ("bits", "color_type", "channels", "color"),
    [
        (1, 0, 1, "gray"),
        (16, 0, 1, "gray"),
        (8, 2, 3, "rgb"),
        (16, 2, 3, "rgb"),
        (4, 3, 1, "palette"),
        (8, 4, 2, "gray"),
        (16, 6, 4, "rgb"),
    ],
)
def test_png_color_types(bits: int, color_type: int, channels: int, color: str) -> None:
    """Every colour type gives its channels, bits and colour model."""
    header = probe(png(bits, color_type))
    assert (header.bits, header.channels, header.color) == (bits, channels, color)


def test_png_interlaced_is_progressive() -> None:
    """Adam7 shows in `progressive`."""
    assert probe(png(8, 2, interlace=1)).progressive
    assert not probe(png(8, 2)).progressive


@pytest.mark.parametrize(("frames", "animated"), [(2, True), (1, False)])
def test_png_animated(frames: int, animated: bool) -> None:
    """An acTL chunk of several frames before the pixels makes an animation."""
    assert probe(png(8, 2, chunk(b"acTL", struct.pack(">II", frames, 0)))).animated is animated


@pytest.mark.parametrize(
    "data",
    [
        png(3, 2),
        png(8, 5),
        png(8, 2, width=0),
        png(8, 2, width=2**31),
        b"\x89PNG\n\x1a\n\n" + png(8, 2)[8:],
        b"\x89PNG\r\n\x1a\n" + chunk(b"CgBI", bytes(17)),
    ],
)
def test_png_damaged(data: bytes) -> None:
    """A damaged signature or IHDR is a DecodeError."""
    with pytest.raises(DecodeError):
        probe(data)


def test_gif_first_picture_stretches_the_screen() -> None:
    """A picture that sticks out of the logical screen enlarges it, as in Pillow."""
    header = probe(gif(gif_picture(10, 5, 10, 4), screen=(4, 4)))
    assert (header.width, header.height) == (20, 9)


def test_gif_details() -> None:
    """Colour table bits, interlacing and a second picture are seen, extensions are skipped."""
    comment = b"!\xfe\x03abc\x00"
    picture = gif_picture(0, 0, WIDTH, HEIGHT, flags=0x40)
    header = probe(gif(bytes(3 << 3), comment, picture, flags=0x82))
    assert (header.bits, header.color, header.channels) == (3, "palette", 1)
    assert header.progressive
    assert not header.animated
    assert probe(gif(picture, comment, picture, b";")).animated


@pytest.mark.parametrize(
    "data",
    [gif(b";"), gif(gif_picture(0, 0, 0, 0), screen=(0, 0)), gif(b"!\xfe" + b"\x01a" * 10**5)],
)
def test_gif_without_a_picture(data: bytes) -> None:
    """No picture, an empty one, or endless comments before it are a DecodeError."""
    with pytest.raises(DecodeError):
        probe(data)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (struct.pack("<HHHH", WIDTH, HEIGHT, 1, 24), (3, 8, "rgb")),
        (struct.pack("<IiHHI", WIDTH, HEIGHT, 1, 24, 0).ljust(36, b"\0"), (3, 8, "rgb")),
        (struct.pack("<IiHHI", WIDTH, -HEIGHT, 1, 16, 0).ljust(36, b"\0"), (3, 8, "rgb")),
        (struct.pack("<IiHHI", WIDTH, HEIGHT, 1, 4, 0).ljust(36, b"\0"), (1, 4, "palette")),
        (struct.pack("<IiHH", WIDTH, HEIGHT, 1, 8), (1, 8, "palette")),
        (struct.pack("<IiHHI", WIDTH, HEIGHT, 1, 32, 0).ljust(104, b"\xff"), (3, 8, "rgb")),
        (struct.pack("<IiHHI", WIDTH, HEIGHT, 1, 32, 3).ljust(104, b"\xff"), (4, 8, "rgb")),
        (struct.pack("<IiHHI", WIDTH, HEIGHT, 1, 32, 3).ljust(120, b"\0"), (3, 8, "rgb")),
    ],
    ids=["core", "info", "top-down", "4-bit", "os2-16", "v4", "v4-alpha", "v5-no-alpha"],
)
def test_bmp_generations(header: bytes, expected: tuple[int, int, str]) -> None:
    """Every bitmap header is read; a negative height is a direction."""
    found = probe(bmp(header))
    assert (found.width, found.height) == (WIDTH, HEIGHT)
    assert (found.channels, found.bits, found.color) == expected


@pytest.mark.parametrize(
    "header",
    [
        bytes(4),
        bytes(8),
        struct.pack("<IiHHI", 0, 5, 1, 24, 0),
        struct.pack("<iiHHI", -4, 5, 1, 24, 0),
        struct.pack("<IiHHI", 4, 5, 1, 25, 0),
    ],
)
def test_bmp_damaged(header: bytes) -> None:
    """An unknown header size, an empty picture or an odd depth is a DecodeError."""
    with pytest.raises(DecodeError):
        probe(bmp(header))


def test_webp_tells_lossy_from_lossless() -> None:
    """The colour model is the codec's, inside an extended file too."""
    assert probe(saved("WEBP")).color == "ycc"
    assert probe(saved("WEBP", lossless=True)).color == "rgb"
    assert probe(saved("WEBP", lossless=True, exif=with_orientation(1).tobytes())).color == "rgb"


def test_webp_animated() -> None:
    """The extended header's animation flag is reported."""
    frames = [Image.new("RGB", (WIDTH, HEIGHT), color) for color in ("red", "blue")]
    stream = io.BytesIO()
    frames[0].save(stream, "WEBP", save_all=True, append_images=frames[1:])
    assert probe(stream.getvalue()).animated


@pytest.mark.parametrize("first", [b"VP8 ", b"VP8L", b"XXXX"])
def test_webp_damaged(first: bytes) -> None:
    """A first chunk without its signature is a DecodeError."""
    with pytest.raises(DecodeError):
        probe(b"RIFF\0\0\0\0WEBP" + first + bytes(30))


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("big", [False, True])
def test_tiff_byte_orders(order: str, big: bool) -> None:
    """Classic and BigTIFF are read in both byte orders."""
    entries = ((256, 3, WIDTH), (257, 4, HEIGHT), (258, 3, 8), (262, 3, 5), (277, 3, 4))
    header = probe(tiff(*entries, order=order, big=big))
    assert (header.width, header.height) == (WIDTH, HEIGHT)
    assert (header.channels, header.bits, header.color) == (4, 8, "cmyk")


def test_tiff_first_of_two_entries_counts() -> None:
    """A repeated tag does not change what was read, as in Pillow and libtiff."""
    header = probe(tiff((256, 3, WIDTH), (256, 3, 99), (257, 3, HEIGHT)))
    assert header.width == WIDTH


def test_tiff_xmp_orientation_turns_it_too() -> None:
    """Without the tag Pillow takes the orientation from the XMP packet, and so do we."""
    data = saved("TIFF", tiffinfo={700: b'<rdf tiff:Orientation="6"/>'})
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert (probe(data).width, probe(data).height) == image.size == (HEIGHT, WIDTH)


@pytest.mark.parametrize(("following", "animated"), [(0, False), (12, True), (8, False)])
def test_tiff_pages(following: int, animated: bool) -> None:
    """A second directory makes several frames; one that leads to itself does not."""
    header = probe(tiff((256, 3, WIDTH), (257, 3, HEIGHT), following=following))
    assert header.animated is animated


@pytest.mark.parametrize(
    "data",
    [
        tiff((256, 3, WIDTH)),
        tiff((256, 3, 0), (257, 3, HEIGHT)),
        b"II*\0\xff\xff\xff\xff",
        b"II+\0\x08\0\0\0" + b"\xff" * 8,
    ],
)
def test_tiff_without_a_size(data: bytes) -> None:
    """A directory that is missing, or gives no size, is a DecodeError."""
    with pytest.raises(DecodeError):
        probe(data)
