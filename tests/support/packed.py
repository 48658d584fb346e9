"""Helpers for the tests of packing: sources, packs that are interrupted, and checksums."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest
from corpus import CORPUS
from PIL import Image

from fastdecode import stores
from fastdecode.packing import pack
from fastdecode.packing._rewrite import Work
from fastdecode.testing import drawing, encode

_LIBRARIES = {"lmdb": "lmdb"}
KINDS = {
    name: (f"out{kind.suffixes[0] if kind.suffixes else ''}", _LIBRARIES.get(name, ""))
    for name, kind in stores.KINDS.items()
    if kind.writer
}
"""The file name of a store of each kind, and the library that it needs."""


class Stop(Exception):
    """The error with which a test interrupts a pack."""


def name_of(kind: str) -> str:
    """Return the file name of a store of a kind; skip the test if its library is missing."""
    name, needed = KINDS[kind]
    if needed:
        pytest.importorskip(needed)
    return name


def make_source(folder: Path, *, damaged: bool = False) -> Path:
    """Make two class folders of JPEGs and PNGs; `damaged` adds a truncated and an empty file."""
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


def make_large_source(folder: Path) -> Path:
    """Make a folder with one healthy JPEG of more pixels than `decode` allows by default."""
    folder.mkdir()
    (folder / "large.jpg").write_bytes(encode(Image.new("L", (15_000, 12_000), 128)))
    return folder


def stop_pack_at(
    stop: int, monkeypatch: pytest.MonkeyPatch, source: Path, target: Path, **options: Any
) -> None:
    """Start a pack, and stop it at the item number `stop` of the source, from 0."""
    work = Work.__call__

    def some(self: Work, index: int) -> Any:
        if index == stop:
            raise Stop
        return work(self, index)

    with monkeypatch.context() as patch:
        patch.setattr(Work, "__call__", some)
        with pytest.raises(Stop):
            pack(source, target, **options)


def checksums(folder: Path) -> dict[str, str]:
    """Map the path of every file below a folder to its SHA-256."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
