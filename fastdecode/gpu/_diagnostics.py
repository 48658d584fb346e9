"""Reports which devices are here, what decodes on them, and what is missing, for people to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fastdecode import registry
from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import _backends
from fastdecode.gpu._devices import check_device, identify
from fastdecode.gpu._policy import load_saved

_cuda: Any = torch.cuda  # only partly annotated


@dataclass(frozen=True)
class Inventory:
    """The devices, and the batch backends that decode on them.

    Attributes
    ----------
    devices : dict of str to str
        A description of each device or, if it cannot be used, the reason.
    usable : dict of str to list of str
        The devices on which each batch backend works.
    reasons : dict of str to str
        For each batch backend that works on no device here: the reason, and how to install it.
    measured : dict of str to str
        The result of `calibrate` for each device: names, fastest first, or why it is ignored.
    """

    devices: dict[str, str]
    usable: dict[str, list[str]]
    reasons: dict[str, str]
    measured: dict[str, str]


def take_inventory() -> Inventory:
    """Return the inventory. This imports the libraries of all installed batch backends."""
    names = [name for name in registry.names() if registry.entry(name).batch]
    devices, problem = _devices()
    described = {"cuda": problem} if problem else {}
    for device in devices:
        here = identify(device)
        driver = f", driver {here.driver}" if here.driver else ""
        runtime = f", CUDA {here.runtime}" if here.runtime else ""
        described[str(device)] = f"{here.name}{driver}{runtime}"
    usable: dict[str, list[str]] = {}
    reasons = {}
    for name in names:
        usable[name], why = _works_on(name, devices)
        if not usable[name]:
            reasons[name] = why
    return Inventory(described, usable, reasons, _measured_orders(devices))


def _devices() -> tuple[list[torch.device], str]:
    """Return the devices that are here, and why there is no CUDA device; empty if there is one."""
    found = [torch.device("cpu")]
    try:
        check_device("cuda")
    except RuntimeError as error:
        return found, str(error).partition(" cannot be used: ")[2] or str(error)
    return [*found, *(torch.device("cuda", index) for index in range(_cuda.device_count()))], ""


def _works_on(name: str, devices: list[torch.device]) -> tuple[list[str], str]:
    found, why = [], "no such device is here"
    here = [device for device in devices if name in _backends.names(device.type)]
    # Without such a device, try one anyway: the library may be missing too, and the error says so.
    elsewhere = [torch.device(kind, 0) for kind in registry.entry(name).devices.split()]
    for device in here or elsewhere:
        try:
            _backends.load(name, device)
        except BackendUnavailable as error:
            why = str(error).partition(f" does not decode on {str(device)!r}: ")[2] or str(error)
        else:
            found.append(str(device))
    return found, why


def _measured_orders(devices: list[torch.device]) -> dict[str, str]:
    found = {}
    for device in devices:
        saved, problem = load_saved(device)
        if saved:
            order = ", ".join(saved.order()) or "nothing, the CPU decoded all of it"
            found[str(device)] = f"{order} ({saved.measured[:10]})"
        elif problem:
            found[str(device)] = f"ignored: {problem}"
    return found
