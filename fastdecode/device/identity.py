"""Which device it is: what a measurement of it depends on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import torch

from fastdecode._system import cpu_model

__all__ = ["Identity", "driver_version", "identify"]

_DRIVER = Path("/proc/driver/nvidia/version")
_VERSION = re.compile(r"\b\d+\.\d+(?:\.\d+)?\b")
_cuda: Any = torch.cuda  # which is annotated only in part


class Identity(NamedTuple):
    """A model of device, and the software that drives it.

    Attributes
    ----------
    kind : str
        As PyTorch names it: ``"cuda"``, ``"cpu"``.
    name : str
        Of the model.
    driver : str
        Version of the kernel's driver; empty where it is not known.
    runtime : str
        Version of CUDA (or HIP) that PyTorch is built for; empty without.
    """

    kind: str
    name: str
    driver: str = ""
    runtime: str = ""


def identify(device: torch.device) -> Identity:
    """Say which device it is.

    Parameters
    ----------
    device : torch.device
        From `device_of`.
    """
    if device.type != "cuda":
        return Identity(device.type, cpu_model())
    runtime = torch.version.cuda or torch.version.hip or ""
    return Identity("cuda", str(_cuda.get_device_name(device)), driver_version(), runtime)


def driver_version(source: Path = _DRIVER) -> str:
    """Return the version of NVIDIA's driver; empty where the system does not say.

    Notes
    -----
    The driver's module writes it to a file of its own on Linux. ``nvidia-smi`` knows it elsewhere,
    but takes a second to say so.
    """
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = _VERSION.search(text)
    return found[0] if found else ""
