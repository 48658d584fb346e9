"""Detect missing pixels in JPEGs and container formats, before and after decoding."""

from __future__ import annotations

import importlib
import struct
from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fastdecode._headers import jpeg_stream
from fastdecode.errors import DecodeError

if TYPE_CHECKING:
    from fastdecode.types import Buffer, Format, Header, Image

# Modules under `fastdecode._headers` with a function `missing`.
_MODULES: dict[Format, str] = {
    "bmp": "bmp",
    "tiff": "tiff",
    "avif": "isobmff",
    "heic": "isobmff",
    "pnm": "pnm",
}
# Modules with a function `excess`.
_EXCESS: dict[Format, str] = {"png": "png", "jpeg2000": "jpeg2000", "tiff": "tiff"}
_NO_END = "the JPEG has no end marker (EOI)"
_MISSING = "pixels are missing: the compressed data ends before the image does"
_SCANS = "pixels are missing: there is no scan of one of the colour components"
_RESTARTS = "pixels are missing: restart markers are out of turn"
# Decoders fill blocks without data with luma 128; conversion may round it.
_FILLED_IN = range(126, 131)


class NoFallback(DecodeError):
    """An error that no other backend can avoid: pixels are missing, or `strict` refuses it."""


class CheckedJpeg(NamedTuple):
    """What the data shows of a JPEG before it is decoded."""

    data: Buffer  # with an end marker
    complete: bool  # all scans of a progressive file are there
    suspect: bool  # a decoder may return an image although data is missing


def check_container(data: Buffer, header: Header) -> None:
    """Check that a file is as long as its tables say, where decoders do not check it.

    TIFF, AVIF, HEIC, BMP and PNM need this. The other formats are read in order, so their
    decoders notice missing data. A few bytes of PNG, JPEG 2000 or TIFF may cost a decoder seconds.
    """
    # `probe` has imported the module already. A JPEG needs none of them.
    module = _EXCESS.get(header.format)
    if module is not None:
        words: str = importlib.import_module(f"fastdecode._headers.{module}").excess(data, header)
        if words:
            raise DecodeError(f"{words}: refused as hostile")
    module = _MODULES.get(header.format)
    if module is None:
        return
    try:
        words = importlib.import_module(f"fastdecode._headers.{module}").missing(data)
    except (IndexError, OverflowError, struct.error):
        words = f"the tables of its parts are truncated ({len(data)} bytes)"
    if words:
        raise DecodeError(f"pixels are missing: {words}")


def check_jpeg(data: Buffer, header: Header, *, strict: bool) -> CheckedJpeg:
    """Check the structure of a JPEG's compressed data, and add the end marker if it is missing.

    Raises `DecodeError` if pixels are missing, or if there are more scans than real files have.
    """
    complete = True
    if header.progressive or not jpeg_stream.in_one_scan(data, header):
        number, complete = jpeg_stream.scan_script(data, header)
        most = jpeg_stream.most_scans(header, len(data))
        if number > most:
            raise DecodeError(
                f"the JPEG has more than {most} scans in {len(data)} bytes, which can cost seconds "
                "or minutes: refused as hostile"
            )
    if not (complete or header.progressive):
        raise DecodeError(_SCANS)
    if jpeg_stream.has_end(data, header):
        return CheckedJpeg(data, complete, not complete)
    if strict:
        raise DecodeError(_NO_END)
    if not complete:
        raise DecodeError(f"{_NO_END}, and the last scans of the image are missing")
    if len(data) <= header.scan_offset:
        raise DecodeError(f"{_NO_END}, and no compressed data")
    if header.coding == "arithmetic":
        raise DecodeError(f"{_NO_END}, and arithmetic coding does not tell whether data is missing")
    ended = jpeg_stream.without_half_marker(data) + jpeg_stream.EOI
    return CheckedJpeg(ended, complete, suspect=True)


def looks_filled_in(image: Image) -> bool:
    """Return whether the last pixel has the value with which decoders fill missing data.

    Only luma counts: interpolated chroma may reach in from neighbouring blocks.
    """
    last = image[-1, -1]
    return is_filling([last] if not last.ndim else last)


def is_filling(pixel: Sequence[int]) -> bool:
    """Return whether a pixel, RGB or with luma first, has the value of missing data."""
    if len(pixel) < 3:
        return int(pixel[0]) in _FILLED_IN
    return (299 * int(pixel[0]) + 587 * int(pixel[1]) + 114 * int(pixel[2])) // 1000 in _FILLED_IN


def verify(
    image: Image, data: Buffer, header: Header, decode_again: Callable[[bytes], Image]
) -> None:
    """Check that no pixel was filled in, for a decoder that may not report missing data.

    It puts other bytes after each scan: the pixels change only if the decoder read beyond the scan.
    `decode_again` decodes other data just as `image` was decoded.
    """
    scans = jpeg_stream.outer_scans(data, header)
    for scan, ending in product(scans, jpeg_stream.ENDINGS):
        try:
            other = decode_again(jpeg_stream.with_other_ending(data, scan, header, ending))
        except DecodeError as error:
            raise NoFallback(_MISSING) from error
        if not np.array_equal(image, other):
            raise NoFallback(_MISSING)


def check_restarts(data: Buffer, header: Header) -> None:
    """Check that no restart interval was lost, for a decoder that does not report it."""
    if header.restart_interval and not jpeg_stream.restarts_in_order(data, header):
        raise NoFallback(_RESTARTS)
