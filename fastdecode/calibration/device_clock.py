"""How long a piece of work takes on a device: until it is done there, not until it is asked for."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

__all__ = ["Clock", "CudaClock", "Lap", "clock_of", "steady"]

_cuda: Any = torch.cuda  # which is annotated only in part
_SAME = 1.1  # times as long: laps that lie so near each other are steady
_LOOKED_AT = 3
_MOST_LAPS = 12


class Lap(NamedTuple):
    """What one piece of work took, in seconds.

    Attributes
    ----------
    wall : float
        By the clock on the wall, until the device was done.
    cpu : float
        Of the processors, user and system, all threads of this process added up.
    stream : float or None
        Between an event on the device's stream before the work and one after it; None without.
    """

    wall: float
    cpu: float
    stream: float | None = None


class Clock:
    """The host's own: for a device on which all is done when the call returns.

    Parameters
    ----------
    device : torch.device
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def lap(self, work: Callable[[], object]) -> Lap:
        """Do the work, and say how long it took. What it returns is let go after the end."""
        was_on = gc.isenabled()
        gc.disable()
        try:
            return self._lap(work)
        finally:
            if was_on:
                gc.enable()

    def _lap(self, work: Callable[[], object]) -> Lap:
        cpu, wall = time.process_time(), time.perf_counter()
        made = work()
        lap = Lap(time.perf_counter() - wall, time.process_time() - cpu)
        del made
        return lap


class CudaClock(Clock):
    """CUDA events on the current stream.

    Notes
    -----
    Kernels run after the call that asks for them has returned, so that the host's clock alone would
    measure the asking. An event is reached when all that was put on its stream before is done; work
    on other streams counts where the current one waits for it, as the results of a batch backend
    must make it. The last event is waited for in the kernel (``blocking=True``): by default the
    host looks at it in a loop, which would count as processor time.
    """

    def _lap(self, work: Callable[[], object]) -> Lap:
        first = _cuda.Event(enable_timing=True)
        last = _cuda.Event(enable_timing=True, blocking=True)
        stream = _cuda.current_stream(self.device)
        _cuda.synchronize(self.device)
        cpu, wall = time.process_time(), time.perf_counter()
        first.record(stream)
        made = work()
        last.record(stream)
        last.synchronize()
        seconds, processors = time.perf_counter() - wall, time.process_time() - cpu
        lap = Lap(seconds, processors, float(first.elapsed_time(last)) / 1000)
        del made
        return lap


def clock_of(device: torch.device) -> Clock:
    """Return the clock for a device."""
    return CudaClock(device) if device.type == "cuda" else Clock(device)


def steady(lap: Callable[[], Lap], patience_s: float) -> list[Lap]:
    """Repeat until the last three laps took about as long as each other.

    The first ones load libraries and kernels, fill pools of memory and raise the clocks.

    Parameters
    ----------
    lap : callable
    patience_s : float
        Stop after these seconds even so.

    Returns
    -------
    list of Lap
        One at least.
    """
    laps: list[Lap] = []
    begun = time.monotonic()
    while len(laps) < _MOST_LAPS:
        laps.append(lap())
        last = [one.wall for one in laps[-_LOOKED_AT:]]
        if len(last) == _LOOKED_AT and max(last) <= _SAME * min(last):
            break
        if time.monotonic() - begun > patience_s:
            break
    return laps
