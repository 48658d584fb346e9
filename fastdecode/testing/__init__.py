"""The contract of backends, as test classes to subclass.

A package with its own backend writes::

    from fastdecode.testing import BackendContract

    class TestMine(BackendContract):
        name = "mine"

and pytest runs the tests. A backend that decodes batches on a device, registered with ``batch=``,
has another contract, which is tested for each of its devices::

    from fastdecode.testing import BatchBackendContract

    class TestMineOnTheCpu(BatchBackendContract):
        name = "mine"

    class TestMineOnCuda(BatchBackendContract):
        name = "mine"
        device = "cuda"

The second contract is skipped if PyTorch or the device is missing. Both need
``pip install 'fastdecode[test]'``. The images are made in memory. Tests of files that the backend
does not declare are skipped, with the reason.
"""

from __future__ import annotations

from fastdecode.testing._backend import BackendContract, drawing, encode, photo
from fastdecode.testing._batch_backend import BatchBackendContract

__all__ = ["BackendContract", "BatchBackendContract", "drawing", "encode", "photo"]
