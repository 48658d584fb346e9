"""Images in MXNet RecordIO: a ``.rec`` and its ``.idx``; see `format` for the bytes."""

from __future__ import annotations

from fastdecode.stores.recordio.store import RecordStore
from fastdecode.stores.recordio.writer import RecordWriter

__all__ = ["RecordStore", "RecordWriter"]
