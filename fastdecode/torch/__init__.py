"""For PyTorch: datasets to swap in, transforms that decode only what is seen, loaders.

>>> from fastdecode.torch import ImageFolder, Loader  # doctest: +SKIP
>>> dataset = ImageFolder("train", transform=compose)  # torchvision's own  # doctest: +SKIP
>>> for images, labels in Loader(dataset, 64, shuffle=True):  # doctest: +SKIP
...     ...
"""

from fastdecode.errors import BackendUnavailable
from fastdecode.geometry import Geometry

try:
    import torch  # noqa: F401 - nothing here goes without
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise BackendUnavailable(
        "fastdecode.torch needs PyTorch, which is not installed\n"
        "Install it with: pip install 'fastdecode[torch]'"
    ) from error

from fastdecode.torch._errors import SKIPPED, Failure
from fastdecode.torch._fuse import Fused, fuse
from fastdecode.torch._threads import limit_threads
from fastdecode.torch.dataset import DecodeDataset
from fastdecode.torch.folder import ImageFolder
from fastdecode.torch.image_list import ImageList
from fastdecode.torch.loader import Loader
from fastdecode.torch.mixin import DecodeMixin
from fastdecode.torch.prefetcher import DevicePrefetcher
from fastdecode.torch.shards.stream import ShardStream
from fastdecode.torch.store_dataset import StoreDataset
from fastdecode.torch.transforms import EncodedTransform, Normalize

__all__ = [
    "SKIPPED",
    "DecodeDataset",
    "DecodeMixin",
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
    "fuse",
    "limit_threads",
]
