"""pillow-heif: HEIC and HEIF through libheif."""

from __future__ import annotations

from typing import cast

import numpy as np
import pillow_heif

from fastdecode import _pixels
from fastdecode._backends.base import Backend, Support
from fastdecode.types import Buffer, Header, Image, Mode, PixelLayout


class PillowHeif(Backend):
    """HEIC only: ``pillow_heif.open_heif``. libheif itself turns the image upright.

    Warnings are not declared. pillow_heif exposes neither libheif's warnings nor its strict
    decoding, and neither would report the damage that libde265 notices and conceals.
    """

    distribution = "pillow-heif"
    supports = {
        "heic": (Support(layouts=frozenset({"RGB", "L", "RGBA", "stored"}), bits=None),),
    }

    def decode(self, data: Buffer, header: Header, *, layout: PixelLayout, **_: object) -> Image:
        # Pillow shows libheif's own conversion to 8 bits, but libheif does not convert grey.
        image = np.asarray(
            pillow_heif.open_heif(
                bytes(data), convert_hdr_to_8bit=layout != "stored", hdr_to_16bit=False
            )
        )
        return _pixels.convert(image, "stored", cast("Mode", layout), header)

    def codec(self) -> str:
        return f"libheif {pillow_heif.libheif_version()}"
