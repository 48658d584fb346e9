"""The lossless repack: the same image, with a restart marker after each row of MCUs."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from corpus import samples
from PIL import Image
from same import assert_same

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
FRAMES = (0xC0, 0xC1, 0xC2, 0xC9, 0xCA)
EOI = b"\xff\xd9"
# Images that the core does not decode, and how they are written.
ODD: dict[str, tuple[str, dict[str, Any]]] = {
    "CMYK": ("CMYK", {}),
    "grey, sampled as 4:2:2": ("L", {"subsampling": 1}),
    "quantisation tables of 16 bits": ("RGB", {"quality": -1, "qtables": [[300] * 64, [400] * 64]}),
}
PHOTO = (PHOTOS[0].parent / "canyon-wren.jpg").read_bytes()


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


def shape(data: bytes) -> tuple[int, int, int]:
    """Return the kind of the frame, and the numbers of MCUs across and down."""
    marker, body, _ = next(s for s in segments(data) if s.marker in FRAMES)
    height, width = int.from_bytes(body[1:3], "big"), int.from_bytes(body[3:5], "big")
    factors = [(value >> 4, value & 15) for value in body[7::3]]
    alone = len(factors) == 1  # a scan of one component has blocks for MCUs: T.81, A.2.2
    across = 8 * (1 if alone else max(h for h, _ in factors))
    down = 8 * (1 if alone else max(v for _, v in factors))
    return marker, -(-width // across), -(-height // down)


def pixels(data: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(data)) as image:
        return np.asarray(image)


def check(data: bytes) -> bytes:
    """Repack a file, and check everything that is promised of the result."""
    result = add_restart_markers(data)
    marker, across, down = shape(result)
    intervals = [s.body for s in segments(result) if s.marker == 0xDD]
    scan = list(segments(result))[-1].start

    assert_same(pixels(result), pixels(data))
    assert marker == 0xC0
    assert intervals == [across.to_bytes(2, "big")]
    assert sum(result.count(bytes((0xFF, 0xD0 + i)), scan) for i in range(8)) == down - 1
    assert kept(result) == kept(data)
    assert result.endswith(EOI)
    assert add_restart_markers(result) == result
    return result


@pytest.mark.parametrize("path", PHOTOS, ids=lambda path: path.stem)
def test_photo_is_the_same_image(path: Path) -> None:
    """A photo keeps its pixels and metadata, and its size hardly changes."""
    data = path.read_bytes()

    assert len(check(data)) < 1.06 * len(data)


@pytest.mark.parametrize("sample", JPEGS, ids=lambda sample: sample.name)
def test_file_is_repacked_or_refused(sample) -> None:
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


@pytest.mark.parametrize(
    ("kind", "mode"),
    [(kind, mode) for mode in ("RGB", "L") for kind in OPTIONS if (kind, mode) != ("4:2:2", "L")],
)
def test_any_size(kind: str, mode: str) -> None:
    """Images of any size and kind are repacked, also single pixels."""
    for width, height in SIZES:
        check(encode(drawing(width, height, mode), **OPTIONS[kind]))


def test_metadata_keeps_its_bytes_and_its_order() -> None:
    """Exif, ICC profile, XMP, comments and the JFIF segment keep their bytes and order."""
    tags = Image.Exif()
    tags[0x0112] = 6
    data = encode(
        drawing(40, 30),
        exif=tags,
        icc_profile=bytes(range(256)) * 300,
        comment=b"words",
        dpi=(7, 9),
    )
    comment = b"\xff\xfe\x00\x06also"
    data = data[:2] + comment + data[2:]

    before = kept(check(data))

    assert [marker for marker, _ in before] == [0xFE, 0xE0, 0xE1, 0xE2, 0xE2, 0xFE]
    assert fastdecode.probe(add_restart_markers(data)).orientation == 6


def test_no_segment_is_added() -> None:
    """A file without JFIF and Adobe segments gets none."""
    data = encode(drawing(40, 30))
    bare = data[:2] + data[next(s for s in segments(data) if s.marker == 0xDB).start :]

    assert kept(check(bare)) == []


def test_any_part_decodes_alike() -> None:
    """Regions of the repacked file equal those of the original, with any backend."""
    data = PHOTOS[1].read_bytes()
    result, whole = add_restart_markers(data), decode(data)
    generator = np.random.default_rng(5)
    height, width = whole.shape[:2]
    for _ in range(60):
        left, right = sorted(generator.choice(width + 1, 2, replace=False).tolist())
        top, bottom = sorted(generator.choice(height + 1, 2, replace=False).tolist())
        for backend in ("native", None):
            part = decode(result, region=(left, top, right, bottom), backend=backend)
            assert_same(part, whole[top:bottom, left:right], backend)


@pytest.mark.parametrize("kind", OPTIONS)
def test_truncated_file_is_an_error(kind: str) -> None:
    """A truncated file is refused, also with an end marker after the cut."""
    data = encode(drawing(80, 64), **OPTIONS[kind])
    for cut in np.linspace(0, len(data) - 3, 60).astype(int):
        with pytest.raises((DecodeError, UnsupportedFormat)):
            add_restart_markers(data[:cut])
        with pytest.raises((DecodeError, UnsupportedFormat)):
            add_restart_markers(data[:cut] + EOI)


@pytest.mark.parametrize("kind", OPTIONS)
def test_damage_is_not_hidden(kind: str) -> None:
    """With any byte changed, a file is refused, or becomes the image that Pillow shows."""
    data = encode(drawing(80, 64), **OPTIONS[kind])
    generator = np.random.default_rng(7)
    refused = 0
    for at, value in zip(
        generator.integers(2, len(data), 150), generator.integers(256, size=150), strict=True
    ):
        damaged = data[:at] + bytes((int(value),)) + data[at + 1 :]
        try:
            result = add_restart_markers(damaged, max_pixels=1_000_000)
        except FastDecodeError:
            refused += 1
        else:
            assert_same(pixels(result), pixels(damaged), (at, value))

    assert refused > 50


def test_what_follows_the_end_is_dropped() -> None:
    """Bytes after the end marker, such as an MPO's second image, are dropped."""
    data = encode(drawing(40, 30))

    assert add_restart_markers(data + b"\0" * 100 + data) == add_restart_markers(data)


def test_late_adobe_segment_is_refused() -> None:
    """An Adobe segment after the data, which would change the colours, is refused."""
    data = encode(drawing(40, 30), progressive=True)
    second = data.index(b"\xff\xda", data.index(b"\xff\xda") + 2)
    adobe = b"\xff\xee\x00\x0eAdobe\0\x64\0\0\0\0\0"

    with pytest.raises(UnsupportedFormat):
        add_restart_markers(data[:second] + adobe + data[second:])


@pytest.mark.parametrize(("mode", "options"), ODD.values(), ids=ODD)
def test_kinds_that_the_core_leaves_to_others_are_refused(
    mode: str, options: dict[str, Any]
) -> None:
    """A sound JPEG that the core does not decode is unsupported, not damaged."""
    with pytest.raises(UnsupportedFormat):
        add_restart_markers(encode(drawing(16, 16, mode), **options))


def test_limits_are_kept() -> None:
    """Too many pixels, and more scans than a file of its size can have, are refused."""
    data = encode(drawing(80, 64), progressive=True)
    with pytest.raises(ImageTooLarge, match="pixels"):
        add_restart_markers(data, max_pixels=80 * 64 - 1)
    assert add_restart_markers(data, max_pixels=80 * 64)
    last = data[data.rindex(b"\xff\xc4") : -2]
    with pytest.raises((DecodeError, UnsupportedFormat)):
        add_restart_markers(data[:-2] + last * 600 + EOI)


def test_restart_markers_refuses_in_the_packages_words(tmp_path: Path) -> None:
    """Files that are damaged or not JPEGs, and wrong types, raise the errors of `decode`."""
    with pytest.raises(UnsupportedFormat):
        add_restart_markers(encode(drawing(13, 7), "png"))
    with pytest.raises(DecodeError):
        add_restart_markers(PHOTO[: len(PHOTO) // 2])
    for none in (b"", b"\xff", b"\xff\xd8", b"GIF89a"):
        with pytest.raises((UnsupportedFormat, DecodeError)):
            add_restart_markers(none)
    for wrong in (str(tmp_path), tmp_path, 3, None, np.zeros(9, np.float32)):
        with pytest.raises(TypeError):
            add_restart_markers(wrong)  # type: ignore[arg-type]
    for limit, kind in ((0, ValueError), (True, TypeError), ("many", TypeError)):
        with pytest.raises(kind, match="max_pixels"):
            add_restart_markers(PHOTO, max_pixels=limit)  # type: ignore[arg-type]
    unlimited = add_restart_markers(PHOTO, max_pixels=None)
    for enough in (500 * 333, np.int64(500 * 333), 1 << 70):
        assert add_restart_markers(PHOTO, max_pixels=enough) == unlimited


@pytest.mark.parametrize(
    "way",
    [
        {"quality": 99, "optimize": True},
        {"quality": 95, "optimize": True, "restart_marker_rows": 1},
        {"quality": 90, "progressive": True},
    ],
    ids=str,
)
def test_zeros_in_place_of_data_are_not_repacked(way: dict[str, int]) -> None:
    """A broken download would become a file that looks whole; zeros of a flat area are data."""
    random = np.random.default_rng(0)
    pixels = random.integers(0, 255, (90, 120, 3), np.uint8)
    data = encode(Image.fromarray(pixels), **way)
    for start in np.linspace(fastdecode.probe(data).scan_offset, len(data) - 400, 20).astype(int):
        for size in (250, len(data) // 10, len(data) - start - 2):
            hole = min(size, len(data) - start - 2)
            with pytest.raises(FastDecodeError):
                add_restart_markers(data[:start] + bytes(hole) + data[start + hole :])

    pixels[20:] = 255
    flat = encode(Image.fromarray(np.tile(pixels, (5, 1, 1))), **way)
    assert_same(decode(add_restart_markers(flat)), decode(flat))
