"""JPEG: checks of the compressed data after the header, without decoding it.

They tell where the data ends, whether all scans are present, and what a codec's warning means. They
also help to find missing pixels if the decoder does not report them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from fastdecode.types import Buffer, Header

EOI = b"\xff\xd9"
MAX_SCANS = 500
"""More scans than any JPEG has (libjpeg-turbo's fuzzers use 500); see `most_scans`."""

_FREE_PIXELS = 1 << 28  # pixels times scans, whatever the size of the file: at most two seconds
_PIXELS_PER_BYTE = 10_000
_FEWEST_SCANS = 16

_SOS = b"\xff\xda"

# Warnings of libjpeg (jerror.h) after which there is an image. All other warnings and all fatal
# errors mean that there is none.
_RECOVERABLE = re.compile(
    r"Unknown Adobe color transform code"
    r"|Inconsistent progression sequence"
    r"|extraneous bytes before marker"
    r"|bad Huffman code"
    r"|bad arithmetic code"
    r"|unknown JFIF revision number"
    r"|Invalid SOS parameters for sequential JPEG"
    r"|bad ICC marker"
)
# JWRN_HIT_MARKER, JWRN_JPEG_EOF, JWRN_MUST_RESYNC: the decoder filled blocks in.
_MISSING = re.compile(r"[Pp]remature end|found marker 0x\w+ instead of RST")

_NOISE = bytes((211 + i * 167 + (i * i) % 251) % 255 for i in range(512))
ENDINGS = _NOISE, bytes(min(255 - byte, 254) for byte in _NOISE)
"""Bytes to put after real data, to find out whether a decoder needs more data.

The first is like noise, so that pixels decoded from it do not look filled in. It starts with a 1
bit, because decoders fill in zeros. The second is the opposite of the first: for one of the two,
the rest of an image may happen to be the same. No byte is FF, which would start a marker.
"""
# The arithmetic coder may drop trailing zero bytes (T.81, D.1.8): a decoder that needs a few zeros
# more than there are has not lost any data.
_DROPPED_ZEROS = bytes(6)
# Any marker except restart markers, which belong to the data.
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_END = re.compile(EOI)
# Segments that may stand between two scans: tables, restart interval, APPn, COM, DNL.
_BETWEEN_SCANS = frozenset({0xC4, 0xCC, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)})

_MAX_IN_SCAN = 4
"""The most components of a scan (T.81, B.2.3); a damaged header may promise more."""


class Scan(NamedTuple):
    """One scan: the offsets of its SOS marker, and of the beginning and end of its data."""

    marker: int
    start: int
    end: int


class ScanScript(NamedTuple):
    """The number of scans, at most `MAX_SCANS` + 1, and whether every coefficient is complete."""

    number: int
    complete: bool


def has_end(data: Buffer, header: Header) -> bool:
    """Return whether an end marker (EOI) closes the image, whatever follows it."""
    # In entropy-coded data FF is always followed by 00 or a restart marker (T.81, F.1.2.3).
    if data[-2:] == EOI:
        return True
    if isinstance(data, bytes):  # `find` is much faster
        return data.find(EOI, header.scan_offset) >= 0
    return _END.search(data, header.scan_offset) is not None


def most_scans(header: Header, size: int) -> int:
    """Return how many scans a JPEG of `size` bytes may have before it counts as hostile.

    A scan of a large image may take a dozen bytes, and costs a pass over all of it. Whatever the
    image shows, a real file has at least one bit per block of 64 pixels, and about ten scans.
    """
    passes = max(_FREE_PIXELS, _PIXELS_PER_BYTE * size) // (header.width * header.height)
    return min(max(passes, _FEWEST_SCANS), MAX_SCANS)


def _scans(data: Buffer, header: Header) -> Iterator[Scan]:
    """Yield the scans, at most `MAX_SCANS` + 1. Any marker but a restart marker ends its data."""
    marker, start = _first_scan(data, header), header.scan_offset
    for _ in range(MAX_SCANS + 1):
        found = _MARKER.search(data, start)
        stop = found.start() if found else len(data)
        end = stop
        while end > start and data[end - 1] == 0xFF:  # fill bytes belong to the marker
            end -= 1
        yield Scan(marker, start, end)
        marker = _next_scan(data, stop)
        if marker < 0:
            return
        start = marker + 2 + (data[marker + 2] << 8 | data[marker + 3])


def _first_scan(data: Buffer, header: Header) -> int:
    """Return the offset of the first SOS marker, by its length before the start of its data."""
    for components in range(1, 5):
        marker = header.scan_offset - (6 + 2 * components) - 2
        if data[marker : marker + 2] == _SOS:
            return marker
    return header.scan_offset


def _next_scan(data: Buffer, pos: int) -> int:
    """Return the offset of the next SOS marker, after only tables; -1 if the image ends here."""
    while pos + 4 <= len(data) and data[pos] == 0xFF:
        marker = data[pos + 1]
        if marker == 0xDA:
            return pos
        if marker not in _BETWEEN_SCANS:
            break
        pos += 2 + max(data[pos + 2] << 8 | data[pos + 3], 2)
    return -1


def in_one_scan(data: Buffer, header: Header) -> bool:
    """Return whether the first scan contains all components; True unless it is sequential."""
    if header.coding not in ("baseline", "arithmetic"):
        return True
    count = header.channels
    if count > _MAX_IN_SCAN:
        return False
    begin = header.scan_offset - (6 + 2 * count) - 2
    return begin >= 0 and data[begin : begin + 5] == bytes((0xFF, 0xDA, 0, 6 + 2 * count, count))


def scan_script(data: Buffer, header: Header) -> ScanScript:
    """Read the scan headers: components, band Ss..Se, lowest bit position Al (T.81, B.2.3)."""
    left: dict[int, list[int]] = {}
    number = 0
    for number, scan in enumerate(_scans(data, header), start=1):  # noqa: B007 - the last counts
        body = bytes(data[scan.marker + 4 : scan.marker + 4 + 12])
        components = body[0] if body else 0
        if len(body) < 4 + 2 * components:
            break
        first, last, bits = body[1 + 2 * components : 4 + 2 * components]
        for component in body[1 : 1 + 2 * components : 2]:
            precision = left.setdefault(component, [15] * 64)
            for k in range(min(first, 64), min(last, 63) + 1):
                precision[k] = bits & 15
    known = len(left) >= header.channels
    if not header.progressive:  # the band and the bits have no meaning, and may be anything
        return ScanScript(number, known)
    return ScanScript(number, known and not any(any(precision) for precision in left.values()))


def outer_scans(data: Buffer, header: Header) -> list[Scan]:
    """Return the first and the last scan: if pixels are missing, one of the two shows it."""
    scans = list(_scans(data, header))
    return scans[:1] if len(scans) == 1 else [scans[0], scans[-1]]


def restarts_in_order(data: Buffer, header: Header) -> bool:
    """Return whether the restart markers count 0 to 7 (T.81, B.2.1); if not, blocks were lost."""
    for scan in _scans(data, header):
        for index, found in enumerate(_RESTART.finditer(data, scan.start, scan.end)):
            if data[found.end() - 1] & 7 != index & 7:
                return False
    return True


def says_missing_pixels(warning: str) -> bool:
    """Return whether a libjpeg warning means that part of the image was not in the data."""
    return _MISSING.search(warning) is not None


def is_recoverable(warning: str) -> bool:
    """Return whether a libjpeg message is a warning, and every pixel still came from the data."""
    return _RECOVERABLE.search(warning) is not None and not says_missing_pixels(warning)


def without_half_marker(data: Buffer) -> bytes:
    """Remove the FF of a marker that was cut in two, so that an EOI can follow."""
    return bytes(data).rstrip(b"\xff")


def with_other_ending(
    data: Buffer, scan: Scan, header: Header, ending: bytes = ENDINGS[0]
) -> bytes:
    """Insert one of `ENDINGS` at the end of the compressed data of one of the `outer_scans`.

    A decoder that already has all pixels ignores it, and returns the same image. A decoder that ran
    out of data and filled pixels in now decodes the ending, and returns another image. So missing
    pixels show with any decoder, even if it reports no warnings.
    """
    more = ending
    if header.coding == "arithmetic":
        more = _DROPPED_ZEROS + more
    if header.restart_interval:
        # After an interval a decoder skips everything up to the next restart marker.
        passed = [data[m.end() - 1] for m in _RESTART.finditer(data, scan.start, scan.end)]
        following = 0xD0 if not passed else 0xD0 | (passed[-1] + 1 & 7)
        more += bytes((0xFF, following)) + ending
    return b"".join((data[: scan.end], more, data[scan.end :]))
