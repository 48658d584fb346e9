"""Write small JPEGs scan by scan, with any script, and anything between the segments."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SIDE = 4  # blocks of a component, across and down: 32 pixels
EOI = b"\xff\xd9"


class Scan(NamedTuple):
    """What a scan has: components, first and last coefficient, and bits (Ah, Al)."""

    components: tuple[int, ...]
    first: int
    last: int
    before: int
    low: int
    interval: int = 0  # blocks between restart markers, in a scan of one component
    overrun: int = 0  # blocks that the last run of ended blocks claims beyond its interval


def segment(marker: int, body: bytes = b"") -> bytes:
    return bytes((0xFF, marker)) + struct.pack(">H", len(body) + 2) + body


# All codes have eight bits: that of a symbol is its index. The one of only zeros is hardly used.
_DC_SYMBOLS = [11, *range(11)]
_AC_SYMBOLS = [0xFA, *(run << 4 | size for run in range(16) for size in range(10))]


def _table(kind: int, symbols: Sequence[int]) -> bytes:
    counts = bytes([0] * 7 + [len(symbols)] + [0] * 8)
    return segment(0xC4, bytes([kind]) + counts + bytes(symbols))


class _Bits:
    def __init__(self) -> None:
        self.bits: list[str] = []

    def put(self, value: int, count: int) -> None:
        if count:
            self.bits.append(format(value, f"0{count}b"))

    def code(self, symbols: Sequence[int], symbol: int) -> None:
        self.put(symbols.index(symbol), 8)

    def done(self) -> bytes:
        bits = "".join(self.bits)
        bits += "1" * (-len(bits) % 8)
        data = int(bits or "0", 2).to_bytes(len(bits) // 8, "big")
        return data.replace(b"\xff", b"\xff\0")


def _signed(bits: _Bits, value: int, size: int) -> None:
    bits.put(value if value > 0 else value + (1 << size) - 1, size)


def _shifted(value: int, low: int) -> int:
    """Drop the lowest bits of a coefficient's size (T.81, G.1.2.1)."""
    return (abs(value) >> low) * (1 if value > 0 else -1)


def _ended(bits: _Bits, blocks: int) -> None:
    """End so many blocks with one code (T.81, G.1.2.2)."""
    if blocks:
        size = blocks.bit_length() - 1
        bits.code(_AC_SYMBOLS, size << 4)
        bits.put(blocks - (1 << size), size)


def _first_ac(blocks: Iterable[NDArray[np.int16]], scan: Scan) -> bytes:
    bits, ended = _Bits(), 0
    for block in blocks:
        zeros = 0
        for k in range(scan.first, scan.last + 1):
            value = _shifted(int(block[k]), scan.low)
            if value == 0:
                zeros += 1
                continue
            _ended(bits, ended)
            ended = 0
            for _ in range(zeros // 16):
                bits.code(_AC_SYMBOLS, 0xF0)
            size = abs(value).bit_length()
            bits.code(_AC_SYMBOLS, zeros % 16 << 4 | size)
            _signed(bits, value, size)
            zeros = 0
        ended += zeros > 0
    _ended(bits, ended + scan.overrun)
    return bits.done()


def _refined_ac(blocks: Iterable[NDArray[np.int16]], scan: Scan) -> bytes:
    """Write one more bit of the coefficients (T.81, G.1.2.3), and end each block by itself."""
    bits = _Bits()
    for block in blocks:
        sizes = [abs(int(value)) >> scan.low for value in block]
        fresh = [k for k in range(scan.first, scan.last + 1) if sizes[k] == 1]
        zeros, waiting = 0, ""
        for k in range(scan.first, scan.last + 1):
            if sizes[k] == 0:
                zeros += 1
                if zeros == 16 and fresh and k < fresh[-1]:
                    bits.code(_AC_SYMBOLS, 0xF0)
                    bits.bits.append(waiting)
                    zeros, waiting = 0, ""
            elif sizes[k] > 1:
                waiting += str(sizes[k] & 1)
            else:
                bits.code(_AC_SYMBOLS, zeros << 4 | 1)
                bits.put(block[k] > 0, 1)
                bits.bits.append(waiting)
                zeros, waiting = 0, ""
        if zeros or waiting:
            bits.code(_AC_SYMBOLS, 0)
            bits.bits.append(waiting)
    return bits.done()


def _dc(blocks: Iterable[tuple[int, NDArray[np.int16]]], scan: Scan) -> bytes:
    bits, last = _Bits(), {0: 0, 1: 0, 2: 0}
    for component, block in blocks:
        value = int(block[0]) >> scan.low
        if scan.before:
            bits.put(value & 1, 1)
            continue
        size = abs(value - last[component]).bit_length()
        bits.code(_DC_SYMBOLS, size)
        if size:
            _signed(bits, value - last[component], size)
        last[component] = value
    return bits.done()


def write_scan(image: NDArray[np.int16], scan: Scan) -> bytes:
    """Write the header and the data of a scan, with its restart interval."""
    named = b"".join(bytes((c + 1, 0)) for c in scan.components)
    header = bytes([len(scan.components)]) + named
    header += bytes((scan.first, scan.last, scan.before << 4 | scan.low))
    count = image.shape[1]
    step = scan.interval or count
    parts = []
    for at in range(0, count, step):
        places = range(at, min(at + step, count))
        if scan.first == 0:
            parts.append(_dc(((c, image[c][i]) for i in places for c in scan.components), scan))
        else:
            blocks = [image[scan.components[0]][i] for i in places]
            parts.append((_refined_ac if scan.before else _first_ac)(blocks, scan))
    data = b"".join(
        part + (bytes((0xFF, 0xD0 | i & 7)) if i + 1 < len(parts) else b"")
        for i, part in enumerate(parts)
    )
    interval = segment(0xDD, struct.pack(">H", scan.interval))
    return interval + segment(0xDA, header) + data


def write(
    image: NDArray[np.int16], scans: Sequence[Scan], between: Sequence[bytes] = (), end: bytes = EOI
) -> bytes:
    """Write a progressive JPEG of coefficients: (components, blocks, 64), in the file's order.

    Between the scans there are the given bytes, in turn.
    """
    count, side = image.shape[0], 8 * SIDE
    data = b"\xff\xd8" + segment(0xDB, bytes([0]) + bytes([1] * 64))
    frame = b"".join(bytes((c + 1, 0x11, 0)) for c in range(count))
    data += segment(0xC2, struct.pack(">BHHB", 8, side, side, count) + frame)
    data += _table(0, _DC_SYMBOLS) + _table(0x10, _AC_SYMBOLS)
    for number, scan in enumerate(scans):
        data += between[number % len(between)] if between and number else b""
        data += write_scan(image, scan)
    return data + end


def coefficients(components: int, seed: int) -> NDArray[np.int16]:
    """Draw coefficients of an image: many zeros, and values whose lowest bits matter."""
    rng = np.random.default_rng(seed)
    image = rng.integers(-15, 16, (components, SIDE * SIDE, 64))
    image[rng.random(image.shape) < 0.8] = 0
    image[:, :, 0] = rng.integers(-300, 300, image.shape[:2])
    return image.astype(np.int16)
