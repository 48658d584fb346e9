"""Make a seed corpus for fuzz.c, and a dictionary of JPEG's markers.

    python tests/native/seeds.py OUT FOLDER...

Every JPEG of the folders that is small enough, and some that are made here, become files in OUT,
each behind the HEAD bytes of another operation; OUT.dict is the dictionary. The same folders give
the same seeds.
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from PIL import Image

HEAD, OPERATIONS = 40, 6  # as in fuzz.h
LARGEST = 16_000  # bytes: of a long file the most changes hit what no decoder looks at
_WILD_RAW_HUGE = 0xE0  # flags that most seeds do without, so that something is decoded
_MARKERS = {
    **{f"sof{i}": bytes([0xFF, 0xC0 + i]) for i in (0, 1, 2, 3, 9, 10)},
    **{f"rst{i}": bytes([0xFF, 0xD0 + i]) for i in range(8)},
    "soi": b"\xff\xd8",
    "eoi": b"\xff\xd9",
    "dht": b"\xff\xc4",
    "dac": b"\xff\xcc",
    "sos": b"\xff\xda",
    "dqt": b"\xff\xdb",
    "dnl": b"\xff\xdc",
    "dri": b"\xff\xdd\x00\x04",
    "com": b"\xff\xfe",
    "jfif": b"\xff\xe0\x00\x10JFIF\x00",
    "exif": b"\xff\xe1\x00\x08Exif\x00\x00",
    "adobe": b"\xff\xee\x00\x0eAdobe",
    "fill": b"\xff\xff",
    "stuffed": b"\xff\x00",
}


def jpegs(folders: list[str]) -> list[Path]:
    """List what begins like a JPEG and is small, or was one before it was damaged."""
    paths = sorted(path for folder in folders for path in Path(folder).rglob("*") if path.is_file())
    return [
        path
        for path in paths
        if path.stat().st_size <= LARGEST
        and (path.suffix.lower() in (".jpg", ".jpeg") or path.read_bytes()[:2] == b"\xff\xd8")
    ]


def made() -> Iterator[tuple[str, bytes]]:
    """Encode small images of each colour, with and without scans and restart markers."""
    pixels = random.Random(0).randbytes(15 * 11 * 4)
    for mode, progressive, rows in product(("L", "RGB", "CMYK"), (False, True), (0, 1)):
        image = Image.frombytes(mode, (15, 11), pixels[: 15 * 11 * len(mode)]).resize((75, 55))
        file = io.BytesIO()
        image.save(file, "JPEG", quality=60, progressive=progressive, restart_marker_rows=rows)
        name = f"made_{mode}_{progressive}_{rows}"
        yield name, file.getvalue()
        if rows:  # a marker out of turn
            yield f"{name}_turn", file.getvalue().replace(b"\xff\xd1", b"\xff\xd3", 1)


def head(operation: int, chance: random.Random) -> bytes:
    """Draw the numbers for one operation."""
    numbers = bytearray(chance.randbytes(HEAD))
    numbers[0] = operation
    if chance.random() < 0.9:
        numbers[1] &= ~_WILD_RAW_HUGE
    return bytes(numbers)


def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    files = [(path.stem[:40], path.read_bytes()) for path in jpegs(sys.argv[2:])]
    for number, (name, data) in enumerate([*made(), *files]):
        chance = random.Random(number)
        for operation in range(OPERATIONS):
            (out / f"{number:04}_{operation}_{name}").write_bytes(head(operation, chance) + data)
    entries = [
        name + '="' + "".join(f"\\x{byte:02x}" for byte in bytes_) + '"'
        for name, bytes_ in _MARKERS.items()
    ]
    out.with_suffix(".dict").write_text("\n".join(entries) + "\n")


if __name__ == "__main__":
    main()
