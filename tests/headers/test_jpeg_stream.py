"""Tests of what can be read from a JPEG's compressed data without decoding it."""

from __future__ import annotations

import pytest

from fastdecode import probe
from fastdecode._headers import jpeg_stream
from fastdecode.testing import drawing, encode
from fastdecode.types import Header

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

every_whole = pytest.mark.parametrize("data", WHOLE.values(), ids=WHOLE)
every_buffer = pytest.mark.parametrize("buffer", [bytes, memoryview])


def script(data: bytes, buffer=bytes) -> jpeg_stream.ScanScript:
    return jpeg_stream.scan_script(buffer(data), probe(data))


def scan_starts(data: bytes) -> list[int]:
    """Return the offset of each SOS marker; compressed data cannot contain one."""
    return [i for i in range(len(data)) if data[i : i + 2] == SOS]


@every_buffer
@pytest.mark.parametrize("data", [*WHOLE.values(), GREY_PROGRESSIVE, CMYK_PROGRESSIVE])
def test_whole_file_is_complete(data: bytes, buffer) -> None:
    """All scans of a whole file are counted, and they make every coefficient complete."""
    assert script(data, buffer) == (len(scan_starts(data)), True)
    assert (script(data, buffer).number > 1) == probe(data).progressive


@every_buffer
@pytest.mark.parametrize("end", [b"", EOI], ids=["cut", "closed"])
@pytest.mark.parametrize(
    "data", [PROGRESSIVE, GREY_PROGRESSIVE, CMYK_PROGRESSIVE], ids=["YCC", "grey", "CMYK"]
)
def test_file_without_its_last_scans_is_not_complete(data: bytes, end: bytes, buffer) -> None:
    """A progressive file without its last scans is incomplete, and the scans left are counted."""
    for number, start in enumerate(scan_starts(data)):
        if number:
            assert script(data[:start] + end, buffer) == (number, False)


@pytest.mark.parametrize("cut", range(2, 14))
def test_truncated_scan_header_is_not_an_error(cut: int) -> None:
    """A file that ends inside a scan's header is incomplete, not an error."""
    start = scan_starts(PROGRESSIVE)[-1]

    assert script(PROGRESSIVE[: start + cut]).number in (9, 10)
    assert not script(PROGRESSIVE[: start + min(cut, 7)]).complete


@every_buffer
@pytest.mark.parametrize("tail", [PROGRESSIVE, PROGRESSIVE * 60, SOS * 600], ids=len)
def test_scans_after_the_end_are_not_counted(tail: bytes, buffer) -> None:
    """The scans of another image after the end marker are not counted."""
    whole = script(PROGRESSIVE)
    half = PROGRESSIVE[: scan_starts(PROGRESSIVE)[4]] + EOI

    assert script(PROGRESSIVE + tail, buffer) == whole
    assert script(half + tail, buffer) == (4, False)


@every_whole
@every_buffer
@pytest.mark.parametrize("tail", [b"", b"\0", b"garbage" * 9, b"\xff\xd8\xff", EOI], ids=repr)
def test_end_is_found_before_garbage(data: bytes, buffer, tail: bytes) -> None:
    """The end marker is found with garbage after it."""
    assert jpeg_stream.has_end(buffer(data + tail), probe(data))


@every_whole
@every_buffer
def test_truncated_file_has_no_end(data: bytes, buffer) -> None:
    """A file truncated anywhere, even inside the marker, has no end."""
    header = probe(data)
    for cut in (header.scan_offset, len(data) // 2, len(data) - 20, len(data) - 2, len(data) - 1):
        assert not jpeg_stream.has_end(buffer(data[:cut]), header)


@every_buffer
def test_end_marker_in_the_header_is_ignored(buffer) -> None:
    """An end marker in a thumbnail or a comment does not end the image."""
    comment = b"\xff\xfe\0\x06" + EOI + EOI
    data = (BASELINE[:2] + comment + BASELINE[2:])[:-2]

    assert not jpeg_stream.has_end(buffer(data), probe(data))


def ends_of_data(data: bytes | memoryview, header: Header) -> list[int]:
    """Return where the data of the first and of the last scan end."""
    return [scan.end for scan in jpeg_stream.outer_scans(data, header)]


ENDS = [
    # The data ends at the end marker, not at a restart marker, whatever follows.
    *(
        (data + tail, len(data) - 2)
        for data in (BASELINE, GREY, RESTARTS)
        for tail in (b"", b"garbage", PROGRESSIVE)
    ),
    # Any number of FF bytes may precede a marker; they are not data.
    *((BASELINE[:-2] + b"\xff" * fill + EOI, len(BASELINE) - 2) for fill in (0, 1, 5)),
    # Without a marker the data extends to the last byte.
    (BASELINE[:-40], len(BASELINE) - 40),
]


@every_buffer
@pytest.mark.parametrize(("data", "end"), ENDS)
def test_one_scan_ends_where_its_data_does(data: bytes, end: int, buffer) -> None:
    """A single scan ends before the end marker and its fill bytes, or with the file."""
    assert ends_of_data(buffer(data), probe(data)) == [end]


@every_buffer
def test_ends_of_first_and_last_scan(buffer) -> None:
    """With several scans, the ends of the first and the last one are returned."""
    ends = ends_of_data(buffer(PROGRESSIVE), probe(PROGRESSIVE))

    # The tables of the second scan precede its marker.
    first = PROGRESSIVE.index(b"\xff\xc4", probe(PROGRESSIVE).scan_offset)
    assert ends == [min(first, scan_starts(PROGRESSIVE)[1]), len(PROGRESSIVE) - 2]


@every_whole
def test_other_ending_changes_only_the_end(data: bytes) -> None:
    """`with_other_ending` inserts data at the end of a scan, without a marker that would end it."""
    header = probe(data)
    scan = jpeg_stream.outer_scans(data, header)[-1]
    end = scan.end

    other = jpeg_stream.with_other_ending(data, scan, header)

    added = other[end : len(other) - (len(data) - end)]
    assert other == data[:end] + added + data[end:]
    assert len(added) > 100
    assert ends_of_data(other, header)[-1] == end + len(added)


@every_buffer
@pytest.mark.parametrize("end", [b"", b"\xff", b"\xff\xff\xff"], ids=len)
def test_half_a_marker_is_dropped(end: bytes, buffer) -> None:
    """The rest of a truncated marker is removed, so that an end marker can follow."""
    assert jpeg_stream.without_half_marker(buffer(BASELINE[:-2] + end)) == BASELINE[:-2]


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
    assert jpeg_stream.says_missing_pixels(message) is missing
    assert jpeg_stream.is_recoverable(message) is recoverable


@pytest.mark.parametrize("cut", [300, 40])
def test_message_of_simplejpeg_is_classified(cut: int) -> None:
    """Simplejpeg's message about truncated data counts as missing pixels."""
    simplejpeg = pytest.importorskip("simplejpeg")

    with pytest.raises(ValueError) as caught:
        simplejpeg.decode_jpeg(BASELINE[:-cut] + EOI, strict=True)

    assert jpeg_stream.says_missing_pixels(str(caught.value))


@pytest.mark.parametrize("count", [5, 124, 125, 255])
def test_more_components_than_a_scan_can_name(count: int) -> None:
    """A header with more components than a scan can have is not one scan, and not a crash."""
    header = probe(BASELINE)._replace(channels=count)

    assert jpeg_stream.in_one_scan(BASELINE, probe(BASELINE))
    assert not jpeg_stream.in_one_scan(BASELINE, header)
