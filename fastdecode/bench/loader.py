"""Timing a PyTorch DataLoader: worker processes read, decode and send batches."""

from __future__ import annotations

import gc
import importlib
import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastdecode.bench.memory import peak_mb
from fastdecode.bench.protocols import Timed, no_garbage_collection

if TYPE_CHECKING:
    from fastdecode.bench.work import Work

__all__ = ["BATCH", "Loader"]

BATCH = 32
_OPEN_FILES = 8192


class Item(NamedTuple):
    """What a worker made of one image."""

    picture: Any
    seconds: float
    choice: str


class Batch(NamedTuple):
    """What a worker sends: pictures, what each took, and what the worker has used so far."""

    pictures: Any
    calls: list[float]
    choices: list[str]
    worker: int
    cpu: float
    peak_mb: float


class Pictures:
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
        picture = self._work.process(self._work.read(index))
        return Item(picture, time.perf_counter() - start, "")


class Collate:
    """Makes a batch of items, in the worker."""

    def __init__(self, work: Work) -> None:
        self._setup = work.setup

    def __call__(self, items: Sequence[Item]) -> Batch:
        pictures = [item.picture for item in items]
        return Batch(
            pictures if pictures[0] is None else self._batch(pictures),
            [item.seconds for item in items],
            [item.choice for item in items],
            os.getpid(),
            time.process_time(),
            peak_mb(),
        )

    def _batch(self, pictures: list[Any]) -> Any:
        import torch

        if self._setup.size:
            return torch.stack(pictures)  # what the default collation does with tensors
        if self._setup.output == "array":
            # Tensors go through shared memory; arrays would be copied through a pipe.
            return [torch.from_numpy(picture) for picture in pictures]
        return pictures


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
            Pictures(work),
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
                [picture.numpy() for picture in batch.pictures]
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
