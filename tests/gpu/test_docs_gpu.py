"""The page on GPUs runs; without a GPU, its examples run on the CPU."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from corpus import TESTS

from fastdecode import BackendUnavailable
from fastdecode.gpu import _backends

_ROOT = TESTS.parent
_SAMPLES = sorted((_ROOT / "fastdecode" / "samples").glob("*.jpg"))
_TEXT = (_ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")
_BLOCKS = re.findall(r"^```python\n(.*?)^```$", _TEXT, re.DOTALL | re.MULTILINE)
_BATCH = "    256,\n"


@pytest.mark.parametrize("block", _BLOCKS, ids=range(len(_BLOCKS)))
def test_every_example_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example of the page runs, with batches of the package's few photos."""
    if "nvimgcodec" in block:
        try:
            _backends.load("nvimgcodec", torch.device("cpu"))
        except BackendUnavailable as error:
            pytest.skip(str(error))
    if not torch.cuda.is_available():
        block = block.replace('device="cuda"', 'device="cpu"').replace('"gpu"', '"cpu"')
    (tmp_path / "train" / "place").mkdir(parents=True)
    for photo in _SAMPLES:
        shutil.copy(photo, tmp_path / "train" / "place")
    monkeypatch.chdir(tmp_path)
    seen: list[Any] = []
    names: dict[str, Any] = {
        "paths": _SAMPLES,
        "train": lambda images, labels: seen.append((images.shape, labels.shape)),
        "__name__": "docs",
    }

    exec(compile(block.replace(_BATCH, "    2,\n"), "gpu.md", "exec"), names)

    if _BATCH in block:
        assert seen == [((2, 3, 224, 224), (2,))] * (len(_SAMPLES) // 2)
    else:
        assert names["batch"].shape == (len(_SAMPLES), 3, 224, 224)
        assert names["batch"].dtype == torch.uint8
