"""The fresh processes in which backends and pipelines work: their pixels are checked, and timed."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from fastdecode._backends import registry, selection
from fastdecode._decode.api import decode
from fastdecode._decode.engine import DecodeRequest, decode_unchecked
from fastdecode._system.process import Child, ChildDied
from fastdecode.errors import FastDecodeError, without_advice
from fastdecode.measure.result import OWN, PILLOW

if TYPE_CHECKING:
    from fastdecode.measure._collection import Photo
    from fastdecode.measure.result import Measurement
    from fastdecode.types import BackendInfo, Header, Image, Reduce

DECODER = f"{__name__}:Decoder"
TRAINER = f"{__name__}:Trainer"

PATIENCE_S = 120.0
"""A process that does not answer for so long is killed, and removed like one that crashed."""

_PROC = Path("/proc")
_LARGE = 1_000_000  # pixels: decoding such an image takes so long that no warm-up is needed


class Examination(NamedTuple):
    """The result of one backend for one file."""

    refused: str = ""  # why it did not decode the file; empty if it did
    chosen: str = ""  # the backend that `decode` tries first
    # the backend does not reduce this JPEG in its decoder: the package averages the full image,
    # whose values differ by design
    averaged: bool = False
    differs: bool = False  # the pixels are wrong: not those of the reference


def backend_argument(name: str) -> str | None:
    """Return the ``backend`` argument of `decode` for a name: None for the automatic choice."""
    return None if name == OWN else name


def decode_alone(data: bytes, header: Header, reduce: Reduce, name: str) -> Image:
    """Decode with a library alone: without what `decode` checks, if it can do without repairs."""
    try:
        choice = selection.first(name, header, _want(reduce))
        request = DecodeRequest(data, header, _want(reduce), None, 1, None, name)
        return decode_unchecked(choice, request)
    except FastDecodeError:  # such as a JPEG without an end marker, which `decode` adds for some
        return decode(data, reduce, backend=name)


def examine(photo: Photo, reduce: Reduce, backend: str) -> Examination:
    """Decode a file once, and compare the pixels with the reference."""
    named = backend_argument(backend)
    try:
        data = bytes(photo.read())
        image = decode(data, reduce, backend=named)
        choice = selection.first(named, photo.header, _want(reduce))
        averaged = photo.header.format == "jpeg" and choice.reduce != reduce
        if averaged:  # it is right if the full image is
            image = decode(data, backend=named)
    except Exception as error:  # a broken backend must not end the run
        return Examination(refused=reason(error))
    wrong = _difference(image, _reference(data, 1 if averaged else reduce))
    # CMYK becomes RGB by a formula that rounds; the contract of `decode` allows one level.
    tolerance = 1 if photo.header.color == "cmyk" else 0
    return Examination("", choice.name, averaged, wrong > tolerance)


def reason(error: Exception) -> str:
    """Return the reason of a refusal in words."""
    if isinstance(error, (FastDecodeError, ChildDied)):
        return without_advice(error)
    if "Original Traceback" in str(error):  # from PyTorch's worker process: the error comes last
        return str(error).strip().splitlines()[-1]
    return f"{type(error).__name__}: {error}"


def _want(reduce: Reduce) -> selection.Want:
    return selection.Want("RGB", reduce, strict=False, complete=True)


def _reference(data: bytes, reduce: Reduce) -> Image | None:
    """Return Pillow's pixels, else those of the automatic choice, else None."""
    for backend in (PILLOW, None):
        try:
            return decode(data, reduce, backend=backend)
        except FastDecodeError:  # the next one may read it; if none does, nothing is compared
            continue
    return None


def _difference(image: Image, reference: Image | None) -> int:
    """Return the largest difference of a value, in levels; 255 if the shapes differ."""
    if reference is None:
        return 0
    if image.shape != reference.shape:
        return 255
    # Subtract the smaller from the larger: a signed type would need more memory.
    return int((np.maximum(image, reference) - np.minimum(image, reference)).max())


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
        return examine(self._photos[index], reduce, self._name)

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
        return decode_alone(data, header, reduce, self._name)


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
        self._torch: Any = sys.modules["torch"]

    def time(self, block: Sequence[int]) -> BlockTimes:
        """Time an epoch of a block, from the request for the first batch to the last batch."""
        if block != self._block:
            self._block, self._loader = block, self._make_loader(block)
        images, this = 0, os.getpid()
        with no_garbage_collection():
            cpu, start = cpu_seconds(this), time.perf_counter()
            for batch, _ in self._loader:
                images += len(batch)
            if self._task.backend == "device":
                self._torch.cuda.synchronize()  # the epoch ends when the last batch is there
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
