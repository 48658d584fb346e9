"""Sources for the tests of packing, and packs that stop at a given point."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from corpus import CORPUS

from fastdecode import stores
from fastdecode.packing import _pack, pack
from fastdecode.packing._rewrite import Work
from fastdecode.testing import drawing, encode

_LIBRARIES = {"lmdb": "lmdb", "hdf5": "h5py"}
KINDS = {
    name: (f"out{kind.suffixes[0] if kind.suffixes else ''}", _LIBRARIES.get(name, ""))
    for name, kind in stores.KINDS.items()
    if kind.writer
}
"""What a store of each kind is called here, and the library that it needs."""


class Stop(Exception):
    """The exception that ends a pack at the point that a test has chosen."""


def name_of(kind: str) -> str:
    """Return the name of a store of a kind; skip the test if its library is missing."""
    name, needed = KINDS[kind]
    if needed:
        pytest.importorskip(needed)
    return name


def make_source(folder: Path, *, damaged: bool = False) -> Path:
    """Create two class folders with images of several formats, optionally a truncated one."""
    for name in ("cats", "dogs"):
        (folder / name).mkdir(parents=True)
        for number, (width, height) in enumerate([(40, 30), (64, 48), (30, 90)]):
            data = encode(drawing(width, height + ord(name[0]) - ord("a")))
            (folder / name / f"{number}.jpg").write_bytes(data)
        (folder / name / "drawn.png").write_bytes(encode(drawing(50, 20), "png"))
    if damaged:
        shutil.copy(CORPUS / "malformed" / "gen_jpg_cut667.jpg", folder / "cats" / "1-cut.jpg")
        (folder / "dogs" / "empty.jpg").touch()
    return folder


def pack_three(monkeypatch: pytest.MonkeyPatch, source: Path, target: Path, **options: Any) -> None:
    """Begin a pack that records each item separately, and stop it after three items."""
    work = Work.__call__

    def some(self: Work, index: int) -> Any:
        if index == 3:
            raise Stop
        return work(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(_pack, "EVERY_S", 0)
        patch.setattr(Work, "__call__", some)
        with pytest.raises(Stop):
            pack(source, target, **options)


def pack_up_to_renaming(
    count: int, monkeypatch: pytest.MonkeyPatch, source: Path, target: Path, **options: Any
) -> None:
    """Stop a pack before one of its final renamings, counted from 0."""
    rename = Path.replace
    left = count

    def replace(path: Path, to: Path) -> Path:
        nonlocal left
        if to.parent == target.parent and ".partial" in str(path.parent):
            left -= 1
            if left < 0:
                raise Stop
        return rename(path, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(Stop):
            pack(source, target, **options)


def sums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file below a folder, by path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
