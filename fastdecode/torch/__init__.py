"""PyTorch datasets, transforms that decode only the part that is used, and loaders.

::

    from fastdecode.torch import ImageFolder, Loader

    dataset = ImageFolder("train", transform=compose)  # torchvision's own
    for images, labels in Loader(dataset, 64, shuffle=True):
        ...
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from fastdecode.errors import BackendUnavailable

try:
    import torch  # noqa: F401 - everything here needs it
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise BackendUnavailable(
        "fastdecode.torch needs PyTorch, which is not installed\n"
        "Install it with: pip install 'fastdecode[torch]'"
    ) from error

if TYPE_CHECKING:
    from fastdecode.geometry import Geometry
    from fastdecode.torch._errors import Failure
    from fastdecode.torch._fuse import Fused, fuse
    from fastdecode.torch._loader.threads import limit_threads
    from fastdecode.torch._options import DecodeOptions
    from fastdecode.torch._views import Views
    from fastdecode.torch.dataset import DecodeDataset
    from fastdecode.torch.folder import ImageFolder
    from fastdecode.torch.image_list import ImageList
    from fastdecode.torch.loader import Loader
    from fastdecode.torch.mixin import DecodeMixin
    from fastdecode.torch.prefetcher import DevicePrefetcher
    from fastdecode.torch.shards.stream import ShardStream
    from fastdecode.torch.store_dataset import StoreDataset
    from fastdecode.torch.transforms import EncodedTransform, Normalize

# Public name -> module, imported on first use: reading a folder does not import tar shards.
_HOMES = {
    "DecodeDataset": "torch.dataset",
    "DecodeMixin": "torch.mixin",
    "DecodeOptions": "torch._options",
    "DevicePrefetcher": "torch.prefetcher",
    "EncodedTransform": "torch.transforms",
    "Failure": "torch._errors",
    "Fused": "torch._fuse",
    "Geometry": "geometry",
    "ImageFolder": "torch.folder",
    "ImageList": "torch.image_list",
    "Loader": "torch.loader",
    "Normalize": "torch.transforms",
    "ShardStream": "torch.shards.stream",
    "StoreDataset": "torch.store_dataset",
    "Views": "torch._views",
    "fuse": "torch._fuse",
    "limit_threads": "torch._loader.threads",
}

__all__ = [
    "DecodeDataset",
    "DecodeMixin",
    "DecodeOptions",
    "DevicePrefetcher",
    "EncodedTransform",
    "Failure",
    "Fused",
    "Geometry",
    "ImageFolder",
    "ImageList",
    "Loader",
    "Normalize",
    "ShardStream",
    "StoreDataset",
    "Views",
    "fuse",
    "limit_threads",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(importlib.import_module(f"fastdecode.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    if name.startswith("_") or find_spec(f"{__name__}.{name}") is None:
        raise AttributeError(f"module 'fastdecode.torch' has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")  # the import sets the attribute


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "transforms"})
