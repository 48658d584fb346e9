"""Decode one image: call backends in order until one returns all pixels, then convert them.

`stats` counts fallbacks and failures, so that no fallback is silent.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fastdecode import _formats
from fastdecode._backends import registry, selection
from fastdecode._backends.base import CodecWarning
from fastdecode._formats import NoFallback, jpeg
from fastdecode._pixels import apply_orientation, box_reduce, convert, crop, deliver
from fastdecode._system.process import ForkLock
from fastdecode.errors import DecodeError, FastDecodeError, ImageTooLarge, UnsupportedFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastdecode._backends.selection import Choice, Want
    from fastdecode.types import Box, Buffer, Header, Image, PixelLayout, Reduce

_UINT8 = np.dtype(np.uint8)
# Only these leave the package as they are. On damaged data, libraries raise anything (a Rust panic
# is not even an Exception), and so may our own steps on a library's result.
_PASSED_ON = (
    DecodeError,
    ImageTooLarge,
    MemoryError,
    KeyboardInterrupt,
    SystemExit,
    GeneratorExit,
)
_BITS = 8
_DTYPE_KINDS = "buif"  # NumPy's type codes of booleans, integers and floats
_CHANNELS: dict[PixelLayout, int] = {"RGB": 3, "RGBA": 4, "CMYK": 4}


@dataclass(slots=True)  # a frozen one, or a tuple, costs more in every call
class DecodeRequest:
    """One image to decode; all arguments are checked. Treat it as immutable: use `replace`."""

    data: Buffer
    header: Header
    want: Want
    window: Box | None  # in pixels of the reduced image as it is stored
    orientation: int  # EXIF orientation to apply; 1 leaves the pixels as they are stored
    out: Image | None
    backend: str | None  # named by the caller
    # The caller is done with the result before this thread decodes again, so the result may lie in
    # the thread's reused memory.
    borrow: bool = False
    suspect: bool = False  # a decoder may return an image although data is missing


def run(request: DecodeRequest) -> Image:
    """Decode with the first backend that can; try the others unless the caller named one."""
    header = request.header
    # By far the most common file needs no preparation: a sequential JPEG with one scan and an end
    # marker.
    if header.format == "jpeg" and (
        header.progressive
        or request.data[-2:] != jpeg.EOI
        or not jpeg.in_one_scan(request.data, header)
    ):
        want = request.want
        try:
            data, complete, suspect = jpeg.check_structure(request.data, header, strict=want.strict)
        except _PASSED_ON:
            raise
        except Exception as error:  # damaged bytes between markers may raise anything
            raise _as_decode_error(error) from error
        want = want._replace(complete=complete)
        request = replace(request, data=data, want=want, suspect=suspect)
    elif header.format != "jpeg":
        data = _formats.check_container(request.data, header)
        request = request if data is request.data else replace(request, data=data)
    try:
        choice = selection.first(request.backend, header, request.want)
    except UnsupportedFormat as error:
        words = _formats.oddity(request.data, header)
        if not words:
            raise
        raise UnsupportedFormat(f"no backend reads a {header.format} with {words}") from error
    try:
        return _decode(choice, request)
    except DecodeError as error:
        return _fall_back(choice, error, request)


def _fall_back(tried: Choice, error: DecodeError, request: DecodeRequest) -> Image:
    """Try the other backends after the first failed; if all fail, raise their messages."""
    refused = {tried.name: str(error)}
    if not isinstance(error, NoFallback):
        # Where one backend fails, another may return an image with pixels missing.
        request = replace(request, suspect=True)
        for choice in selection.candidates(request.backend, request.header, request.want):
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
        words = f"{tried.name}: {error}{_advice_for_strict(error, request)}"
        raise DecodeError(words, backend=tried.name, errors=refused) from error
    said = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
    raise DecodeError(f"no backend decodes this {request.header.format}: {said}", errors=refused)


def _advice_for_strict(error: DecodeError, request: DecodeRequest) -> str:
    """Return what to install if `strict` left only the core: Pillow reports no warnings."""
    named = isinstance(selection.preferred(request.backend), str)
    if named or not request.want.strict or isinstance(error, NoFallback):
        return ""
    is_jpeg = request.header.format == "jpeg"
    return f"; to ask another: {registry.install_line('simplejpeg')}" if is_jpeg else ""


def _ask(
    choice: Choice, request: DecodeRequest
) -> tuple[Box | None, tuple[int, int], Image | None, bool, bool]:
    """Return what a backend can be asked to do of a request; `_finish` does the rest.

    That is the part that it decodes, (height, width) of its result, and the memory for that; then
    whether this thread reuses that memory, and whether the result is all that the caller wants. A
    named tuple would cost half a microsecond.
    """
    want, window, support, layout = request.want, request.window, choice.support, choice.layout
    reduced = choice.reduce == want.reduce
    # Decode a suspect image whole: the missing pixels may lie outside the window.
    inside = window if support.region and reduced and not request.suspect else None
    if inside is None:
        header, reduce = request.header, choice.reduce
        size = -(-header.height // reduce), -(-header.width // reduce)
    else:
        size = inside[3] - inside[1], inside[2] - inside[0]
    is_wanted = layout == want.mode and reduced and window is inside and request.orientation == 1
    if support.out and (request.borrow or window is not inside) and layout in _CHANNELS:
        # Pixels that are cropped or used only briefly need no fresh memory.
        return inside, size, borrow_memory((*size, _CHANNELS[layout])), True, is_wanted
    out = request.out if is_wanted and support.out and layout != "stored" else None
    return inside, size, out, False, is_wanted


def _decode(choice: Choice, request: DecodeRequest) -> Image:
    """Decode with one backend, check its result and convert it to what the caller asked for.

    Every error of the backend, or of a later step, becomes a `DecodeError`. The exception is a
    ValueError if `DecodeRequest.out` does not fit: in mode ``"stored"`` only the pixels show that.
    """
    if request.header.format == "png" and not choice.support.checks:
        strict = request.want.strict
        clean = _formats.function("png:only_pixels")(request.data, request.header, strict=strict)
        request = replace(request, data=clean)
    window, size, out, is_reused, is_wanted = _ask(choice, request)
    try:
        image, warned = _call_backend(choice, request, window, out)
        _check_array(image, size, choice.layout, request.header.bits)
        # The checks of the others are here. The arithmetic decoder reads zeros behind the data for
        # ever, without a warning.
        if warned or not choice.support.checks or request.header.coding == "arithmetic":
            _check_complete(choice, request, image, window, warned=warned)
        if not is_wanted:
            image = _finish(image, choice, request, window)
    except _PASSED_ON:
        raise
    except BaseException as error:
        raise _as_decode_error(error) from error
    if request.borrow:
        return image
    if is_reused and request.out is None and np.may_share_memory(image, out):
        return np.array(image, order="C")
    return deliver(image, request.out)


def decode_unchecked(choice: Choice, request: DecodeRequest) -> Image:
    """Decode with a library alone, to measure it: neither its data nor its result is checked."""
    decode = partial(choice.backend.decode, reduce=choice.reduce, layout=choice.layout)
    try:
        image = decode(request.data, request.header, window=None, out=None, strict=False)
        return _finish(image, choice, request, None)
    except _PASSED_ON:
        raise
    except BaseException as error:
        raise _as_decode_error(error) from error


def _finish(image: Image, choice: Choice, request: DecodeRequest, inside: Box | None) -> Image:
    """Apply the steps that the backend did not: crop, convert, reduce, orient."""
    header, want = request.header, request.want
    left: Reduce = 1 if choice.reduce == want.reduce else want.reduce
    if request.window is not None and inside is None:
        image = crop(image, request.window, left)
    image = convert(image, choice.layout, want.mode, header)
    if left != 1:
        color = header.color if want.mode == "stored" else "rgb"
        image = box_reduce(image, left, color=color)
    return apply_orientation(image, request.orientation)


def _call_backend(
    choice: Choice, request: DecodeRequest, window: Box | None, out: Image | None
) -> tuple[Image, bool]:
    """Call the backend; return its image and whether it warned.

    A backend that reports warnings first runs in strict mode. libjpeg names only its first
    warning, so after one that is harmless, worse ones may have followed.
    """
    strict, warned = choice.support.warnings, False
    decode: Callable[..., Image] = choice.backend.decode
    if choice.support.skips and (request.want.strict or request.suspect):
        decode = partial(decode, thorough=True)
    while True:
        try:
            return decode(
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
            missing = jpeg.says_missing_pixels(message)
            if warned or not (missing or jpeg.is_recoverable(message)):
                raise
            if missing or request.want.strict:
                raise NoFallback(message) from warning
            strict, warned = False, True
        except _PASSED_ON:
            raise
        except BaseException as error:
            raise _as_decode_error(error) from error


def _as_decode_error(error: BaseException) -> DecodeError:
    """Turn an error of a library, or of our own steps on its result, into a `DecodeError`."""
    known = isinstance(error, FastDecodeError)
    return DecodeError(str(error) if known else f"{type(error).__name__}: {error}")


def _check_array(image: Image, size: tuple[int, int], layout: PixelLayout, bits: int) -> None:
    """Check that a backend returned an array of the requested shape and dtype."""
    if not isinstance(image, np.ndarray):
        raise DecodeError(f"gave no array but {type(image).__name__}")
    if layout == "stored":
        right = (
            image.ndim in (2, 3)
            and image.shape[:2] == size
            and image.size > 0
            and image.dtype.kind in _DTYPE_KINDS
        )
        if right and 8 * image.dtype.itemsize < bits:
            raise DecodeError(f"gave {image.dtype} of a file with {bits} bits a sample")
    else:
        shape = size if layout == "L" else (*size, _CHANNELS[layout])
        right = image.shape == shape and image.dtype == _UINT8
    if not right:
        raise DecodeError(
            f"gave {image.shape} of {image.dtype} for {layout} of (height, width) {size}"
        )


def _check_complete(
    choice: Choice, request: DecodeRequest, image: Image, window: Box | None, *, warned: bool
) -> None:
    """Check that the data held all pixels of a JPEG or WebP, where the codec does not report it."""
    form = request.header.format
    if form not in ("jpeg", "webp"):
        return

    def decode_again(data: Buffer) -> Image:
        want = request.want._replace(strict=False)
        return _call_backend(choice, replace(request, data=data, want=want), window, None)[0]

    if form == "webp":
        _formats.function("webp:check_zeros")(image, request.data, decode_again)
    else:
        _check_jpeg(choice, request, image, decode_again, warned=warned)


def _check_jpeg(
    choice: Choice,
    request: DecodeRequest,
    image: Image,
    decode_again: Callable[[Buffer], Image],
    *,
    warned: bool,
) -> None:
    data, header, reports = request.data, request.header, choice.support.warnings
    # A library may report only its first warning, which need not be the worst.
    if warned or not reports:
        jpeg.check_restarts(data)
    is_odd = not reports and (request.suspect or _may_be_filled_in(image, header))
    arithmetic = header.coding == "arithmetic"
    if warned or arithmetic or (is_odd and not _is_whole(request, data)):
        if request.suspect:  # what a reduction or a mode leaves out may be missing, too
            decode_again = _decoder_of_all(choice, request)
            image = decode_again(data)
        jpeg.verify(image, data, header, decode_again)
    if jpeg.has_zeros(data, header):
        _check_zeros(choice, request)


def _check_zeros(choice: Choice, request: DecodeRequest) -> None:
    """Check that zeros do not stand in place of data, if possible with codecs that warn."""
    data, bare = request.data, jpeg.without_padding(request.data)
    if _is_whole(request, bare) or _needs_no_more(choice, request, bare):
        data = bare  # nothing was missing in front of the zeros
    if not jpeg.has_zeros(data, request.header):
        return
    for judge in _judges(request) or (choice,):
        decode_all, reports = _decoder_of_all(judge, request), judge.support.warnings
        try:
            jpeg.check_zeros(data, request.header, decode_all, reports=reports)
        except NoFallback:
            raise
        except DecodeError:  # it does not decode the file at all, as the core where it is odd
            continue
        return
    raise NoFallback(jpeg.WRONG_ZEROS)


def _judges(request: DecodeRequest) -> list[Choice]:
    """Return what decodes all of an image and reports its warnings, such as the core."""
    able = selection.able(request.header, _all_of(request.want))
    return [choice for choice in able if choice.support.warnings]


def _is_whole(request: DecodeRequest, data: Buffer) -> bool:
    """Return whether one that reports warnings decodes data in place of the file's without any."""
    if request.header.coding == "arithmetic":  # of which none reports all
        return False
    for judge in _judges(request):
        with suppress(DecodeError):
            _decode_all(judge, request, data, strict=True)
            return True
    return False


def _needs_no_more(choice: Choice, request: DecodeRequest, data: Buffer) -> bool:
    """Return whether bytes behind data in place of the file's change nothing, where none reports.

    Zeros between the scans of a progressive file may stand in place of a table, which this misses.
    """
    header = request.header
    if header.progressive or (_judges(request) and header.coding != "arithmetic"):
        return False
    decode_all = _decoder_of_all(choice, request)
    plain = header._replace(coding="baseline")  # not even zeros that its coder may leave out
    with suppress(DecodeError):
        image = decode_all(data)
        jpeg.verify(image, data, plain, decode_all)
        return np.array_equal(image, decode_all(request.data))
    return False


def _decoder_of_all(choice: Choice, request: DecodeRequest) -> Callable[[Buffer], Image]:
    """Return how a backend decodes all pixels and components of other data."""
    able = selection.able(request.header, _all_of(request.want))
    own = next((one for one in able if one.name == choice.name), choice)
    return partial(_decode_all, own, request)


def _all_of(want: Want) -> Want:
    return want._replace(mode="RGB", reduce=1, strict=False)


def _decode_all(
    choice: Choice, request: DecodeRequest, data: Buffer, *, strict: bool = False
) -> Image:
    """Decode all pixels and components of other data in place of the file's."""
    want = _all_of(request.want)._replace(strict=strict)
    every = replace(request, data=data, want=want, suspect=True)
    return _call_backend(choice, every, None, None)[0]


def _may_be_filled_in(image: Image, header: Header) -> bool:
    """Return whether blocks may be filled in; the last pixel does not show it in all JPEGs."""
    return (
        header.progressive
        or header.coding == "lossless"
        or header.bits > _BITS
        or jpeg.looks_filled_in(image)
    )


# Fresh memory means page faults, which cost as much as a good part of the decoding. Reused memory
# costs nothing.
_MAX_REUSED = 64 << 20


class _ThreadMemory(threading.local):
    buffer = np.empty(0, np.uint8)


_memory = _ThreadMemory()


def borrow_memory(shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return an array of this thread's reused memory; the next call overwrites it.

    An array of more than 64 MiB is new each time, so a thread does not hold the memory of one huge
    image for ever.
    """
    needed = math.prod(shape)
    if needed > _MAX_REUSED:
        return np.empty(shape, np.uint8)
    if _memory.buffer.size < needed:
        # Reserve a little more, so slowly growing images do not each allocate again.
        _memory.buffer = np.empty(min(_MAX_REUSED, needed + needed // 4), np.uint8)
    return _memory.buffer[:needed].reshape(shape)


# ---- counts ----

_RECENT = 20
_lock = ForkLock()
_fallbacks: Counter[tuple[str, str]] = Counter()
_failures: Counter[str] = Counter()
_recent: deque[str] = deque(maxlen=_RECENT)


@dataclass(frozen=True)
class Stats:
    """Counts of fallbacks and failures in this process.

    Attributes
    ----------
    fallbacks : Mapping[tuple[str, str], int]
        By ``(refused, decoded)``: images that the first backend refused and the second decoded.
    failures : Mapping[str, int]
        Images that no backend decoded, by the backend that was tried first.
    recent : tuple of str
        The last 20 refusals in words, oldest first.

    Examples
    --------
    >>> from fastdecode import DecodeError, decode, stats
    >>> before = stats(reset=True)
    >>> try:
    ...     decode(data[:5000])
    ... except DecodeError:
    ...     sum(stats().failures.values())
    1
    """

    fallbacks: Mapping[tuple[str, str], int]
    failures: Mapping[str, int]
    recent: tuple[str, ...]


def stats(*, reset: bool = False) -> Stats:
    """Return how often this process fell back to another backend, and why.

    Parameters
    ----------
    reset : bool
        Set the counts to zero afterwards.

    Returns
    -------
    Stats
        A copy, which does not change any more.

    Examples
    --------
    >>> from fastdecode import decode, stats
    >>> before = stats(reset=True)
    >>> image = decode(data)
    >>> stats().fallbacks  # no backend refused the image
    {}
    """
    if not isinstance(reset, bool):
        raise TypeError(f"reset must be True or False, not {reset!r}")
    with _lock:
        result = Stats(dict(_fallbacks), dict(_failures), tuple(_recent))
        if reset:
            _fallbacks.clear()
            _failures.clear()
            _recent.clear()
    return result


def count_fallback(refused: Mapping[str, str], decoded: str) -> None:
    """Count an image that `decoded` decoded after other backends refused it, with their reasons."""
    with _lock:
        for name, reason in refused.items():
            _fallbacks[name, decoded] += 1
            _recent.append(f"{name}: {reason}")


def count_failure(refused: Mapping[str, str]) -> None:
    """Count an image that no backend decoded."""
    with _lock:
        _failures[next(iter(refused), "")] += 1
        _recent.extend(f"{name}: {reason}" for name, reason in refused.items())
