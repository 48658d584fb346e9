"""PNGs that are put together chunk by chunk."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by colour type
FILTERS = range(5)


def chunk(kind: bytes, body: bytes = b"") -> bytes:
    """Build a PNG chunk."""
    return struct.pack(">I4s", len(body), kind) + body + struct.pack(">I", zlib.crc32(kind + body))


def file(
    width: int, height: int, kind: int, bits: int, stream: bytes, *chunks: bytes, idat: int = 0,
    last: bytes = b"",
) -> bytes:  # fmt: skip
    """Put a PNG together; `idat` is the largest size of a chunk, and `last` follows the pixels."""
    part = idat or len(stream) or 1
    header = chunk(b"IHDR", struct.pack(">2I5B", width, height, bits, kind, 0, 0, 0))
    pixels = [chunk(b"IDAT", stream[at : at + part]) for at in range(0, len(stream), part)]
    return b"".join([b"\x89PNG\r\n\x1a\n", header, *chunks, *pixels, last, chunk(b"IEND")])


def made(
    width: int, height: int, kind: int, bits: int, draw: random.Random, *chunks: bytes,
    filters: Any = FILTERS, idat: int = 0, level: int = 6,
) -> bytes:  # fmt: skip
    """Write a PNG of random samples, and filters drawn from `filters`.

    Filtered bytes are random: every byte is a legal one, whatever its filter.
    """
    line = -(-width * SAMPLES[kind] * bits // 8)
    rows = [bytes([draw.choice(filters)]) + draw.randbytes(line) for _ in range(height)]
    palette = chunk(b"PLTE", draw.randbytes(3 << bits)) if kind == 3 else b""
    return file(width, height, kind, bits, zlib.compress(b"".join(rows), level), palette, *chunks,
                idat=idat)  # fmt: skip


def interlaced_header(data: bytes) -> bytes:
    """Say in the header that a file is interlaced."""
    at = data.index(b"IHDR")
    return data[: at - 4] + chunk(b"IHDR", data[at + 4 : at + 16] + b"\1") + data[at + 21 :]


def bits_of(values: list[int], bits: int, size: int) -> bytes:
    """Pack samples, the first one into the highest bits."""
    packed = sum(value << size - bits * (at + 1) for at, value in enumerate(values))
    return (packed << -size % 8).to_bytes((size + 7) // 8, "big")
