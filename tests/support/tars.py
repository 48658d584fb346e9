"""Tars for the tests of tar stores, written with Python's tarfile."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable
from pathlib import Path

IMAGE = b"\xff\xd8\xff\xe0 an image, as far as a store can tell "


def image(number: int, size: int = 600) -> bytes:
    """Return bytes that are different for each number."""
    return (IMAGE + b"%d " % number) + b"." * size


def write_tar(
    path: Path, members: Iterable[tuple[str, bytes]], format: int = tarfile.USTAR_FORMAT
) -> Path:
    """Write a tar with tarfile."""
    with tarfile.open(path, "w", format=format) as tar:
        for name, data in members:
            about = tarfile.TarInfo(name)
            about.size = len(data)
            tar.addfile(about, io.BytesIO(data))
    return path


def numbered(count: int, begin: int = 0) -> list[tuple[str, bytes]]:
    """Return the members of samples that each have a class."""
    return [
        member
        for number in range(begin, begin + count)
        for member in (
            (f"{number:04d}.jpg", image(number)),
            (f"{number:04d}.cls", b"%d" % number),
        )
    ]
