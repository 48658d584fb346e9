"""Trying backends until one gives every pixel, and making sure that it did."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from fastdecode import jpeg_stream, orientation, pixels, selection
from fastdecode.adapters.base import CodecWarning
from fastdecode.errors import DecodeError, FastDecodeError
from fastdecode.resample import box_reduce, sample_reduce
from fastdecode.statistics import count_failure, count_fallback

if TYPE_CHECKING:
    from fastdecode.selection import Choice, Want
    from fastdecode.types import Box, Buffer, Header, Image, Reduce

__all__ = ["Request", "run"]

_NO_END = "the JPEG has no end marker (EOI)"
_MISSING = "pixels are missing: the compressed data ends before the picture does"
# Blocks for which there was no data come out as sample value 128; colour conversion and scaling
# may shift it a little.
_FILLED_IN = range(123, 134)


class _Final(DecodeError):
    """An answer that no other backend can change: pixels are not there, or strict was broken."""


@dataclass
class Request:
    """One picture to decode, all arguments checked.

    Attributes
    ----------
    data : bytes or memoryview
    header : Header
    want : Want
    window : tuple or None
        (left, top, right, bottom) in pixels of the reduced stored picture.
    orientation : int
        EXIF orientation to apply; 1 to leave the pixels as stored.
    out : ndarray or None
    backend : str or None
        The one that the caller named.
    """

    data: Buffer
    header: Header
    want: Want
    window: Box | None
    orientation: int
    out: Image | None
    backend: str | None


def run(request: Request) -> Image:
    """Decode by the first backend that can; fall back to others unless one was named.

    Returns
    -------
    ndarray
        What the caller asked for, in `Request.out` if that is given.

    Raises
    ------
    DecodeError
        If every backend refuses, or pixels are missing.
    UnsupportedFormat
        If there is no backend for such a file.
    """
    doubtful = False
    if request.header.format == "jpeg":
        doubtful = _prepare_jpeg(request)
    choice = selection.first(request.backend, request.header, request.want)
    try:
        return _decode(choice, request, doubtful)
    except DecodeError as error:
        return _fall_back(choice, error, request, doubtful)


def _fall_back(tried: Choice, error: DecodeError, request: Request, doubtful: bool) -> Image:
    """Ask the others after the first refused; raise what they said if they refuse too."""
    refused = {tried.name: str(error)}
    if not isinstance(error, _Final):
        for choice in selection.candidates(request.backend, request.header, request.want):
            if choice.name in refused:
                continue
            try:
                image = _decode(choice, request, doubtful)
            except DecodeError as another:
                refused[choice.name] = str(another)
                if isinstance(another, _Final):
                    break
            else:
                count_fallback(refused, choice.name)
                return image
    count_failure(refused)
    if len(refused) == 1:
        raise DecodeError(f"{tried.name}: {error}", backend=tried.name, errors=refused) from error
    said = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    raise DecodeError(f"no backend decodes this {request.header.format}: {said}", errors=refused)


def _prepare_jpeg(request: Request) -> bool:
    """Check what the compressed data shows, and complete an end marker that is missing.

    Returns
    -------
    bool
        Whether there was no end marker, which makes it doubtful that all the data is there.
    """
    header = request.header
    data = request.data
    if header.progressive:
        number, complete = jpeg_stream.scan_script(data, header)
        if number > jpeg_stream.MAX_SCANS:
            raise DecodeError(
                f"the JPEG has more than {jpeg_stream.MAX_SCANS} scans, which can cost seconds or "
                "minutes: refused as hostile"
            )
        request.want = request.want._replace(complete=complete)
    if jpeg_stream.has_end(data, header):
        return False
    if request.want.strict:
        raise DecodeError(_NO_END)
    if header.progressive and not request.want.complete:
        raise DecodeError(f"{_NO_END}, and the last scans of the picture are missing")
    request.data = jpeg_stream.without_half_marker(data) + jpeg_stream.EOI
    return True


def _decode(choice: Choice, request: Request, doubtful: bool) -> Image:
    """Decode by one backend, check the result and give it its final form.

    Raises
    ------
    DecodeError
        If the backend refuses, for whatever reason of its own.
    """
    support, header, want = choice.support, request.header, request.want
    window = request.window
    in_place = (
        request.out is not None
        and support.out
        and choice.layout == want.mode
        and choice.reduce == want.reduce
        and window is None
        and request.orientation == 1
    )
    inside = window if support.region and choice.reduce == want.reduce else None
    image, warned = _ask(choice, request, inside, request.out if in_place else None)
    if header.format == "jpeg":
        _check_size(choice, header, image, inside)
        # A codec that reports warnings would have said so, had it filled anything in; but for the
        # arithmetic decoder, which cannot run out of data: it reads zeros for ever.
        if (
            warned
            or header.coding == "arithmetic"
            or (not support.warnings and (doubtful or _looks_filled_in(image)))
        ):
            _check_complete(choice, request, image, inside)
    if in_place and image is request.out:
        return image
    left: Reduce = 1 if choice.reduce == want.reduce else want.reduce
    if window is not None and inside is None:
        image = pixels.crop(image, window, left)
    image = pixels.convert(image, choice.layout, want.mode, header)
    if left != 1:
        indexed = want.mode == "native" and header.color == "palette"
        image = sample_reduce(image, left) if indexed else box_reduce(image, left)
    if request.orientation != 1:
        image = orientation.apply(image, request.orientation)
    return pixels.deliver(image, request.out)


def _ask(
    choice: Choice, request: Request, window: Box | None, out: Image | None
) -> tuple[Image, bool]:
    """Call the backend. One that reports warnings is asked to, and its warnings are judged.

    Returns
    -------
    tuple of ndarray and bool
        The pixels, and whether there was a warning. libjpeg names only the first, so that after
        one it may have met anything.
    """
    backend, support = choice.backend, choice.support

    def decode(strict: bool) -> Image:
        return backend.decode(
            request.data,
            request.header,
            reduce=choice.reduce,
            layout=choice.layout,
            window=window,
            out=out,
            strict=strict,
        )

    try:
        try:
            return decode(support.warnings), False
        except CodecWarning as warning:
            message = str(warning)
            if jpeg_stream.says_missing_pixels(message):
                raise _Final(message) from warning
            if not jpeg_stream.is_recoverable(message):
                raise
            if request.want.strict:
                raise _Final(message) from warning
            return decode(False), True
    except (FastDecodeError, MemoryError):
        raise
    except Exception as error:
        # The edge of the package: libraries raise whatever they like at damaged data.
        raise DecodeError(f"{type(error).__name__}: {error}") from error


def _check_size(choice: Choice, header: Header, image: Image, window: Box | None) -> None:
    """Make sure that a backend's JPEG has the size that its header promised."""
    if window is None:
        expected = (-(-header.height // choice.reduce), -(-header.width // choice.reduce))
        if image.shape[:2] != expected:
            raise DecodeError(f"gave a picture of {image.shape[:2]}, not {expected}")


def _check_complete(choice: Choice, request: Request, image: Image, window: Box | None) -> None:
    """Make sure that no pixel of a JPEG was filled in for want of data."""
    header = request.header
    for end in jpeg_stream.ends_of_data(request.data, header):
        other = replace(
            request,
            data=jpeg_stream.with_other_ending(request.data, end, header),
            want=request.want._replace(strict=False),
        )
        try:
            again, _ = _ask(choice, other, window, None)
        except DecodeError as error:
            raise _Final(_MISSING) from error
        if not np.array_equal(image, again):
            raise _Final(_MISSING)


def _looks_filled_in(image: Image) -> bool:
    """Whether the last pixel is what a decoder puts where it had no data."""
    last = image[-1, -1]
    return all(int(value) in _FILLED_IN for value in np.atleast_1d(last))
