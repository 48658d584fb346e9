"""Make seeds for the fuzzers.

    python tests/native/seeds.py OUT FOLDER...

Every JPEG of the folders that is small enough, and some that are made here, become files in
OUT/jpeg, each behind the HEAD bytes of another operation (fuzz.c, fuzz_own.c); the PNGs become
files in OUT/png (fuzz_png.c). The same folders give the same seeds.
"""

from __future__ import annotations

import io
import random
import sys
import zlib
from collections.abc import Iterator
from itertools import product
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

HEAD, OPERATIONS = 40, 6  # as in fuzz.h
LARGEST = 16_000  # bytes: of a long file the most changes hit what no decoder looks at
_WILD_RAW_HUGE = 0xE0  # flags that most seeds do without, so that something is decoded


_PIXEL_BITS = (1, 2, 4, 8, 16, 24, 48, 1, 2, 4, 8, 16, 32, 32, 64)  # of `kinds` in fuzz_png.c


def small(folders: list[str], first: bytes, *suffixes: str) -> list[Path]:
    """List what begins like a format and is small, or was one before it was damaged."""
    paths = sorted(path for folder in folders for path in Path(folder).rglob("*") if path.is_file())
    return [
        path
        for path in paths
        if path.stat().st_size <= LARGEST
        and (path.suffix.lower() in suffixes or path.read_bytes()[: len(first)] == first)
    ]


def made_jpegs() -> Iterator[tuple[str, bytes]]:
    """Encode small images of each colour, with and without scans and restart markers; and a PPM."""
    pixels = random.Random(0).randbytes(15 * 11 * 4)
    yield "made_ppm", b"P6\n15 11\n255\n" + pixels[: 15 * 11 * 3]
    for mode, progressive, rows in product(("L", "RGB", "CMYK"), (False, True), (0, 1)):
        image = Image.frombytes(mode, (15, 11), pixels[: 15 * 11 * len(mode)]).resize((75, 55))
        file = io.BytesIO()
        image.save(file, "JPEG", quality=60, progressive=progressive, restart_marker_rows=rows)
        name = f"made_{mode}_{progressive}_{rows}"
        yield name, file.getvalue()
        if rows:  # a marker out of turn
            yield f"{name}_turn", file.getvalue().replace(b"\xff\xd1", b"\xff\xd3", 1)


def made_pngs() -> Iterator[tuple[str, bytes]]:
    """Encode small images of each mode, with chunks of all kinds; and rows of every kind alone."""
    pixels = random.Random(1).randbytes(15 * 11 * 4)
    text = PngInfo()
    text.add_text("Title", "seed " * 20, zip=True)
    text.add_itxt("Author", "nobody")
    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"):
        image = Image.frombytes("RGBA", (15, 11), pixels)
        if mode == "I;16":
            image = Image.frombytes(mode, (15, 11), pixels[: 15 * 11 * 2])
        else:
            image = image.convert(mode).resize((75, 55))
        options = {"transparency": 3} if mode in ("L", "P") else {}
        file = io.BytesIO()
        image.save(file, "PNG", pnginfo=text, icc_profile=pixels[:200], dpi=(72, 72), **options)
        yield f"made_{mode}", file.getvalue()
    for (kind, bits), level in product(enumerate(_PIXEL_BITS), (0, 1, 9)):
        # What comes before the stream: kind, width, height, colours, width again, size of a chunk.
        before = bytes([kind, 20, 30, 255, 0, 0 if level else 50])
        line = pixels[: -(-21 * bits // 8)]
        rows = b"".join(bytes([y % 5]) + line for y in range(31))
        yield f"rows_{kind}_{level}", before + zlib.compress(rows, level, wbits=-15)
    for kind, width in product((5, 13), (1, 2, 5)):
        # Rows whose filters are undone two at a time, and matches that go on beyond a region.
        rows = (b"\4" + bytes(width * _PIXEL_BITS[kind] // 8)) * 31
        before = bytes([kind, width - 1, 30, 255, 0, 0])
        yield f"pairs_{kind}_{width}", before + zlib.compress(rows, 9, wbits=-15)


def head(operation: int, chance: random.Random) -> bytes:
    """Draw the numbers for one operation."""
    numbers = bytearray(chance.randbytes(HEAD))
    numbers[0] = operation
    if chance.random() < 0.9:
        numbers[1] &= ~_WILD_RAW_HUGE
    return bytes(numbers)


def main() -> None:
    out, folders = Path(sys.argv[1]), sys.argv[2:]
    (out / "jpeg").mkdir(parents=True, exist_ok=True)
    (out / "png").mkdir(exist_ok=True)
    jpegs = small(folders, b"\xff\xd8", ".jpg", ".jpeg")
    files = [(path.stem[:40], path.read_bytes()) for path in jpegs]
    for number, (name, data) in enumerate([*made_jpegs(), *files]):
        chance = random.Random(number)
        for operation in range(OPERATIONS):
            path = out / "jpeg" / f"{number:04}_{operation}_{name}"
            path.write_bytes(head(operation, chance) + data)
    pngs = small(folders, b"\x89PNG", ".png")
    files = [(path.stem[:40], path.read_bytes()) for path in pngs]
    for number, (name, data) in enumerate([*made_pngs(), *files]):
        (out / "png" / f"{number:04}_{name}".replace(";", "_")).write_bytes(data)


if __name__ == "__main__":
    main()
