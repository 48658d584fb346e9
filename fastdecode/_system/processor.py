"""The processor: its model, and how many cores this process may use."""

from __future__ import annotations

import math
import os
import platform
import subprocess
from pathlib import Path

_CGROUP_V2 = "/sys/fs/cgroup/cpu.max"
_CGROUP_V1 = ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def usable_cores() -> int:
    """Return the number of cores that this process may use, at least 1.

    `os.cpu_count` counts the cores of the machine. The affinity mask (taskset, Slurm) and the
    cgroup quota (Docker, Kubernetes: ``cpu.max``) may allow fewer.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no affinity mask to ask for
        cores = os.cpu_count() or 1
    quota = _quota()
    return max(1, min(cores, math.ceil(quota)) if quota else cores)


def _quota() -> float | None:
    """Return the container's quota in cores; None without a quota."""
    for read in (_quota_v2, _quota_v1):
        try:
            return read()
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return None


def _quota_v2() -> float | None:
    limit, period = Path(_CGROUP_V2).read_text().split()
    return None if limit == "max" else int(limit) / int(period)


def _quota_v1() -> float | None:
    limit, period = (int(Path(name).read_text()) for name in _CGROUP_V1)
    return None if limit <= 0 else limit / period


def cpu_model() -> str:
    """Return the processor's model; `platform.processor` knows it on few systems only."""
    if platform.system() == "Darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        return answer.stdout.strip() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(models), "") or platform.processor() or platform.machine()
