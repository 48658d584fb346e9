"""Write deflate streams by hand: blocks of every kind, in any order, with codes of every length."""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any

KINDS = ("stored", "fixed", "dynamic")
_END, _FIRST_LENGTH = 256, 257
_LENGTH_CODES = (16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15)
_FIXED = [8] * 144 + [9] * 112 + [7] * 24 + [8] * 8

Token = int | tuple[int, int]
"""A literal, or (length, distance)."""


def _bases(first: int, extras: Iterable[int]) -> list[tuple[int, int]]:
    """Return (base, extra bits) of each code of a length or distance."""
    found = []
    for extra in extras:
        found.append((first, extra))
        first += 1 << extra
    return found


# RFC 1951, 3.2.5.
_LENGTHS = [*_bases(3, (max(0, at // 4 - 1) for at in range(28))), (258, 0)]
_DISTANCES = _bases(1, (max(0, at // 2 - 1) for at in range(30)))


class _Bits:
    def __init__(self) -> None:
        self.value, self.count = 0, 0

    def put(self, value: int, count: int) -> None:
        self.value |= value << self.count
        self.count += count

    def code(self, code: tuple[int, int]) -> None:
        value, count = code
        self.put(*_reversed(value, count))

    def align(self) -> None:
        self.count += -self.count % 8

    def bytes(self) -> bytes:
        return self.value.to_bytes((self.count + 7) // 8, "little")


def _canonical(lengths: list[int]) -> list[tuple[int, int]]:
    """Return (code, bits) of each symbol (RFC 1951, 3.2.2)."""
    codes, code = [(0, 0)] * len(lengths), 0
    for length in range(1, 16):
        for symbol, own in enumerate(lengths):
            if own == length:
                codes[symbol] = code, length
                code += 1
        code <<= 1
    return codes


def _drawn_lengths(symbols: set[int], size: int, longest: int, draw: random.Random) -> list[int]:
    """Draw a complete code of these symbols; one alone has one bit."""
    leaves = [0]
    while len(leaves) < len(symbols):
        at = draw.choice([at for at, depth in enumerate(leaves) if depth < longest])
        leaves[at] += 1
        leaves.append(leaves[at])
    draw.shuffle(leaves)
    lengths = [0] * size
    for symbol, depth in zip(sorted(symbols), leaves, strict=True):
        lengths[symbol] = max(1, depth)
    return lengths


def _tokens(data: bytes, begin: int, end: int, draw: random.Random) -> list[Token]:
    """Cut ``data[begin:end]`` into literals, and matches that may reach back before `begin`."""
    tokens: list[Token] = []
    at = begin
    while at < end:
        distance = draw.choice([1, 2, 3, draw.randint(1, 70), draw.randint(1, 32768)])
        length = 0
        if distance <= at and draw.random() < 0.8:
            while length < min(258, end - at) and data[at + length] == data[at + length - distance]:
                length += 1
        if length >= 3:
            length = draw.choice([length, draw.randint(3, length)])
            tokens.append((length, distance))
            at += length
        else:
            tokens.append(data[at])
            at += 1
    return tokens


def _split(bases: list[tuple[int, int]], value: int) -> tuple[int, int, int]:
    """Return the code of a length or distance, its extra bits, and their number."""
    code = max(at for at, (base, _) in enumerate(bases) if base <= value)
    return code, value - bases[code][0], bases[code][1]


def _put_codes(bits: _Bits, tokens: list[Token], literals: list[int], distances: list[int]) -> None:
    codes, far = _canonical(literals), _canonical(distances)
    for token in tokens:
        if isinstance(token, int):
            bits.code(codes[token])
            continue
        for value, bases, own, first in (
            (token[0], _LENGTHS, codes, _FIRST_LENGTH),
            (token[1], _DISTANCES, far, 0),
        ):
            code, extra, count = _split(bases, value)
            bits.code(own[first + code])
            bits.put(extra, count)
    bits.code(codes[_END])


def _put_header(bits: _Bits, lengths: list[int], literals: int, draw: random.Random) -> None:
    """Write the lengths of a dynamic block's codes, with or without runs."""
    runs: list[tuple[int, int, int]] = []  # symbol, extra bits and their number
    at = 0
    while at < len(lengths):
        value = lengths[at]
        same = next((n for n in range(at, len(lengths)) if lengths[n] != value), len(lengths)) - at
        if value == 0 and same >= 11 and draw.random() < 0.8:
            same = min(same, 138)
            runs.append((18, same - 11, 7))
        elif value == 0 and same >= 3 and draw.random() < 0.8:
            same = min(same, 10)
            runs.append((17, same - 3, 3))
        elif same >= 4 and draw.random() < 0.8:
            same = min(same, 7)
            runs += [(value, 0, 0), (16, same - 4, 2)]
        else:
            same = 1
            runs.append((value, 0, 0))
        at += same
    used = {symbol for symbol, _, _ in runs}
    of_lengths = _drawn_lengths(used | {0, 1}, 19, 7, draw)
    bits.put(literals - 257, 5)
    bits.put(len(lengths) - literals - 1, 5)
    bits.put(len(_LENGTH_CODES) - 4, 4)
    for symbol in _LENGTH_CODES:
        bits.put(of_lengths[symbol], 3)
    codes = _canonical(of_lengths)
    for symbol, extra, count in runs:
        bits.code(codes[symbol])
        bits.put(extra, count)


def _put_block(
    bits: _Bits, kind: str, data: bytes, begin: int, end: int, draw: random.Random
) -> None:
    bits.put(KINDS.index(kind), 2)
    if kind == "stored":
        bits.align()
        size = end - begin
        bits.put(size, 16)
        bits.put(size ^ 0xFFFF, 16)
        bits.put(int.from_bytes(data[begin:end], "little"), 8 * size)
        return
    tokens = _tokens(data, begin, end, draw)
    if kind == "fixed":
        _put_codes(bits, tokens, _FIXED, [5] * 30)
        return
    pairs = [token for token in tokens if not isinstance(token, int)]
    near = {token for token in tokens if isinstance(token, int)} | {_END, draw.randrange(_END)}
    near |= {_FIRST_LENGTH + _split(_LENGTHS, length)[0] for length, _ in pairs}
    far = {_split(_DISTANCES, distance)[0] for _, distance in pairs}
    literals = _drawn_lengths(near, max(near) + 1, 15, draw)
    distances = _drawn_lengths(far, max(far) + 1, 15, draw) if far else [0]
    _put_header(bits, literals + distances, len(literals), draw)
    _put_codes(bits, tokens, literals, distances)


def deflated(data: bytes, kinds: Iterable[str], draw: random.Random) -> bytes:
    """Write a zlib stream of `data` in blocks of these kinds; their sizes are drawn."""
    kinds = list(kinds)
    edges = sorted(draw.randint(0, len(data)) for _ in kinds[1:])
    bits = _Bits()
    for number, kind in enumerate(kinds):
        begin = edges[number - 1] if number else 0
        end = edges[number] if number + 1 < len(kinds) else len(data)
        while kind == "stored" and end - begin > 0xFFFF:
            bits.put(0, 1)
            _put_block(bits, kind, data, begin, begin + 0xFFFF, draw)
            begin += 0xFFFF
        bits.put(number + 1 == len(kinds), 1)
        _put_block(bits, kind, data, begin, end, draw)
    return b"\x78\x01" + bits.bytes() + struct.pack(">I", zlib.adler32(data))


def _fixed(*symbols: int, distance: int = 0) -> Iterator[tuple[int, int]]:
    """Yield (bits, their number) of a fixed block; a length is followed by a code of a distance."""
    codes, far = _canonical(_FIXED), _canonical([5] * 32)
    for symbol in symbols:
        yield _reversed(*codes[symbol])
        if symbol >= _FIRST_LENGTH:
            yield _reversed(*far[distance])
            yield (1 << 13) - 1, 13  # extra bits, of which those of distance 29 are the most


def _dynamic(
    literals: dict[int, int], size: int = 257, distances: Iterable[int] = (1,), runs: Any = ()
) -> Iterator[tuple[int, int]]:
    """Yield a dynamic block of one literal, by the lengths of its codes, or by `runs` of these."""
    distances = list(distances)
    lengths = [literals.get(symbol, 0) for symbol in range(size)] + distances
    runs = runs or [(length, 0, 0) for length in lengths]
    used = {symbol for symbol, *_ in runs} | {0}
    own = _drawn_lengths(used, 19, 7, random.Random(1))
    yield from ((size - 257, 5), (len(distances) - 1, 5), (len(_LENGTH_CODES) - 4, 4))
    yield from ((own[symbol], 3) for symbol in _LENGTH_CODES)
    for symbol, extra, count in runs:
        yield from (_reversed(*_canonical(own)[symbol]), (extra, count))
    yield from ((0, 1), (1, 1), (0, 1))


def _reversed(code: int, count: int) -> tuple[int, int]:
    return (int(f"{code:0{count}b}"[::-1], 2) if count else 0), count


_BOTH = {0: 1, _END: 1}
ILLEGAL: dict[str, tuple[int, list[tuple[int, int]]]] = {
    "kind of a block": (3, []),
    "inverse of a length": (0, [(0, 5), (4, 16), (4, 16), (0, 32)]),
    **{f"symbol {symbol}": (1, list(_fixed(symbol, _END))) for symbol in (286, 287)},
    **{f"distance {far}": (1, list(_fixed(257, _END, distance=far))) for far in (29, 30, 31)},
    "287 literals": (2, list(_dynamic(_BOTH, 287))),
    "31 distances": (2, list(_dynamic(_BOTH, distances=[1, *[0] * 30]))),
    "no end of the block": (2, list(_dynamic({0: 1, 1: 1}))),
    "too many codes": (2, list(_dynamic({0: 1, 1: 1, _END: 1}))),
    "too few codes": (2, list(_dynamic({0: 2, _END: 2}))),
    "too few distances": (2, list(_dynamic(_BOTH, distances=[2, 2]))),
    "repetition of nothing": (2, list(_dynamic(_BOTH, runs=[(16, 0, 2), (0, 0, 0)]))),
    "run beyond the end": (2, list(_dynamic(_BOTH, runs=[(1, 0, 0), *[(18, 127, 7)] * 2]))),
}
"""By the fault: the kind of a block, and its (bits, their number); of a `distance 29`, too far."""


def illegal(data: bytes, fault: str) -> bytes:
    """Write a zlib stream with an illegal block in the middle of `data`, as its end would be."""
    half, chance, bits = len(data) // 2, random.Random(1), _Bits()
    bits.put(0, 1)
    _put_block(bits, "stored", data, 0, half, chance)
    kind, contents = ILLEGAL[fault]
    bits.put(0, 1)
    bits.put(kind, 2)
    for value, count in contents:
        bits.put(value, count)
    bits.put(1, 1)
    _put_block(bits, "stored", data, half, len(data), chance)
    return b"\x78\x01" + bits.bytes() + struct.pack(">I", zlib.adler32(data))
