"""What keeps the time on a device, and what memory it takes there: for `gpu.py`."""

from __future__ import annotations

import subprocess
from time import perf_counter
from typing import Any

import torch

_QUESTIONS = ("driver_version", "memory.total", "clocks.max.sm", "power.limit")


class Clock:
    """The host's own clock, for what runs on the CPU: there all is done when a call returns."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def mark(self) -> Any:
        """Mark this point in the order of the device's work."""
        return perf_counter()

    def between(self, first: Any, last: Any) -> float:
        """Return seconds between two marks; only after `wait`."""
        return float(last - first)

    def wait(self) -> None:
        """Wait until all that was asked of the device is done."""

    def memory(self) -> dict[str, int]:
        """Return bytes of the device that are taken."""
        return {}

    def describe(self) -> dict[str, str]:
        """Say what device it is."""
        return {"name": "CPU"}


class CudaClock(Clock):
    """CUDA events, in the order of the current stream.

    Notes
    -----
    An event is reached when all that was put on the stream before is done. Work on other streams
    counts where the current one waits for it.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        torch.cuda.set_device(device)

    def mark(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def between(self, first: Any, last: Any) -> float:
        return float(first.elapsed_time(last)) / 1000

    def wait(self) -> None:
        # Left to itself the host looks at the device in a loop, which would count as CPU time.
        event = torch.cuda.Event(blocking=True)
        event.record(torch.cuda.current_stream(self.device))
        event.synchronize()
        torch.cuda.synchronize(self.device)

    def memory(self) -> dict[str, int]:
        """Return what PyTorch has reserved, and what all together take, decoders included."""
        self.wait()
        free, total = torch.cuda.mem_get_info(self.device)
        return {
            "allocated": int(torch.cuda.memory_allocated(self.device)),
            "reserved": int(torch.cuda.memory_reserved(self.device)),
            "taken": int(total - free),
        }

    def describe(self) -> dict[str, str]:
        properties = torch.cuda.get_device_properties(self.device)
        return {
            "name": str(properties.name),
            "capability": f"{properties.major}.{properties.minor}",
            "cuda": str(torch.version.cuda),
            **_driver(self.device.index or 0),
        }


def clock_of(device: torch.device) -> Clock:
    """Return the clock for a device."""
    return CudaClock(device) if device.type == "cuda" else Clock(device)


def _driver(index: int) -> dict[str, str]:
    """Ask the driver's own tool, where it is there."""
    command = ["nvidia-smi", f"--id={index}", "--format=csv,noheader"]
    command.append(f"--query-gpu={','.join(_QUESTIONS)}")
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    answers = [answer.strip() for answer in done.stdout.strip().split(",")]
    return dict(zip(_QUESTIONS, answers, strict=False))
