"""Stores that fastdecode 0.2.0 wrote can still be read."""

from __future__ import annotations

import io
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from corpus import DATA
from PIL import Image

from fastdecode.stores import open_store

KEYS = ["cat/a.png", "dög/b.c.png", "x.png", "y.png"]
SUFFIXES = {"tar": ".tar", "lmdb": ".lmdb", "hdf5": ".h5", "recordio": ".rec", "folder": "_folder"}
LIBRARIES = {"lmdb": "lmdb", "hdf5": "h5py"}
CASES: dict[str, tuple[list[str], list[Any]]] = {
    "classes": (["cat", "dög"], [0, 1, 1, None]),
    "mixed": ([], [7, -0.5, {"box": [1, 2.5]}, None]),
}


@pytest.fixture(scope="module", name="folder")
def _folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the stores, two of each kind; images are plain PNGs, the third with 3000 zeros."""
    folder = tmp_path_factory.mktemp("written")
    shutil.unpack_archive(DATA / "stores-0.2.0.zip", folder)
    return folder


@pytest.mark.parametrize("kind", SUFFIXES)
@pytest.mark.parametrize("case", CASES)
def test_store_written_by_0_2_0_is_read(folder: Path, case: str, kind: str) -> None:
    """Classes, keys, targets and bytes are those that were written."""
    if not find_spec(LIBRARIES.get(kind, "fastdecode")):
        pytest.skip("a library writes this kind")
    classes, targets = CASES[case]
    if kind == "recordio":  # whose targets are numbers and lists of them
        targets = [[1.0, 2.5] if isinstance(target, dict) else target for target in targets]

    with open_store(folder / f"{case}{SUFFIXES[kind]}") as store:
        assert list(store.classes) == classes
        assert [store.key(at) for at in range(len(store))] == KEYS
        assert [store.target(at) for at in range(len(store))] == targets
        for at in range(len(store)):
            data = bytes(store.read(at))
            with Image.open(io.BytesIO(data)) as image:
                assert image.getpixel((0, 0)) == (60 * at, 20, 30)
            assert data.endswith(bytes(3000)) == (at == 2)
