"""JPEG: what the compressed data after the header gives away without decoding it.

Where it ends, whether all scans are there, what a codec's warning means, and how to find out
whether pixels are missing from a decoder that does not say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from fastdecode.types import Buffer, Header

EOI = b"\xff\xd9"
MAX_SCANS = 500
"""Scans of a progressive JPEG before it counts as hostile (libjpeg-turbo's fuzzers use 500)."""

_SOS = b"\xff\xda"

# libjpeg's warnings, jerror.h. All others, and every fatal error, mean that there is no image.
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
# JWRN_HIT_MARKER, JWRN_JPEG_EOF, JWRN_MUST_RESYNC: blocks were filled in, not decoded.
_MISSING = re.compile(r"[Pp]remature end|found marker 0x\w+ instead of RST")

_NOISE = bytes((211 + i * 167 + (i * i) % 251) % 255 for i in range(512))
ENDINGS = _NOISE, bytes(min(255 - byte, 254) for byte in _NOISE)
"""What follows real data, to ask whether a decoder would have wanted more of it.

Bytes like noise, so that whatever is decoded from them does not look like filling-in, with the bit
1 first, where decoders fill in zeros; and the opposite of those: the rest of an image may well be
the same for one of them. No byte is FF, which would start a marker.
"""
# The arithmetic coder may drop trailing zero bytes (T.81, D.1.8): that many are no proof of loss.
_DROPPED_ZEROS = bytes(6)
# A marker other than the restart markers, which belong to the data.
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
_RESTART = re.compile(rb"\xff[\xd0-\xd7]")
_END = re.compile(EOI)
# What may stand between two scans: tables, restart interval, APPn, COM, DNL; each with a length.
_BETWEEN_SCANS = frozenset({0xC4, 0xCC, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)})

_MOST_IN_SCAN = 4
"""Components, by T.81, B.2.3; a damaged header may promise more."""


class Scan(NamedTuple):
    """One scan: offsets in bytes of its SOS marker, and of its data's beginning and end."""

    marker: int
    start: int
    end: int


class ScanScript(NamedTuple):
    """How many scans, to just above `MAX_SCANS`; if they bring every coefficient whole."""

    number: int
    complete: bool


def has_end(data: Buffer, header: Header) -> bool:
    """Whether an end marker (EOI) closes the image, whatever trails it."""
    # In entropy-coded data FF is always followed by 00 or a restart marker (T.81, F.1.2.3).
    if data[-2:] == EOI:
        return True
    if isinstance(data, bytes):  # which is much faster
        return data.find(EOI, header.scan_offset) >= 0
    return _END.search(data, header.scan_offset) is not None


def _scans(data: Buffer, header: Header) -> Iterator[Scan]:
    """Yield the scans, at most one more than `MAX_SCANS`; any other marker ends the data, too."""
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
    """Offset of the first SOS marker: its own length leads back from where its data starts."""
    for components in range(1, 5):
        marker = header.scan_offset - (6 + 2 * components) - 2
        if data[marker : marker + 2] == _SOS:
            return marker
    return header.scan_offset


def _next_scan(data: Buffer, pos: int) -> int:
    """Offset of the next SOS marker, if only tables lie between; -1 if the image ends here."""
    while pos + 4 <= len(data) and data[pos] == 0xFF:
        marker = data[pos + 1]
        if marker == 0xDA:
            return pos
        if marker not in _BETWEEN_SCANS:
            break
        pos += 2 + max(data[pos + 2] << 8 | data[pos + 3], 2)
    return -1


def in_one_scan(data: Buffer, header: Header) -> bool:
    """Whether the first scan holds all components: only a sequential JPEG is looked at."""
    if header.coding not in ("baseline", "arithmetic"):
        return True
    count = header.channels
    if count > _MOST_IN_SCAN:
        return False
    begin = header.scan_offset - (6 + 2 * count) - 2
    return begin >= 0 and data[begin : begin + 5] == bytes((0xFF, 0xDA, 0, 6 + 2 * count, count))


def scan_script(data: Buffer, header: Header) -> ScanScript:
    """Walk the scan headers: components, band Ss..Se, lowest bit position Al (T.81, B.2.3)."""
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
    if not header.progressive:  # the band and the bits have no meaning there, and may be anything
        return ScanScript(number, known)
    return ScanScript(number, known and not any(any(precision) for precision in left.values()))


def outer_scans(data: Buffer, header: Header) -> list[Scan]:
    """Return the first scan and the last: where pixels are missing, one of them shows it."""
    scans = list(_scans(data, header))
    return scans[:1] if len(scans) == 1 else [scans[0], scans[-1]]


def restarts_in_order(data: Buffer, header: Header) -> bool:
    """Whether restart markers count from 0 to 7 (T.81, B.2.1): else blocks were lost."""
    for scan in _scans(data, header):
        for index, found in enumerate(_RESTART.finditer(data, scan.start, scan.end)):
            if data[found.end() - 1] & 7 != index & 7:
                return False
    return True


def says_missing_pixels(warning: str) -> bool:
    """Whether a libjpeg warning means that part of the image was not in the data."""
    return _MISSING.search(warning) is not None


def is_recoverable(warning: str) -> bool:
    """Whether a libjpeg message is a warning after which every pixel still came from the data."""
    return _RECOVERABLE.search(warning) is not None and not says_missing_pixels(warning)


def without_half_marker(data: Buffer) -> bytes:
    """Drop the FF that is left of a marker cut in two, so that an EOI can follow."""
    return bytes(data).rstrip(b"\xff")


def with_other_ending(
    data: Buffer, scan: Scan, header: Header, ending: bytes = ENDINGS[0]
) -> bytes:
    """Put one of `ENDINGS` where the compressed data of one of the `outer_scans` ends.

    A decoder that has all its pixels by then ignores it and gives the same image; one that ran out
    and filled in decodes it, and gives another. This tells missing pixels from complete ones with
    any decoder, whether or not it reports warnings.
    """
    more = ending
    if header.coding == "arithmetic":
        more = _DROPPED_ZEROS + more
    if header.restart_interval:
        # Between two intervals a decoder skips everything up to the next restart marker.
        passed = [data[m.end() - 1] for m in _RESTART.finditer(data, scan.start, scan.end)]
        following = 0xD0 if not passed else 0xD0 | (passed[-1] + 1 & 7)
        more += bytes((0xFF, following)) + ending
    return b"".join((data[: scan.end], more, data[scan.end :]))
