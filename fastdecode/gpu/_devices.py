"""Which device is meant, whether it is there, and what a measurement of it depends on."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import torch

from fastdecode._system import cpu_model
from fastdecode.errors import DeviceUnavailable
from fastdecode.ranking import Identity

_DRIVER = Path("/proc/driver/nvidia/version")
_VERSION = re.compile(r"\b\d+\.\d+(?:\.\d+)?\b")
_cuda: Any = torch.cuda  # which is annotated only in part


def parse_device(device: str | int | torch.device) -> torch.device:
    """Return the device of a name, or the CUDA device of a number, whether it is there or not.

    What is no device's name is a TypeError or ValueError.
    """
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device)):
        raise TypeError(f"device must be a name, a number or a torch.device, not {device!r}")
    try:
        return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"there is no device {device!r}: {reason}") from error


def device_of(device: str | int | torch.device) -> torch.device:
    """Return the device, after a look whether it can be used: with its index for CUDA.

    An int is the CUDA device of that number, and ``"cuda"`` the current one. The message of a
    DeviceUnavailable says what is missing; what is no device's name is a TypeError or ValueError.
    """
    found = parse_device(device)
    if found.type == "meta":
        raise ValueError("device 'meta' has no memory for images")
    return usable(found)


def usable(device: torch.device) -> torch.device:
    """Return the device as its tensors call it, if it can be used; "meta" can, without memory."""
    if device.type == "cuda":
        missing = _missing(device)
        if missing:
            raise DeviceUnavailable(f"device {str(device)!r} cannot be used: {missing}")
        index = torch.cuda.current_device() if device.index is None else device.index
        return torch.device("cuda", index)
    try:
        there = torch.empty(0, dtype=torch.uint8, device=device)
        if device.type != "meta":
            there.cpu()
    except (AssertionError, ImportError, NotImplementedError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise DeviceUnavailable(f"device {str(device)!r} cannot be used: {reason}") from error
    return there.device  # without an index for the CPU


def _missing(device: torch.device) -> str:
    """Say what a CUDA device lacks; nothing if it is there."""
    if torch.version.cuda is None and torch.version.hip is None:
        return (
            f"PyTorch {torch.__version__} is built without CUDA; "
            "https://pytorch.org/get-started says how to install one that has it"
        )
    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA device, or no driver that it can use (see nvidia-smi)"
    count = torch.cuda.device_count()
    if device.index is not None and device.index >= count:
        return f"there are {count} CUDA devices, the last is cuda:{count - 1}"
    return ""


def identify(device: torch.device) -> Identity:
    """Say which device it is, of one from `device_of`."""
    if device.type != "cuda":
        return Identity(device.type, cpu_model())
    runtime = torch.version.cuda or torch.version.hip or ""
    return Identity("cuda", str(_cuda.get_device_name(device)), driver_version(), runtime)


def driver_version(source: Path = _DRIVER) -> str:
    """Return the version of NVIDIA's driver; empty where the system does not say."""
    # The driver's module writes it to a file on Linux. `nvidia-smi` knows it elsewhere, but takes a
    # second to say so.
    try:
        text = source.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = _VERSION.search(text)
    return found[0] if found else ""
