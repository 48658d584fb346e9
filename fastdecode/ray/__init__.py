"""Ray Data: read and decode pictures on a cluster, into an ordinary `ray.data.Dataset`.

`pip install "fastdecode[ray]"`. Nothing of PyTorch is needed where pictures are decoded.
"""

from __future__ import annotations

from fastdecode.ray.decoding import decode_images
from fastdecode.ray.dropped import Dropped
from fastdecode.ray.reading import read_images

__all__ = ["Dropped", "decode_images", "read_images"]
