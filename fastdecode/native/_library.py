"""The compiled core: loading it, why it is not there, and one image in the calling thread."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
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
"""cffi's view of the core; None where it cannot be used."""
lib: Any = getattr(_core, "lib", None)
"""The functions and constants of ``fastdecode.h``; None where they cannot be used."""

DECODER_VARIABLE = "FASTDECODE_NATIVE_DECODER"
"""``libjpeg`` in this variable leaves every JPEG to libjpeg-turbo."""
_asked_for = os.environ.get(DECODER_VARIABLE, "")
if lib is not None and lib.fd_use_decoder(_asked_for.encode("utf-8", "replace")) != lib.FD_OK:
    _broken = ImportError(
        f"{DECODER_VARIABLE}={_asked_for} names no decoder: give libjpeg, or unset it"
    )
    ffi = lib = None

LAYOUTS: dict[PixelLayout, int] = {"L": 1, "RGB": 2, "RGBA": 3, "CMYK": 4}
"""`fd_layout`, by the package's own words."""
LARGEST_SIDE = 65500
"""Of an image, or of a canvas, in pixels: libjpeg's limit, and the core's."""
_BYTES: Any = ffi and ffi.typeof("uint8_t[]")  # text would be looked up in every call
_MISSING_FILE = Path(__file__).with_name("_missing.txt")
# What brings a compiler and libjpeg-turbo's headers, by `ID` and `ID_LIKE` of os-release.
_PACKAGES = {
    "ubuntu": "apt-get install gcc libjpeg-turbo8-dev",
    "debian": "apt-get install gcc libjpeg62-turbo-dev",
    "fedora": "dnf install gcc libjpeg-turbo-devel",
    "rhel": "dnf install gcc libjpeg-turbo-devel",
    "suse": "zypper install gcc libjpeg8-devel",
    "alpine": "apk add gcc musl-dev libjpeg-turbo-dev",
    "arch": "pacman -S gcc libjpeg-turbo",
}
_PYTHON_HEADERS = {"apt-get": " python3-dev", "dnf": " python3-devel", "zypper": " python3-devel"}


class Resize(NamedTuple):
    """A reduction, and a resize with the members of ``fd_resize`` in their order.

    The box (`left` … `bottom`) is in pixels of the reduced image, of which those inside `in_left` …
    `in_bottom` may be read. It becomes the canvas; the part of that from `x`, `y` on is made, and
    flipped from left to right if `flip`.
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


class _PerThread(threading.local):
    """What each thread has of its own: a decoder and a resampler, and their requests."""

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
) -> int:
    """Decode one JPEG into a C-contiguous array of exactly the shape that the other arguments make.

    That shape is not looked at. The window is in pixels of the reduced image. An `fd_status` is
    returned, with a `message` if it is not 0. It is written for speed: all of it is in every call.
    """
    own = _own
    view = ffi.from_buffer
    if window is None:
        # In numbers: were the core to read another size in the file, `out` would be too small.
        window = (0, 0, out.shape[1], out.shape[0])
    asked = (window, reduce, layout, strict)
    if own.asked != asked:
        own.asked = ()  # until all of it is written
        request = own.request
        request.left, request.top, request.right, request.bottom = window
        request.reduce, request.layout, request.strict = reduce, LAYOUTS[layout], strict
        own.asked = asked
    # cffi passes the memory of bytes as it is.
    given = data if data.__class__ is bytes else view(_BYTES, data)
    status: int = lib.fd_decode(
        own.decoder, given, len(data), own.request, view(_BYTES, out), out.strides[0]
    )
    return status


def probe(data: Buffer) -> Any:
    """Read a JPEG's header, as this thread's ``fd_header *`` until its next call; or None."""
    view = ffi.from_buffer("uint8_t[]", data)
    failed = lib.fd_probe(view, len(view), _own.header)
    return None if failed else _own.header


def decode_resized(data: Buffer, resize: Resize, pixels: Any, out: int) -> bool:
    """Decode, resize and finish one image; False if it failed, or if the codec complained.

    `pixels` is from `stored`; `out` is the address of memory of the size that it and `resize` make.
    """
    own = _own
    own.resized.reduce, own.resize[0] = resize.reduce, resize[1:]
    view = ffi.from_buffer("uint8_t[]", data)
    status: int = lib.fd_decode_resized(
        own.decoder, view, len(view), own.resized, own.resize, pixels, ffi.cast("void *", out)
    )
    return status == 0


def resize_pixels(image: Image, resize: Resize, pixels: Any, out: int) -> bool:
    """Resize and finish uint8 pixels, (H, W, 3) with no gaps in a row, that some library decoded.

    The reduction does not count. False: no such resize is possible, and nothing is written.
    """
    own = _own
    own.resize[0] = resize[1:]
    height, width = image.shape[:2]
    source = ffi.cast("uint8_t *", image.ctypes.data), width, height, image.strides[0]
    status: int = lib.fd_resize_rgb(
        own.resampler, *source, own.resize, pixels, ffi.cast("void *", out)
    )
    return status == 0


@cache
def stored(affine: tuple[Sequence[float], Sequence[float]] | None, *, channels_first: bool) -> Any:
    """Describe how pixels are stored, as an ``fd_pixels *`` that is kept, and not to be changed.

    `affine` is (scale, bias), 3 floats each, for ``value * scale + bias`` as float32; None stores
    the bytes themselves. `channels_first` is (3, height, width), else (height, width, 3).
    """
    kind = {"dtype": lib.FD_UINT8 if affine is None else lib.FD_FLOAT32}
    values = {} if affine is None else {"scale": affine[0], "bias": affine[1]}
    return ffi.new("fd_pixels *", {**kind, "channels_first": channels_first, **values})


def decoder() -> Any:
    """Return this thread's `fd_decoder *`, made on first use and freed with the thread."""
    require()
    return _own.decoder


def message() -> str:
    """Return the words of this thread's decoder for its last failure."""
    words: bytes = ffi.string(lib.fd_decoder_message(decoder()))
    return words.decode("utf-8", "replace")


def failure(status: int, words: str) -> FastDecodeError | MemoryError | ValueError:
    """Return the exception for an `fd_status` other than `FD_OK`, with the core's own words."""
    if status == lib.FD_NO_MEMORY:
        return MemoryError(words)
    if status == lib.FD_ARGUMENT:
        return ValueError(words)
    if status == lib.FD_UNSUPPORTED:
        return UnsupportedFormat(words)
    return ImageTooLarge(words) if status == lib.FD_TOO_LARGE else DecodeError(words)


def codec() -> str:
    """Name what decodes: the core itself, and the libjpeg-turbo that it was built with."""
    turbo = f"libjpeg-turbo {ffi.string(lib.fd_codec()).decode()}"
    return turbo if _asked_for else f"its own for baseline JPEG, else {turbo}"


def left_to_libjpeg() -> int:
    """Return how many JPEGs of this process the core has left to libjpeg-turbo so far."""
    return int(lib.fd_counted().libjpeg) if lib is not None else 0


def require() -> None:
    """Raise `BackendUnavailable` if the core is not there, with the reason and what brings it."""
    if lib is None:
        raise BackendUnavailable(f"{problem()}\nInstall it with: {install_line()}")


def problem() -> str:
    """Say why the core cannot be used here; empty if it can."""
    return "" if _broken is None else _reason()


def install_line() -> str:
    """Return the line for a shell that brings the core, or does nothing where it is there."""
    if _broken is None or _lacks_cffi():
        return "pip install 'fastdecode[native]'"
    return " && ".join([*_system_packages(_reason()), _reinstall()])


def _lacks_cffi() -> bool:
    return isinstance(_broken, ModuleNotFoundError) and _broken.name == "_cffi_backend"


def _reason() -> str:
    """Say what is in the way, as it was kept when fastdecode was built, or as it shows now."""
    if _lacks_cffi():
        return "the Python package 'cffi' is not installed"
    if not isinstance(_broken, ModuleNotFoundError):
        return f"the compiled core cannot be loaded: {_broken}"
    if (other := hidden_copy()) is not None:
        return (
            f"Python runs fastdecode from {other.here}, where the native core has not been "
            f"compiled, and not from {other.there}, where it has: use the command `fastdecode`, "
            "or start Python in another folder"
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
    """Return this package's folder without a core, and that of an installed copy with one."""
    if not isinstance(_broken, ModuleNotFoundError) or _lacks_cffi() or _MISSING_FILE.exists():
        return None  # it is there, or a build has kept why it is not
    here = Path(__file__).resolve().parents[1]
    for entry in sys.path:
        there = Path(entry, here.name).resolve()
        if there != here and any((there / "native").glob("_core.*")):
            return _Copies(here.parent, there.parent)
    return None


def _system_packages(reason: str) -> list[str]:
    """Name the command that installs the compiler and the headers, where one is known."""
    if "FASTDECODE_NATIVE" in reason:
        return []
    if sys.platform == "darwin":
        return ["brew install jpeg-turbo"]
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        return []
    for name in (system["ID"], *system.get("ID_LIKE", "").split()):
        if name in _PACKAGES:
            line = _PACKAGES[name]
            return [
                line + (_PYTHON_HEADERS.get(line.split()[0], "") if "Python.h" in reason else "")
            ]
    return []


def _reinstall() -> str:
    """Return the command that builds fastdecode anew, from where it came."""
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
    if (tree / "setup.py").exists():  # it runs from where its sources are
        return f"pip install -e {quote(str(tree))}"
    # Without the options pip would take the wheel that it has kept, or finds, once more.
    return "pip install --force-reinstall --no-deps --no-cache-dir --no-binary :all: fastdecode"
