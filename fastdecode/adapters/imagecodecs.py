"""imagecodecs: the codecs themselves; here for JPEG XL, JPEG 2000 and the rarer kinds of JPEG."""

from __future__ import annotations

from typing import cast

import imagecodecs
import numpy as np

from fastdecode.adapters.base import Backend, Support
from fastdecode.errors import DecodeError
from fastdecode.types import Box, Buffer, Header, Image, PixelLayout, Reduce

__all__ = ["Imagecodecs"]

_COLORSPACE = {"RGB": "RGB", "L": "GRAYSCALE"}


class Imagecodecs(Backend):
    """JPEG of every precision, JPEG-LS, JPEG 2000 and JPEG XL.

    Its other decoders are not declared: 2026.3.6 crashes on damaged PNG and BMP files.
    """

    distribution = "imagecodecs"
    supports = {
        "jpeg": (
            Support(
                layouts=frozenset({"RGB", "L"}),
                codings=frozenset({"baseline", "progressive", "arithmetic"}),
                colors=frozenset({"gray", "ycc", "rgb"}),
            ),
            Support(
                layouts=frozenset({"native"}),
                codings=frozenset({"baseline", "progressive"}),
                bits=frozenset({12}),
            ),
            Support(
                layouts=frozenset({"native"}),
                codings=frozenset({"lossless", "jpeg-ls"}),
                bits=frozenset(range(2, 17)),
            ),
        ),
        "jpeg2000": (Support(layouts=frozenset({"native"}), bits=None),),
        "jxl": (Support(layouts=frozenset({"native"}), bits=None),),
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
        source = cast("bytes", data)  # any buffer will do: its annotations are too narrow
        if header.format == "jpeg2000":
            return _checked(imagecodecs.jpeg2k_decode(source, numthreads=1))
        if header.format == "jxl":
            # The first frame; orientation is part of the codestream and applied.
            return _checked(imagecodecs.jpegxl_decode(source, index=0, numthreads=1))
        if header.coding == "jpeg-ls":
            return _checked(imagecodecs.jpegls_decode(source))
        if layout == "native":
            return _checked(imagecodecs.jpeg_decode(source))
        return _checked(imagecodecs.jpeg8_decode(source, outcolorspace=_COLORSPACE[layout]))

    def codec(self) -> str:
        return imagecodecs.jpeg8_version().replace("_", "-").split("/")[0]


def _checked(image: Image) -> Image:
    if not image.size:
        raise DecodeError("imagecodecs returned an empty array")
    return np.asarray(image)
