"""`sniff` and `probe` read every format's header without decoding."""

from __future__ import annotations

import contextlib
import io
import re
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from corpus import samples
from encoded import (
    CHANNELS,
    HEIGHT,
    SAVED,
    SHORT,
    WIDTH,
    JxlBits,
    bmp,
    box,
    chunk,
    directory_last,
    exif_of,
    gif,
    gif_image,
    png,
    saved,
    with_orientation,
    with_riff,
)
from PIL import Image, features

from fastdecode._formats import probe, sniff
from fastdecode.errors import DecodeError, FastDecodeError, UnsupportedFormat
from fastdecode.types import Header

JP2_START, JXL_START = b"\0\0\0\x0cjP  \r\n\x87\n", b"\0\0\0\x0cJXL \r\n\x87\n"
SIDES = {"width": WIDTH, "height": HEIGHT}
TWO_FRAMES = [Image.new("RGB", (WIDTH, HEIGHT), color) for color in ("red", "blue")]

every_saved = pytest.mark.parametrize("case", SAVED)


def tiff(*entries: tuple[int, int, int], **layout: Any) -> bytes:
    """Build a TIFF with one directory of (tag, type, value) entries, and without pixels."""
    return directory_last(b"", *((tag, kind, (value,)) for tag, kind, value in entries), **layout)


def saved_case(case: str) -> bytes:
    _, pillow_format, mode, options = SAVED[case]
    return saved(pillow_format, mode, **options)


def animation(pillow_format: str) -> bytes:
    stream = io.BytesIO()
    TWO_FRAMES[0].save(stream, pillow_format, save_all=True, append_images=TWO_FRAMES[1:])
    return stream.getvalue()


@every_saved
def test_probe_agrees_with_pillow(case: str) -> None:
    """Size, channels and format are those of the image that was saved, from any buffer."""
    expected, _, mode, _ = SAVED[case]
    data = saved_case(case)
    header = probe(data)
    assert sniff(data) == sniff(memoryview(data)) == expected
    assert probe(memoryview(data)) == header
    with Image.open(io.BytesIO(data)) as image:
        size = image.size
    assert (header.format, header.width, header.height) == (expected, *size)
    assert header.channels == CHANNELS[mode]
    assert header.orientation == 1
    assert not header.animated


@every_saved
def test_a_file_cut_anywhere_gives_a_header_or_our_error(case: str) -> None:
    """A truncated file gives a header or a FastDecodeError, never IndexError or struct.error."""
    data = saved_case(case)
    for end in range(1, min(len(data), 400)):
        with contextlib.suppress(FastDecodeError):
            assert isinstance(probe(data[:end]), Header)


def brands(major: bytes, compatible: bytes = b"") -> bytes:
    return box(b"ftyp", major, bytes(4), compatible)


@pytest.mark.parametrize(
    ("expected", "starts"),
    [
        ("jpeg", [b"\xff\xd8\x00", b"\xff\xd8"]),
        ("png", [b"\x89PNG"]),
        ("gif", [b"GIF87a"]),
        ("tiff", [b"II*\0", b"MM\0+", b"MM\0*", b"MM*\0"]),
        ("jxl", [b"\xff\x0a", JXL_START]),
        ("jpeg2000", [JP2_START, b"\xff\x4f\xff\x51"]),
        ("webp", [b"RIFF\0\0\0\0WEBP"]),
        # The major brand decides, then the compatible ones; films are neither format.
        ("avif", [brands(b"avif"), brands(b"avis", b"avif"), brands(b"mif1", b"mif1avif")]),
        ("avif", [brands(b"mif1", b"av01")]),
        ("heic", [brands(one) for one in (b"heix", b"hevc", b"mif1")]),
        ("heic", [brands(one, b"mif1heic") for one in (b"heic", b"mif1")]),
        ("heic", [brands(b"heic", b"avif")]),
        (None, [b"\xff", b"GIF88a", b"RIFF\0\0\0\0WAVE", b"8BPS", b"plain text"]),
        (None, [brands(b"isom", b"mp42"), brands(b"crx ", b"crx isom")]),
    ],
)
def test_sniff_signatures(expected: str | None, starts: list[bytes]) -> None:
    """Each signature is recognised, and similar ones are not."""
    assert [sniff(start) for start in starts] == [expected] * len(starts)


def rare_headers() -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Return headers that few files have: description, file, expected header."""
    made = bytearray(saved("JPEG"))
    frame, scan = made.index(b"\xff\xc0"), made.index(b"\xff\xda")
    made[frame + 10 : frame + 19 : 3] = made[scan + 5 : scan + 11 : 2] = b"RGB"
    yield "jpeg of ids RGB", bytes(made[:2] + made[20:]), {"color": "rgb"}
    yield "jpeg of ids RGB, with JFIF", bytes(made), {"color": "ycc"}  # which libjpeg believes
    exif = (b"EXIF", exif_of((SHORT, 1, b"\x06")))
    turned = with_riff(saved("WEBP"), 8, (b"junk", b"odd"), exif)
    yield "webp, turned behind a chunk of odd length", turned, {"orientation": 6}


def raster_headers() -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Return PNG, GIF, BMP, WebP and TIFF headers: description, file, expected header."""
    for bits, color_type, channels, color in (
        (1, 0, 1, "gray"),
        (16, 0, 1, "gray"),
        (8, 2, 3, "rgb"),
        (16, 2, 3, "rgb"),
        (4, 3, 1, "palette"),
        (8, 4, 2, "gray"),
        (16, 6, 4, "rgb"),
    ):
        fields = {"bits": bits, "channels": channels, "color": color, "progressive": False}
        yield f"png of type {color_type}, {bits} bits", png(bits, color_type), fields
    yield "png by Adam7", png(8, 2, interlace=1), {"progressive": True}
    for frames in (1, 2):  # one frame is no animation
        told = png(8, 2, chunk(b"acTL", struct.pack(">II", frames, 0)))
        yield f"png of {frames} frames", told, {"animated": frames > 1}
    # An image that sticks out of the logical screen enlarges it, as in Pillow.
    stretched = gif(gif_image(10, 5, 10, 4), screen=(4, 4))
    yield "gif beyond its screen", stretched, {"width": 20, "height": 9}
    comment, one = b"!\xfe\x03abc\x00", gif_image(0, 0, WIDTH, HEIGHT, flags=0x40)
    fields = {"bits": 3, "color": "palette", "channels": 1, "progressive": True, "animated": False}
    yield "gif of one image", gif(bytes(3 << 3), comment, one, flags=0x82), fields
    yield "gif of two images", gif(one, comment, one, b";"), {"animated": True}
    table = one[:-5] + b"\x80" + bytes((9, 0, 0x3B, 255, 255, 255)) + one[-4:]  # a ; among others
    yield "gif of two tables", gif(table, table, b";"), {"animated": True}
    for own, bits in ((0, 3), (0x80, 1), (0x84, 5), (0x04, 3)):  # a table of the image comes first
        place, pixels = one[:-5] + bytes([own]), one[-4:]
        whole = gif(bytes(24), place, bytes(3 << bits) if own & 128 else b"", pixels, flags=0x82)
        yield f"gif with flags {own} of its image", whole, {"bits": bits}
    for name, form, values, room, found in (
        ("core", "<HHHH", (1, 24), 0, (3, 8, "rgb")),
        ("info", "<IiHHI", (1, 24, 0), 36, (3, 8, "rgb")),
        ("top-down", "<IiHHI", (1, 16, 0), 36, (3, 8, "rgb")),
        ("4-bit", "<IiHHI", (1, 4, 0), 36, (1, 4, "palette")),
    ):
        height = -HEIGHT if name == "top-down" else HEIGHT  # a negative height is a direction
        told = bmp(struct.pack(form, WIDTH, height, *values).ljust(room, b"\0"))
        fields = dict(zip(("channels", "bits", "color"), found, strict=True))
        yield f"bmp {name}", told, {**SIDES, **fields}
    # Only BITFIELDS (3) have an alpha mask, in a header that holds one.
    for size, compression, channels in ((104, 0, 3),):
        told = struct.pack("<IiHHI", WIDTH, HEIGHT, 1, 32, compression).ljust(104, b"\xff")
        fields = {**SIDES, "channels": channels, "bits": 8, "color": "rgb"}
        yield f"bmp of {size}, {compression}", bmp(told[:size]) + told[size:], fields
    yield "webp, lossy", saved("WEBP"), {"color": "ycc"}
    yield "webp, lossless", saved("WEBP", lossless=True), {"color": "rgb"}
    extended = saved("WEBP", lossless=True, exif=with_orientation(1).tobytes())
    yield "webp, lossless, extended", extended, {"color": "rgb"}
    yield "webp, animated", animation("WEBP"), {"animated": True}
    entries = ((256, 3, WIDTH), (257, 4, HEIGHT), (258, 3, 8), (262, 3, 5), (277, 3, 4))
    for order in "<>":
        for big in (False, True):
            fields = {**SIDES, "channels": 4, "bits": 8, "color": "cmyk"}
            yield f"tiff {order}, big: {big}", tiff(*entries, order=order, big=big), fields
    # Of two entries with one tag the first counts, as in Pillow and libtiff.
    yield "tiff, twice", tiff((256, 3, WIDTH), (256, 3, 99), (257, 3, HEIGHT)), SIDES
    for following, animated in ((0, False), (20, True), (16, False)):  # 16 is the first itself
        told = tiff((256, 3, WIDTH), (257, 3, HEIGHT), following=following)
        yield f"tiff with a page at {following}", told, {"animated": animated}


def container_headers() -> Iterator[tuple[str, bytes, dict[str, Any]]]:
    """Return JPEG 2000 and JPEG XL headers: description, file, expected header."""
    # The image begins at the image offset, which counts from the size.
    siz = struct.pack(">HHHIIII", 0xFF51, 50, 0, WIDTH + 3, HEIGHT + 2, 3, 2) + bytes(16)
    stream = b"\xff\x4f" + siz + struct.pack(">H", 3) + bytes((11, 1, 1)) * 3
    yield "j2k with an origin", stream, {**SIDES, "channels": 3, "bits": 12, "color": "rgb"}
    parts = box(b"jp2h", box(b"colr", struct.pack(">BBBI", 1, 0, 0, 18))), box(b"jp2c", stream)
    yield "jp2", JP2_START + b"".join(parts), {**SIDES, "channels": 3, "bits": 12, "color": "ycc"}
    # The width may be a fraction of the height, rounded down.
    for ratio, width in ((1, 200), (2, 240), (3, 266), (4, 300), (5, 355), (6, 250), (7, 400)):
        bits = JxlBits().put(0, 1).put(0, 2).put(199, 9).put(ratio, 3).put(1, 1)
        yield f"jxl of ratio {ratio}", bits.bytes(), {"width": width, "height": 200, "bits": 8}
    for value in range(1, 9):  # libjxl turns the image, and the header has the size after that
        bits = JxlBits().size(WIDTH, HEIGHT).put(0, 1).put(1, 1).put(value - 1, 3).put(0, 3)
        sides = SIDES if value < 5 else {"width": HEIGHT, "height": WIDTH}
        yield f"jxl turned by {value}", bits.bytes(), {**sides, "orientation": 1}
    bits = JxlBits().size(WIDTH, HEIGHT).put(0, 1)
    bits.put(1, 1).put(0, 3).put(0, 1).put(0, 1)  # extra fields: upright, nothing optional …
    bits.put(1, 1).put(0, 2).put(0, 2).put(0, 2).put(0, 1)  # … but an animation
    bits.put(0, 1).put(3, 2).put(15, 6)  # 16-bit integers
    bits.put(1, 1).put(1, 2).put(1, 1)  # one extra channel, alpha by default
    bits.put(0, 1).put(0, 1).put(0, 1).put(1, 2)  # not XYB, a colour encoding: grey
    fields = {"bits": 16, "channels": 2, "color": "gray", "animated": True}
    yield "jxl with metadata", bits.bytes(), fields
    code, about = JxlBits().size(WIDTH, HEIGHT).put(1, 1).bytes(), box(b"Exif", bytes(20))
    parts = box(b"jxlp", bytes(4), code[:3]) + box(b"jxlp", b"\x80\0\0\1", code[3:])
    for name, contents in (("two parts", parts), ("a box", box(b"jxlc", code))):
        yield f"jxl in {name}", JXL_START + about + contents, SIDES
    data = saved("JPEG2000")
    at, wide = data.index(b"jp2h") - 4, struct.pack(">I4sQ", 1, b"free", 24) + bytes(8)
    yield "jp2 with a size of 64 bits, which counts itself", data[:at] + wide + data[at:], SIDES
    if features.check("avif"):
        yield "avif sequence", animation("AVIF"), {**SIDES, "animated": True}
    xmp = saved("TIFF", tiffinfo={700: b'<rdf tiff:Orientation="6"/>'})  # without the tag
    yield "tiff turned by XMP", xmp, {"width": HEIGHT, "height": WIDTH, "orientation": 1}


@pytest.mark.parametrize(
    ("data", "fields"),
    [
        pytest.param(data, fields, id=name)
        for name, data, fields in (*rare_headers(), *raster_headers(), *container_headers())
    ],
)
def test_header_says_what_the_file_holds(data: bytes, fields: dict[str, Any]) -> None:
    """Every field of a header is read as its specification and its decoder define it."""
    header = probe(data)

    assert {name: getattr(header, name) for name in fields} == fields


DAMAGED = {
    "png of 3 bits": png(3, 2),
    "png of type 5": png(8, 5),
    "png without width": png(8, 2, width=0),
    "png too wide": png(8, 2, width=2**31),
    "png signature": b"\x89PNG\n\x1a\n\n" + png(8, 2)[8:],
    "png by Apple": b"\x89PNG\r\n\x1a\n" + chunk(b"CgBI", bytes(17)),
    "gif without an image": gif(b";"),
    "gif, empty": gif(gif_image(0, 0, 0, 0), screen=(0, 0)),
    "gif of comments": gif(b"!\xfe" + b"\x01a" * 10**5),
    "bmp, cut": bmp(struct.pack("<IiHHI", 4, 5, 1, 24, 0).ljust(36, b"\0"))[:40],
    "bmp without width": bmp(struct.pack("<IiHHI", 0, 5, 1, 24, 0).ljust(36, b"\0")),
    **{
        f"webp of {first!r}": b"RIFF\0\0\0\0WEBP" + first + bytes(30)
        for first in (b"VP8 ", b"VP8L", b"XXXX")
    },
    "tiff without height": tiff((256, 3, WIDTH)),
    "tiff without width": tiff((256, 3, 0), (257, 3, HEIGHT)),
    "tiff without directory": b"II*\0\xff\xff\xff\xff",
    "bigtiff without directory": b"II+\0\x08\0\0\0" + b"\xff" * 8,
    "jxl, two bytes": b"\xff\x0a",
    "jxl without codestream": JXL_START,
    "jxl of nonsense": JXL_START + box(b"jxlc", b"nonsense"),
    "avif without items": box(b"ftyp", b"avif", bytes(4)),
    "jp2 with a tiny box": JP2_START + b"\0\0\0\x03jp2h",
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_damaged_header_is_a_decode_error(data: bytes) -> None:
    """A missing, impossible or endless part of a header raises a DecodeError."""
    with pytest.raises(DecodeError):
        probe(data)


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("pillow_format", ["JPEG", "PNG", "WEBP", "AVIF"])
def test_stored_orientation_is_reported(pillow_format: str, value: int) -> None:
    """If the decoder returns stored pixels, the header has their size and the orientation."""
    header = probe(saved(pillow_format, exif=with_orientation(value).tobytes()))
    assert (header.width, header.height, header.orientation) == (WIDTH, HEIGHT, value)


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize(
    "options", [{}, {"compression": "tiff_lzw"}, {"big_tiff": True}], ids=["raw", "lzw", "big"]
)
def test_tiff_is_described_upright(options: dict[str, Any], value: int) -> None:
    """Pillow rotates a TIFF while loading it, so the header has the upright size."""
    data = saved("TIFF", tiffinfo={0x0112: value}, **options)
    header = probe(data)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert (header.width, header.height, header.orientation) == (*image.size, 1)
    assert (header.width < header.height) == (value >= 5)


@pytest.mark.parametrize("value", range(1, 9))
def test_heic_is_described_upright(value: int) -> None:
    """The header has the upright size, because libheif rotates a HEIC."""
    pillow_heif = pytest.importorskip("pillow_heif")
    stream = io.BytesIO()
    pillow_heif.from_pillow(Image.new("RGB", (64, 48))).save(
        stream, exif=with_orientation(value).tobytes()
    )
    header = probe(stream.getvalue())
    decoded = pillow_heif.open_heif(stream.getvalue())
    assert (header.width, header.height, header.orientation) == (*decoded.size, 1)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("PNG", png(8, 2)),
        ("JPEG", saved("JPEG")),
        ("JXL", JxlBits().size(WIDTH, HEIGHT).put(0, 1).bytes()),
        ("TIFF", saved("TIFF", "CMYK", big_tiff=True)),
        ("BMP", saved("BMP")),
    ],
)
def test_a_truncated_header_says_how_long_it_is(
    name: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the format and the number of bytes; of an unknown one the first bytes.

    Pillow's process-wide MAX_IMAGE_PIXELS does not apply.
    """
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    assert probe(data).width == WIDTH
    with pytest.raises(DecodeError, match=f"{name}.*7 bytes"):
        probe(data[:7])
    for call in (sniff, probe):
        with pytest.raises(DecodeError, match="0 bytes"):
            call(b"")
    with pytest.raises(UnsupportedFormat, match="70 6C 61 69 6E"):
        probe(b"plain text, and certainly no image")


def hostile() -> Iterator[Any]:
    """Return large files whose boxes, chunks or blocks repeat without end."""
    yield pytest.param(gif(b"!\xfe" + b"\x01a" * 10**6), id="gif")
    yield pytest.param(png(8, 2, struct.pack(">I4sI", 0, b"eXIf", 0) * 10**5), id="png")
    yield pytest.param(tiff(*((258, 3, 8),) * 65000), id="tiff")
    start = b"RIFF\0\0\0\0WEBPVP8X\x0a\0\0\0\x08" + bytes(9)
    yield pytest.param(start + b"XXXX\0\0\0\0" * 10**5, id="webp")
    yield pytest.param(JP2_START + box(b"free") * 10**5, id="boxes")


@pytest.mark.parametrize("data", list(hostile()))
def test_hostile_headers_are_bounded(data: bytes) -> None:
    """Any header is read in milliseconds (the limit here is for slow machines)."""
    started = time.process_time()
    with contextlib.suppress(FastDecodeError):
        probe(data)
    assert time.process_time() - started < 0.5


# libjpeg skips a segment whose length is impossible; the size of the others must agree.
CORPUS_DIFFERENCES = {"malformed/wuffs__hippopotamus-bad-comment-length.jpeg"}


def test_corpus_agrees_with_pillow() -> None:
    """Every file that is read has the size that Pillow says; others raise a FastDecodeError."""
    wrong = []
    for sample in samples("photos", "formats", "jpeg_kinds", "malformed"):
        size: tuple[int, ...] = (0, 0)
        try:
            header = probe(sample.path.read_bytes())
            size = header.width, header.height
        except UnsupportedFormat:
            continue
        except FastDecodeError:
            pass
        found = re.match(r"ok (\d+)x(\d+)", sample.pillow)
        expected = (int(found[1]), int(found[2])) if found else size
        if size != expected and sample.name not in CORPUS_DIFFERENCES:
            wrong.append((sample.name, size, expected))
    assert not wrong
