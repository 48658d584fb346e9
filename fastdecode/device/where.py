"""Which device is meant, and whether it is there."""

from __future__ import annotations

import torch

from fastdecode.errors import DeviceUnavailable

__all__ = ["device_of", "named"]


def named(device: str | int | torch.device) -> torch.device:
    """Return the device of a name, or the CUDA device of a number, whether it is there or not.

    Raises
    ------
    TypeError, ValueError
        If it is no device's name.
    """
    if isinstance(device, bool) or not isinstance(device, (str, int, torch.device)):
        raise TypeError(f"device must be a name, a number or a torch.device, not {device!r}")
    try:
        return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
    except RuntimeError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"there is no device {device!r}: {reason}") from error


def device_of(device: str | int | torch.device) -> torch.device:
    """Return the device, after a look whether it can be used.

    Parameters
    ----------
    device : str, int or torch.device
        As PyTorch names it; an int is the CUDA device of that number, and ``"cuda"`` the current
        one.

    Returns
    -------
    torch.device
        With its index for CUDA.

    Raises
    ------
    DeviceUnavailable
        If it cannot be used; the message says what is missing.
    TypeError, ValueError
        If it is no device's name.
    """
    found = named(device)
    if found.type == "cuda":
        return _cuda(found)
    if found.type == "meta":
        raise ValueError("device 'meta' has no memory for pictures")
    try:
        there = torch.empty(0, dtype=torch.uint8, device=found)
        there.cpu()
    except (AssertionError, ImportError, NotImplementedError, RuntimeError) as error:
        reason = str(error).partition("\n")[0].partition(". ")[0]
        raise DeviceUnavailable(f"device {str(found)!r} cannot be used: {reason}") from error
    return there.device  # as tensors call it: without an index for the CPU


def _cuda(device: torch.device) -> torch.device:
    missing = _missing(device)
    if missing:
        raise DeviceUnavailable(f"device {str(device)!r} cannot be used: {missing}")
    index = torch.cuda.current_device() if device.index is None else device.index
    return torch.device("cuda", index)


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
