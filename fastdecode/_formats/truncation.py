"""Detect missing pixels in JPEGs and container formats, before and after decoding."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fastdecode._formats import jpeg_stream, png
from fastdecode.errors import DecodeError

if TYPE_CHECKING:
    from fastdecode.types import Buffer, Format, Header, Image

_MISSING_IN = frozenset({"bmp", "tiff", "avif", "heic", "pnm"})
"""Formats whose module has a function `missing`."""
_EXCESS_IN = frozenset({"png", "jpeg2000", "tiff"})
"""Formats whose module has a function `excess`."""
_NO_END = "the JPEG has no end marker (EOI)"
_MISSING = "pixels are missing: the compressed data ends before the image does"
_SCANS = "pixels are missing: there is no scan of one of the colour components"
_FIRST_BITS = "pixels are missing: there is no scan with the first bits of some coefficients"
_RESTARTS = "pixels are missing: restart markers are out of turn"
_ZEROS = "pixels are missing: there are zeros in the data that no encoder writes"
_LEFT_OVER = "pixels are missing: there are zeros in the data, and bytes left over behind it"
# Decoders fill blocks without data with luma 128; conversion may round it.
_FILLED_IN = range(126, 131)
# Bytes that change pixels if a file needs them. A few may change only what is clipped, rounded or
# not visible.
_TELLING = 64
_MOST_HOLES = 8  # that are tried out
_SECOND_CODE = b"\x80" + jpeg_stream.ENDINGS[0]  # there is a code 10…, if there are two codes
_FEWEST_ZEROS = 16
# Bytes at the end of a WebP, of which some are not needed: of a lossless one two at most.
_LAST, _LAST_LOSSLESS = 8, 3
_FLUSHED = 2  # bytes with which its coder may end, which may be zeros


class NoFallback(DecodeError):
    """An error that no other backend can avoid: pixels are missing, or `strict` refuses it."""


class CheckedJpeg(NamedTuple):
    """What the data shows of a JPEG before it is decoded."""

    data: Buffer  # with an end marker
    complete: bool  # all scans of a progressive file are there
    suspect: bool  # a decoder may return an image although data is missing


def check_container(data: Buffer, header: Header) -> Buffer:
    """Check that a file is as long as its tables say, where decoders do not check it.

    TIFF, AVIF, HEIC, BMP and PNM need this. The other formats are read in order, so their
    decoders notice missing data. A few bytes of PNG, JPEG 2000 or TIFF may cost a decoder seconds.
    Return what to decode.
    """
    form = header.format
    if form in _EXCESS_IN and (words := _module(form).excess(data, header)):
        raise DecodeError(f"{words}: refused as hostile")
    if form not in _MISSING_IN:
        return data
    try:
        words = _module(form).missing(data, header)
        if not words:
            return _module(form).without_padding(data) if form == "tiff" else data
    except (IndexError, OverflowError, struct.error):
        words = f"the tables of its parts are truncated ({len(data)} bytes)"
    raise DecodeError(f"pixels are missing: {words}")


@cache
def _module(form: Format) -> Any:
    """Return a module that `probe` has imported already. A JPEG needs none of them."""
    return importlib.import_module(f"fastdecode._formats.{form}")


def only_pixels(data: Buffer, header: Header, *, strict: bool) -> bytes:
    """Return a PNG with only its pixels, for a decoder that may accept damage, or refuse metadata.

    Raises `DecodeError` if pixels are missing; with `strict`, if anything is damaged.
    """
    try:
        pixels, odd = png.only_pixels(data, header)
    except DecodeError as error:
        raise NoFallback(str(error)) from error
    if strict and odd:
        raise NoFallback(odd)
    return pixels


def check_jpeg(data: Buffer, header: Header, *, strict: bool) -> CheckedJpeg:
    """Check the structure of a JPEG's compressed data, and add the end marker if it is missing.

    Raises `DecodeError` if pixels are missing, or if there are more scans than real files have.
    """
    found = jpeg_stream.read(data)
    if len(found.scans) > found.most:
        raise DecodeError(
            f"the JPEG has more than {found.most} scans in {len(data)} bytes, which can cost "
            "seconds or minutes: refused as hostile"
        )
    if not found.begun:
        raise DecodeError(_FIRST_BITS if header.progressive else _SCANS)
    if found.gap:
        raise DecodeError(_ZEROS)
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
    closed = jpeg_stream.without_half_marker(data) + jpeg_stream.EOI
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
    image: Image, data: Buffer, header: Header, decode_again: Callable[[bytes], Image]
) -> None:
    """Check that no pixel was filled in, for a decoder that may not report missing data.

    It puts other bytes after each scan: the pixels change only if the decoder read beyond a scan.
    `decode_again` decodes other data just as `image` was decoded.
    """
    scans = jpeg_stream.read(data).scans
    for ending in jpeg_stream.ENDINGS:
        other = jpeg_stream.with_other_endings(data, scans, header, ending)
        if _changes(image, decode_again, other):
            raise NoFallback(_MISSING)


def _changes(image: Image, decode_again: Callable[[bytes], Image], other: bytes) -> bool:
    """Return whether other data gives another image, or none."""
    try:
        return not np.array_equal(image, decode_again(other))
    except DecodeError:
        return True


def verify_ls(image: Image, data: Buffer, decode_again: Callable[[bytes], Image]) -> None:
    """Check that the last byte of a JPEG-LS is there.

    CharLS reports all other missing bytes, and bytes that are left over. So one is missing if it
    has room for one more that changes the image. It also has room if the data fills its last byte.
    """
    end = jpeg_stream.read(data).scans[-1].end
    try:
        longer = decode_again(b"".join((data[:end], b"\x80", data[end:])))
    except DecodeError:
        return
    if not np.array_equal(image, longer):
        raise NoFallback(_MISSING)


def check_webp(image: Image, data: Buffer, decode_again: Callable[[bytes], Image]) -> None:
    """Check that zeros in a WebP are data, as `check_zeros` does.

    Its coder may write flat areas as zeros, too, but ends where they do.
    """
    from fastdecode._formats import webp  # `probe` has imported it already

    start, end = webp.coded(data)
    coded, many = bytes(data[start:end]), bytes(_FEWEST_ZEROS)
    if many not in coded:
        return
    needed = coded.rstrip(b"\0")
    if many not in needed:  # but behind it, where they may be more than the pixels need
        spare = end - start - len(needed) - _FLUSHED
        others = ((ending * spare)[:spare] for ending in jpeg_stream.ENDINGS)
        longer = (b"".join((data[: end - spare], other, data[end:])) for other in others)
        if not any(_changes(image, decode_again, other) for other in longer):
            return
    last = _LAST_LOSSLESS if webp.is_lossless(data, start) else _LAST
    for ending in jpeg_stream.ENDINGS:
        other = b"".join((data[: end - last], ending[:last], data[end:]))
        if _changes(image, decode_again, other):
            return
    raise NoFallback(_LEFT_OVER)


def without_padding(data: Buffer) -> list[bytes]:
    """Return a JPEG without the zeros behind its data; first without many, then without any.

    None, if a scan is missing, in whose place they may stand.
    """
    found = jpeg_stream.read(data)
    counts = (_FEWEST_ZEROS, 1) if found.complete else ()
    tight = (jpeg_stream.without_padding(data, found.scans, count) for count in counts)
    return [other for other in tight if len(other) < len(data)]


def check_zeros(
    data: Buffer, header: Header, decode_again: Callable[[bytes], Image], *, reports: bool
) -> None:
    """Check that zeros in the data are data, as they are in flat areas.

    But zeros in place of data decode to another number of blocks. So they are an error, too, if the
    last bytes of their scan, or restart interval, are not needed. `decode_again` decodes all pixels
    and components; with `reports` it raises an error if pixels are missing.
    """
    found = jpeg_stream.read(data)
    holes = jpeg_stream.holes(data, found.scans)
    for scan, end, size in holes:
        in_place_of_a_scan = not found.complete and not any(data[end - _FEWEST_ZEROS : scan.end])
        # An arithmetic decoder reads zeros behind the data for ever, and a flat area needs few.
        if (
            header.coding == "arithmetic"
            or size > scan.zeros
            or (in_place_of_a_scan and not reports)
        ):
            raise NoFallback(_ZEROS)
    if not holes:
        return
    whole = decode_again(bytes(data))
    lossless = header.coding == "lossless"  # there, each bit changes pixels
    endings = (_SECOND_CODE, *jpeg_stream.ENDINGS) if lossless else jpeg_stream.ENDINGS

    def tells(end: int, count: int) -> bool:
        """Return whether the image depends on so many bytes before `end`."""
        return any(
            _changes(whole, decode_again, jpeg_stream.without_last_bytes(data, end, count, ending))
            for ending in ((b"",) if reports else endings)
        )

    for scan, end, _ in holes[:_MOST_HOLES]:
        if not reports and scan.has_only_bits:
            continue  # they may change pixels by less than one level
        count = end - scan.start
        few = 1 if reports or lossless else min(_TELLING, count)
        if not tells(end, few) and tells(end, count):
            raise NoFallback(_LEFT_OVER)


def check_restarts(data: Buffer) -> None:
    """Check that no restart interval was lost, for a decoder that does not report it.

    Any scan may have intervals: the header knows those of the first alone.
    """
    if not jpeg_stream.read(data).in_order:
        raise NoFallback(_RESTARTS)
