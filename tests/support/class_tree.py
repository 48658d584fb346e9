"""A folder of classes with every oddity that a scan of folders may meet."""

from __future__ import annotations

import shutil
from pathlib import Path

import fastdecode

PHOTOS = sorted((Path(fastdecode.__file__).parent / "samples").glob("*.jpg"))
FILES = [
    "b/2.jpg",
    "b/10.JPG",
    "b/.hidden.jpeg",
    "b/sub/x.jpg",
    "b/sub.d/y.jpg",
    "b/a-sub/z.jpg",
    "A/1.jpg",
    "a/notes.txt",
    "a/x.ico",
    "a/1.jpg",
    "with space/é.jpg",
    "top.jpg",
]


def make_tree(folder: Path) -> Path:
    """Make a tree with hidden, nested and linked files, and some that are not images."""
    for number, name in enumerate(FILES):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PHOTOS[number % len(PHOTOS)], path)
    (folder / "a" / "linked").symlink_to(folder / "b" / "sub")
    (folder / "a" / "0.jpg").symlink_to(folder / "b" / "2.jpg")
    return folder
