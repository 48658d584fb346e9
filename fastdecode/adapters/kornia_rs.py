"""kornia-rs: libjpeg-turbo through Rust. It keeps the GIL for the whole decode."""

from __future__ import annotations

from dataclasses import replace

import kornia_rs
import numpy as np

from fastdecode.adapters.base import JPEG, Backend, CodecWarning
from fastdecode.types import Buffer, Header, Image, PixelLayout

__all__ = ["KorniaRs"]

# Before 0.2 the functions lay flat.
_decode = getattr(kornia_rs, "io", kornia_rs).decode_image_jpegturbo
_MODE = {"RGB": "rgb", "L": "mono"}


class KorniaRs(Backend):
    """JPEG only: ``decode_image_jpegturbo``; its other decoder, zune-jpeg, gives other pixels."""

    distribution = "kornia-rs"
    releases_gil = False
    supports = {
        "jpeg": (
            # It stops at any warning, without saying which.
            replace(JPEG, warnings=True, codings=frozenset({"baseline", "progressive"})),
        )
    }

    def decode(self, data: Buffer, header: Header, *, layout: PixelLayout, **_: object) -> Image:
        try:
            image = np.asarray(_decode(bytes(data), _MODE[layout]))
        except Exception as error:
            raise CodecWarning(str(error)) from error
        return image[:, :, 0] if layout == "L" else image

    def codec(self) -> str:
        return "libjpeg-turbo (its own)"
