"""What runs in the processes that measure; `fastdecode._process.Child` makes one in each."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fastdecode import _selection, registry
from fastdecode._pixels import converter
from fastdecode.api import decode
from fastdecode.errors import FastDecodeError, StoreError
from fastdecode.measure import _check as check
from fastdecode.measure._check import named
from fastdecode.measure._timing import drain, no_garbage_collection
from fastdecode.measure.result import AUTOMATIC

if TYPE_CHECKING:
    from fastdecode.measure._check import Finding
    from fastdecode.measure._collection import Photo
    from fastdecode.measure.result import Protocol
    from fastdecode.types import Buffer, Image, Output, Reduce

__all__ = [
    "BATCH",
    "Decode",
    "File",
    "Loader",
    "Reference",
    "Setup",
    "Threads",
    "Timed",
    "Work",
    "Worker",
    "one_torch_thread",
    "peak_mb",
]

# Of ImageNet's images, channel by channel: what images are normalised with almost everywhere.
_MEAN = (0.485, 0.456, 0.406)
_DEVIATION = (0.229, 0.224, 0.225)

_STATUS = Path("/proc/self/status")

BATCH = 32
_OPEN_FILES = 8192


@dataclass(frozen=True)
class Setup:
    """One configuration, as it is sent to the process that measures it."""

    protocol: Protocol
    backend: str  # a backend's name, or `result.AUTOMATIC`
    reduce: Reduce
    photos: Sequence[Photo]  # of one format
    threads: int
    workers: int
    output: Output
    size: int  # side in pixels that images are resized to; 0 leaves them as they are
    registered: dict[str, str]  # backends that the caller registered, as ``"module:Class"``


class Work:
    """The work of one configuration on each of its images."""

    def __init__(self, setup: Setup) -> None:
        for name, target in setup.registered.items():
            registry.register(name, target, replace=True)
        self.setup = setup
        self._backend = named(setup.backend)
        self._finish = _finisher(setup.output, setup.size)

    def __reduce__(self) -> tuple[Any, ...]:
        # A worker process that is not forked makes its own, and registers the backends there.
        return Work, (self.setup,)

    def read(self, index: int) -> Buffer:
        """Read the file of an image, or ask its store for it."""
        return self.setup.photos[index].read()

    def load(self, index: int) -> bytes:
        """Bring the bytes of an image into memory: what a store gives may be on its way still."""
        return bytes(self.read(index))

    def process(self, data: Buffer) -> Any:
        """Decode an image and make the output of it: this is what is timed."""
        return self._finish(decode(data, self.setup.reduce, backend=self._backend))

    def choice(self, index: int) -> str:
        """Name the backend that is tried first for an image; empty if there is none."""
        want = _selection.Want("RGB", self.setup.reduce, strict=False, complete=True)
        try:
            return _selection.first(self._backend, self.setup.photos[index].header, want).name
        except FastDecodeError:  # the check says why
            return ""


def _finisher(output: Output, size: int) -> Callable[[Image], Any]:
    """Return what makes the output of decoded pixels."""
    if not size:
        return converter(output)
    import torch

    mean = torch.tensor(_MEAN).view(3, 1, 1)
    deviation = torch.tensor(_DEVIATION).view(3, 1, 1)

    def prepare(image: Image) -> Any:
        pixels = torch.from_numpy(image).permute(2, 0, 1)[None]
        resized = torch.nn.functional.interpolate(
            pixels, size=(size, size), mode="bilinear", antialias=True
        )
        return resized[0].float().div_(255).sub_(mean).div_(deviation)

    return prepare


def peak_mb() -> float:
    """Return the resident memory of this process at its highest, in 10^6 bytes; 0 if unknown.

    Linux is not asked by ``getrusage``: its value is never below what the parent had when it
    started this process. Windows has neither way.
    """
    try:
        lines = _STATUS.read_text().splitlines()
    except OSError:
        return _from_usage()
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

    # seconds of each image; in the order of the block where there is one thread
    calls: tuple[float, ...]
    # wall, cpu: seconds of the whole block, by the clock on the wall and by the processors
    wall: float
    cpu: float
    reading: float = 0.0  # seconds out of `calls` that went into reading files
    peak_mb: float = 0.0  # memory at its highest so far, workers included


class Decode:
    """From memory, one thread."""

    def __init__(self, work: Work) -> None:
        self._work = work
        one_torch_thread(work)

    def choices(self, indexes: Sequence[int]) -> list[str]:
        """Name the backend that is tried first for each image, as things are in this protocol."""
        return [self._work.choice(index) for index in indexes]

    def time(self, block: Sequence[int]) -> Timed:
        """Time a block."""
        items = deque(self._work.load(index) for index in block)
        process = self._work.process
        with no_garbage_collection():
            process(min(items, key=len))  # the processor's caches belonged to another backend
            before = time.process_time()
            calls = drain(items, process)
            cpu = time.process_time() - before
        return Timed(tuple(calls), sum(calls), cpu, peak_mb=peak_mb())


class File(Decode):
    """Reading included, one thread."""

    def time(self, block: Sequence[int]) -> Timed:
        """Time a block."""
        clock, read, process = time.perf_counter, self._work.read, self._work.process
        smallest = min(block, key=lambda index: self._work.setup.photos[index].size)
        calls = []
        reading = 0.0
        with no_garbage_collection():
            process(read(smallest))
            before = time.process_time()
            for index in block:
                start = clock()
                data = read(index)
                between = clock()
                process(data)
                calls.append(clock() - start)
                reading += between - start
            cpu = time.process_time() - before
        return Timed(tuple(calls), sum(calls), cpu, reading, peak_mb())


class Threads:
    """From memory, by a pool of threads in one process."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._count = work.setup.threads
        self._pool = ThreadPoolExecutor(self._count, initializer=one_torch_thread, initargs=(work,))

    def choices(self, indexes: Sequence[int]) -> list[str]:
        """Name the backend that is tried first for each image, as things are in this protocol."""
        return list(self._pool.map(self._work.choice, indexes))

    def time(self, block: Sequence[int]) -> Timed:
        """Time a block: each thread takes the next image when it is done with one."""
        items = deque(self._work.load(index) for index in block)
        with no_garbage_collection():
            cpu, start = time.process_time(), time.perf_counter()
            threads = [
                self._pool.submit(drain, items, self._work.process) for _ in range(self._count)
            ]
            calls = [call for thread in threads for call in thread.result()]
            wall = time.perf_counter() - start
            cpu = time.process_time() - cpu
        return Timed(tuple(calls), wall, cpu, peak_mb=peak_mb())


def one_torch_thread(work: Work) -> None:
    """Keep PyTorch's resizing in the thread that asks for it: the protocol says how many."""
    if work.setup.size:
        import torch

        torch.set_num_threads(1)


class Item(NamedTuple):
    """What a worker made of one image."""

    image: Any
    seconds: float
    choice: str


class Batch(NamedTuple):
    """What a worker sends: images, what each took, and what the worker has used so far."""

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
        return len(self._work.setup.photos)

    def __getitem__(self, index: int) -> Item:
        """Decode an image; a negative index asks which backend would be tried first for it."""
        if index < 0:
            return Item(None, 0.0, self._work.choice(~index))
        start = time.perf_counter()
        image = self._work.process(self._work.read(index))
        return Item(image, time.perf_counter() - start, "")


class Collate:
    """Makes a batch of items, in the worker."""

    def __init__(self, work: Work) -> None:
        self._setup = work.setup

    def __call__(self, items: Sequence[Item]) -> Batch:
        images = [item.image for item in items]
        return Batch(
            images if images[0] is None else self._batch(images),
            [item.seconds for item in items],
            [item.choice for item in items],
            os.getpid(),
            time.process_time(),
            peak_mb(),
        )

    def _batch(self, images: list[Any]) -> Any:
        import torch

        if self._setup.size:
            return torch.stack(images)  # what the default collation does with tensors
        if self._setup.output == "array":
            # Tensors go through shared memory; arrays would be copied through a pipe.
            return [torch.from_numpy(image) for image in images]
        return images


class Loader:
    """A DataLoader with worker processes, which live as long as this does."""

    def __init__(self, work: Work) -> None:
        data: Any = importlib.import_module("torch.utils.data")
        self._setup = work.setup
        self._order: list[int] = []
        self._cpu: dict[int, float] = {}
        self._peak: dict[int, float] = {}
        _allow_open_files()
        self._loader = data.DataLoader(
            Images(work),
            batch_size=BATCH,
            sampler=self._order,
            num_workers=work.setup.workers,
            persistent_workers=True,
            collate_fn=Collate(work),
            worker_init_fn=_start_worker,
        )

    def choices(self, indexes: Sequence[int]) -> list[str]:
        """Name the backend that is tried first for each image, as things are in a worker."""
        return [name for batch in self._pass([~index for index in indexes]) for name in batch]

    def time(self, block: Sequence[int]) -> Timed:
        """Time one pass over a block, from asking for the first batch to having the last."""
        before = dict(self._cpu)
        with no_garbage_collection():
            cpu, start = time.process_time(), time.perf_counter()
            calls = [call for batch in self._pass(block, timed=True) for call in batch]
            wall = time.perf_counter() - start
            cpu = time.process_time() - cpu
        cpu += sum(now - before.get(worker, now) for worker, now in self._cpu.items())
        return Timed(tuple(calls), wall, cpu, peak_mb=peak_mb() + sum(self._peak.values()))

    def _pass(self, order: Sequence[int], *, timed: bool = False) -> list[list[Any]]:
        """Go through the files in this order; return each batch's seconds, or choices."""
        self._order[:] = order
        found: list[list[Any]] = []
        for batch in self._loader:
            if timed and self._setup.output == "array" and not self._setup.size:
                [image.numpy() for image in batch.images]
            self._cpu[batch.worker] = batch.cpu
            self._peak[batch.worker] = batch.peak_mb
            found.append(batch.calls if timed else batch.choices)
        return found


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


class Reference:
    """Decodes for comparison."""

    def __init__(self, setup: Setup) -> None:
        self._work = Work(setup)

    def digest(self, index: int) -> bytes | None:
        """Return what the right pixels of a file come to; None if there are none."""
        try:
            data = self._work.load(index)
        except (OSError, StoreError):  # the backends say so of this file
            return None
        return check.reference_digest(data, self._work.setup.reduce)


class Worker:
    """One configuration."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._protocol = _protocol(setup)

    def examine(self, index: int, right: bytes | None) -> Finding:
        """Decode a file and compare its pixels."""
        return check.examine(
            self._setup.photos[index], self._setup.reduce, self._setup.backend, right
        )

    def warm_up(self, block: Sequence[int]) -> str:
        """Do a block outside the clock; return what `decode` tries first for most of the images."""
        self._protocol.time(block)
        if self._setup.backend != AUTOMATIC:
            return ""
        choices = Counter(filter(None, self._protocol.choices(range(len(self._setup.photos)))))
        return choices.most_common(1)[0][0] if choices else ""

    def time(self, block: Sequence[int]) -> Timed:
        """Time a block."""
        return self._protocol.time(block)


def _protocol(setup: Setup) -> Decode | Threads | Loader:
    work = Work(setup)
    if setup.protocol == "threads":
        return Threads(work)
    if setup.protocol == "file":
        return File(work)
    if setup.protocol == "loader":
        return Loader(work)
    return Decode(work)
