"""Pillow: the reference, and the only backend that is always installed."""

from __future__ import annotations

import atexit
import ctypes
import io
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import cast

import numpy as np
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    ImageFile,
    ImagePalette,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    PpmImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
    _imaging,
    features,
)
from PIL import Image as PillowImage

from fastdecode._backends.base import Backend, Support
from fastdecode._formats import NoFallback, tiff
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Format, Header, Image, PixelLayout, Reduce

# The classes of the plugins, not `Image.open`: that would try every plugin in turn, warn about
# large images because of a process-wide limit (this package has `max_pixels`), and open an MPO as
# several images.
_OPENERS: dict[Format, Callable[[io.BytesIO], PillowImage.Image]] = {
    "jpeg": JpegImagePlugin.JpegImageFile,
    "png": PngImagePlugin.PngImageFile,
    "webp": WebPImagePlugin.WebPImageFile,
    "gif": GifImagePlugin.GifImageFile,
    "bmp": BmpImagePlugin.BmpImageFile,
    "tiff": TiffImagePlugin.TiffImageFile,
    "avif": AvifImagePlugin.AvifImageFile,
    "jpeg2000": Jpeg2KImagePlugin.Jpeg2KImageFile,
    "pnm": PpmImagePlugin.PpmImageFile,
}
_ANY = Support(layouts=frozenset({"RGB", "L", "RGBA", "stored"}), bits=None)
# Unpackers of 16-bit colour: the samples and their byte order (N: this machine's byte order).
_RAW_16 = re.compile(r"(RGB|RGBX|RGBA|RGBa|CMYK|LA|[RGBA]);16[BLN]")
_NATIVE = "L" if sys.byteorder == "little" else "B"
_PREMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}


class Pillow(Backend):
    """Every format that Pillow's wheels read. ``draft`` reduces a JPEG."""

    distribution = "pillow"
    holds_gil = frozenset({"jpeg2000"})
    supports = {
        "jpeg": (
            Support(
                layouts=frozenset({"RGB", "L", "CMYK"}),
                reduces=frozenset({1, 2, 4, 8}),
                codings=frozenset({"baseline", "progressive", "arithmetic"}),
            ),
            # Lossless JPEG cannot be scaled.
            Support(layouts=frozenset({"RGB", "L", "CMYK"}), codings=frozenset({"lossless"})),
        ),
        # For these formats, Pillow and the codecs raise every warning as an exception.
        **dict.fromkeys(("png", "gif", "webp"), (replace(_ANY, warnings=True),)),
        "bmp": (
            replace(_ANY, warnings=True, bits=frozenset({1, 4, 8}), codings=frozenset({""})),
            Support(
                layouts=frozenset({"RGB", "L"}),
                warnings=True,
                bits=frozenset({5}),
                codings=frozenset({""}),
            ),
        ),
        "avif": (
            Support(layouts=_ANY.layouts, warnings=True),
            # Pillow has libavif convert deeper images to 8 bits.
            Support(layouts=_ANY.layouts - {"stored"}, bits=None, warnings=True),
        ),
        # All else rests on libtiff, whose errors Pillow does not see.
        "tiff": (replace(_ANY, codings=frozenset({""})),),
        # Pillow decodes all other kinds differently from OpenJPEG's own decompressor: it rounds
        # white to black, takes chroma from the wrong rows, and ignores channel definitions.
        "jpeg2000": (
            Support(
                layouts=_ANY.layouts,
                bits=frozenset({8}),
                colors=frozenset({"gray", "rgb", "cmyk", "palette"}),
                codings=frozenset({""}),
                subsamplings=frozenset({""}),
            ),
            Support(
                layouts=_ANY.layouts,
                bits=frozenset(range(10, 17)),
                channels=frozenset({1}),
                colors=frozenset({"gray"}),
                codings=frozenset({""}),
            ),
        ),
        # It has 8 bits of deeper colours.
        "pnm": (replace(_ANY, bits=frozenset(range(1, 9))),),
    }

    def decode(
        self, data: Buffer, header: Header, *, reduce: Reduce, layout: PixelLayout, **_: object
    ) -> Image:
        if header.format != "tiff":
            return self._decode(data, header, reduce, layout)
        # Also where tifffile is installed, the verdict on a plain TIFF is that of Pillow.
        with _libtiff_errors() as told:
            try:
                pixels = self._decode(data, header, reduce, layout)
            except MemoryError:
                raise
            except Exception as error:  # "decoder error -2"
                raise NoFallback(
                    "; ".join(told[:3]) or f"{type(error).__name__}: {error}"
                ) from error
        if told:  # and went on
            raise NoFallback("; ".join(told[:3]))
        if words := tiff.damaged_deflate(data):
            raise NoFallback(words)
        return pixels

    def _decode(self, data: Buffer, header: Header, reduce: Reduce, layout: PixelLayout) -> Image:
        image = _open(data, header)
        if header.format == "jpeg":
            _draft(cast("ImageFile.ImageFile", image), reduce, layout)
        elif header.format == "tiff" and header.color == "palette":
            _widen_palette(cast("TiffImagePlugin.TiffImageFile", image))
        elif header.format == "bmp" and header.color == "palette" and image.mode != "P":
            _keep_palette(cast("ImageFile.ImageFile", image), header)
        elif layout == "stored" and header.bits == 16 and header.format == "png":
            low = _open(data, header)
            if _in_halves(cast("ImageFile.ImageFile", image), cast("ImageFile.ImageFile", low)):
                return _joined(image, low, header)
        elif layout == "RGBA" and header.format == "png" and header.color != "palette":
            key = image.info.get("transparency")
            if key is not None and header.bits == 16:  # Pillow compares 8 of them
                stored = self.decode(data, header, reduce=reduce, layout="stored")
                opaque = np.atleast_3d(stored != key).any(axis=2)
                return np.dstack([_pixels(image, "RGB", header), np.uint8(255) * opaque])
            if key is not None and 1 < header.bits < 8:  # it has scaled the pixels, but not the key
                image.info["transparency"] = key * 255 // ((1 << header.bits) - 1)
        return _pixels(image, layout, header)

    def codec(self) -> str:
        number = features.version_feature("libjpeg_turbo")
        return f"libjpeg-turbo {number}" if number else "libjpeg"


def _open(data: Buffer, header: Header) -> PillowImage.Image:
    # BytesIO does not copy an immutable `bytes`.
    return _OPENERS[header.format](io.BytesIO(data))


def _widen_palette(image: TiffImagePlugin.TiffImageFile) -> None:
    """Take the colours of a palette as they are if none has more than 8 bits, as libtiff does."""
    colours = image.tag_v2[TiffImagePlugin.COLORMAP]
    if max(colours) < 256:
        image.palette = ImagePalette.raw("RGB;L", bytes(colours))


def _keep_palette(image: ImageFile.ImageFile, header: Header) -> None:
    """Have indices unpacked that Pillow takes for greys, whatever their number of bits."""
    greys = (0, 255) if image.mode == "1" else range(256)
    image._mode = "P"
    image.palette = ImagePalette.raw("RGB", bytes(g for g in greys for _ in range(3)))
    raw = "P" if header.bits == 8 else f"P;{header.bits}"
    image.tile = [_told(tile, raw) for tile in image.tile]


def _draft(image: ImageFile.ImageFile, reduce: Reduce, layout: PixelLayout) -> None:
    """Ask libjpeg for a smaller image, or only for its Y plane, before it decodes."""
    if layout == "L" and image.mode in ("RGB", "YCbCr"):
        image.draft("L", None)
        image.decoderconfig = ()
    if reduce == 1:
        return
    width, height = image.size
    if min(width, height) >= reduce:
        # Rounded down, not up: draft takes the quotient of the sizes, rounded down, as its scale.
        image.draft(None, (width // reduce, height // reduce))
        return
    # `draft` does not accept a size below 1. Set what it would set (Pillow 10 to 13).
    size = (-(-width // reduce), -(-height // reduce))
    tile = image.tile[0]
    image.tile = [ImageFile._Tile(tile[0], (0, 0, *size), tile[2], tile[3])]
    image._size = size
    image.decoderconfig = (reduce, 0)


def _in_halves(image: ImageFile.ImageFile, low: ImageFile.ImageFile) -> bool:
    """Prepare the same file, opened twice, to give the high and the low bytes of 16-bit colour.

    Pillow has no 16-bit colour. Its unpackers take the high byte of each sample in a given byte
    order. With the opposite byte order they take the low byte. Return False, and change nothing, if
    it is not such a file.
    """
    if not image.tile or not all(_RAW_16.fullmatch(_raw(tile)) for tile in image.tile):
        return False
    for opened, swapped in ((image, False), (low, True)):
        opened.tile = [_retold(tile, swapped) for tile in opened.tile]
    return True


def _retold(tile: ImageFile._Tile, swapped: bool) -> ImageFile._Tile:
    """Return a tile with the unpacker for its high bytes or, if swapped, for its low bytes."""
    kind, order = _raw(tile).split(";16")
    if kind == "LA":  # no unpacker has the other byte order: read its two times two bytes as four
        return _told(tile, "RGBA")
    order = _NATIVE if order == "N" else order
    order = {"B": "L", "L": "B"}[order] if swapped else order
    # Premultiplied colours stay premultiplied.
    return _told(tile, f"{kind.replace('RGBa', 'RGBA')};16{order}")


def _raw(tile: ImageFile._Tile) -> str:
    """Return the name of a tile's unpacker, which says how its samples lie in the file."""
    args = tile[3] or ("",)
    return str(args if isinstance(args, str) else args[0])


def _told(tile: ImageFile._Tile, raw: str) -> ImageFile._Tile:
    """Return a tile with another unpacker."""
    args = tile[3]
    return ImageFile._Tile(*tile[:3], (raw, *args[1:]) if isinstance(args, tuple) else raw)


def _joined(high: PillowImage.Image, low: PillowImage.Image, header: Header) -> Image:
    """Join the high and the low byte of each sample."""
    upper = np.asarray(high).astype(np.uint16)
    if header.channels == 2:
        upper, lower = upper[:, :, 0::2], upper[:, :, 1::2]
    else:
        lower = np.asarray(low).astype(np.uint16)
    joined: Image = upper << 8 | lower
    return joined


def _pixels(image: PillowImage.Image, layout: PixelLayout, header: Header) -> Image:
    """Convert as Pillow does, except for modes that it would clip or refuse."""
    colours = _colours(image, header)
    image.load()
    mode = image.mode
    if layout == "stored":
        return _unspread(_native(image, header), header)
    if layout == mode:
        return _native(image, header)
    if colours and np.asarray(image).max() >= colours:
        raise DecodeError(f"an index of the palette has none of its {colours} colours")
    if mode in _PREMULTIPLIED:
        image = image.convert(_PREMULTIPLIED[mode])
    elif mode.startswith("I;16"):
        # Pillow clips 16-bit grey at 255, which makes most images white. Take the high byte, as
        # Pillow does for 16-bit colour, and libpng and OpenCV for both.
        high = max(header.bits, 9) - 8
        image = PillowImage.fromarray((_native(image, header) >> high).astype(np.uint8))
    return np.array(image if image.mode == layout else image.convert(layout))


def _colours(image: PillowImage.Image, header: Header) -> int:
    """Return how many colours the palette of a PNG has, before Pillow fills it up with black."""
    palette = image.palette if header.format == "png" else None
    return len(palette.palette) // 3 if palette else 0


def _native(image: PillowImage.Image, header: Header) -> Image:
    """Return a copy of the pixels, in this machine's byte order and in the file's own range."""
    array = np.array(image)
    if header.format == "jpeg2000" and image.mode == "I;16" and 8 < header.bits < 16:
        array >>= 16 - header.bits  # Pillow widens them to 16 bits
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _unspread(array: Image, header: Header) -> Image:
    """Return the samples of the file: Pillow spreads fewer bits, and makes a PBM's 1 a 0."""
    white = header.maxval or (1 << header.bits) - 1
    if array.dtype == np.bool_ and header.format == "pnm":
        return ~array
    if array.dtype != np.uint8 or white >= 255 or header.color not in ("gray", "rgb"):
        return array
    rounded: Image = (array.astype(np.uint16) * white + 127) // 255
    return rounded.astype(np.uint8)


# ---- the errors that libtiff tells, which would go to stderr without the name of a file ----

# libtiff has one handler of errors for the process. The one here keeps the messages of a thread
# that has asked for them, and leaves all others to the handler that was there. Where Pillow is
# linked with libtiff statically (on Windows), it cannot be reached: the messages stay on stderr.

_LONGEST = 500

_asked = threading.local()


@contextmanager
def _libtiff_errors() -> Iterator[list[str]]:
    """Collect the errors that libtiff tells in this thread."""
    _asked.words = []
    try:
        yield _asked.words
    finally:
        del _asked.words


# The arguments are the name of a function, and what `vprintf` takes: a format and a va_list, which
# is passed on as a pointer on all systems.
_Handler = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)


def _install() -> _Handler | None:  # type: ignore[valid-type]  # a class that ctypes makes
    try:
        set_handler = ctypes.CDLL(_imaging.__file__).TIFFSetErrorHandler
        write = ctypes.CDLL(None).vsnprintf
    except (AttributeError, OSError, TypeError):
        return None
    set_handler.argtypes, set_handler.restype = [ctypes.c_void_p], ctypes.c_void_p
    write.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p]

    def tell(name: bytes, form: bytes, values: int) -> None:
        words = getattr(_asked, "words", None)
        if words is not None:
            text = ctypes.create_string_buffer(_LONGEST)
            write(text, _LONGEST, form, values)
            words.append(f"{(name or b'').decode()}: {text.value.decode(errors='replace')}")
        elif before:
            _Handler(before)(name, form, values)

    handler = _Handler(tell)
    before = set_handler(ctypes.cast(handler, ctypes.c_void_p))
    atexit.register(set_handler, before)  # this module ends before libtiff does
    return handler


_handler = _install()
