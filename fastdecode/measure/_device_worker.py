"""The process that decodes onto a device in one way and is timed, and its clocks."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
import torch.profiler

from fastdecode import registry
from fastdecode._batch import decode_batch
from fastdecode._stats import stats
from fastdecode.errors import FastDecodeError, StoreError
from fastdecode.gpu import _backends
from fastdecode.gpu._devices import check_device
from fastdecode.measure._timing import no_garbage_collection
from fastdecode.ranking import CPU

if TYPE_CHECKING:
    from fastdecode.measure._collection import Photo
    from fastdecode.types import Format

_cuda: Any = torch.cuda  # which is annotated only in part
_SAME = 1.1  # laps are steady if the longest is at most so many times as long as the shortest
_LOOKED_AT = 3
_MAX_LAPS = 12

_profiler: Any = torch.profiler  # which is annotated only in part
_CUDA = _profiler.ProfilerActivity.CUDA
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
_MICRO = 1e-6

WORKER = f"{__name__}:Worker"
_LEVELS = 255.0


class LapTimes(NamedTuple):
    """The times of one piece of work, in seconds."""

    wall: float  # wall-clock time until the device was done
    cpu: float  # CPU time, user and system, of all threads of this process
    # between an event on the device's stream before the work and one after it; None without a GPU
    stream: float | None = None


class Clock:
    """The host's clock, for a device that is done when the call returns."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def lap(self, work: Callable[[], object]) -> LapTimes:
        """Time the work. Its result is released after the end."""
        with no_garbage_collection():
            return self._lap(work)

    def _lap(self, work: Callable[[], object]) -> LapTimes:
        cpu, wall = time.process_time(), time.perf_counter()
        made = work()
        lap = LapTimes(time.perf_counter() - wall, time.process_time() - cpu)
        del made
        return lap


class CudaClock(Clock):
    """CUDA events on the current stream.

    Kernels run after the call that launches them has returned, so the host's clock alone would time
    only the launch. An event completes when all earlier work on its stream is done. Work on other
    streams counts if the current stream waits for it, as the results of a batch backend require.
    The host waits for the last event in the kernel (``blocking=True``): by default it would poll in
    a loop, which would count as CPU time.
    """

    def _lap(self, work: Callable[[], object]) -> LapTimes:
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
        lap = LapTimes(seconds, processors, float(first.elapsed_time(last)) / 1000)
        del made
        return lap


def clock_for(device: torch.device) -> Clock:
    """Return the clock for a device."""
    return CudaClock(device) if device.type == "cuda" else Clock(device)


def repeat_until_steady(lap: Callable[[], LapTimes], patience_s: float) -> list[LapTimes]:
    """Repeat until the last three laps took about the same time.

    The first laps load libraries and kernels, fill memory pools and raise clock rates.
    """
    laps: list[LapTimes] = []
    begun = time.monotonic()
    while len(laps) < _MAX_LAPS:
        laps.append(lap())
        last = [one.wall for one in laps[-_LOOKED_AT:]]
        if len(last) == _LOOKED_AT and max(last) <= _SAME * min(last):
            break
        if time.monotonic() - begun > patience_s:
            break
    return laps


def profile_busy_time(device: torch.device, work: Callable[[], object]) -> float | None:
    """Run the work under PyTorch's profiler; return how many seconds the device was busy.

    The result counts the time in which at least one kernel or copy of this process ran, on any
    stream. It is None without a GPU, or if the profiler records nothing. Events on a stream would
    include waiting for the host, and miss work on a library's own streams. The JPEG engine of a GPU
    runs no kernels, so its work is not recorded.
    """
    if device.type != "cuda" or _CUDA not in _profiler.supported_activities():
        return None
    torch.cuda.synchronize(device)
    try:
        with _profiler.profile(activities=[_CUDA]) as trace:
            made = work()
            torch.cuda.synchronize(device)
    except RuntimeError:  # the driver does not allow profiling; the work itself succeeded before
        return None
    del made
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        trace.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    return busy_time_of_trace(events) or None


def busy_time_of_trace(events: Iterable[Mapping[str, Any]]) -> float:
    """Return how many seconds of a Chrome trace (in microseconds) had a running kernel or copy."""
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


class Warm(NamedTuple):
    """The findings of the warm-up of a batch."""

    seconds: float  # duration of a batch
    on_cpu: float  # share of its images that the CPU path decodes
    # in dB, of the image that differs most from the CPU path's; None if all are equal
    psnr: float | None


class Worker:
    """One way of decoding, and the images that it decodes."""

    def __init__(
        self, device: str, name: str, registered: Mapping[str, tuple[str, str]], size: int = 0
    ) -> None:
        for known, (target, batch) in registered.items():
            registry.register(known, target, batch=batch, replace=True)
        self._device = check_device(device)
        self._name = name
        self._backend = None if name == CPU else _backends.load(name, self._device).backend
        self._options: dict[str, Any] = {"device": self._device, "size": size or None}
        self._clock = clock_for(self._device)
        self._photos: Sequence[Photo] = ()

    def about(self) -> tuple[str, str, tuple[Format, ...]]:
        """Return the library's version and codec, and its declared formats."""
        if self._backend is None:
            return "", "", ()
        version, codec = _describe(self._backend.version), _describe(self._backend.codec)
        return version, codec, tuple(self._backend.supports)

    def take(self, photos: Sequence[Photo]) -> None:
        """Set the images to decode."""
        self._photos = photos

    def readable(self) -> dict[int, str]:
        """Decode every image once; return the errors of those that cannot be decoded, by index."""
        refused: dict[int, str] = {}
        for index, photo in enumerate(self._photos):
            try:
                self._decode([bytes(photo.read())])
            except (FastDecodeError, StoreError, OSError) as error:
                refused[index] = str(error)
        return refused

    def warm_up(self, block: Sequence[int], patience_s: float) -> Warm:
        """Decode a batch until its time is steady, and check the images."""
        items = self._items(block)
        laps = repeat_until_steady(lambda: self._clock.lap(lambda: self._decode(items)), patience_s)
        before = self._on_cpu()
        psnr = self._least_psnr(items)
        return Warm(laps[-1].wall, (self._on_cpu() - before) / len(items), psnr)

    def turn(self, block: Sequence[int], seconds: float) -> list[LapTimes]:
        """Time a batch repeatedly for so many seconds, at least once.

        The first run does not count, because other backends have used the caches and the device.
        """
        items = self._items(block)
        self._clock.lap(lambda: self._decode(items))
        laps: list[LapTimes] = []
        while not laps or sum(lap.wall for lap in laps) < seconds:
            laps.append(self._clock.lap(lambda: self._decode(items)))
        return laps

    def busy(self, block: Sequence[int]) -> float | None:
        """Return how many seconds the device works on a batch; None if unknown.

        Call this last, because the profiler may slow the device down from then on.
        """
        items = self._items(block)
        self._decode(items)
        return profile_busy_time(self._device, lambda: self._decode(items))

    def _items(self, block: Sequence[int]) -> list[bytes]:
        """Read the bytes into memory: a store may return views that are not loaded yet."""
        found = {index: bytes(self._photos[index].read()) for index in set(block)}
        return [found[index] for index in block]

    def _decode(self, items: Sequence[bytes]) -> Any:
        if self._backend is None:
            return self._by_cpu(items)
        return decode_batch(items, decode=self._name, **self._options)

    def _by_cpu(self, items: Sequence[bytes]) -> Any:
        return decode_batch(items, decode="cpu", **self._options)

    def _on_cpu(self) -> int:
        """Return how many images so far the library did not get, or refused."""
        return stats().fallbacks.get((self._name, CPU), 0)

    def _least_psnr(self, items: Sequence[bytes]) -> float | None:
        if self._backend is None:
            return None
        pairs = zip(self._decode(items), self._by_cpu(items), strict=True)
        found = [one for one in (_psnr(*pair) for pair in pairs) if one is not None]
        return min(found, default=None)


def _describe(question: Callable[[], str]) -> str:
    """Return a backend's answer about itself, or its error: it may decode all the same."""
    try:
        return question()
    except Exception as error:  # a broken plugin may raise anything
        return f"unknown ({type(error).__name__})"


def _psnr(one: torch.Tensor, other: torch.Tensor) -> float | None:
    """Return the peak signal-to-noise ratio in dB, at least 0; None if the images are equal."""
    if one.shape != other.shape:
        return 0.0
    error = float((one.float() - other.float()).square().mean())
    return max(0.0, 10 * float(torch.log10(torch.tensor(_LEVELS**2 / error)))) if error else None
