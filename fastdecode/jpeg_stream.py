"""JPEG: what the compressed data after the header gives away without decoding it.

Where it ends, whether all scans are there, what a codec's warning means, and how to find out
whether pixels are missing from a decoder that does not say so.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from fastdecode.types import Buffer, Header

__all__ = [
    "EOI",
    "MAX_SCANS",
    "ScanScript",
    "ends_of_data",
    "has_end",
    "is_recoverable",
    "says_missing_pixels",
    "scan_script",
    "with_other_ending",
    "without_half_marker",
]

EOI = b"\xff\xd9"
MAX_SCANS = 500
"""Scans of a progressive JPEG before it counts as hostile (libjpeg-turbo's fuzzers use 500)."""

_SOS = b"\xff\xda"

# libjpeg's warnings, jerror.h. All others, and every fatal error, mean that there is no picture.
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

# What follows real data, when we ask whether a decoder would have wanted more of it: bytes like
# noise, so that whatever is decoded from them does not look like filling-in. The first bit is 1,
# where decoders fill in zeros; no byte is FF, which would start a marker.
_ENTROPY = bytes((211 + i * 167 + (i * i) % 251) % 255 for i in range(512))
# The arithmetic coder may drop trailing zero bytes (T.81, D.1.8): that many are no proof of loss.
_DROPPED_ZEROS = bytes(6)
# A marker other than the restart markers, which belong to the data.
_MARKER = re.compile(rb"\xff[^\x00\xff\xd0-\xd7]", re.DOTALL)
# What may stand between two scans: tables, restart interval, APPn, COM, DNL; each with a length.
_BETWEEN_SCANS = frozenset({0xC4, 0xCC, 0xDB, 0xDC, 0xDD, 0xFE, *range(0xE0, 0xF0)})


class ScanScript(NamedTuple):
    """The scans of a progressive JPEG.

    Attributes
    ----------
    number : int
        How many there are; counting stops just above `MAX_SCANS`.
    complete : bool
        Every coefficient of every component reaches its full precision.
    """

    number: int
    complete: bool


def _find(data: Buffer, needle: bytes, start: int) -> int:
    """`bytes.find` for every kind of buffer."""
    if isinstance(data, bytes):
        return data.find(needle, start)
    found = re.compile(re.escape(needle)).search(data, start)
    return found.start() if found else -1


def has_end(data: Buffer, header: Header) -> bool:
    """Whether an end marker (EOI) closes the picture, whatever trails it.

    Notes
    -----
    In entropy-coded data FF is always followed by 00 or a restart marker (T.81, F.1.2.3), so that
    an EOI after the first scan's header is a real one.
    """
    return data[-2:] == EOI or _find(data, EOI, header.scan_offset) >= 0


def ends_of_data(data: Buffer, header: Header) -> list[int]:
    """Find where decoders stop reading compressed data.

    Returns
    -------
    list of int
        Offsets in bytes: the end of the first scan's data, and, where there are more scans, the end
        of the last one's. A marker that has no business there also ends the data.
    """
    ends: list[int] = []
    pos = header.scan_offset
    for _ in range(MAX_SCANS):
        found = _MARKER.search(data, pos)
        end = found.start() if found else len(data)
        next_scan = _next_scan(data, end)
        while data[end - 1] == 0xFF:  # fill bytes belong to the marker
            end -= 1
        ends.append(end)
        if next_scan < 0:
            break
        pos = next_scan
    return [ends[0]] if len(ends) == 1 else [ends[0], ends[-1]]


def _next_scan(data: Buffer, pos: int) -> int:
    """Offset of the next scan's data, if only tables lie between; -1 if the picture ends here."""
    while pos + 4 <= len(data) and data[pos] == 0xFF:
        marker = data[pos + 1]
        length = data[pos + 2] << 8 | data[pos + 3]
        if marker == 0xDA:
            return pos + 2 + length
        if marker not in _BETWEEN_SCANS:
            break
        pos += 2 + length
    return -1


def scan_script(data: Buffer, header: Header) -> ScanScript:
    """Walk the scan headers of a progressive JPEG.

    Notes
    -----
    T.81, B.2.3 and G.1.1.1: a scan names its components, its band of coefficients Ss..Se and the
    bit position Al down to which it refines them.
    """
    left: dict[int, list[int]] = {}
    count = 0
    pos = _find(data, _SOS, _first_scan(data, header))
    size = len(data)
    while pos >= 0 and count <= MAX_SCANS and pos + 5 < size:
        count += 1
        components = data[pos + 4]
        tail = pos + 5 + 2 * components
        if tail + 2 < size:
            band = range(min(data[tail], 64), min(data[tail + 1], 63) + 1)
            for i in range(components):
                precision = left.setdefault(data[pos + 5 + 2 * i], [15] * 64)
                for k in band:
                    precision[k] = data[tail + 2] & 15
        pos = _find(data, _SOS, pos + 2)
    known = len(left) >= header.channels
    return ScanScript(count, known and not any(any(precision) for precision in left.values()))


def _first_scan(data: Buffer, header: Header) -> int:
    """Offset of the first SOS marker: its own length leads back from where its data starts."""
    components = header.channels
    for count in range(1, components + 1):
        start = header.scan_offset - (6 + 2 * count) - 2
        if data[start : start + 2] == _SOS:
            return start
    return header.scan_offset


def says_missing_pixels(warning: str) -> bool:
    """Whether a libjpeg warning means that part of the picture was not in the data."""
    return _MISSING.search(warning) is not None


def is_recoverable(warning: str) -> bool:
    """Whether a libjpeg message is a warning after which every pixel still came from the data."""
    return _RECOVERABLE.search(warning) is not None and not says_missing_pixels(warning)


def without_half_marker(data: Buffer) -> bytes:
    """Drop the FF that is left of a marker cut in two, so that an EOI can follow."""
    return bytes(data).rstrip(b"\xff")


def with_other_ending(data: Buffer, end: int, header: Header) -> bytes:
    """Put other data where the compressed data ends.

    A decoder that has all its pixels by then ignores it and gives the same picture; one that ran
    out and filled in decodes it, and gives another. This tells missing pixels from complete ones
    with any decoder, whether or not it reports warnings.

    Parameters
    ----------
    data : bytes or memoryview
    end : int
        One of `ends_of_data`, in bytes.
    header : Header

    Returns
    -------
    bytes
    """
    dropped = _DROPPED_ZEROS if header.coding == "arithmetic" else b""
    return b"".join((data[:end], dropped, _ENTROPY, data[end:]))
