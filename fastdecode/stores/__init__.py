"""Where the encoded pictures are: folders, lists, tar shards, LMDB, HDF5, MXNet RecordIO.

All are read by one protocol, `Store`; `fastdecode.torch.StoreDataset` makes a dataset of one.
"""

from __future__ import annotations

from fastdecode.errors import StoreError
from fastdecode.stores.base import Store, Writer
from fastdecode.stores.opening import create_store, open_store

__all__ = ["Store", "StoreError", "Writer", "create_store", "open_store"]
