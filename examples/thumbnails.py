"""Thumbnails of a folder of photos, however many there are.

    python thumbnails.py photos/ thumbs/ --size 256

`decode_iter` decodes and shrinks on all cores, ahead of the loop that writes, and holds only a few
images at a time. It takes files of every format, names those that are damaged, and goes on. Files
that are no images, or of no format that a decoder here reads, are counted as unsupported.
"""

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

from PIL import Image

from fastdecode import UnsupportedFormat, decode_iter


def main() -> None:
    """Make the thumbnails, and print how many and how fast."""
    parser = argparse.ArgumentParser(description="Make thumbnails of a folder of photos.")
    parser.add_argument("photos", type=Path, help="a folder, including its subfolders")
    parser.add_argument("thumbs", type=Path, help="where the thumbnails go")
    parser.add_argument("--size", type=int, default=256, help="pixels of the longer side")
    options = parser.parse_args()

    found = (path for path in options.photos.rglob("*") if path.is_file())
    paths = sorted(path for path in found if options.thumbs not in path.parents)
    if not paths:
        sys.exit(f"there are no photos in {options.photos}")
    begun, counts = time.perf_counter(), Counter[str]()
    images = decode_iter(paths, max_side=options.size, orient=True, on_error="return")
    for path, image in zip(paths, images, strict=True):
        if isinstance(image, Exception):
            kind = "unsupported" if isinstance(image, UnsupportedFormat) else "damaged"
            counts[kind] += 1
            print(f"{kind}: {image}", file=sys.stderr)  # the error names the file
            continue
        counts["made"] += 1
        place = options.thumbs / path.relative_to(options.photos)
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place.with_name(f"{place.name}.jpg"), quality=85)
    speed = counts["made"] / (time.perf_counter() - begun)
    print(
        f"{counts['made']} thumbnails in {options.thumbs}, {speed:.0f} images/s; "
        f"{counts['damaged']} damaged, {counts['unsupported']} unsupported"
    )


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("stopped")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
