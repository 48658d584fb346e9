"""One image at a time, in the calling thread: resized and finished by the core."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from fastdecode.native import library

if TYPE_CHECKING:
    from fastdecode.types import Buffer, Image, Reduce

__all__ = ["LARGEST_SIDE", "Resize", "decode_resized", "probe", "resize_pixels", "stored"]

LARGEST_SIDE = 65500
"""Of an image, or of a canvas, in pixels: libjpeg's limit, and the core's."""

_FLOAT32, _UINT8 = 3, 1
_RGB = 2


class Resize(NamedTuple):
    """A reduction and a resize, as in ``fd_resize``.

    The box (`left` … `bottom`) is in pixels of the reduced image, of which those inside `in_left` …
    `in_bottom` may be read. It becomes the canvas; the part of that from `x`, `y` on is made, and
    flipped from left to right if `flip`.
    """

    reduce: Reduce
    left: float
    top: float
    right: float
    bottom: float
    in_left: int
    in_top: int
    in_right: int
    in_bottom: int
    canvas_width: int
    canvas_height: int
    x: int
    y: int
    width: int
    height: int
    flip: bool


class _Kept(threading.local):
    """What each thread has of its own, made once."""

    def __init__(self) -> None:
        ffi, lib = library.ffi, library.lib
        self.header = ffi.new("fd_header *")
        self.request = ffi.new("fd_request *")
        self.request.layout, self.request.strict = _RGB, 1
        self.request.limits.scans = library.MAX_SCANS
        self.resize = ffi.new("fd_resize *")
        made = lib.fd_resampler_create()
        if made == ffi.NULL:
            raise MemoryError("there is no memory for a resampler")
        self.resampler = ffi.gc(made, lib.fd_resampler_destroy)


_kept = _Kept() if library.lib is not None else None


def probe(data: Buffer) -> Any:
    """Read the header of a JPEG, as this thread's ``fd_header *``, until its next call.

    It is None if the core does not read such a file.
    """
    kept: Any = _kept
    view = library.ffi.from_buffer("uint8_t[]", data)
    failed = library.lib.fd_probe(view, len(view), kept.header)
    return None if failed else kept.header


def decode_resized(data: Buffer, resize: Resize, pixels: Any, out: int) -> bool:
    """Decode, resize and finish one image; False if it failed, or if the codec complained.

    `pixels` is from `stored`; `out` is the address of memory of the size that it and `resize` make.
    """
    kept: Any = _kept
    _fill(kept, resize)
    ffi = library.ffi
    view = ffi.from_buffer("uint8_t[]", data)
    status: int = library.lib.fd_decode_resized(
        library.decoder(),
        view,
        len(view),
        kept.request,
        kept.resize,
        pixels,
        ffi.cast("void *", out),
    )
    return status == 0


def resize_pixels(image: Image, resize: Resize, pixels: Any, out: int) -> bool:
    """Resize and finish uint8 pixels, (H, W, 3) with no gaps in a row, that some library decoded.

    The arguments are those of `decode_resized`; the reduction does not count. If such a resize is
    not possible, it is False, and nothing is written.
    """
    kept: Any = _kept
    _fill(kept, resize)
    ffi = library.ffi
    height, width = image.shape[:2]
    status: int = library.lib.fd_resize_rgb(
        kept.resampler,
        ffi.cast("uint8_t *", image.ctypes.data),
        width,
        height,
        image.strides[0],
        kept.resize,
        pixels,
        ffi.cast("void *", out),
    )
    return status == 0


def _fill(kept: Any, wanted: Resize) -> None:
    resize = kept.resize
    (
        kept.request.reduce,
        resize.left,
        resize.top,
        resize.right,
        resize.bottom,
        resize.in_left,
        resize.in_top,
        resize.in_right,
        resize.in_bottom,
        resize.canvas_width,
        resize.canvas_height,
        resize.x,
        resize.y,
        resize.width,
        resize.height,
        resize.flip,
    ) = wanted


@cache
def stored(affine: tuple[Sequence[float], Sequence[float]] | None, *, channels_first: bool) -> Any:
    """Describe how pixels are stored, as an ``fd_pixels *`` that is kept, and not to be changed.

    `affine` is (scale, bias), 3 floats each, for ``value * scale + bias`` as float32; None stores
    the bytes themselves. `channels_first` is (3, height, width), else (height, width, 3).
    """
    pixels = library.ffi.new("fd_pixels *")
    pixels.dtype = _UINT8 if affine is None else _FLOAT32
    pixels.channels_first = channels_first
    if affine is not None:
        pixels.scale, pixels.bias = affine
    return pixels
