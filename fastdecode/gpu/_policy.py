"""Who decodes for a device: a batch backend there, or the CPU, by what was measured and saved."""

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

# Where nothing was measured: first who reaches the GPU's JPEG hardware and refuses image by image,
# then who calls the same library without the hardware, last whose one bad image costs the whole
# batch another try.
_DEFAULT = ("nvimgcodec", "torchcodec", "torchvision", "dali")

_known: dict[tuple[int, torch.device], tuple[str, ...]] = {}
_lock = ForkLock()


class DeviceChoice(NamedTuple):
    """Who decodes: a batch backend, or None for the CPU path alone; and why, in words.

    `cpu` is the backend that the CPU path is to use; None for the fastest.
    """

    batch: str | None
    cpu: str | None
    why: str


def choose(
    device: torch.device, decode: Decode = "auto", backend: str | None = None
) -> DeviceChoice:
    """Choose who decodes for a device, one from `device_of`.

    ``"auto"`` is what `calibrate` measured to be fastest there; where nothing was measured, the
    first batch backend that works, and the CPU if none does.

    `backend` names a batch backend, or one that is to decode on the CPU. By default it is that of
    `use` or ``FASTDECODE_BACKEND``, if there is one; ``"gpu"`` heeds only a batch backend.

    It is an UnknownBackend or BackendUnavailable if the named one cannot be used, or with ``"gpu"``
    if none can, with what to install; a ValueError if what is asked for contradicts itself.
    """
    if decode not in DECODE:
        raise ValueError(f"decode must be one of {', '.join(DECODE)}, not {decode!r}")
    if decode == "gpu" and device.type == "cpu":
        raise ValueError("decode='gpu' needs a GPU as device, not 'cpu'")
    if backend is not None:
        return _named(device, decode, backend)
    preferred = _selection.preferred()
    if isinstance(preferred, str) and (
        decode != "gpu" or preferred in _backends.names(device.type)
    ):
        return _named(device, decode, preferred)
    if decode == "cpu" or device.type == "cpu":
        return DeviceChoice(None, None, "the CPU decodes, as asked")
    return _first(device, decode)


def _named(device: torch.device, decode: Decode, name: str) -> DeviceChoice:
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


def _first(device: torch.device, decode: Decode) -> DeviceChoice:
    """Take the first that works: of what was measured, then of the default order."""
    known = measured(device)
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
        f"no backend decodes on {str(device)!r}, which decode='gpu' needs; decode='cpu' would do "
        "without:\n" + "\n".join(missing)
    )


def _order(known: Iterable[str], device: torch.device) -> Iterator[str]:
    able = _backends.names(device.type)
    for name in dict.fromkeys((*known, *_DEFAULT, *able)):
        if name == CPU or name in able:
            yield name


def measured(device: torch.device) -> tuple[str, ...]:
    """Name what decodes for a device, the fastest first, by what was measured there.

    `CPU` is among them. It is empty if nothing was measured, or if that is damaged or out of date,
    of which one warning tells. It is read once a process, and again after a new save.
    """
    key = ranking.saves, device
    found = _known.get(key)
    if found is not None:
        return found
    saved, problem = look_up(device)
    order = saved.order() if saved else ()
    with _lock:
        first, _known[key] = key not in _known, order
    if first and problem and should_warn():  # outside the lock: a warning may run anything
        warnings.warn(
            f"what was measured for {device} is ignored: {problem}. To measure anew: "
            f"fastdecode calibrate --device {device}",
            stacklevel=2,
        )
    return order


def look_up(device: torch.device) -> tuple[DeviceRanking | None, str]:
    """Return what was saved for a device, or None and what is wrong with it, if it is."""
    here = identify(device)
    return ranking.look_up(
        lambda: DeviceRanking.load(device_ranking_path(here.name), own=not ranking_is_named()),
        lambda found: found.stale(here),
    )
