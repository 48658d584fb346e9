"""JPEG: its header, and checks of the compressed data behind that, without decoding it.

The core reads the segments and tells where the scans are, and whether all are present
(``structure.c``). This says it in words, tells what a codec's warning means, and helps to find
missing pixels if the decoder does not report them.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from fastdecode._formats import NoFallback, exif
from fastdecode.errors import DecodeError
from fastdecode.native._library import COLORS, ffi, header, lib, probe
from fastdecode.types import Buffer, Coding, Header, Image, Reduce

_SOF: dict[int, Coding] = {
    0xC0: "baseline",
    0xC1: "baseline",
    0xC2: "progressive",
    0xC3: "lossless",
    0xC5: "other",
    0xC6: "other",
    0xC7: "other",
    0xC9: "arithmetic",
    0xCA: "arithmetic",
    0xCB: "other",
    0xCD: "other",
    0xCE: "other",
    0xCF: "other",
    0xF7: "jpeg-ls",
}
_SOS, _APP1 = 0xDA, 0xE1

_BLOCK = 8
"""Width and height of the block of one DCT, in samples (T.81, A.3.1)."""

_PROGRESSIVE = frozenset({0xC2, 0xCA})

# Ratio of luma to chroma sampling, (horizontal, vertical), and its usual name.
_SUBSAMPLING = {
    (1, 1): "4:4:4",
    (2, 1): "4:2:2",
    (2, 2): "4:2:0",
    (1, 2): "4:4:0",
    (4, 1): "4:1:1",
    (1, 4): "4:4:1",
    (4, 2): "4:1:0",
}


def parse(data: Buffer) -> Header:
    """Read a JPEG's header: every segment up to the first scan. The file starts with FF D8."""
    # It runs for every image, with a cold cache after the previous one: so it makes few calls and
    # objects.
    # fmt: off
    (width, height, channels, bits, sof, interval, turns, _, color, _, _, _, factors, scan,
     _, begin, end, *xmp) = header(data, "JPEG")
    orientation = 1
    if turns:
        orientation = exif.orientation(data, begin, end, memoryview(data)[slice(*xmp)])
    return Header(
        "jpeg", width, height, channels, bits, orientation,
        sof in _PROGRESSIVE, _subsampling(factors[:channels]), interval, COLORS[color],
        _SOF[sof], False, scan,
    )
    # fmt: on


def _segments(data: Buffer) -> Iterator[tuple[int, int, int]]:
    """Yield (marker, start, end) of each segment up to the first scan, in a file that has one."""
    found = ffi.new("fd_segment *", {"end": 2})
    view = ffi.from_buffer("uint8_t[]", data)
    while found.marker != _SOS:
        lib.fd_next_segment(view, len(view), found.end, found)
        yield found.marker, found.at, found.end


def with_plain_size(data: Buffer, header: Header, reduce: Reduce) -> tuple[Buffer, int, int]:
    """Prepare a file for a decoder that takes a size instead of a reduction.

    Return the file to decode, and the height and width to ask for. Below 8 pixels, 1/2 and 3/8 of a
    side may be the same number, so the size would not determine the reduction. If both sides are
    below 8, the frame header of the returned file says 8 for one of them. The blocks have these
    pixels anyway, and the caller cuts off those beyond the image.

    The compressed data and the number of blocks in every scan stay the same. The side that changes
    is one along which no subsampled chroma is interpolated: interpolation depends on where the side
    ends.
    """
    width, height = header.width, header.height
    if reduce > 1 and max(width, height) < _BLOCK:
        upright = header.subsampling in ("4:4:0", "4:4:1")
        width, height = (_BLOCK, height) if upright else (width, _BLOCK)
        sides = probe(data).frame + 1
        data = b"".join((data[:sides], struct.pack(">HH", height, width), data[sides + 4 :]))
    return data, -(-height // reduce), -(-width // reduce)


def without_exif(data: Buffer) -> bytes:
    """Return a JPEG whose header was already read without its EXIF and XMP (APP1)."""
    parts, begin = [], 0
    for marker, start, end in _segments(data):
        if marker == _APP1:
            parts.append(data[begin:start])
            begin = end
    return b"".join((*parts, data[begin:]))


@lru_cache(maxsize=256)
def _subsampling(factors: bytes) -> str:
    """Return the name of the sampling, given each component's (horizontal << 4 | vertical)."""
    count = len(factors)
    if count < 3:
        return ""
    luma, cb, cr = factors[0], factors[1], factors[2]
    if cb == cr and (count == 3 or factors[3] == luma):
        h, v = cb >> 4, cb & 15
        if h and v and not (luma >> 4) % h and not (luma & 15) % v:
            name = _SUBSAMPLING.get(((luma >> 4) // h, (luma & 15) // v))
            if name:
                return name
    return ",".join(f"{f >> 4}x{f & 15}" for f in factors)


# ---- what follows the header ----

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
_DROPPED_ZEROS = bytes(6)
"""An arithmetic coder may leave out zeros at the end of the data (T.81, D.1.8)."""
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
    if header.coding not in ("baseline", "lossless"):
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
    found = []
    for scan in scans:
        part = bytes(data[scan.start : scan.end])
        restarts = _RESTART.finditer(part) if scan.interval else ()
        for begin, end in pairwise((0, *(marker.start() for marker in restarts), len(part))):
            size = max(map(len, _HOLE.findall(part, begin, end)), default=0)
            if size:
                found.append(Hole(scan, scan.start + end, size))
    return sorted(found, key=attrgetter("size"), reverse=True)


def without_padding(data: Buffer) -> bytes:
    """Return a JPEG without the zeros behind its last scan, if none of its scans is missing.

    Between two scans they may stand in place of a table.
    """
    stream = read(data)
    end = stream.scans[-1].end
    return bytes(data[:end]).rstrip(b"\0") + data[end:] if stream.complete else bytes(data)


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


# ---- missing pixels, before and after decoding ----

_NO_END = "the JPEG has no end marker (EOI)"
_ENDS_EARLY = "pixels are missing: the compressed data ends before the image does"
_SCANS = "pixels are missing: there is no scan of one of the colour components"
_FIRST_BITS = "pixels are missing: there is no scan with the first bits of some coefficients"
_RESTARTS = "pixels are missing: restart markers are out of turn"
WRONG_ZEROS = "pixels are missing: there are zeros in the data that no encoder writes"
LEFT_OVER = "pixels are missing: there are zeros in the data, and bytes left over behind it"
# Decoders fill blocks without data with luma 128; conversion may round it.
_FILLED_IN = range(126, 131)
# Bytes that change pixels if a file needs them. A few may change only what is clipped, rounded or
# not visible.
_TELLING = 64
_MOST_HOLES = 8  # that are tried out
_SECOND_CODE = b"\x80" + ENDINGS[0]  # there is a code 10…, if there are two codes


class CheckedJpeg(NamedTuple):
    """What the data shows of a JPEG before it is decoded."""

    data: Buffer  # with an end marker
    complete: bool  # all scans of a progressive file are there
    suspect: bool  # a decoder may return an image although data is missing


def check_structure(data: Buffer, header: Header, *, strict: bool) -> CheckedJpeg:
    """Check the structure of a JPEG's compressed data, and add the end marker if it is missing.

    Raises `DecodeError` if pixels are missing, or if there are more scans than real files have.
    """
    found = read(data)
    if len(found.scans) > found.most:
        raise DecodeError(
            f"the JPEG has more than {found.most} scans in {len(data)} bytes, which can cost "
            "seconds or minutes: refused as hostile"
        )
    if not found.begun:
        raise DecodeError(_FIRST_BITS if header.progressive else _SCANS)
    if found.gap:
        raise DecodeError(WRONG_ZEROS)
    if found.ended:
        return CheckedJpeg(data, found.complete == 1, suspect=False)
    if strict:
        raise DecodeError(_NO_END)
    if not found.complete:
        raise DecodeError(f"{_NO_END}, and the last scans of the image are missing")
    if len(data) <= header.scan_offset:
        raise DecodeError(f"{_NO_END}, and no compressed data")
    if header.coding == "arithmetic":
        raise DecodeError(f"{_NO_END}, and arithmetic coding does not tell whether data is missing")
    closed = without_half_marker(data) + EOI
    return CheckedJpeg(closed, complete=True, suspect=True)


def looks_filled_in(image: Image) -> bool:
    """Return whether the last pixel has the value with which decoders fill missing data.

    Only luma counts: interpolated chroma may reach in from neighbouring blocks.
    """
    last = [int(value) for value in np.atleast_1d(image[-1, -1])]
    if len(last) < 3:
        return last[0] in _FILLED_IN
    return (299 * last[0] + 587 * last[1] + 114 * last[2]) // 1000 in _FILLED_IN


def verify(
    image: Image, data: Buffer, header: Header, decode_again: Callable[[Buffer], Image]
) -> None:
    """Check that no pixel was filled in, for a decoder that may not report missing data.

    It puts other bytes after each scan: the pixels change only if the decoder read beyond a scan.
    `decode_again` decodes other data just as `image` was decoded.
    """
    scans = read(data).scans
    for ending in ENDINGS:
        other = with_other_endings(data, scans, header, ending)
        if changes(image, decode_again, other):
            raise NoFallback(_ENDS_EARLY)


def changes(image: Image, decode_again: Callable[[Buffer], Image], other: bytes) -> bool:
    """Return whether other data gives another image, or none."""
    try:
        return not np.array_equal(image, decode_again(other))
    except DecodeError:
        return True


def check_zeros(
    data: Buffer, header: Header, decode_again: Callable[[Buffer], Image], *, reports: bool
) -> None:
    """Check that zeros in the data are data, as they are in flat areas.

    But zeros in place of data decode to another number of blocks. So they are an error, too, if the
    last bytes of their scan, or restart interval, are not needed. `decode_again` decodes all pixels
    and components; with `reports` it raises an error if pixels are missing.
    """
    stream = read(data)
    places = holes(data, stream.scans)
    if not places:
        return
    # An arithmetic decoder reads zeros behind the data for ever, and a flat area needs few.
    wrong = any(header.coding == "arithmetic" or size > scan.zeros for scan, _, size in places)
    if wrong or not (stream.complete or reports):
        raise NoFallback(WRONG_ZEROS)
    whole = decode_again(data)
    lossless = header.coding == "lossless"  # there, each bit changes pixels
    endings = (b"",) if reports else (_SECOND_CODE, *ENDINGS) if lossless else ENDINGS

    def tells(end: int, count: int) -> bool:
        """Return whether the image depends on so many bytes before `end`."""
        others = (without_last_bytes(data, end, count, ending) for ending in endings)
        return any(changes(whole, decode_again, other) for other in others)

    for scan, end, _ in places[:_MOST_HOLES]:
        if not reports and scan.has_only_bits:
            continue  # they may change pixels by less than one level
        count = end - scan.start
        few = 1 if reports or lossless else min(_TELLING, count)
        if not tells(end, few) and tells(end, count):
            raise NoFallback(LEFT_OVER)


def check_restarts(data: Buffer) -> None:
    """Check that no restart interval was lost, for a decoder that does not report it.

    Any scan may have intervals: the header knows those of the first alone.
    """
    if not read(data).in_order:
        raise NoFallback(_RESTARTS)
