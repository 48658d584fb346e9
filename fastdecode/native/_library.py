"""Loads the compiled core, and decodes one image in the calling thread."""

from __future__ import annotations

import importlib.metadata
import json
import os
import struct
import threading
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import urlsplit
from urllib.request import url2pathname
from weakref import WeakKeyDictionary

from fastdecode.errors import DecodeError, FastDecodeError, ImageTooLarge, UnsupportedFormat
from fastdecode.types import Color

if TYPE_CHECKING:
    from fastdecode.types import Box, Buffer, Image, PixelLayout, Reduce

_FOLDER = Path(__file__).parent


def _load() -> tuple[Any, Any]:
    """Return cffi's declarations, and the functions and constants of ``fastdecode.h``.

    Raises ImportError if there is no library in this folder, as in a source tree, or none for this
    system.
    """
    file = next(_FOLDER.glob("libfastdecode.*"), None)
    if file is None:
        raise ImportError(
            f"fastdecode is imported from {_FOLDER.parents[1]}, where its native core has not been "
            f"compiled: run `{_build_command()}`, or start Python in another folder to use an "
            "installed copy"
        )
    from fastdecode.native._core import ffi

    # Its threads may still run when Python closes the library at exit: it has to stay.
    flags = getattr(os, "RTLD_NOW", 0) | getattr(os, "RTLD_NODELETE", 0)
    try:
        return ffi, ffi.dlopen(str(file), flags)
    except OSError as error:
        raise ImportError(
            f"fastdecode's native core cannot be loaded: {error}. Install fastdecode again, on "
            f"this machine: `{_build_command()}`"
        ) from error


def _build_command() -> str:
    """Return the command that builds the core again, from what fastdecode was installed from."""
    tree = _FOLDER.parents[1]
    if (tree / "setup.py").exists():  # it runs from its source folder
        return f"pip install -e {quote(str(tree))}"
    try:
        text = importlib.metadata.distribution("fastdecode").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        text = None
    came_from = json.loads(text or "{}")
    if "dir_info" in came_from:
        return f"pip install {quote(url2pathname(urlsplit(came_from['url']).path))}"
    # It came from a wheel. Without the option pip would keep what is installed.
    return "pip install --force-reinstall --no-deps FOLDER_OF_THE_CLONE"


ffi, lib = _load()

LAYOUTS: dict[PixelLayout, int] = {"L": 1, "RGB": 2, "RGBA": 3, "stored": 4}
"""`fd_layout` by the package's name of the layout."""
LARGEST_SIDE = 65500
"""The limit of the core for a side of an image or a canvas, in pixels."""
COLORS: tuple[Color, ...] = get_args(Color)
"""The names of ``fd_colours``."""
_BYTES: Any = ffi.typeof("uint8_t[]")  # cffi would look up a string in every call
_members = struct.Struct("12i4s6N").unpack_from  # of fd_header, but its fault


class CoreResize(NamedTuple):
    """A reduction, and a resize with the members of ``fd_resize`` in their order.

    The box (`left` … `bottom`) is in pixels of the reduced image. Only pixels inside `in_left` …
    `in_bottom` may be read. The box is resized to the canvas, of which only the part from `x`, `y`
    on is made, with the size `width`, `height`. `flip` mirrors it from left to right. `filter` is
    an ``fd_resize_filter``.
    """

    reduce: int
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
    filter: int = 0


Axis: TypeAlias = Literal["patch", "channel", "repeat", "row", "column"]


class Patches(NamedTuple):
    """How a result is cut into patches: an array whose axes are in this order, the outermost first.

    `size` is the (height, width) of a patch, in pixels. The patches come row by row or, with
    `merge`, in squares of `merge` by `merge` of them, row by row in each square. Each value is
    stored `repeats` times.
    """

    size: tuple[int, int]
    merge: int = 1
    repeats: int = 1
    order: tuple[Axis, ...] = ("patch", "channel", "repeat", "row", "column")

    def shape(self, size: tuple[int, int], channels: int = 3) -> tuple[int, ...]:
        """Return the shape of the patches of a result of this (height, width), in pixels.

        Raises ValueError if it cannot be cut into whole squares of patches.
        """
        rows, columns = (side // part for side, part in zip(size, self.size, strict=True))
        if (rows * self.size[0], columns * self.size[1]) != size or (
            rows % self.merge or columns % self.merge
        ):
            squares = " x ".join(str(side * self.merge) for side in self.size)
            raise ValueError(
                f"{size[0]} x {size[1]} pixels cannot be cut into squares of {squares}: resize the "
                "image to multiples of that"
            )
        sides = rows * columns, channels, self.repeats, *self.size
        counts = dict(zip(get_args(Axis), sides, strict=True))
        return tuple(counts[axis] for axis in self.order)

    def core(self) -> dict[str, Any]:
        """Return the members of ``fd_patches``."""
        height, width = self.size
        order = [get_args(Axis).index(axis) for axis in self.order]
        sizes = {"width": width, "height": height, "merge": self.merge, "repeats": self.repeats}
        return {**sizes, "order": order}


class _PerThread(threading.local):
    """The decoder and the resampler of each thread, and their requests."""

    def __init__(self) -> None:
        self.decoder = _owned(lib.fd_decoder_create(), lib.fd_decoder_destroy)
        self.resampler = _owned(lib.fd_resampler_create(), lib.fd_resampler_destroy)
        self.header = ffi.new("fd_header *")
        self.members = ffi.buffer(self.header)
        limits = {"scans": lib.FD_SCANS}
        self.request = ffi.new("fd_request *", {"limits": limits})
        self.asked: tuple[object, ...] = ()
        self.resized = ffi.new("fd_request *", {"layout": lib.FD_RGB, "limits": limits})
        self.resize = ffi.new("fd_resize *")


def _owned(made: Any, destroy: Any) -> Any:
    if made == ffi.NULL:
        raise MemoryError("there is no memory for a decoder")
    return ffi.gc(made, destroy)


_own = _PerThread()


def decode(
    data: Buffer,
    out: Image,
    reduce: Reduce = 1,
    layout: PixelLayout = "RGB",
    window: Box | None = None,
    thorough: bool = False,
) -> int:
    """Decode one JPEG or PNG into a C-contiguous array, whose shape must match the other arguments.

    The shape is not checked. The window is in pixels of the reduced image. With `thorough`, all of
    a progressive file is decoded. Return an `fd_status`; if it is not 0, `message` explains it. The
    code is written for speed, because it runs in every call.
    """
    own = _own
    view = ffi.from_buffer
    if window is None:
        # Name the whole window. If the core read another size from the file, `out` would be too
        # small.
        window = (0, 0, out.shape[1], out.shape[0])
    asked = (window, reduce, layout, thorough)
    if own.asked != asked:
        own.asked = ()  # the request is incomplete until the last line of this block
        request = own.request
        request.left, request.top, request.right, request.bottom = window
        request.reduce, request.layout = reduce, LAYOUTS[layout]
        request.thorough = thorough
        own.asked = asked
    # cffi passes the memory of a bytes object without a copy.
    given = data if data.__class__ is bytes else view(_BYTES, data)
    status: int = lib.fd_decode(
        own.decoder, given, len(data), own.request, view(_BYTES, out), out.strides[0]
    )
    return status


def probe(data: Buffer) -> Any:
    """Return the ``fd_header *`` of a JPEG or PNG, valid until this thread's next call.

    It is None if the header is damaged, or of any other file.
    """
    given = data if data.__class__ is bytes else ffi.from_buffer(_BYTES, data)
    failed = lib.fd_probe(given, len(data), _own.header)
    return None if failed else _own.header


def header(data: Buffer, name: str) -> tuple[Any, ...]:
    """Return the members of the ``fd_header`` of a JPEG or PNG; `DecodeError` if it is damaged."""
    if probe(data) is None:
        fault = ffi.string(_own.header.fault).decode()
        raise DecodeError(f"the {name} header {fault} ({len(data)} bytes)")
    return _members(_own.members)


def decode_resized(
    data: Buffer, resize: CoreResize, pixels: Any, out: int, operations: Any = ()
) -> bool:
    """Decode, resize and finish one image. Return False if it failed.

    `pixels` is from `stored`. `out` is the address of memory of the size that `pixels` and `resize`
    need. `operations` are an ``fd_operation[]``, for the resized image.
    """
    own = _own
    own.resized.reduce, own.resize[0] = resize.reduce, resize[1:]
    view = ffi.from_buffer("uint8_t[]", data)
    status: int = lib.fd_decode_resized(
        *(own.decoder, view, len(view), own.resized, own.resize),
        *(operations or ffi.NULL, len(operations), pixels, ffi.cast("void *", out)),
    )
    return status == 0


def resize_pixels(
    image: Image, resize: CoreResize, pixels: Any, out: int, operations: Any = ()
) -> bool:
    """Resize and finish pixels of any library: uint8, (H, W, 3), with no gaps in a row.

    Of four channels the last may be anything. The reduction is ignored. Return False, and write
    nothing, if this resize is impossible.
    """
    own = _own
    own.resize[0] = resize[1:]
    height, width, channels = image.shape
    source = ffi.cast("uint8_t *", image.ctypes.data), width, height, channels, image.strides[0]
    status: int = lib.fd_resize_rgb(
        *(own.resampler, *source, own.resize),
        *(operations or ffi.NULL, len(operations), pixels, ffi.cast("void *", out)),
    )
    return status == 0


@lru_cache(maxsize=256)
def stored(
    affine: tuple[Sequence[float], Sequence[float]] | None,
    *,
    channels_first: bool,
    channels: int = 3,
    dtype: Literal["uint8", "float32", "bfloat16"] | None = None,
    table: bytes | None = None,
    patches: Patches | None = None,
) -> Any:
    """Return an ``fd_pixels *``, which says how to store pixels. It is cached: do not change it.

    `affine` is (scale, bias), 3 floats each, for ``value * scale + bias`` as float32; or `table`
    are the float32 numbers for the values 0 to 255 of each channel. Without either the bytes
    themselves are stored. `channels_first` means (3, height, width), else (height, width, 3),
    unless the result is cut into `patches`. Of `channels`, 1 is the red one; 4 are bytes as the
    core has them in memory, (height, width, 4), of which the last may be anything.
    """
    dtype = dtype or ("uint8" if affine is None and table is None else "float32")
    members = {
        "dtype": getattr(lib, f"FD_{dtype.upper()}"),
        "channels": channels,
        "channels_first": channels_first,
    }
    if affine is not None:
        members |= {"scale": affine[0], "bias": affine[1]}
    if patches is not None:
        members["patches"] = patches.core()
    made = ffi.new("fd_pixels *", members)
    if table is not None:
        made.table = _tables[made] = ffi.from_buffer("float[768]", table)
    return made


_tables: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""What these structs only point to."""


def message() -> str:
    """Return the message of this thread's decoder for its last failure."""
    words: bytes = ffi.string(lib.fd_decoder_message(_own.decoder))
    return words.decode()


def failure(status: int, words: str) -> FastDecodeError | MemoryError | ValueError:
    """Return the exception for an `fd_status` other than `FD_OK`, with the core's own message."""
    if status == lib.FD_NO_MEMORY:
        return MemoryError(words)
    if status == lib.FD_ARGUMENT:
        return ValueError(words)
    if status == lib.FD_UNSUPPORTED:
        return UnsupportedFormat(words)
    return ImageTooLarge(words) if status == lib.FD_TOO_LARGE else DecodeError(words)
