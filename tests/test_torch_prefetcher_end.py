"""`DevicePrefetcher`, how epochs begin and end, and what it passes on to the loader.

The known bugs of this pattern from number 16 on; the others are in `test_torch_prefetcher.py`.
"""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from prefetching import Closable, Numbers, eventually, threaded, threads, values  # noqa: E402 - needs torch
from torch.utils.data import DataLoader, IterableDataset  # noqa: E402

from fastdecode.torch import prefetcher  # noqa: E402
from fastdecode.torch.prefetcher import DevicePrefetcher  # noqa: E402


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """After each test the threads are gone."""
    yield
    gc.collect()
    eventually(lambda: threads() == 0)


def test_leaving_the_loop_early_ends_the_thread() -> None:
    """Bug 16: `break` is enough; the loader's own iterator is closed too."""
    loader = Numbers(1000)
    batches = threaded(loader)

    for _ in batches:
        break

    eventually(lambda: threads() == 0)
    assert loader.finished == 1
    assert len(loader.drawn_in) <= 3


def test_an_iterator_that_becomes_garbage_ends_its_thread() -> None:
    """Bug 16: an iterator in a cycle of references ends its thread when it is collected."""
    batches = iter(threaded(Numbers(1000)))
    next(batches)
    cycle: list[Any] = [batches]
    cycle.append(cycle)
    del batches, cycle

    gc.collect()

    eventually(lambda: threads() == 0)


def test_close_ends_the_epoch_and_its_thread() -> None:
    """Bug 16: after `close`, or the `with` block, no thread runs and the iterator says so."""
    with threaded(Numbers(1000)) as batches:
        epoch = iter(batches)
        next(epoch)

    assert threads() == 0
    with pytest.raises(RuntimeError, match=r"close\(\)"):
        next(epoch)
    batches.close()
    assert len(list(batches)) == 1000


class Closables:
    def __init__(self) -> None:
        self.batches = Closable()

    def __iter__(self) -> Closable:
        return self.batches


def test_an_iterator_of_the_loader_is_closed_by_the_thread() -> None:
    """Bug 16: what the loader holds for an epoch is let go, not while a batch is being made."""
    loader = Closables()
    batches = iter(threaded(loader))
    next(batches)
    del batches

    eventually(lambda: len(loader.batches.closed_in) == 1)
    assert loader.batches.closed_in != [threading.get_ident()]


def test_a_loader_that_is_its_own_iterator_is_not_closed() -> None:
    """Leaving the loop ends an epoch, not the loader."""
    loader = Closable()
    with threaded(loader) as batches:
        next(iter(batches))

    assert loader.closed_in == []


class Stuck:
    """Gives one batch, then none until it is let go."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def __iter__(self) -> Iterator[Any]:
        yield torch.ones(2)
        self.go_on.wait()
        yield torch.ones(2)


def test_close_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug 16: a loader that hangs is left behind with a warning, and its thread ends later."""
    monkeypatch.setattr(prefetcher, "_PATIENCE_S", 0.01)
    loader = Stuck()
    batches = threaded(loader)
    epoch = iter(batches)
    next(epoch)

    with pytest.warns(RuntimeWarning, match="still busy"):
        batches.close()
    loader.go_on.set()

    eventually(lambda: threads() == 0)


def test_close_wakes_a_consumer_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug 16: a consumer in another thread gets an error, although the loader gives nothing."""
    monkeypatch.setattr(prefetcher, "_PATIENCE_S", 0.01)
    loader = Stuck()
    batches = threaded(loader)
    got_one = threading.Event()
    errors = []

    def consume() -> None:
        try:
            for _ in batches:
                got_one.set()
        except RuntimeError as error:
            errors.append(str(error))

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert got_one.wait(30)
    with pytest.warns(RuntimeWarning, match="still busy"):
        batches.close()
    consumer.join(30)
    loader.go_on.set()

    assert errors
    assert "close()" in errors[0]


SCRIPT = """
import time, torch
from fastdecode.torch import prefetcher
from fastdecode.torch.prefetcher import DevicePrefetcher

class Loader:
    def __iter__(self):
        try:
            yield torch.ones(1)
            {then}
            while True:
                yield torch.ones(1)
        finally:
            print("closed", flush=True)

prefetcher._PATIENCE_S = {patience}
batches = iter(DevicePrefetcher(Loader(), "meta"))
next(batches)
{last}
"""


def run(**parts: Any) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(**parts)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("last", "code"), [("", 0), ("raise SystemExit(3)", 3)])
def test_the_interpreter_exits_in_the_middle_of_an_epoch(last: str, code: int) -> None:
    """Bug 16: the thread has ended before the interpreter does, without a word."""
    assert run(then="", patience=60, last=last) == (code, "closed\n", "")


def test_the_interpreter_exits_although_the_loader_hangs() -> None:
    """Bug 16: a thread that is stuck in the loader does not keep the process."""
    assert run(then="time.sleep(1000)", patience=0.1, last="") == (0, "", "")


def test_an_epoch_begins_when_it_is_asked_for() -> None:
    """Bug 17: the loader is not asked for the next epoch when one ends, but by the next `iter`."""
    loader = Numbers(3)
    batches = threaded(loader)

    assert loader.begun_in == []
    for epoch in range(3):
        assert values(batches) == [0, 1, 2]
        assert len(loader.begun_in) == epoch + 1
        assert threads() == 0


def test_a_loader_without_a_length_is_no_problem() -> None:
    """Bug 18: the end is the loader's end, not a count; `len` is the loader's own."""

    class Stream(IterableDataset):
        def __iter__(self) -> Iterator[Any]:
            return iter(range(5))

    batches = threaded(DataLoader(Stream(), batch_size=2))

    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4]]
    assert len(threaded(Numbers(7))) == 7
    with pytest.raises(TypeError):
        len(batches)


@pytest.mark.parametrize("make", [threaded, lambda loader: DevicePrefetcher(loader, "cpu")])
def test_a_new_iterator_ends_the_one_before(make) -> None:
    """Bug 18: a second iterator starts from the beginning, and the first says that it is over."""
    batches = make(Numbers(4))
    first = iter(batches)
    next(first)

    second = iter(batches)

    with pytest.raises(RuntimeError, match="newer iterator"):
        next(first)
    assert values(second) == [0, 1, 2, 3]
    assert next(second, "end") == "end"


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_no_more_is_drawn_than_was_asked_for(depth: int) -> None:
    """Bug 19: a consumer that is slow finds `depth` batches ahead, not the whole epoch."""
    loader = Numbers(500)
    batches = iter(threaded(loader, depth))

    for handed in range(1, 4):
        next(batches)
        eventually(lambda handed=handed: len(loader.drawn_in) >= handed + depth)
        time.sleep(0.02)  # for the thread to go too far, if it would

        assert len(loader.drawn_in) == handed + depth


@pytest.mark.parametrize("make", [threaded, lambda loader: DevicePrefetcher(loader, "cpu")])
def test_an_empty_loader_gives_nothing(make) -> None:
    """Bug 20: no batch is no error."""
    assert list(make([])) == []
    assert list(make(Numbers(0))) == []


def test_the_loader_is_asked_in_the_consumers_thread() -> None:
    """Bug 23: worker processes start where the consumer is; only batches come by the thread."""
    loader = Numbers(3)

    list(threaded(loader))

    assert loader.begun_in == [threading.get_ident()]


def test_batches_are_made_in_another_thread() -> None:
    """Bug 24: the consumer never does the loader's work."""
    loader = Numbers(5)

    list(threaded(loader))

    assert threading.get_ident() not in loader.drawn_in
    assert len(set(loader.drawn_in)) == 1


def test_the_thread_does_not_keep_the_process() -> None:
    """Bug 25: it is a daemon, by its constructor: `setDaemon` would be a DeprecationWarning."""
    batches = iter(threaded(Numbers(50)))
    next(batches)

    assert [t.daemon for t in threading.enumerate() if t.name == "fastdecode-prefetch"] == [True]
