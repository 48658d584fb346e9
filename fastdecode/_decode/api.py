"""`decode`, `decode_file` and `probe`: check the arguments once, then call the engine."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from fastdecode import _formats, _pixels
from fastdecode._arguments import as_buffer, as_path, check_names, check_options, check_out
from fastdecode._backends.selection import Want
from fastdecode._decode.engine import DecodeRequest, run
from fastdecode._decode.plan import DEFAULT_MAX_PIXELS, plan_decode
from fastdecode._error_policy import with_retry
from fastdecode._system.files import read_regular
from fastdecode.errors import FastDecodeError, begin_with
from fastdecode.native import _library  # noqa: F401 - without the core, importing it is an error
from fastdecode.types import MODES, REDUCES, DecodeKeywords

if TYPE_CHECKING:
    import mmap

    import numpy as np
    import torch
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from fastdecode.types import Box, Buffer, Header, Image, Mode, Reduce

    Data = bytes | bytearray | memoryview | mmap.mmap | NDArray[np.uint8] | torch.Tensor


def decode(
    data: Data,
    reduce: int = 1,
    *,
    min_size: int | tuple[int, int] | None = None,
    mode: Mode = "RGB",
    region: Box | None = None,
    orient: bool = False,
    out: Image | None = None,
    strict: bool = False,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    backend: str | None = None,
) -> NDArray[Any]:
    """Decode an image with the fastest backend that can read it.

    Parameters
    ----------
    data : bytes, bytearray, memoryview, mmap, 1-D uint8 ndarray or 1-D uint8 CPU tensor
        The whole file. It is not changed, and copied only for libraries that need a copy.
    reduce : {1, 2, 4, 8}
        Divide both sides by this, rounding up. A JPEG is reduced inside the inverse DCT. Any other
        format is decoded and then averaged with the box filter of `PIL.Image.Image.reduce`.
    min_size : int or (height, width), optional
        Use the largest reduction whose result still has at least these sides, instead of `reduce`.
        An int stands for both sides. `reduce_for` returns the reduction that is used.
    mode : {"RGB", "L", "RGBA", "stored"}
        ``"RGB"`` drops alpha without compositing. ``"L"`` of a JPEG is its Y plane. ``"stored"``
        returns the samples as the file holds them: palette indices, CMYK as four inks, floats,
        signed integers, samples of more than 8 bits as uint16 in the file's own range (0 to 1023
        for 10 bits; `probe` returns the number of bits). The other modes spread up to 8 bits over 0
        to 255, and keep the high 8 of up to 16.
    region : (left, top, right, bottom), optional
        Decode only this part of the image, in pixels at full size (of the upright image, if
        `orient`). The result is rows ``top // reduce`` to ``ceil(bottom / reduce)`` of the whole
        result, and the columns in the same way.
    orient : bool
        Turn the image upright by EXIF or XMP, as Pillow's `exif_transpose` does. The default
        returns stored pixels, as Pillow and torchvision do.
    out : ndarray, optional
        Decode into this array, which must have the exact shape and dtype, and be C-contiguous and
        writable.
    strict : bool
        Raise a `DecodeError` for any warning of the codec.
    max_pixels : int or None
        Refuse an image whose header promises more pixels than this, before anything is allocated.
        None lifts the limit.
    backend : str, optional
        Use only this backend. By default, the fastest backend that can read the file is used. If it
        refuses the file, the next one is tried (`fastdecode.stats` counts this).

    Returns
    -------
    ndarray
        (H, W, 3), (H, W) or (H, W, 4) uint8 for ``"RGB"``, ``"L"``, ``"RGBA"``; the file's own
        shape and type for ``"stored"``. The array is `out` if given. Otherwise it is new,
        C-contiguous and writable, and nothing else refers to it.

    Raises
    ------
    DecodeError
        The bytes are damaged, or pixels are missing.
    UnsupportedFormat
        No usable backend reads this format, or `mode` is not ``"stored"`` for floats, signed
        integers or more than 16 bits.
    ImageTooLarge
        The header promises more than `max_pixels`.
    UnknownBackend, BackendUnavailable
        `backend` does not exist, or its library is missing.
    TypeError, ValueError
        An argument is wrong.

    Notes
    -----
    All backends that are chosen automatically give the same pixels: those of libjpeg-turbo's
    default inverse DCT with fancy upsampling for JPEG, and the exact values for lossless formats.

    Examples
    --------
    >>> from fastdecode import decode
    >>> decode(data).shape  # the bytes of a photo of 640 x 480 pixels
    (480, 640, 3)
    >>> decode(data, min_size=224).shape
    (240, 320, 3)
    >>> decode(data, region=(100, 100, 324, 324)).shape
    (224, 224, 3)
    """
    if type(data) is not bytes:
        data = as_buffer(data)
    # Checked here to save a call for the most common arguments.
    if (
        mode.__class__ is not str
        or mode not in MODES
        or reduce.__class__ is not int
        or reduce not in REDUCES
        or (max_pixels is not None and (max_pixels.__class__ is not int or max_pixels < 1))
        or (backend is not None and backend.__class__ is not str)
        or min_size is not None
        or region is not None
        or (orient is not False and orient is not True)
        or (strict is not False and strict is not True)
    ):
        check_options(
            mode, reduce, min_size, region, max_pixels, backend, orient=orient, strict=strict
        )
        orient, strict = bool(orient), bool(strict)
        reduce = int(reduce)  # of NumPy
    header = _formats.probe(data)
    plan = plan_decode(
        header, reduce, min_size=min_size, region=region, orient=orient, max_pixels=max_pixels
    )
    reduce, window, applied = plan
    if out is not None:
        check_out(out, data, mode, plan.shape(header))
    # `tuple.__new__` saves a Python call.
    want = tuple.__new__(Want, (mode, reduce, strict, True))
    return run(DecodeRequest(data, header, want, window, applied, out, backend))


def decode_part(
    data: Buffer,
    header: Header,
    reduce: Reduce,
    window: Box | None,
    *,
    orient: bool = False,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    backend: str | None = None,
) -> Image:
    """Decode for a caller that knows the header, and needs the pixels only until its next call.

    Like `decode`, but arguments are not checked, and the result (RGB, of any strides) lies in
    memory that the next call reuses. The window is in pixels of the reduced image (upright, if
    `orient`).
    """
    applied = plan_decode(header, orient=orient, max_pixels=max_pixels).orientation
    if window is not None and applied != 1:
        width, height = _pixels.seen_size(header.width, header.height, applied)
        window = _pixels.stored_box(window, -(-width // reduce), -(-height // reduce), applied)
    want = Want("RGB", reduce, strict=False, complete=True)
    return run(DecodeRequest(data, header, want, window, applied, None, backend, borrow=True))


def decode_file(
    path: str | os.PathLike[str],
    reduce: int = 1,
    *,
    out: Image | None = None,
    **options: Unpack[DecodeKeywords],
) -> NDArray[Any]:
    """Read a file and decode it.

    Parameters
    ----------
    path : str or PathLike
    reduce : {1, 2, 4, 8}
    out : ndarray, optional
    **options
        min_size, mode, region, orient, strict, max_pixels, backend: all as for `decode`.

    Returns
    -------
    ndarray
        As from `decode`.

    Raises
    ------
    OSError
        The file cannot be read, its name is invalid, or it is not a regular file but a FIFO, a
        socket or a device (such as ``/dev/stdin``). Read such files yourself, and call `decode`.
    FastDecodeError
        As from `decode`; the message begins with the path. A file that does not fit into memory is
        an `ImageTooLarge`.

    Examples
    --------
    >>> from fastdecode import decode_file
    >>> decode_file("cat.jpg", reduce=4).shape
    (120, 160, 3)
    """
    check_names(decode_file, options, DecodeKeywords)
    data = read_file(as_path(path))  # which refuses file descriptors
    try:
        return decode(data, reduce, out=out, **options)
    except FastDecodeError as error:
        begin_with(error, os.fspath(path))
        raise


def read_item(item: Any) -> Buffer:
    """Return the bytes of an image that is given as a path, or as its bytes in any form."""
    return read_file(os.fspath(item)) if isinstance(item, (str, os.PathLike)) else as_buffer(item)


@with_retry  # a network drive may be away for a moment
def read_file(path: str) -> bytes:
    """Read a whole image file; raise OSError if it is not a regular file."""
    return read_regular(path)


def probe(data: Data) -> Header:
    """Read the header of an image, without decoding it.

    Parameters
    ----------
    data : bytes, bytearray, memoryview, mmap, 1-D uint8 ndarray or 1-D uint8 CPU tensor
        The file. The beginning with the header is enough, except for AVIF, HEIC and many TIFF.

    Returns
    -------
    Header
        Format, size in pixels, channels, bits, orientation and more.

    Raises
    ------
    DecodeError
        The header is damaged, or truncated.
    UnsupportedFormat
        It is none of the package's formats; the message names it, if it is known.

    Examples
    --------
    >>> from fastdecode import probe
    >>> header = probe(data)
    >>> header.format, header.width, header.height, header.bits
    ('jpeg', 640, 480, 8)
    """
    return _formats.probe(data if type(data) is bytes else as_buffer(data, function="probe"))
