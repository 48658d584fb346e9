"""Photos with masks. And where processes cannot share memory, a test that needs some is skipped."""

from __future__ import annotations

import importlib.util
from multiprocessing import synchronize
from pathlib import Path

import pytest
from PIL import Image
from processes import HAS_SHARED_MEMORY, skip_without_shared_memory

if not HAS_SHARED_MEMORY and importlib.util.find_spec("torch"):
    import torch
    from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

    synchronize.SemLock.__init__ = skip_without_shared_memory
    torch.Tensor.share_memory_ = skip_without_shared_memory
    # Torch's iterator, which then does not come to say so itself, has nothing to shut down.
    _MultiProcessingDataLoaderIter._shutdown = True


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write small photos to files, and a mask beside each: 0.jpg, 0.png, and so on."""
    from loading import encoded  # needs torch

    folder = tmp_path_factory.mktemp("photos")
    for number, data in enumerate(encoded()):
        (folder / f"{number}.jpg").write_bytes(data)
        with Image.open(folder / f"{number}.jpg") as image:
            mask = image.convert("L").point([level // 90 for level in range(256)])
            mask.save(folder / f"{number}.png")
    return folder
