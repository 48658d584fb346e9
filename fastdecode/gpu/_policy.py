"""Chooses what decodes for a device, a batch backend or the CPU, by the saved measurement."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from fastdecode import _selection, ranking, registry
from fastdecode._process import ForkLock, should_warn
from fastdecode._selection import disabled
from fastdecode._system import device_ranking_path, ranking_is_named
from fastdecode.errors import BackendUnavailable
from fastdecode.gpu import _backends
from fastdecode.gpu._devices import identify
from fastdecode.ranking import CPU, DeviceRanking

if TYPE_CHECKING:
    import torch

Decode: TypeAlias = Literal["auto", "cpu", "gpu"]
DECODE: tuple[Decode, ...] = ("auto", "cpu", "gpu")

# The order without a measurement. First comes the backend that uses the GPU's JPEG hardware and
# refuses single images, then those that use the same library without the hardware. The last one
# must try a whole batch again if one image is bad.
_DEFAULT = ("nvimgcodec", "torchcodec", "torchvision", "dali")

_known: dict[tuple[int, torch.device], tuple[str, ...]] = {}
_lock = ForkLock()


class DeviceChoice(NamedTuple):
    """The batch backend that decodes, or None if only the CPU does; and the reason in words.

    `cpu` is the backend of the CPU path; None for the fastest.
    """

    batch: str | None
    cpu: str | None
    why: str


def choose(
    device: torch.device, decode: Decode = "auto", backend: str | None = None
) -> DeviceChoice:
    """Choose what decodes for a device from `check_device`.

    ``"auto"`` chooses what `calibrate` measured to be fastest on that device. Without a measurement
    it chooses the first batch backend that works, or the CPU if none does.

    `backend` names a batch backend, or a backend for the CPU. By default it is the backend of `use`
    or ``FASTDECODE_BACKEND``, if one is set; ``"gpu"`` ignores it unless it is a batch backend.

    Raises `UnknownBackend` or `BackendUnavailable` if the named backend cannot be used, or if
    ``"gpu"`` finds no usable backend; the message says what to install. Raises `ValueError` if the
    arguments contradict each other.
    """
    if decode not in DECODE:
        raise ValueError(f"decode must be one of {', '.join(DECODE)}, not {decode!r}")
    if decode == "gpu" and device.type == "cpu":
        raise ValueError("decode='gpu' needs a GPU as device, not 'cpu'")
    if backend is not None:
        return _choose_named(device, decode, backend)
    preferred = _selection.preferred()
    if isinstance(preferred, str) and (
        decode != "gpu" or preferred in _backends.names(device.type)
    ):
        return _choose_named(device, decode, preferred)
    if decode == "cpu" or device.type == "cpu":
        return DeviceChoice(None, None, "the CPU decodes, as asked")
    return _choose_first(device, decode)


def _choose_named(device: torch.device, decode: Decode, name: str) -> DeviceChoice:
    registry.entry(name)  # UnknownBackend
    able = _backends.names(device.type)
    if decode != "cpu" and name in able:
        _backends.load(name, device)
        return DeviceChoice(name, None, f"{name} decodes, as asked")
    if decode == "gpu":
        raise ValueError(
            f"the backend {name!r} does not decode on {str(device)!r}; these do: {', '.join(able)}"
        )
    _selection.load_named(name)
    return DeviceChoice(None, name, f"{name} decodes on the CPU, as asked")


def _choose_first(device: torch.device, decode: Decode) -> DeviceChoice:
    """Choose the first that works: in the measured order, then in the default order."""
    known = measured_order(device)
    missing: list[str] = []
    left_out = disabled()
    for name in _order(known, device):
        if name in left_out:
            missing.append(f"the backend {name!r} is left out by FASTDECODE_DISABLE")
            continue
        if name == CPU:
            if decode == "auto":
                return DeviceChoice(None, None, "the CPU decodes: it was measured to be fastest")
            continue
        try:
            _backends.load(name, device)
        except BackendUnavailable as error:
            missing.append(str(error))
            continue
        how = "was measured to be fastest" if name in known else "is the first that works"
        return DeviceChoice(name, None, f"{name} decodes: it {how} on {device}")
    if decode == "auto":
        return DeviceChoice(None, None, f"the CPU decodes: no backend decodes on {device}")
    raise BackendUnavailable(
        f"no backend decodes on {str(device)!r}, and decode='gpu' needs one; decode='cpu' does not:"
        "\n" + "\n".join(missing)
    )


def _order(known: Iterable[str], device: torch.device) -> Iterator[str]:
    able = _backends.names(device.type)
    for name in dict.fromkeys((*known, *_DEFAULT, *able)):
        if name == CPU or name in able:
            yield name


def measured_order(device: torch.device) -> tuple[str, ...]:
    """Return the names that were measured for a device, fastest first; `CPU` is one of them.

    The result is empty if nothing was measured, or if the saved measurement is damaged or out of
    date, for which it warns once. Each process reads the file once, and again after a new save.
    """
    key = ranking.saves, device
    found = _known.get(key)
    if found is not None:
        return found
    saved, problem = load_saved(device)
    order = saved.order() if saved else ()
    with _lock:
        first, _known[key] = key not in _known, order
    if first and problem and should_warn():  # outside the lock: a warning may run anything
        warnings.warn(
            f"the measurement for {device} is ignored: {problem}. To measure again: "
            f"fastdecode calibrate --device {device}",
            stacklevel=2,
        )
    return order


def load_saved(device: torch.device) -> tuple[DeviceRanking | None, str]:
    """Return the saved ranking of a device; or None, and what is wrong with it if there is one."""
    here = identify(device)
    return ranking.look_up(
        lambda: DeviceRanking.load(device_ranking_path(here.name), own=not ranking_is_named()),
        lambda found: found.stale(here),
    )
