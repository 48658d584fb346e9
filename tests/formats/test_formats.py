"""TIFF, BMP and PNM of every kind: the right samples and colours, or a refusal that says why."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from functools import partial
from typing import Any

import numpy as np
import pytest
from cases import examples
from corpus import outcome, usable_backends
from encoded import LONG, SHORT
from forged import bmp, one_strip, packed, padded, pnm, run_lengths, tiff
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps
from same import assert_raises, assert_same

from fastdecode import FastDecodeError, UnsupportedFormat, decode, probe
from fastdecode._formats import simple
from fastdecode._formats import tiff as tiff_header
from fastdecode.errors import BackendUnavailable, DecodeError
from fastdecode.testing import drawing, encode

WIDTH, HEIGHT = 13, 9
ours = settings(max_examples=examples(150))


def noise(
    channels: int, bits: int, kind: str = "u", size: tuple[int, int] = (HEIGHT, WIDTH)
) -> Any:
    """Make samples (H, W, C) over the whole range of their type."""
    random = np.random.default_rng(bits + channels)
    shape = (*size, channels)
    if kind == "f":
        return random.normal(size=shape).astype(f"f{bits // 8}")
    width = next(w for w in (8, 16, 32, 64) if w >= bits)
    whole = (
        random.integers(0, 1 << bits, shape, np.uint64, endpoint=False)
        if bits < 64
        else (random.integers(0, 1 << 63, shape, np.uint64))
    )
    return whole.astype(f"{kind}{width // 8}")


def rgb(samples: Any, bits: int, *, inverted: bool = False) -> Any:
    """Apply the documented rule: spread up to 8 bits, and keep the high byte of more."""
    values = samples.astype(np.uint32)
    values = (1 << bits) - 1 - values if inverted else values
    values = values * 255 // ((1 << bits) - 1) if bits <= 8 else values >> bits - 8
    return values[:, :, [0] * 3 if values.shape[2] < 3 else slice(3)].astype(np.uint8)


def decodings(data: bytes, **options: Any) -> dict[str, Any]:
    """Decode automatically, and by each backend that takes the file."""
    found = {}
    for name in ("", "pillow", "opencv", "tifffile"):
        if name in ("", *usable_backends()):
            try:
                found[name] = decode(data, backend=name or None, **options)
            except UnsupportedFormat:
                continue
    return found


def assert_decodes(data: bytes, expected: Any, *, auto: bool = True, **options: Any) -> None:
    """Every backend that takes a file gives the same, and one does if its library is there."""
    found = decodings(data, **options)
    assert not auto or "" in found or not {"tifffile", "opencv"} <= {*usable_backends()}
    for name, image in found.items():
        assert_same(image, expected.tolist(), f"{name or 'auto'}, {options}")


@st.composite
def tiffs(draw: Any) -> tuple[bytes, Any, Any]:
    """Draw a TIFF of any layout; return it with its samples and its colours (None for no rule)."""
    kind = draw(st.sampled_from("uuuuif"))
    depths = {"u": [*range(1, 17), 32], "i": [8, 16, 32], "f": [16, 32, 64]}
    bits = draw(st.sampled_from(depths[kind]))
    photometric, channels, alpha = draw(
        st.sampled_from(
            [(0, 1, ()), (1, 1, ()), (1, 2, (2,)), (1, 2, (0,)), (2, 3, ()), (2, 4, (2,)),
             (2, 4, (0,)), (2, 5, (0, 2)), (5, 4, ())]
        )
    )  # fmt: skip
    samples = noise(channels, bits, kind)
    options = {
        "order": draw(st.sampled_from("<>")),
        "big": draw(st.booleans()),
        "planar": draw(st.booleans()) and channels > 1,
        "zipped": draw(st.booleans()),
        "rows": draw(st.sampled_from([None, 1, 4])),
        "tile": draw(st.sampled_from([None, None, (16, 16), (16, 32)])),
    }
    data = tiff(samples, bits, photometric, alpha=alpha, **options)
    colours = None
    if kind == "u" and bits <= 16 and photometric != 5:
        colours = rgb(samples, bits, inverted=photometric == 0)
    return data, samples[:, :, 0] if channels == 1 else samples, colours


@ours
@given(tiffs())
def test_tiff_of_any_layout(drawn: tuple[bytes, Any, Any]) -> None:
    """Samples are those of the file in mode "stored"; colours follow one rule, or are refused."""
    data, samples, colours = drawn

    assert_decodes(data, samples, mode="stored")
    if colours is not None:
        assert_decodes(data, colours)
    elif probe(data).color != "cmyk":
        with pytest.raises(UnsupportedFormat):
            decode(data)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("rows", [None, 4])
@pytest.mark.parametrize("depth", [8, 16])
def test_tiff_with_a_colour_map(bits: int, rows: int | None, depth: int) -> None:
    """RGB shows the colours of the map, also of one of 8 bits, and "stored" the indices."""
    indices = noise(1, bits)
    table = np.random.default_rng(1).integers(0, 1 << depth, (3, 1 << bits))
    data = tiff(indices, bits, 3, (320, SHORT, tuple(table.ravel().tolist())), rows=rows)

    assert_decodes(data, indices[:, :, 0], mode="stored")
    assert_decodes(data, (table[:, indices[:, :, 0]] >> depth - 8).transpose(1, 2, 0))


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize(
    "extra", [(), (2,), (1,), (0, 2), (0, 0, 2), (2, 0), (0, 2, 2), (0,), (0, 0)], ids=str
)
@pytest.mark.parametrize(
    ("photometric", "colours"), [(0, 1), (1, 1), (2, 3), (3, 1), (5, 4), (None, 1), (None, 3)]
)
def test_alpha_is_the_extra_channel_that_says_so(
    photometric: int | None, colours: int, extra: tuple[int, ...], bits: int
) -> None:
    """Other channels, before or behind it, are none; without alpha all is opaque.

    Colours that are multiplied by alpha are divided by it, except in "stored"; those of a palette
    are that of their index. Without a photometric interpretation grey is black-is-zero and three
    samples are RGB, as libtiff takes them.
    """
    pytest.importorskip("tifffile")
    if (photometric, bits) == (3, 16) or (extra not in ((), (2,)) and photometric in (5, None)):
        return
    if (photometric, extra) == (0, (1,)):  # is white multiplied, or zero?
        return
    samples, white = noise(colours + len(extra), bits), (1 << bits) - 1
    table = np.random.default_rng(1).integers(0, 1 << 16, (3, 256))
    more = [(320, SHORT, tuple(table.ravel().tolist()))] if photometric == 3 else []
    place = next((colours + at for at, kind in enumerate(extra) if kind), None)
    alpha = np.full(samples.shape[:2], white) if place is None else samples[..., place].astype(int)
    seen = samples[..., :colours]
    if 1 in extra and photometric != 3:
        samples[..., :colours] = np.minimum(seen, samples[..., place, None])
        seen = samples[..., :colours].astype(int) * white // np.maximum(alpha[..., None], 1)
    data = tiff(samples, bits, photometric, *more, alpha=extra)

    made = decode(data, mode="RGBA")

    if photometric == 3:
        expected = (table[:, samples[..., 0]] >> 8).transpose(1, 2, 0).astype(np.uint8)
    elif photometric == 5:
        inks = Image.fromarray(np.ascontiguousarray(seen >> bits - 8).astype(np.uint8), "CMYK")
        expected = np.asarray(inks.convert("RGB"))
    else:
        expected = rgb(seen, bits, inverted=photometric == 0)
    assert_same(made[..., :3], expected)
    assert_same(made[..., 3], (alpha >> bits - 8).tolist())
    assert_same(decode(data), expected)
    stored = samples[..., 0] if samples.shape[2] == 1 else samples
    assert_same(decode(data, mode="stored"), stored)


@pytest.mark.parametrize("value", range(1, 9))
@pytest.mark.parametrize("bits", [8, 16])
def test_tiff_is_upright_from_every_backend(value: int, bits: int) -> None:
    """A TIFF is turned as Pillow turns it, whichever backend reads it."""
    samples = noise(3, bits)
    upright = Image.fromarray(rgb(samples, bits))
    upright.getexif()[0x0112] = value

    data = tiff(samples, bits, 2, (274, SHORT, (value,)))

    assert_decodes(data, np.asarray(ImageOps.exif_transpose(upright)))


@pytest.mark.parametrize("kind", ["strip", "tile"])
@pytest.mark.parametrize("zipped", [False, True])
def test_sparse_parts_are_zeros(kind: str, zipped: bool) -> None:
    """A part at offset 0 of 0 bytes is zeros, or what GDAL's field says; a lost one is an error."""
    pytest.importorskip("tifffile")
    samples = noise(1, 8, size=(32, 32)) | 1
    layout: dict[str, Any] = {"tile": (16, 16)} if kind == "tile" else {"rows": 8}
    expected = samples[:, :, 0].copy()
    expected[(slice(0, 16), slice(16, 32)) if kind == "tile" else slice(8, 16)] = 0
    nodata = (42113, 2, tuple(b"7\0"))

    for more, empty in ((), 0), ((nodata,), 7):
        data = tiff(samples, 8, 1, *more, zipped=zipped, sparse=frozenset({1}), **layout)
        shown = np.where(expected == 0, empty, expected)
        assert_same(decode(data, mode="stored"), shown, more)


def test_tables_that_do_not_add_up_are_an_error() -> None:
    """Too few strips, planes or tiles, and parts that are too short, are missing pixels.

    Without a decoder the tables say which strip of which plane is short, and that one is cut.
    """
    samples = noise(3, 8, size=(32, 32))
    short = [
        ({"rows": 8}, (279, LONG, (768, 768, 768))),
        ({"rows": 8}, (279, LONG, (768, 20, 768, 768))),
        ({"planar": True}, (279, LONG, (1024, 1024))),
        ({"tile": (16, 16)}, (325, LONG, (768, 768, 768))),
        ({"tile": (16, 16)}, (325, LONG, (768, 768, 768, 767))),
        ({"rows": 8, "zipped": True}, (273, LONG, (16, 700, 1400))),
        ({"rows": 8, "zipped": True}, (279, LONG, (700, 0, 700, 700))),
    ]
    for options, field in short:
        for mode in ("RGB", "stored"):
            with pytest.raises(DecodeError):
                decode(tiff(samples, 8, 2, field, **options), mode=mode)
    for planar, sizes in ((False, [768, 768, 768, 192]), (True, [256, 256, 256, 64] * 3)):
        for index, size in enumerate([*sizes, 0]):  # the last strip may have fewer rows
            less = [size - (at == index) for at, size in enumerate(sizes)]
            fields = (279, LONG, tuple(less))
            data = tiff(noise(3, 8, size=(26, 32)), 8, 2, fields, planar=planar, rows=8)
            said = f"strip {index} of the TIFF has {size - 1} of {size} bytes" if size else ""
            assert tiff_header.missing(data, probe(data)) == said
    data = tiff(noise(3, 8), 8, 2, zipped=True)
    end = max(start + size for start, size in strips(data))
    moved = data.replace(struct.pack("<I", end - 16), struct.pack("<I", len(data) - 15))
    assert not tiff_header.missing(data, probe(data))
    assert "past its" in tiff_header.missing(moved, probe(moved))


def hostile() -> dict[str, bytes]:
    """Return a few bytes each that would make a decoder allocate gigabytes."""
    pixel = noise(1, 8, size=(1, 1))
    more: list[Any] = [(256, LONG, (13_000,)), (257, LONG, (13_000,)), (258, SHORT, (8,) * 200)]
    more += [(277, SHORT, (200,)), (278, LONG, (13_000,))]
    tile = (322, LONG, (60_000,)), (323, LONG, (60_000,))
    made = {
        "a huge tile": tiff(pixel, 8, 1, *tile, tile=(16, 16)),
        "a sparse part": tiff(pixel, 8, 1, *more, sparse=frozenset({0})),
    }
    fields = [(277, SHORT, (3,)), (258, SHORT, (8, 8, 8)), (262, SHORT, (2,))]
    large = encode(Image.new("RGB", (4000, 4000)))
    return made | {"a large JPEG": one_strip(large, (16, 16), 7, *fields)}


def unread(compression: int, photometric: int) -> bytes:
    half = () if compression != 1 else ((279, LONG, (180,)), (530, SHORT, (2, 2)))
    return tiff(noise(3, 8), 8, photometric, (259, SHORT, (compression,)), *half)


def test_files_that_are_refused() -> None:
    """Bombs and damaged headers are errors; what no library reads is unsupported, not damaged."""
    for name, data in hostile().items():
        assert_raises(FastDecodeError, "", partial(decode, data), name)
        kind = FastDecodeError if "large" in name else DecodeError  # or nobody reads it
        assert_raises(kind, "", partial(decode, data, mode="stored"), name)
    for fields in ((6, 6), (34712, 2), (1, 6), (32809, 1), (9, 1)):
        assert_raises(UnsupportedFormat, "", partial(decode, unread(*fields)), fields)
    sizes = (
        b"P5 0 4 255\n",
        b"P5 4 4 0\n",
        b"P5 4 4 65536\n",
        b"P6 12 nonsense",
        b"P5 4",
        b"P4 4 \n",
    )
    for head in sizes:  # which are missing or impossible
        assert_raises(DecodeError, "", partial(probe, head + bytes(64)), head)
    # A number at the end, without white space, is an error if one more digit would fit.
    for last, whole in ((25, False), (26, True), (250, True), (0, True)):
        for end in (b"", b"\n"):
            data = b"P2 2 1 250 7 %d" % last + end
            assert (simple.missing_in_pnm(data, probe(data)) == "") == (whole or end == b"\n")


@pytest.mark.parametrize("backend", [None, "pillow", "tifffile"])
def test_checksum_of_deflate(backend: str | None) -> None:
    """A pixel that is another one than the checksum says is an error.

    libtiff does not read the checksum if more data precede it than the pixels need, as where zeros
    were decoded.
    """
    if backend not in (None, *usable_backends()):
        pytest.skip(f"{backend} is not usable here")
    samples = noise(3, 8)
    pixels = packed(samples, 8)
    # Uncompressed inside: as it should be, and with a row too many.
    stored, longer = zlib.compress(pixels, 0), zlib.compress(pixels + bytes(3 * WIDTH), 0)
    fields = {256: WIDTH, 257: HEIGHT, 259: 8, 277: 3, 278: HEIGHT}
    more = [(tag, SHORT, (value,)) for tag, value in fields.items()]
    whole, too_long = (
        tiff(np.frombuffer(body, np.uint8)[None, :, None], 8, 2, (258, SHORT, (8, 8, 8)),
             (339, SHORT, (1, 1, 1)), *more)
        for body in (stored, longer)
    )  # fmt: skip

    assert_same(decode(whole, backend=backend), samples)
    for data in (whole, too_long):
        place = data.index(pixels) + 50
        with pytest.raises(DecodeError):
            decode(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], backend=backend)


def coded(compression: str, size: tuple[int, int] = (48, 64), **options: Any) -> bytes:
    """Encode a drawing in three strips with tifffile; CCITT with libtiff."""
    image = drawing(*size[::-1])
    if compression in ("group3", "group4", "tiff_ccitt"):
        more = {278: 16, **({292: options["t4"]} if options.get("t4") else {})}
        return encode(image.convert("1"), "tiff", compression=compression, tiffinfo=more)
    tifffile = pytest.importorskip("tifffile")
    stream = io.BytesIO()
    tifffile.imwrite(stream, np.asarray(image), compression=compression, rowsperstrip=16,
                     photometric="rgb", metadata=None, **options)  # fmt: skip
    return stream.getvalue()


CODECS: dict[str, dict[str, Any]] = {
    "lzw": {}, "deflate": {}, "packbits": {}, "zstd": {}, "lzma": {},
    "jpeg": {"compressionargs": {"level": 95}},
    "group4": {}, "tiff_ccitt": {}, "group3": {},
    "group3 2D": {"t4": 1}, "group3 filled": {"t4": 4}, "group3 2D filled": {"t4": 5},
}  # fmt: skip


def strips(data: bytes) -> list[tuple[int, int]]:
    """Return where the strips of a TIFF lie, and how long they are."""
    tifffile = pytest.importorskip("tifffile")
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        page = file.pages.first
        return list(zip(page.dataoffsets, page.databytecounts, strict=True))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("backend", [None, "pillow", "tifffile"])
def test_damage_in_a_codec_of_tiff_is_an_error(codec: str, backend: str | None) -> None:
    """Zeros to a strip's end, a shorter strip, and a cut file give the right pixels or an error."""
    data = coded(codec.split(maxsplit=1)[0], **CODECS[codec])
    try:
        whole = decode(data, backend=backend)
    except (UnsupportedFormat, BackendUnavailable) as error:
        pytest.skip(str(error))
    for start, size in strips(data):
        for kept in (size // 10, size // 3, size // 2, size * 9 // 10):
            zeros = data[: start + kept] + bytes(size - kept) + data[start + size :]
            assert outcome(zeros, whole, backend) != "other pixels", (start, kept)
            ended = zeros[: start + size - 2] + data[start + size - 2 :]
            if codec == "jpeg":
                assert outcome(ended, whole, backend) != "other pixels", (start, kept)
            counted = data.replace(struct.pack("<I", size), struct.pack("<I", kept))
            counted = counted.replace(struct.pack("<H", size), struct.pack("<H", kept))
            assert outcome(counted, whole, backend) != "other pixels", (start, kept)
    for end in np.linspace(8, len(data) - 1, 12).astype(int).tolist():
        assert outcome(data[:end], whole, backend) != "other pixels", end


GREY = np.asarray(drawing(64, 48, "L"))
BLACK_END = np.where(np.arange(48)[:, None] < 30, GREY, 0).astype(np.uint8)


def lzw_without_end(data: bytes) -> bytes:
    """Write each byte as a literal of 9 bits, with a clear code before the codes would grow."""
    codes = [code for at in range(0, len(data), 200) for code in (256, *data[at : at + 200])]
    bits = "".join(format(code, "09b") for code in codes)
    return int(bits + "0" * (-len(bits) % 8), 2).to_bytes(-(-len(bits) // 8), "big")


def strip_of(kind: str, grey: Any) -> tuple[bytes, int, tuple[Any, ...]]:
    """Compress grey pixels; return also the number of the compression and further fields."""
    codecs = pytest.importorskip("imagecodecs")
    if kind == "lzw without end":
        return lzw_without_end(grey.tobytes()), 5, ()
    if "ccitt" in kind or "group" in kind:
        name = kind.split(maxsplit=1)[0]
        file = encode(
            Image.fromarray(grey).convert("1"), "tiff", compression=name, tiffinfo={278: 64}
        )
        ((start, size),) = strips(file)
        part = file[start : start + size]
        number = {"tiff_ccitt": 2, "group4": 4}[name]
        return part, number, ((258, SHORT, (1,)), (262, SHORT, (0,)))
    numbers = {"lzw": 5, "zlib": 8, "packbits": 32773, "zstd": 50000, "lzma": 34925, "jpeg": 7}
    return bytes(getattr(codecs, f"{kind}_encode")(np.ascontiguousarray(grey))), numbers[kind], ()


@pytest.mark.parametrize("grey", [GREY, BLACK_END], ids=["busy", "black at the end"])
@pytest.mark.parametrize(
    "kind",
    ["lzw", "lzw without end", "zlib", "packbits", "zstd", "lzma", "jpeg", "tiff_ccitt", "group4"],
)
def test_zeros_behind_the_data_of_a_strip_are_no_damage(kind: str, grey: Any) -> None:
    """A strip that is filled up decodes, and one that is cut and filled up never does."""
    pytest.importorskip("tifffile")
    if kind == "lzw without end" and grey is BLACK_END:
        return  # zeros are its black pixels, of which nobody knows how many are missing
    part, number, more = strip_of(kind, grey)
    whole = decode(one_strip(part, grey.shape, number, *more))
    for zeros in (1, 3, 4, 20, 700):
        padded = [part + bytes(zeros)]
        padded += [part[:-2] + bytes(zeros) + part[-2:]] if kind == "jpeg" else []
        for longer in padded:
            image = decode(one_strip(longer, grey.shape, number, *more))
            assert_same(image, whole, zeros)

    if kind in ("packbits", "jpeg"):  # of which zeros may be data, or do not reach the end
        return
    for cut in np.linspace(len(part) // 5, len(part) - 24, 25).astype(int).tolist():
        data = one_strip(part[:cut] + bytes(700), grey.shape, number, *more)
        assert outcome(data, whole) != "other pixels", cut


@pytest.mark.parametrize("black", [1, 8, 16, 150])
@pytest.mark.parametrize("kind", ["u1", "u2"])
def test_noise_in_zstandard_may_end_in_black(black: int, kind: str) -> None:
    """Zstandard stores noise as it is, with its zeros; but it would compress many of them."""
    codecs = pytest.importorskip("imagecodecs")
    noisy = np.random.default_rng(0).integers(1, 256, (96, 128)).astype(kind)
    noisy[-1, -min(black, 128) :] = 0
    field = (258, SHORT, (8 * noisy.itemsize,))
    part = codecs.zstd_encode(noisy)

    data = one_strip(part, noisy.shape, 50000, field)
    assert_same(decode(data, mode="stored"), noisy)
    for missing in (400, 3000, 9000):
        with pytest.raises(DecodeError):
            decode(one_strip(part[:-missing] + bytes(missing), noisy.shape, 50000, field))


@pytest.mark.parametrize(("size", "axis"), [((48, 64), 257), ((64, 48), 256)])
def test_a_jpeg_larger_than_its_strip_is_an_error(size: tuple[int, int], axis: int) -> None:
    """Each side of a JPEG counts by itself, with what fills up its last blocks."""
    tifffile = pytest.importorskip("tifffile")
    stream = io.BytesIO()
    tifffile.imwrite(stream, np.asarray(drawing(*size[::-1])), compression="jpeg",
                     photometric="rgb", metadata=None, rowsperstrip=size[0])  # fmt: skip
    data = bytearray(stream.getvalue())
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        at = file.pages.first.tags[axis].valueoffset
    data[at : at + 2] = struct.pack("<H", 16)

    with pytest.raises(DecodeError, match=f"{size[1]} x {size[0]}"):
        decode(bytes(data), backend="tifffile")


@pytest.mark.parametrize("codec", [name for name in CODECS if "group" in name or "ccitt" in name])
@pytest.mark.parametrize("size", [(1, 1), (5, 2), (3, 9), (40, 64), (64, 97)], ids=str)
@pytest.mark.parametrize("white", [0, 1])
def test_fax(codec: str, size: tuple[int, int], white: int) -> None:
    """CCITT of every kind and width, white or black, decodes to what was encoded."""
    if "tifffile" not in usable_backends():
        pytest.skip("tifffile is not usable here")
    some = np.asarray(drawing(*size[::-1]).convert("1"))
    for expected in (some, np.ones_like(some), np.zeros_like(some)):
        more = {278: 16, 262: white, 292: CODECS[codec].get("t4", 0)}
        how = {"compression": codec.split(maxsplit=1)[0], "tiffinfo": more}
        data = encode(Image.fromarray(expected), "tiff", **how)
        try:
            assert_same(decode(data)[..., 0] == 255, expected)
        except UnsupportedFormat as error:
            pytest.skip(str(error))
        assert_same(decode(data, mode="stored"), expected ^ (white == 0))


@pytest.mark.parametrize(
    ("bits", "kind", "named"),
    [((5, 6, 5), 1, "5, 6, 5 bits"), ((16, 16, 8), 1, "16, 16, 8 bits"), ((64,), 6, "complex"),
     ((32,), 5, "complex"), ((128,), 6, "complex")],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("mode", ["RGB", "stored"])
def test_samples_that_no_backend_reads_are_named(
    bits: tuple[int, ...], kind: int, named: str, mode: Any
) -> None:
    """A whole file is unsupported, and the error says why; a cut one misses pixels."""
    row = -(-10 * sum(bits) // 8)
    pixels = np.random.default_rng(0).integers(0, 256, (1, 5 * row, 1)).astype(np.uint8)
    more = [(256, SHORT, (10,)), (257, SHORT, (5,)), (258, SHORT, bits), (278, SHORT, (5,)),
            (277, SHORT, (len(bits),)), (339, SHORT, (kind,) * len(bits))]  # fmt: skip
    photometric = 2 if len(bits) == 3 else 1

    with pytest.raises(UnsupportedFormat, match=named):
        decode(tiff(pixels, 8, photometric, *more), mode=mode)
    with pytest.raises(DecodeError):
        decode(tiff(pixels[:, :-2], 8, photometric, *more), mode=mode)


# BMP

PALETTES = {
    "colours": lambda n: np.random.default_rng(n).integers(0, 256, (n, 3)),
    "greys": lambda n: np.repeat(np.arange(n)[:, None], 3, 1),
    "black and white": lambda n: np.array([[0] * 3, [255] * 3]),
    "white and black": lambda n: np.array([[255] * 3, [0] * 3]),
    "black": lambda n: np.zeros((1, 3), int),
}


@ours
@given(
    st.sampled_from(sorted(PALETTES)),
    st.sampled_from([1, 4, 8]),
    st.integers(1, 40),
    st.booleans(),
    st.sampled_from([12, 40, 108, 124]),
)
def test_bmp_with_any_palette(name: str, bits: int, width: int, top: bool, header: int) -> None:
    """Colours are those of the palette, also of greys; "stored" gives the indices."""
    palette = PALETTES[name](1 << bits)
    if header == 12:
        top, palette = False, np.resize(palette, (1 << bits, 3))  # which has no count of colours
    indices = np.random.default_rng(width).integers(0, len(palette), (HEIGHT, width), np.uint8)
    rows = padded(indices if top else indices[::-1], bits)
    data = bmp(rows, (width, -HEIGHT if top else HEIGHT), bits, palette, header=header)

    assert_decodes(data, palette[indices])
    assert_decodes(data, indices, mode="stored")


@ours
@given(st.sampled_from([4, 8]), st.integers(1, 300), st.integers(0, 5), st.booleans())
def test_run_lengths(bits: int, width: int, seed: int, cut: bool) -> None:
    """Run-length coded rows are right by OpenCV; what is missing of them is an error."""
    if "opencv" not in usable_backends():
        pytest.skip("opencv is not usable here")
    random = np.random.default_rng(seed)
    indices = np.repeat(random.integers(0, 1 << bits, (4, width), np.uint8), 2, axis=0)
    indices[random.integers(0, 8)] = 3
    palette = PALETTES["colours"](1 << bits)
    code = run_lengths(indices, bits)
    data = bmp(code, (width, 8), bits, palette, compression=1 if bits == 8 else 2)

    if cut:
        kept = len(data) - random.integers(7, len(code))
        assume(not data[:kept].rstrip(b"\0").endswith(b"\0\1"))  # which looks like the end
        for damaged in (data[:kept], data[:kept] + bytes(len(data) - kept)):
            with pytest.raises(FastDecodeError):
                decode(damaged)
        return
    assert_decodes(data, palette[indices])
    assert_decodes(data, indices, mode="stored")
    assert_same(decode(data, mode="RGBA")[..., 3], 255)


def test_run_lengths_that_leave_pixels_out() -> None:
    """Pixels that are passed over have colour 0, and a long file of few bytes takes no seconds."""
    if "opencv" not in usable_backends():
        pytest.skip("opencv is not usable here")
    code = b"\2\1\0\2\1\1\2\2\0\1"  # two of 1, one right and one up, two of 2, the end
    expected = np.zeros((4, 6), np.uint8)
    expected[3, :2], expected[2, 3:5] = 1, 2

    data = bmp(code, (6, 4), 8, PALETTES["colours"](3), compression=1)

    assert_same(decode(data, mode="stored"), expected)
    assert_same(decode(data), PALETTES["colours"](3)[expected].tolist())


# Bits of a pixel, masks, the size of the header, whether RGB and RGBA are right.
MASKS = {
    "565": (16, (0xF800, 0x7E0, 0x1F), 40, "both"),
    "555": (16, (0x7C00, 0x3E0, 0x1F), 56, "both"),
    "1555": (16, (0x7C00, 0x3E0, 0x1F, 0x8000), 56, "RGB"),
    "4444": (16, (0xF00, 0xF0, 0xF, 0xF000), 56, ""),
    "565, blue first": (16, (0x1F, 0x7E0, 0xF800), 40, ""),
    "888": (32, (0xFF0000, 0xFF00, 0xFF), 40, "both"),
    "8888": (32, (0xFF0000, 0xFF00, 0xFF, 0xFF000000), 108, "both"),
    "alpha last": (32, (0xFF000000, 0xFF0000, 0xFF00, 0xFF), 124, "both"),
    "red first": (32, (0xFF, 0xFF00, 0xFF0000, 0xFF000000), 56, "both"),
    "red first, no alpha": (32, (0xFF, 0xFF00, 0xFF0000), 56, ""),
    "red first, short header": (32, (0xFF, 0xFF00, 0xFF0000), 40, ""),
    "1010102": (32, (0x3FF00000, 0xFFC00, 0x3FF, 0xC0000000), 124, ""),
}


@pytest.mark.parametrize("kind", MASKS)
def test_bit_fields(kind: str) -> None:
    """The samples behind masks are widened, at most one level from rounding, or refused."""
    bits, masks, header, right = MASKS[kind]
    random = np.random.default_rng(bits)
    pixels = np.zeros((HEIGHT, WIDTH), np.uint64)
    seen = np.full((HEIGHT, WIDTH, 4), 255)
    for channel, mask in enumerate(masks):
        low = mask & -mask
        values = random.integers(0, mask // low + 1, pixels.shape, np.uint64)
        pixels |= values * np.uint64(low)
        seen[..., channel] = np.rint(values * 255 / (mask // low))
    data = bmp(padded(pixels[::-1], bits), (WIDTH, HEIGHT), bits, compression=3, header=header,
               masks=masks)  # fmt: skip

    for mode, channels in ("RGB", 3), ("RGBA", 4):
        if right in ("both", mode):
            for image in decodings(data, mode=mode).values():
                assert np.abs(image - seen[..., :channels]).max() <= 1
            assert "" in decodings(data, mode=mode)
        else:
            with pytest.raises(UnsupportedFormat):
                decode(data, mode=mode)


# PNM


@ours
@given(
    st.sampled_from([0, 1, 3, 15, 100, 127, 200, 254, 255, 256, 1000, 1023, 4095, 65534, 65535]),
    st.booleans(),
    st.booleans(),
    st.sampled_from([b"", b"# a comment\n", b"#\n# 3 4\n"]),
)
def test_pnm_of_any_white(maxval: int, color: bool, plain: bool, comment: bytes) -> None:
    """White is 255 whatever its value, deep samples keep their high 8 bits, and "stored" all."""
    shape = (HEIGHT, WIDTH, 3) if color and maxval else (HEIGHT, WIDTH)
    samples = np.random.default_rng(maxval).integers(0, (maxval or 1) + 1, shape, np.uint16)
    samples.flat[0] = samples.flat[-1] = maxval or 1
    data = pnm(samples, maxval, plain=plain, comment=comment)
    white = maxval or 1
    bright = samples if maxval else 1 - samples  # in a PBM, 1 is black
    eight = (
        np.rint(bright / white * 255) if white < 256 else samples.astype(int) * 256 // (white + 1)
    )

    assert probe(data).maxval == white
    assert_decodes(data, samples, mode="stored")
    assert_decodes(data, eight if color and maxval else np.repeat(eight[..., None], 3, 2))
    if plain:  # nothing follows the last number, which cannot go on
        assert_decodes(data.rstrip(), samples, mode="stored")
    for end in {len(data) - 2, len(data) - 3, len(data) // 2}:
        assert outcome(data[:end], data) != "other pixels"


# Everything else


FOREIGN = {
    **{form: (encode(Image.new(mode, (16, 16)), form), "Pillow") for form, mode in
       [("ICO", "RGB"), ("ICNS", "RGBA"), ("TGA", "RGB"), ("SGI", "RGB"), ("PCX", "RGB"),
        ("QOI", "RGB"), ("DDS", "RGB")]},
    "PFM": (b"Pf\n1 1\n-1.0\n" + bytes(4), "Pillow"),
    "PAM": (b"P7\nWIDTH 1\n", "OpenCV"),
    "FITS": (b"SIMPLE  =                    T", "astropy"),
    "PSD": (b"8BPS\0\1" + bytes(30), "psd-tools"),
    "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "Pillow"),
    "PDF": (b"%PDF-1.7\n", "pypdfium2"),
}  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_other_formats_are_refused_by_name(name: str) -> None:
    """The error names the format and a library that reads it; nothing is decoded."""
    data, library = FOREIGN[name]
    for call in (probe, decode):
        with pytest.raises(UnsupportedFormat, match=rf"^{name}\b.*{library}"):
            call(data)


LINEAR = base64.b64decode(
    "/wrLQAp3CgMS5gHQpqZ77XkdmxCowXlHy1DDQ6AJA1X20rA80OwyEcJGotH6mIrGnQBEq9Qs2v4BnqhNJgj+kOro"
    "52eQq1euSi5st5U4tafbwJxB0OMSFObDUjfAoGXQdwXWbISBfWCfOUCknfBaAwASiAIAqANd5RIAABUqo4wbvJzr"
    "+fJDh8W0jesMbbVtYUmiyDg2SSdwmKSgQJKkGGOMisGhqBgl7LAdpEqiREuSqlKMkTEYZFIpg368TN/TQriA8WrJ"
    "cx4A/aizcbvBbItvanY0mbXL4U/aw/lnedEwiBV9gd3tv06XnfLALUifosLawdZLvFfKbKmEVZUpKsrAV+iczMk7"
    "kIgrQnBYcEwBUAUOqFaYSw0rgF9IoRbogSkrpMC9LZUZGS9mxpg5Gi8PEMTDUr7ZQZ4Ol3QTvU+ClszV4N5X2g43"
    "QJ7M9L8eTMhzSL5Ydx5JndzRrjXHgGY="
)
"""64 x 48 pixels by ``cjxl -d 1``, with a profile of Adobe RGB's primaries and gamma."""


@pytest.mark.parametrize("mode", ["RGB", "stored"])
def test_jpeg_xl_that_comes_in_linear_light_is_refused(mode: Any) -> None:
    """Of lossy colours with an ICC profile libjxl makes linear light, which would be too dark."""
    assert probe(LINEAR).coding == "other"

    with pytest.raises(UnsupportedFormat):
        decode(LINEAR, mode=mode)
