"""What the figures were measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform

import fastdecode
from fastdecode.bench.result import Machine
from fastdecode.cores import cpu_model, usable_cores

__all__ = ["machine"]


def machine() -> Machine:
    """Describe this machine, and how busy it is before the run."""
    return Machine(
        cpu=cpu_model(),
        cores=usable_cores(),
        system=f"{platform.system()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        numpy=importlib.metadata.version("numpy"),
        fastdecode=fastdecode.__version__,
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    )
