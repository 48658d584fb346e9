"""The contract that every backend keeps, as tests to subclass.

A package that brings a backend of its own writes::

    from fastdecode.testing import BackendContract

    class TestMine(BackendContract):
        name = "mine"

and pytest does the rest. One that decodes batches on a device, registered with ``batch=``, has a
contract of its own, for each of its devices::

    from fastdecode.testing import BatchBackendContract

    class TestMineOnTheCpu(BatchBackendContract):
        name = "mine"

    class TestMineOnCuda(BatchBackendContract):
        name = "mine"
        device = "cuda"

That one needs PyTorch, and skips without, and without the device. Both need
``pip install 'fastdecode[test]'``. The images are made in memory; a kind of file that the backend
does not declare is skipped, with the reason.
"""

from __future__ import annotations

from fastdecode.testing._backend import BackendContract
from fastdecode.testing._batch import BatchBackendContract
from fastdecode.testing._images import drawing, encode, photo

__all__ = ["BackendContract", "BatchBackendContract", "drawing", "encode", "photo"]
