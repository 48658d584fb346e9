"""Damaged PNGs: one verdict in all modes and from all libraries; only pixels that are there."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Collection
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from cases import examples
from corpus import usable_backends
from hypothesis import given, settings
from hypothesis import strategies as st
from pngs import bits_of, chunk, file, interlaced_header
from same import assert_same

from fastdecode import UnsupportedFormat, backends, decode, use
from fastdecode.errors import FastDecodeError
from fastdecode.testing import drawing, encode
from fastdecode.types import MODES, Mode

BACKENDS = [None, *(it.name for it in backends() if it.usable and "png" in it.formats)]
DRAW = random.Random(3)
RGB = b"".join(b"\0" + DRAW.randbytes(24) for _ in range(8))
GREY = b"".join(b"\0" + DRAW.randbytes(8) for _ in range(8))
INDEXED = b"\0\0\1\2\3\3\2\1\0" * 8
PALETTE = chunk(b"PLTE", DRAW.randbytes(12))
BIG = zlib.compress(bytes(1_100_000))
STREAM = zlib.compress(RGB)
WRONG = bytes([*STREAM[:-1], STREAM[-1] ^ 1])


def damaged(kind: bytes, body: bytes = b"") -> bytes:
    """Build a chunk with a wrong CRC."""
    return chunk(kind, body)[:-1] + b"?"


def rgb(*chunks: bytes, stream: bytes = STREAM, last: bytes = b"") -> bytes:
    return file(8, 8, 2, 8, stream, *chunks, last=last)


def idat(part: bytes = STREAM) -> bytes:
    return file(8, 8, 2, 8, b"", part)


# Whatever is wrong with it, all pixels are there.
WHOLE = {
    "text with a wrong CRC": rgb(damaged(b"tEXt", b"a\0b")),
    "a profile with a wrong CRC": rgb(damaged(b"iCCP", b"x\0\0" + BIG)),
    "a profile of a megabyte": rgb(chunk(b"iCCP", b"x\0\0" + BIG)),
    "text of a megabyte": rgb(chunk(b"zTXt", b"x\0\0" + BIG)),
    "Unicode of a megabyte": rgb(chunk(b"iTXt", b"x\0\1\0\0\0" + BIG)),
    "text that cannot be decompressed": rgb(chunk(b"zTXt", b"x\0\0" + BIG[4:])),
    "text with an unknown method": rgb(chunk(b"zTXt", b"x\0\1abc")),
    "a short gamma": rgb(chunk(b"gAMA", b"a")),
    "a short resolution": rgb(chunk(b"pHYs", b"a")),
    "an animation of no length": rgb(chunk(b"acTL", b"a")),
    "EXIF that is none": rgb(chunk(b"eXIf", b"junk")),
    "a suggested palette with a wrong CRC": rgb(damaged(b"PLTE", bytes(12))),
    "a transparent colour of RGBA": file(
        8, 8, 6, 8, zlib.compress(bytes(8 * 33)), chunk(b"tRNS", bytes(6))
    ),
    "damage behind the pixels": rgb(last=damaged(b"tEXt", b"a\0b")),
    "a text that is cut behind the pixels": rgb(last=b"\x40\0\0\0tEXta")[:-12],
    "no end": rgb()[:-12],
    "an end with a wrong CRC": rgb()[:-1] + b"?",
    "a wrong CRC, but the right Adler-32": idat(damaged(b"IDAT", STREAM)),
    "more data than pixels": rgb(stream=zlib.compress(RGB + b"abc")),
    "more data behind the stream": rgb(stream=STREAM + b"abc"),
    "a palette behind the pixels": rgb(last=PALETTE),
}
# What is damaged holds pixels, or how to understand them.
BROKEN = {
    "a wrong Adler-32": rgb(stream=WRONG),
    "a wrong Adler-32, interlaced": interlaced_header(
        file(8, 8, 0, 8, zlib.compress(bytes(79))[:-1] + b"?")
    ),
    "a cut Adler-32": idat(chunk(b"IDAT", STREAM[:-3])),
    "a wrong CRC and a cut Adler-32": idat(damaged(b"IDAT", STREAM[:-3])),
    "a row too few": rgb(stream=zlib.compress(RGB[:-25])),
    "a header with a wrong CRC": rgb().replace(
        chunk(b"IHDR", rgb()[16:29]), damaged(b"IHDR", rgb()[16:29])
    ),
    "two headers": rgb(chunk(b"IHDR", rgb()[16:29])),
    "two kinds of pixels": rgb(last=b"", stream=STREAM[:9]).replace(
        chunk(b"IEND"), chunk(b"tEXt", b"a\0b") + chunk(b"IDAT", STREAM[9:]) + chunk(b"IEND")
    ),
    "no palette": file(8, 8, 3, 8, zlib.compress(INDEXED)),
    "an empty palette": file(8, 8, 3, 8, zlib.compress(INDEXED), chunk(b"PLTE")),
    "a palette behind the indices": file(8, 8, 3, 8, zlib.compress(INDEXED), last=PALETTE),
    "a palette with a wrong CRC": file(
        8, 8, 3, 8, zlib.compress(INDEXED), damaged(b"PLTE", bytes(12))
    ),
    "a palette of 4 1/3 colours": file(
        8, 8, 3, 8, zlib.compress(INDEXED), chunk(b"PLTE", bytes(13))
    ),
    "a palette of 300 colours": file(
        8, 8, 3, 8, zlib.compress(INDEXED), chunk(b"PLTE", bytes(900))
    ),
    "two palettes": file(8, 8, 3, 8, zlib.compress(INDEXED), PALETTE, PALETTE),
    "no palette, interlaced": interlaced_header(file(8, 8, 3, 8, zlib.compress(bytes(79)))),
    "a short transparent colour": rgb(chunk(b"tRNS", bytes(4))),
    "a short transparent grey": file(8, 8, 0, 8, zlib.compress(GREY), chunk(b"tRNS", b"\0")),
    "a transparent colour with a wrong CRC": rgb(damaged(b"tRNS", bytes(6))),
    "two transparent colours": rgb(chunk(b"tRNS", bytes(6)), chunk(b"tRNS", bytes(6))),
    "alpha twice": file(8, 8, 3, 8, zlib.compress(INDEXED), PALETTE, *[chunk(b"tRNS", b"a")] * 2),
    "an unknown critical chunk": rgb(chunk(b"ABCD")),
    "a chunk without a name": rgb(chunk(b"a\0cd")),
    "an unknown interlacing": rgb().replace(
        chunk(b"IHDR", rgb()[16:29]), chunk(b"IHDR", rgb()[16:28] + b"\2")
    ),
    "an unknown compression": rgb().replace(
        chunk(b"IHDR", rgb()[16:29]), chunk(b"IHDR", rgb()[16:26] + b"\1\0\0")
    ),
}


def verdicts(
    data: bytes, backend: str | None, modes: Collection[Mode] = MODES, **options: Any
) -> set[bool]:
    """Return whether a backend decodes a file, in all modes that it knows."""
    found = set()
    for mode in modes:
        try:
            decode(data, mode=mode, backend=backend, **options)
        except UnsupportedFormat:
            continue
        except FastDecodeError:
            found.add(False)
        else:
            found.add(True)
    return found


@pytest.mark.parametrize("data", WHOLE.values(), ids=WHOLE)
def test_damage_to_metadata_refuses_no_image(data: bytes) -> None:
    """In all modes, and from each library but the core, there are the right pixels."""
    for backend in BACKENDS:
        assert verdicts(data, backend) <= ({True, False} if backend == "native" else {True})
    if data[25] == 2:
        expected = np.frombuffer(RGB, np.uint8).reshape(8, 25)[:, 1:].reshape(8, 8, 3)
        for backend in (None, "pillow", "opencv"):
            with suppress(FastDecodeError):
                assert_same(decode(data, backend=backend), expected, backend)


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_damage_to_pixels_is_an_error(data: bytes) -> None:
    """In all modes, and from each library."""
    for backend in BACKENDS:
        assert verdicts(data, backend) <= {False}
    assert verdicts(data, None) == {False}


@pytest.mark.parametrize("name", [*WHOLE, *BROKEN])
def test_strict_takes_no_damage(name: str) -> None:
    """With ``strict``, a damaged chunk is an error wherever it is, and odd metadata is none."""
    data = {**WHOLE, **BROKEN}[name]
    found = verdicts(data, None, strict=True)
    odd = any(word in name for word in ("CRC", "no end", "cut", "damage"))
    assert found == {name in WHOLE and not odd}


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("backend", ["native", "pillow", None])
def test_an_index_without_a_colour_is_an_error(
    bits: int, interlaced: bool, backend: str | None
) -> None:
    """A palette that is too short: the index is there, but no colour."""
    if interlaced and backend == "native":
        pytest.skip("it does not read interlaced files")
    row = b"\0" + bits_of([1], bits, bits)
    colours = chunk(b"PLTE", bytes(3))
    data = file(1, 1, 3, bits, zlib.compress(row), colours)
    data = interlaced_header(data) if interlaced else data
    for mode in ("RGB", "RGBA", "L"):
        with pytest.raises(FastDecodeError):
            decode(data, mode=mode, backend=backend)
    assert decode(data, mode="stored").tolist() == [[1]]


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """Draw a PNG of which chunks are changed, copied, moved or left out, with mended CRCs."""
    random_bytes = random.Random(draw(st.integers(0, 2**32)))
    image = drawing(20, 13).convert(draw(st.sampled_from(["RGB", "L", "P", "RGBA"])))
    data = encode(image, "png", transparency=0) if image.mode == "P" else encode(image, "png")
    chunks, at = [], 8
    while at < len(data):
        size = 12 + struct.unpack_from(">I", data, at)[0]
        chunks.append(bytearray(data[at : at + size]))
        at += size
    chunks.insert(1, bytearray(chunk(b"tEXt", b"Comment\0none")))
    for _ in range(draw(st.integers(1, 3))):
        at = random_bytes.randrange(len(chunks))
        match random_bytes.randrange(4):
            case 0:
                chunks.insert(random_bytes.randrange(len(chunks)), bytearray(chunks[at]))
            case 1 if len(chunks) > 1:
                del chunks[at]
            case 2:
                place = random_bytes.randrange(len(chunks[at]))
                chunks[at][place] = random_bytes.randrange(256)
            case _:
                del chunks[at][random_bytes.randint(4, len(chunks[at])) :]
    if draw(st.booleans()):
        chunks = [bytearray(chunk(bytes(one[4:8]), bytes(one[8:-4]))) for one in chunks]
    return data[:8] + b"".join(chunks)


@given(mutations())
@settings(max_examples=examples(300))
def test_the_verdict_depends_on_no_library(data: bytes) -> None:
    """Modes, the automatic choice, and Pillow or OpenCV alone agree on each damaged file."""
    # An index without a colour is an index all the same.
    modes = [mode for mode in MODES if mode != "stored" or data[25:26] != b"\x03"]
    names = [None, *({"pillow", "opencv"} & {*usable_backends()})]
    found = {verdict for name in names for verdict in verdicts(data, name, modes)}
    assert len(found) <= 1
    images = []
    for backend in names:
        with suppress(FastDecodeError), use(backend):
            images.append(decode(data))
    assert_same(images, images[:1] * len(images))
