"""The process that decodes while it is timed: nothing else has happened in it."""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from fastdecode import registry
from fastdecode.api import decode
from fastdecode.errors import BackendUnavailable, FastDecodeError
from fastdecode.outputs import converter

if TYPE_CHECKING:
    from fastdecode.calibration.samples import Sample
    from fastdecode.types import Format, Output, Reduce

__all__ = ["Worker"]

_LARGE = 1_000_000  # pixels: a decode that long needs no warm-up


class Worker:
    """Holds the backends and the samples of one process.

    Parameters
    ----------
    extra : dict of str to str
        Backends that the parent registered, by name: ``"module:Class"``.
    """

    def __init__(self, extra: dict[str, str]) -> None:
        for name, target in extra.items():
            registry.register(name, target, replace=True)
        self._samples: Sequence[Sample] = ()
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def usable(self, names: Sequence[str]) -> dict[str, dict[Format, set[Reduce]]]:
        """Load backends; return what each that is exact and works here reads, and reduces."""
        found: dict[str, dict[Format, set[Reduce]]] = {}
        for name in names:
            try:
                backend = registry.load(name)
            except BackendUnavailable:
                continue
            if backend.exact:
                found[name] = {
                    format: {reduce for support in supports for reduce in support.reduces}
                    for format, supports in backend.supports.items()
                }
        return found

    def readable(self, name: str) -> list[set[int]]:
        """Decode everything once; return for each sample which of its items a backend reads."""
        return [
            {index for index, item in enumerate(sample.items) if _reads(name, item)}
            for sample in self._samples
        ]

    def take(self, samples: Sequence[Sample]) -> None:
        """Keep what `time` decodes."""
        self._samples = samples

    def time(
        self,
        name: str | None,
        sample: int,
        reduce: Reduce,
        output: Output,
        repeats: int,
        threads: int,
    ) -> float:
        """Decode a sample a number of times for each of so many threads, which share the work.

        Parameters
        ----------
        name : str or None
            The backend; None for the automatic choice.
        sample : int
            Which of the samples.
        reduce : {1, 2, 4, 8}
        output : {"array", "tensor", "pil"}
        repeats, threads : int

        Returns
        -------
        float
            Seconds that one pass over the sample took, on average: of the wall clock, divided by
            passes and threads.

        Raises
        ------
        FastDecodeError
            If the backend does not decode it.
        """
        items = self._samples[sample].items
        convert = converter(output)

        def work(todo: deque[bytes]) -> None:
            while True:
                try:
                    item = todo.popleft()
                except IndexError:  # another thread may have taken the last one
                    return
                convert(decode(item, reduce, backend=name))

        if self._samples[sample].pixels < _LARGE * len(items):
            work(deque(items[:1]))
        todo = deque(items * (repeats * threads))
        was_on = gc.isenabled()
        gc.disable()
        try:
            start = time.perf_counter()
            if threads == 1:
                work(todo)
            else:
                self._in_threads(work, todo, threads)
            return (time.perf_counter() - start) / (repeats * threads)
        finally:
            if was_on:
                gc.enable()

    def _in_threads(
        self, work: Callable[[deque[bytes]], None], todo: deque[bytes], threads: int
    ) -> None:
        """Share the work among threads that last, as those of `decode_batch` do."""
        if threads not in self._pools:
            self._pools[threads] = ThreadPoolExecutor(threads)
        futures = [self._pools[threads].submit(work, todo) for _ in range(threads)]
        for future in futures:
            future.result()


def _reads(name: str, item: bytes) -> bool:
    try:
        decode(item, backend=name)
    except FastDecodeError:
        return False
    return True
