"""Trying backends until one gives every pixel, and giving the pixels their final form."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastdecode import _selection, _truncation
from fastdecode._headers import jpeg_stream
from fastdecode._pixels import apply_orientation, box_reduce, convert, crop, deliver
from fastdecode._stats import count_failure, count_fallback
from fastdecode._truncation import NoFallback
from fastdecode.adapters.base import CodecWarning
from fastdecode.errors import DecodeError, FastDecodeError, ImageTooLarge

if TYPE_CHECKING:
    from fastdecode._selection import Choice, Want
    from fastdecode.types import Box, Buffer, Header, Image, PixelLayout, Reduce

_UINT8 = np.dtype(np.uint8)
# What may leave the package. Libraries raise whatever they like at damaged data (a panic in Rust is
# not even an Exception), and so may our own steps at what a library made of it.
_OURS = (DecodeError, ImageTooLarge, MemoryError, KeyboardInterrupt, SystemExit, GeneratorExit)
_KINDS = "buif"  # of NumPy's types: truth, integers, floats
_CHANNELS: dict[PixelLayout, int] = {"RGB": 3, "RGBA": 4, "CMYK": 4}


@dataclass(slots=True)  # a frozen one, or a tuple, costs more in every call
class Request:
    """One image to decode, all arguments checked. It is not changed: `replace` makes another."""

    data: Buffer
    header: Header
    want: Want
    window: Box | None  # in pixels of the reduced image as it is stored
    orientation: int  # of EXIF, to be applied; 1 leaves the pixels as they are stored
    out: Image | None
    backend: str | None  # that the caller named
    # The result is gone before this thread decodes again: it may lie in the thread's own memory.
    borrow: bool = False
    suspect: bool = False  # an image is no proof that all of its data was there


def run(request: Request) -> Image:
    """Decode by the first backend that can; fall back to others unless one was named."""
    header = request.header
    # The commonest file by far, a sequential JPEG of one scan with its end marker, needs no
    # preparation.
    if header.format == "jpeg" and (
        header.progressive
        or request.data[-2:] != jpeg_stream.EOI
        or not jpeg_stream.in_one_scan(request.data, header)
    ):
        want = request.want
        try:
            data, complete, suspect = _truncation.check_jpeg(
                request.data, header, strict=want.strict
            )
        except _OURS:
            raise
        except Exception as error:  # the bytes between its markers may be anything
            raise _as_ours(error) from error
        want = want._replace(complete=complete)
        request = replace(request, data=data, want=want, suspect=suspect)
    elif header.format != "jpeg":
        _truncation.check_container(request.data, header)
    choice = _selection.first(request.backend, header, request.want)
    try:
        return _decode(choice, request)
    except DecodeError as error:
        return _fall_back(choice, error, request)


def _fall_back(tried: Choice, error: DecodeError, request: Request) -> Image:
    """Ask the others after the first refused; raise what they said if they refuse too."""
    refused = {tried.name: str(error)}
    if not isinstance(error, NoFallback):
        request = replace(request, suspect=True)  # what one refuses, another may show in part
        for choice in _selection.candidates(request.backend, request.header, request.want):
            if choice.name in refused:
                continue
            try:
                image = _decode(choice, request)
            except DecodeError as another:
                refused[choice.name] = str(another)
                if isinstance(another, NoFallback):
                    break
            else:
                count_fallback(refused, choice.name)
                return image
    count_failure(refused)
    if len(refused) == 1:
        raise DecodeError(f"{tried.name}: {error}", backend=tried.name, errors=refused) from error
    said = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    raise DecodeError(f"no backend decodes this {request.header.format}: {said}", errors=refused)


def _decode(choice: Choice, request: Request) -> Image:
    """Decode by one backend, check the result and give it its final form.

    Whatever a backend, or a step of ours with its answer, raises is a `DecodeError`. Only that
    `Request.out` does not fit is a ValueError: for mode ``"stored"`` the pixels alone can tell.
    """
    header, want, window, support = request.header, request.want, request.window, choice.support
    layout, reduce = choice.layout, choice.reduce
    reduced = reduce == want.reduce
    # Pixels that are missing may lie outside the window: a suspect image is decoded whole.
    within = support.region and not request.suspect and reduced
    inside = window if within else None
    as_wanted = (
        layout == want.mode and reduced and (window is None or within) and request.orientation == 1
    )
    into = request.out if as_wanted and support.out and want.mode != "stored" else None
    height, width = -(-header.height // reduce), -(-header.width // reduce)
    if inside is not None:
        height, width = inside[3] - inside[1], inside[2] - inside[0]
    kept: Image | None = None
    passing = request.borrow or (window is not None and inside is None)
    if passing and support.out and layout in _CHANNELS:
        # What is to be cut, or looked at and forgotten, needs no fresh memory.
        into = kept = borrow_memory((height, width, _CHANNELS[layout]))
    try:
        image, warned = _ask(choice, request, inside, into)
        _check_form(image, height, width, layout, header.bits)
        # A codec that reports warnings would have said so, had it filled anything in; but for the
        # arithmetic decoder, which cannot run out of data: it reads zeros for ever.
        if header.format == "jpeg" and (
            warned or not support.warnings or header.coding == "arithmetic"
        ):
            _check_complete(choice, request, image, inside, warned=warned)
        if not as_wanted:
            image = _finish(image, choice, request, inside)
    except _OURS:
        raise
    except BaseException as error:
        raise _as_ours(error) from error
    if request.borrow:
        return image
    if kept is not None and request.out is None and np.may_share_memory(image, kept):
        return np.array(image, order="C")
    return deliver(image, request.out)


def _finish(image: Image, choice: Choice, request: Request, inside: Box | None) -> Image:
    """Do what the backend did not: crop, convert, reduce, turn."""
    header, want = request.header, request.want
    left: Reduce = 1 if choice.reduce == want.reduce else want.reduce
    if request.window is not None and inside is None:
        image = crop(image, request.window, left)
    image = convert(image, choice.layout, want.mode, header)
    if left != 1:
        color = header.color if want.mode == "stored" else "rgb"
        image = box_reduce(image, left, color=color)
    return apply_orientation(image, request.orientation)


def _ask(
    choice: Choice, request: Request, window: Box | None, out: Image | None
) -> tuple[Image, bool]:
    """Call the backend, and say whether it warned. One that reports warnings is asked to.

    libjpeg names only the first warning, so that after one it may have met anything.
    """
    strict, warned = choice.support.warnings, False
    while True:
        try:
            return choice.backend.decode(
                request.data,
                request.header,
                reduce=choice.reduce,
                layout=choice.layout,
                window=window,
                out=out,
                strict=strict,
            ), warned
        except CodecWarning as warning:
            message = str(warning)
            missing = jpeg_stream.says_missing_pixels(message)
            if warned or not (missing or jpeg_stream.is_recoverable(message)):
                raise
            if missing or request.want.strict:
                raise NoFallback(message) from warning
            strict, warned = False, True
        except _OURS:
            raise
        except BaseException as error:
            raise _as_ours(error) from error


def _as_ours(error: BaseException) -> DecodeError:
    """Make a `DecodeError` of what a library, or a step of ours with its answer, has raised."""
    known = isinstance(error, FastDecodeError)
    return DecodeError(str(error) if known else f"{type(error).__name__}: {error}")


def _check_form(image: Image, height: int, width: int, layout: PixelLayout, bits: int) -> None:
    """Make sure that a backend gave an array of the form that was asked for."""
    if not isinstance(image, np.ndarray):
        raise DecodeError(f"gave no array but {type(image).__name__}")
    if layout == "stored":
        right = (
            image.ndim in (2, 3)
            and image.shape[:2] == (height, width)
            and image.size > 0
            and image.dtype.kind in _KINDS
        )
        if right and 8 * image.dtype.itemsize < bits:
            raise DecodeError(f"gave {image.dtype} of a file with {bits} bits a sample")
    else:
        shape = (height, width) if layout == "L" else (height, width, _CHANNELS[layout])
        right = image.shape == shape and image.dtype == _UINT8
    if not right:
        raise DecodeError(
            f"gave {image.shape} of {image.dtype} for {layout} of {height} rows and {width} columns"
        )


def _check_complete(
    choice: Choice, request: Request, image: Image, window: Box | None, *, warned: bool
) -> None:
    """Make sure that all pixels of a JPEG were in the data, where the codec would not say so."""
    header = request.header
    # Of several warnings a library may tell only the first, which need not be the worst.
    if warned or not choice.support.warnings:
        _truncation.check_restarts(request.data, header)
    if (
        warned
        or header.coding == "arithmetic"
        or request.suspect
        or _truncation.looks_filled_in(image)
    ):

        def decode_again(data: bytes) -> Image:
            want = request.want._replace(strict=False)
            return _ask(choice, replace(request, data=data, want=want), window, None)[0]

        _truncation.verify(image, request.data, header, decode_again)


# Fresh memory is fresh pages from the system, which cost as much as a good part of the decoding;
# the same memory used again costs nothing.
_MOST_KEPT = 64 << 20


class _Kept(threading.local):
    buffer = np.empty(0, np.uint8)


_kept = _Kept()


def borrow_memory(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return an array that is overwritten when this thread asks for the next one.

    One of more than 64 MiB is new each time, so that a thread that met one huge image does not hold
    its memory for ever.
    """
    needed = math.prod(shape)
    if needed > _MOST_KEPT:
        return np.empty(shape, np.uint8)
    if _kept.buffer.size < needed:
        # A little more, so that images that grow slowly do not each need a new one.
        _kept.buffer = np.empty(min(_MOST_KEPT, needed + needed // 4), np.uint8)
    return _kept.buffer[:needed].reshape(shape)
