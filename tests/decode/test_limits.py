"""Hostile files take neither much memory nor much time."""

from __future__ import annotations

import gc
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from corpus import usable_backends
from encoded import png
from PIL import Image

from fastdecode import DecodeError, ImageTooLarge, UnsupportedFormat, decode, probe, use
from fastdecode._backends import registry
from fastdecode._backends.selection import Choice
from fastdecode._formats import jpeg
from fastdecode._formats.jpeg import EOI
from fastdecode.native import add_restart_markers
from fastdecode.testing import drawing, encode

SIDE = 13_000
"""169 megapixels, just below the default of `max_pixels`."""
LONG = pytest.mark.thorough
WITH_TORCH = {"dali", "nvimgcodec", "torchcodec", "torchvision"}
"""Backends that take seconds to load."""


def _png(width: int, height: int) -> bytes:
    return png(8, 2, width=width, height=height, data=zlib.compress(bytes(100)))


def _jpeg(width: int, height: int) -> bytes:
    data = bytearray(encode(drawing(16, 16)))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def _claiming(kind: bytes) -> bytes:
    """Return a PNG of 100 bytes with a chunk that claims to have 2 GB."""
    data = bytearray(_png(2, 2))
    place = data.index(b"IDAT")
    data[place : place + 4] = kind
    data[place - 4 : place] = struct.pack(">I", 0x7FFFFFF0)
    return bytes(data)


@pytest.mark.parametrize(
    "name",
    [None, *(pytest.param(it, marks=[LONG] * (it in WITH_TORCH)) for it in usable_backends())],
)
def test_what_a_file_only_claims_takes_no_memory(name: str | None) -> None:
    """60000 x 60000 pixels are ImageTooLarge, a chunk of 2 GB is whatever, before memory is taken.

    In a process of its own, which has loaded the library for small files that are sound.
    """
    script = """
import resource, sys
from fastdecode import FastDecodeError, decode
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
name, before = sys.argv[1] or None, peak()
for data in sys.stdin.read().split():
    answer = "none"
    try:
        decode(bytes.fromhex(data), backend=name)
    except FastDecodeError as error:
        answer = type(error).__name__
    print(peak() - before, answer)
    before = peak()
"""
    small = [encode(drawing(8, 8)), encode(drawing(8, 8), "png")]
    huge = [_jpeg(60_000, 60_000), _png(60_000, 60_000)]
    files = [*small, *huge, _claiming(b"IDAT"), _claiming(b"tEXt")]

    # To load other libraries, too, would take seconds.
    others = {*registry.BUILTIN} - {"native", "pillow", name} if name else WITH_TORCH

    done = subprocess.run(
        [sys.executable, "-c", script, name or ""],
        env={**os.environ, "FASTDECODE_DISABLE": ",".join(others)},
        input=" ".join(data.hex() for data in files),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    grown, errors = zip(*(line.split() for line in done.stdout.splitlines()), strict=True)
    assert errors[2:4] == ("ImageTooLarge",) * 2
    assert sum(map(int, grown[2:4])) < 20_000  # kilobytes; each image would be 10 GB
    assert max(map(int, grown[4:])) < 1 << 20


@pytest.mark.parametrize("integer", [int, np.int64, np.uint16])
def test_the_limit_can_be_moved(integer: Callable[[int], Any]) -> None:
    """max_pixels may be any integer, also NumPy's, and None is no limit."""
    data = encode(drawing(40, 24))

    assert decode(data, max_pixels=integer(960)).shape == (24, 40, 3)
    assert decode(data, max_pixels=None).shape == (24, 40, 3)
    with pytest.raises(ImageTooLarge, match="959"):
        decode(data, max_pixels=integer(959))


def test_what_the_choice_remembers_is_bounded() -> None:
    """The cache of choices stays bounded, however often the preference changes."""
    data = encode(drawing(8, 8))

    for _ in range(4_200):
        use(None)
        decode(data)

    assert 0 < sum(type(kept) is Choice for kept in gc.get_objects()) < 4_150


def _saved(size: tuple[int, int], kind: str, color: Any = (10, 20, 30), **options: Any) -> bytes:
    mode = "RGB" if isinstance(color, tuple) else "L"
    return encode(Image.new(mode, size, color), kind, **options)


def _jpeg2000() -> bytes:
    """Return a codestream of 64 x 64 pixels that promises 13,000 x 13,000."""
    data = bytearray(_saved((64, 64), "JPEG2000", no_jp2=True))
    for at in (8, 24):  # the image, and its only tile
        data[at : at + 8] = struct.pack(">II", SIDE, SIDE)
    return bytes(data)


def _avif(*, frames: int = 1) -> bytes:
    """Return an AVIF of 64 x 64 coded pixels whose container promises 13,000 x 13,000."""
    more = [Image.new("RGB", (64, 64), (40 * frame, 0, 0)) for frame in range(1, frames)]
    options: Any = {"save_all": True, "append_images": more} if more else {}
    data = _saved((64, 64), "AVIF", **options)
    # In ispe boxes; and as 16.16 fixed point in tkhd boxes.
    data = data.replace(struct.pack(">II", 64, 64), struct.pack(">II", SIDE, SIDE))
    return data.replace(
        struct.pack(">II", 64 << 16, 64 << 16), struct.pack(">II", *[SIDE << 16] * 2)
    )


def _png_with_zeros() -> bytes:
    """Return a PNG of 8 x 8 pixels whose compressed data goes on with 200 MB of zeros."""
    encoder = zlib.compressobj(9)
    pieces = [encoder.compress(bytes(8 * 25))]
    pieces += [encoder.compress(bytes(1 << 20)) for _ in range(200)]
    data = b"".join((*pieces, encoder.flush()))
    return png(8, 2, width=8, height=8, data=data)


def _scans(number: int, *, coded: bool = True) -> bytes:
    """Return a grey progressive JPEG of 13,000 x 13,000 pixels; unless `coded`, without data.

    After a DC scan, each scan is a run without coefficients: a few bytes for thousands of blocks.
    """
    blocks = (SIDE // 8) ** 2

    def segment(marker: int, body: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(body) + 2) + body

    dc = bytes(blocks // 8 + 1) if coded else b""  # one bit a block
    runs, rest = divmod(blocks, 0x7FFF) if coded else (0, 0x4000)
    bits = ("0" + "1" * 14) * runs + "0" + format(max(rest, 0x4000) - 0x4000, "014b")
    bits += "1" * (-len(bits) % 8)
    ac = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
    start = segment(0xDB, bytes([0] + [1] * 64))
    start += segment(0xC2, struct.pack(">BHHB", 8, SIDE, SIDE, 1) + b"\1\x11\0")
    one_code = bytes([1] + [0] * 15)
    start += segment(0xC4, b"\x00" + one_code + b"\0") + segment(0xC4, b"\x10" + one_code + b"\xe0")
    bands = (1 + at % 63 for at in range(number - 1))
    scans = [segment(0xDA, bytes([1, 1, 0, band, band, 0])) + ac for band in bands]
    first = segment(0xDA, b"\1\1\0\0\0\0") + dc
    return b"".join((b"\xff\xd8", start, first, *scans, EOI))


EXPENSIVE = {
    "jpeg2000": (_jpeg2000, "jpeg2000"),
    "avif": (_avif, "avif"),
    "avif sequence": (lambda: _avif(frames=3), "avif"),
    "png": (_png_with_zeros, "png"),
    "scans": (lambda: _scans(480), "jpeg"),
    "scans without data": (lambda: _scans(480, coded=False), "jpeg"),
}


@pytest.mark.parametrize("case", EXPENSIVE)
def test_bytes_that_promise_too_much_are_refused_before_decoding(case: str) -> None:
    """A small file that would cost seconds and gigabytes is an error before a backend sees it.

    The core counts scans by size itself, to decode and to repack.
    """
    make, kind = EXPENSIVE[case]
    data = make()
    header = probe(data)
    assert (header.format, header.width * header.height <= SIDE**2) == (kind, True)

    with pytest.raises(DecodeError) as caught:
        decode(data)

    assert caught.value.errors == {}  # no backend was asked
    if case == "scans":
        options: Any = {"reduce": 8, "layout": "RGB", "window": None, "out": None, "strict": True}
        with pytest.raises(DecodeError):
            registry.load("native").decode(data, header, **options)
        with pytest.raises(UnsupportedFormat):
            add_restart_markers(data, max_pixels=None)


@pytest.mark.parametrize(
    ("width", "height", "size", "most"),
    [
        (80, 64, 6_000, 500),  # a small image may have as many as ever
        (4000, 3000, 30_000, 25),
        (1500, 1500, 20_000, 119),
        (SIDE, SIDE, 6_000, 16),
        (SIDE, SIDE, SIDE**2 // 512, 19),  # the smallest data that a real file can have
        (SIDE, SIDE, 10_000_000, 500),
    ],
)
def test_scans_are_counted_by_size(width: int, height: int, size: int, most: int) -> None:
    """The more bytes a file has for its pixels, the more scans it may have, up to 500."""
    data = encode(drawing(8, 8)).replace(
        struct.pack(">HH", 8, 8), struct.pack(">HH", height, width)
    )

    assert jpeg.read(data.ljust(size, b"\0")).most == most


@pytest.mark.parametrize("size", [(64, 64), (4000, 3000)])
@pytest.mark.parametrize("color", [0, 128, 255, (200, 30, 90)])
@pytest.mark.parametrize("kind", ["JPEG2000", "PNG", "AVIF", "JPEG"])
def test_images_of_one_color_are_decoded(kind: str, color: Any, size: tuple[int, int]) -> None:
    """The smallest honest files, of up to 12 megapixels of one colour, are no bombs."""
    data = _saved(size, kind, color, **{"progressive": True} if kind == "JPEG" else {})

    assert decode(data).shape == (*size[::-1], 3)
