"""pillow-heif: HEIC and HEIF through libheif."""

from __future__ import annotations

from typing import cast

import numpy as np
import pillow_heif

from fastdecode import pixels
from fastdecode.adapters.base import Backend, Support
from fastdecode.types import Box, Buffer, Header, Image, Mode, PixelLayout, Reduce

__all__ = ["PillowHeif"]


class PillowHeif(Backend):
    """HEIC only: ``pillow_heif.open_heif``. libheif turns the picture upright by itself."""

    distribution = "pillow-heif"
    supports = {
        "heic": (
            Support(layouts=frozenset({"RGB", "L", "RGBA", "native"}), bits=None, warnings=True),
        ),
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
        # libheif's own way to 8 bits is what Pillow shows; but it leaves grey as it is.
        image = pillow_heif.open_heif(
            bytes(data), convert_hdr_to_8bit=layout != "native", hdr_to_16bit=False
        )
        return pixels.convert(np.asarray(image), "native", cast("Mode", layout), header)

    def codec(self) -> str:
        return f"libheif {pillow_heif.libheif_version()}"
