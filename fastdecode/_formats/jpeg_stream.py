"""JPEG: checks of the compressed data after the header, without decoding it.

The core tells where the scans are, and whether all are present (``structure.c``). This tells what a
codec's warning means, and helps to find missing pixels if the decoder does not report them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from fastdecode.errors import DecodeError
from fastdecode.native._library import ffi, lib
from fastdecode.types import Buffer, Header

EOI = b"\xff\xd9"

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
_ZEROS = bytes(16)  # FD_MANY_ZEROS
_HOLE = re.compile(rb"\0{16,}")

_MAX_IN_SCAN = 4
"""The most components of a scan (T.81, B.2.3); a damaged header may promise more."""

_scans = struct.Struct("4N3q").iter_unpack
_SCAN_BYTES = ffi.sizeof("fd_scan_place")


class Scan(NamedTuple):
    """One scan, as ``fd_scan_place``."""

    marker: int  # offsets of its SOS marker, and of the beginning and end of its data
    start: int
    end: int
    zeros: int  # most zeros in a row that may be data: a flat area, or a gradient
    interval: int  # MCUs between restart markers; 0 is none
    intervals: int  # that it must have
    has_only_bits: int  # a single bit, without a code, for each block


class Stream(NamedTuple):
    """What follows a header, as ``fd_stream``."""

    most: int  # scans that the file may have before it counts as hostile
    ended: int  # an end marker (EOI) follows the scans
    gap: int  # there is a long run of zeros between two segments
    begun: int  # there is a part of each coefficient,
    complete: int  # and all bits of it
    in_order: int  # the restart markers count 0 to 7; if not, blocks were lost
    scans: list[Scan]  # at most 501


def read(data: Buffer) -> Stream:
    """Walk over the segments and scans of a JPEG whose header was already read."""
    found = ffi.new("fd_stream *")
    if lib.fd_read_scans(ffi.from_buffer("uint8_t[]", data), len(data), found):
        raise DecodeError("the JPEG header is damaged")
    places = ffi.buffer(found.scans, found.count * _SCAN_BYTES)
    scans = [Scan(*place) for place in _scans(places)]
    told = found.most, found.ended, found.gap, found.begun, found.complete, found.in_order
    return Stream(*told, scans)


def in_one_scan(data: Buffer, header: Header) -> bool:
    """Return whether the first scan contains all components; True unless it is sequential."""
    if header.coding not in ("baseline", "arithmetic", "lossless"):
        return True
    count = header.channels
    if count > _MAX_IN_SCAN:
        return False
    begin = header.scan_offset - (6 + 2 * count) - 2
    return begin >= 0 and data[begin : begin + 5] == bytes((0xFF, 0xDA, 0, 6 + 2 * count, count))


def has_zeros(data: Buffer, header: Header) -> bool:
    """Return whether there is a long run of zeros anywhere behind the header."""
    # A copy and `find` are much faster than a regular expression.
    return bytes(data).find(_ZEROS, header.scan_offset) >= 0


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


def without_padding(data: Buffer, scans: Sequence[Scan], fewest: int) -> bytes:
    """Remove so many zeros, or more, behind the last scan and in front of restart markers.

    Between two scans they may stand in place of a table.
    """
    parts, begin = [], 0
    for scan in scans:
        restarts = _RESTART.finditer(data, scan.start, scan.end) if scan.interval else ()
        last = (scan.end,) if scan is scans[-1] else ()
        for end in (*(found.start() for found in restarts), *last):
            part = bytes(data[begin:end])
            parts.append(part.rstrip(b"\0") if part.endswith(bytes(fewest)) else part)
            begin = end
    return b"".join((*parts, data[begin:]))


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
        if len(passed) + 1 < scan.intervals:
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
