"""The images that the benchmark's tests measure."""

from __future__ import annotations

from pathlib import Path

import pytest
from benches import make_photos


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create three JPEGs in two folders, next to hidden files and files that are not images."""
    return make_photos(tmp_path)
