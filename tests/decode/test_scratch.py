"""Memory that a thread reuses, in which no result may lie."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from corpus import usable_backends
from PIL import Image
from same import assert_same

from fastdecode import decode
from fastdecode._decode.engine import borrow_memory


@pytest.mark.parametrize("backend", sorted({*usable_backends()} - {"pillow_heif", "tifffile"}))
@pytest.mark.parametrize("side", [1, 40])
def test_a_region_belongs_to_the_caller(tmp_path: Path, backend: str, side: int) -> None:
    """One that fills the thread's memory, exactly or in part, is not overwritten by the next."""
    files = []
    for number, color in enumerate(("black", "white")):
        path = tmp_path / f"{number}.jpg"
        Image.new("RGB", (side, side), color).save(path)
        files.append(path.read_bytes())

    def both() -> list[Any]:
        boxes = [(0, 0, 1, 1), (0, 0, side, side), (side // 3, 0, side, side // 2 + 1)]
        return [[decode(data, region=box, backend=backend) for data in files] for box in boxes]

    with ThreadPoolExecutor(1) as new_thread:  # in which nothing is kept yet
        for black, white in new_thread.submit(both).result():
            assert_same(black, 0)
            assert_same(white, 255)


def test_each_thread_has_memory_of_its_own() -> None:
    """What one decodes into is not what another one writes to at the same time."""
    here = borrow_memory((8,))
    with ThreadPoolExecutor(1) as pool:
        assert not np.shares_memory(here, pool.submit(borrow_memory, (8,)).result())
