"""Where worker processes cannot share memory, a test that begins to need some is skipped."""

from __future__ import annotations

from multiprocessing import synchronize
from typing import Any

import pytest
from processes import HAS_SHARED_MEMORY, skip_without_shared_memory


@pytest.fixture(scope="session", autouse=True)
def _shared_memory() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        if not HAS_SHARED_MEMORY:
            patch.setattr(synchronize.SemLock, "__init__", skip_without_shared_memory)
            patch.setattr("torch.Tensor.share_memory_", skip_without_shared_memory)
        yield
