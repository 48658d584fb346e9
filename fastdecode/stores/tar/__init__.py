"""Tar shards in WebDataset's layout: random access, streaming, indexing and writing."""

from __future__ import annotations

from fastdecode.stores.tar.format import END
from fastdecode.stores.tar.store import Sample, TarStore, index_tar, open_tar, stream_tar
from fastdecode.stores.tar.writer import TarWriter, append_members

__all__ = [
    "END",
    "Sample",
    "TarStore",
    "TarWriter",
    "append_members",
    "index_tar",
    "open_tar",
    "stream_tar",
]
