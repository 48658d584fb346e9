"""Pillow: the reference, and the only backend that is always installed."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable
from typing import cast

import numpy as np
from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    GifImagePlugin,
    ImageFile,
    Jpeg2KImagePlugin,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
    features,
)
from PIL import Image as PillowImage

from fastdecode import _libtiff
from fastdecode._headers import other
from fastdecode.adapters.base import Backend, Support
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Format, Header, Image, PixelLayout, Reduce

__all__ = ["Pillow"]

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
    "other": lambda file: other.open_image(file.getbuffer()),
}
_ANY = Support(layouts=frozenset({"RGB", "L", "RGBA", "stored"}), bits=None)
# Unpackers of 16-bit colour: the samples and their byte order (N: this machine's byte order).
_RAW_16 = re.compile(r"(RGB|RGBX|RGBA|RGBa|CMYK|LA|[RGBA]);16[BLN]")
_COLOURS = ("RGB", "RGBA", "CMYK")
_PLANES = 2  # TIFF 6.0, PlanarConfiguration
_NATIVE = "L" if sys.byteorder == "little" else "B"
_PREMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}


class Pillow(Backend):
    """Every format that Pillow's wheels read. ``draft`` reduces a JPEG."""

    distribution = "pillow"
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
        **dict.fromkeys(
            ("png", "gif", "bmp", "webp"),
            (Support(layouts=_ANY.layouts, bits=None, warnings=True),),
        ),
        "avif": (
            Support(layouts=_ANY.layouts, warnings=True),
            # Pillow has libavif convert deeper images to 8 bits.
            Support(layouts=_ANY.layouts - {"stored"}, bits=None, warnings=True),
        ),
        "tiff": (_ANY,),
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
        "other": (_ANY,),
    }

    def decode(
        self, data: Buffer, header: Header, *, reduce: Reduce, layout: PixelLayout, **_: object
    ) -> Image:
        if header.format != "tiff":
            return self._decode(data, header, reduce, layout)
        with _libtiff.errors() as told:
            try:
                pixels = self._decode(data, header, reduce, layout)
            except OSError as error:  # "decoder error -2"
                raise DecodeError("; ".join(told[:3]) or str(error)) from error
        if told:  # and went on
            raise DecodeError("; ".join(told[:3]))
        return pixels

    def _decode(self, data: Buffer, header: Header, reduce: Reduce, layout: PixelLayout) -> Image:
        image = _open(data, header, layout)
        if header.format == "jpeg":
            _draft(cast("ImageFile.ImageFile", image), reduce, layout)
        elif layout == "stored" and header.bits == 16 and header.format in ("png", "tiff"):
            low = _open(data, header, layout)
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


def _open(data: Buffer, header: Header, layout: PixelLayout) -> PillowImage.Image:
    # BytesIO does not copy an immutable `bytes`.
    image = _OPENERS[header.format](io.BytesIO(data))
    if header.format == "tiff" and header.bits == 16:
        _tell_planes(cast("TiffImagePlugin.TiffImageFile", image), data, native=layout == "stored")
    return image


def _tell_planes(image: TiffImagePlugin.TiffImageFile, data: Buffer, *, native: bool) -> None:
    """Set the unpackers for 16 bits for the planes of a TIFF: Pillow sets those for 8 bits."""
    if image.tag_v2.get(TiffImagePlugin.PLANAR_CONFIGURATION) != _PLANES:
        return
    if any(tile[0] != "raw" for tile in image.tile):  # libtiff reads planes, but only high bytes
        if native and image.mode in _COLOURS:
            raise DecodeError(f"Pillow gives 8 of the 16 bits of {image.mode} in compressed planes")
        return
    if image.mode in ("RGB", "RGBA"):
        named = [f"{_raw(tile)};16{'L' if data[:2] == b'II' else 'B'}" for tile in image.tile]
    elif image.mode.startswith("I;16"):
        named = [image.mode] * len(image.tile)
    else:
        raise DecodeError(f"Pillow does not read 16-bit {image.mode} in planes")
    image.tile = [_told(tile, raw) for tile, raw in zip(image.tile, named, strict=True)]


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
    if layout in ("stored", mode):
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
