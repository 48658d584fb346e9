"""The page on GPUs runs; without a GPU, its examples run on the CPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pages
import pytest
import torch
from corpus import TESTS

from fastdecode import BackendUnavailable
from fastdecode.gpu import load
from fastdecode.samples import photos

_ROOT = TESTS.parent
_TEXT = (_ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"^```python\n(.*?)^```$", _TEXT, re.DOTALL | re.MULTILINE)
_BATCH = "    256,\n"


@pytest.mark.parametrize("block", _BLOCKS, ids=range(len(_BLOCKS)))
def test_every_example_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example of the page runs, with batches of the package's few photos."""
    if "nvimgcodec" in block:
        try:
            load("nvimgcodec", torch.device("cpu"))
        except BackendUnavailable as error:
            pytest.skip(str(error))
    if not torch.cuda.is_available():
        block = block.replace('device="cuda"', 'device="cpu"').replace('"gpu"', '"cpu"')
    pages.prepare_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    seen: list[Any] = []
    names: dict[str, Any] = {
        "train": lambda images, labels: seen.append((images.shape, labels.shape)),
        "__name__": "docs",
    }

    exec(compile(block.replace(_BATCH, "    2,\n"), "gpu.md", "exec"), names)

    if "DevicePrefetcher" in block:
        assert names["images"].shape == (2, 3, 224, 224)
    else:
        assert seen == [((2, 3, 224, 224), (2,))] * (len(photos) // 2)
