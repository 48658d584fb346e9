"""`calibrate`: the one call for both rankings, of the CPU's backends and of ways onto a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, overload

from fastdecode.arguments import is_int
from fastdecode.calibration.measure import FULL_S, measure
from fastdecode.errors import BackendUnavailable
from fastdecode.types import CONTEXTS

if TYPE_CHECKING:
    import os

    import torch

    from fastdecode.api import Data
    from fastdecode.device.ranking import DeviceRanking
    from fastdecode.ranking import Ranking
    from fastdecode.types import Context, Output

__all__ = ["BATCHES", "DEVICE_S", "calibrate"]

DEVICE_S = 60.0
BATCHES = (64, 256)
_OUTPUTS: tuple[Output, ...] = ("array", "pil")


@overload
def calibrate(
    samples: Iterable[Data | str | os.PathLike[str]] | None = None,
    *,
    contexts: Sequence[Context] = CONTEXTS,
    outputs: Sequence[Output] = _OUTPUTS,
    seconds: float | None = None,
    notify: Callable[[float], object] = ...,
) -> Ranking: ...


@overload
def calibrate(
    samples: Iterable[Data | str | os.PathLike[str]] | None = None,
    *,
    device: str | int | torch.device,
    batches: Sequence[int] = BATCHES,
    seconds: float | None = None,
    notify: Callable[[float], object] = ...,
) -> DeviceRanking: ...


def calibrate(
    samples: Iterable[Data | str | os.PathLike[str]] | None = None,
    *,
    device: str | int | torch.device | None = None,
    batches: Sequence[int] = BATCHES,
    contexts: Sequence[Context] = CONTEXTS,
    outputs: Sequence[Output] = _OUTPUTS,
    seconds: float | None = None,
    notify: Callable[[float], object] = lambda _share: None,
) -> Ranking | DeviceRanking:
    """Measure which backend is fastest here, for every kind of work, or what is for a device.

    Parameters
    ----------
    samples : iterable of encoded bytes or paths, optional
        What to decode. By default, pictures of four sizes made of the package's own photos, as
        JPEG, PNG, WebP and JPEG 2000; for a device as JPEG alone.
    device : str, int or torch.device, optional
        Measure how fast pictures come onto this device, such as ``"cuda:0"``: decoded there by each
        batch backend, or by the CPU with all cores and copied, as `decode_batch` does it. Needs
        PyTorch.
    batches : sequence of int
        With a device: pictures of a batch; fewer if they are large.
    contexts : sequence of {"one", "threads", "processes"}
        Alone; in as many threads at once as there are usable cores; in as many processes, but 16
        at most. Not with a device.
    outputs : sequence of {"array", "tensor", "pil"}
        What to make of the pixels; the first is measured in full, others for medium pictures. A
        tensor shares the array's memory, so that what holds for arrays holds for it, and it is not
        measured by default. `decode` gives arrays, and goes by these. Not with a device.
    seconds : float, optional
        About how long it may take; by default 18, and 60 for a device. Starting takes its time in
        any case, and so does one kind of work; with little time others are not measured, and what
        is nearest stands in for them.
    notify : callable, optional
        Told the share of the time that has gone, from 0 to 1.

    Returns
    -------
    Ranking, or DeviceRanking with a device
        Either to `save` for every later process of this user; a `Ranking` also to `use`.

    Raises
    ------
    FastDecodeError, OSError
        If a sample cannot be read; the message says which.
    BackendUnavailable
        If no batch backend works on the device, or PyTorch is missing.
    TypeError, ValueError
        If an argument is wrong, or no batch backend reads any of the samples.
    RuntimeError
        If a backend crashes, and the message says how to leave it out; a DeviceUnavailable if the
        device cannot be used.
    ImportError
        If tensors are asked for without PyTorch.

    Notes
    -----
    The default order stands but for those whose lead is larger than what lies between their own
    times: other work on the machine changes nothing by chance, though it may hide who is faster.
    `Ranking.busy` says whether it was so, and `Ranking.remark`, or `print`, what follows from that.

    Only backends whose pixels are the same are measured, in fresh processes of their own, through
    `decode`. Those of PyTorch take part if the caller has imported it. Backends that were
    registered as classes, and not as ``"module:Class"``, exist in the caller's process alone, and
    cannot take part.

    For a device each has a process of its own, too. All decode the same batches in rounds of random
    order, after a warm-up; a batch is done when the device is. One that crashes leaves, and stands
    in `lost`, as does one whose pixels are not even near those of `decode`.
    """
    _check(samples, seconds)
    if device is None:
        if batches is not BATCHES:
            raise ValueError("batches are for a device: give device, such as 'cuda', too")
        return measure(
            samples,
            contexts=contexts,
            outputs=outputs,
            seconds=FULL_S if seconds is None else seconds,
            notify=notify,
        )
    if contexts is not CONTEXTS or outputs is not _OUTPUTS:
        raise ValueError("contexts and outputs are not for a device")
    if isinstance(batches, str) or not batches or not all(is_int(n) and n > 0 for n in batches):
        raise ValueError(f"batches must be positive whole numbers, not {batches!r}")
    limit = DEVICE_S if seconds is None else seconds
    return _for_device()(samples, device, batches, limit, notify)


def _check(samples: object, seconds: float | None) -> None:
    if seconds is not None and not (
        isinstance(seconds, (int, float)) and 0 < seconds < float("inf")
    ):
        raise ValueError(f"seconds must be a positive number, not {seconds!r}")
    if isinstance(samples, (str, bytes)):
        raise TypeError("samples are several files: pass a list of paths, or of encoded bytes")


def _for_device() -> Callable[..., DeviceRanking]:
    """Return what measures for devices; only here is PyTorch needed."""
    try:
        from fastdecode.calibration.device_measure import measure_device
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise BackendUnavailable(
            "device= needs PyTorch, which is not installed\n"
            "Install it with: pip install 'fastdecode[torch]'"
        ) from error
    return measure_device
