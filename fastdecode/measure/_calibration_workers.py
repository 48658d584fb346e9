"""The processes that decode while they are timed, by name; nothing else has happened in them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from fastdecode import registry
from fastdecode._pixels import converter
from fastdecode._process import Child
from fastdecode.api import decode
from fastdecode.errors import BackendUnavailable, FastDecodeError
from fastdecode.measure._timing import drain, no_garbage_collection

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from fastdecode.measure._samples import Sample
    from fastdecode.types import Format, Output, Reduce

__all__ = ["Members", "Worker"]

_LARGE = 1_000_000  # pixels: a decode that long needs no warm-up


class Members:
    """One process for each name; `on_loss` is told who left, and over which error."""

    def __init__(
        self,
        target: str,
        arguments: Mapping[str, Sequence[Any]],
        on_loss: Callable[[str, Exception], object],
    ) -> None:
        self._on_loss = on_loss
        self._children: dict[str, Child] = {}
        try:
            for name, own in arguments.items():
                self._children[name] = Child(target, *own)
            for name in arguments:  # meanwhile they import their libraries side by side
                self.receive(name)
        except BaseException:  # Ctrl-C: leave none of them behind
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """Who is left."""
        return tuple(self._children)

    def send(self, name: str, method: str, *arguments: Any) -> bool:
        """Call a method of one without waiting; False if it is lost over that."""
        try:
            self._children[name].send(method, *arguments)
        except Exception as error:  # what cannot be pickled, or a pipe without an end
            self._lose(name, error)
            return False
        return True

    def receive(self, name: str) -> tuple[bool, Any]:
        """Wait for the answer of one; (False, None) if it is lost over that."""
        try:
            return True, self._children[name].receive()
        except Exception as error:  # whatever the library did to the process
            self._lose(name, error)
            return False, None

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method of one; None if it is lost over that, or was before."""
        return self.ask_all([name], method, *arguments).get(name)

    def ask_all(self, names: Iterable[str], method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of several side by side; return the answers of those that stay."""
        here = [name for name in names if name in self._children]
        asked = [name for name in here if self.send(name, method, *arguments)]
        answers = {name: self.receive(name) for name in asked}
        return {name: value for name, (good, value) in answers.items() if good}

    def end(self, name: str) -> None:
        """Let one go."""
        self._children.pop(name).close()

    def close(self) -> None:
        """End all processes."""
        for child in self._children.values():
            child.hang_up()  # first all, so that they end side by side
        while self._children:
            self._children.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _lose(self, name: str, error: Exception) -> None:
        self.end(name)
        self._on_loss(name, error)


class Worker:
    """Holds the backends and the samples of one process."""

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
        """Decode a sample, shared by some threads; return the seconds of one pass on average."""
        items = self._samples[sample].items
        convert = converter(output)

        def work(item: bytes) -> None:
            convert(decode(item, reduce, backend=name))

        if self._samples[sample].pixels < _LARGE * len(items):
            work(items[0])
        todo = deque(items * (repeats * threads))
        with no_garbage_collection():
            start = time.perf_counter()
            if threads == 1:
                drain(todo, work)
            else:
                self._in_threads(work, todo, threads)
            return (time.perf_counter() - start) / (repeats * threads)

    def _in_threads(self, work: Callable[[bytes], None], todo: deque[bytes], threads: int) -> None:
        """Share the work among threads that last, as those of `decode_batch` do."""
        if threads not in self._pools:
            self._pools[threads] = ThreadPoolExecutor(threads)
        futures = [self._pools[threads].submit(drain, todo, work) for _ in range(threads)]
        for future in futures:
            future.result()


def _reads(name: str, item: bytes) -> bool:
    try:
        decode(item, backend=name)
    except FastDecodeError:
        return False
    return True
