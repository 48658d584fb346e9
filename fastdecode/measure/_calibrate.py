"""`calibrate`: find the fastest backend on this machine or for a device, and return a ranking."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from statistics import fmean, median
from typing import TYPE_CHECKING, overload

from fastdecode import _selection, registry
from fastdecode._arguments import is_int
from fastdecode._process import ChildDied
from fastdecode._system import cpu_model, libraries, usable_cores
from fastdecode.errors import BackendUnavailable
from fastdecode.measure._race import Contest, run
from fastdecode.measure._samples import (
    Sample,
    built_in,
    comparable_files,
    group_samples,
    with_indices,
)
from fastdecode.measure._timing import Budget, now
from fastdecode.measure._workers import WORKER, Processes
from fastdecode.measure.result import Measurement
from fastdecode.ranking import Cell, Ranking, sort_by_default
from fastdecode.types import CONTEXTS, OUTPUTS, REDUCES

if TYPE_CHECKING:
    import os

    import torch

    from fastdecode.api import Data
    from fastdecode.ranking import DeviceRanking
    from fastdecode.types import Context, Format, Output, Reduce, SizeClass

DEVICE_S = 60.0
BATCHES = (64, 256)
"""Images per batch on a device: few for a large network, many for a small one."""

_OUTPUTS: tuple[Output, ...] = ("array", "pil")

FULL_S = 18.0
QUICK_S = 2.2
_MAX_PROCESSES = 16
_TURN_S = 0.006  # least time of one measurement, about
_QUICK_TURN_S = 0.002
_LONGER_WITH_THREADS = 3  # the interpreter switches threads every 5 ms
_PIXELS_PER_S = 150e6  # an estimate, to choose the number of passes in one turn
_NEED_PYTORCH = ("torchvision", "torchcodec")
_BUILT_IN: tuple[tuple[Format, tuple[SizeClass, ...]], ...] = (
    ("jpeg", ("small", "medium", "large", "huge")),
    ("png", ("medium", "large")),
    ("webp", ("medium", "large")),
    ("jpeg2000", ("medium",)),
)


@overload
def calibrate(
    samples: Iterable[Data | str | os.PathLike[str]] | None = None,
    *,
    contexts: Sequence[Context] = CONTEXTS,
    outputs: Sequence[Output] = _OUTPUTS,
    seconds: float | None = None,
    notify: Callable[[float], object] | None = None,
) -> Ranking: ...


@overload
def calibrate(
    samples: Iterable[Data | str | os.PathLike[str]] | None = None,
    *,
    device: str | int | torch.device,
    batches: Sequence[int] = BATCHES,
    seconds: float | None = None,
    notify: Callable[[float], object] | None = None,
) -> DeviceRanking: ...


def calibrate(
    samples: Iterable[Data | str | os.PathLike[str]] | None = None,
    *,
    device: str | int | torch.device | None = None,
    batches: Sequence[int] = BATCHES,
    contexts: Sequence[Context] = CONTEXTS,
    outputs: Sequence[Output] = _OUTPUTS,
    seconds: float | None = None,
    notify: Callable[[float], object] | None = None,
) -> Ranking | DeviceRanking:
    """Measure which backend is fastest on this machine, for each kind of work, or for a device.

    Parameters
    ----------
    samples : iterable of encoded bytes or paths, optional
        What to decode. By default, images of four sizes made from the package's own photos, as
        JPEG, PNG, WebP and JPEG 2000; for a device only as JPEG.
    device : str, int or torch.device, optional
        Measure how fast images reach this device, such as ``"cuda:0"``: decoded there by each
        batch backend, or decoded by all cores of the CPU and copied, as `decode_batch` does.
        Requires PyTorch.
    batches : sequence of int
        With a device: images per batch; fewer if they are large.
    contexts : sequence of {"one", "threads", "processes"}
        Decode in one thread; in as many threads as there are usable cores; in as many processes,
        at most 16. Not with a device.
    outputs : sequence of {"array", "tensor", "pil"}
        What to convert the pixels to. The first is measured in full, others only for medium images.
        A tensor shares the memory of the array, so the figures of arrays apply to it, and it is not
        measured by default. `decode` returns arrays, and uses their figures. Not with a device.
    seconds : float, optional
        About how long to measure; by default 18 seconds, and 60 for a device. The start of the
        processes and one kind of work take their time in any case. If the time is short, other
        kinds are not measured, and the nearest measured kind is used for them.
    notify : callable, optional
        Called with the share of the time that has passed, from 0 to 1.

    Returns
    -------
    Ranking, or DeviceRanking with a device
        Call its `save` for every later process of this user. A `Ranking` can also be passed to
        `use`.

    Raises
    ------
    FastDecodeError, OSError
        A sample cannot be read; the message names it.
    BackendUnavailable
        No batch backend works on the device, or PyTorch is missing.
    TypeError, ValueError
        An argument is wrong, or no batch backend reads any of the samples.
    RuntimeError
        A backend crashes; the message says how to leave it out.
    DeviceUnavailable
        The device cannot be used.
    ImportError
        Tensors are requested without PyTorch.

    Notes
    -----
    The default order changes only for backends whose lead is larger than the spread of their own
    times. So other work on the machine does not change the order by chance, but it may hide which
    backend is faster. `Ranking.busy` is True then, and `Ranking.remark` and `print` explain it.

    Only backends with the same pixels are measured, through `decode`, in fresh processes. Those of
    PyTorch take part if the caller has imported it. Backends that were registered as classes, and
    not as ``"module:Class"``, exist only in the caller's process and cannot take part.

    For a device, each backend also has its own process. After a warm-up, all decode the same
    batches in rounds of random order; a batch ends when the device has finished it. A backend that
    crashes is left out and listed in `lost`, as is one whose pixels are not close to those of
    `decode`.

    Examples
    --------
    >>> from fastdecode import calibrate, decode, use
    >>> ranking = calibrate(["cat.jpg"], contexts=["one"], seconds=0.5)
    >>> with use(ranking):  # or `ranking.save()`, for every later process
    ...     image = decode(data)
    """
    _check(samples, seconds)
    notify = notify or (lambda _share: None)
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
    """Import and return `measure_device`, which needs PyTorch."""
    try:
        from fastdecode.measure._device import measure_device
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise BackendUnavailable(
            "device= needs PyTorch, which is not installed\n"
            "Install it with: pip install 'fastdecode[torch]'"
        ) from error
    return measure_device


def find_device(device: str) -> torch.device:
    """Return the device with PyTorch's name, or with the number of a CUDA device."""
    try:
        from fastdecode.gpu._devices import check_device
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise BackendUnavailable(
            "--device needs PyTorch, which is not installed: pip install 'fastdecode[torch]'"
        ) from error
    return check_device(f"cuda:{device}" if device.isascii() and device.isdigit() else device)


def measure(
    samples: Iterable[Data | str | os.PathLike[str]] | None,
    *,
    contexts: Sequence[Context],
    outputs: Sequence[Output],
    seconds: float,
    notify: Callable[[float], object],
) -> Ranking:
    """Measure the backends of the CPU, as `calibrate` describes."""
    _check_some(contexts, CONTEXTS, "contexts")
    _check_some(outputs, OUTPUTS, "outputs")
    own = None if samples is None else group_samples(samples)
    clock = Budget(seconds)
    with _Bench(contexts) as bench:
        quick = seconds < FULL_S / 2
        bench.take(bench.comparable(own) if own else built_in(_samples_to_make(bench, quick=quick)))
        turn = _QUICK_TURN_S if quick else _TURN_S
        contests = {cell: bench.contest(cell, turn) for cell in bench.cells(contexts, outputs)}
        run(contests.values(), clock.left, lambda: notify(clock.share()))
    speeds = {cell: contest.speeds() for cell, contest in contests.items()}
    measured = {cell: speeds[cell] for cell in contests if speeds[cell]}
    return Ranking(
        {cell: tuple(found) for cell, found in measured.items()},
        measured,
        cpu_model(),
        libraries(),
        now(),
        _median_disturbance(contests),
    )


def _median_disturbance(contests: Mapping[Cell, Contest]) -> float:
    """Return how busy the machine was with other work, from contests in one thread."""
    alone = [contest for cell, contest in contests.items() if cell.context == "one"]
    found = [share for contest in alone for share in contest.disturbances()]
    return round(median(found), 4) if found else 0.0


def _check_some(given: Sequence[str], known: Sequence[str], name: str) -> None:
    if isinstance(given, str) or not given or not all(word in known for word in given):
        raise ValueError(f"{name} must be some of {', '.join(known)}, not {given!r}")


def _samples_to_make(bench: _Bench, *, quick: bool) -> list[tuple[Format, SizeClass]]:
    """List the samples to make, without formats that only one backend reads."""
    return [
        (format, size)
        for format, sizes in _BUILT_IN
        if len(bench.readers(format, 1)) > 1
        for size in sizes
        if not (quick and (size == "huge" or (size == "large" and format != "jpeg")))
    ]


class _Bench(Processes):
    """Identical processes with all backends. One of them decodes, or all at once."""

    def __init__(self, contexts: Sequence[Context]) -> None:
        self._threads = usable_cores()
        self._asked_backend = ""
        self._samples: Sequence[Sample] = ()
        count = min(self._threads, _MAX_PROCESSES) if "processes" in contexts else 1
        extra = registry.targets()
        super().__init__(WORKER, {str(number): (extra,) for number in range(count)}, self._fail)

    @cached_property
    def _usable(self) -> dict[str, dict[Format, set[Reduce]]]:
        """The formats and reductions of each backend; all processes load the backends."""
        return dict(self.ask_all(self.names, "usable", _eligible_names())["0"])

    def _fail(self, _name: str, error: Exception) -> None:
        """Raise an error that names the crashed backend, and says how to go on without it."""
        if not (self._asked_backend and isinstance(error, ChildDied)):
            raise error
        raise RuntimeError(
            f"{self._asked_backend} crashed: {error}. To leave it out, set "
            f"FASTDECODE_DISABLE={self._asked_backend}"
        ) from error

    def readers(self, format: Format, reduce: Reduce) -> list[str]:
        """Return the backends that read a format; for JPEG, those that reduce in the decoder."""
        return [
            name
            for name, formats in self._usable.items()
            if format in formats and (format != "jpeg" or reduce in formats[format])
        ]

    def comparable(self, samples: Sequence[Sample]) -> list[Sample]:
        """Leave out images that only few backends read."""
        self.take(samples)
        read: dict[str, set[int]] = {}
        for name in self._usable:
            self._asked_backend = name
            read[name] = self.ask("0", "readable", name)
        self._asked_backend = ""
        photos = [photo for sample in samples for photo in sample.photos]
        kept = []
        for sample, places in with_indices(samples):
            _, common = comparable_files(
                {name: own.intersection(places) for name, own in read.items()}
            )
            if common:
                kept.append(sample._replace(photos=tuple(photos[index] for index in common)))
        return kept

    def take(self, samples: Sequence[Sample]) -> None:
        """Send the samples to all processes."""
        self._samples = samples
        photos = [photo for sample in samples for photo in sample.photos]
        self.ask_all(self.names, "take", photos)

    def cells(self, contexts: Sequence[Context], outputs: Sequence[Output]) -> list[Cell]:
        """List the kinds of work. Only JPEGs are reduced in the decoder."""
        found = []
        for sample, context in product(self._samples, contexts):
            if self._threads == 1 and context != "one" and "one" in contexts:
                continue  # one thread or process is the same as "one"
            reduces: Sequence[Reduce] = REDUCES if sample.format == "jpeg" else (1,)
            for reduce, output in product(reduces, outputs):
                # Converting to another output costs all backends the same: measure it only once.
                if output == outputs[0] or (context == contexts[0] and sample.size == "medium"):
                    found.append(Cell(sample.format, reduce, sample.size, output, context))
        return found

    def contest(self, cell: Cell, turn: float) -> Contest:
        """Set up the comparison of the backends at one kind of work."""
        sample, places = next(
            (one, places)
            for one, places in with_indices(self._samples)
            if (one.format, one.size) == (cell.format, cell.size)
        )
        threads = self._threads if cell.context == "threads" else 1
        workers = self.names if cell.context == "processes" else self.names[:1]
        turn *= _LONGER_WITH_THREADS if threads > 1 else 1
        one_pass = sample.pixels / _PIXELS_PER_S  # until it has been measured
        usual = Measurement(
            "threads" if threads > 1 else "decode",
            cell.format,
            cell.reduce,
            threads=threads,
            output=str(cell.output),
        )

        def time_one(name: str) -> float | None:
            nonlocal one_pass
            passes = threads * max(1, round(turn / one_pass / threads))
            self._asked_backend = name
            work = replace(usual, backend=name), [*places] * passes
            seconds = self.ask_all(workers, "seconds", *work).values()
            if None in seconds:  # it does not read these files
                return None
            one_pass = fmean(seconds) / passes
            return one_pass

        names = sort_by_default(self.readers(cell.format, cell.reduce), cell.format, cell.reduce)
        return Contest(names, time_one, max(turn, one_pass))


def _eligible_names() -> list[str]:
    """Return the backends that may take part: other processes cannot load the caller's classes."""
    off = set(_selection.disabled())
    if "torch" not in sys.modules:
        off.update(_NEED_PYTORCH)
    return [
        name
        for name in registry.names()
        if name not in off and isinstance(registry.entry(name).target, str)
    ]
