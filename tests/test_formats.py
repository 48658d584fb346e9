"""`sniff` and `probe`: every format's header, read without decoding."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import re
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fastdecode.errors import DecodeError, FastDecodeError, UnsupportedFormat
from fastdecode.formats import probe, sniff
from fastdecode.headers import exif
from fastdecode.types import Format, Header

WIDTH, HEIGHT = 13, 7

# name of a case: (what sniff says, Pillow's format, mode, save options)
SAVED: dict[str, tuple[Format, str, str, dict[str, Any]]] = {
    "jpeg": ("jpeg", "JPEG", "RGB", {}),
    "jpeg-gray": ("jpeg", "JPEG", "L", {}),
    "png": ("png", "PNG", "RGB", {}),
    "png-rgba": ("png", "PNG", "RGBA", {}),
    "png-palette": ("png", "PNG", "P", {}),
    "png-gray-alpha": ("png", "PNG", "LA", {}),
    "png-16": ("png", "PNG", "I;16", {}),
    "gif": ("gif", "GIF", "P", {}),
    "bmp": ("bmp", "BMP", "RGB", {}),
    "bmp-palette": ("bmp", "BMP", "P", {}),
    "webp": ("webp", "WEBP", "RGB", {}),
    "webp-alpha": ("webp", "WEBP", "RGBA", {}),
    "webp-lossless": ("webp", "WEBP", "RGB", {"lossless": True}),
    "tiff": ("tiff", "TIFF", "RGB", {}),
    "tiff-cmyk": ("tiff", "TIFF", "CMYK", {}),
    "tiff-big": ("tiff", "TIFF", "L", {"big_tiff": True}),
    "avif": ("avif", "AVIF", "RGB", {}),
    "avif-alpha": ("avif", "AVIF", "RGBA", {}),
    "jp2": ("jpeg2000", "JPEG2000", "RGB", {}),
    "j2k": ("jpeg2000", "JPEG2000", "L", {"no_jp2": True}),
    "ico": ("other", "ICO", "RGBA", {"sizes": [(16, 16)]}),
    "ppm": ("other", "PPM", "RGB", {}),
    "tga": ("other", "TGA", "RGB", {}),
}
CHANNELS = {"RGB": 3, "L": 1, "RGBA": 4, "P": 1, "LA": 2, "I;16": 1, "CMYK": 4}


def saved(pillow_format: str, mode: str = "RGB", **options: Any) -> bytes:
    """Encode a small picture with Pillow."""
    if pillow_format == "AVIF":
        pytest.importorskip("PIL._avif")
    size = (16, 16) if pillow_format == "ICO" else (WIDTH, HEIGHT)
    stream = io.BytesIO()
    Image.new(mode, size).save(stream, pillow_format, **options)
    return stream.getvalue()


def with_orientation(value: int) -> Image.Exif:
    tags = Image.Exif()
    tags[0x0112] = value
    return tags


def box(kind: bytes, *contents: bytes) -> bytes:
    """Build an ISO base media file format box."""
    body = b"".join(contents)
    return struct.pack(">I4s", 8 + len(body), kind) + body


def chunk(kind: bytes, body: bytes = b"") -> bytes:
    """Build a PNG chunk."""
    return struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))


def png(
    bits: int, color_type: int, *chunks: bytes, width: int = WIDTH, interlace: int = 0
) -> bytes:
    ihdr = struct.pack(">IIBBBBB", width, HEIGHT, bits, color_type, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", ihdr) + b"".join(chunks) + chunk(b"IDAT")


def gif(*blocks: bytes, screen: tuple[int, int] = (WIDTH, HEIGHT), flags: int = 0) -> bytes:
    return b"GIF89a" + struct.pack("<HHBBB", *screen, flags, 0, 0) + b"".join(blocks)


def gif_picture(left: int, top: int, width: int, height: int, flags: int = 0) -> bytes:
    return b"," + struct.pack("<HHHHB", left, top, width, height, flags) + b"\x02\x01\x00\x00"


def bmp(header: bytes) -> bytes:
    return b"BM" + bytes(12) + struct.pack("<I", 4 + len(header)) + header


def tiff(
    *entries: tuple[int, int, int], order: str = "<", big: bool = False, following: int = 0
) -> bytes:
    """Build a TIFF of one directory: (tag, type, value) each."""
    magic = b"II" if order == "<" else b"MM"
    short = {3: "H", 4: "I"}
    fields = b""
    for tag, kind, value in sorted(entries, key=lambda entry: entry[0]):
        room = 8 if big else 4
        stored = struct.pack(order + short[kind], value).ljust(room, b"\0")
        fields += struct.pack(order + ("HHQ" if big else "HHI"), tag, kind, 1) + stored
    if big:
        start = magic + struct.pack(order + "HHHQ", 43, 8, 0, 16)
        return (
            start + struct.pack(order + "Q", len(entries)) + fields + struct.pack("<Q", following)
        )
    start = magic + struct.pack(order + "HI", 42, 8)
    return start + struct.pack(order + "H", len(entries)) + fields + struct.pack("<I", following)


class JxlBits:
    """Writes a JPEG XL header bit by bit, the least significant first."""

    def __init__(self) -> None:
        self.value = self.count = 0

    def put(self, value: int, bits: int) -> JxlBits:
        self.value |= value << self.count
        self.count += bits
        return self

    def size(self, width: int, height: int) -> JxlBits:
        """Write the size in full: not small, 18 bits each, no ratio."""
        self.put(0, 1).put(2, 2).put(height - 1, 18)
        return self.put(0, 3).put(2, 2).put(width - 1, 18)

    def bytes(self) -> bytes:
        return b"\xff\x0a" + self.value.to_bytes(self.count // 8 + 1, "little") + bytes(16)


def heif(brand: bytes, *properties: bytes, compatible: bytes = b"") -> bytes:
    """Build an AVIF or HEIC of one item that has the properties, in that order."""
    associations = bytes(range(1, len(properties) + 1))
    ipma = struct.pack(">IIHB", 0, 1, 1, len(properties)) + associations
    iprp = box(b"iprp", box(b"ipco", *properties), box(b"ipma", ipma))
    meta = box(b"meta", bytes(4), box(b"pitm", bytes(4), b"\0\1"), iprp)
    return box(b"ftyp", brand, bytes(4), compatible or brand) + meta


def ispe(width: int, height: int) -> bytes:
    return box(b"ispe", struct.pack(">III", 0, width, height))


@pytest.mark.parametrize("case", SAVED)
def test_sniff_names_what_pillow_wrote(case: str) -> None:
    """The format is known from the first bytes of a file of each kind."""
    expected, pillow_format, mode, options = SAVED[case]
    assert sniff(saved(pillow_format, mode, **options)) == expected


@pytest.mark.parametrize("case", SAVED)
def test_probe_agrees_with_pillow(case: str) -> None:
    """Size, channels and format are those of the picture that was saved."""
    expected, pillow_format, mode, options = SAVED[case]
    data = saved(pillow_format, mode, **options)
    header = probe(data)
    with Image.open(io.BytesIO(data)) as image:
        size = image.size
    assert (header.format, header.width, header.height) == (expected, *size)
    assert header.channels == CHANNELS[mode]
    assert header.orientation == 1
    assert not header.animated


@pytest.mark.parametrize("case", SAVED)
def test_a_memoryview_reads_like_bytes(case: str) -> None:
    """Nothing depends on which kind of buffer holds the file."""
    _, pillow_format, mode, options = SAVED[case]
    data = saved(pillow_format, mode, **options)
    assert sniff(memoryview(data)) == sniff(data)
    assert probe(memoryview(data)) == probe(data)


@pytest.mark.parametrize("case", SAVED)
def test_a_file_cut_anywhere_gives_a_header_or_our_error(case: str) -> None:
    """A cut file never escapes as an IndexError or struct.error."""
    _, pillow_format, mode, options = SAVED[case]
    data = saved(pillow_format, mode, **options)
    for end in range(1, min(len(data), 400)):
        with contextlib.suppress(FastDecodeError):
            assert isinstance(probe(data[:end]), Header)


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (b"\xff\xd8\x00", "jpeg"),
        (b"\xff\xd8", "jpeg"),
        (b"\xff", "other"),
        (b"\x89PNG", "png"),
        (b"GIF87a", "gif"),
        (b"GIF88a", "other"),
        (b"II*\0", "tiff"),
        (b"MM\0+", "tiff"),
        (b"MM*\0", "tiff"),
        (b"\xff\x0a", "jxl"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "jxl"),
        (b"\0\0\0\x0cjP  \r\n\x87\n", "jpeg2000"),
        (b"\xff\x4f\xff\x51", "jpeg2000"),
        (b"RIFF\0\0\0\0WEBP", "webp"),
        (b"RIFF\0\0\0\0WAVE", "other"),
        (b"8BPS", "other"),
        (b"plain text", "other"),
    ],
)
def test_sniff_signatures(start: bytes, expected: str) -> None:
    """Each signature is enough, and a similar one is not."""
    assert sniff(start) == expected


@pytest.mark.parametrize(
    ("major", "compatible", "expected"),
    [
        (b"avif", b"", "avif"),
        (b"avis", b"avif", "avif"),
        (b"mif1", b"mif1avif", "avif"),
        (b"mif1", b"av01", "avif"),
        (b"heic", b"mif1heic", "heic"),
        (b"heix", b"", "heic"),
        (b"hevc", b"", "heic"),
        (b"mif1", b"mif1heic", "heic"),
        (b"mif1", b"", "heic"),
        (b"heic", b"avif", "heic"),
        (b"isom", b"mp42", "other"),
        (b"crx ", b"crx isom", "other"),
    ],
)
def test_sniff_tells_avif_from_heic(major: bytes, compatible: bytes, expected: str) -> None:
    """The major brand decides, then the compatible ones; films are neither."""
    assert sniff(box(b"ftyp", major, bytes(4), compatible)) == expected


@pytest.mark.parametrize("call", [sniff, probe])
def test_empty_data_says_so(call: Any) -> None:
    """No bytes are a DecodeError that names the cause."""
    with pytest.raises(DecodeError, match="0 bytes"):
        call(b"")


def test_a_cut_header_says_how_long_it_is() -> None:
    """The message has the format and the number of bytes."""
    with pytest.raises(DecodeError, match=r"PNG header is cut short \(20 bytes\)"):
        probe(png(8, 2)[:20])


def test_importing_formats_imports_no_numpy_and_no_pillow() -> None:
    """Reading a JPEG's header costs a process neither library."""
    script = (
        "import sys; from fastdecode import formats; formats.sniff(b'GIF89a');"
        "sys.exit(bool({'numpy', 'PIL'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


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


def test_jpeg2000_codestream_has_an_origin() -> None:
    """The picture begins at the image offset, which counts from the size."""
    siz = struct.pack(">HHHIIII", 0xFF51, 50, 0, WIDTH + 3, HEIGHT + 2, 3, 2) + bytes(16)
    header = probe(b"\xff\x4f" + siz + struct.pack(">HB", 3, 11))
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
    """No primary picture, no size or an impossible box is a DecodeError."""
    with pytest.raises(DecodeError):
        probe(data)


def hostile() -> Iterator[Any]:
    """Files of a megabyte or more whose boxes, chunks or blocks lead nowhere, over and over."""
    yield pytest.param(gif(b"!\xfe" + b"\x01a" * 10**6), id="gif")
    yield pytest.param(png(8, 2, struct.pack(">I4sI", 0, b"eXIf", 0) * 10**5), id="png")
    yield pytest.param(tiff(*((258, 3, 8),) * 65000), id="tiff")
    start = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x08" + bytes(9)
    yield pytest.param(start + b"XXXX\0\0\0\0" * 10**5, id="webp")
    yield pytest.param(box(b"ftyp", b"avif", bytes(4)) + box(b"free") * 10**5, id="boxes")
    names = b"".join(box(b"auxC", bytes(4), b"urn:mpeg:" * 100) for _ in range(1000))
    every = struct.pack(">I", 2**32 - 1) + (b"\0\x02\xff" + b"\x01" * 255) * 63
    iprp = box(b"iprp", box(b"ipco", names), box(b"ipma", bytes(4), every))
    iref = box(b"iref", bytes(4), box(b"auxl", struct.pack(">HHH", 2, 1, 1)) * 1000)
    meta = box(b"meta", bytes(4), box(b"pitm", bytes(4), b"\0\1"), iprp, iref)
    yield pytest.param(box(b"ftyp", b"avif", bytes(4)) + meta, id="associations")


@pytest.mark.parametrize("data", list(hostile()))
def test_hostile_headers_are_bounded(data: bytes) -> None:
    """However the file is made, its header takes milliseconds (the limit here is for slow CI)."""
    started = time.process_time()
    with contextlib.suppress(FastDecodeError):
        probe(data)
    assert time.process_time() - started < 0.5


def test_unknown_bytes_are_unsupported() -> None:
    """What nobody knows is an UnsupportedFormat that shows how it starts."""
    with pytest.raises(UnsupportedFormat, match="start with 70 6C 61 69 6E"):
        probe(b"plain text, and certainly no image")


def test_programs_are_never_launched() -> None:
    """PostScript, which Pillow hands to Ghostscript, is not opened."""
    with pytest.raises(UnsupportedFormat):
        probe(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\n")


def test_pillow_limit_does_not_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process-wide MAX_IMAGE_PIXELS is for Pillow's own callers."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    assert probe(saved("PPM")).width == WIDTH


def test_a_plugin_that_fails_is_a_decode_error() -> None:
    """Whatever a plugin raises for a damaged file of its own becomes a DecodeError."""
    with pytest.raises(DecodeError, match="PPM"):
        probe(b"P6 12 nonsense")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("kind", "count", "value", "expected"),
    [(3, 1, 6, 6), (3, 1, 0, 1), (3, 1, 9, 1), (3, 2, 6, 1), (2, 1, 6, 1)],
)
def test_exif_entry(order: str, kind: int, count: int, value: int, expected: int) -> None:
    """Only one SHORT from 1 to 8 is an orientation."""
    start = (b"II" if order == "<" else b"MM") + struct.pack(order + "HI", 42, 8)
    other = struct.pack(order + "HHII", 0x0100, 4, 1, 5)
    entry = struct.pack(order + "HHIHH", 0x0112, kind, count, value, 0)
    block = start + struct.pack(order + "H", 2) + other + entry + bytes(4)
    assert exif.orientation(b"??" + block, 2, 2 + len(block)) == expected
    assert exif.orientation(memoryview(block), 0, len(block)) == expected
    assert exif.orientation(b"Exif\0\0" + block, 0, 6 + len(block)) == expected
    assert exif.orientation(block, 0, len(block) - 8) == 1


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"II*\0",
        b"II*\0\xff\xff\xff\xff",
        b"XX*\0" + bytes(20),
        b"II*\0\x08\0\0\0\xff\xff",
        # The entry's bytes, but not where an entry begins.
        b"II*\0\x08\0\0\0\x02\0" + bytes(3) + struct.pack("<HHIHH", 0x0112, 3, 1, 6, 0) + bytes(9),
    ],
)
def test_exif_never_raises(block: bytes) -> None:
    """A damaged block means upright."""
    for start in (0, -5, 1, 100):
        for end in (len(block), len(block) + 100, 0, -1):
            assert exif.orientation(block, start, end) == 1


# libjpeg skips a segment whose length is impossible; the size of the others must agree.
CORPUS_DIFFERENCES = {"malformed/wuffs__hippopotamus-bad-comment-length.jpeg"}


@pytest.mark.skipif(
    not os.environ.get("FASTDECODE_CORPUS"),
    reason="FASTDECODE_CORPUS does not name the folder of the test files",
)
def test_corpus_agrees_with_pillow() -> None:
    """Every file that Pillow opens has the size that Pillow gives; no other escapes our errors."""
    root = Path(os.environ["FASTDECODE_CORPUS"])
    wrong = []
    with (root / "manifest.csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            found = re.match(r"ok (\d+)x(\d+)", row["pillow13"])
            try:
                header = probe((root / row["file"]).read_bytes())
                size = (header.width, header.height)
            except FastDecodeError:
                size = (0, 0)
            expected = (int(found[1]), int(found[2])) if found else size
            if size != expected and row["file"] not in CORPUS_DIFFERENCES:
                wrong.append((row["file"], size, expected))
    assert not wrong
