"""What decodes onto devices here, and what is missing for it: for people to read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fastdecode import registry
from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import _backends
from fastdecode.gpu._devices import device_of, identify
from fastdecode.gpu._policy import look_up

_cuda: Any = torch.cuda  # which is annotated only in part


@dataclass(frozen=True)
class Inventory:
    """Devices, and the batch backends that decode there.

    Attributes
    ----------
    devices : dict of str to str
        What each is; of one that cannot be used, why.
    usable : dict of str to list of str
        Devices on which each batch backend works.
    reasons : dict of str to str
        Why a batch backend works on none of its devices that are here, and how to install it.
    measured : dict of str to str
        What `calibrate` found for each device: names, the fastest first, or why it is ignored.
    """

    devices: dict[str, str]
    usable: dict[str, list[str]]
    reasons: dict[str, str]
    measured: dict[str, str]


def take_inventory() -> Inventory:
    """Look what is here. This imports the libraries of all batch backends that are installed."""
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
    return Inventory(described, usable, reasons, _measured(devices))


def _devices() -> tuple[list[torch.device], str]:
    """Return the devices that are here, and why there is none with CUDA."""
    found = [torch.device("cpu")]
    try:
        device_of("cuda")
    except RuntimeError as error:
        return found, str(error).partition(" cannot be used: ")[2] or str(error)
    return [*found, *(torch.device("cuda", index) for index in range(_cuda.device_count()))], ""


def _works_on(name: str, devices: list[torch.device]) -> tuple[list[str], str]:
    found, why = [], "no such device is here"
    here = [device for device in devices if name in _backends.names(device.type)]
    # With a device that is not here: the first that is missing may be the library.
    elsewhere = [torch.device(kind, 0) for kind in registry.entry(name).devices.split()]
    for device in here or elsewhere:
        try:
            _backends.load(name, device)
        except BackendUnavailable as error:
            why = str(error).partition(f" does not decode on {str(device)!r}: ")[2] or str(error)
        else:
            found.append(str(device))
    return found, why


def _measured(devices: list[torch.device]) -> dict[str, str]:
    found = {}
    for device in devices:
        saved, problem = look_up(device)
        if saved:
            order = ", ".join(saved.order()) or "nothing, the CPU decoded all of it"
            found[str(device)] = f"{order} ({saved.measured[:10]})"
        elif problem:
            found[str(device)] = f"ignored: {problem}"
    return found
