"""Tests of what can be read from a JPEG's compressed data without decoding it."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from PIL import Image
from scans import Scan, coefficients, segment, write

from fastdecode import FastDecodeError, decode, probe
from fastdecode._formats import jpeg
from fastdecode.testing import drawing, encode

BASELINE = encode(drawing(48, 40))
GREY = encode(drawing(48, 40, "L"))
RESTARTS = encode(drawing(48, 40), restart_marker_blocks=1)
PROGRESSIVE = encode(drawing(48, 40), progressive=True)
GREY_PROGRESSIVE = encode(drawing(48, 40, "L"), progressive=True)
CMYK_PROGRESSIVE = encode(drawing(48, 40, "CMYK"), progressive=True)
WHOLE = {
    "baseline": BASELINE, "grey": GREY, "restarts": RESTARTS, "progressive": PROGRESSIVE,
}  # fmt: skip
SOS, EOI = b"\xff\xda", b"\xff\xd9"

every_buffer = pytest.mark.parametrize("buffer", [bytes, memoryview])


class Script(NamedTuple):
    number: int
    begun: bool
    complete: bool


def script(data: bytes, buffer=bytes) -> Script:
    found = jpeg.read(buffer(data))
    return Script(len(found.scans), bool(found.begun), bool(found.complete))


def scan_starts(data: bytes) -> list[int]:
    """Return the offset of each SOS marker; compressed data cannot contain one."""
    return [i for i in range(len(data)) if data[i : i + 2] == SOS]


@every_buffer
@pytest.mark.parametrize("data", [*WHOLE.values(), GREY_PROGRESSIVE, CMYK_PROGRESSIVE])
def test_whole_file_is_complete(data: bytes, buffer) -> None:
    """All scans of a whole file are counted, and they make every coefficient complete."""
    assert script(data, buffer) == (len(scan_starts(data)), True, True)
    assert (script(data, buffer).number > 1) == probe(data).progressive


@every_buffer
@pytest.mark.parametrize("end", [b"", EOI], ids=["cut", "closed"])
@pytest.mark.parametrize(
    "data", [PROGRESSIVE, GREY_PROGRESSIVE, CMYK_PROGRESSIVE], ids=["YCC", "grey", "CMYK"]
)
def test_file_without_its_last_scans_is_not_complete(data: bytes, end: bytes, buffer) -> None:
    """A progressive file without its last scans is incomplete, and the scans left are counted.

    All coefficients have begun where only refinements (Ah > 0) are missing.
    """
    starts = scan_starts(data)
    first = max(
        number
        for number, start in enumerate(starts)
        if not data[start + 1 + int.from_bytes(data[start + 2 : start + 4], "big")] >> 4
    )
    for number, start in enumerate(starts):
        if number:
            assert script(data[:start] + end, buffer) == (number, number > first, False)


@pytest.mark.parametrize("scan", range(10))
@pytest.mark.parametrize("length", [0, 7, 9])
def test_scan_header_of_another_length_means_nothing(scan: int, length: int) -> None:
    """Where the header of a scan has not the length of its components, libjpeg stops: bits lack."""
    at = scan_starts(PROGRESSIVE)[scan] + 2
    data = PROGRESSIVE[:at] + length.to_bytes(2, "big") + PROGRESSIVE[at + 2 :]

    if scan or length >= 2:  # else there is no header
        assert not script(data).complete
    with pytest.raises(FastDecodeError):
        decode(data, strict=True)


def ends_of_data(data: bytes | memoryview) -> list[int]:
    """Return where the data of each scan ends."""
    return [scan.end for scan in jpeg.read(data).scans]


ODD = [
    encode(drawing(*sides), progressive=progressive, restart_marker_blocks=1, subsampling=shared)
    for sides in ((33, 17), (17, 33), (50, 49), (1, 8))
    for progressive in (True, False)
    for shared in (0, 1, 2)
]


@every_buffer
@pytest.mark.parametrize("data", [PROGRESSIVE, *ODD])
def test_ends_of_all_scans(data: bytes, buffer) -> None:
    """The next scan's tables, or its marker, end the data of a scan; a restart marker does not."""
    ends = ends_of_data(buffer(data))

    after = [*scan_starts(data)[1:], len(data) - 2]
    assert [data[end : end + 2] for end in ends] == [b"\xff\xc4"] * (len(ends) - 1) + [EOI] or all(
        data[end : end + 2] in (b"\xff\xc4", SOS) for end in ends[:-1]
    )
    assert [end for end, start in zip(ends, after, strict=True) if end > start] == []
    assert ends[-1] == len(data) - 2


LATER = [Scan((0, 1, 2), 0, 0, 0, 0), *(Scan((c,), 1, 63, 0, 0, interval=3 + c) for c in range(3))]


def test_each_scan_has_its_own_restart_interval() -> None:
    """That of the segment before it; of all scans the markers must count in their order."""
    data = write(coefficients(3, 1), LATER)
    found = jpeg.read(data)
    assert [(scan.interval, scan.intervals) for scan in found.scans] == [
        (0, 0),
        (3, 6),
        (4, 4),
        (5, 4),
    ]
    assert found.in_order
    for scan in found.scans[1:]:
        wrong = data.replace(b"\xff\xd1", b"\xff\xd2")
        assert not jpeg.read(
            data[: scan.start] + wrong[scan.start : scan.end] + data[scan.end :]
        ).in_order


@pytest.mark.parametrize("place", range(1, 4))
def test_zeros_between_any_scans_are_noticed(place: int) -> None:
    """Behind a comment, say, where no decoder looks."""
    comment = segment(0xFE, b"words")
    between = [comment + bytes(16) * (number == place) for number in range(4)]

    assert jpeg.read(write(coefficients(3, 1), LATER, between)).gap
    assert not jpeg.read(write(coefficients(3, 1), LATER, [comment])).gap


def test_tables_in_one_segment_are_as_apart() -> None:
    """The codes of only zeros are known of each, and so is which zeros may be data."""
    image = Image.new("RGB", (64, 64), (90, 120, 30))
    image.putpixel((5, 5), (255, 0, 0))
    data = encode(image, optimize=True)
    tables = re.compile(rb"\xff\xc4\0(.)", re.DOTALL)
    begins = [found.start() for found in tables.finditer(data)]
    ends = [at + 2 + data[at + 3] for at in begins]
    assert [*begins[1:], data.index(SOS)] == ends
    joined = b"".join(data[at + 4 : end] for at, end in zip(begins, ends, strict=True))
    one = data[: begins[0]] + segment(0xC4, joined) + data[ends[-1] :]

    (scan,), (plain,) = jpeg.read(one).scans, jpeg.read(data).scans
    assert scan.zeros == plain.zeros > 16


def test_the_longest_zeros_of_each_interval_are_found() -> None:
    """Not the last ones; of the last bytes of data, FF and the zero behind it are one."""
    parts = [b"\1".join(map(bytes, sizes)) for sizes in ((20, 40, 30), (50, 20), (16, 15))]
    at = RESTARTS.index(SOS) + 14
    odd = b"".join(b"\1" + part + b"\xff" + bytes([0xD0 + i]) for i, part in enumerate(parts))
    data = RESTARTS[:at] + odd + RESTARTS[at:]

    found = jpeg.holes(data, jpeg.read(data).scans)
    assert [hole.size for hole in found] == [50, 40, 16]
    ends = [jpeg.without_last_bytes(b"\x01\xff\0\x02", 4, count) for count in (1, 2)]
    assert ends == [b"\x01\xff\0", b"\x01"]


@pytest.mark.parametrize("count", [5, 124, 125, 255])
def test_more_components_than_a_scan_can_name(count: int) -> None:
    """A header with more components than a scan can have is not one scan, and not a crash."""
    header = probe(BASELINE)._replace(channels=count)

    assert jpeg.in_one_scan(BASELINE, probe(BASELINE))
    assert not jpeg.in_one_scan(BASELINE, header)


MISSING = [
    "Corrupt JPEG data: premature end of data segment",
    "Premature end of JPEG file",
    "Corrupt JPEG data: found marker 0xd9 instead of RST3",
]
HARMLESS = [
    "Unknown Adobe color transform code 7",
    "Inconsistent progression sequence for component 0 coefficient 1",
    "Corrupt JPEG data: 3 extraneous bytes before marker 0xd9",
    "Corrupt JPEG data: bad Huffman code",
    "Corrupt JPEG data: bad arithmetic code",
    "Warning: unknown JFIF revision number 3.01",
    "Invalid SOS parameters for sequential JPEG",
    "Corrupt JPEG data: bad ICC marker",
]
FATAL = [
    "Unsupported marker type 0x37",
    "Huffman table 0x01 was not defined",
    "Invalid JPEG file structure: two SOI markers",
    "Not a JPEG file: starts with 0x00 0x01",
    "",
]


@pytest.mark.parametrize(
    ("message", "missing", "recoverable"),
    [
        *((words, True, False) for words in MISSING),
        *((words, False, True) for words in HARMLESS),
        *((words, False, False) for words in FATAL),
        (f"{HARMLESS[2]}; {MISSING[0]}", True, False),
    ],
)
def test_messages_of_libjpeg_are_classified(message: str, missing: bool, recoverable: bool) -> None:
    """Messages from libjpeg's jerror.h are classified as missing pixels, recoverable or fatal."""
    assert jpeg.says_missing_pixels(message) is missing
    assert jpeg.is_recoverable(message) is recoverable
