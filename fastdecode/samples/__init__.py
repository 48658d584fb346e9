"""Photos that come with the package, to try things on: paths of JPEG files.

>>> from fastdecode import decode_file
>>> from fastdecode.samples import photo
>>> decode_file(photo).shape
(480, 640, 3)

All are in the public domain (CC0); ``LICENSE.txt`` beside them says where they come from.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["photo", "photos"]

photos: tuple[Path, ...] = tuple(sorted(Path(__file__).parent.glob("*.jpg")))
"""All of them: baseline JPEGs in colour, one in grey, one progressive; 375 to 640 pixels wide."""

photo: Path = next(path for path in photos if path.name == "casa-mila.jpg")
"""The usual one: 640 x 480 pixels in colour, baseline, 84 KB."""
