"""Memory that a thread reuses, in which no result may lie."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from corpus import CORPUS, usable_backends
from forged import tiff
from PIL import Image
from same import assert_same

import fastdecode
from fastdecode import decode

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
SAME_SIZE = ("canyon-wren", "roman-colosseum_422")


def region_files(backend: str) -> list[bytes]:
    """Return two files of one size that a backend reads."""
    if backend == "pillow_heif":
        path = CORPUS / "formats/pillow_heif__heif_RGB_8__29x100.heif"
        other = CORPUS / "formats/pillow_heif__heif_LA_8__29x100.heif"
        return [path.read_bytes(), other.read_bytes()]
    photos = [path.read_bytes() for path in PHOTOS if path.stem in SAME_SIZE]
    if backend == "tifffile":
        return [tiff(decode(photo), 8, 2, tile=(64, 64)) for photo in photos]
    return photos


@pytest.mark.parametrize("backend", usable_backends())
@pytest.mark.parametrize("reduce", [1, 2])
@pytest.mark.parametrize("part", [False, True], ids=["whole", "part"])
@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "stored"])
def test_a_region_belongs_to_the_caller(backend: str, reduce: int, part: bool, mode: str) -> None:
    """A region is not overwritten by the next one, also if it is the whole image."""
    first, second = region_files(backend)
    header = fastdecode.probe(first)
    box = (3, 5, header.width - 7, 40) if part else (0, 0, header.width, header.height)

    image = decode(first, reduce, region=box, backend=backend, mode=mode)
    kept = image.copy()
    other = decode(second, reduce, region=box, backend=backend, mode=mode)

    assert not np.shares_memory(image, other)
    assert_same(image, kept)
    assert image.flags.c_contiguous
    assert image.flags.writeable
    whole = decode(first, reduce, backend=backend, mode=mode)
    left, top, right, bottom = box
    expected = whole[top // reduce : -(-bottom // reduce), left // reduce : -(-right // reduce)]
    assert_same(image, expected)


@pytest.mark.parametrize("backend", sorted({*usable_backends()} - {"pillow_heif", "tifffile"}))
def test_a_single_pixel_belongs_to_the_caller(tmp_path: Path, backend: str) -> None:
    """A region that fills the thread's memory exactly is not overwritten, either."""
    files = []
    for number, color in enumerate(("black", "white")):
        path = tmp_path / f"{number}.jpg"
        Image.new("RGB", (1, 1), color).save(path)
        files.append(path.read_bytes())

    def both() -> list[list[int]]:
        images = [decode(data, region=(0, 0, 1, 1), backend=backend) for data in files]
        return [image.ravel().tolist() for image in images]

    with ThreadPoolExecutor(1) as new_thread:  # in which nothing is kept yet
        assert new_thread.submit(both).result() == [[0, 0, 0], [255, 255, 255]]
