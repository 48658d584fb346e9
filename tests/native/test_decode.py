"""The backend ``native``: exact regions, rows with any stride, damage, limits."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import samples
from instructions import ffi, lib, with_each
from processes import answers, resident
from same import assert_same

import fastdecode
from fastdecode import DecodeError, UnsupportedFormat, decode, probe
from fastdecode._backends import registry
from fastdecode.testing import drawing, encode, photo
from fastdecode.types import MODES, REDUCES

DECODER = ffi.gc(lib.fd_decoder_create(), lib.fd_decoder_destroy)
PHOTO = (Path(fastdecode.__file__).parent / "samples" / "canyon-wren.jpg").read_bytes()
TRIPLES = 2_000
MOST_PIXELS = 2_000_000  # of a file: thousands of decodes have to take seconds


def _written() -> dict[str, bytes]:
    """Encode colours and inks in every sampling and coding that Pillow writes, in odd sizes."""
    draw = random.Random(0)
    ways: dict[str, dict[str, Any]] = {
        "plain": {},
        "progressive": {"progressive": True},
        "restarts in a row": {"restart_marker_blocks": 3},
        "a restart each row": {"restart_marker_rows": 1},
        "restarts, progressive": {"progressive": True, "restart_marker_rows": 2},
        "a restart each block": {"progressive": True, "restart_marker_blocks": 1},
    }
    small = zip(range(1, 41), draw.sample(range(1, 41), 40), strict=True)
    found = {
        f"{width}x{height} {mode} {sampling} {way}": encode(
            drawing(width, height, "RGB").convert(mode), quality=80, subsampling=sampling, **options
        )
        for width, height in ((17, 33), (101, 67), (256, 160), (203, 151))
        for mode in ("RGB", "CMYK")  # the core leaves CMYK to libjpeg
        for sampling in ("4:4:4", "4:2:2", "4:2:0")
        for way, options in ways.items()
    }
    for width, height in small:  # some of which fill no block or no MCU
        for sampling in ("4:4:4", "4:2:2", "4:2:0", "grey"):
            way, quality = draw.choice([*ways]), draw.choice((1, 30, 90, 100))
            image = drawing(width, height, "L" if sampling == "grey" else "RGB")
            how = {} if sampling == "grey" else {"subsampling": sampling}
            found[f"{width}x{height} {sampling} {way} {quality}"] = encode(
                image, quality=quality, optimize=quality > 50, **how, **ways[way]
            )
    return found


@cache
def _files() -> dict[str, bytes]:
    """Return files that `native` reads: the package's photos, the collection, and encoded ones."""
    folder = Path(fastdecode.__file__).parent / "samples"
    long_runs = {  # and many corrections in one block
        f"photo {quality}": encode(photo(200, 150), progressive=True, quality=quality)
        for quality in (50, 100)
    }
    found = {path.name: path.read_bytes() for path in sorted(folder.glob("*.jpg"))}
    for sample in samples("jpeg_kinds", "photos"):
        if sample.format == "jpeg" and sample.decodes_in_pillow:
            found[sample.name] = sample.path.read_bytes()
    (support,) = registry.load("native").supports["jpeg"]
    kept = {}
    for name, data in {**found, **long_runs, **_written()}.items():
        header = probe(data)
        if header.width * header.height <= MOST_PIXELS and not support.refusal(header):
            kept[name] = data
    return kept


@cache
def _whole(name: str, reduce: int, mode: Any) -> Any:
    return decode(_files()[name], reduce, mode=mode, backend="pillow")


@pytest.mark.parametrize("part", range(10))
def test_any_region_of_any_file_is_that_slice_of_pillows_image(part: int) -> None:
    """For 2 000 random files, regions, reductions and modes, the result is Pillow's slice.

    Some are decoded with every set of instructions, and half of them strictly.
    """
    random = np.random.default_rng(part)
    names = sorted(_files())
    compared = 0
    while compared < TRIPLES // 10:
        name = names[random.integers(len(names))]
        reduce = REDUCES[random.integers(len(REDUCES))]
        data = _files()[name]
        header = probe(data)
        mode = "stored" if header.color == "cmyk" else MODES[random.integers(len(MODES))]
        left, right = sorted(random.choice(header.width + 1, 2, replace=False))
        top, bottom = sorted(random.choice(header.height + 1, 2, replace=False))
        box = (int(left), int(top), int(right), int(bottom))
        how: Any = {"mode": mode, "backend": "native", "strict": bool(random.integers(2))}
        cut = partial(decode, data, reduce, region=box, **how)
        try:
            image = with_each(cut) if random.random() < 0.1 else cut()
        except (DecodeError, UnsupportedFormat):
            with pytest.raises((DecodeError, UnsupportedFormat)):  # then it refuses the whole, too
                decode(data, reduce, **how)
            names.remove(name)
            continue
        rows = slice(top // reduce, -(-bottom // reduce))
        columns = slice(left // reduce, -(-right // reduce))
        compared += 1

        assert_same(
            image, _whole(name, reduce, mode)[rows, columns], f"{name} {box} {mode} 1/{reduce}"
        )

    assert len(names) > 250


def _parts_removed(data: bytes) -> Iterator[bytes]:
    """Remove each segment or Huffman table before the first scan of a JPEG, or each chunk."""
    if data[:2] != b"\xff\xd8":
        at = 33  # behind IHDR
        while at < len(data):
            end = at + 12 + int.from_bytes(data[at : at + 4], "big")
            yield data[:at] + data[end:]
            at = end
        return
    at = 2
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        yield data[:at] + data[end:]
        table = at + 4
        while data[at + 1] == 0xC4 and table < end:
            behind = table + 17 + sum(data[table + 1 : table + 17])
            length = (end - at - 2 - (behind - table)).to_bytes(2, "big")
            yield data[: at + 2] + length + data[at + 4 : table] + data[behind:]
            table = behind
        at = end


def _other_symbols(data: bytes) -> Iterator[bytes]:
    """Exchange the first two symbols of each Huffman table; or make the last one invalid."""
    at = 2
    while data[at + 1] != 0xDA:
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] == 0xC4:
            first, last = at + 21, at + 1 + length
            swapped = data[first + 1 : first - 1 : -1]
            yield data[:first] + swapped + data[first + 2 :]
            yield data[:last] + b"\xff" + data[last + 1 :]
        at += 2 + length


def _tables_in_one(data: bytes) -> bytes:
    """Put all Huffman tables before the first scan into one segment, as many encoders do."""
    at, tables, rest = 2, b"", data[:2]
    while data[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(data[at + 2 : at + 4], "big")
        if data[at + 1] == 0xC4:
            tables += data[at + 4 : end]
        else:
            rest += data[at:end]
        at = end
    return rest + b"\xff\xc4" + (len(tables) + 2).to_bytes(2, "big") + tables + data[at:]


def _incomplete() -> list[bytes]:
    """Return small files of many kinds, and each without one of its parts, or with other codes."""
    pixels = drawing(40, 24)
    keyed = pixels.convert("L")
    coded = pixels.quantize(7)
    whole = [
        _tables_in_one(encode(pixels)),
        encode(pixels, subsampling=0, optimize=True),
        encode(pixels.convert("L"), restart_marker_blocks=2),
        encode(pixels, progressive=True),
        encode(pixels.convert("CMYK"), restart_marker_rows=1),
        encode(keyed, "png", transparency=keyed.getpixel((3, 3))),
        encode(coded, "png", transparency=bytes(range(0, 210, 30))),
        encode(pixels.convert("RGBA"), "png"),
    ]
    less = [less for data in whole for less in _parts_removed(data)]
    plain, progressive = encode(pixels, subsampling=0), whole[3]
    return [*whole, *less, plain, *_other_symbols(plain), *_other_symbols(progressive)]


def test_no_file_finds_what_another_has_left() -> None:
    """Whatever a file lacks, the outcome after any other file is that of a new decoder."""
    files, request = _incomplete(), _request(layout=lib.FD_RGBA)

    def outcome(decoder: Any, data: bytes) -> tuple[int, bytes]:
        out = np.zeros((24, 40, 4), np.uint8)
        place = ffi.cast("uint8_t *", out.ctypes.data)
        status = lib.fd_decode(decoder, data, len(data), request, place, out.strides[0])
        return status, out.tobytes() if status == lib.FD_OK else b""

    def new() -> Any:
        return ffi.gc(lib.fd_decoder_create(), lib.fd_decoder_destroy)

    alone = [outcome(new(), data) for data in files]
    assert len({status for status, _ in alone}) > 1
    used = new()
    for before, (data, expected) in product(files, zip(files, alone, strict=True)):
        outcome(used, before)
        assert outcome(used, data) == expected


def _request(**fields: Any) -> Any:
    return ffi.new("fd_request *", {"reduce": 1, "layout": lib.FD_RGB, **fields})


def _decode_into(data: bytes, request: Any, out: Any, stride: int) -> int:
    """Call the core directly."""
    status: int = lib.fd_decode(DECODER, data, len(data), request, out, stride)
    return status


@pytest.mark.parametrize("upwards", [False, True])
@pytest.mark.parametrize("box", [(0, 0, 0, 0), (5, 9, 60, 41)], ids=["whole", "part"])
def test_rows_may_lie_anywhere(upwards: bool, box: tuple[int, int, int, int]) -> None:
    """Rows are written with the stride, also upwards, and bytes between them stay."""
    data = encode(drawing(101, 67))
    left, top, right, bottom = box if any(box) else (0, 0, 101, 67)
    part = decode(data, backend="pillow")[top:bottom, left:right]
    room = np.full((len(part) + 2, 400), 77, np.uint8)
    first = len(part) if upwards else 1
    request = _request(left=box[0], top=box[1], right=box[2], bottom=box[3])
    pointer = ffi.cast("uint8_t *", room[first:, 4:].ctypes.data)

    status = _decode_into(data, request, pointer, -400 if upwards else 400)

    end = 4 + part.shape[1] * 3
    inside = room[1:-1, 4:end].reshape(part.shape)
    assert status == lib.FD_OK
    assert_same(inside[::-1] if upwards else inside, part)
    room[1:-1, 4:end] = 77
    assert_same(room, 77)


def test_a_region_of_a_file_without_its_end_marker() -> None:
    """A region of a file without end marker decodes, except with strict."""
    box = (30, 40, 90, 70)

    image = decode(PHOTO[:-2], region=box, backend="native")

    assert_same(image, decode(PHOTO, backend="pillow")[40:70, 30:90])
    with pytest.raises(DecodeError):
        decode(PHOTO[:-2], region=box, backend="native", strict=True)


@pytest.mark.parametrize(("backend", "bytes_"), [("native", 2), (None, 5)])
def test_a_damaged_file_gives_its_parts_as_it_gives_the_whole(
    backend: str | None, bytes_: int
) -> None:
    """A region of a damaged file is refused, or equals the slice of the whole image."""
    random = np.random.default_rng(3)
    start = probe(PHOTO).scan_offset
    shown = 0
    for _ in range(60):
        noise = bytearray(PHOTO)
        for at in random.integers(start, len(PHOTO) - 2, bytes_):
            noise[at] = int(random.integers(256))
        damaged = bytes(noise)
        try:
            whole = decode(damaged, backend=backend)
        except DecodeError:
            continue
        shown += 1

        image = decode(damaged, region=(10, 10, 400, 300), backend=backend)

        assert_same(image, whole[10:300, 10:400])

    assert 10 < shown < 60


# What is limited, too little of it, and enough.
LIMITS = [("pixels", 256 * 160 - 1, 256 * 160), ("scans", 3, 20)]


@pytest.mark.parametrize(("limit", "least", "enough"), LIMITS)
def test_limits_are_kept(limit: str, least: int, enough: int) -> None:
    """More pixels or scans than allowed are refused, in words; at the limit all is well."""
    data = encode(drawing(256, 160), progressive=limit != "pixels")
    out = ffi.new("uint8_t[]", 256 * 160 * 3)

    refused = _decode_into(data, _request(limits={limit: least}), out, 256 * 3)
    words = ffi.string(lib.fd_decoder_message(DECODER))
    taken = _decode_into(data, _request(limits={limit: enough}), out, 256 * 3)

    assert (refused, taken) == (lib.FD_UNSUPPORTED, lib.FD_OK)
    assert words


@pytest.mark.parametrize("way", [{}, {"restart_marker_rows": 1}, {"subsampling": "4:4:4"}], ids=str)
def test_the_core_by_itself_refuses(way: dict[str, Any]) -> None:
    """It refuses a file that ends below the window, and a window or layout that cannot be."""
    out = ffi.new("uint8_t[]", 64 * 64 * 4)
    window, data = _request(right=64, bottom=64), encode(drawing(256, 256), **way)

    assert _decode_into(data, window, out, 192) == lib.FD_OK
    for cut in (data[: len(data) // 2], data[:-20], data[:-2]):
        assert _decode_into(cut, window, out, 192) == lib.FD_UNSUPPORTED
    for left, right in ((0, 257), (8, 8), (-1, 5)):
        outside = _request(left=left, right=right, bottom=5)
        assert _decode_into(data, outside, out, 256) == lib.FD_UNSUPPORTED, (left, right)
    for fields in ({"reduce": 3}, {"layout": 9}):
        assert _decode_into(data, _request(**fields), out, 256) == lib.FD_ARGUMENT, fields


@pytest.mark.skipif(resident() is None, reason="memory is looked up in /proc")
def test_the_memory_of_a_huge_image_is_given_back() -> None:
    """A thread keeps its decoder's memory for the next image, but not 70 MB of a huge one."""
    code = """
from PIL import Image
import io
import os
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
huge, small = io.BytesIO(), io.BytesIO()
Image.new("L", (5888, 6016)).save(huge, "JPEG", progressive=True)
Image.new("RGB", (16, 16)).save(small, "JPEG")
decode(small.getvalue(), backend="native")
before = resident()
for _ in range(2):  # only from the second on there would be one piece to keep
    decode(huge.getvalue(), 8, backend="native")
answers["kept"] = resident() - before
"""
    assert answers(code)["kept"] < 40e6
