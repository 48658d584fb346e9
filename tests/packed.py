"""Sources for the tests of packing, and what is left of a pack."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from conftest import CORPUS

from fastdecode.testing import encode, picture

KINDS = {
    "folder": ("out", ""),
    "tar": ("out.tar", ""),
    "lmdb": ("out.lmdb", "lmdb"),
    "hdf5": ("out.h5", "h5py"),
    "recordio": ("out.rec", ""),
}
"""What a store of each kind is called here, and the library that it needs."""


def make_source(folder: Path, *, damaged: bool = False) -> Path:
    """Make two class folders of pictures of several formats; one of them cut short if asked."""
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True)
        for number, (width, height) in enumerate([(40, 30), (64, 48), (30, 90)]):
            data = encode(picture(width, height + ord(name[0]) - ord("a")))
            (folder / name / f"{number}.jpg").write_bytes(data)
        (folder / name / "drawn.png").write_bytes(encode(picture(50, 20), "png"))
    if damaged:
        shutil.copy(CORPUS / "malformed" / "gen_jpg_cut667.jpg", folder / "cats" / "1-cut.jpg")
        (folder / "dogs" / "empty.jpg").touch()
    return folder


def sums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by its path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
