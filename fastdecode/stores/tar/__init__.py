"""Tar shards as WebDataset names them: read in any order or as a stream, indexed, written."""

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
