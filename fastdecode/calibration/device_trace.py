"""For how long a device was at work: what its driver notes of each kernel and each copy."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.profiler

__all__ = ["busy", "busy_seconds"]

_profiler: Any = torch.profiler  # which is annotated only in part
_CUDA = _profiler.ProfilerActivity.CUDA
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_MICRO = 1e-6


def busy_seconds(device: torch.device, work: Callable[[], object]) -> float | None:
    """Do the work under PyTorch's profiler, and return for how long the device was at work.

    Parameters
    ----------
    device : torch.device
    work : callable

    Returns
    -------
    float or None
        Seconds in which at least one kernel or copy ran, of this process, on any stream; None
        without a GPU, or where the profiler notes none.

    Notes
    -----
    Two events tell how long a stream took, waiting for the host included; of work that runs on a
    library's own streams they tell nothing else. The JPEG engine of a GPU is no kernel: what it
    does is not noted.
    """
    if device.type != "cuda" or _CUDA not in _profiler.supported_activities():
        return None
    torch.cuda.synchronize(device)
    try:
        with _profiler.profile(activities=[_CUDA]) as trace:
            made = work()
            torch.cuda.synchronize(device)
    except RuntimeError:  # the driver lets nobody look; the work itself went well before
        return None
    del made
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        trace.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    return busy(events) or None


def busy(events: Iterable[Mapping[str, Any]]) -> float:
    """Return in how many seconds at least one kernel or copy ran.

    Parameters
    ----------
    events : iterable of Mapping
        Of a trace in Chrome's format: ``ts`` and ``dur`` are in microseconds.
    """
    spans = sorted(
        (float(event["ts"]), float(event["ts"]) + float(event["dur"]))
        for event in events
        if event.get("cat") in _ON_DEVICE and event.get("ph") == "X"
    )
    total, until = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total * _MICRO
