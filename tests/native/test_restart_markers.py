"""The lossless repack: the same image, with a restart marker after each row of MCUs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from corpus import samples
from PIL import Image
from same import assert_raises, assert_same

import fastdecode
from fastdecode import DecodeError, FastDecodeError, ImageTooLarge, UnsupportedFormat, decode
from fastdecode.native import add_restart_markers
from fastdecode.testing import drawing, encode

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
JPEGS = [sample for sample in samples("jpeg_kinds", "malformed") if sample.format == "jpeg"]
SIZES = [(1, 1), (8, 8), (9, 17), (16, 16), (17, 15), (31, 33), (100, 3), (3, 100), (130, 70)]
OPTIONS = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True},
    "restarts": {"restart_marker_blocks": 2},
    "optimised": {"optimize": True},
}
EOI = b"\xff\xd9"
# Images that the core does not decode, and how they are written; one is sampled as 4:2:2.
ODD: list[tuple[str, dict[str, Any]]] = [
    ("CMYK", {}),
    ("L", {"subsampling": 1}),
    ("RGB", {"quality": -1, "qtables": [[300] * 64, [400] * 64]}),
]


class Segment(NamedTuple):
    """A marker with its contents; `start` is the offset of the marker."""

    marker: int
    body: bytes
    start: int


def segments(data: bytes) -> Iterator[Segment]:
    """Return the segments up to the first scan's data."""
    at = 2
    while True:
        while data[at : at + 2] == b"\xff\xff":
            at += 1
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if length < 2:  # a comment or an application's, without contents: decoders pass over it
            at += 4
            continue
        yield Segment(data[at + 1], data[at + 4 : at + 2 + length], at)
        if data[at + 1] == 0xDA:
            return
        at += 2 + length


def kept(data: bytes) -> list[tuple[int, bytes]]:
    """Return the segments that the repack must not change: APPn and COM."""
    return [(s.marker, s.body) for s in segments(data) if s.marker == 0xFE or s.marker >> 4 == 0xE]


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)


def check(data: bytes) -> bytes:
    """Repack a file, and check everything that is promised of the result."""
    result = add_restart_markers(data)
    found = list(segments(result))
    body = next(one.body for one in found if one.marker == 0xC0)
    height, width = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
    # A scan of one component has blocks for MCUs: T.81, A.2.2.
    factors = body[7::3] if len(body) > 9 else b"\x11"
    across = -(-width // (8 * max(value >> 4 for value in factors)))
    down = -(-height // (8 * max(value & 15 for value in factors)))
    markers = sum(result.count(bytes((0xFF, 0xD0 + i)), found[-1].start) for i in range(8))

    assert_same(pixels(result), pixels(data))
    assert [one.body for one in found if one.marker == 0xDD] == [across.to_bytes(2, "big")]
    assert markers == down - 1
    assert kept(result) == kept(data)
    assert result.endswith(EOI)
    assert add_restart_markers(result) == result
    return result


@pytest.mark.parametrize("kind", [*OPTIONS, "photos"])
def test_any_kind_and_size(kind: str) -> None:
    """Photos, and images of any size and kind, also single pixels, are repacked."""
    for path in PHOTOS if kind == "photos" else ():
        assert len(check(path.read_bytes())) < 1.06 * path.stat().st_size
    for width, height in SIZES if kind in OPTIONS else ():
        for mode in ("RGB", "L") if kind != "4:2:2" else ("RGB",):
            check(encode(drawing(width, height, mode), **OPTIONS[kind]))


@pytest.mark.parametrize("sample", JPEGS, ids=lambda sample: sample.name)
def test_file_is_repacked_or_refused(sample: Any) -> None:
    """Files that decode without a warning are repacked, and others are refused."""
    data = sample.path.read_bytes()
    try:
        decode(data, mode="stored", strict=True, backend="native")
        clean = sample.decodes_in_pillow
    except FastDecodeError:
        clean = False
    # Without its last scans a progressive file decodes; the repacked one would decode otherwise.
    if clean and "prog_scans" not in sample.name:
        check(data)
    else:
        with pytest.raises((DecodeError, ImageTooLarge, UnsupportedFormat)):
            add_restart_markers(data, max_pixels=10_000_000)


def test_metadata_keeps_its_bytes_and_its_order() -> None:
    """EXIF, ICC profile, XMP, comments and JFIF stay, none is added, and what trails is dropped."""
    tags = Image.Exif()
    tags[0x0112] = 6
    plain = encode(drawing(40, 30))
    data = encode(
        drawing(40, 30), exif=tags, icc_profile=bytes(range(256)) * 300, comment=b"w", dpi=(7, 9)
    )
    data = data[:2] + b"\xff\xfe\x00\x06also" + data[2:]
    bare = plain[:2] + plain[next(s for s in segments(plain) if s.marker == 0xDB).start :]

    before = kept(check(data))

    assert [marker for marker, _ in before] == [0xFE, 0xE0, 0xE1, 0xE2, 0xE2, 0xFE]
    assert fastdecode.probe(add_restart_markers(data)).orientation == 6
    assert kept(check(bare)) == []
    assert add_restart_markers(data + b"\0" * 100 + plain) == add_restart_markers(data)


@pytest.mark.parametrize("kind", OPTIONS)
def test_damage_is_not_hidden(kind: str) -> None:
    """Cut, with any byte changed, or with zeros for data, a file is refused or becomes the image.

    Zeros of a flat area are data.
    """
    data = encode(drawing(80, 64), **OPTIONS[kind])
    for cut in np.linspace(0, len(data) - 3, 60).astype(int):
        for end in (b"", EOI):
            with pytest.raises((DecodeError, UnsupportedFormat)):
                add_restart_markers(data[:cut] + end)
    random = np.random.default_rng(7)
    refused = 0
    for at, value in zip(
        random.integers(2, len(data), 150), random.integers(256, size=150), strict=True
    ):
        damaged = data[:at] + bytes((int(value),)) + data[at + 1 :]
        try:
            result = add_restart_markers(damaged, max_pixels=1_000_000)
        except FastDecodeError:
            refused += 1
        else:
            assert_same(pixels(result), pixels(damaged), (at, value))
    assert refused > 50

    noise = random.integers(0, 255, (90, 120, 3), np.uint8)
    fine = encode(Image.fromarray(noise), **{**OPTIONS[kind], "quality": 95})
    for start in np.linspace(fastdecode.probe(fine).scan_offset, len(fine) - 400, 20).astype(int):
        for size in (250, len(fine) // 10, len(fine)):
            hole = min(size, len(fine) - start - 2)
            with pytest.raises(FastDecodeError):
                add_restart_markers(fine[:start] + bytes(hole) + fine[start + hole :])
    noise[20:] = 255
    check(encode(Image.fromarray(np.tile(noise, (5, 1, 1))), **{**OPTIONS[kind], "quality": 95}))


def test_what_cannot_be_repacked_is_refused() -> None:
    """Other formats and kinds, damage, limits and wrong types raise the errors of `decode`."""
    plain, progressive = encode(drawing(80, 64)), encode(drawing(80, 64), progressive=True)
    second = progressive.index(b"\xff\xda", progressive.index(b"\xff\xda") + 2)
    adobe = b"\xff\xee\x00\x0eAdobe\0\x64\0\0\0\0\0"  # which would change the colours
    last = progressive[progressive.rindex(b"\xff\xc4") : -2]
    refused: list[tuple[Any, Any, Any]] = [
        *((encode(drawing(16, 16, mode), **way), {}, UnsupportedFormat) for mode, way in ODD),
        (encode(drawing(13, 7), "png"), {}, UnsupportedFormat),
        (progressive[:second] + adobe + progressive[second:], {}, UnsupportedFormat),
        (progressive[:-2] + last * 600 + EOI, {}, (DecodeError, UnsupportedFormat)),
        (plain[: len(plain) // 2], {}, DecodeError),
        *((none, {}, FastDecodeError) for none in (b"", b"\xff", b"\xff\xd8", b"GIF89a")),
        *((wrong, {}, TypeError) for wrong in ("a.jpg", Path(), 3, None, np.zeros(9, "f4"))),
        (plain, {"max_pixels": 80 * 64 - 1}, ImageTooLarge),
        (plain, {"max_pixels": 0}, ValueError),
        *((plain, {"max_pixels": wrong}, TypeError) for wrong in (True, "many")),
    ]
    for at, (data, options, error) in enumerate(refused):
        told = "pixels" if options else ""
        assert_raises(error, told, partial(add_restart_markers, data, **options), at)
    unlimited = add_restart_markers(plain, max_pixels=None)
    for enough in (80 * 64, np.int64(80 * 64), 1 << 70):
        assert add_restart_markers(plain, max_pixels=enough) == unlimited
