"""Images of 16 bits per sample, which Pillow cannot write: PNG with every filter, TIFF layouts."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
from forged import tiff
from pngs import chunk, file, interlaced_header

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
    """Filter the rows of a 16-bit PNG with its five filters in turn."""
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
    """Encode 16-bit samples (H, W, C) as a PNG that uses all filters."""
    height, width, channels = image.shape
    parts = [image]
    if interlaced:
        parts = [image[y::down, x::across] for x, y, across, down in PASSES]
    data = zlib.compress(b"".join(filtered(part) for part in parts if part.size))
    made = file(width, height, COLOR_TYPES[channels], 16, data, before)
    return interlaced_header(made) if interlaced else made


FILES = {
    "PNG RGB": (3, png(samples(3))),
    "PNG RGBA": (4, png(samples(4))),
    "PNG grey with alpha": (2, png(samples(2))),
    "PNG interlaced": (3, png(samples(3), interlaced=True)),
    "PNG grey with alpha, interlaced": (2, png(samples(2), interlaced=True)),
    "PNG with tRNS": (3, png(samples(3), before=chunk(b"tRNS", bytes(6)))),
    **{
        f"TIFF of {channels}, {options}": (
            channels,
            tiff(samples(channels), 16, 2, alpha=(2,) * (channels - 3), **options),
        )
        for options in ({}, {"zipped": True}, {"planar": True})
        for channels, options in ((3, options), (4, {**options, "order": ">"}))
    },
}
