"""pillow-heif: HEIC and HEIF through libheif."""

from __future__ import annotations

import numpy as np
import pillow_heif

from fastdecode.adapters.base import Backend, Support
from fastdecode.types import Box, Buffer, Header, Image, PixelLayout, Reduce

__all__ = ["PillowHeif"]


class PillowHeif(Backend):
    """HEIC only: ``pillow_heif.open_heif``. libheif turns the picture upright by itself."""

    distribution = "pillow-heif"
    supports = {
        "heic": (Support(layouts=frozenset({"native"}), bits=None, warnings=True),),
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
        return np.asarray(pillow_heif.open_heif(bytes(data), convert_hdr_to_8bit=True))

    def codec(self) -> str:
        return f"libheif {pillow_heif.libheif_version()}"
