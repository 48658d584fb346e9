"""PNM: PBM, PGM and PPM, each as digits ("plain") or as bytes ("raw")."""

from __future__ import annotations

import re

import numpy as np

from fastdecode.errors import DecodeError
from fastdecode.types import Buffer, Header

_MAX_HEADER = 1 << 16  # comments may have any length
_NUMBER = re.compile(rb"(?:\s|#[^\n\r]*[\n\r])*(\d{1,10})(?=[\s#])")
_LAST_NUMBER = re.compile(rb"(?<!\d)(\d+)\Z")
_MAX_DIGITS = 16


def parse(data: Buffer) -> Header:
    """Read a PNM's header: the size, and the value of white.

    The manual pages pbm(5), pgm(5) and ppm(5) of Netpbm. In a PBM, 1 is black.
    """
    kind, (width, height, maxval), _ = _read(data)
    if not width or not height:
        raise DecodeError(f"the PNM header says {width}x{height} pixels")
    if not 0 < maxval <= 0xFFFF:
        raise DecodeError(f"the PNM header says that white is {maxval}")
    color = kind % 3 == 0
    return Header(
        "pnm",
        width,
        height,
        3 if color else 1,
        maxval.bit_length(),
        color="rgb" if color else "gray",
        coding="plain" if kind <= 3 else "",
        maxval=maxval,
    )


def missing(data: Buffer, _: Header) -> str:
    """Return what is missing of a PNM, or shows that something is; empty if nothing is.

    Not all decoders check the length of raw pixels, or their range. The last of the digits of a
    plain one may be missing, without which it is another number.
    """
    kind, (width, height, maxval), start = _read(data)
    if kind > 3:
        row = -(-width // 8) if kind == 4 else width * (3 if kind == 6 else 1)
        sample = np.dtype(">u2" if maxval > 255 else np.uint8)
        end = start + row * height * sample.itemsize
        if end > len(data):
            return f"the pixels end at {end}, past its {len(data)} bytes"
        full = kind == 4 or maxval == np.iinfo(sample).max
        if full or np.frombuffer(data[start:end], sample).max() <= maxval:
            return ""
        return f"a sample of the PNM is larger than its white, {maxval}"
    last = _LAST_NUMBER.search(bytes(data[-_MAX_DIGITS:]))
    if kind > 1 and last and 0 < 10 * int(last[1]) <= maxval:
        return f"the PNM may end within the number {last[1].decode()}: no white space follows"
    return ""


def _read(data: Buffer) -> tuple[int, tuple[int, int, int], int]:
    """Return the digit of the signature; width, height and maxval; and where the pixels start."""
    head = bytes(data[:_MAX_HEADER])
    kind, at = int(head[1:2]), 2
    numbers = [1, 1, 1]
    for index in range(2 if kind in (1, 4) else 3):
        found = _NUMBER.match(head, at)
        if not found:
            raise DecodeError(f"the PNM header has no {('width', 'height', 'maxval')[index]}")
        numbers[index], at = int(found[1]), found.end()
    return kind, (numbers[0], numbers[1], numbers[2]), at + 1
