"""The package's own core in C, which uses libjpeg-turbo and decodes only the requested window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import fastdecode
from fastdecode.adapters.base import JPEG_TURBO_2, Backend, CodecWarning
from fastdecode.errors import BackendUnavailable, DecodeError
from fastdecode.native import _library
from fastdecode.types import Box, Buffer, Header, Image, PixelLayout, Reduce

__all__ = ["Native"]

_OK, _WARNED, _NO_MEMORY = 0, 1, 5
_CHANNELS: dict[PixelLayout, tuple[int, ...]] = {"L": (), "RGB": (3,), "RGBA": (4,), "CMYK": (4,)}


class Native(Backend):
    """JPEG only: `fd_decode` of ``fastdecode/native``, with one decoder per thread."""

    distribution = "fastdecode"
    supports = {
        "jpeg": (
            replace(
                JPEG_TURBO_2,
                layouts=frozenset({"RGB", "L", "RGBA", "CMYK"}),
                region=True,
                colors=frozenset({"gray", "ycc", "rgb", "cmyk"}),
                subsamplings=None,
            ),
        )
    }

    def __init__(self) -> None:
        if _library.problem():
            raise BackendUnavailable(_library.problem())

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
        if out is None:
            left, top, right, bottom = window or (
                0,
                0,
                -(-header.width // reduce),
                -(-header.height // reduce),
            )
            out = np.empty((bottom - top, right - left, *_CHANNELS[layout]), np.uint8)
        status = _library.decode(data, out, reduce, layout, window, strict)
        if status == _OK:
            return out
        if status == _WARNED:
            raise CodecWarning(_library.message())
        if status == _NO_MEMORY:
            raise MemoryError(_library.message())
        raise DecodeError(_library.message())

    def version(self) -> str:
        return fastdecode.__version__

    def codec(self) -> str:
        return _library.codec()
