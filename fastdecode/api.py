"""`decode` and its kin: arguments are checked here, once, and the engine does the rest."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fastdecode import engine, formats, orientation
from fastdecode.errors import FastDecodeError, ImageTooLarge
from fastdecode.selection import Want
from fastdecode.types import MODES, REDUCES, Box, Buffer, Header, Image, Mode, Reduce

if TYPE_CHECKING:
    import mmap

    import torch
    from numpy.typing import NDArray

    Data = bytes | bytearray | memoryview | mmap.mmap | NDArray[np.uint8] | torch.Tensor

__all__ = ["DEFAULT_MAX_PIXELS", "decode", "decode_file", "probe", "reduce_for"]

DEFAULT_MAX_PIXELS = 178_956_970
"""Pixels that a header may promise: Pillow's limit for its DecompressionBombError."""

_PATH = "decode() takes the bytes of an image, not a path: use decode_file({path!r})"


def decode(
    data: Data,
    reduce: Reduce = 1,
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
    """Turn the bytes of an image into pixels, by the fastest backend that can.

    Parameters
    ----------
    data : bytes, bytearray, memoryview, mmap, 1-D uint8 ndarray or 1-D uint8 CPU tensor
        The whole file. It is neither copied (but for a library that cannot do without) nor changed.
    reduce : {1, 2, 4, 8}
        Divide both sides by this, rounding up. A JPEG is reduced inside its inverse DCT; everything
        else is decoded and averaged by `PIL.Image.Image.reduce`'s box filter.
    min_size : int or (height, width), optional
        Instead of `reduce`: the largest reduction whose result still has at least these sides.
        An int stands for both. `reduce_for` says which reduction that is.
    mode : {"RGB", "L", "RGBA", "native"}
        ``"RGB"`` drops alpha without compositing. ``"L"`` of a JPEG is its Y plane. ``"native"`` is
        what the file holds: palette indices, 16-bit grey, CMYK as four inks, …
    region : (left, top, right, bottom), optional
        Part of the picture, in pixels at full size (of the picture as seen, if `orient`). The
        result is rows ``top // reduce`` to ``ceil(bottom / reduce)`` of the whole result, columns
        likewise.
    orient : bool
        Apply the EXIF orientation. The default gives stored pixels, as Pillow and torchvision do.
    out : ndarray, optional
        Decode into this: exact shape and dtype, C-contiguous, writable.
    strict : bool
        Make any warning of the codec a `DecodeError`.
    max_pixels : int or None
        Refuse a header that promises more, before anything is allocated. None lifts the limit.
    backend : str, optional
        Let this backend alone answer. The default is the fastest that can, and the next one if that
        refuses the file (counted in `fastdecode.stats`).

    Returns
    -------
    ndarray
        (H, W, 3), (H, W) or (H, W, 4) uint8 for ``"RGB"``, ``"L"``, ``"RGBA"``; the file's own
        shape and type for ``"native"``. C-contiguous, writable, and nobody else's; `out` if given.

    Raises
    ------
    DecodeError
        The bytes are damaged, or pixels are missing.
    UnsupportedFormat
        No usable backend reads them.
    ImageTooLarge
        The header promises more than `max_pixels`.
    UnknownBackend, BackendUnavailable
        `backend` does not exist, or its library is missing.
    TypeError, ValueError
        An argument is wrong.

    Notes
    -----
    Every backend that is chosen by itself gives the same pixels: libjpeg-turbo's default inverse
    DCT with fancy upsampling for JPEG, the exact values for lossless formats.

    Examples
    --------
    >>> image = decode(data)  # doctest: +SKIP
    >>> small = decode(data, min_size=256)  # doctest: +SKIP
    """
    if type(data) is not bytes:
        data = _buffer(data)
    header = formats.probe(data)
    if max_pixels is not None and header.width * header.height > max_pixels:
        raise _too_large(header, max_pixels)
    if mode not in MODES:
        raise ValueError(f"mode must be one of {', '.join(MODES)}, not {mode!r}")
    applied = header.orientation if orient else 1
    if min_size is not None:
        if reduce != 1:
            raise ValueError("give reduce or min_size, not both")
        reduce = reduce_for(header, min_size, region=region, orient=orient)
    elif reduce not in REDUCES:
        raise ValueError(f"reduce must be 1, 2, 4 or 8, not {reduce!r}")
    window = None if region is None else _window(region, header, reduce, applied)
    if out is not None:
        _check_out(out, header, mode, reduce, window, applied)
    return engine.run(
        engine.Request(
            data, header, Want(mode, reduce, strict, True), window, applied, out, backend
        )
    )


def decode_file(path: str | os.PathLike[str], reduce: Reduce = 1, **options: Any) -> NDArray[Any]:
    """Read a file and decode it.

    Parameters
    ----------
    path : str or PathLike
    reduce : {1, 2, 4, 8}
    **options
        As for `decode`.

    Returns
    -------
    ndarray
        As from `decode`.

    Raises
    ------
    OSError
        If the file cannot be read.
    FastDecodeError
        As from `decode`; the message begins with the path.
    """
    with open(path, "rb") as file:
        data = file.read()
    try:
        return decode(data, reduce, **options)
    except FastDecodeError as error:
        error.args = (f"{os.fspath(path)}: {error.args[0]}", *error.args[1:])
        raise


def probe(data: Data) -> Header:
    """Read what the header says, without decoding.

    Parameters
    ----------
    data : bytes, bytearray, memoryview, mmap, 1-D uint8 ndarray or 1-D uint8 CPU tensor
        The file, or as much of its beginning as holds the header.

    Returns
    -------
    Header
        Format, size in pixels, channels, bits, orientation and the like.

    Raises
    ------
    DecodeError
        The header is damaged, or cut short.
    UnsupportedFormat
        This is not an image that fastdecode or Pillow knows.
    """
    return formats.probe(data if type(data) is bytes else _buffer(data))


def reduce_for(
    header: Header,
    min_size: int | tuple[int, int],
    *,
    region: Box | None = None,
    orient: bool = False,
) -> Reduce:
    """Find the largest reduction whose result still has at least the wanted sides.

    It is what ``decode(data, min_size=…)`` uses, so that boxes and points can be divided by it.

    Parameters
    ----------
    header : Header
        From `probe`.
    min_size : int or (height, width)
        In pixels; an int stands for both.
    region : (left, top, right, bottom), optional
        Measure the result of this part instead of the whole.
    orient : bool
        Height, width and region are those of the picture as seen.

    Returns
    -------
    {1, 2, 4, 8}
        1 where even the full picture is smaller.

    Raises
    ------
    TypeError, ValueError
        If `min_size` is not one or two positive integers, or `region` lies outside.
    """
    sides = min_size if isinstance(min_size, (tuple, list)) else (min_size, min_size)
    if len(sides) != 2 or not all(_is_int(side) and side > 0 for side in sides):
        raise ValueError(
            f"min_size must be a positive integer or (height, width) of them, not {min_size!r}"
        )
    applied = header.orientation if orient else 1
    width, height = orientation.seen_size(header.width, header.height, applied)
    box = (0, 0, width, height) if region is None else _checked_region(region, width, height)
    for reduce in (8, 4, 2):
        left, top, right, bottom = _reduced(box, reduce)
        if bottom - top >= sides[0] and right - left >= sides[1]:
            return reduce  # type: ignore[return-value]
    return 1


def _buffer(data: object) -> Buffer:
    """View any accepted input as bytes, without a copy."""
    if isinstance(data, (str, os.PathLike)):
        raise TypeError(_PATH.format(path=os.fspath(data)))
    if type(data).__module__ == "torch" and hasattr(data, "numpy"):
        data = _tensor_bytes(data)
    try:
        view = memoryview(cast("bytes", data))
    except TypeError:
        raise TypeError(
            "data must be bytes, bytearray, memoryview, mmap, a uint8 ndarray or a uint8 tensor, "
            f"not {type(data).__name__}"
        ) from None
    if view.ndim != 1 or view.itemsize != 1 or view.format not in ("B", "b", "c"):
        raise TypeError(
            "data must be one dimension of unsigned bytes (the encoded file), not "
            f"{view.ndim} of {view.format!r}: has it been decoded already?"
        )
    if not view.contiguous:
        raise TypeError("data must be contiguous: copy it with numpy.ascontiguousarray")
    return view if view.format == "B" else view.cast("B")


def _tensor_bytes(tensor: Any) -> NDArray[Any]:
    """View a tensor's memory, without importing PyTorch to know it by."""
    if tensor.device.type != "cpu":
        raise TypeError("a tensor of encoded bytes must be in CPU memory: use data.cpu()")
    array: NDArray[Any] = tensor.numpy()
    return array


def _too_large(header: Header, max_pixels: int) -> ImageTooLarge:
    return ImageTooLarge(
        f"the {header.format} header promises {header.width} x {header.height} = "
        f"{header.width * header.height:,} pixels, over max_pixels={max_pixels:,}; if the file can "
        "be trusted, pass a larger max_pixels, or None"
    )


def _is_int(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _checked_region(region: Sequence[int], width: int, height: int) -> Box:
    """Refuse a region that is empty or reaches outside."""
    if len(region) != 4 or not all(_is_int(edge) for edge in region):
        raise ValueError(f"region must be four integers (left, top, right, bottom), not {region!r}")
    left, top, right, bottom = (int(edge) for edge in region)
    if not (0 <= left < right <= width and 0 <= top < bottom <= height):
        raise ValueError(
            f"region {tuple(region)} (left, top, right, bottom) is empty or outside the picture, "
            f"which is {width} wide and {height} high"
        )
    return left, top, right, bottom


def _reduced(box: Box, reduce: int) -> Box:
    """Pixels of the reduced picture that show any of the box."""
    left, top, right, bottom = box
    return left // reduce, top // reduce, -(-right // reduce), -(-bottom // reduce)


def _window(region: Box, header: Header, reduce: int, applied: int) -> Box:
    """Turn a region of the full picture as seen into pixels of the reduced stored one."""
    width, height = orientation.seen_size(header.width, header.height, applied)
    box = _reduced(_checked_region(region, width, height), reduce)
    return orientation.stored_box(box, -(-width // reduce), -(-height // reduce), applied)


def _check_out(
    out: Image, header: Header, mode: Mode, reduce: int, window: Box | None, applied: int
) -> None:
    """Refuse an array that the result cannot go into, before anything is decoded."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, not {type(out).__name__}")
    if not (out.flags.c_contiguous and out.flags.writeable):
        raise ValueError("out must be C-contiguous and writable")
    if mode == "native":
        return  # only the file knows its shape and type: `deliver` checks
    left, top, right, bottom = window or _reduced((0, 0, header.width, header.height), reduce)
    width, height = orientation.seen_size(right - left, bottom - top, applied)
    shape = (height, width) if mode == "L" else (height, width, 3 if mode == "RGB" else 4)
    if out.shape != shape or out.dtype != np.uint8:
        raise ValueError(
            f"out must have shape {shape} and dtype uint8, not {out.shape} and {out.dtype}"
        )
