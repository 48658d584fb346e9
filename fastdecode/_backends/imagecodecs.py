"""imagecodecs: direct access to codecs, for JPEG XL, JPEG 2000, rare kinds of JPEG, deep AVIF."""

from __future__ import annotations

from typing import cast

import imagecodecs
import numpy as np

from fastdecode._backends.base import JPEG, Backend, Support
from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Header, Image, PixelLayout

_COLORSPACE = {"RGB": "RGB", "L": "GRAYSCALE"}


class Imagecodecs(Backend):
    """JPEG of every precision, JPEG 2000, JPEG XL, and AVIF of more than 8 bits.

    Its other decoders are not declared: 2026.3.6 crashes on damaged PNG and BMP files.
    """

    distribution = "imagecodecs"
    supports = {
        "jpeg": (
            JPEG,
            Support(
                layouts=frozenset({"stored"}),
                codings=frozenset({"baseline", "progressive"}),
                bits=frozenset({12}),
            ),
            Support(
                layouts=frozenset({"stored"}),
                codings=frozenset({"lossless"}),
                bits=frozenset(range(2, 17)),
            ),
        ),
        "jpeg2000": (
            # It replaces palette indices with colours. Only Pillow returns the indices.
            Support(
                layouts=frozenset({"stored"}),
                bits=frozenset(range(1, 17)),
                colors=frozenset({"gray", "ycc", "rgb", "cmyk", "other"}),
                subsamplings=frozenset({"", "4:2:2", "4:2:0"}),
            ),
        ),
        # Pillow reads AVIF of 8 bits.
        "avif": (Support(layouts=frozenset({"stored"}), bits=frozenset({10, 12}), animated=False),),
        "jxl": (
            Support(
                layouts=frozenset({"stored"}),
                bits=None,
                codings=frozenset({""}),
                samples=frozenset({"unsigned", "float"}),
            ),
        ),
    }

    def decode(self, data: Buffer, header: Header, *, layout: PixelLayout, **_: object) -> Image:
        source = cast("bytes", data)  # it accepts any buffer: its annotations are too narrow
        if header.format == "jpeg2000":
            return _unsigned(_checked(imagecodecs.jpeg2k_decode(source, numthreads=1)), header)
        if header.format == "avif":
            return _checked(imagecodecs.avif_decode(source, index=0, numthreads=1))
        if header.format == "jxl":
            # The first frame. The codestream contains the orientation, and libjxl applies it.
            return _checked(imagecodecs.jpegxl_decode(source, index=0, numthreads=1))
        if layout == "stored":
            return _checked(imagecodecs.jpeg_decode(source))
        return _checked(imagecodecs.jpeg8_decode(source, outcolorspace=_COLORSPACE[layout]))

    def codec(self) -> str:
        return imagecodecs.jpeg8_version().replace("_", "-").split("/")[0]


def _unsigned(image: Image, header: Header) -> Image:
    """Shift signed samples to start at 0, as OpenJPEG's own decompressor and Pillow do."""
    if image.dtype.kind != "i":
        return image
    shifted: Image = image.astype(np.int32) + (1 << header.bits - 1)
    return shifted.astype(f"u{image.dtype.itemsize}")


def _checked(image: Image) -> Image:
    if not image.size:
        raise DecodeError("imagecodecs returned an empty array")
    return np.asarray(image)
