"""Loads the compiled core, or says why it is missing; decodes one image in the calling thread."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import sys
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import url2pathname

from fastdecode._headers import jpeg_stream
from fastdecode.errors import (
    BackendUnavailable,
    DecodeError,
    FastDecodeError,
    ImageTooLarge,
    UnsupportedFormat,
)

if TYPE_CHECKING:
    from fastdecode.types import Box, Buffer, Image, PixelLayout, Reduce

_core: Any = None
_broken: ImportError | None = None
try:
    _core = importlib.import_module("fastdecode.native._core")
except ImportError as error:
    _broken = error
ffi: Any = getattr(_core, "ffi", None)
"""cffi's interface to the core; None if the core cannot be used."""
lib: Any = getattr(_core, "lib", None)
"""The functions and constants of ``fastdecode.h``; None if the core cannot be used."""

DECODER_VARIABLE = "FASTDECODE_NATIVE_DECODER"
"""With ``libjpeg`` in this variable, libjpeg-turbo decodes every JPEG."""
_asked_for = os.environ.get(DECODER_VARIABLE, "")
if lib is not None and lib.fd_use_decoder(_asked_for.encode("utf-8", "replace")) != lib.FD_OK:
    _broken = ImportError(
        f"{DECODER_VARIABLE}={_asked_for} does not name a decoder: set it to libjpeg, or unset it"
    )
    ffi = lib = None

LAYOUTS: dict[PixelLayout, int] = {"L": 1, "RGB": 2, "RGBA": 3, "CMYK": 4, "stored": 5}
"""`fd_layout` by the package's name of the layout."""
LARGEST_SIDE = 65500
"""The limit of libjpeg and of the core for a side of an image or a canvas, in pixels."""
_BYTES: Any = ffi and ffi.typeof("uint8_t[]")  # cffi would look up a string in every call
_MISSING_FILE = Path(__file__).with_name("_missing.txt")


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


class _PerThread(threading.local):
    """The decoder and the resampler of each thread, and their requests."""

    def __init__(self) -> None:
        self.decoder = _owned(lib.fd_decoder_create(), lib.fd_decoder_destroy)
        self.resampler = _owned(lib.fd_resampler_create(), lib.fd_resampler_destroy)
        self.header = ffi.new("fd_header *")
        limits = {"scans": jpeg_stream.MAX_SCANS}
        self.request = ffi.new("fd_request *", {"limits": limits})
        self.asked: tuple[object, ...] = ()
        self.resized = ffi.new(
            "fd_request *", {"layout": lib.FD_RGB, "strict": 1, "limits": limits}
        )
        self.resize = ffi.new("fd_resize *")


def _owned(made: Any, destroy: Any) -> Any:
    if made == ffi.NULL:
        raise MemoryError("there is no memory for a decoder")
    return ffi.gc(made, destroy)


_own: Any = _PerThread() if lib is not None else None


def decode(
    data: Buffer,
    out: Image,
    reduce: Reduce = 1,
    layout: PixelLayout = "RGB",
    window: Box | None = None,
    strict: bool = False,
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
    asked = (window, reduce, layout, strict, thorough)
    if own.asked != asked:
        own.asked = ()  # the request is incomplete until the last line of this block
        request = own.request
        request.left, request.top, request.right, request.bottom = window
        request.reduce, request.layout = reduce, LAYOUTS[layout]
        request.strict, request.thorough = strict, thorough
        own.asked = asked
    # cffi passes the memory of a bytes object without a copy.
    given = data if data.__class__ is bytes else view(_BYTES, data)
    status: int = lib.fd_decode(
        own.decoder, given, len(data), own.request, view(_BYTES, out), out.strides[0]
    )
    return status


def probe(data: Buffer) -> Any:
    """Return a JPEG's ``fd_header *``, valid until this thread's next call; None if it fails."""
    view = ffi.from_buffer("uint8_t[]", data)
    failed = lib.fd_probe(view, len(view), _own.header)
    return None if failed else _own.header


def decode_resized(
    data: Buffer, resize: CoreResize, pixels: Any, out: int, operations: Any = ()
) -> bool:
    """Decode, resize and finish one image. Return False if it failed or the codec warned.

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

    The reduction is ignored. Return False, and write nothing, if this resize is impossible.
    """
    own = _own
    own.resize[0] = resize[1:]
    height, width = image.shape[:2]
    source = ffi.cast("uint8_t *", image.ctypes.data), width, height, image.strides[0]
    status: int = lib.fd_resize_rgb(
        *(own.resampler, *source, own.resize),
        *(operations or ffi.NULL, len(operations), pixels, ffi.cast("void *", out)),
    )
    return status == 0


@cache
def stored(
    affine: tuple[Sequence[float], Sequence[float]] | None,
    *,
    channels_first: bool,
    channels: int = 3,
) -> Any:
    """Return an ``fd_pixels *``, which says how to store pixels. It is cached: do not change it.

    `affine` is (scale, bias), 3 floats each, for ``value * scale + bias`` as float32; None stores
    the bytes themselves. `channels_first` means (3, height, width), else (height, width, 3). Of
    `channels`, 1 is the red one.
    """
    kind = {"dtype": lib.FD_UINT8 if affine is None else lib.FD_FLOAT32, "channels": channels}
    values = {} if affine is None else {"scale": affine[0], "bias": affine[1]}
    return ffi.new("fd_pixels *", {**kind, "channels_first": channels_first, **values})


def decoder() -> Any:
    """Return this thread's `fd_decoder *`, made on first use and freed with the thread."""
    require()
    return _own.decoder


def message() -> str:
    """Return the message of this thread's decoder for its last failure."""
    words: bytes = ffi.string(lib.fd_decoder_message(decoder()))
    return words.decode("utf-8", "replace")


def failure(status: int, words: str) -> FastDecodeError | MemoryError | ValueError:
    """Return the exception for an `fd_status` other than `FD_OK`, with the core's own message."""
    if status == lib.FD_NO_MEMORY:
        return MemoryError(words)
    if status == lib.FD_ARGUMENT:
        return ValueError(words)
    if status == lib.FD_UNSUPPORTED:
        return UnsupportedFormat(words)
    return ImageTooLarge(words) if status == lib.FD_TOO_LARGE else DecodeError(words)


def codec() -> str:
    """Return the decoders of the core: its own, and the libjpeg-turbo that it was built with."""
    turbo = f"libjpeg-turbo {ffi.string(lib.fd_codec()).decode()}"
    if _asked_for:
        return turbo
    return f"its own for PNG, and baseline and progressive JPEG; else {turbo}"


def left_to_libjpeg() -> int:
    """Return how many JPEGs the core has decoded with libjpeg-turbo in this process so far."""
    return int(lib.fd_counted().libjpeg) if lib is not None else 0


def require() -> None:
    """Raise `BackendUnavailable` if the core is missing, with the reason and the install line."""
    if lib is None:
        raise BackendUnavailable(f"{problem()}\nInstall it with: {install_line()}")


def problem() -> str:
    """Return why the core cannot be used here; empty if it can."""
    return "" if _broken is None else _reason()


def install_line() -> str:
    """Return the shell command that installs the core, or does nothing if it is installed."""
    if _broken is None or _lacks_cffi():
        return "pip install 'fastdecode[native]'"
    return f"{_reinstall()}  # what it needs: docs/installing.md"


def _lacks_cffi() -> bool:
    return isinstance(_broken, ModuleNotFoundError) and _broken.name == "_cffi_backend"


def _reason() -> str:
    """Return why the core is missing: as its import shows, or as the build saved it."""
    if _lacks_cffi():
        return "the Python package 'cffi' is not installed"
    if not isinstance(_broken, ModuleNotFoundError):
        return f"the compiled core cannot be loaded: {_broken}"
    if (other := hidden_copy()) is not None:
        return (
            f"Python runs fastdecode from {other.here}, where the native core has not been "
            f"compiled, and not from {other.there}, where it has been: use the command "
            "`fastdecode`, or start Python in another folder"
        )
    try:
        kept = _MISSING_FILE.read_text(encoding="utf-8").strip()
    except OSError:
        return "the native core has not been compiled"
    return f"the native core was left out when fastdecode was built: {kept}"


class _Copies(NamedTuple):
    here: Path
    there: Path


def hidden_copy() -> _Copies | None:
    """Return this package's folder without a core, and that of an installed copy with a core."""
    if not isinstance(_broken, ModuleNotFoundError) or _lacks_cffi() or _MISSING_FILE.exists():
        return None  # the core is there, or a build saved why it is not
    here = Path(__file__).resolve().parents[1]
    for entry in sys.path:
        there = Path(entry, here.name).resolve()
        if there != here and any((there / "native").glob("_core.*")):
            return _Copies(here.parent, there.parent)
    return None


def _reinstall() -> str:
    """Return the command that rebuilds fastdecode from the source that it was installed from."""
    try:
        text = importlib.metadata.distribution("fastdecode").read_text("direct_url.json")
    except importlib.metadata.PackageNotFoundError:
        text = None
    came_from = json.loads(text or "{}")
    if "dir_info" in came_from:
        folder = url2pathname(urlsplit(came_from["url"]).path)
        editable = "-e " if came_from["dir_info"].get("editable") else ""
        return f"pip install {editable}{quote(folder)}"
    tree = Path(__file__).parents[2]
    if (tree / "setup.py").exists():  # it runs from its source folder
        return f"pip install -e {quote(str(tree))}"
    # It came from a wheel. Without the option pip would keep what is installed.
    return "pip install --force-reinstall --no-deps FOLDER_OF_THE_CLONE"
