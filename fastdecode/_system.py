"""What this process runs on: its cores, and the versions of what decodes.

Saved rankings depend on these; where they are kept is said here, too.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import os
import platform
import subprocess
import sys
from pathlib import Path

import fastdecode
from fastdecode.registry import BUILTIN

_CGROUP_V2 = "/sys/fs/cgroup/cpu.max"
_CGROUP_V1 = ("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def usable_cores() -> int:
    """Count the processors that this process may use: at least 1.

    `os.cpu_count` counts the machine's. The affinity mask (taskset, Slurm) and the cgroup's quota
    (Docker, Kubernetes: ``cpu.max``) may leave fewer, and more threads than that only wait.
    """
    try:
        cores = len(os.sched_getaffinity(0))
    except AttributeError:  # macOS and Windows have no affinity mask to ask for
        cores = os.cpu_count() or 1
    quota = _quota()
    return max(1, min(cores, math.ceil(quota)) if quota else cores)


def _quota() -> float | None:
    """Processors that the container's quota amounts to; None without a quota."""
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
    """Name the processor's model, which `platform.processor` does on few systems."""
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


_OTHER_OPENCV = ("opencv-python", "opencv-contrib-python", "opencv-contrib-python-headless")
_FOR_DEVICES = (
    "torch",
    *(f"nvidia-nvimgcodec-cu{cuda}" for cuda in (11, 12, 13)),
    *(f"nvidia-dali-cuda{cuda}" for cuda in (110, 120, 130)),
    *(f"nvidia-nvjpeg{suffix}" for suffix in ("", "-cu11", "-cu12", "-cu13")),
)
"""What decodes on devices, by all the names it has: one for each major version of CUDA."""


def libraries() -> dict[str, str]:
    """Return the version of every installed library that decodes, by the name pip knows it by.

    Nothing is imported. The package itself is among them: its part of the work counts too.
    """
    found = {
        "fastdecode": fastdecode.__version__,
        **_versions(*(entry.distribution for entry in BUILTIN.values()), *_OTHER_OPENCV),
    }
    if any((Path(fastdecode.__file__).parent / "native").glob("_core.*")):
        # It comes and goes without another version of anything.
        found["fastdecode's native core"] = fastdecode.__version__
    return found


def device_libraries() -> dict[str, str]:
    """Return `libraries`, and with them what decoding onto a device depends on."""
    return {**libraries(), **_versions(*_FOR_DEVICES)}


def _versions(*names: str) -> dict[str, str]:
    found = {}
    for name in names:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:  # not installed: not among them
            continue
    return found


def ranking_is_named() -> bool:
    """Whether ``FASTDECODE_RANKING`` says where rankings are: then whoever set it trusts them."""
    return bool(os.environ.get("FASTDECODE_RANKING"))


def ranking_path() -> Path:
    """Return where the ranking of this machine is kept.

    ``FASTDECODE_RANKING`` names the file; else it is in the user's cache directory, one for each
    model of processor, because machines of a cluster often share a home, and for each installation
    of Python, because their libraries differ.
    """
    named = os.environ.get("FASTDECODE_RANKING")
    if named:
        return Path(named)
    import platformdirs  # only here: it is needed once a process

    key = hashlib.sha256(f"{cpu_model()}\n{sys.prefix}".encode()).hexdigest()[:12]
    return platformdirs.user_cache_path("fastdecode", appauthor=False) / f"ranking-{key}.json"


def device_ranking_path(device: str) -> Path:
    """Return where it is kept what was measured for a device.

    Beside `ranking_path`, one for each model of device and of processor, each number of cores that
    may be used, which decides what the CPU is worth, and each installation of Python.
    """
    facts = f"{device}\n{cpu_model()}\n{usable_cores()}\n{sys.prefix}"
    key = hashlib.sha256(facts.encode()).hexdigest()[:12]
    beside = ranking_path()
    return beside.with_name(f"{beside.stem}-device-{key}.json")
