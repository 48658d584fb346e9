"""PNG in the core: the pixels that Pillow gives, or another backend decodes."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import examples
from deflate import ILLEGAL, deflated, illegal
from deflate import KINDS as BLOCKS
from hypothesis import given, settings
from hypothesis import strategies as st
from instructions import with_each
from PIL import Image
from pngs import FILTERS, SAMPLES, bits_of, chunk, file, interlaced_header, made
from processes import answers, resident
from same import assert_same

from fastdecode import DecodeError, FastDecodeError, decode
from fastdecode.testing import drawing, encode
from fastdecode.types import MODES

KINDS = [
    *((0, bits) for bits in (1, 2, 4, 8, 16)),
    *((3, bits) for bits in (1, 2, 4, 8)),
    *((kind, bits) for kind in (2, 4, 6) for bits in (8, 16)),
]
PHOTO = encode(drawing(500, 375), "png")
measured = pytest.mark.skipif(resident() is None, reason="memory is looked up in /proc")


def outcome(data: bytes, backend: str | None, **options: Any) -> Any:
    try:
        return decode(data, backend=backend, **options)
    except FastDecodeError as error:
        return error


def by_core(data: bytes, **options: Any) -> Any:
    return with_each(lambda: outcome(data, "native", **options))


def compare(data: bytes, draw: random.Random, regions: int = 2) -> int:
    """Compare all modes, and random regions, with Pillow; return how many the core decodes."""
    decoded = 0
    for mode in MODES:
        image = by_core(data, mode=mode)
        if isinstance(image, FastDecodeError):
            continue
        expected = outcome(data, "pillow", mode=mode)
        assert not isinstance(expected, FastDecodeError), f"{mode}: Pillow refuses it: {expected}"
        assert image.dtype == expected.dtype
        assert_same(image, expected, mode)
        height, width = image.shape[:2]
        for _ in range(regions):
            left, top = draw.randrange(width), draw.randrange(height)
            right, bottom = draw.randint(left + 1, width), draw.randint(top + 1, height)
            part = by_core(data, mode=mode, region=(left, top, right, bottom))
            assert_same(part, expected[top:bottom, left:right], mode)
        decoded += 1
    return decoded


@pytest.mark.parametrize(("kind", "bits"), KINDS)
def test_every_kind_filter_and_width_equals_pillow(kind: int, bits: int) -> None:
    """Widths of 1 to 40, each filter alone and all together, chunks of any size."""
    draw = random.Random(f"{kind} {bits}")
    for filters in (*([each] for each in FILTERS), FILTERS, (3, 4)):
        for width in (*draw.sample(range(1, 41), 3), 41):
            data = made(
                *(width, draw.randint(1, 9), kind, bits, draw),
                filters=filters,
                idat=draw.choice([0, 1, 7, 100]),
                level=draw.randrange(10),
            )
            assert compare(data, draw) >= 3


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_transparent_colours_of_palettes_equal_pillow(bits: int) -> None:
    """A palette's alpha, for some of its colours."""
    draw = random.Random(bits)
    for width in (1, 5, 33):
        data = made(width, 7, 3, bits, draw, chunk(b"tRNS", draw.randbytes(2)))
        assert compare(data, draw) >= 4


@pytest.mark.parametrize("backend", ["native", "pillow", None])
@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(
    ("kind", "bits"), [(0, 1), (0, 2), (0, 4), (0, 8), (0, 16), (2, 8), (2, 16)]
)
def test_a_transparent_colour_is_compared_in_all_its_bits(
    kind: int, bits: int, interlaced: bool, backend: str | None
) -> None:
    """In RGBA, alpha is 0 just where a pixel has each bit of the colour that tRNS names."""
    if interlaced and backend == "native":
        pytest.skip("it does not read interlaced files")
    draw, most = random.Random(bits), (1 << bits) - 1
    key = [draw.randint(1, most) for _ in range(SAMPLES[kind])]  # 0 is the same in any scale
    near = [key, [value ^ 1 for value in key], [value ^ (most + 1) // 2 for value in key]]
    pixels = [draw.choice(near) for _ in range(8 * 8)]
    size = bits * len(key) * 8
    rows = b"".join(
        b"\0" + bits_of([*chain(*pixels[at : at + 8])], bits, size) for at in range(0, 64, 8)
    )
    seen = pixels
    if interlaced:  # the same pixel everywhere, in seven passes
        seen, sizes = [key] * 64, ((1, 1), (1, 1), (2, 1), (2, 2), (4, 2), (4, 4), (8, 4))
        rows = b"".join(
            (b"\0" + bits_of(key * columns, bits, bits * len(key) * columns)) * count
            for columns, count in sizes
        )
    for above in {0, (0xFFFF << bits) & 0xFFFF}:  # bits that a sample does not have do not count
        named = struct.pack(f">{len(key)}H", *(value | above for value in key))
        data = file(8, 8, kind, bits, zlib.compress(rows), chunk(b"tRNS", named))
        data = interlaced_header(data) if interlaced else data
        image = decode(data, mode="RGBA", backend=backend)
        high = [[value >> bits - 8 if bits > 8 else value * 255 // most for value in pixel]
                for pixel in seen]  # fmt: skip
        expected = [
            [*(pixel * 3)[:3], 255 * (own != key)] for pixel, own in zip(high, seen, strict=True)
        ]
        assert image.reshape(-1, 4).tolist() == expected
        part = decode(data, mode="RGBA", backend=backend, region=(3, 2, 7, 5))
        assert_same(part, image[2:5, 3:7], above)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[int], bytes, random.Random]:
    """Draw a narrow image of any kind, filters for each row, and its stream, written by hand.

    The image is (width, height, colour type, bits). Few values make many matches.
    """
    kind, bits = draw(st.sampled_from(KINDS))
    width, height = draw(st.integers(1, 9)), draw(st.integers(1, 40))
    chance = random.Random(draw(st.integers(0, 2**32)))
    filters = draw(st.sampled_from([[4], [3, 4], [*FILTERS]]))
    values = [0, 1, *chance.randbytes(draw(st.sampled_from([0, 3, 250])))]
    line = -(-width * SAMPLES[kind] * bits // 8)
    rows = [bytes([chance.choice(filters), *chance.choices(values, k=line)]) for _ in range(height)]
    blocks = draw(st.lists(st.sampled_from(BLOCKS), min_size=1, max_size=7))
    return [width, height, kind, bits], deflated(b"".join(rows), blocks, chance), chance


def around(image: list[int], stream: bytes, chance: random.Random) -> bytes:
    """Put a stream into a PNG, in IDATs of drawn sizes, with right CRCs."""
    width, height, kind, bits = image
    edges = sorted(chance.choices(range(len(stream) + 1), k=chance.choice([0, 1, 4])))
    parts = [stream[a:b] for a, b in zip([0, *edges], [*edges, len(stream)], strict=True)]
    colours = random.Random(0).randbytes(3 << bits)
    palette = [chunk(b"PLTE", colours)] if kind == 3 else []
    return file(width, height, kind, bits, b"", *palette, *(chunk(b"IDAT", part) for part in parts))


def regions(image: list[int], chance: random.Random, count: int) -> Iterator[tuple[int, ...]]:
    for _ in range(count):
        left, top = chance.randrange(image[0]), chance.randrange(image[1])
        yield left, top, chance.randint(left + 1, image[0]), chance.randint(top + 1, image[1])


@given(streams())
@settings(max_examples=examples(150))
def test_blocks_of_every_kind_in_every_order(drawn: Any) -> None:
    """Stored, fixed and dynamic blocks, any filters, narrow images of any kind: as in Pillow."""
    image, stream, chance = drawn
    assert compare(around(image, stream, chance), chance, 5) >= 3


@pytest.mark.parametrize("kinds", [["fixed", "dynamic", "fixed"], ["fixed", "stored", "fixed"]])
def test_the_fixed_codes_come_again(kinds: list[str]) -> None:
    """After a block of another kind, a fixed block has the fixed codes, whatever came first."""
    draw = random.Random(5)
    rows = b"".join(b"\0" + draw.randbytes(9) for _ in range(60))
    for _ in range(20):
        data = file(3, 60, 2, 8, deflated(rows, kinds, draw))
        image = decode(data, backend="native")
        assert_same(image.tobytes(), bytes(rows[at] for at in range(len(rows)) if at % 10))


@given(streams(), st.data())
@settings(max_examples=examples(150))
def test_no_part_is_made_of_what_is_not_there(drawn: Any, data: Any) -> None:
    """Of a cut stream with right CRCs, a region is refused, or has the pixels of the whole."""
    image, stream, chance = drawn
    whole = decode(around(image, stream, chance), mode="RGBA")
    for size in data.draw(st.lists(st.integers(2, len(stream) - 1), min_size=1, max_size=8)):
        cut = around(image, stream[:size], chance)
        assert isinstance(outcome(cut, "native"), DecodeError)
        with suppress(DecodeError):  # if only the end of the stream is missing
            assert_same(decode(cut, mode="RGBA"), whole, size)
        for left, top, right, bottom in [
            *regions(image, chance, 3),
            *((0, 0, image[0], bottom) for bottom in range(1, image[1])),
        ]:
            part = outcome(cut, "native", mode="RGBA", region=(left, top, right, bottom))
            if not isinstance(part, FastDecodeError):
                assert_same(part, whole[top:bottom, left:right], (size, top, bottom))


def _written(data: bytes, region: tuple[int, int, int, int]) -> Any:
    """Return memory into whose middle the core has decoded a region from edge to edge."""
    _, top, width, bottom = region
    memory = np.full((bottom - top) * width * 3 + 512, 77, np.uint8)
    out = memory[256:-256].reshape(bottom - top, width, 3)
    decode(data, backend="native", region=region, out=out)
    return memory


@pytest.mark.parametrize("kind", [2, 6])
def test_only_the_rows_of_a_region_are_written(kind: int) -> None:
    """Narrow images, all of whose rows have the Paeth filter, of which two are undone at once."""
    draw = random.Random(kind)
    for width, height in product(range(1, 12), (2, 3, 8, 20)):
        # Few values: a match that begins in the region goes far beyond it.
        line = SAMPLES[kind] * width
        rows = b"".join(bytes([4, *draw.choices([0, 0, 0, 7], k=line)]) for _ in range(height))
        data = file(width, height, kind, 8, zlib.compress(rows))
        expected = decode(data, backend="pillow")
        for top, bottom in product(range(height), range(1, height + 1)):
            if top < bottom:
                memory = with_each(partial(_written, data, (0, top, width, bottom)))
                assert_same(
                    memory[256:-256], expected[top:bottom].ravel(), (width, height, top, bottom)
                )
                assert_same(memory[:256], 77)
                assert_same(memory[-256:], 77)


def test_large_images_go_through_the_window_in_parts() -> None:
    """Megabytes in rows from tiny to 60 KB, flat ones, stored blocks, and chunks of all sizes."""
    draw = random.Random(1)
    for data in (
        encode(drawing(1200, 500), "png"),
        encode(Image.new("RGB", (1200, 900)), "png"),
        made(9, 30_000, 2, 8, draw),
        made(20_000, 40, 2, 8, draw),
        made(3000, 200, 6, 16, draw, level=0),
        *(made(500, 300, 2, 8, draw, idat=idat, level=1) for idat in (5, 65536, 65537)),
    ):
        expected = decode(data, backend="pillow", mode="stored")
        assert_same(by_core(data, mode="stored"), expected, expected.shape)


@pytest.mark.parametrize("fault", ILLEGAL)
def test_what_is_illegal_in_deflate_is_refused(fault: str) -> None:
    """Also in a region, where no checksum shows it; the rows before it are decoded."""
    rows = (b"\0" + bytes(range(30))) * 100
    stream = illegal(rows, fault)
    with pytest.raises(zlib.error):
        zlib.decompress(stream)
    data = file(10, 100, 2, 8, stream)
    assert by_core(data, region=(0, 0, 10, 50)).shape == (50, 10, 3)
    for bottom in (51, 52, 60, 100):
        assert isinstance(by_core(data, region=(0, 0, 10, bottom)), FastDecodeError)


def stream_of(height: int, extra: bytes = b"") -> bytes:
    return zlib.compress(b"\0\1\2\3" * height + extra)


@pytest.mark.parametrize(
    "data",
    [
        file(1, 4, 2, 8, stream_of(3)),
        file(1, 4, 2, 8, stream_of(4, b"\0")),
        file(1, 4, 2, 8, stream_of(4) + b"\0"),
        file(1, 4, 2, 8, stream_of(4)[:-1] + b"\0"),
        file(1, 4, 2, 8, stream_of(4), last=chunk(b"tEXt", b"a\0b") + chunk(b"IDAT", b"")),
        file(1, 4, 2, 8, zlib.compress(b"\5\1\2\3" * 4)),
        file(1, 4, 2, 8, stream_of(4), chunk(b"ABCD")),
        file(1, 4, 2, 8, stream_of(4), chunk(b"a\0CD")),
        file(1, 4, 2, 8, stream_of(4), chunk(b"acTL", bytes(8))),
        file(1, 4, 3, 8, zlib.compress(b"\0\1" * 4)),
        file(1, 4, 3, 8, zlib.compress(b"\0\1" * 4), chunk(b"PLTE", b"abc")),
        encode(drawing(40, 30), "png")[:-12],
    ],
    ids=[
        "a row too few",
        "a byte too many",
        "a byte behind the stream",
        "another Adler-32",
        "pixels in two places",
        "an unknown filter",
        "an unknown critical chunk",
        "a chunk without a name",
        "an animation",
        "no palette",
        "an index without a colour",
        "no end",
    ],
)
def test_unusual_files_are_left_to_other_backends(data: bytes) -> None:
    """The core refuses what other decoders may judge in another way."""
    with pytest.raises(FastDecodeError):
        decode(data, backend="native")


@pytest.mark.parametrize(
    ("width", "height", "sizes"),
    [
        (8, 8, (2, 4, 7, 43, 52, 70, 79)),
        (1, 8, (2, 14, 16)),
        (8, 1, (4, 7, 12)),
        (5, 7, (2, 43, 49)),
    ],
)
def test_missing_rows_of_interlaced_files_are_refused(
    width: int, height: int, sizes: tuple[int, ...]
) -> None:
    """The bytes of some passes and rows; the last number is that of the whole image."""
    for size in sizes[:-1]:
        data = interlaced_header(file(width, height, 0, 8, zlib.compress(bytes(size))))
        with pytest.raises(DecodeError, match=f"{size} of {sizes[-1]}"):
            decode(data, backend="pillow")
    whole = interlaced_header(file(width, height, 0, 8, zlib.compress(bytes(sizes[-1]))))
    assert decode(whole, mode="L").shape == (height, width)


@measured
def test_bombs_cost_little() -> None:
    """Neither a huge header nor data behind the image takes memory."""
    zeros = zlib.compress(bytes(100 << 20))
    data = file(1, 4, 2, 8, stream_of(4)[:-4] + zeros)
    wide = file(60_000, 60_000, 2, 8, zlib.compress(bytes(1000)))
    before = resident() or 0
    for bomb, limit in ((data, 1 << 28), (wide, None)):
        with pytest.raises(FastDecodeError):
            decode(bomb, backend="native", max_pixels=limit, region=(0, 0, 1, 4))
    assert (resident() or 0) - before < 32 << 20


@measured
def test_regions_and_resizes_need_no_whole_image(tmp_path: Path) -> None:
    """Neither the whole image nor a copy of its compressed data is in memory."""
    path = tmp_path / "large.png"
    data = made(2400, 1800, 2, 8, random.Random(6), filters=[0], level=1)
    path.write_bytes(data)
    assert len(data) > 12_000_000

    peaks = answers(f"""
from pathlib import Path
from fastdecode import decode_batch
decode_batch([encode(drawing(500, 375), "png")], size=224)
data = Path({str(path)!r}).read_bytes()
answers["before"] = peak()
answers["part"] = decode(data, backend="native", region=(100, 100, 110, 105)).tolist()
answers["shape"] = decode_batch([data], size=(224, 200)).shape
answers["after"] = peak()
""")

    assert peaks["after"] - peaks["before"] < 11_000  # KB: each of the two is 12 MB
    assert peaks["shape"] == [1, 224, 200, 3]
    assert peaks["part"] == decode(data, backend="native")[100:105, 100:110].tolist()


@pytest.mark.parametrize("quality", ["exact", "fast"])
def test_a_loader_makes_the_samples_that_python_makes(quality: Any, tmp_path: Any) -> None:
    """PNGs of every kind, among JPEGs, go through the threads of the core."""
    torch = pytest.importorskip("torch")
    from fastdecode.torch import ImageList, Loader
    from fastdecode.torch.transforms import RandomResizedCrop, ResizeCenterCrop

    draw = random.Random(4)
    data = [made(70, 50, kind, bits, draw) for kind, bits in KINDS]
    data += [PHOTO, encode(drawing(60, 80)), encode(drawing(300, 200), "png")]
    paths = []
    for number, content in enumerate(data):
        paths.append(tmp_path / f"{number}.png")
        paths[-1].write_bytes(content)
    for crop in (
        RandomResizedCrop(32, flip=0.5, dtype=torch.uint8, quality=quality),
        ResizeCenterCrop(40, 32, dtype=torch.uint8, quality=quality),
    ):
        batches = []
        for backend in (None, "pillow"):
            dataset = ImageList(paths, transform=crop, backend=backend)
            with Loader(dataset, 5, seed=1, threads=2) as loader:
                batches.append(list(loader))
        for one, other in zip(*batches, strict=True):
            assert (one.int() - other.int()).abs().max() <= 1
