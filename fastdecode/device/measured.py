"""What was measured and saved for a device: read once a process, and again after a new save."""

from __future__ import annotations

import os
import threading
import warnings
from typing import TYPE_CHECKING

from fastdecode._system import device_ranking_path, ranking_is_named, speaks_for_all
from fastdecode.device import ranking
from fastdecode.device.identity import identify
from fastdecode.device.ranking import DeviceRanking

if TYPE_CHECKING:
    import torch

__all__ = ["look_up", "measured"]

_known: dict[tuple[int, torch.device], tuple[str, ...]] = {}
_lock = threading.Lock()


def measured(device: torch.device) -> tuple[str, ...]:
    """Name what decodes for a device, the fastest first, by what was measured there.

    Parameters
    ----------
    device : torch.device
        From `device_of`.

    Returns
    -------
    tuple of str
        Batch backends, and ``"cpu"`` for the CPU path; empty if nothing was measured, or if it is
        damaged or out of date, of which one warning tells.
    """
    key = ranking.generation, device
    found = _known.get(key)
    if found is not None:
        return found
    saved, problem = look_up(device)
    order = saved.order() if saved else ()
    with _lock:
        first, _known[key] = key not in _known, order
    if first and problem and speaks_for_all():  # outside the lock: a warning may run anything
        warnings.warn(
            f"what was measured for {device} is ignored: {problem}. To measure anew: "
            f"python -m fastdecode calibrate --device {device}",
            stacklevel=2,
        )
    return order


def look_up(device: torch.device) -> tuple[DeviceRanking | None, str]:
    """Read what was saved for a device; return it, or None and what is wrong with it, if it is.

    Parameters
    ----------
    device : torch.device
        From `device_of`.
    """
    here = identify(device)
    try:
        place = device_ranking_path(here.name)
        found = DeviceRanking.load(place, own=not ranking_is_named())
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, str(error)
    problem = found.stale(here)
    return (None, problem) if problem else (found, "")


def _renew_lock() -> None:
    """Forget in a forked child who held the lock in the parent."""
    global _lock
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
