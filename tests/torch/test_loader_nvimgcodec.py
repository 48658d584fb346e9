"""`Loader(decode="nvimgcodec")` on the CPU: the library itself, over the collection's files."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("nvidia.nvimgcodec")

from corpus import samples
from loading import SeededLoader as Loader
from loading import Sources, copies
from torch_reference import decibels

from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import load
from fastdecode.torch.transforms import RandomResizedCrop

try:
    load("nvimgcodec", torch.device("cpu"))
except BackendUnavailable as error:
    pytest.skip(str(error), allow_module_level=True)


def run(files: list[bytes], transform: Any, **options: Any) -> Any:
    """Return an epoch's batches, and which samples were left out."""
    dataset = Sources(*files, transform=transform, on_error="skip")
    with Loader(dataset, 16, True, threads=2, **options) as loader:
        made = copies(loader)

        assert loader.skipped == len(dataset.errors)
        return made, {one.index for one in dataset.errors}


def test_every_kind_of_file_joins_in_order() -> None:
    """Of all kinds of JPEG, other formats and damaged files, the same are shown and skipped."""
    others = {row.format: row for row in samples("formats")}  # which the CPU decodes either way
    rows = [*samples("jpeg_kinds"), *others.values(), *samples("malformed")]
    rows = [row for row in rows if "500scans" not in row.name]  # which takes seconds
    files = [row.path.read_bytes() for row in rows]
    exact = RandomResizedCrop(24, quality="exact", dtype=torch.uint8, flip=0.5)

    ours, theirs = (run(files, exact, **one) for one in ({"decode": "nvimgcodec"}, {}))
    shown = {label: image for batch in ours[0] for image, label in by_label(batch)}
    expected = {label: image for batch in theirs[0] for image, label in by_label(batch)}

    assert list(shown) == list(expected)
    assert ours[1] == theirs[1]
    for label, image in expected.items():
        assert decibels(shown[label], image) >= 30, rows[label].name


def by_label(batch: Any) -> Any:
    return zip(batch[0], batch[1].tolist(), strict=True)
