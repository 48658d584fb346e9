"""A dataset of files of which some are damaged, for tests that have made sure of PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fastdecode
from fastdecode.torch.dataset import DecodeDataset
from fastdecode.torch.transforms import ResizeCenterCropNormalize

PHOTO = Path(fastdecode.__file__).parent / "samples" / "canyon-wren.jpg"
FILES = Path(__file__).parents[1] / "data" / "malformed"
CUT = FILES / "gen_jpg_cut667.jpg"
GONE = FILES / "there-is-no-such.jpg"
SMALL = ResizeCenterCropNormalize(32, 24)


class Listed(DecodeDataset):
    """Files or bytes, with their numbers as targets."""

    def __init__(self, *sources: Any, transform: Any = SMALL, **options: Any) -> None:
        super().__init__(transform, **options)
        self.sources = sources
        self.reads: list[int] = []

    def __len__(self) -> int:
        return len(self.sources)

    def read(self, index: int) -> tuple[Any, Any]:
        self.reads.append(index)
        return self.sources[index], index
