"""Pillow: the reference, and the only backend that is always there."""

from __future__ import annotations

import io
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

from fastdecode.adapters.base import Backend, Support
from fastdecode.headers import other
from fastdecode.types import Box, Buffer, Format, Header, Image, PixelLayout, Reduce

__all__ = ["Pillow"]

# The plugins' own classes, not `Image.open`: it would try every plugin in turn, warn about large
# pictures by a process-wide limit (`max_pixels` is ours), and open an MPO as its several pictures.
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
_ANY = Support(layouts=frozenset({"RGB", "L", "RGBA", "native"}), bits=None)
_PREMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}


class Pillow(Backend):
    """Every format that Pillow's wheels read; JPEG reduced through ``draft``."""

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
        # Formats whose every complaint is an exception, in Pillow or in the codec.
        **dict.fromkeys(
            ("png", "gif", "bmp", "webp", "avif"),
            (Support(layouts=_ANY.layouts, bits=None, warnings=True),),
        ),
        "tiff": (_ANY,),
        "jpeg2000": (_ANY,),
        "other": (_ANY,),
    }

    def decode(
        self,
        data: Buffer,
        header: Header,
        *,
        reduce: Reduce,
        layout: PixelLayout,
        window: Box | None,
        out: Image | None,
        strict: bool,
    ) -> Image:
        # Of an immutable `bytes`, BytesIO takes no copy.
        image = _OPENERS[header.format](io.BytesIO(data))
        if header.format == "jpeg":
            _draft(cast("ImageFile.ImageFile", image), reduce, layout)
        return _pixels(image, layout, header)

    def codec(self) -> str:
        number = features.version_feature("libjpeg_turbo")
        return f"libjpeg-turbo {number}" if number else "libjpeg"


def _draft(image: ImageFile.ImageFile, reduce: Reduce, layout: PixelLayout) -> None:
    """Ask libjpeg for a smaller picture, or for its Y plane alone, before it decodes."""
    if layout == "L" and image.mode in ("RGB", "YCbCr"):
        image.draft("L", None)
        image.decoderconfig = ()
    if reduce == 1:
        return
    width, height = image.size
    if min(width, height) >= reduce:
        # Not the ceiling: draft takes the whole quotient of the sizes as its scale.
        image.draft(None, (width // reduce, height // reduce))
        return
    # `draft` cannot name a size below 1: say what it would have said (Pillow 10 to 13).
    size = (-(-width // reduce), -(-height // reduce))
    tile = image.tile[0]
    image.tile = [ImageFile._Tile(tile[0], (0, 0, *size), tile[2], tile[3])]
    image._size = size
    image.decoderconfig = (reduce, 0)


def _pixels(image: PillowImage.Image, layout: PixelLayout, header: Header) -> Image:
    """Convert as Pillow does, but for what it would clip or refuse."""
    image.load()
    mode = image.mode
    if layout in ("native", mode):
        return _native(image, header)
    if mode in _PREMULTIPLIED:
        image = image.convert(_PREMULTIPLIED[mode])
    elif mode.startswith("I;16"):
        # Pillow clips 16-bit grey at 255, which makes most pictures white. The high byte is what
        # it takes for 16-bit colour, and what libpng and OpenCV take for both.
        high = max(header.bits, 9) - 8
        image = PillowImage.fromarray((_native(image, header) >> high).astype(np.uint8))
    return np.array(image if image.mode == layout else image.convert(layout))


def _native(image: PillowImage.Image, header: Header) -> Image:
    """Copy the pixels out, in this machine's byte order and in the file's own range."""
    array = np.array(image)
    if header.format == "jpeg2000" and image.mode == "I;16" and 8 < header.bits < 16:
        array >>= 16 - header.bits  # Pillow widens them to 16 bits
    return array.astype(array.dtype.newbyteorder("="), copy=False)
