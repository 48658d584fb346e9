"""The CPU's backends: what to measure, in which processes, and a ranking out of it."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import product
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from fastdecode import registry, selection
from fastdecode.calibration.budget import Budget
from fastdecode.calibration.race import Contest, run
from fastdecode.calibration.samples import Sample, built_in, common, grouped
from fastdecode.child import Child, ChildDied
from fastdecode.cores import cpu_model, usable_cores
from fastdecode.errors import FastDecodeError
from fastdecode.installation import libraries
from fastdecode.ranking import Cell, Ranking, known_order
from fastdecode.types import CONTEXTS, OUTPUTS, REDUCES

if TYPE_CHECKING:
    import os

    from fastdecode.api import Data
    from fastdecode.types import Context, Format, Output, Reduce, SizeClass

__all__ = ["FULL_S", "QUICK_S", "measure"]

FULL_S = 18.0
QUICK_S = 2.2
_MOST_PROCESSES = 16
_TURN_S = 0.006  # between two looks at the clock, about
_QUICK_TURN_S = 0.002
_LONGER_WITH_THREADS = 3  # the interpreter lets another thread have a turn each 5 ms
_PIXELS_PER_S = 150e6  # a guess, to choose the number of passes of one turn
_NEED_PYTORCH = ("torchvision", "torchcodec")
_BUILT_IN: tuple[tuple[Format, tuple[SizeClass, ...]], ...] = (
    ("jpeg", ("small", "medium", "large", "huge")),
    ("png", ("medium", "large")),
    ("webp", ("medium", "large")),
    ("jpeg2000", ("medium",)),
)


def measure(
    samples: Iterable[Data | str | os.PathLike[str]] | None,
    *,
    contexts: Sequence[Context],
    outputs: Sequence[Output],
    seconds: float,
    notify: Callable[[float], object],
) -> Ranking:
    """Measure the CPU's backends; what all this means, and raises, says `calibrate`."""
    _check(contexts, CONTEXTS, "contexts")
    _check(outputs, OUTPUTS, "outputs")
    own = None if samples is None else grouped(samples)
    clock = Budget(seconds)
    with ExitStack() as stack:
        bench = _Bench(stack, contexts)
        quick = seconds < FULL_S / 2
        bench.take(bench.comparable(own) if own else built_in(_wanted(bench, quick=quick)))
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
        dt.datetime.now(tz=dt.timezone.utc).isoformat(timespec="seconds"),
        _disturbance(contests),
    )


def _disturbance(contests: Mapping[Cell, Contest]) -> float:
    """Say how busy the machine was with the work of others; threads hinder one another, too."""
    alone = [contest for cell, contest in contests.items() if cell.context == "one"]
    found = [share for contest in alone for share in contest.disturbances()]
    return round(median(found), 4) if found else 0.0


def _check(given: Sequence[str], known: Sequence[str], name: str) -> None:
    if isinstance(given, str) or not given or not all(word in known for word in given):
        raise ValueError(f"{name} must be some of {', '.join(known)}, not {given!r}")


def _wanted(bench: _Bench, *, quick: bool) -> list[tuple[Format, SizeClass]]:
    """List what to make; where only one backend reads a format, there is nothing to find out."""
    return [
        (format, size)
        for format, sizes in _BUILT_IN
        if len(bench.readers(format, 1)) > 1
        for size in sizes
        if not (quick and (size == "huge" or (size == "large" and format != "jpeg")))
    ]


class _Bench:
    """The processes that decode, and what they hold."""

    def __init__(self, stack: ExitStack, contexts: Sequence[Context]) -> None:
        cores = usable_cores()
        self._threads = cores
        wide = "processes" in contexts and cores > 1
        extra = registry.targets()
        self._workers = [
            stack.enter_context(Child("fastdecode.calibration.worker:Worker", extra))
            for _ in range(min(cores, _MOST_PROCESSES) if wide else 1)
        ]
        _gather(self._workers)
        self._usable: dict[str, dict[Format, set[Reduce]]] = _ask(self._workers, "usable", _names())
        self._samples: Sequence[Sample] = ()

    def readers(self, format: Format, reduce: Reduce) -> list[str]:
        """Name those that read a format, and reduce it in the decoder if it is a JPEG."""
        return [
            name
            for name, formats in self._usable.items()
            if format in formats and (format != "jpeg" or reduce in formats[format])
        ]

    def comparable(self, samples: Sequence[Sample]) -> list[Sample]:
        """Leave out what only few of the backends read."""
        self.take(samples)
        read: dict[str, list[set[int]]] = {}
        for name in self._usable:
            with _naming(name):
                read[name] = self._workers[0].ask("readable", name)
        kept = [
            common(sample, {name: found[index] for name, found in read.items()})
            for index, sample in enumerate(samples)
        ]
        return [sample for sample in kept if sample]

    def take(self, samples: Sequence[Sample]) -> None:
        """Hand the samples to all processes."""
        self._samples = samples
        _ask(self._workers, "take", samples)

    def cells(self, contexts: Sequence[Context], outputs: Sequence[Output]) -> list[Cell]:
        """List the kinds of work. Only a JPEG is reduced by its decoder."""
        found = []
        for sample, context in product(self._samples, contexts):
            if self._threads == 1 and context != "one" and "one" in contexts:
                continue  # a crowd of one
            reduces: Sequence[Reduce] = REDUCES if sample.format == "jpeg" else (1,)
            for reduce, output in product(reduces, outputs):
                # Making another output costs every backend the same: one look at it is enough.
                if output == outputs[0] or (context == contexts[0] and sample.size == "medium"):
                    found.append(Cell(sample.format, reduce, sample.size, output, context))
        return found

    def contest(self, cell: Cell, turn: float) -> Contest:
        """Set up the comparison of the backends at one kind of work."""
        index = next(
            index
            for index, sample in enumerate(self._samples)
            if (sample.format, sample.size) == (cell.format, cell.size)
        )
        threads = self._threads if cell.context == "threads" else 1
        workers = self._workers if cell.context == "processes" else self._workers[:1]
        turn *= _LONGER_WITH_THREADS if threads > 1 else 1
        one_pass = self._samples[index].pixels / _PIXELS_PER_S  # until it is known better

        def time_one(name: str) -> float | None:
            nonlocal one_pass
            repeats = max(1, round(turn / one_pass / threads))
            work = (name, index, cell.reduce, cell.output, repeats, threads)
            for worker in workers:
                worker.send("time", *work)
            try:
                with _naming(name):
                    one_pass = fmean(_gather(workers))
            except FastDecodeError:  # it does not read these files: others do
                return None
            return one_pass

        names = known_order(self.readers(cell.format, cell.reduce), cell.format, cell.reduce)
        return Contest(names, time_one, max(turn, one_pass))


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Say which backend it was that crashed, and how to go on without it."""
    try:
        yield
    except ChildDied as error:
        raise RuntimeError(
            f"{name} crashed: {error}. To leave it out, set FASTDECODE_DISABLE={name}"
        ) from error


def _ask(workers: Sequence[Child], method: str, *arguments: Any) -> Any:
    """Call a method in all of them at once; return what the first says."""
    for worker in workers:
        worker.send(method, *arguments)
    return _gather(workers)[0]


def _gather(workers: Sequence[Child]) -> list[Any]:
    """Wait for all answers, and only then raise what went wrong: none may be left in a pipe."""
    answers = []
    errors = []
    for worker in workers:
        try:
            answers.append(worker.receive())
        except Exception as error:  # whatever it is, the others have answered too
            errors.append(error)
    if errors:
        raise errors[0]
    return answers


def _names() -> list[str]:
    """Name the backends that may take part."""
    off = set(selection.disabled())
    if "torch" not in sys.modules:
        off.update(_NEED_PYTORCH)
    return [name for name in registry.names() if name not in off]
