"""What a run found on a device, as plain data: a part of `result.Result`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from fastdecode.bench.spread import NOTHING, Spread

__all__ = ["CPU", "Device", "DeviceKey", "OnDevice", "by_batch"]

CPU = "cpu"
"""Stands among the batch backends for the CPU path: all cores decode, and the pixels are copied."""


class DeviceKey(NamedTuple):
    """What was asked for: the same in two results that may be compared."""

    format: str
    batch: int
    size: int
    backend: str


@dataclass(frozen=True)
class Device:
    """The device that pictures were brought onto.

    Attributes
    ----------
    device : str
        As PyTorch names it: ``"cuda:0"``.
    name : str
        Of its model.
    driver, runtime : str
        Versions of the driver and of CUDA; empty without.
    torch : str
    versions : dict of str to str
        Of the batch backends' libraries, by backend.
    missing : dict of str to str
        Why a batch backend was not measured, and how it is installed, by name.
    """

    device: str
    name: str
    driver: str = ""
    runtime: str = ""
    torch: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class OnDevice:
    """One way of bringing pictures onto the device.

    Attributes
    ----------
    backend : str
        A batch backend's name, or ``"cpu"``: all cores decode, and the pixels are copied.
    format : str
    batch : int
        Pictures of a batch; fewer than were asked for if they are large.
    size : int
        Side in pixels that they were resized to, into one tensor; 0 if they were not.
    files : int
        Different ones that were timed.
    images_per_s : Spread
        Over the rounds; until the batch is on the device.
    ratio : Spread
        Speed over that of the CPU path, paired within rounds; 0 without it.
    cpu_s_per_1000 : float
        Processor seconds for 1000 pictures, user and system, all cores added up.
    gpu_ms_per_1000 : float or None
        Milliseconds in which kernels or copies ran on the device; None where nobody could tell.
    stream_ms_per_1000 : float or None
        Milliseconds between events on the stream before and after a batch, waiting included.
    on_cpu : float
        Share of the pictures, 0 to 1, that the CPU path decoded after all.
    psnr : float or None
        Of the picture that differs most from the CPU path's, in dB; None if none differs.
    """

    backend: str
    format: str
    batch: int
    size: int = 0
    files: int = 0
    images_per_s: Spread = NOTHING
    ratio: Spread = NOTHING
    cpu_s_per_1000: float = 0.0
    gpu_ms_per_1000: float | None = None
    stream_ms_per_1000: float | None = None
    on_cpu: float = 0.0
    psnr: float | None = None

    @property
    def key(self) -> DeviceKey:
        """What was asked for."""
        return DeviceKey(self.format, self.batch, self.size, self.backend)


def by_batch(found: tuple[OnDevice, ...]) -> list[list[OnDevice]]:
    """Collect what was measured with the same batches, the fastest first."""
    groups: dict[tuple[str, int, int], list[OnDevice]] = {}
    for one in found:
        groups.setdefault((one.format, one.batch, one.size), []).append(one)
    return [sorted(own, key=lambda one: -one.images_per_s.median) for own in groups.values()]
