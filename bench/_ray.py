"""Ray, with its environment set before it is imported: its workers inherit that."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.update(
    RAY_AUTH_MODE="disabled",
    RAY_ENABLE_UV_RUN_RUNTIME_ENV="0",
    RAY_USAGE_STATS_ENABLED="0",
    PYTHONPATH=os.pathsep.join(
        [str(Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH", "")]
    ),
)

import ray

ray.data.DataContext.get_current().enable_progress_bars = False

__all__ = ["ray"]
