"""A dataset with some damaged files; it needs PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loading import Sources

import fastdecode
from fastdecode.torch.transforms import ResizeCenterCropNormalize

PHOTO = Path(fastdecode.__file__).parent / "samples" / "canyon-wren.jpg"
FILES = Path(__file__).parents[1] / "data" / "malformed"
CUT = FILES / "gen_jpg_cut667.jpg"
GONE = FILES / "there-is-no-such.jpg"
SMALL = ResizeCenterCropNormalize(32, 24)


class Listed(Sources):
    def __init__(self, *sources: Any, transform: Any = SMALL, **options: Any) -> None:
        super().__init__(*sources, transform=transform, **options)
