"""Hostile files take neither much memory nor much time."""

from __future__ import annotations

import gc
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from corpus import CORPUS, usable_backends
from encoded import chunk, png

from fastdecode import ImageTooLarge, decode, use
from fastdecode._selection import Choice
from fastdecode.testing import drawing, encode


def _png(width: int, height: int) -> bytes:
    return png(8, 2, width=width, height=height, data=zlib.compress(bytes(100))) + chunk(b"IEND")


def _jpeg(width: int, height: int) -> bytes:
    data = bytearray(encode(drawing(16, 16)))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", height, width)
    return bytes(data)


def _claiming(kind: bytes) -> bytes:
    """Return a PNG of 100 bytes with a chunk that claims to have 2 GB."""
    data = bytearray(_png(2, 2))
    place = data.index(b"IDAT")
    data[place : place + 4] = kind
    data[place - 4 : place] = struct.pack(">I", 0x7FFFFFF0)
    return bytes(data)


@pytest.mark.parametrize("name", [None, *usable_backends()])
def test_what_a_file_only_claims_takes_no_memory(name: str | None) -> None:
    """60000 x 60000 pixels are ImageTooLarge, a chunk of 2 GB is whatever, before memory is taken.

    In a process of its own, which has loaded the library for small files that are sound.
    """
    script = """
import resource, sys
from fastdecode import FastDecodeError, decode
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
name, before = sys.argv[1] or None, peak()
for data in sys.stdin.read().split():
    answer = "none"
    try:
        decode(bytes.fromhex(data), backend=name)
    except FastDecodeError as error:
        answer = type(error).__name__
    print(peak() - before, answer)
    before = peak()
"""
    small = [encode(drawing(8, 8)), encode(drawing(8, 8), "png")]
    huge = [_jpeg(60_000, 60_000), _png(60_000, 60_000)]
    files = [*small, *huge, _claiming(b"IDAT"), _claiming(b"tEXt")]

    done = subprocess.run(
        [sys.executable, "-c", script, name or ""],
        input=" ".join(data.hex() for data in files),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )

    grown, errors = zip(*(line.split() for line in done.stdout.splitlines()), strict=True)
    assert errors[2:4] == ("ImageTooLarge",) * 2
    assert sum(map(int, grown[2:4])) < 20_000  # kilobytes; each image would be 10 GB
    assert max(map(int, grown[4:])) < 1 << 20


@pytest.mark.parametrize("integer", [int, np.int64, np.uint16])
def test_the_limit_can_be_moved(integer: Callable[[int], Any]) -> None:
    """max_pixels may be any integer, also NumPy's, and None is no limit."""
    data = encode(drawing(40, 24))

    assert decode(data, max_pixels=integer(960)).shape == (24, 40, 3)
    assert decode(data, max_pixels=None).shape == (24, 40, 3)
    with pytest.raises(ImageTooLarge, match="40 x 24 = 960 pixels, over max_pixels=959"):
        decode(data, max_pixels=integer(959))


def test_what_the_choice_remembers_is_bounded() -> None:
    """The cache of choices stays bounded, however often the preference changes."""
    data = encode(drawing(8, 8))

    for _ in range(4_200):
        use(None)
        decode(data)

    assert 0 < sum(type(kept) is Choice for kept in gc.get_objects()) < 4_150


@pytest.mark.parametrize("name", ["gen_dims_2147483647.png", "gen_jpeg_claims_65500x65500_jpg.jpg"])
def test_the_collections_own_bombs(name: str) -> None:
    """Decompression bombs of the collection are refused by their header."""
    with pytest.raises(ImageTooLarge):
        decode((CORPUS / "malformed" / name).read_bytes())
