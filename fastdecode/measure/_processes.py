"""The fresh processes in which backends and pipelines work while they are timed."""

from __future__ import annotations

import gc
import importlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from fastdecode._backends import registry
from fastdecode._decode.api import decode
from fastdecode._system.process import Child
from fastdecode.measure import _check
from fastdecode.measure.result import OWN

if TYPE_CHECKING:
    from fastdecode.measure._check import Examination
    from fastdecode.measure._collection import Photo
    from fastdecode.measure.result import Measurement
    from fastdecode.types import BackendInfo, Header, Reduce

DECODER = f"{__name__}:Decoder"
TRAINER = f"{__name__}:Trainer"

PATIENCE_S = 120.0
"""A process that does not answer for so long is killed, and removed like one that crashed."""

_PROC = Path("/proc")
_LARGE = 1_000_000  # pixels: decoding such an image takes so long that no warm-up is needed


class Processes:
    """One process per name. One that fails is removed, and `on_loss` gets its name and error."""

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
            self._answers(arguments)  # they import their libraries in parallel
        except BaseException:  # Ctrl-C must not leave processes behind
            self.close()
            raise

    def ask(self, names: Iterable[str], method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method in several processes at once; return the answers by name."""
        asked = [name for name in names if name in self._children]
        for name in asked:
            try:
                self._children[name].send(method, *arguments)
            except Exception as error:  # the message cannot be pickled, or the pipe is broken
                self._remove(name, error)
        return self._answers(asked)

    def close(self) -> None:
        """End all processes."""
        for child in self._children.values():
            child.close_pipes()  # tell all of them first, so that they end in parallel
        while self._children:
            self._children.popitem()[1].close()

    def _answers(self, names: Iterable[str]) -> dict[str, Any]:
        """Wait for the answers of those that do not fail."""
        found = {}
        for name in [name for name in names if name in self._children]:
            late = threading.Timer(PATIENCE_S, self._children[name].kill)
            late.daemon = True
            late.start()
            try:
                found[name] = self._children[name].receive()
            except Exception as error:  # it has raised an error, has died, or was killed
                too_late = TimeoutError(f"no answer within {PATIENCE_S:.0f} s")
                self._remove(name, too_late if late.finished.is_set() else error)
            finally:
                late.cancel()
        return found

    def _remove(self, name: str, error: Exception) -> None:
        self._children.pop(name).close()
        self._on_loss(name, error)


class BlockTimes(NamedTuple):
    """The times of one block of images, in seconds: by the clock, and of all processors."""

    wall: float
    cpu: float


class Decoder:
    """Decodes photos with one backend: checks the pixels, and times blocks from memory."""

    def __init__(
        self, registered: Mapping[str, str], photos: Sequence[Photo], backend: str
    ) -> None:
        _register(registered)
        self._photos, self._name = photos, backend
        if backend != OWN:
            registry.load(backend)  # `BackendUnavailable`

    def describe(self) -> BackendInfo:
        """Return what the backend declares."""
        return registry.describe(self._name)

    def examine(self, index: int, reduce: Reduce) -> Examination:
        """Decode a file and compare its pixels."""
        return _check.examine(self._photos[index], reduce, self._name)

    def time(self, block: Sequence[int], reduce: Reduce) -> BlockTimes:
        """Time the decoding of a block, image after image: a library is called alone."""
        photos = [self._photos[index] for index in block]
        # A store may return a view whose data is not in memory yet.
        items = [(bytes(photo.read()), photo.header) for photo in photos]
        smallest = min(range(len(block)), key=lambda at: photos[at].pixels)
        with no_garbage_collection():
            if photos[smallest].pixels < _LARGE:  # the caches hold data of another process
                self._decode(*items[smallest], reduce)
            cpu, start = time.process_time(), time.perf_counter()
            for data, header in items:
                self._decode(data, header, reduce)
            return BlockTimes(time.perf_counter() - start, time.process_time() - cpu)

    def _decode(self, data: bytes, header: Header, reduce: Reduce) -> object:
        if self._name == OWN:
            return decode(data, reduce)
        return _check.decode_alone(data, header, reduce, self._name)


class Trainer:
    """Makes training batches with one pipeline, with persistent workers, and times its epochs."""

    def __init__(
        self, registered: Mapping[str, str], photos: Sequence[Photo], task: Measurement
    ) -> None:
        _register(registered)
        self._photos, self._task = photos, task
        self._block: Sequence[int] = ()
        self._loader: Iterable[Any] = ()
        importlib.import_module("fastdecode.measure._pipelines")  # all processes import in parallel

    def time(self, block: Sequence[int]) -> BlockTimes:
        """Time an epoch of a block, from the request for the first batch to the last batch."""
        if block != self._block:
            self._block, self._loader = block, self._make_loader(block)
        images, this = 0, os.getpid()
        with no_garbage_collection():
            cpu, start = cpu_seconds(this), time.perf_counter()
            for batch, _ in self._loader:
                images += len(batch)
            wall = time.perf_counter() - start
            cpu = cpu_seconds(this) - cpu
        if images != len(block):
            raise RuntimeError(f"the pipeline returned {images} of {len(block)} images")
        return BlockTimes(wall, cpu)

    def _make_loader(self, block: Sequence[int]) -> Iterable[Any]:
        from fastdecode.measure._pipelines import MAKERS, Setup

        samples = [(self._photos[index].source, index) for index in block]
        setup = Setup(samples, self._task.batch, self._task.workers)
        return MAKERS[cast("Any", self._task.backend)](setup)


def _register(backends: Mapping[str, str]) -> None:
    for name, target in backends.items():
        registry.register(name, target, replace=True)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Disable the garbage collector while timing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def family(pid: int) -> Iterator[int]:
    """Yield a process and its living descendants; only the process where there is no /proc."""
    yield pid
    for task in (_PROC / str(pid) / "task").glob("*"):
        with suppress(OSError):  # the thread has ended in the meantime
            for child in (task / "children").read_text().split():
                yield from family(int(child))


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its children, also ended ones; 0 if unknown."""
    ticks = 0
    for member in family(pid):
        with suppress(OSError):
            fields = (_PROC / str(member) / "stat").read_text().rpartition(")")[2].split()
            ticks += sum(int(field) for field in fields[11:15])  # own and waited-for children's
    return ticks / os.sysconf("SC_CLK_TCK") if ticks else 0.0
