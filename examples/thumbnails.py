"""Thumbnails of a folder of photos, however many there are.

    python thumbnails.py photos/ thumbs/ --size 256

`decode_iter` decodes on all cores, ahead of the loop that writes, and holds only a few images at a
time. JPEGs are shrunk inside the decoder. The program names damaged files and goes on.
"""

import argparse
import sys
import time
from pathlib import Path

from PIL import Image

from fastdecode import decode_iter

SUFFIXES = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"}


def main() -> None:
    """Make the thumbnails, and print how many and how fast."""
    parser = argparse.ArgumentParser(description="Make thumbnails of a folder of photos.")
    parser.add_argument("photos", type=Path, help="a folder, including its subfolders")
    parser.add_argument("thumbs", type=Path, help="where the thumbnails go")
    parser.add_argument("--size", type=int, default=256, help="pixels of the longer side")
    options = parser.parse_args()

    found = (path for path in options.photos.rglob("*") if path.suffix.lower() in SUFFIXES)
    paths = sorted(path for path in found if options.thumbs not in path.parents)
    if not paths:
        sys.exit(f"there are no photos in {options.photos}")
    begun, bad = time.perf_counter(), 0
    images = decode_iter(paths, min_size=options.size, orient=True, on_error="return")
    for path, image in zip(paths, images, strict=True):
        if isinstance(image, Exception):
            bad += 1
            print(image, file=sys.stderr)  # the error names the file
            continue
        thumb = Image.fromarray(image)
        thumb.thumbnail((options.size, options.size), Image.Resampling.LANCZOS)
        place = options.thumbs / path.relative_to(options.photos)
        place.parent.mkdir(parents=True, exist_ok=True)
        thumb.save(place.with_name(f"{place.name}.jpg"), quality=85)
    count, seconds = len(paths) - bad, time.perf_counter() - begun
    print(f"{count} thumbnails in {options.thumbs}, {count / seconds:.0f} images/s; {bad} damaged")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
