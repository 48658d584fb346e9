"""The process in which one way of decoding onto a device is timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from fastdecode import batch_backends, registry
from fastdecode.batch import decode_batch
from fastdecode.calibration.device_clock import Lap, clock_of, steady
from fastdecode.calibration.device_trace import busy_seconds
from fastdecode.device.ranking import CPU
from fastdecode.device.where import device_of
from fastdecode.errors import FastDecodeError, StoreError
from fastdecode.statistics import stats

if TYPE_CHECKING:
    from fastdecode.types import Buffer, Format

__all__ = ["Source", "Warm", "Worker"]

Source = Callable[[], "Buffer"]
"""Gives the bytes of a file; what is sent to a process must survive pickling."""

_LEVELS = 255.0


class Warm(NamedTuple):
    """What is found out about a batch before its time counts.

    Attributes
    ----------
    seconds : float
        That it takes.
    on_cpu : float
        Share of its pictures that the CPU path decodes after all.
    psnr : float or None
        Of the picture that differs most from the CPU path's, in dB; None if all are the same.
    """

    seconds: float
    on_cpu: float
    psnr: float | None


class Worker:
    """Holds one way of decoding, and what it decodes.

    Parameters
    ----------
    device : str
    name : str
        A batch backend, or ``"cpu"`` for the CPU path with all cores.
    registered : Mapping of str to (str, str)
        Backends that the parent registered: ``"module:Class"``, also of their batch form.
    size : int
        Resize to this side on the device, to one tensor; 0 leaves pictures as they are.

    Raises
    ------
    BackendUnavailable
        If the backend does not decode there.
    DeviceUnavailable
        If the device cannot be used.
    """

    def __init__(
        self, device: str, name: str, registered: Mapping[str, tuple[str, str]], size: int = 0
    ) -> None:
        for known, (target, batch) in registered.items():
            registry.register(known, target, batch=batch, replace=True)
        self._device = device_of(device)
        self._name = name
        self._backend = None if name == CPU else batch_backends.load(name, self._device).backend
        self._options: dict[str, Any] = {"device": self._device, "size": size or None}
        self._clock = clock_of(self._device)
        self._sources: Sequence[Source] = ()

    def about(self) -> tuple[str, str, tuple[Format, ...]]:
        """Return the library's version and codec, and the formats that it declares."""
        if self._backend is None:
            return "", "", ()
        version, codec = _said(self._backend.version), _said(self._backend.codec)
        return version, codec, tuple(self._backend.supports)

    def take(self, sources: Sequence[Source]) -> None:
        """Keep what is to be decoded."""
        self._sources = sources

    def readable(self) -> dict[int, str]:
        """Decode everything once; return why those that cannot be decoded cannot, by index."""
        refused: dict[int, str] = {}
        for index, source in enumerate(self._sources):
            try:
                self._decode([bytes(source())])
            except (FastDecodeError, StoreError, OSError) as error:
                refused[index] = str(error)
        return refused

    def warm_up(self, block: Sequence[int], patience_s: float) -> Warm:
        """Decode a batch until that takes as long as before, and look at what comes out."""
        items = self._items(block)
        laps = steady(lambda: self._clock.lap(lambda: self._decode(items)), patience_s)
        before = self._on_cpu()
        psnr = self._least_psnr(items)
        return Warm(laps[-1].wall, (self._on_cpu() - before) / len(items), psnr)

    def turn(self, block: Sequence[int], seconds: float) -> list[Lap]:
        """Time a batch, again and again for so many seconds, and once at least.

        A first time does not count: the caches, and the device, belonged to others before.
        """
        items = self._items(block)
        self._clock.lap(lambda: self._decode(items))
        laps: list[Lap] = []
        while not laps or sum(lap.wall for lap in laps) < seconds:
            laps.append(self._clock.lap(lambda: self._decode(items)))
        return laps

    def busy(self, block: Sequence[int]) -> float | None:
        """Return for how many seconds of a batch the device is at work; None if unknown.

        To be asked last: what looks at the device may slow it down from then on.
        """
        items = self._items(block)
        self._decode(items)
        return busy_seconds(self._device, lambda: self._decode(items))

    def _items(self, block: Sequence[int]) -> list[bytes]:
        """Bring the bytes into memory: what a store gives may be on its way still."""
        found = {index: bytes(self._sources[index]()) for index in set(block)}
        return [found[index] for index in block]

    def _decode(self, items: Sequence[bytes]) -> Any:
        if self._backend is None:
            return self._by_cpu(items)
        return decode_batch(items, backend=self._name, **self._options)

    def _by_cpu(self, items: Sequence[bytes]) -> Any:
        return decode_batch(items, decode="cpu", **self._options)

    def _on_cpu(self) -> int:
        """Count the pictures so far that the library was not asked for, or refused."""
        return stats().fallbacks.get((self._name, CPU), 0)

    def _least_psnr(self, items: Sequence[bytes]) -> float | None:
        if self._backend is None:
            return None
        pairs = zip(self._decode(items), self._by_cpu(items), strict=True)
        found = [one for one in (_psnr(*pair) for pair in pairs) if one is not None]
        return min(found, default=None)


def _said(question: Callable[[], str]) -> str:
    """Let a backend speak of itself; one that cannot may decode all the same."""
    try:
        return question()
    except Exception as error:  # a broken plugin may raise anything
        return f"unknown ({type(error).__name__})"


def _psnr(one: torch.Tensor, other: torch.Tensor) -> float | None:
    """Return the peak signal-to-noise ratio in dB; None if they are the same, 0 at the least."""
    if one.shape != other.shape:
        return 0.0
    error = float((one.float() - other.float()).square().mean())
    return max(0.0, 10 * float(torch.log10(torch.tensor(_LEVELS**2 / error)))) if error else None
