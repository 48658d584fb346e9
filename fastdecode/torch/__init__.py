"""For PyTorch: datasets to swap in, transforms that decode only what is seen, loaders.

>>> from fastdecode.torch import ImageFolder, Loader  # doctest: +SKIP
>>> dataset = ImageFolder("train", transform=compose)  # torchvision's own  # doctest: +SKIP
>>> for images, labels in Loader(dataset, 64, shuffle=True):  # doctest: +SKIP
...     ...
"""

from fastdecode.geometry import Geometry
from fastdecode.torch.dataset import DecodeDataset
from fastdecode.torch.failures import SKIPPED, Failure
from fastdecode.torch.folder import ImageFolder
from fastdecode.torch.fusing import Fused, fuse
from fastdecode.torch.image_list import ImageList
from fastdecode.torch.loader import Loader
from fastdecode.torch.mixin import DecodeMixin
from fastdecode.torch.prefetcher import DevicePrefetcher
from fastdecode.torch.shard_stream import ShardStream
from fastdecode.torch.store_dataset import StoreDataset
from fastdecode.torch.threads import limit_threads
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
