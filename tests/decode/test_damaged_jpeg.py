"""Damaged JPEGs: missing pixels are an error, harmless oddities are not."""

from __future__ import annotations

import io
import itertools
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from cases import Run, some
from corpus import CORPUS, DATA, jpeg_backends, leave_only, outcome
from PIL import Image
from same import assert_same
from scans import Scan, coefficients, segment, write

from fastdecode import DecodeError, FastDecodeError, backends, decode, decode_batch, probe
from fastdecode._backends import registry
from fastdecode._backends.selection import default_order
from fastdecode._formats import jpeg
from fastdecode.testing import drawing, encode, photo
from fastdecode.types import Box, Reduce

KINDS = {
    "4:2:0": encode(drawing(80, 64)),
    "4:4:4": encode(drawing(80, 64), subsampling=0),
    "grey": encode(drawing(80, 64, "L")),
    "progressive": encode(drawing(80, 64), progressive=True),
    "restart markers": encode(drawing(80, 64), restart_marker_blocks=4),
}
SEQUENTIAL = {kind: data for kind, data in KINDS.items() if kind != "progressive"}
EOI = b"\xff\xd9"

READERS, WARNERS = jpeg_backends(), jpeg_backends("warnings")
FIRST = next(name for name in default_order("jpeg", 1) if name in READERS)
"""What is chosen by itself first."""

EXACT = [info.name for info in backends() if info.exact and info.name in READERS]
"""What may be chosen by itself."""

every_kind = pytest.mark.parametrize("kind", KINDS)
every_reader = pytest.mark.parametrize("backend", [*READERS, None])


every_warner = pytest.mark.parametrize("backend", [*WARNERS, *([None] if FIRST in WARNERS else [])])


def cuts(data: bytes, number: int, spare: int = 3) -> list[int]:
    """Choose positions in the compressed data."""
    return np.linspace(probe(data).scan_offset, len(data) - spare, number).astype(int).tolist()


@every_kind
@every_reader
@pytest.mark.parametrize("reduce", [1, 8])
def test_cut_file_is_an_error(kind: str, backend: str | None, reduce: Reduce) -> None:
    """Cut anywhere in its data, a JPEG is an error, or whole if nothing is lost that shows.

    At the very end only padding may be lost; an eighth needs none of the fine scans.
    """
    data = KINDS[kind]

    outcomes = [outcome(data[:cut], data, backend, reduce) for cut in cuts(data, 30)]

    assert set(outcomes) <= {"error", "whole"}
    assert set(outcomes[: 10 if reduce == 8 else -1]) == {"error"}


@every_kind
@pytest.mark.parametrize("backend", [*jpeg_backends("region"), None])
@pytest.mark.parametrize("reduce", [1, 4])
def test_region_above_the_cut_is_an_error(kind: str, backend: str | None, reduce: Reduce) -> None:
    """Data that is missing below the region is an error, by name, automatically and in batches."""
    data, top = KINDS[kind], (0, 0, 80, 16)
    some = [data[:cut] for cut in cuts(data, 12, len(data) // 4)]

    for cut in some:
        with pytest.raises(DecodeError):
            decode(cut, reduce, region=top, backend=backend)
    made = decode_batch(
        [data, *some], threads=2, reduce=reduce, region=top, backend=backend, on_error="return"
    )
    assert_same(made.pop(0), decode(data, reduce)[: 16 // reduce])
    assert {type(error) for error in made} == {DecodeError}


def cut_headers() -> Iterator[bytes]:
    """Cut each kind before its pixels begin, with and without an end marker."""
    for data in KINDS.values():
        for cut in np.linspace(2, probe(data).scan_offset - 1, 12).astype(int):
            yield from (data[:cut], data[:cut] + EOI)
    flat = encode(Image.new("L", (10, 10)), optimize=True)
    start = probe(flat).scan_offset
    yield from (flat[:cut] for cut in range(start - 8, start + 1))


def test_a_file_that_the_core_finds_whole_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a named backend without warnings: the core tells whether any pixel is missing."""
    pillow, asked = type(registry.load("pillow")), []
    decode_once = pillow.decode

    def counted(self: Any, *given: Any, **options: Any) -> Any:
        asked.append(options)
        return decode_once(self, *given, **options)

    monkeypatch.setattr(pillow, "decode", counted)

    for data in (KINDS["progressive"], KINDS["4:2:0"][:-2]):
        assert_same(decode(data, backend="pillow"), decode(data, backend="native"))
    assert len(asked) == 2


def false_headers() -> Iterator[bytes]:
    """Claim more rows than a file has data for, or a table of no length."""
    for marker in (b"\xff\xdb", b"\xff\xc0", b"\xff\xc4", b"\xff\xda"):
        at = KINDS["4:2:0"].index(marker) + 2
        yield KINDS["4:2:0"][:at] + bytes(2) + KINDS["4:2:0"][at + 2 :]
    for data in KINDS.values():
        frame = min(data.find(sof) % len(data) for sof in (b"\xff\xc0", b"\xff\xc2"))
        for height in (65, 80, 128, 4096):
            yield data[: frame + 5] + height.to_bytes(2, "big") + data[frame + 7 :]


def arithmetic() -> Iterator[bytes]:
    """Cut arithmetic data, any part of which decodes to an image."""
    for name in ("gen_420_arith.jpg", "gen_gray_arith.jpg", "gen_444_arith.jpg"):
        data = (CORPUS / "jpeg_kinds" / name).read_bytes()
        yield from (data[:-cut] for cut in (*range(1, 24), len(data) // 2))


def without_intervals() -> Iterator[bytes]:
    """Leave out a restart marker, the blocks behind it, or all from a marker on."""
    data = KINDS["restart markers"]
    yield data[: data.index(b"\xff\xd1")] + data[data.index(b"\xff\xd2") :]
    for blocks in (1, 4):
        data = encode(drawing(80, 64), restart_marker_blocks=blocks)
        for marker in (b"\xff\xd1", b"\xff\xd2"):
            for rest in (b"", marker, EOI, marker + EOI):
                yield data[: data.rindex(marker)] + rest
    data = encode(drawing(120, 200), restart_marker_rows=1)
    for at in markers(rb"\xff[\xd0-\xd7]", data)[3:9]:
        yield data[:at] + data[at + 2 :]
    later = [Scan((c,), 1, 63, 0, 0, interval=4) for c in range(3)]  # said behind the first scan
    data = write(coefficients(3, 1), [Scan((0, 1, 2), 0, 0, 0, 0), *later])
    first, second, *_ = markers(rb"\xff[\xd0-\xd7]", data)
    yield data[:first] + data[second:]


def markers(pattern: bytes, data: bytes) -> list[int]:
    return [found.start() for found in re.finditer(pattern, data)]


@every_reader
@pytest.mark.parametrize("damaged", [cut_headers, false_headers, without_intervals, arithmetic])
def test_missing_data_is_an_error(
    damaged: Callable[[], Iterator[bytes]], backend: str | None
) -> None:
    """Pixels without data are an error, never grey or stale ones."""
    for data in damaged():
        with pytest.raises(FastDecodeError):
            decode(data, backend=backend)


@pytest.mark.parametrize("kind", SEQUENTIAL)
@every_reader
def test_what_follows_the_cut_hides_nothing(kind: str, backend: str | None) -> None:
    """An end marker or another file's bytes are not taken for the rest of the image.

    Only a codec that reports warnings, and so the automatic choice, notices when no more than the
    last blocks are affected.
    """
    data = SEQUENTIAL[kind]
    spare = 12 if backend in WARNERS or (backend is None and FIRST in WARNERS) else len(data) // 8

    outcomes = {
        outcome(data[:cut] + other, data, backend)
        for cut in cuts(data, 16, spare)
        for other in (EOI, KINDS["4:4:4"], KINDS["progressive"])
    }

    assert outcomes == {"error"}


@every_warner
@pytest.mark.parametrize("kept", [0, 5, 20])
def test_shortened_restart_interval_is_an_error(backend: str | None, kept: int) -> None:
    """A codec that reports warnings notices missing blocks between two restart markers."""
    data = KINDS["restart markers"]
    start, end = data.index(b"\xff\xd1") + 2, data.index(b"\xff\xd2")

    assert outcome(data[: start + kept] + data[end:], data, backend) == "error"


TAILS = {
    "garbage": bytes(range(256)) * 3,
    "zeros": bytes(4096),
    "fill bytes": b"\xff" * 100,
    "end markers": EOI * 9,
    "half a marker": b"\xff",
    "another image": KINDS["4:4:4"],
    "a cut one": KINDS["4:4:4"][:700],
    "many progressive ones": KINDS["progressive"] * 60,
}


NO_SEGMENTS = (
    b"\xff\xc0\x00\x0b\x08\x00\x40\x00\x50\x01\x01\x11\x00",  # a second frame header
    b"\xff\xd8",
    b"\xff\x29\x00\x03a",
    b"\xff\xc4\x00\x05abc",
)
"""What no segment may be, behind the last scan, where OpenCV does not report it."""
STRAY = (b"\xff\xd0", b"\xff\xd3", b"\xff\xd7\xff\xd1")


def stray_bytes(data: bytes) -> Iterator[bytes]:
    for marker in (b"\xff\xdb", b"\xff\xc4", b"\xff\xda", EOI):
        place = data.rindex(marker) if marker == EOI else data.index(marker)
        yield data[:place] + b"\0\1\2" + data[place:]


def stray_restarts(data: bytes) -> Iterator[bytes]:
    """Put restart markers behind each scan, where libjpeg passes over them."""
    ends = [*markers(rb"\xff\xda", data)[1:], len(data) - 2]  # of the scans, with their tables
    ends = [data.rindex(b"\xff\xc4", 0, end) if end < len(data) - 2 else end for end in ends]
    yield from (data[:end] + stray + data[end:] for end in ends for stray in STRAY)


Oddity = tuple[Callable[[bytes], Iterable[bytes]], set[str], set[str]]
ODDITIES: dict[str, Oddity] = {
    "bytes behind the end": (
        lambda data: (data + tail for tail in TAILS.values()), {"whole"}, {"whole"},
    ),
    "no end marker": (
        lambda data: (data[:-2] + end for end in (b"", b"\xff", b"\xff\xff")), {"whole"}, {"whole"},
    ),
    "no segment": (
        lambda data: (data[:-2] + wrong + EOI for wrong in NO_SEGMENTS), {"error"}, {"error"},
    ),
    "stray bytes": (stray_bytes, {"whole"}, {"whole", "error"}),
    "stray restart markers": (stray_restarts, {"whole"}, {"whole", "error"}),
    "stray restart markers behind a cut": (
        lambda data: (data[: len(data) * 3 // 4] + stray + EOI for stray in STRAY),
        {"error"}, {"error"},
    ),
}  # fmt: skip
"""How to make a file odd, and what becomes of it with Pillow or by itself, and with others."""


@every_kind
@every_reader
@pytest.mark.parametrize("oddity", ODDITIES)
def test_oddities_cost_no_pixel(kind: str, backend: str | None, oddity: str) -> None:
    """Bytes that do not belong there are skipped, or the file is refused; no pixel is wrong.

    If only the end marker is missing, the image decodes, except with strict=True.
    """
    make, expected, with_others = ODDITIES[oddity]
    if oddity == "no segment" and backend not in (None, *EXACT):
        pytest.skip("its pixels are others anyhow")
    data = KINDS[kind]
    odd_for_all = oddity == "stray restart markers" and backend != "native"
    allowed = expected if odd_for_all or backend in (None, "pillow") else with_others

    for number, odd in enumerate(make(data)):
        assert outcome(odd, data, backend) in allowed, number
        if oddity == "no end marker" and (backend is None or backend in WARNERS):
            with pytest.raises(DecodeError):
                decode(odd, strict=True, backend=backend)


@every_kind
@pytest.mark.parametrize(
    "backend",
    [
        *(name for name in WARNERS if name in ("native", "turbojpeg")),
        *([None] if WARNERS != ["native"] else []),
    ],
)
@pytest.mark.parametrize("reduce", [1, 8])
def test_a_single_warning_ends_strict_decoding(
    kind: str, backend: str | None, reduce: Reduce
) -> None:
    """The codec warns of stray bytes before the end marker, so strict=True refuses the file.

    The core gives no warnings: it leaves the file to a backend that does.
    """
    data = KINDS[kind]
    odd = data[:-2] + b"\x11" * 40 + EOI

    if backend != "native":
        assert outcome(odd, data, backend, reduce) == "whole"
    decode(data, reduce, strict=True, backend=backend)
    with pytest.raises(DecodeError):
        decode(odd, reduce, strict=True, backend=backend)


@pytest.mark.parametrize(
    "backend",
    [*(name for name in WARNERS if name in ("native", "simplejpeg", "turbojpeg")), None],
)
def test_zeros_are_judged_by_what_decodes_the_file(backend: str | None) -> None:
    """The core refuses a file with odd zeros, and then is no judge of what another makes of it."""
    data = (DATA / "jpeg_kinds" / "gen_422_prog.jpg").read_bytes()
    middle = len(data) // 2
    odd = data[:middle] + bytes(64) + data[middle + 64 :]

    if backend == "native" or WARNERS == ["native"]:  # there is no judge: it is refused
        with pytest.raises(DecodeError):
            decode(odd, backend=backend)
    else:
        assert decode(odd, backend=backend).shape == (160, 240, 3)


def with_scans(number: int) -> bytes:
    """Repeat the last scan of a progressive JPEG up to this number."""
    data = KINDS["progressive"]
    last = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last * (number - data.count(b"\xff\xda")) + EOI


@every_reader
@pytest.mark.parametrize("number", [501, 3000])
@pytest.mark.parametrize("end", [EOI, b""], ids=["whole", "cut"])
def test_hundreds_of_scans_are_refused(backend: str | None, number: int, end: bytes) -> None:
    """More than 500 scans are an error before any backend decodes them."""
    with pytest.raises(DecodeError, match="500") as caught:
        decode(with_scans(number)[:-2] + end, backend=backend)

    assert caught.value.errors == {}
    assert decode(with_scans(500)).shape == (64, 80, 3)


@every_reader
@pytest.mark.parametrize("end", [b"", b"\xff\xd9"], ids=["cut", "closed"])
@pytest.mark.parametrize("scans", [1, 2])
@pytest.mark.parametrize("region", [None, (0, 0, 20, 20)], ids=["whole", "region"])
def test_a_component_without_its_scan_is_an_error(
    backend: str | None, end: bytes, scans: int, region: Box | None
) -> None:
    """A sequential file that was cut between two scans is an error, which no decoder reports."""
    data = (DATA / "jpeg_kinds" / "gen_420_one_component_a_scan.jpg").read_bytes()
    cut = markers(b"\xff\xda", data)[scans]
    if backend != "native":  # it refuses them all
        assert decode(data, backend=backend, region=region).shape[2] == 3

    with pytest.raises(DecodeError):
        decode(data[:cut] + end, backend=backend, region=region)


@pytest.mark.parametrize("damage", ["gone", "doubled", "of another number"])
def test_no_region_is_begun_behind_markers_out_of_turn(damage: str) -> None:
    """A region is not decoded from restart markers out of order, which would show other rows."""
    data = encode(drawing(160, 240), restart_marker_rows=1)
    at = markers(rb"\xff[\xd0-\xd7]", data)[3]
    there = data[at : at + 2]
    instead = {"gone": b"", "doubled": there * 2, "of another number": b"\xff\xd6"}[damage]

    with pytest.raises(DecodeError):
        decode(data[:at] + instead + data[at + 2 :], region=(0, 200, 160, 240), backend="native")


def replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1
    return data.replace(old, new)


ODD = {
    **{
        f"JFIF {major}": replaced(KINDS["4:2:0"], b"JFIF\0\1", b"JFIF\0" + bytes([major]))
        for major in (0, 2)
    },
    **{
        f"Adobe transform {transform}": KINDS["4:4:4"][:2]
        + b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + bytes([transform])
        + KINDS["4:4:4"][20:]
        for transform in (2, 3, 255)
    },
    "bits of a progressive scan": replaced(
        KINDS["4:2:0"], b"\3\1\0\2\x11\3\x11\0\x3f\0", b"\3\1\0\2\x11\3\x11\0\x3f\1"
    ),
    "a shorter band": replaced(
        KINDS["4:2:0"], b"\3\1\0\2\x11\3\x11\0\x3f\0", b"\3\1\0\2\x11\3\x11\0\x3e\0"
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ODD)
def test_strict_refuses_what_libjpeg_warns_of(kind: str) -> None:
    """Odd headers decode to Pillow's pixels, and only `strict` refuses them, also for a part.

    The core alone refuses them.
    """
    data = ODD[kind]
    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert_same(decode(data), expected)
    for options in ({}, {"region": (8, 8, 24, 16)}):
        with pytest.raises(DecodeError):
            decode(data, strict=True, **options)
        with pytest.raises(DecodeError):
            decode(data, backend="native", **options)


# ---- zeros in place of data ----

NOISE = np.random.default_rng(0).normal(0, 12, (90, 120, 3))
PHOTO = np.clip(np.asarray(photo(120, 90)) + NOISE, 0, 255).astype(np.uint8)
FLAT_BELOW = PHOTO.copy()
FLAT_BELOW[50:] = 255
IN_WHITE = np.full((300, 120, 3), 255, np.uint8)
IN_WHITE[100:140] = PHOTO[:40]  # so much white that zeros are its code
COLOUR = Image.fromarray(PHOTO)
FINE = {
    "4:2:0": encode(COLOUR, quality=95),
    "4:4:4, optimised": encode(COLOUR, quality=98, subsampling=0, optimize=True),
    "grey": encode(COLOUR.convert("L"), quality=97),
    "restart markers": encode(COLOUR, quality=96, restart_marker_rows=2),
    "progressive": encode(COLOUR, quality=98, progressive=True),
    "half flat": encode(Image.fromarray(FLAT_BELOW), quality=96, optimize=True),
    "in white": encode(Image.fromarray(IN_WHITE), quality=75, subsampling=0, optimize=True),
    "CMYK": encode(COLOUR.convert("CMYK"), quality=97),
    "coarse": encode(COLOUR, quality=60, optimize=True),
}


def with_zeros(data: bytes) -> Iterator[bytes]:
    """Put zeros in place of the rest, with and without the end marker, and of parts.

    In a progressive file, as many as single bits of refinements may be cannot be told.
    """
    some = (200, 300) if probe(data).progressive else (24, 100)
    start = probe(data).scan_offset
    for at in np.linspace(start, len(data) - 40, 7).astype(int).tolist():
        for size in (*some, len(data) // 10, len(data)):
            hole = min(size, len(data) - 2 - at)
            damaged = data[:at] + bytes(hole) + data[at + hole :]
            if damaged != data:
                yield damaged
        yield data[:at] + bytes(len(data) - at)


@pytest.mark.parametrize("kind", FINE)
@every_reader
def test_zeros_in_place_of_data_are_an_error(kind: str, backend: str | None) -> None:
    """Zeros are legal codes, but what they decode to is not shown.

    Only zeros in the scans of single bits, which a progressive file may have, cannot be told.
    """
    data = FINE[kind]
    if backend and not decodes(data, backend):
        pytest.skip(f"{backend} does not read {kind}")

    outcomes = [outcome(damaged, data, backend) for damaged in with_zeros(data)]

    allowed = {"progressive": {"error", "other pixels"}, "in white": {"error", "whole"}}
    assert set(outcomes) <= allowed.get(kind, {"error"})
    assert outcomes.count("error") >= 0.9 * len(outcomes)


@pytest.mark.parametrize("kind", [kind for kind in FINE if kind != "in white"])
@every_reader
@pytest.mark.parametrize("zeros", [1, 15, 16, 500])
def test_zeros_behind_complete_data_are_no_damage(
    kind: str, backend: str | None, zeros: int
) -> None:
    """Where all blocks are there, zeros between them and the end are in place of nothing."""
    data = FINE[kind]
    if backend and (backend in ("native", "kornia_rs") or not decodes(data, backend)):
        pytest.skip(f"{backend} does not read {kind}")

    for padded in (data[:-2] + bytes(zeros) + EOI, data[:-2] + bytes(zeros)):
        assert outcome(padded, data, backend) == "whole"
        if zeros > 15:  # libjpeg may have read a few already
            with pytest.raises(FastDecodeError):
                decode(padded, strict=True, backend=backend)


def test_zeros_that_are_no_data_where_only_pillow_reads_the_file(monkeypatch: Any) -> None:
    """Behind complete data, and in a comment behind a marker that the core does not read (DNL)."""
    leave_only(monkeypatch, "native", "pillow")
    for kind, data in (
        ("CMYK", FINE["CMYK"]),
        ("4:1:1", encode(COLOUR, quality=95, subsampling="4:1:1")),
    ):
        for zeros in 16, 500:
            assert outcome(data[:-2] + bytes(zeros) + EOI, data) == "whole", kind
    data = FINE["4:2:0"]
    height = b"\xff\xdc\x00\x04" + (90).to_bytes(2, "big")
    with_comment = data[:-2] + height + b"\xff\xfe\x00\x42" + bytes(64) + EOI
    assert outcome(with_comment, data) == "whole"


@pytest.mark.parametrize("others", [True, False])
def test_zeros_in_place_of_a_table_are_an_error(others: bool, monkeypatch: Any) -> None:
    """Or in place of a scan, also where the core and Pillow are alone: neither reports warnings."""
    if not others:
        leave_only(monkeypatch, "native", "pillow")
    data = FINE["progressive"]
    places = [*markers(rb"\xff[\xc4\xda]", data[: len(data) - 2]), len(data) - 2]
    behind = [at for at in places if at > probe(data).scan_offset]

    for start, end in itertools.pairwise(behind):
        with pytest.raises(DecodeError):
            decode(data[:start] + bytes(end - start) + data[end:])


def decodes(data: bytes, backend: str) -> bool:
    try:
        decode(data, backend=backend)
    except FastDecodeError:
        return False
    return True


def shown(data: bytes, damaged: bytes, **options: Any) -> bool:
    """Return whether a part of damaged data is shown; fail if it is not that of the whole."""
    try:
        part = decode(damaged, **options)
    except DecodeError:
        return False
    assert_same(part, decode(data, **options), options)
    return True


@pytest.mark.parametrize("kind", [kind for kind in FINE if kind not in ("progressive", "CMYK")])
def test_no_part_shows_what_zeros_decode_to(kind: str) -> None:
    """A region, or a smaller image, is an error or right, alone and in a batch."""
    data = FINE[kind]
    damaged = some(list(with_zeros(data)))
    options: list[dict[str, Any]] = [
        {"region": (0, 0, 120, 20)},
        {"region": (30, 40, 90, 60)},
        {"region": (60, 70, 61, 90)},
        {"reduce": 4, "region": (0, 8, 120, 64)},
        {"reduce": 8},
        {"mode": "L"},
    ]
    for option in options:
        right = decode(data, **option)
        for answer in decode_batch(damaged, threads=2, on_error="return", **option):
            if not isinstance(answer, DecodeError):
                assert_same(answer, right, option)
        refused = sum(not shown(data, one, **option) for one in damaged)
        assert refused > len(damaged) // 3 or not Run.every


@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_no_part_that_ends_with_an_interval_shows_zeros(mode: str) -> None:
    """Few of the zeros at the end of a restart interval may be read: what is left over tells."""
    pixels = np.full((160, 240, 3), 255, np.uint8)  # so much white that zeros are its code
    pixels[56:96, :120] = PHOTO[:40]
    some = {"subsampling": 0} if mode == "RGB" else {}
    image = Image.fromarray(pixels).convert(mode)
    data = encode(image, quality=75, optimize=True, restart_marker_rows=1, **some)
    ends = markers(rb"\xff[\xd0-\xd7]", data)
    refused = 0
    for row, hole in itertools.product(range(7, 12), range(28, 72, 4)):
        if hole <= ends[row] - ends[row - 1] - 2:
            damaged = data[: ends[row] - hole] + bytes(hole) + data[ends[row] :]
            refused += not shown(data, damaged, region=(0, 8 * row, 240, 8 * row + 8))
    assert refused > 30


def few_zeros(data: bytes) -> Iterator[bytes]:
    """Put zeros near the beginning of each scan, of which a part may read only the first."""
    for scan in jpeg.read(data).scans:
        for at in range(scan.start + 2, min(scan.start + 50, scan.end - 24), 7):
            yield data[:at] + bytes(20) + data[at + 20 :]


@pytest.mark.parametrize("image", [Image.fromarray(IN_WHITE), COLOUR], ids=["in white", "colour"])
@pytest.mark.parametrize("progressive", [True, False])
def test_no_part_shows_zeros_that_the_whole_does_not(image: Image.Image, progressive: bool) -> None:
    """What is read of each scan may end before what tells that its zeros were no data."""
    data = encode(image, quality=60, progressive=progressive, optimize=True)
    for damaged in (*with_zeros(data), *few_zeros(data)):
        if outcome(damaged, data) == "error":
            for bottom in (16, 40, 120):
                shown(data, damaged, region=(0, 0, 120, min(bottom, image.height)))


@every_reader
@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_flat_areas_may_be_zeros(mode: str, backend: str | None) -> None:
    """Images with long runs of zeros in their data decode, in all ways, and gradients do.

    The core leaves CMYK to libjpeg, which warns of no zeros.
    """
    flat = np.full((400, 320, 3), 255, np.uint8)
    half, spots = flat.copy(), np.zeros_like(flat)
    half[:90, :120], half[200:290, 180:300] = PHOTO, PHOTO
    spots[::70, ::50] = 250
    slope = np.tile((np.arange(474) * 0.25)[:, None, None], (1, 863, 3)).astype(np.uint8)
    ways: list[dict[str, Any]] = [
        {"optimize": True},
        {"optimize": True, "quality": 100, "subsampling": 0},
        {"progressive": True, "quality": 95},
        {"optimize": True, "restart_marker_rows": 2},
        {"quality": 100, "progressive": True, "subsampling": 0},
    ]
    zeros = 0
    for pixels, way in itertools.product((flat, half, spots, slope), ways):
        chosen = {key: way[key] for key in way if key != "subsampling" or mode != "L"}
        data = encode(Image.fromarray(pixels).convert(mode), **chosen)
        zeros += bytes(16) in data[probe(data).scan_offset :]
        if backend and not decodes(FINE["CMYK"] if mode == "CMYK" else KINDS["4:2:0"], backend):
            pytest.skip(f"{backend} does not read {mode}")
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        for given in (data, data[:-2]):
            assert_same(decode(given, backend=backend), expected, (way, len(given)))
        part = decode(data, region=(10, 2, 200, 7), backend=backend)
        assert_same(part, expected[2:7, 10:200], way)
        if backend in WARNERS or (backend is None and (mode != "CMYK" or {*WARNERS} - {"native"})):
            decode(data, strict=True, backend=backend)
    assert zeros >= 6


def of_zeros(luma: int, chroma: int, count: int) -> bytes:
    """Write 64 x 64 pixels whose data is zeros: all zero is the code of such an AC symbol."""

    def table(kind: int, symbol: int) -> bytes:
        return segment(0xC4, bytes([kind, 1, 1, *[0] * 14, symbol, 1 - symbol]))

    frame = struct.pack(">BHHB", 8, 64, 64, 3) + bytes((1, 0x22, 0, 2, 0x11, 0, 3, 0x11, 0))
    tables = (table(0, 0), table(1, 0), table(0x10, luma), table(0x11, chroma))
    scan = segment(0xDA, bytes((3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0)))
    head = b"\xff\xd8" + segment(0xDB, bytes([0] + [1] * 64)) + segment(0xC0, frame)
    return b"".join((head, *tables, scan, bytes(count), EOI))


@every_reader
@pytest.mark.parametrize("symbols", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_zeros_are_data_only_where_they_end_each_block(
    symbols: tuple[int, int], backend: str | None
) -> None:
    """In luma and in chroma; so they are an error even where they are as many as the image needs.

    A block has a bit of DC, and one that ends it, or 63 values of one bit after one of code.
    """
    luma, chroma = (1 + (1, 126)[symbol] for symbol in symbols)
    needed = 16 * (4 * luma + 2 * chroma) // 8
    options: list[dict[str, Any]] = [{}, {"region": (0, 0, 64, 32)}, {"region": (0, 40, 64, 64)}]
    for count in range(needed - 2, needed + 3):
        for how in options:
            if symbols == (0, 0) and count == needed:
                decode(of_zeros(*symbols, count), backend=backend, **how)
                continue
            with pytest.raises(DecodeError):
                decode(of_zeros(*symbols, count), backend=backend, **how)


DEEP: dict[str, dict[str, Any]] = {
    "lossless 16": {"bits": 16, "lossless": True},
    "lossless 10": {"bits": 10, "lossless": True},
    "lossless 8": {"bits": 8, "lossless": True},
    "DCT 12": {"bits": 12},
}


@pytest.mark.parametrize("level", [0, 1, 127, 128, 200, 255])
@pytest.mark.parametrize("bits", [8, 12, 16])
def test_flat_lossless_jpeg_may_be_zeros(bits: int, level: int) -> None:
    """Whichever bit of the last byte is needed, also where the only code says nothing."""
    imagecodecs = pytest.importorskip("imagecodecs")
    zeros = 0
    for height, spots in itertools.product(range(40, 64), (0, 1, 3)):
        pixels = np.full((height, 61), level << bits - 8, np.uint8 if bits == 8 else np.uint16)
        pixels.flat[100 : 100 + spots] = range(spots)
        for data in (
            bytes(imagecodecs.jpeg_encode(pixels, lossless=True, bitspersample=bits)),
            bytes(imagecodecs.ljpeg_encode(pixels, bitspersample=bits)),
        ):
            zeros += bytes(16) in data[probe(data).scan_offset :]
            assert_same(decode(data, mode="stored"), pixels, (height, spots))
    assert zeros > 100


@pytest.mark.parametrize("kind", DEEP)
@pytest.mark.parametrize("mode", ["stored", "RGB"])
def test_deep_jpeg_that_lacks_data_is_an_error(kind: str, mode: Any) -> None:
    """Cut anywhere, with the end marker put back or zeros instead: never half of the largest value.

    At the very end, a byte may be padding.
    """
    imagecodecs = pytest.importorskip("imagecodecs")
    bits, lossless = (DEEP[kind].get(key, False) for key in ("bits", "lossless"))
    ramp = np.add.outer(np.arange(64), np.arange(64)) * 300 % 65536
    noise = np.random.default_rng(1).integers(0, 3000, (64, 64))
    pixels = ((ramp + noise) % 65536 >> 16 - bits).astype(np.uint16 if bits > 8 else np.uint8)
    data = bytes(imagecodecs.jpeg_encode(pixels, lossless=lossless, bitspersample=bits))
    whole = decode(data, mode=mode)

    for cut in [*cuts(data, 20), len(data) - 3]:
        rest = len(data) - cut
        zeros = data[:cut] + bytes(max(rest - 2, 0)) + EOI
        for damaged in (data[:cut] + EOI, data[:cut], zeros if rest > 40 else data[:cut]):
            try:
                image = decode(damaged, mode=mode)
            except FastDecodeError:
                continue
            assert rest <= 4
            assert_same(image, whole, cut)
