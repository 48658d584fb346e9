"""The images that are measured: found under folders, held in memory, and listed if unreadable."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fastdecode import probe
from fastdecode.errors import DecodeError, UnsupportedFormat
from fastdecode.types import Header

__all__ = ["MAX_BYTES", "SAMPLES", "Collection", "Photo", "collect"]

SAMPLES = Path(__file__).parent / "samples"
MAX_BYTES = 1 << 30
"""Encoded bytes held in memory at most; what is beyond is left out, and the report says so."""

_HEAD = 1 << 20  # read first, so that a film or an archive is not read whole to be passed over


@dataclass(frozen=True)
class Photo:
    """One image file in memory.

    Attributes
    ----------
    name : str
        Its path as the user would say it, printable.
    data : bytes
    header : Header
    """

    name: str
    data: bytes = field(repr=False)
    header: Header


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
        Files not looked at because `limit` images, or `max_bytes`, were reached.
    full : bool
        It was `max_bytes` that was reached.
    """

    photos: list[Photo] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)
    not_images: int = 0
    left_out: int = 0
    full: bool = False


def collect(
    paths: Sequence[Path], *, limit: int | None = None, max_bytes: int = MAX_BYTES
) -> Collection:
    """Load every image under the paths into memory.

    Parameters
    ----------
    paths : sequence of Path
        Folders, searched to any depth, and files. Hidden files and folders are ignored.
    limit : int, optional
        Stop at this many images. Which ones is drawn at random, always the same: the first ones of
        a data set are often all of one class.
    max_bytes : int
        Stop before more than this many bytes are held.

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
    result = Collection()
    root = paths[0] if len(paths) == 1 and paths[0].is_dir() else None
    held = 0
    for index, path in enumerate(found):
        if limit is not None and len(result.photos) >= limit:
            result.left_out = len(found) - index
            break
        name = printable(path.relative_to(root) if root else path)
        try:
            size = path.stat().st_size
            photo = _load(path, name, max_bytes - held)
        except UnsupportedFormat:
            result.not_images += 1
        except (DecodeError, OSError) as error:
            result.unreadable[name] = getattr(error, "strerror", None) or str(error)
        else:
            if photo is None or held + size > max_bytes:
                result.left_out = len(found) - index
                result.full = True
                break
            result.photos.append(photo)
            held += len(photo.data)
    result.photos.sort(key=lambda photo: photo.name)
    return result


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


def _load(path: Path, name: str, room: int) -> Photo | None:
    """Read one image; None if it does not fit into `room` bytes."""
    with path.open("rb") as file:
        data = file.read(_HEAD)
        try:
            header = probe(data)
        except DecodeError:
            if len(data) < _HEAD:
                raise
            header = None  # TIFF, for one, may keep its header at the end
        if len(data) == _HEAD:
            if os.fstat(file.fileno()).st_size > room:
                return None
            data += file.read()
    return Photo(name, data, header or probe(data))
