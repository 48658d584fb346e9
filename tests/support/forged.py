"""TIFF, BMP and PNM written here byte by byte, in kinds that no library writes."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from encoded import LONG, SHORT, directory_last

Field = tuple[int, int, tuple[int, ...]]


def packed(samples: Any, bits: int, order: str = ">") -> bytes:
    """Pack rows of samples, each row to whole bytes; those of whole bytes in a byte order."""
    if samples.dtype.kind == "f" or bits in (8, 16, 32, 64):
        kind = samples.dtype.kind if samples.dtype.kind in "if" else "u"
        return bytes(samples.astype(f"{order}{kind}{bits // 8}").tobytes())
    rows = samples.reshape(len(samples), -1, 1).astype(np.uint32) >> np.arange(bits - 1, -1, -1)
    return np.packbits((rows & 1).astype(np.uint8).reshape(len(samples), -1), axis=1).tobytes()


def parts_of(samples: Any, sides: tuple[int, int], *, planar: bool, tiled: bool) -> list[Any]:
    """Cut samples (H, W, C) into strips, or into tiles that are filled up with zeros."""
    planes = [samples[:, :, c : c + 1] for c in range(samples.shape[2])] if planar else [samples]
    height, width = sides
    parts = []
    for plane in planes:
        for top in range(0, plane.shape[0], height):
            for left in range(0, plane.shape[1], width):
                part = plane[top : top + height, left : left + width]
                room = [(0, height - part.shape[0]), (0, width - part.shape[1]), (0, 0)]
                parts.append(np.pad(part, room) if tiled else part)
    return parts


def tiff(
    samples: Any,
    bits: int,
    photometric: int | None,
    *more: Field,
    order: str = "<",
    big: bool = False,
    rows: int | None = None,
    tile: tuple[int, int] | None = None,
    planar: bool = False,
    zipped: bool = False,
    alpha: Sequence[int] = (),
    sparse: frozenset[int] = frozenset(),
) -> bytes:
    """Encode samples (H, W, C) of any type and number of bits as TIFF; leave out parts."""
    height, width, channels = samples.shape
    sides = tile or (rows or height, width)
    parts = parts_of(samples, sides, planar=planar, tiled=tile is not None)
    data = [packed(part, bits, order) for part in parts]
    data = [zlib.compress(part) if zipped else part for part in data]
    data = [b"" if index in sparse else part for index, part in enumerate(data)]
    sizes = tuple(map(len, data))
    starts = [16 + sum(sizes[:index]) for index in range(len(sizes))]
    offsets = tuple(0 if index in sparse else start for index, start in enumerate(starts))
    kind = {"i": 2, "f": 3}.get(samples.dtype.kind, 1)
    places = (
        [(322, SHORT, (sides[1],)), (323, SHORT, (sides[0],)), (324, LONG, offsets)]
        if tile
        else [(273, LONG, offsets), (278, SHORT, (sides[0],))]
    )
    fields = [
        (256, SHORT, (width,)),
        (257, SHORT, (height,)),
        (258, SHORT, (bits,) * channels),
        (259, SHORT, (8 if zipped else 1,)),
        (277, SHORT, (channels,)),
        (284, SHORT, (2 if planar else 1,)),
        (325 if tile else 279, LONG, sizes),
        (339, SHORT, (kind,) * channels),
        *places,
    ]
    fields += [(262, SHORT, (photometric,))] if photometric is not None else []
    fields += [(338, SHORT, tuple(alpha))] if alpha else []
    given = {field[0] for field in more}
    fields = [field for field in fields if field[0] not in given]
    return directory_last(b"".join(data), *fields, *more, order=order, big=big)


def one_strip(part: bytes, size: tuple[int, int], compression: int, *more: Field) -> bytes:
    """Put the compressed data of 8-bit grey pixels of (height, width) into a TIFF."""
    fields = (256, size[1]), (257, size[0]), (259, compression), (278, size[0])
    given = {field[0] for field in more}
    kept = [(tag, SHORT, (value,)) for tag, value in fields if tag not in given]
    return tiff(np.frombuffer(part, np.uint8)[None, :, None], 8, 1, *kept, *more)


def bmp(
    rows: bytes,
    size: tuple[int, int],
    bits: int,
    palette: Any = (),
    *,
    compression: int = 0,
    header: int = 40,
    masks: Sequence[int] = (),
) -> bytes:
    """Put a BMP's headers before its rows; a negative height means that the first is the top."""
    width, height = size
    entry = 3 if header == 12 else 4
    table = b"".join(bytes((*color[::-1], 0))[:entry] for color in np.asarray(palette).tolist())
    if header == 12:
        info = struct.pack("<IHHHH", 12, width, height, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", header, width, height, 1, bits, compression,
                           len(rows), 0, 0, len(palette), 0)  # fmt: skip
        info += struct.pack(f"<{len(masks)}I", *masks)
        info = info.ljust(header, b"\0")
    start = 14 + len(info) + len(table)
    return b"BM" + struct.pack("<IHHI", start + len(rows), 0, 0, start) + info + table + rows


def padded(rows: Any, bits: int) -> bytes:
    """Pack rows of indices or pixels, each to four bytes."""
    line = [packed(row[None], bits, "<") for row in rows]
    return b"".join(row + bytes(-len(row) % 4) for row in line)


def run_lengths(indices: Any, bits: int) -> bytes:
    """Encode rows of indices, from the top, as RLE8 or RLE4: runs, and literal indices."""
    data = b""
    for line in indices[::-1].tolist():
        row = line
        while row:
            count = next((n for n, index in enumerate(row) if index != row[0]), len(row))
            if count >= 3 or len(row) < 3:
                count = min(count, 255)
                data += bytes((count, row[0] if bits == 8 else row[0] * 17))
            else:
                count = min(len(row), 7)
                literal = packed(np.array([row[:count]], np.uint8), bits)
                data += bytes((0, count)) + literal + bytes(len(literal) % 2)
            row = row[count:]
        data += b"\0\0"
    return data + b"\0\1"


def pnm(samples: Any, maxval: int, *, plain: bool, comment: bytes = b"") -> bytes:
    """Encode samples (H, W) or (H, W, 3) as PNM; a PBM if `maxval` is 0, where 1 is black."""
    height, width = samples.shape[:2]
    kind = (1 if maxval == 0 else 2 if samples.ndim == 2 else 3) + (0 if plain else 3)
    head = b"P%d\n%s%d %d\n" % (kind, comment, width, height)
    head += b"%d\n" % maxval if maxval else b""
    if plain:
        lines = samples.reshape(height, -1).tolist()
        return head + b"".join(b" ".join(b"%d" % value for value in row) + b"\n" for row in lines)
    if not maxval:
        return head + packed(samples, 1)
    return head + packed(samples, 16 if maxval > 255 else 8)
