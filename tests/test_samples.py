"""The photos that come with the package."""

from __future__ import annotations

from pathlib import Path

from fastdecode import decode_file, probe
from fastdecode.samples import photo, photos


def test_the_usual_photo_is_one_that_every_decoder_reads() -> None:
    """`photo` is the path of a baseline JPEG in colour, and decodes to the documented size."""
    header = probe(photo.read_bytes())

    assert isinstance(photo, Path)
    assert (header.format, header.coding, header.color) == ("jpeg", "baseline", "ycc")
    assert decode_file(photo).shape == (480, 640, 3)


def test_all_photos_are_listed_in_the_order_of_their_names() -> None:
    """`photos` lists every JPEG of the package, sorted by name."""
    assert photos == tuple(sorted(photo.parent.glob("*.jpg")))
    assert photo in photos
    assert len(photos) == 6
