"""Finds the device that an argument names, and checks it."""

from __future__ import annotations

import torch

from fastdecode.errors import DeviceUnavailable


def parse_device(device: str | int | torch.device) -> torch.device:
    """Return the device of a name, or the CUDA device of a number, even if it is not present.

    Raises `TypeError` or `ValueError` for anything else.
    """
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device)):
        raise TypeError(f"device must be a name, a number or a torch.device, not {device!r}")
    try:
        return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"there is no device {device!r}: {reason}") from error


def check_device(device: str | int | torch.device) -> torch.device:
    """Check that a device can be used, and return it; a CUDA device with its index.

    An int is the CUDA device of that number, and ``"cuda"`` is the current one. Raises
    `DeviceUnavailable`, whose message says what is missing, and `TypeError` or `ValueError` for
    anything that does not name a device.
    """
    found = parse_device(device)
    if found.type == "meta":
        raise ValueError("device 'meta' has no memory for images")
    return usable(found)


def usable(device: torch.device) -> torch.device:
    """Check that a device can be used, and return the device of its tensors; accept "meta"."""
    if device.type == "cuda":
        missing = _cuda_problem(device)
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


def _cuda_problem(device: torch.device) -> str:
    """Return why a CUDA device cannot be used; empty if it can."""
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
