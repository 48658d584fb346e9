"""A Ray cluster on this machine, and stores with missing or blocked items."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.cluster_utils import Cluster

import fastdecode
from fastdecode.stores import Store
from fastdecode.testing import drawing, encode

_MEMORY = 100 << 20
_ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",  # its token would be a file in the home folder
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FASTDECODE_DISABLE": "",
}
_SOON = {"health_check_period_ms": 500, "health_check_initial_delay_ms": 1000}
"""A node that was killed is missed after five checks, of which there is one in 3 s by default."""
PHOTO = encode(drawing(120, 90))
CUT = PHOTO[: len(PHOTO) // 2]


@contextmanager
def two_nodes() -> Iterator[Any]:
    """Start a head without cores and two nodes with one core; stop all processes at the end."""
    root = str(Path(fastdecode.__file__).parents[1])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
        head = {
            "num_cpus": 0,
            "object_store_memory": _MEMORY,
            "include_dashboard": False,
            "_system_config": _SOON,
        }
        cluster = Cluster(initialize_head=True, head_node_args=head)
        try:
            for _ in range(2):
                cluster.add_node(num_cpus=1, object_store_memory=_MEMORY)
            ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
            # Workers cannot import this file, so pickle its classes by value.
            ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
            ray.data.DataContext.get_current().enable_progress_bars = False
            yield cluster
        finally:
            ray.shutdown()
            cluster.shutdown()


class Mixed(Store):
    """Bytes in memory; the item in the middle cannot be read."""

    kind = "mixed"

    def __len__(self) -> int:
        return 7

    def key(self, index: int) -> str:
        return f"item {index}"

    def target(self, index: int) -> Any:
        return str(index)

    def _open(self) -> Any:
        return {1: CUT, 5: b"no image"}

    def _read(self, opened: Any, index: int) -> Any:
        if index == 3:
            raise self._damage_error(index, "it is gone")
        return memoryview(opened.get(index, PHOTO))


class Gated(Mixed):
    """A store whose later items wait for a file, so that a node is lost while its task runs.

    Every twentieth item is damaged.
    """

    def __len__(self) -> int:
        return 120

    def _read(self, opened: Any, index: int) -> Any:
        if index % 20 == 10 and index > 20:
            node = ray.get_runtime_context().get_node_id()
            Path(f"{self.location} {node} {os.getpid()}").touch()
            while not Path(self.location).exists():
                time.sleep(0.01)
        return CUT if index % 20 == 5 else PHOTO
