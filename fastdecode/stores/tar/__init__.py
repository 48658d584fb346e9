"""Tar shards in WebDataset's layout: random access, streaming, indexing and writing."""

from __future__ import annotations

from fastdecode.stores.tar.store import Sample, TarStore, index_tar, open_tar, stream_tar
from fastdecode.stores.tar.writer import ShardFull, TarWriter

__all__ = [
    "Sample",
    "ShardFull",
    "TarStore",
    "TarWriter",
    "index_tar",
    "open_tar",
    "stream_tar",
]
