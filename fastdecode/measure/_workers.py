"""The fresh processes in which backends decode while they are timed."""

from __future__ import annotations

import gc
import importlib
import os
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fastdecode import _selection, registry
from fastdecode._pixels import converter
from fastdecode._process import Child
from fastdecode.api import decode
from fastdecode.errors import BackendUnavailable, FastDecodeError, StoreError
from fastdecode.measure import _check
from fastdecode.measure._check import backend_argument
from fastdecode.measure._timing import cpu_seconds, drain, family, no_garbage_collection
from fastdecode.measure.result import AUTOMATIC

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

    from fastdecode.measure._check import Finding
    from fastdecode.measure._collection import Photo
    from fastdecode.measure.result import Measurement
    from fastdecode.types import Buffer, Format, Image, Reduce

_STATUS = "/proc/{}/status"
_LARGE = 1_000_000  # pixels: decoding such an image takes so long that no warm-up is needed

WORKER = f"{__name__}:Worker"
BATCH = 32
_OPEN_FILES = 8192


class Processes:
    """One process per name. One that fails is removed, and `on_loss` gets its name and error."""

    def __init__(
        self,
        target: str,
        arguments: Mapping[str, Sequence[Any]],
        on_loss: Callable[[str, Exception], object],
    ) -> None:
        self._target = target
        self._arguments = arguments
        self._on_loss = on_loss
        self._children: dict[str, Child] = {}
        self.start(*arguments)

    def start(self, *names: str) -> None:
        """Start processes, and wait until they have imported their libraries or failed."""
        try:
            for name in names:
                self._children[name] = Child(self._target, *self._arguments[name])
            for name in names:  # they import their libraries in parallel
                self._receive(name)
        except BaseException:  # Ctrl-C must not leave processes behind
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """The names whose processes have not failed."""
        return tuple(self._children)

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method in one process; return None if the process has failed or fails now."""
        return self.ask_all([name], method, *arguments).get(name)

    def ask_all(self, names: Iterable[str], method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method in several processes at once; return the answers by name."""
        here = [name for name in names if name in self._children]
        asked = [name for name in here if self._send(name, method, *arguments)]
        answers = {name: self._receive(name) for name in asked}
        return {name: value for name, (good, value) in answers.items() if good}

    def ask_in_turn(
        self, names: Sequence[str], chance: random.Random, method: str, *arguments: Any
    ) -> dict[str, Any]:
        """Call a method in one process after another, in random order: a round."""
        answers: dict[str, Any] = {}
        for name in chance.sample(names, len(names)):
            answers |= self.ask_all([name], method, *arguments)
        return answers

    def end(self, name: str) -> None:
        """End one process."""
        self._children.pop(name).close()

    def close(self) -> None:
        """End all processes."""
        for child in self._children.values():
            child.close_pipes()  # tell all of them first, so that they end in parallel
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

    def _send(self, name: str, method: str, *arguments: Any) -> bool:
        try:
            self._children[name].send(method, *arguments)
        except Exception as error:  # the message cannot be pickled, or the pipe is broken
            self._remove(name, error)
            return False
        return True

    def _receive(self, name: str) -> tuple[bool, Any]:
        """Wait for an answer; return (False, None) if the process fails."""
        try:
            return True, self._children[name].receive()
        except Exception as error:  # the process has raised an error, or has died
            self._remove(name, error)
            return False, None

    def _remove(self, name: str, error: Exception) -> None:
        self.end(name)
        self._on_loss(name, error)


class Work:
    """The work on each image in one configuration."""

    def __init__(
        self, task: Measurement, photos: Sequence[Photo], registered: Mapping[str, str]
    ) -> None:
        self.task = task
        self.photos = photos
        self._registered = registered
        self._backend = backend_argument(task.backend)
        self._reduce: Any = task.reduce
        self._finish = _finisher(task)

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_work, (self.task, self.photos, self._registered)

    def read(self, index: int) -> Buffer:
        """Read an image from its file or store."""
        return self.photos[index].read()

    def process(self, data: Buffer) -> Any:
        """Decode an image and convert it to the output; this is timed."""
        return self._finish(decode(data, self._reduce, backend=self._backend))

    def choice(self, index: int) -> str:
        """Return the backend that is tried first for an image; empty if there is none."""
        want = _selection.Want("RGB", self._reduce, strict=False, complete=True)
        try:
            return _selection.first(self._backend, self.photos[index].header, want).name
        except FastDecodeError:  # the check reports the reason
            return ""


def _make_work(task: Measurement, photos: Sequence[Photo], registered: Mapping[str, str]) -> Work:
    """Create a `Work` in a DataLoader's worker; a spawned one must first register the backends."""
    _register(registered)
    return Work(task, photos, registered)


def _register(backends: Mapping[str, str]) -> None:
    for name, target in backends.items():
        registry.register(name, target, replace=True)


def _finisher(task: Measurement) -> Callable[[Image], Any]:
    """Return the function that turns decoded pixels into the output."""
    size = task.size
    if not size:
        output: Any = task.output
        return converter(output)
    import torch

    from fastdecode.measure._pipelines import MEAN, STD

    mean = torch.tensor(MEAN).view(3, 1, 1)
    deviation = torch.tensor(STD).view(3, 1, 1)

    def prepare(image: Image) -> Any:
        pixels = torch.from_numpy(image).permute(2, 0, 1)[None]
        resized = torch.nn.functional.interpolate(
            pixels, size=(size, size), mode="bilinear", antialias=True
        )
        return resized[0].float().div_(255).sub_(mean).div_(deviation)

    return prepare


def peak_mb(pid: int | None = None) -> float:
    """Return the peak resident memory of a process in 10^6 bytes; 0 if unknown.

    On Linux, ``getrusage`` would be wrong: its value is at least the memory that the parent had
    when it started this process. Windows has neither of the two sources.
    """
    try:
        lines = Path(_STATUS.format(pid or "self")).read_text().splitlines()
    except OSError:
        return 0.0 if pid else _peak_from_getrusage()
    kib = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), "0")
    return int(kib) * 1024 / 1e6


def _peak_from_getrusage() -> float:
    try:
        import resource
    except ImportError:
        return 0.0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


class BlockTimes(NamedTuple):
    """The times of one block, in seconds."""

    # per image, in the order of the block if there is one thread; empty for a pipeline, whose
    # images cannot be timed one by one
    calls: tuple[float, ...]
    # wall-clock and CPU time of the whole block
    wall: float
    cpu: float
    reading: float = 0.0  # the part of `calls` that went into reading files
    peak_mb: float = 0.0  # peak memory so far, including workers


class InProcess:
    """Decodes in this process, from memory or files, in one thread or a pool of threads."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._reading = 0.0
        task = work.task
        pooled = task.protocol == "threads"
        self._pool = _pool(task.threads, resizes=bool(task.size)) if pooled else None
        one_torch_thread(resizes=bool(task.size))

    def choices(self) -> list[str]:
        """Return the backend that is tried first for each image in this protocol."""
        run = self._pool.map if self._pool else map
        return list(run(self._work.choice, range(len(self._work.photos))))

    def time(self, block: Sequence[int]) -> BlockTimes:
        """Time a block. Each thread of a pool takes the next image when it is done with one."""
        work, process = self._work, self._work.process
        photos = work.photos
        smallest = min(block, key=lambda index: photos[index].size)
        reads = work.task.protocol == "file"
        # A store may return a view whose data is not in memory yet.
        items: deque[Any] = deque(block if reads else (bytes(work.read(n)) for n in block))
        self._reading = 0.0
        with no_garbage_collection():
            if photos[smallest].pixels < _LARGE:  # the caches hold data of another backend
                process(work.read(smallest))
            cpu, start = time.process_time(), time.perf_counter()
            calls = self._run(items, self._read_and_process if reads else process)
            wall = time.perf_counter() - start if self._pool else sum(calls)
            cpu = time.process_time() - cpu
        return BlockTimes(tuple(calls), wall, cpu, self._reading, peak_mb())

    def _run(self, items: deque[Any], work: Callable[[Any], Any]) -> list[float]:
        if self._pool is None:
            return drain(items, work)
        threads = [self._pool.submit(drain, items, work) for _ in range(self._work.task.threads)]
        return [call for thread in threads for call in thread.result()]

    def _read_and_process(self, index: int) -> None:
        start = time.perf_counter()
        data = self._work.read(index)
        self._reading += time.perf_counter() - start
        self._work.process(data)


@cache
def _pool(threads: int, *, resizes: bool) -> ThreadPoolExecutor:
    """Return a persistent pool of threads, like that of `decode_batch`."""
    return ThreadPoolExecutor(threads, initializer=partial(one_torch_thread, resizes=resizes))


def one_torch_thread(*, resizes: bool) -> None:
    """Make PyTorch resize in the calling thread: the protocol sets the number of threads."""
    if resizes:
        import torch

        torch.set_num_threads(1)


class Batch(NamedTuple):
    """A batch from a DataLoader's worker: images, their times, and the worker's usage so far."""

    images: Any
    calls: list[float]
    choices: list[str]
    worker: int
    cpu: float
    peak_mb: float


class Images:
    """The dataset: files that the DataLoader's workers read and decode."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __len__(self) -> int:
        return len(self._work.photos)

    def __getitems__(self, indexes: Sequence[int]) -> Batch:
        """Make a batch. A negative index asks for the backend that would be tried first."""
        choices = [self._work.choice(~index) for index in indexes if index < 0]
        images, calls = [], []
        for index in (index for index in indexes if index >= 0):
            start = time.perf_counter()
            images.append(self._work.process(self._work.read(index)))
            calls.append(time.perf_counter() - start)
        batch = self._batch(images)
        return Batch(batch, calls, choices, os.getpid(), time.process_time(), peak_mb())

    def _batch(self, images: list[Any]) -> Any:
        import torch

        if self._work.task.size and images:
            return torch.stack(images)  # as the default collation does with tensors
        if self._work.task.output == "array":
            # Tensors go through shared memory; arrays would be copied through a pipe.
            return [torch.from_numpy(image) for image in images]
        return images


class Loader:
    """A DataLoader with persistent worker processes."""

    def __init__(self, work: Work) -> None:
        data: Any = importlib.import_module("torch.utils.data")
        self._work = work
        self._order: list[int] = []
        self._cpu: dict[int, float] = {}
        self._peak: dict[int, float] = {}
        _allow_open_files()
        self._loader = data.DataLoader(
            Images(work),
            batch_size=BATCH,
            sampler=self._order,
            num_workers=work.task.workers,
            persistent_workers=True,
            collate_fn=_identity,
            worker_init_fn=_start_worker,
        )

    def choices(self) -> list[str]:
        """Return the backend that is tried first for each image in a worker."""
        indexes = [~index for index in range(len(self._work.photos))]
        return [name for batch in self._pass(indexes) for name in batch.choices]

    def time(self, block: Sequence[int]) -> BlockTimes:
        """Time one pass over a block, from the request for the first batch to the last batch."""
        before = dict(self._cpu)
        with no_garbage_collection():
            cpu, start = time.process_time(), time.perf_counter()
            calls = [call for batch in self._pass(block) for call in batch.calls]
            wall = time.perf_counter() - start
            cpu = time.process_time() - cpu
        cpu += sum(now - before.get(worker, now) for worker, now in self._cpu.items())
        return BlockTimes(tuple(calls), wall, cpu, peak_mb=peak_mb() + sum(self._peak.values()))

    def _pass(self, order: Sequence[int]) -> Iterable[Batch]:
        """Yield the batches of the files in this order, without their images."""
        self._order[:] = order
        task = self._work.task
        for batch in self._loader:
            if task.output == "array" and not task.size:
                [image.numpy() for image in batch.images]
            self._cpu[batch.worker] = batch.cpu
            self._peak[batch.worker] = batch.peak_mb
            yield batch._replace(images=None)


def _identity(batch: Batch) -> Batch:
    return batch


def _start_worker(_number: int) -> None:
    gc.disable()  # as in all timed code


def _allow_open_files() -> None:
    """Raise the limit on open files: each tensor that is sent between processes needs one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Epochs:
    """A pipeline of the protocol ``train``, with persistent workers."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._block: Sequence[int] = ()
        self._loader: Iterable[Any] = ()
        importlib.import_module("fastdecode.measure._pipelines")  # all processes import in parallel
        _allow_open_files()

    def choices(self) -> list[str]:
        """Return an empty list: a pipeline chooses no backend."""
        return []

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
        peaks = [peak_mb(pid) for pid in family(this) if pid != this]
        return BlockTimes((), wall, cpu, peak_mb=peak_mb() + sum(peaks))

    def _make_loader(self, block: Sequence[int]) -> Iterable[Any]:
        from fastdecode.measure._pipelines import MAKERS, Setup

        task, photos = self._work.task, self._work.photos
        samples = [(photos[index].source, index) for index in block]
        name: Any = task.backend
        return MAKERS[name](Setup(samples, task.batch, task.workers, task.size))


class Worker:
    """Times one configuration, or those that are passed with each call, on some photos."""

    def __init__(
        self,
        registered: Mapping[str, str],
        photos: Sequence[Photo] = (),
        task: Measurement | None = None,
    ) -> None:
        _register(registered)
        self._registered = registered
        self._task: Any = task
        self._timers: dict[object, InProcess | Loader | Epochs] = {}
        self.take(photos)
        if task is not None:
            self._timer(task)

    def usable(self, names: Sequence[str]) -> dict[str, dict[Format, set[Reduce]]]:
        """Load backends; return the formats and reductions of those that are exact and work."""
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

    def take(self, photos: Sequence[Photo]) -> None:
        """Set the photos to decode from now on."""
        self._photos = photos
        self._timers.clear()

    def readable(self, name: str) -> set[int]:
        """Decode every image once; return the indices of those that a backend reads."""
        return {index for index, photo in enumerate(self._photos) if _can_read(name, photo)}

    def digest(self, index: int) -> bytes | None:
        """Return the digest of a file's reference pixels; None if nothing reads it."""
        try:
            data = bytes(self._photos[index].read())
        except (OSError, StoreError):  # the backends report this file as unreadable
            return None
        return _check.reference_digest(data, self._task.reduce)

    def examine(self, index: int, right: bytes | None) -> Finding:
        """Decode a file and compare its pixels."""
        return _check.examine(self._photos[index], self._task.reduce, self._task.backend, right)

    def warm_up(self, block: Sequence[int]) -> str:
        """Run a block untimed; return the backend that `decode` tries first for most images."""
        timer = self._timer(self._task)
        timer.time(block)
        if self._task.backend != AUTOMATIC:
            return ""
        choices = Counter(filter(None, timer.choices()))
        return choices.most_common(1)[0][0] if choices else ""

    def time(self, block: Sequence[int]) -> BlockTimes:
        """Time a block."""
        return self._timer(self._task).time(block)

    def seconds(self, task: Measurement, block: Sequence[int]) -> float | None:
        """Time a block in any configuration; return None if it cannot read these images."""
        try:
            return self._timer(task).time(block).wall
        except FastDecodeError:
            return None

    def _timer(self, task: Measurement) -> InProcess | Loader | Epochs:
        if task.key not in self._timers:
            kinds: dict[str, type[InProcess | Loader | Epochs]] = {
                "loader": Loader,
                "train": Epochs,
            }
            work = Work(task, self._photos, self._registered)
            self._timers[task.key] = kinds.get(task.protocol, InProcess)(work)
        return self._timers[task.key]


def _can_read(name: str, photo: Photo) -> bool:
    try:
        decode(photo.read(), backend=name)
    except FastDecodeError:
        return False
    return True
