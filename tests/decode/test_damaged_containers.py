"""Damaged files of formats other than JPEG: pixels that a decoder fills in are an error."""

from __future__ import annotations

import io
import struct
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from corpus import outcome, usable_backends
from encoded import (
    ASCII,
    LONG,
    SHORT,
    box,
    directory_last,
    with_orientation,
    with_riff,
)
from PIL import Image
from same import assert_same

from fastdecode import DecodeError, FastDecodeError, decode, probe
from fastdecode._backends import pillow
from fastdecode._formats import heif as heif_boxes
from fastdecode._formats import tiff
from fastdecode.testing import drawing, encode


def heic(image: Image.Image, tile: int = 0, **options: Any) -> bytes:
    """Encode a HEIC, with square tiles of `tile` pixels if given."""
    pillow_heif = pytest.importorskip("pillow_heif")
    stream = io.BytesIO()
    pillow_heif.from_pillow(image).save(stream, quality=60, tile_size=tile, **options)
    data = stream.getvalue()
    if tile and b"grid" not in data:
        pytest.skip("this pillow_heif writes no tiles")
    return data


GRIDS: dict[str, dict[str, Any]] = {
    "RGB": {},
    "grey": {"mode": "L"},
    "4:4:4": {"chroma": 444},
    "turned": {"exif": with_orientation(6).tobytes()},
}


def grid(kind: str) -> bytes:
    """Encode 160 x 100 pixels as six tiles of 64 x 64."""
    options = dict(GRIDS[kind])
    return heic(drawing(160, 100, options.pop("mode", "RGB")), 64, **options)


@pytest.mark.parametrize("kind", GRIDS)
def test_cut_heic_grid_is_an_error(kind: str) -> None:
    """A HEIC grid that lacks tiles raises an error."""
    data = grid(kind)
    ends = np.linspace(12, len(data) - 1, 60).astype(int).tolist()

    outcomes = {outcome(data[:end], data) for end in (*ends, len(data) - 1)}

    assert outcomes == {"error"}


@pytest.mark.parametrize("kind", GRIDS)
def test_heic_tile_that_does_not_decode_is_an_error(kind: str) -> None:
    """A tile that libheif would leave out is an error, in any orientation."""
    data = bytearray(grid(kind))
    start = data.rindex(b"mdat") + 4
    units = []
    while len(units) < 6:
        size = int.from_bytes(data[start : start + 4], "big")
        units.append((start + 4, start + 4 + size))
        start += 4 + size
    for begin, end in units:
        damaged = data.copy()
        damaged[begin:end] = b"\x55" * (end - begin)  # a unit of a kind that decoders pass over

        with pytest.raises(DecodeError):
            decode(bytes(damaged))


@pytest.mark.parametrize("color", [(0, 0, 0), (0, 135, 0), (255, 255, 255)], ids=str)
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_heic_grid_may_be_black_or_green(mode: str, color: tuple[int, int, int]) -> None:
    """An image whose tiles look as if they were left out is decoded."""
    image = Image.new("RGB", (160, 100), color)

    decoded = decode(heic(image.convert(mode), 64))

    expected = np.asarray(image.convert(mode).convert("RGB"))
    assert np.abs(decoded.astype(int) - expected).max() <= 4


@pytest.mark.parametrize("tile", [0, 64], ids=["one image", "tiles"])
@pytest.mark.parametrize("count", [4, 32, 200])
def test_zeros_in_heic_data_are_an_error(tile: int, count: int) -> None:
    """Zeros that the decoder conceals silently are an error: no HEVC encoder writes them."""
    data = heic(drawing(160, 100), tile)
    start = data.rindex(b"mdat") + 4
    for at in np.linspace(start, len(data) - count - 65, 40).astype(int).tolist():
        damaged = data[:at] + bytes(count) + data[at + count :]
        # It takes three to tell, and one or two of the zeros may stand where there was one.
        assert damaged == data or outcome(damaged, data) == "error", at


MODERN: dict[str, dict[str, Any]] = {
    "webp": {"format": "webp", "quality": 90},
    "webp, lossless": {"format": "webp", "lossless": True},
    "avif": {"format": "avif", "quality": 80},
}


def noisy() -> Image.Image:
    """Draw an image whose every row has details, so that all of them need data."""
    noise = np.random.default_rng(0).normal(0, 12, (100, 160, 3))
    pixels = np.asarray(drawing(160, 100)) + noise
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


@pytest.mark.parametrize("backend", [None, "opencv"])
@pytest.mark.parametrize("kind", MODERN)
def test_zeros_in_place_of_the_rest_are_an_error(kind: str, backend: str | None) -> None:
    """A WebP or AVIF whose second part was never written is an error, whatever decodes it."""
    data = encode(noisy(), **MODERN[kind])
    if backend and (kind == "avif" or backend not in usable_backends()):
        pytest.skip(f"{backend} is not asked for {kind}")
    start = data.index(b"mdat") + 40 if kind == "avif" else 400

    for at in np.linspace(start, len(data) - 200, 30).astype(int).tolist():
        assert outcome(data[:at] + bytes(len(data) - at), data, backend) == "error", at
    if kind != "avif":  # behind a chunk of odd length
        cut = data[:500] + bytes(len(data) - 500)
        with_profile = [with_riff(one, 0x20, (b"ICCP", b"odd")) for one in (data, cut)]
        whole, cut = (one[:30] + one[-12:] + one[30:-12] for one in with_profile)
        assert outcome(cut, whole, backend) == "error"
        assert outcome(whole, whole, backend) == "whole"
    if kind == "avif":
        hole = data[: start + 100] + bytes(20) + data[start + 120 :]
        assert outcome(hole, data) == "error"


@pytest.mark.parametrize("backend", [None, "opencv"])
def test_most_zeroed_blocks_of_a_lossless_webp_are_an_error(backend: str | None) -> None:
    """Pixels that end some bytes before the data show them; libwebp does not mind."""
    if backend and backend not in usable_backends():
        pytest.skip(f"{backend} is not installed")
    data = encode(noisy(), **MODERN["webp, lossless"])
    random = np.random.default_rng(0)
    places = random.integers(100, len(data) - 100, 200).tolist()
    holes = [data[:at] + bytes(16 + at % 48) + data[at + 16 + at % 48 :] for at in places]

    found = [outcome(hole, data, backend) for hole in holes]

    assert found.count("error") >= 0.85 * len(holes)


@pytest.mark.parametrize("backend", [None, "opencv"])
@pytest.mark.parametrize("rows", [0, 4, 20, 70, 100])
@pytest.mark.parametrize("kind", [*MODERN, "webp, fast"])
def test_flat_areas_of_webp_and_avif_may_be_zeros(
    kind: str, rows: int, backend: str | None
) -> None:
    """Flat rows at the end, which libwebp writes as zeros, decode."""
    if backend and (kind == "avif" or backend not in usable_backends()):
        pytest.skip(f"{backend} is not asked for {kind}")
    options = MODERN.get(kind, {"format": "webp", "quality": 80, "method": 0})
    image = np.asarray(noisy().resize((640, 100))).copy()
    image[rows:] = 255

    data = encode(Image.fromarray(image), **options)

    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert_same(decode(data, backend=backend), expected)


@pytest.mark.parametrize("backend", [None, "pillow", "opencv"])
@pytest.mark.parametrize("kind", ["webp", "webp, lossless"])
def test_zeros_behind_the_data_of_a_webp_are_no_damage(kind: str, backend: str | None) -> None:
    """A chunk that is filled up decodes, and one that is cut and filled up never does."""
    if backend and backend not in usable_backends():
        pytest.skip(f"{backend} is not installed")
    data = encode(noisy(), **MODERN[kind])
    (size,) = struct.unpack_from("<I", data, 16)

    def with_chunk(body: bytes) -> bytes:
        body += bytes(len(body) % 2)
        sizes = struct.pack("<I", 12 + len(body)), struct.pack("<I", len(body))
        return b"".join((b"RIFF", sizes[0], data[8:16], sizes[1], body))

    for zeros in (2, 20, 700):
        assert outcome(with_chunk(data[20 : 20 + size] + bytes(zeros)), data, backend) == "whole"
    for cut in np.linspace(100, size - 24, 25).astype(int).tolist():
        assert outcome(with_chunk(data[20 : 20 + cut] + bytes(700)), data, backend) == "error", cut


def heif(*items: tuple[int, bytes, int, tuple[tuple[int, int], ...]], version: int) -> bytes:
    """Build 400 bytes with a HEIF's tables; an item is (number, type, method, extents)."""
    form = ">I" if version == 2 else ">H"
    iloc = struct.pack(">B3xBB", version, 0x44, 0) + struct.pack(form, len(items))
    iinf = struct.pack(">IH", 0, len(items))
    for number, kind, method, extents in items:
        iloc += struct.pack(form, number) + (struct.pack(">H", method) if version else b"")
        iloc += struct.pack(">HH", 0, len(extents)) + struct.pack(
            f">{2 * len(extents)}I", *(value for extent in extents for value in extent)
        )
        iinf += box(b"infe", b"\2\0\0\0", struct.pack(">HH", number, 0), kind, b"\0")
    meta = box(b"meta", bytes(4), box(b"iinf", iinf), box(b"iloc", iloc), box(b"idat", bytes(8)))
    data = box(b"ftyp", b"avif", bytes(4), b"avif") + meta
    assert len(data) < 300
    return data.ljust(400, b"\1")


EXTENTS: list[tuple[bytes, int, tuple[tuple[int, int], ...], str]] = [
    (b"av01", 0, ((390, 10),), ""),
    (b"av01", 0, ((390, 11),), "401"),
    (b"av01", 0, ((300, 50), (390, 11)), "401"),
    (b"Exif", 0, ((390, 11),), ""),
    (b"av01", 0, ((0, 400),) * 5, "2000"),
    (b"av01", 1, ((0, 8),), ""),
    (b"av01", 1, ((0, 9),), "image 3"),
    (b"hvc1", 0, ((390, 10),), "image 3"),
]
"""Types of items, methods and extents, and what is said of them."""


@pytest.mark.parametrize("version", [0, 1, 2])
def test_extents_of_a_coded_image(version: int) -> None:
    """The data of a coded image must lie in the file, or in the idat box; that of EXIF need not.

    It may go on from one extent to another: here a NAL unit of HEVC. Without the end of a meta box
    the rotation or the alpha plane may be missing.
    """
    for kind, method, extents, said in EXTENTS:
        if version or not method:
            found = heif_boxes.missing_images(heif((3, kind, method, extents), version=version))
            assert (said in found) == bool(said or not found), (kind, method, extents)
    data = heif((1, b"hvc1", 0, ((300, 7), (390, 10))), version=version)
    unit = struct.pack(">I", 13) + b"\x26" + b"\x55" * 12
    assert not heif_boxes.missing_images(data[:300] + unit[:7] + data[307:390] + unit[7:])
    assert heif_boxes.missing_images(data[:300] + bytes(7) + data[307:390] + unit[7:])
    avif = encode(drawing(40, 30), "avif")
    at = avif.index(b"meta") - 4
    end = at + int.from_bytes(avif[at : at + 4], "big")
    assert not heif_boxes.missing_images(avif)
    assert "meta box" in heif_boxes.missing_images(avif[: end - 1])


def fields(bits: tuple[int, ...], photometric: int, *more: tuple[int, int, tuple[int, ...]]) -> Any:
    """Return the fields of 16 x 16 uncompressed pixels in one strip."""
    size = 256 * sum(bits) // 8
    given = [
        (256, SHORT, (16,)),
        (257, SHORT, (16,)),
        (258, SHORT, bits),
        (259, SHORT, (1,)),
        (262, SHORT, (photometric,)),
        (273, LONG, (16,)),
        (277, SHORT, (len(bits),)),
        (278, SHORT, (16,)),
        (279, LONG, (size,)),
    ]
    return (np.arange(size) % 251).astype(np.uint8).tobytes(), *given, *more


TIFFS = {
    "colour map": fields((8,), 3, (320, SHORT, tuple(range(0, 65536, 256)) * 3)),
    "sample format": fields((32,), 1, (339, SHORT, (3,))),
    "extra samples": fields((8,) * 5, 2, (338, SHORT, (2, 0))),
    "a comment before them": fields(
        (32,), 1, (305, ASCII, tuple(b"written by nobody\0")), (339, SHORT, (3,))
    ),
}


@pytest.mark.parametrize("layout", [("<", False), (">", False), ("<", True)], ids=str)
@pytest.mark.parametrize("kind", TIFFS)
@pytest.mark.filterwarnings("ignore")
def test_tiff_cut_in_its_last_bytes_is_an_error(kind: str, layout: tuple[str, bool]) -> None:
    """If a field beyond the end is missing, Pillow would decode other colours.

    A missing comment behind the other fields does not affect the pixels. Pillow skips a field of
    more bytes than the file, which so counts as missing.
    """
    data = directory_last(*TIFFS[kind], order=layout[0], big=layout[1])

    outcomes = [outcome(data[:-cut], data) for cut in range(1, 400)]

    assert "other pixels" not in outcomes
    assert outcomes[-1] == "error"
    if kind != "sample format":  # where the last four bytes are the offset of another page
        assert outcomes[0] == "error"
    about = (65000, ASCII, tuple(b"written by nobody\0"))
    commented = directory_last(*fields((8,), 1, about))
    assert outcome(commented[:-1], commented) == "whole"
    data = directory_last(*fields((8,), 1, *((tag, ASCII, (65,) * 200) for tag in (305, 700))))
    count = struct.pack("<HHI", 305, ASCII, len(data) - 300)
    again = data.replace(struct.pack("<HHI", 305, ASCII, 200), count)
    assert not tiff.missing(data, probe(data))
    assert "field 700" in tiff.missing(again, probe(again))


def _compressed(kind: str) -> bytes:
    """Encode a TIFF whose compressed data is damaged in its middle."""
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8)
    image = Image.fromarray(noise).convert("1" if kind == "group4" else "RGB")
    data = bytearray(encode(image, "tiff", compression=kind))
    data[len(data) // 2 : len(data) // 2 + 8] = b"\xff" * 8
    return bytes(data)


@pytest.mark.parametrize("kind", ["tiff_lzw", "tiff_adobe_deflate", "group4"])
@pytest.mark.parametrize("backend", [None, "pillow"])
def test_words_of_libtiff_are_in_the_error(
    kind: str, backend: str | None, capfd: pytest.CaptureFixture[str]
) -> None:
    """What libtiff says of damage is in the error, not on stderr; and it is always an error.

    The messages of others who use Pillow stay where they were, also in other threads meanwhile.
    """
    if pillow._handler is None:
        pytest.skip("libtiff cannot be reached here")
    data = _compressed(kind)

    def fails(_: object) -> str:
        with pytest.raises(FastDecodeError) as caught:
            decode(data, backend=backend)
        return str(caught.value)

    def others(_: object) -> None:
        with suppress(OSError):
            Image.open(io.BytesIO(data)).load()

    with ThreadPoolExecutor(4) as threads:
        told = set(threads.map(fails, range(20)))
        assert capfd.readouterr().err == ""
        both = [threads.submit(call, 0) for call in (fails, others) * 10]
        assert told == {each.result() for each in both[::2]}
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) >= 10
    if kind != "group4":  # which is another library's task
        assert len(told) == 1
        assert lines[0].rpartition(": ")[2].rstrip(".") in min(told)


@pytest.mark.parametrize("kind", [b"P2", b"P3"])
def test_plain_pnm_cut_within_a_number_is_an_error(kind: bytes) -> None:
    """A number that is cut in two still looks like a number, but is an error."""
    values = b" ".join(b"%d" % (100 + value) for value in range(12))
    data = kind + (b" # of\n3\n4" if kind == b"P2" else b"\n2 2") + b"\n255\n" + values + b"\n"

    assert outcome(data[:-1], data) == "whole"  # 1110 would be more than 255
    assert {outcome(data[:-cut], data) for cut in range(2, 30)} == {"error"}
