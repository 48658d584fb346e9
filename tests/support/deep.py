"""Images with 16 bits per sample, which Pillow cannot write: PNG with all filters, and TIFF."""

from __future__ import annotations

import zlib
from typing import Any

import encoded
import numpy as np
from encoded import LONG, SHORT, chunk, directory_last

WIDTH, HEIGHT = 13, 9
COLOR_TYPES = {1: 0, 2: 4, 3: 2, 4: 6}
PASSES = (
    (0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2),
    (0, 1, 1, 2),
)  # fmt: skip
"""Adam7, PNG specification, 8.2: first column and row, steps across and down."""


def samples(channels: int, bits: int = 16) -> Any:
    """Make (H, W, C) samples of uint16 over the whole range."""
    shape = (HEIGHT, WIDTH, channels)
    return np.random.default_rng(channels).integers(0, 1 << bits, shape, np.uint16)


def filtered(rows: Any) -> bytes:
    """Filter the rows of a 16-bit PNG with each of the five filters in turn."""
    lines = rows.astype(">u2").reshape(len(rows), -1).view(np.uint8).astype(int)
    left_by = rows.shape[2] * 2
    out = b""
    for y, line in enumerate(lines):
        up = lines[y - 1] if y else np.zeros_like(line)
        left, corner = (np.concatenate((np.zeros(left_by, int), a))[: len(a)] for a in (line, up))
        nearest = left + up - corner
        a, b, c = abs(nearest - left), abs(nearest - up), abs(nearest - corner)
        paeth = np.where((a <= b) & (a <= c), left, np.where(b <= c, up, corner))
        by = (0 * line, left, up, (left + up) // 2, paeth)[y % 5]
        out += bytes([y % 5]) + ((line - by) % 256).astype(np.uint8).tobytes()
    return out


def png(image: Any, *, interlaced: bool = False, before: bytes = b"") -> bytes:
    """Encode 16-bit samples (H, W, C) as PNG, with all its filters."""
    height, width, channels = image.shape
    parts = [image]
    if interlaced:
        parts = [image[y::down, x::across] for x, y, across, down in PASSES]
    data = zlib.compress(b"".join(filtered(part) for part in parts if part.size))
    begin = encoded.png(
        16,
        COLOR_TYPES[channels],
        before,
        width=width,
        height=height,
        interlace=interlaced,
        data=data,
    )
    return begin + chunk(b"IEND")


def tiff(
    image: Any, order: str = "<", *, planar: bool = False, zipped: bool = False, cmyk: bool = False
) -> bytes:
    """Encode 16-bit samples (H, W, C) as TIFF, pixel by pixel or plane by plane."""
    height, width, channels = image.shape
    parts = [image[:, :, c] for c in range(channels)] if planar else [image]
    strips = [part.astype(f"{order}u2").tobytes() for part in parts]
    strips = [zlib.compress(strip) for strip in strips] if zipped else strips
    sizes = tuple(map(len, strips))
    offsets = tuple(16 + sum(sizes[:before]) for before in range(len(sizes)))
    fields = [
        (256, SHORT, (width,)),
        (257, SHORT, (height,)),
        (258, SHORT, (16,) * channels),
        (259, SHORT, (8 if zipped else 1,)),
        (262, SHORT, (5 if cmyk else 2 if channels > 2 else 1,)),
        (273, LONG, offsets),
        (277, SHORT, (channels,)),
        (278, SHORT, (height,)),
        (279, LONG, sizes),
        (284, SHORT, (2 if planar else 1,)),
    ]
    if channels == 4 and not cmyk:
        fields.append((338, SHORT, (2,)))
    return directory_last(b"".join(strips), *fields, order=order)


FILES = {
    "PNG RGB": (3, png(samples(3))),
    "PNG RGBA": (4, png(samples(4))),
    "PNG grey with alpha": (2, png(samples(2))),
    "PNG interlaced": (3, png(samples(3), interlaced=True)),
    "PNG grey with alpha, interlaced": (2, png(samples(2), interlaced=True)),
    "PNG with tRNS": (3, png(samples(3), before=chunk(b"tRNS", bytes(6)))),
    "TIFF": (3, tiff(samples(3))),
    "TIFF big-endian": (3, tiff(samples(3), ">")),
    "TIFF RGBA": (4, tiff(samples(4))),
    "TIFF deflate": (4, tiff(samples(4), zipped=True)),
    "TIFF deflate, big-endian": (3, tiff(samples(3), ">", zipped=True)),
    "TIFF in planes": (3, tiff(samples(3), planar=True)),
    "TIFF RGBA in planes, big-endian": (4, tiff(samples(4), ">", planar=True)),
}
