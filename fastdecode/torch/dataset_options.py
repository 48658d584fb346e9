"""What every dataset of the package takes by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from fastdecode.torch.failures import OnError
    from fastdecode.torch.transforms.base import Quality
    from fastdecode.types import Mode, Output, Reduce

__all__ = ["DatasetOptions"]


class DatasetOptions(TypedDict, total=False):
    """What every dataset of the package takes by name; `DecodeDataset` says what each is."""

    reduce: Reduce
    min_size: int | tuple[int, int] | None
    mode: Mode
    orient: bool
    backend: str | None
    output: Output | None
    on_error: OnError
    fuse: bool
    quality: Quality
    headroom: float
