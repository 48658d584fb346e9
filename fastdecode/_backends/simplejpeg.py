"""simplejpeg: a Cython binding with its own libjpeg-turbo, and very little overhead."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import simplejpeg

from fastdecode._backends.base import JPEG_TURBO_3, Backend, CodecWarning
from fastdecode._formats.jpeg import with_plain_size
from fastdecode.types import Box, Buffer, Header, Image, PixelLayout, Reduce

_COLORSPACE = {"RGB": "RGB", "L": "GRAY", "RGBA": "RGBA", "CMYK": "CMYK"}


class Simplejpeg(Backend):
    """JPEG only: ``simplejpeg.decode_jpeg``."""

    distribution = "simplejpeg"
    supports = {
        "jpeg": (
            replace(
                JPEG_TURBO_3,
                layouts=frozenset({"RGB", "L", "RGBA", "CMYK"}),
                colors=frozenset({"gray", "ycc", "rgb", "cmyk"}),
            ),
        )
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
        # simplejpeg chooses the factor: that of the smallest image that has at least this size.
        source, height, width = with_plain_size(data, header, reduce)
        try:
            image: Image = simplejpeg.decode_jpeg(
                source,
                _COLORSPACE[layout],
                min_height=height,
                min_width=width,
                buffer=out if source is data else None,
                strict=strict,
            )
        except ValueError as error:
            raise CodecWarning(str(error)) from error
        if source is not data:
            image = image[: -(-header.height // reduce), : -(-header.width // reduce)]
        if layout == "L":
            return image[:, :, 0]
        # libjpeg returns the inks as they are stored, and Adobe stores them inverted.
        return np.subtract(255, image, out=image) if layout == "CMYK" else image

    def codec(self) -> str:
        return "libjpeg-turbo (its own)"
