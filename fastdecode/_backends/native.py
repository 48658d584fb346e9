"""The package's own core in C, for JPEG and PNG, which decodes only the requested window."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import fastdecode
from fastdecode._backends.base import JPEG_TURBO_2, Backend, Support
from fastdecode.errors import DecodeError
from fastdecode.native import _library
from fastdecode.types import Box, Buffer, Header, Image, PixelLayout, Reduce

_OK, _NO_MEMORY = _library.lib.FD_OK, _library.lib.FD_NO_MEMORY
_CHANNELS: dict[PixelLayout, tuple[int, ...]] = {"L": (), "RGB": (3,), "RGBA": (4,)}
_PNG = Support(
    layouts=frozenset({"RGB", "RGBA", "stored"}),
    region=True,
    out=True,
    checks=True,
    warnings=True,  # what other decoders warn of, it leaves to them
    bits=frozenset({8, 16}),
    colors=frozenset({"gray", "rgb"}),
    progressive=False,
    animated=False,
)


class Native(Backend):
    """JPEG and PNG: `fd_decode` of ``fastdecode/native``, with one decoder per thread."""

    distribution = "fastdecode"
    supports = {
        "jpeg": (
            replace(
                JPEG_TURBO_2,
                codings=frozenset({"baseline", "progressive"}),
                region=True,
                skips=True,
                checks=True,
                colors=frozenset({"gray", "ycc"}),
                subsamplings=frozenset({"", "4:4:4", "4:2:2", "4:2:0", "4:4:0"}),
            ),
        ),
        "png": (
            replace(_PNG, layouts=_PNG.layouts | {"L"}, colors=frozenset({"gray"})),
            _PNG,
            replace(_PNG, bits=frozenset({1, 2, 4, 8}), colors=frozenset({"palette"})),
            replace(
                _PNG,
                layouts=frozenset({"L", "RGB", "RGBA"}),
                bits=frozenset({1, 2, 4}),
                colors=frozenset({"gray"}),
            ),
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
        thorough: bool = False,
    ) -> Image:
        if out is None:
            left, top, right, bottom = window or (
                0,
                0,
                -(-header.width // reduce),
                -(-header.height // reduce),
            )
            size = bottom - top, right - left
            out = (
                np.empty((*size, *_CHANNELS[layout]), np.uint8)
                if layout != "stored"
                else np.empty(
                    size if header.channels == 1 else (*size, header.channels),
                    np.uint16 if header.bits == 16 else np.uint8,
                )
            )
        status = _library.decode(data, out, reduce, layout, window, thorough)
        if status == _OK:
            return out
        if status == _NO_MEMORY:
            raise MemoryError(_library.message())
        raise DecodeError(_library.message())

    def version(self) -> str:
        return fastdecode.__version__

    def codec(self) -> str:
        return "its own"
