"""kornia-rs: libjpeg-turbo through Rust. It holds the GIL while it decodes."""

from __future__ import annotations

from dataclasses import replace

import kornia_rs
import numpy as np

from fastdecode._backends.base import JPEG, Backend, CodecWarning
from fastdecode.types import Buffer, Header, Image, PixelLayout

# Before 0.2 the functions were at the top level of the package.
_decode = getattr(kornia_rs, "io", kornia_rs).decode_image_jpegturbo
_MODE = {"RGB": "rgb", "L": "mono"}


class KorniaRs(Backend):
    """JPEG only: ``decode_image_jpegturbo``. Its other decoder, zune-jpeg, returns other pixels."""

    distribution = "kornia-rs"
    releases_gil = False
    supports = {
        "jpeg": (
            # It raises on any warning, but does not say which one.
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
