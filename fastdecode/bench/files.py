"""The images that are measured: found under folders, and listed if they cannot be read."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastdecode import probe
from fastdecode.bench import result
from fastdecode.calibration.samples import FOLDER
from fastdecode.errors import DecodeError, UnsupportedFormat
from fastdecode.types import Header

__all__ = ["SAMPLES", "Collection", "Photo", "collect", "printable"]

SAMPLES = FOLDER
"""The photos that the package carries."""

_HEAD = 1 << 20  # read first, so that a film or an archive is not read whole to be passed over


@dataclass(frozen=True)
class Photo:
    """One image file; its bytes stay on the disk until it is decoded.

    Attributes
    ----------
    name : str
        Its path as the user would say it, printable.
    path : Path
    header : Header
    size : int
        In bytes.
    """

    name: str
    path: Path
    header: Header
    size: int


@dataclass
class Collection:
    """What was found under the paths.

    Attributes
    ----------
    photos : list of Photo
        By name.
    unreadable : dict of str to str
        Why a file that should be an image cannot be used, by name.
    not_images : int
        Files passed over because they are something else.
    left_out : int
        Files not looked at because `limit` images were reached.
    """

    photos: list[Photo] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    not_images: int = 0
    left_out: int = 0

    def summary(self) -> result.Collection:
        """Count it, as it stands in results."""
        headers = [photo.header for photo in self.photos]
        return result.Collection(
            images=len(self.photos),
            bytes=sum(photo.size for photo in self.photos),
            pixels=sum(header.width * header.height for header in headers),
            formats=dict(Counter(str(header.format) for header in headers).most_common()),
            unreadable=dict(self.unreadable),
            not_images=self.not_images,
            left_out=self.left_out,
        )


def collect(paths: Sequence[Path], *, limit: int | None = None) -> Collection:
    """Find every image under the paths, and read its header.

    Parameters
    ----------
    paths : sequence of Path
        Folders, searched to any depth, and files. Hidden files and folders are ignored.
    limit : int, optional
        Stop at this many images. Which ones is drawn at random, always the same: the first ones of
        a data set are often all of one class.

    Returns
    -------
    Collection

    Raises
    ------
    FileNotFoundError
        If one of the paths does not exist.
    """
    found = list(dict.fromkeys(_files(paths)))
    random.Random(0).shuffle(found)
    collection = Collection()
    root = paths[0] if len(paths) == 1 and paths[0].is_dir() else None
    for index, path in enumerate(found):
        if limit is not None and len(collection.photos) >= limit:
            collection.left_out = len(found) - index
            break
        name = printable(path.relative_to(root) if root else path)
        try:
            collection.photos.append(_load(path, name))
        except UnsupportedFormat:
            collection.not_images += 1
        except (DecodeError, OSError) as error:
            collection.unreadable[name] = getattr(error, "strerror", None) or str(error)
    collection.photos.sort(key=lambda photo: photo.name)
    return collection


def printable(path: Path | str) -> str:
    """Write a path so that no byte of a file name can upset a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(path))


def _files(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(name for name in folders if not name.startswith("."))
                files = (Path(folder, name) for name in sorted(names) if name[0] != ".")
                yield from (file for file in files if file.is_file())
        elif path.exists():
            yield path
        else:
            raise FileNotFoundError(f"there is no file or folder {printable(path)!r}")


def _load(path: Path, name: str) -> Photo:
    """Read the header of one image.

    Raises
    ------
    UnsupportedFormat
        If it is something else.
    DecodeError, OSError
        If it is damaged, or cannot be read.
    """
    if not path.is_file():  # opening a pipe would wait for somebody to write into it
        raise OSError("it is no regular file")
    with path.open("rb") as file:
        data = file.read(_HEAD)
        try:
            header = probe(data)
        except DecodeError:
            if len(data) < _HEAD:
                raise
            header = probe(data + file.read())  # TIFF, for one, may keep its header at the end
        return Photo(name, path, header, os.fstat(file.fileno()).st_size)
