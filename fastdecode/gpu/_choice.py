"""Batch backends by name: one instance per device, with a lock for its calls, and the choice."""

from __future__ import annotations

import pkgutil
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastdecode._backends import registry, selection
from fastdecode._backends.batch_base import BatchBackend, is_of_the_device
from fastdecode._system.process import after_fork
from fastdecode._system.processor import usable_cores
from fastdecode.errors import BackendUnavailable, UnknownBackend

if TYPE_CHECKING:
    import torch


class Loaded:
    """A batch backend on a device.

    Every caller holds `lock`, because the decoders of these libraries are not thread-safe.
    """

    def __init__(self, name: str, backend: BatchBackend, device: torch.device) -> None:
        self.name = name
        self.backend = backend
        self.device = device
        self.lock = threading.Lock()


_loaded: dict[tuple[int, str, str], Loaded] = {}
_failed: dict[tuple[int, str, str], BaseException] = {}
_of_the_parent: list[Any] = []
_lock = threading.RLock()


def names(device_type: str) -> list[str]:
    """Return the batch backends for a device type, ``"cpu"`` or ``"cuda"``, without any import."""
    return [
        name
        for name in registry.names()
        if (found := registry.entry(name)).batch
        and (not found.devices or device_type in found.devices.split())
    ]


def choose(device: torch.device, decode: str) -> Loaded | None:
    """Return the batch backend that decodes for a device from `check_device`; None for the CPU.

    `decode` is ``"cpu"``, ``"gpu"`` or the name of a batch backend. ``"gpu"`` means the backend of
    `use` or ``FASTDECODE_BACKEND``, if that is a batch backend; else the first that works.

    Raises `UnknownBackend`, `BackendUnavailable` or `ValueError` if the request cannot be met; the
    message says what to install.
    """
    if decode == "cpu":
        return None
    if decode == "gpu":
        return _first(device)
    if decode in (able := names(device.type)):
        return load(decode, device)
    if decode in registry.names():
        raise ValueError(
            f"decode={decode!r} names a backend that decodes no batches on {str(device)!r}: use "
            f"decode='cpu', and backend={decode!r} to decode with it on the CPU"
        )
    raise UnknownBackend(
        "decode must be 'cpu', 'gpu' or the name of a backend that decodes batches on "
        f"{str(device)!r} ({', '.join(able) or 'there is none'}), not {decode!r}"
    )


def _first(device: torch.device) -> Loaded:
    """Return the preferred batch backend, or the first in the registry's order that works."""
    if device.type == "cpu":
        raise ValueError("decode='gpu' needs a GPU as device, not 'cpu'")
    able = names(device.type)
    if (preferred := selection.preferred()) in able:
        return load(str(preferred), device)
    missing = []
    for name in able:
        if name in selection.disabled():
            missing.append(f"the backend {name!r} is left out by FASTDECODE_DISABLE")
            continue
        try:
            return load(name, device)
        except BackendUnavailable as error:
            missing.append(str(error))
    raise BackendUnavailable(
        f"no backend decodes on {str(device)!r}, and decode='gpu' needs one; decode='cpu' does not:"
        "\n" + "\n".join(missing)
    )


def load(name: str, device: torch.device) -> Loaded:
    """Return this process's instance of a batch backend for a device, which has its index.

    Raises `UnknownBackend` if there is no such name. Raises `BackendUnavailable` if the backend
    does not decode on that device, or if its library is missing or broken. The message contains the
    reason and, if the library is missing, the install line.
    """
    registry.entry(name)  # UnknownBackend
    key = (registry.generation, name, str(device))
    with _lock:
        if key not in _loaded and key not in _failed:
            try:
                _loaded[key] = Loaded(name, _construct(name, device), device)
            except (Exception, SystemExit) as failure:  # a broken plugin may raise anything
                if is_of_the_device(failure):  # it may work later, when there is free memory again
                    raise
                _failed[key] = failure.with_traceback(None)
        if key in _failed:
            error = _failed[key]
            raise BackendUnavailable(
                f"the backend {name!r} does not decode on {str(device)!r}: "
                f"{registry.reason(error)}{_install_hint(name, error)}"
            ) from error
        return _loaded[key]


def _construct(name: str, device: torch.device) -> BatchBackend:
    target = registry.entry(name).batch
    if not target:
        raise BackendUnavailable("it decodes one image at a time, on the CPU")
    kind: Any = pkgutil.resolve_name(target) if isinstance(target, str) else target
    if not (isinstance(kind, type) and issubclass(kind, BatchBackend)):
        raise TypeError(f"{target!r} is not a fastdecode BatchBackend but {kind!r}")
    if isinstance(kind.devices, str):
        raise TypeError(f"{target!r} declares its devices as text, not as a set")
    if device.type not in kind.devices:
        raise BackendUnavailable(f"it decodes on {', '.join(sorted(kind.devices))}")
    backend = kind(device, usable_cores())
    if not isinstance(getattr(backend, "supports", None), Mapping):
        raise TypeError(f"{target!r} does not declare what it supports")
    return backend


def _install_hint(name: str, error: BaseException) -> str:
    """Return how to install the library if it is missing; else empty."""
    line = registry.install_line(name) if isinstance(error, ModuleNotFoundError) else ""
    return f"\nInstall it with: {line}" if line else ""


@after_fork
def _forget() -> None:
    """Start over in a forked child, where the locks and the libraries' state are not usable.

    The child still keeps the parent's backends alive, also those that its errors refer to. To
    destroy one would wait for threads that the child lacks, or call a driver that a child must not
    call.
    """
    global _lock
    _lock = threading.RLock()
    _of_the_parent.append((dict(_loaded), dict(_failed)))
    _loaded.clear()
    _failed.clear()
