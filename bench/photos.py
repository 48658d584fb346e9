"""Make folders of photos to measure with: 500 x 375, also as PNG, two megapixels, 12 and more.

    python bench/photos.py IMAGENET CORPUS OUT

IMAGENET is a folder with a photo of each of ImageNet's 1000 classes, in their original form; they
become OUT/px500, and every fourth of them, as Pillow writes PNGs, OUT/png500. CORPUS has real
photos in hd1080 and mp12plus, which are copied. The large ones also give the photos that are
missing to 100 and 40: a random part, possibly mirrored, scaled down to 1920 x 1080 or, with at
least 4000 x 3000 pixels, as it is, encoded with Pillow at a random quality from 75 to 92. The same
folders give the same files.
"""

from __future__ import annotations

import argparse
import random
import shutil
from collections.abc import Sequence
from pathlib import Path

import _common as bench
from PIL import Image, ImageOps

_COUNTS = {"hd1080": 100, "mp12plus": 40}
_HD = (1920, 1080)
_LARGE = (4000, 3000)


def part_of(photo: Image.Image, name: str, draw: random.Random) -> Image.Image:
    """Cut a random part, in the shape of the collection, out of a large photo."""
    width, height = photo.size
    if name == "hd1080":
        scale = draw.uniform(0.5, 1) * min(width / _HD[0], height / _HD[1])
        size = (int(_HD[0] * scale), int(_HD[1] * scale))
    else:
        size = (draw.randint(_LARGE[0], width), draw.randint(_LARGE[1], height))
    left, top = draw.randint(0, width - size[0]), draw.randint(0, height - size[1])
    part = photo.crop((left, top, left + size[0], top + size[1]))
    return part.resize(_HD, Image.Resampling.LANCZOS) if name == "hd1080" else part


def fill(folder: Path, originals: Sequence[Path], count: int) -> None:
    """Add parts of the original photos until the folder has `count`."""
    draw = random.Random(0)
    for number in range(len(list(folder.iterdir())), count):
        source = originals[number % len(originals)]
        with Image.open(source) as photo:
            part = part_of(photo.convert("RGB"), folder.name, draw)
        if draw.random() < 0.5:
            part = ImageOps.mirror(part)
        part.save(folder / f"{source.stem}_{number}.jpg", quality=draw.randint(75, 92))


def main() -> None:
    parser = argparse.ArgumentParser(description="Make folders of photos to measure with.")
    for name in ("imagenet", "corpus", "out"):
        parser.add_argument(name, type=Path)
    options = parser.parse_args()
    copies = {
        "px500": options.imagenet,
        **{name: options.corpus / name for name in _COUNTS},
    }
    for name, source in copies.items():
        (folder := options.out / name).mkdir(parents=True)
        for photo in bench.photos_in(source):
            shutil.copy(photo, folder)
    (pngs := options.out / "png500").mkdir()
    for photo in bench.photos_in(copies["px500"])[::4]:
        with Image.open(photo) as image:
            image.convert("RGB").save(pngs / f"{photo.stem}.png")
    large = [
        path
        for path in bench.photos_in(copies["mp12plus"])
        if all(side >= least for side, least in zip(Image.open(path).size, _LARGE, strict=True))
    ]
    for name, count in _COUNTS.items():
        fill(options.out / name, large, count)


if __name__ == "__main__":
    main()
