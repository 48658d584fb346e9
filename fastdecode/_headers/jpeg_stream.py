"""JPEG: checks of the compressed data after the header, without decoding it.

They tell where the data ends, whether all scans are present, and what a codec's warning means. They
also help to find missing pixels if the decoder does not report them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from math import ceil
from operator import attrgetter
from typing import NamedTuple

from fastdecode.types import Buffer, Header

EOI = b"\xff\xd9"
MAX_SCANS = 500
"""More scans than any JPEG has (libjpeg-turbo's fuzzers use 500); see `most_scans`."""

_FREE_PIXELS = 1 << 28  # pixels times scans, whatever the size of the file: at most two seconds
_PIXELS_PER_BYTE = 10_000
_FEWEST_SCANS = 16

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
    r"|long run of zeros"
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
_SOME = 16  # bytes of them, in each restart interval
# The arithmetic coder may drop trailing zero bytes (T.81, D.1.8): a decoder that needs a few zeros
# more than there are has not lost any data.
_DROPPED_ZEROS = bytes(6)
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
# What ends the data of a scan: any marker; with a restart interval, RSTn belongs to the data. In
# JPEG-LS, FF with a byte up to 7F is data (T.87, A.1).
_ANY = re.compile(rb"\xff[^\x00\xff]", re.DOTALL)
_BUT_RESTARTS = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
_HIGH = re.compile(rb"\xff[\x80-\xfe]")
# Markers but for those without a segment: RSTn, TEM and a misplaced SOI.
_SEGMENT = re.compile(rb"\xff[^\x00\x01\xff\xd0-\xd8]", re.DOTALL)
_DHT, _SOS, _EOI, _DRI = 0xC4, 0xDA, 0xD9, 0xDD
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {_DHT, 0xC8, 0xCC})  # SOFn
_BLOCK = 8  # samples along its side
# Segments that may stand between two scans: tables, restart interval, APPn, COM, DNL, LSE.
_BETWEEN_SCANS = frozenset({_DHT, 0xCC, 0xDB, 0xDC, _DRI, 0xFE, 0xF8, *range(0xE0, 0xF0)})
_NO_BIT = 16  # above every bit position
_ZEROS = bytes(16)  # as in scan.c
_MOST_BITS = 127  # bytes of single bits behind a code: libjpeg (jcphuff.c) writes 1000 bits
_HOLE = re.compile(rb"\0{16,}")

_MAX_IN_SCAN = 4
"""The most components of a scan (T.81, B.2.3); a damaged header may promise more."""


class Scan(NamedTuple):
    """One scan: the offsets of its SOS marker, and of the beginning and end of its data."""

    marker: int
    start: int
    end: int
    interval: int  # MCUs between restart markers; 0 is none


class _Parameters(NamedTuple):
    """A scan header (T.81, B.2.3). Band and bits have a meaning only in progressive files."""

    components: bytes  # their identifiers
    tables: bytes  # of each: DC and AC table, in 4 bits each
    first: int  # of the band of coefficients
    last: int
    before: (
        int  # the lowest bit of the previous scan of these coefficients; 0: this is the first one
    )
    low: int  # the lowest bit


class Stream(NamedTuple):
    """What follows a header."""

    scans: list[Scan]  # at most `MAX_SCANS` + 1
    ended: bool  # an end marker (EOI) follows them
    gap: bool  # there is a long run of zeros between two segments


class Progress(NamedTuple):
    """What the scans contain: at least a part of each coefficient, and all of its bits."""

    begun: bool
    complete: bool


def most_scans(header: Header, size: int) -> int:
    """Return how many scans a JPEG of `size` bytes may have before it counts as hostile.

    A scan of a large image may take a dozen bytes, and costs a pass over all of it. Whatever the
    image shows, a real file has at least one bit per block of 64 pixels, and about ten scans.
    """
    passes = max(_FREE_PIXELS, _PIXELS_PER_BYTE * size) // (header.width * header.height)
    return min(max(passes, _FEWEST_SCANS), MAX_SCANS)


def next_segment(data: Buffer, pos: int) -> int:
    """Return the offset of the next marker with a segment, or of EOI; at the end, the file's size.

    As in libjpeg (jdmarker.c), stray bytes and fill bytes may precede a marker, and RSTn and TEM
    may stand anywhere.
    """
    found = _SEGMENT.search(data, pos)
    return found.start() if found else len(data)


def after_segment(data: Buffer, marker: int) -> int:
    """Return the offset behind a segment. With a length below 2 it has no contents (jdmarker.c)."""
    return marker + 2 + max(int.from_bytes(data[marker + 2 : marker + 4], "big"), 2)


def read(data: Buffer, header: Header) -> Stream:
    """Walk over all segments that follow the header, and the data of the scans, as libjpeg does."""
    scans: list[Scan] = []
    marker, start, interval = _first_scan(data, header), header.scan_offset, header.restart_interval
    gap = False
    while len(scans) <= MAX_SCANS:
        ends = _HIGH if header.coding == "jpeg-ls" else _BUT_RESTARTS if interval else _ANY
        found = ends.search(data, start)
        stop = found.start() if found else len(data)
        if interval and header.coding != "jpeg-ls":
            most = _intervals(data, header, marker, interval)
            stray = islice(_RESTART.finditer(data, start, stop), max(0, most - 1), None)
            stop = next((one.start() for one in stray), stop)
        end = stop
        while end > start and data[end - 1] == 0xFF:  # fill bytes belong to the marker
            end -= 1
        scans.append(Scan(marker, start, end, interval))
        marker = next_segment(data, stop)
        while (kind := data[marker + 1] if marker < len(data) else 0) in _BETWEEN_SCANS:
            if kind == _DRI:
                interval = int.from_bytes(data[marker + 4 : marker + 6], "big")
            behind = after_segment(data, marker)
            marker = next_segment(data, behind)
            gap = gap or (behind < marker and _ZEROS in bytes(data[behind:marker]))
        if kind != _SOS:
            return Stream(scans, kind == _EOI, gap)
        start = after_segment(data, marker)
    return Stream(scans, False, gap)


def _intervals(data: Buffer, header: Header, marker: int, interval: int) -> int:
    """Return how many restart intervals a scan has.

    More restart markers than they need do not belong to it: libjpeg passes over them.
    """
    return -(-_units(data, header, marker) // interval)


def _units(data: Buffer, header: Header, marker: int) -> int:
    """Return the number of MCUs in a scan (T.81, A.2); a large one if its headers are damaged."""
    frame = next_segment(data, 2)
    while frame < marker and data[frame + 1] not in _FRAMES:
        frame = next_segment(data, after_segment(data, frame))
    body = bytes(data[frame + 10 : frame + 10 + 3 * header.channels])
    pairs = zip(body[::3], body[1::3], strict=False)
    factors = {name: (both >> 4, both & 15) for name, both in pairs}
    count = data[marker + 4] if marker + 4 < len(data) else 0
    own = factors.get(data[marker + 5]) if count == 1 else None
    most = tuple(max((each[i] for each in factors.values()), default=0) for i in (0, 1))
    if 0 in most or (count == 1 and own is None):
        return header.width * header.height
    side = 1 if header.coding == "lossless" else _BLOCK
    across, down = (
        -(-size // (side * of)) if own is None else -(-ceil(size * each / of) // side)
        for size, each, of in zip((header.width, header.height), own or most, most, strict=True)
    )
    return across * down


def _first_scan(data: Buffer, header: Header) -> int:
    """Return the offset of the first SOS marker, by its length before the start of its data."""
    for components in range(1, 5):
        marker = header.scan_offset - (6 + 2 * components) - 2
        if data[marker : marker + 2] == b"\xff\xda":
            return marker
    return header.scan_offset


def in_one_scan(data: Buffer, header: Header) -> bool:
    """Return whether the first scan contains all components; True unless it is sequential."""
    if header.coding not in ("baseline", "arithmetic", "lossless"):
        return True
    count = header.channels
    if count > _MAX_IN_SCAN:
        return False
    begin = header.scan_offset - (6 + 2 * count) - 2
    return begin >= 0 and data[begin : begin + 5] == bytes((0xFF, 0xDA, 0, 6 + 2 * count, count))


def _parameters(data: Buffer, scan: Scan) -> _Parameters | None:
    """Read a scan header; None if the file ends in it."""
    body = bytes(data[scan.marker + 4 : scan.marker + 4 + 12])
    count = 2 * body[0] if body else 0
    if len(body) < 4 + count:
        return None
    first, last, bits = body[1 + count : 4 + count]
    named = body[1 : 1 + count]
    return _Parameters(named[::2], named[1::2], first, last, bits >> 4, bits & 15)


def progress(data: Buffer, header: Header, scans: Sequence[Scan]) -> Progress:
    """Tell from the scan headers which bits of which coefficients there are (T.81, G.1.1.1).

    Where a bit is missing in the middle, the scans with the bits below mean nothing.
    """
    lowest: dict[int, list[int]] = {}
    for scan in scans:
        if (found := _parameters(data, scan)) is None:
            break
        for component in found.components:
            of = lowest.setdefault(component, [_NO_BIT] * 64)
            for k in range(min(found.first, 64), min(found.last, 63) + 1):
                is_next = found.before == 0 or of[k] <= found.before
                of[k] = found.low if is_next else _NO_BIT
    known = len(lowest) >= header.channels
    if not header.progressive:
        return Progress(known, known)
    worst = max((bit for of in lowest.values() for bit in of), default=_NO_BIT)
    return Progress(known and worst < _NO_BIT, known and worst == 0)


def has_zeros(data: Buffer, header: Header) -> bool:
    """Return whether there is a long run of zeros anywhere behind the header."""
    # A copy and `find` are much faster than a regular expression.
    return bytes(data).find(_ZEROS, header.scan_offset) >= 0


def may_be_zeros(data: Buffer, scan: Scan, size: int, header: Header) -> bool:
    """Return whether so many zeros in a scan may be data: a flat area, or a gradient.

    The code of only zeros is that of the first symbol of a table (T.81, annex C). There, blocks end
    at once. With other symbols of AC coefficients, zeros are the same coefficient at all places of
    a band, which no image has. But refinements have some single bits, too.
    """
    found = _parameters(data, scan)
    if found is None:
        return False
    if header.coding == "lossless" or (
        header.progressive
        and (found.first in (0, found.last) or (found.before > 0 and size <= _MOST_BITS))
    ):
        return True
    first = _first_symbols(data, scan.marker)
    mask = 15 if header.progressive else 255  # the end of one block, or of several
    return all(first.get(0x10 | table & 15, 1) & mask == 0 for table in found.tables)


def has_only_bits(data: Buffer, scan: Scan, header: Header) -> bool:
    """Return whether a scan has a single bit, without a code, for each block."""
    found = _parameters(data, scan)
    return header.progressive and found is not None and found.first == 0 and found.before > 0


def _first_symbols(data: Buffer, end: int) -> dict[int, int]:
    """Return the first symbol of the Huffman tables, by class and number, at an SOS marker."""
    found: dict[int, int] = {}
    marker = next_segment(data, 2)
    while marker < end:
        behind = after_segment(data, marker)
        pos = marker + 4
        while data[marker + 1] == _DHT and pos + 17 < behind:
            found[data[pos]] = data[pos + 17]
            pos += 17 + sum(data[pos + 1 : pos + 17])
        marker = next_segment(data, behind)
    return found


class Hole(NamedTuple):
    """A long run of zeros: its scan, and the end of the data, or of the restart interval."""

    scan: Scan
    end: int
    size: int


def holes(data: Buffer, scans: Sequence[Scan]) -> list[Hole]:
    """Return the longest run of zeros of each restart interval, or scan; the longest first.

    Zeros are legal codes: flat areas may consist of them, but so does what a download has not
    written yet.
    """
    found: dict[int, Hole] = {}
    for scan in scans:
        part = bytes(data[scan.start : scan.end])
        for run in _HOLE.finditer(part):
            restart = _RESTART.search(part, run.end()) if scan.interval else None
            end = scan.start + (restart.start() if restart else len(part))
            hole = Hole(scan, end, run.end() - run.start())
            found[end] = max(found.get(end, hole), hole, key=attrgetter("size"))
    return sorted(found.values(), key=attrgetter("size"), reverse=True)


def restarts_in_order(data: Buffer, scans: Sequence[Scan]) -> bool:
    """Return whether the restart markers count 0 to 7 (T.81, B.2.1); if not, blocks were lost."""
    for scan in scans:
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


def with_other_endings(
    data: Buffer, scans: Sequence[Scan], header: Header, ending: bytes = ENDINGS[0]
) -> bytes:
    """Insert one of `ENDINGS` at the end of each scan, and some of it in each restart interval.

    A decoder that already has all pixels ignores it, and returns the same image. A decoder that ran
    out of data and filled pixels in now decodes the ending, and returns another image. So missing
    pixels show with any decoder, even if it reports no warnings.
    """
    parts: list[Buffer] = []
    done = 0
    for scan in scans:
        more = _DROPPED_ZEROS + ending if header.coding == "arithmetic" else ending
        passed = list(_RESTART.finditer(data, scan.start, scan.end)) if scan.interval else []
        for found in passed if header.coding in ("baseline", "progressive") else ():
            parts += data[done : found.start()], ending[:_SOME]
            done = found.start()
        if scan.interval and len(passed) + 1 < _intervals(data, header, scan.marker, scan.interval):
            # After an interval a decoder skips everything up to the next restart marker.
            following = 0xD0 if not passed else 0xD0 | (data[passed[-1].end() - 1] + 1 & 7)
            more += bytes((0xFF, following)) + ending
        parts += data[done : scan.end], more
        done = scan.end
    return b"".join((*parts, data[done:]))


def without_last_bytes(data: Buffer, end: int, count: int, instead: bytes = b"") -> bytes:
    """Replace the last bytes of compressed data that ends at `end`; FF 00 is one of them."""
    begin = end - count
    if data[begin - 1] == 0xFF and data[begin] == 0:
        begin -= 1
    return b"".join((data[:begin], instead, data[end:]))
