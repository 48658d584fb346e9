"""Cut files at many places: whatever is left of one must decode to the same pixels, or not at all.

``python tests/cuts.py`` does so with every honest file of the collection that
``FASTDECODE_CORPUS`` names, or of some of its folders, and prints how it went;
``--backend NAME`` asks one backend.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter

import numpy as np
from conftest import Sample, samples

from fastdecode import FastDecodeError, decode, probe

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


def outcome(data: bytes, whole: np.ndarray, backend: str | None = None) -> str:
    """Say what becomes of a file that was cut: an error, the same pixels, or a lie."""
    try:
        image = decode(data, backend=backend)
    except FastDecodeError:
        return "error"
    same = image.shape == whole.shape and np.array_equal(image, whole)
    return "same" if same else "lie"


def honest(*folders: str) -> list[Sample]:
    """List the files that are as they should be, beyond what Pillow reads as well."""
    return [
        sample
        for sample in samples(*folders)
        if sample.decodes_in_pillow or sample.format in ("jxl", "heif", "jpeg")
    ]


def main() -> int:
    """Cut them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", help="ask this one alone (default: the usual choice)")
    parser.add_argument("folders", nargs="*", default=["photos", "formats", "jpeg_kinds"])
    options = parser.parse_args()
    backend = options.backend
    counts: dict[str, Counter[str]] = {}
    for sample in honest(*options.folders):
        data = sample.path.read_bytes()
        try:
            whole = decode(data, backend=backend)
        except FastDecodeError:
            continue
        counted = counts.setdefault(probe(data).format, Counter())
        counted["files"] += 1
        for end in places(len(data)):
            what = outcome(data[:end], whole, backend)
            counted[what] += 1
            if what == "lie":
                sys.stdout.write(f"{sample.name}: {end} of {len(data)} bytes give other pixels\n")
    columns = ("files", "error", "same", "lie")
    for name, counted in sorted({**counts, "all": sum(counts.values(), Counter())}.items()):
        numbers = "".join(f"{counted[column]:8} {column}" for column in columns)
        sys.stdout.write(f"{name:10}{numbers}\n")
    return int(any(counted["lie"] for counted in counts.values()))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.exit(main())
