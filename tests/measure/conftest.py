"""The images that the benchmark's tests measure, and how often."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from benches import make_photos

from fastdecode.measure import _run


@pytest.fixture(autouse=True, scope="package")
def _one_process() -> Iterator[None]:
    """Time each decoder in one process instead of three, whose starts take most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_run, "_PROCESSES", 1)
        yield


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create three JPEGs in two folders, next to hidden files and files that are not images."""
    return make_photos(tmp_path)
