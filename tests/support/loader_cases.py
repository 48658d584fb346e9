"""Files and comparisons for the tests of `Loader(decode=…)`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from loading import copies, same

from fastdecode.torch import DecodeDataset
from fastdecode.torch.loader import Loader
from fastdecode.torch.transforms import (
    IMAGENET_STD,
    RandomResizedCropFlipNormalize,
)

LEVEL = 1.01 / (255 * min(IMAGENET_STD))
"""How far floats may be apart where bytes are 1 apart: two ways of rounding a resize."""

EXACT = RandomResizedCropFlipNormalize(24, quality="exact")


class Files(DecodeDataset):
    """Encoded images of any kind, with their index as the target."""

    def __init__(self, files: Sequence[bytes], transform: Any = EXACT, **options: Any) -> None:
        super().__init__(transform, **options)
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def read(self, index: int) -> tuple[Any, Any]:
        return self.files[index], index


def epochs(dataset: Any, batch_size: int = 4, *, count: int = 1, **options: Any) -> list[Any]:
    """Return the batches of some epochs."""
    with Loader(dataset, batch_size, **{"threads": 2, "seed": 3, **options}) as loader:
        return [batch for _ in range(count) for batch in copies(loader)]


def near(first: list[Any], second: list[Any]) -> bool:
    """Whether images are at most a level apart, and all else is the same."""
    return len(first) == len(second) and all(
        one[0].shape == two[0].shape
        and one[0].dtype == two[0].dtype
        and float((one[0] - two[0]).abs().max()) <= LEVEL
        and same(one[1:], two[1:])
        for one, two in zip(first, second, strict=True)
    )


def psnr(first: Any, second: Any) -> float:
    """Return how near images of bytes are, in dB."""
    error = (first.double() - second.double()).square().mean().item()
    return float("inf") if error == 0 else 10 * math.log10(255**2 / error)
