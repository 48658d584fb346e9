"""How much memory a process has needed at its highest."""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["peak_mb"]

_STATUS = Path("/proc/self/status")


def peak_mb() -> float:
    """Return the resident memory of this process at its highest, in 10^6 bytes; 0 if unknown.

    Notes
    -----
    Linux is not asked by ``getrusage``: its value is never below what the parent had when it
    started this process. Windows has neither way.
    """
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return _from_usage()
    kib = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), "0")
    return int(kib) * 1024 / 1e6


def _from_usage() -> float:
    try:
        import resource
    except ImportError:
        return 0.0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
