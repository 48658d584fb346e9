"""Where to cut files, and what becomes of them: the same pixels as before, or an error."""

from __future__ import annotations

import numpy as np
from corpus import Sample, samples

from fastdecode import FastDecodeError, decode
from fastdecode.types import Image, Reduce

PLACES = 30
# Most of what a decoder might forgive stands at the very end: an end marker, a checksum, a byte.
_BEFORE_THE_END = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64, 128)


def places(size: int) -> list[int]:
    """Choose where to cut: `PLACES` lengths, some just below the size, the others all over it."""
    ends = {size - before for before in _BEFORE_THE_END}
    spread = np.linspace(1, size - 1, PLACES + len(ends)).astype(int).tolist()
    for end in spread[::2] + spread[1::2]:
        if len(ends) < PLACES:
            ends.add(end)
    return sorted(end for end in ends if 0 < end < size)


def outcome(
    data: bytes, whole: bytes | Image, backend: str | None = None, reduce: Reduce = 1
) -> str:
    """Say what becomes of damaged data: an error, the whole image (or file), or another one."""
    try:
        image = decode(data, reduce, backend=backend)
    except FastDecodeError:
        return "error"
    expected = decode(whole, reduce, backend=backend) if isinstance(whole, bytes) else whole
    return "whole" if np.array_equal(image, expected) else "other pixels"


def honest(*folders: str) -> list[Sample]:
    """List the files that are as they should be, beyond what Pillow reads as well."""
    return [
        sample
        for sample in samples(*folders)
        if sample.decodes_in_pillow or sample.format in ("jxl", "heif", "jpeg")
    ]
