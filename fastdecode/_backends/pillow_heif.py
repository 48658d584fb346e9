"""pillow-heif: HEIC and HEIF through libheif."""

from __future__ import annotations

from typing import cast

import numpy as np
import pillow_heif

from fastdecode import _pixels
from fastdecode._backends.base import Backend, Support
from fastdecode._formats import isobmff
from fastdecode.errors import DecodeError
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
        grid = isobmff.grid(data)
        if grid is not None and _may_lack_a_tile(image, grid):
            _check_tiles(data, grid)
        return _pixels.convert(image, "stored", cast("Mode", layout), header)

    def codec(self) -> str:
        return f"libheif {pillow_heif.libheif_version()}"


def _may_lack_a_tile(image: Image, grid: isobmff.Grid) -> bool:
    """Return whether so many pixels are zero that libheif may have left out a tile."""
    # In place of a missing tile libheif leaves zeros: black, or green (0, 135, 0) from YCbCr. At
    # the edge of the hole the chroma comes from its neighbours. So half as many zeros as the
    # smallest tile has pixels are enough.
    step = max(1, min(grid.width, grid.height) // 8)
    seen = image[::step, ::step]
    zero = seen == 0
    if seen.ndim == 3 and seen.shape[2] >= 3:
        zero = zero[..., 0] & (zero[..., 1] | zero[..., 2])
    elif seen.ndim == 3:
        zero = zero[..., 0]
    least = (grid.width // step) * (grid.height // step) // 2
    return int(np.count_nonzero(zero)) >= max(1, least)


def _check_tiles(data: Buffer, grid: isobmff.Grid) -> None:
    """Decode each tile alone. A tile that libheif leaves out of the grid then raises an error."""
    try:
        tiles = pillow_heif.open_heif(isobmff.with_tiles_apart(data, grid))
        while len(tiles):
            tiles[0].load()
            del tiles[0]
    except (ValueError, EOFError, SyntaxError, RuntimeError) as error:
        raise DecodeError(
            f"pixels are missing: a tile of the grid does not decode: {error}"
        ) from error
