"""Deterministic images, made in memory."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from fastdecode import samples
from fastdecode.types import Format

SIZES = ((1, 1), (3, 5), (7, 13), (16, 16), (101, 67))
"""(width, height) in pixels: smaller than a block, odd, and larger than a few blocks."""

KINDS: dict[str, dict[str, Any]] = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2},
    "progressive": {"progressive": True},
    "restart markers": {"restart_marker_blocks": 2},
    "optimised": {"optimize": True, "quality": 97},
}
"""Kinds of JPEG that Pillow can write, with its options for them."""

LOSSLESS: tuple[Format, ...] = ("png", "bmp", "tiff", "gif")
"""Lossless formats that Pillow can write."""


def drawing(width: int, height: int, mode: str = "RGB") -> PillowImage.Image:
    """Draw a deterministic image with edges, gradients and noise.

    Parameters
    ----------
    width, height : int
        The size in pixels.
    mode : str
        A mode of Pillow: ``"RGB"``, ``"L"``, ``"RGBA"``, ``"CMYK"``, ``"P"`` …

    Examples
    --------
    >>> from fastdecode.testing import drawing
    >>> drawing(64, 48)
    <PIL.Image.Image image mode=RGB size=64x48 ...>
    """
    noise = np.random.default_rng(width * 10_007 + height).integers(0, 64, (height, width, 3))
    y, x = np.mgrid[:height, :width]
    waves = np.stack([x * 5 + y, x + y * 7, (x // 4 + y // 3) % 2 * 160], axis=2)
    return PillowImage.fromarray(((waves + noise) % 256).astype(np.uint8)).convert(mode)


def photo(width: int, height: int, mode: str = "RGB") -> PillowImage.Image:
    """Return one of the package's photos, resized, to compare decoders that are not exact.

    In `drawing` the chroma is noise, whose values depend strongly on its interpolation.

    Parameters
    ----------
    width, height : int
        The size in pixels.
    mode : str
        A mode of Pillow.

    Examples
    --------
    >>> from fastdecode.testing import photo
    >>> photo(64, 48, "L").size
    (64, 48)
    """
    with PillowImage.open(samples.photo) as image:
        resized: PillowImage.Image = image.convert(mode).resize((width, height))
    return resized


def encode(image: PillowImage.Image, format: str = "jpeg", **options: Any) -> bytes:
    """Encode an image with Pillow; by default as a JPEG of quality 90.

    Examples
    --------
    >>> from fastdecode import decode
    >>> from fastdecode.testing import drawing, encode
    >>> decode(encode(drawing(64, 48), "png")).shape
    (48, 64, 3)
    """
    stream = io.BytesIO()
    if format == "jpeg":
        options = {"quality": 90, **options}
    image.save(stream, format, **options)
    return stream.getvalue()


def with_flipped_bits(data: bytes) -> Iterator[bytes]:
    """Yield 60 damaged copies of a file, each with three bits flipped after the first two bytes."""
    random = np.random.default_rng(5)
    for _ in range(60):
        damaged = bytearray(data)
        for position in random.integers(2, len(data), 3):
            damaged[position] ^= 1 << int(random.integers(8))
        yield bytes(damaged)
