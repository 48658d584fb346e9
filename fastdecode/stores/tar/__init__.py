"""Tar shards in WebDataset's layout: random access, streaming, indexing and writing."""

from __future__ import annotations

from fastdecode.stores.tar.store import index_tar, stream_tar

__all__ = ["index_tar", "stream_tar"]
