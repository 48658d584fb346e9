"""Loaders that keep account of how they are used, for the tests of `DevicePrefetcher`."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from fastdecode.torch._transfer import Transfer
from fastdecode.torch.prefetcher import DevicePrefetcher

THREAD = "fastdecode-prefetch"


class Numbers:
    """A loader that keeps account of how it is used."""

    def __init__(self, count: int, fail_at: int = -1) -> None:
        self.count = count
        self.fail_at = fail_at
        self.begun_in: list[int] = []
        self.drawn_in: list[int] = []
        self.finished = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Any]:
        self.begun_in.append(threading.get_ident())
        return self._batches()

    def _batches(self) -> Iterator[Any]:
        try:
            for index in range(self.count):
                if index == self.fail_at:
                    raise KeyError("the dataset's own")
                self.drawn_in.append(threading.get_ident())
                yield torch.full((2,), float(index))
        finally:
            self.finished += 1


class Closable:
    """An iterator that has to be closed, and says in which thread it was."""

    def __init__(self) -> None:
        self.closed_in: list[int] = []

    def __iter__(self) -> Closable:
        return self

    def __next__(self) -> Any:
        return torch.ones(2)

    def close(self) -> None:
        self.closed_in.append(threading.get_ident())


class Watched(Transfer):
    """Copies from host to host, and notes which step ran in which thread."""

    def __init__(self) -> None:
        super().__init__(torch.device("cpu"))
        self.ran: dict[str, set[int]] = {}

    def _note(self, step: str) -> None:
        self.ran.setdefault(step, set()).add(threading.get_ident())

    def enter_thread(self) -> None:
        self._note("enter_thread")

    def stage(self, batch: Any) -> Any:
        self._note("stage")
        return super().stage(batch)

    def start(self, staged: Any) -> Any:
        self._note("start")
        return super().start(staged)

    def finish(self, moving: Any) -> Any:
        self._note("finish")
        return super().finish(moving)


def threaded(loader: Any, depth: int = 2, transfer: Transfer | None = None) -> DevicePrefetcher:
    """Return a prefetcher that works as for any device, but keeps batches in the host's memory."""
    prefetcher = DevicePrefetcher(loader, "cpu", depth=depth)
    prefetcher._transfer = transfer or Transfer(torch.device("cpu"))
    return prefetcher


def values(batches: Any) -> list[float]:
    return [batch[0].item() for batch in batches]


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for another thread."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def threads() -> int:
    return sum(thread.name == THREAD for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """After each test the threads are gone."""
    yield
    gc.collect()
    eventually(lambda: threads() == 0)
