"""The orientation in a file's metadata: what Pillow's `exif_transpose` sees."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from typing import Any

import numpy as np
import PIL
import pytest
from cases import examples
from encoded import (
    chunk,
    raw_profile,
    saved,
    turned,
    with_chunks,
    with_riff,
    with_segments,
    xmp_of,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from same import assert_same

from fastdecode import decode, probe
from fastdecode._formats import exif, jpeg
from fastdecode.testing import drawing

XAP = b"http://ns.adobe.com/xap/1.0/\0"
KEYS = (b"Raw profile type exif", b"XML:com.adobe.xmp", b"Software")


def valid(value: object) -> int:
    return int(value) if value in range(1, 9) else 1  # type: ignore[call-overload]


def seen_by_pillow(data: bytes) -> int:
    """Return the orientation that `exif_transpose` applies; leave out files at which it fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(data)) as image:
                image.load()
                return valid(image.getexif().get(0x0112, 1))
        except Exception:
            assume(False)
            raise


@st.composite
def blocks(draw: st.DrawFn) -> bytes:
    """Draw an EXIF block of some entries, of which the orientation is a short or long number."""
    order = draw(st.sampled_from("<>"))
    entries = b""
    tags = draw(st.lists(st.sampled_from([0x0112, 0x0112, 0x0100, 0x012C]), max_size=4))
    for tag in tags:
        kind, value = draw(st.sampled_from([3, 4])), draw(st.sampled_from([6, 1, 3, 8, 0, 9]))
        content = struct.pack(order + ("H" if kind == 3 else "I"), value)
        entries += struct.pack(order + "HHI", tag, kind, 1) + content.ljust(4, b"\0")
    head = {"<": b"II*\0", ">": b"MM\0*"}[order] + struct.pack(order + "IH", 8, len(tags))
    return b"Exif\0\0" * draw(st.sampled_from([0, 1, 2])) + head + entries + bytes(4)


packets = st.one_of(
    st.builds(xmp_of, st.integers(0, 9), element=st.booleans()),
    st.sampled_from([b"<no orientation>", b'tiff:Orientation="x"']),
)


# Of two entries with one tag, for example, earlier versions take the other one.
as_pillow_13 = pytest.mark.skipif(int(PIL.__version__.split(".")[0]) < 13, reason="Pillow is old")


@as_pillow_13
@given(blocks(), packets)
@settings(max_examples=examples(500))
def test_blocks_are_read_as_pillow_does(block: bytes, packet: bytes) -> None:
    """In both byte orders, and XMP counts where there is no tag; what is cut is never an error."""
    image = Image.new("RGB", (2, 1))
    image.info = {"exif": block, "xmp": packet}
    expected = valid(image.getexif().get(0x0112, 1))
    for data in (block, memoryview(b"??" + block + b"??")[2:-2]):
        assert exif.orientation(data, 0, len(block), packet) == expected
    for end in range(len(block)):
        assert exif.orientation(block[:end], 0, end, packet) in range(1, 9)


@as_pillow_13
@given(st.lists(st.one_of(st.builds(lambda b: b"Exif\0\0" + b, blocks()),
                          st.builds(lambda p: XAP + p, packets)), max_size=3))  # fmt: skip
@settings(max_examples=examples(200))
def test_segments_of_a_jpeg(segments: list[bytes]) -> None:
    """EXIF and XMP of a JPEG, in any order and number."""
    data = with_segments(saved("JPEG"), *segments)
    assert probe(data).orientation == seen_by_pillow(data)


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    """Draw a PNG's chunk with an orientation, or with none."""
    block, packet = draw(blocks()), draw(packets)
    kind = draw(st.sampled_from([b"eXIf", b"tEXt", b"zTXt", b"iTXt"]))
    if kind == b"eXIf":
        return chunk(kind, block)
    key = draw(st.sampled_from(KEYS))
    text = packet if key == KEYS[1] else raw_profile(block)
    pressed = zlib.compress(text)
    body = {
        b"tEXt": text,
        b"zTXt": b"\0" + pressed,
        b"iTXt": b"\1\0en\0\0" + pressed if draw(st.booleans()) else b"\0\0\0x\0" + text,
    }
    return chunk(kind, key + b"\0" + body[kind])


@as_pillow_13
@given(st.lists(chunks(), max_size=4), st.lists(chunks(), max_size=1))
@settings(max_examples=examples(300))
def test_chunks_of_a_png(before: list[bytes], behind: list[bytes]) -> None:
    """EXIF and XMP of a PNG, as chunk or text of any kind, before and behind the pixels."""
    data = with_chunks(with_chunks(saved("PNG"), *before), *behind, behind=True)
    assert probe(data).orientation == seen_by_pillow(data)


@as_pillow_13
@given(st.integers(0, 255), st.lists(st.one_of(
    st.tuples(st.just(b"EXIF"), blocks()), st.tuples(st.just(b"XMP "), packets)
), max_size=3))  # fmt: skip
@settings(max_examples=examples(200))
def test_chunks_of_a_webp(flags: int, found: list[tuple[bytes, bytes]]) -> None:
    """EXIF and XMP of a WebP, in any order and number; only what is announced counts."""
    data = with_riff(saved("WEBP"), flags & 0x0C, *found)
    assert probe(data).orientation == seen_by_pillow(data)


@pytest.mark.parametrize("format", ["JPEG", "PNG", "WEBP"])
def test_images_are_turned_as_by_pillow(format: str) -> None:
    """`decode` with `orient` has the pixels that `exif_transpose` makes."""
    for name, data in turned(format, drawing(40, 24)).items():
        with Image.open(io.BytesIO(data)) as image:
            upright = ImageOps.exif_transpose(image).convert("RGB")
        assert upright.size == (24, 40), name
        assert_same(decode(data, orient=True), np.asarray(upright), name)
        assert probe(data).orientation == 6


def test_long_text_costs_little() -> None:
    """Text that would be decompressed to gigabytes is not."""
    bomb = KEYS[1] + b"\0\0" + zlib.compress(bytes(50_000_000))
    data = with_chunks(saved("PNG"), *[chunk(b"zTXt", bomb)] * 100)
    assert probe(data).orientation == 1


def test_metadata_can_be_taken_out() -> None:
    """A JPEG without its EXIF and XMP has no orientation, and the same pixels."""
    for name, data in turned("JPEG", drawing(40, 24)).items():
        plain: Any = jpeg.without_exif(b"".join((data[:2], b"\xff", data[2:])))
        assert probe(plain).orientation == 1
        assert_same(decode(plain), decode(data), name)
