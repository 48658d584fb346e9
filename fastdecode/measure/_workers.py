"""The processes that decode while they are timed; nothing else has happened in them."""

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
from fastdecode.measure._check import named
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
_LARGE = 1_000_000  # pixels: a decode that long needs no warm-up

WORKER = f"{__name__}:Worker"
BATCH = 32
_OPEN_FILES = 8192


class Members:
    """A process for each name; one that fails leaves, and `on_loss` is told who, and over what."""

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
        """Start some, and wait until they have imported their libraries, or have left."""
        try:
            for name in names:
                self._children[name] = Child(self._target, *self._arguments[name])
            for name in names:  # meanwhile they import their libraries side by side
                self._receive(name)
        except BaseException:  # Ctrl-C: leave none of them behind
            self.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """Who is left."""
        return tuple(self._children)

    def ask(self, name: str, method: str, *arguments: Any) -> Any:
        """Call a method of one; None if it is lost over that, or was before."""
        return self.ask_all([name], method, *arguments).get(name)

    def ask_all(self, names: Iterable[str], method: str, *arguments: Any) -> dict[str, Any]:
        """Call a method of several side by side; return the answers of those that stay."""
        here = [name for name in names if name in self._children]
        asked = [name for name in here if self._send(name, method, *arguments)]
        answers = {name: self._receive(name) for name in asked}
        return {name: value for name, (good, value) in answers.items() if good}

    def ask_in_turn(
        self, names: Sequence[str], chance: random.Random, method: str, *arguments: Any
    ) -> dict[str, Any]:
        """Call a method of one right after the other, in random order: a round."""
        answers: dict[str, Any] = {}
        for name in chance.sample(names, len(names)):
            answers |= self.ask_all([name], method, *arguments)
        return answers

    def end(self, name: str) -> None:
        """Let one go."""
        self._children.pop(name).close()

    def close(self) -> None:
        """End all processes."""
        for child in self._children.values():
            child.close_pipes()  # first all, so that they end side by side
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
        except Exception as error:  # what cannot be pickled, or a pipe without an end
            self._lose(name, error)
            return False
        return True

    def _receive(self, name: str) -> tuple[bool, Any]:
        """Wait for an answer; (False, None) if the process is lost over that."""
        try:
            return True, self._children[name].receive()
        except Exception as error:  # whatever the library did to the process
            self._lose(name, error)
            return False, None

    def _lose(self, name: str, error: Exception) -> None:
        self.end(name)
        self._on_loss(name, error)


class Work:
    """What is done with each image in one configuration."""

    def __init__(
        self, task: Measurement, photos: Sequence[Photo], registered: Mapping[str, str]
    ) -> None:
        self.task = task
        self.photos = photos
        self._registered = registered
        self._backend = named(task.backend)
        self._reduce: Any = task.reduce
        self._finish = _finisher(task)

    def __reduce__(self) -> tuple[Any, ...]:
        return _work_elsewhere, (self.task, self.photos, self._registered)

    def read(self, index: int) -> Buffer:
        """Read the file of an image, or ask its store for it."""
        return self.photos[index].read()

    def process(self, data: Buffer) -> Any:
        """Decode an image and make the output of it: this is what is timed."""
        return self._finish(decode(data, self._reduce, backend=self._backend))

    def choice(self, index: int) -> str:
        """Name the backend that is tried first for an image; empty if there is none."""
        want = _selection.Want("RGB", self._reduce, strict=False, complete=True)
        try:
            return _selection.first(self._backend, self.photos[index].header, want).name
        except FastDecodeError:  # the check says why
            return ""


def _work_elsewhere(
    task: Measurement, photos: Sequence[Photo], registered: Mapping[str, str]
) -> Work:
    """Make it in a DataLoader's worker, which may not be forked: then it knows no backends yet."""
    _register(registered)
    return Work(task, photos, registered)


def _register(backends: Mapping[str, str]) -> None:
    for name, target in backends.items():
        registry.register(name, target, replace=True)


def _finisher(task: Measurement) -> Callable[[Image], Any]:
    """Return what makes the output of decoded pixels."""
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
    """Return a process's resident memory at its highest, in 10^6 bytes; 0 if unknown.

    Linux is not asked by ``getrusage``: its value is never below what the parent had when it
    started this process. Windows has neither way.
    """
    try:
        lines = Path(_STATUS.format(pid or "self")).read_text().splitlines()
    except OSError:
        return 0.0 if pid else _from_usage()
    kib = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), "0")
    return int(kib) * 1024 / 1e6


def _from_usage() -> float:
    try:
        import resource
    except ImportError:
        return 0.0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


class Timed(NamedTuple):
    """What one block took."""

    # seconds of each image; in the order of the block where there is one thread. Of a pipeline
    # none: nobody sees its images one by one
    calls: tuple[float, ...]
    # wall, cpu: seconds of the whole block, by the clock on the wall and by the processors
    wall: float
    cpu: float
    reading: float = 0.0  # seconds out of `calls` that went into reading files
    peak_mb: float = 0.0  # memory at its highest so far, workers included


class Here:
    """Decoding in this process: from memory or with reading, in one thread or a pool of threads."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._reading = 0.0
        task = work.task
        pooled = task.protocol == "threads"
        self._pool = _pool(task.threads, resizes=bool(task.size)) if pooled else None
        one_torch_thread(resizes=bool(task.size))

    def choices(self) -> list[str]:
        """Name the backend that is tried first for each image, as things are in this protocol."""
        run = self._pool.map if self._pool else map
        return list(run(self._work.choice, range(len(self._work.photos))))

    def time(self, block: Sequence[int]) -> Timed:
        """Time a block; of a pool each thread takes the next image when it is done with one."""
        work, process = self._work, self._work.process
        photos = work.photos
        smallest = min(block, key=lambda index: photos[index].size)
        reads = work.task.protocol == "file"
        # What a store gives may be on its way still.
        items: deque[Any] = deque(block if reads else (bytes(work.read(n)) for n in block))
        self._reading = 0.0
        with no_garbage_collection():
            if photos[smallest].pixels < _LARGE:  # the caches belonged to another backend
                process(work.read(smallest))
            cpu, start = time.process_time(), time.perf_counter()
            calls = self._run(items, self._read_and_process if reads else process)
            wall = time.perf_counter() - start if self._pool else sum(calls)
            cpu = time.process_time() - cpu
        return Timed(tuple(calls), wall, cpu, self._reading, peak_mb())

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
    """Return threads that last, as those of `decode_batch` do."""
    return ThreadPoolExecutor(threads, initializer=partial(one_torch_thread, resizes=resizes))


def one_torch_thread(*, resizes: bool) -> None:
    """Keep PyTorch's resizing in the thread that asks for it: the protocol says how many."""
    if resizes:
        import torch

        torch.set_num_threads(1)


class Batch(NamedTuple):
    """What a DataLoader's worker sends: images, what each took, and what it has used so far."""

    images: Any
    calls: list[float]
    choices: list[str]
    worker: int
    cpu: float
    peak_mb: float


class Images:
    """The data set: files, read and decoded by whichever worker is asked for them."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __len__(self) -> int:
        return len(self._work.photos)

    def __getitems__(self, indexes: Sequence[int]) -> Batch:
        """Make a batch; a negative index asks which backend would be tried first."""
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
            return torch.stack(images)  # what the default collation does with tensors
        if self._work.task.output == "array":
            # Tensors go through shared memory; arrays would be copied through a pipe.
            return [torch.from_numpy(image) for image in images]
        return images


class Loader:
    """A DataLoader with worker processes, which live as long as this does."""

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
            collate_fn=_as_it_is,
            worker_init_fn=_start_worker,
        )

    def choices(self) -> list[str]:
        """Name the backend that is tried first for each image, as things are in a worker."""
        indexes = [~index for index in range(len(self._work.photos))]
        return [name for batch in self._pass(indexes) for name in batch.choices]

    def time(self, block: Sequence[int]) -> Timed:
        """Time one pass over a block, from asking for the first batch to having the last."""
        before = dict(self._cpu)
        with no_garbage_collection():
            cpu, start = time.process_time(), time.perf_counter()
            calls = [call for batch in self._pass(block) for call in batch.calls]
            wall = time.perf_counter() - start
            cpu = time.process_time() - cpu
        cpu += sum(now - before.get(worker, now) for worker, now in self._cpu.items())
        return Timed(tuple(calls), wall, cpu, peak_mb=peak_mb() + sum(self._peak.values()))

    def _pass(self, order: Sequence[int]) -> Iterable[Batch]:
        """Go through the files in this order, and forget the images of each batch after it."""
        self._order[:] = order
        task = self._work.task
        for batch in self._loader:
            if task.output == "array" and not task.size:
                [image.numpy() for image in batch.images]
            self._cpu[batch.worker] = batch.cpu
            self._peak[batch.worker] = batch.peak_mb
            yield batch._replace(images=None)


def _as_it_is(batch: Batch) -> Batch:
    return batch


def _start_worker(_number: int) -> None:
    gc.disable()  # as everywhere inside the clock


def _allow_open_files() -> None:
    """Lift the limit on open files: every tensor on its way between processes is one."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Epochs:
    """A pipeline of the protocol ``train``, which lives as long as this does."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._block: Sequence[int] = ()
        self._loader: Iterable[Any] = ()
        importlib.import_module("fastdecode.measure._pipelines")  # while the others do, too
        _allow_open_files()

    def choices(self) -> list[str]:
        """Name nothing: a pipeline is itself what is chosen."""
        return []

    def time(self, block: Sequence[int]) -> Timed:
        """Time an epoch of a block, from asking for the first batch to having the last."""
        if block != self._block:
            self._block, self._loader = block, self._made(block)
        images, this = 0, os.getpid()
        with no_garbage_collection():
            cpu, start = cpu_seconds(this), time.perf_counter()
            for batch, _ in self._loader:
                images += len(batch)
            wall = time.perf_counter() - start
            cpu = cpu_seconds(this) - cpu
        if images != len(block):
            raise RuntimeError(f"{images} of {len(block)} images came")
        peaks = [peak_mb(pid) for pid in family(this) if pid != this]
        return Timed((), wall, cpu, peak_mb=peak_mb() + sum(peaks))

    def _made(self, block: Sequence[int]) -> Iterable[Any]:
        from fastdecode.measure._pipelines import MAKERS, Setup

        task, photos = self._work.task, self._work.photos
        samples = [(photos[index].source, index) for index in block]
        name: Any = task.backend
        return MAKERS[name](Setup(samples, task.batch, task.workers, task.size))


class Worker:
    """One configuration, or several that are named with each call, and what is decoded."""

    def __init__(
        self,
        registered: Mapping[str, str],
        photos: Sequence[Photo] = (),
        task: Measurement | None = None,
    ) -> None:
        _register(registered)
        self._registered = registered
        self._task: Any = task
        self._timers: dict[object, Here | Loader | Epochs] = {}
        self.take(photos)
        if task is not None:
            self._timer(task)

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

    def take(self, photos: Sequence[Photo]) -> None:
        """Keep what is decoded from now on."""
        self._photos = photos
        self._timers.clear()

    def readable(self, name: str) -> set[int]:
        """Decode everything once; return which images a backend reads."""
        return {index for index, photo in enumerate(self._photos) if _reads(name, photo)}

    def digest(self, index: int) -> bytes | None:
        """Return what the right pixels of a file come to; None if there are none."""
        try:
            data = bytes(self._photos[index].read())
        except (OSError, StoreError):  # the backends say so of this file
            return None
        return _check.reference_digest(data, self._task.reduce)

    def examine(self, index: int, right: bytes | None) -> Finding:
        """Decode a file and compare its pixels."""
        return _check.examine(self._photos[index], self._task.reduce, self._task.backend, right)

    def warm_up(self, block: Sequence[int]) -> str:
        """Do a block outside the clock; return what `decode` tries first for most of the images."""
        timer = self._timer(self._task)
        timer.time(block)
        if self._task.backend != AUTOMATIC:
            return ""
        choices = Counter(filter(None, timer.choices()))
        return choices.most_common(1)[0][0] if choices else ""

    def time(self, block: Sequence[int]) -> Timed:
        """Time a block."""
        return self._timer(self._task).time(block)

    def seconds(self, task: Measurement, block: Sequence[int]) -> float | None:
        """Time a block in any configuration; None if these images are not read there."""
        try:
            return self._timer(task).time(block).wall
        except FastDecodeError:
            return None

    def _timer(self, task: Measurement) -> Here | Loader | Epochs:
        if task.key not in self._timers:
            kinds: dict[str, type[Here | Loader | Epochs]] = {"loader": Loader, "train": Epochs}
            work = Work(task, self._photos, self._registered)
            self._timers[task.key] = kinds.get(task.protocol, Here)(work)
        return self._timers[task.key]


def _reads(name: str, photo: Photo) -> bool:
    try:
        decode(photo.read(), backend=name)
    except FastDecodeError:
        return False
    return True
